"""`hal`: finds the command, runs it, and turns errors into one line, a hint and an exit code."""

from __future__ import annotations

import io
import itertools
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal import __version__
from hal.cli import exit_codes
from hal.cli.command import CONTEXT, UnknownOptionError, output_options, place_options
from hal.cli.lazy_group import Lazy, LazyGroup, ReaderGoneError, UnknownCommandError
from hal.cli.screen import Screen, colour_allowed

if TYPE_CHECKING:
    from hal.core.model.errors import HALError

_JOBS = "Jobs"
_HERE = "HAL on this machine"
_LOOK = "Looking"
_POLICY = "Who goes next"
_ACCESS = "Who may"
_OTHER = "More"

COMMANDS = {
    "up": Lazy("hal.cli.up:up", "Start HAL on this machine, or what of it is missing.", _HERE),
    "agent": Lazy("hal.cli.agent:agent", "Make this machine a node of a HAL on another one.", _HERE),
    "token": Lazy("hal.cli.token:token", "Tokens with which other machines join.", _HERE),
    "down": Lazy("hal.cli.down:down", "Stop it.", _HERE),
    "status": Lazy("hal.cli.status:status", "How it is: controller, nodes, jobs, and what to do.", _HERE),
    "backup": Lazy("hal.cli.backup:backup", "Copy all state into a file, while HAL runs.", _HERE),
    "restore": Lazy("hal.cli.backup:restore", "Fill the store from a backup.", _HERE),
    "run": Lazy("hal.cli.run:run", "Run a command as a job, here and now: its output, its exit code.", _JOBS),
    "submit": Lazy("hal.cli.submit:submit", "Submit jobs from files or a command; prints their ids.", _JOBS),
    "wait": Lazy("hal.cli.wait:wait", "Wait until jobs have ended.", _JOBS),
    "cancel": Lazy("hal.cli.control:cancel", "Cancel jobs or tasks, by id or by filter.", _JOBS),
    "requeue": Lazy("hal.cli.control:requeue", "Run jobs or tasks again.", _JOBS),
    "hold": Lazy("hal.cli.control:hold", "Keep jobs from starting.", _JOBS),
    "release": Lazy("hal.cli.control:release", "Let held jobs start.", _JOBS),
    "update": Lazy("hal.cli.update:update", "Change jobs: priority, walltime, name …", _JOBS),
    "jobs": Lazy("hal.cli.jobs:jobs", "List jobs; -w watches.", _LOOK),
    "show": Lazy("hal.cli.show:show", "Everything about one job or task.", _LOOK),
    "why": Lazy("hal.cli.why:why", "Why a job is not running, and what would help.", _LOOK),
    "logs": Lazy("hal.cli.logs:logs", "What a job wrote; -f follows.", _LOOK),
    "nodes": Lazy("hal.cli.nodes:nodes", "List nodes.", _LOOK),
    "node": Lazy("hal.cli.node:node", "Act on nodes: cordon, uncordon, drain, rm, fence.", _LOOK),
    "queues": Lazy("hal.cli.queues:queues", "List queues.", _LOOK),
    "shares": Lazy("hal.cli.shares:shares", "Who has had how much of what is theirs.", _LOOK),
    "events": Lazy("hal.cli.events:events", "What happened; -f follows.", _LOOK),
    "queue": Lazy("hal.cli.queue:queue", "Queues: add, set, rm, list, show.", _POLICY),
    "account": Lazy("hal.cli.account:account", "Accounts and their shares.", _POLICY),
    "qos": Lazy("hal.cli.qos:qos", "Qualities of service: rank, preemption.", _POLICY),
    "limit": Lazy("hal.cli.limit:limit", "Limits and quotas.", _POLICY),
    "booking": Lazy("hal.cli.booking:booking", "Bookings: resources set aside for a time.", _POLICY),
    "licences": Lazy("hal.cli.licences:licences", "List licences: total, used, free, booked.", _POLICY),
    "policy": Lazy("hal.cli.policy:policy", "The whole of it: show, history, diff, apply, rollback.", _POLICY),
    "login": Lazy("hal.cli.login:login", "Speak to another HAL from now on.", _ACCESS),
    "logout": Lazy("hal.cli.login:logout", "Forget what hal login kept.", _ACCESS),
    "whoami": Lazy("hal.cli.login:whoami", "Who you are to HAL.", _ACCESS),
    "audit": Lazy("hal.cli.audit:audit", "Who did what; what was refused.", _ACCESS),
    "api-token": Lazy("hal.cli.api_token:api_token", "API tokens: create, list, revoke.", _ACCESS),
    "simulate": Lazy("hal.cli.simulate:simulate", "Replay a workload log under scheduling policies.", _OTHER),
    "workload": Lazy("hal.cli.workload:workload", "Generate synthetic workload logs.", _OTHER),
    "completion": Lazy("hal.cli.completion:completion", "Shell completion for bash, zsh or fish.", _OTHER),
}

EPILOG = "First steps: hal up, then hal run -- hostname. Every command has -h with examples."


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"hal {__version__}")
        ctx.exit()


root = LazyGroup(
    "hal",
    lazy=COMMANDS,
    context_settings=CONTEXT,
    help="HAL runs batch, high-throughput and AI jobs on this machine and others.",
    epilog=EPILOG,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Show the version.",
        ),
        *place_options(),
        *output_options(),
    ],
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Arguments: default sys.argv."""
    args = list(sys.argv[1:] if argv is None else argv)
    _write_any_text()
    try:
        code = _run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED  # Ctrl-C once more, while an error was being told
    except (BrokenPipeError, ReaderGoneError):
        # Whoever read us has gone (`hal jobs | head`): nothing to say, and nothing to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.BROKEN_PIPE
    return code


def _write_any_text() -> None:
    """Where the terminal's encoding lacks a letter, it is written as an escape; no command fails for it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(args: list[str]) -> int:
    try:
        code = root.main(args, prog_name="hal", standalone_mode=False, obj=Screen())
    except click.UsageError as error:
        return _tell(args, "invalid-usage", _message(error), _hint(error), exit_codes.USAGE)
    except click.ClickException as error:
        return _tell(args, "error", error.format_message(), "", error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _tell(args, "interrupted", "interrupted", "", exit_codes.INTERRUPTED)
    except _hal_error() as error:
        return _tell(args, error.code, error.message, error.hint, exit_codes.of_error(error.code))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        at = f": {error.filename}" if error.filename is not None else ""
        return _tell(args, "error", f"{error.strerror or error}{at}", "", exit_codes.FAILED)
    return code if isinstance(code, int) else exit_codes.OK


def _hal_error() -> type[HALError]:
    """HALError, imported only once something was raised (the model costs 30 ms)."""
    from hal.core.model import errors

    return errors.HALError


def _message(error: click.UsageError) -> str:
    text = error.format_message()
    return f"{text[:1].lower()}{text[1:]}".rstrip(".")


def _hint(error: click.UsageError) -> str:
    if isinstance(error, UnknownCommandError | UnknownOptionError) and error.hint:
        return error.hint
    return f"see: {error.ctx.command_path} --help" if error.ctx is not None else ""


def _tell(args: Sequence[str], code: str, message: str, hint: str, exit_code: int) -> int:
    """One line and a hint on standard error, as JSON where JSON was asked for."""
    if _wants_json(args):
        from hal.cli.screen import json_text

        problem = {"code": code, "message": message, "hint": hint, "exit_code": exit_code}
        click.echo(json_text({"error": problem}), err=True)
        return exit_code
    from hal.core.model.printable import printable

    bold, plain = ("\x1b[1;31m", "\x1b[0m") if colour_allowed(sys.stderr) else ("", "")
    click.echo(f"{bold}error:{plain} {printable(' '.join(message.split()))}", err=True, color=True)
    if hint:
        click.echo(f"hint: {printable(' '.join(hint.split()))}", err=True)
    return exit_code


def _wants_json(args: Sequence[str]) -> bool:
    own = args[: list(args).index("--")] if "--" in args else args
    forms = [after for option, after in itertools.pairwise(own) if option in ("-o", "--output")]
    return "json" in forms or not {"--json", "-ojson", "--output=json"}.isdisjoint(own)


if __name__ == "__main__":
    sys.exit(main())
