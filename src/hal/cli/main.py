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
from hal.cli.kit import exit_codes
from hal.cli.kit.colours import colour_allowed
from hal.cli.kit.command import CONTEXT, UnknownOptionError, UnlikelyValueError, output_options, place_options
from hal.cli.kit.lazy_group import Lazy, LazyGroup, ReaderGoneError, UnknownCommandError
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.core.model.errors import HALError

_JOBS = "Jobs"
_NODES = "Nodes"
_POLICY = "Queues and policy"
_ACCESS = "Access"
_HERE = "HAL on this machine"
_OTHER = "Simulation and shell"

COMMANDS = {
    "run": Lazy("hal.cli.jobs.run:run", "Run a command as a job and show its output here.", _JOBS),
    "submit": Lazy("hal.cli.jobs.submit:submit", "Submit jobs from files, a script or a command.", _JOBS),
    "cron": Lazy("hal.cli.jobs.cron:cron", "Manage periodic jobs.", _JOBS),
    "jobs": Lazy("hal.cli.jobs.job_list:jobs", "List jobs.", _JOBS),
    "top": Lazy("hal.cli.top.top:top", "Watch nodes, queues and jobs on this terminal.", _JOBS),
    "show": Lazy("hal.cli.jobs.show:show", "Show a job or a task in full.", _JOBS),
    "why": Lazy("hal.cli.jobs.why:why", "Explain why a job is not running.", _JOBS),
    "logs": Lazy("hal.cli.jobs.logs:logs", "Print the output of a job.", _JOBS),
    "trace": Lazy("hal.cli.jobs.trace:trace", "Show where the time of a job went.", _JOBS),
    "fetch": Lazy("hal.cli.jobs.fetch:fetch", "Get the files that were collected of a job.", _JOBS),
    "exec": Lazy("hal.cli.jobs.exec:exec_", "Run a command inside a running step of a job.", _JOBS),
    "alloc": Lazy("hal.cli.jobs.alloc:alloc", "Hold nodes, with a shell on the first of them.", _JOBS),
    "hostfile": Lazy("hal.cli.jobs.hostfile:hostfile", "Print the nodes of this job as a hostfile, for mpirun.", _JOBS),
    "launch": Lazy("hal.cli.jobs.launch:launch", "Run a command on the nodes of a job, as ranks.", _JOBS),
    "attach": Lazy("hal.cli.jobs.interactive:attach", "Attach to an interactive job.", _JOBS),
    "sessions": Lazy("hal.cli.jobs.sessions:sessions", "List sessions of short tasks.", _JOBS),
    "session": Lazy("hal.cli.jobs.sessions:session", "Show or end a session of short tasks.", _JOBS),
    "replace": Lazy("hal.cli.jobs.replace:replace", "Let a new job take the place of a service.", _JOBS),
    "endpoint": Lazy("hal.cli.jobs.endpoint:endpoint", "Look up where a service is reached.", _JOBS),
    "forward": Lazy("hal.cli.jobs.forward:forward", "Reach a port that a running step serves.", _JOBS),
    "wait": Lazy("hal.cli.jobs.wait:wait", "Wait for jobs to end.", _JOBS),
    "graph": Lazy("hal.cli.jobs.graph:graph", "Draw the jobs before and after a job.", _JOBS),
    "cancel": Lazy("hal.cli.jobs.actions:cancel", "Cancel jobs or tasks.", _JOBS),
    "hold": Lazy("hal.cli.jobs.actions:hold", "Hold jobs, so that they do not start.", _JOBS),
    "release": Lazy("hal.cli.jobs.actions:release", "Release held jobs.", _JOBS),
    "requeue": Lazy("hal.cli.jobs.actions:requeue", "Run jobs or tasks again.", _JOBS),
    "evict": Lazy("hal.cli.jobs.evict:evict", "Make running jobs leave their nodes.", _JOBS),
    "rm": Lazy("hal.cli.jobs.remove:rm", "Remove ended jobs and their outputs.", _JOBS),
    "update": Lazy("hal.cli.jobs.update:update", "Change jobs: priority, walltime, queue and more.", _JOBS),
    "history": Lazy("hal.cli.jobs.history:history", "Show what has run and ended, over time.", _JOBS),
    "usage": Lazy("hal.cli.accounting.usage:usage", "Sum up what ended work had, used and cost.", _JOBS),
    "report": Lazy("hal.cli.accounting.report:report", "Write a week's report as one HTML file.", _JOBS),
    "efficiency": Lazy("hal.cli.jobs.efficiency:efficiency", "Compare what a job used with what it asked for.", _JOBS),
    "gantt": Lazy("hal.cli.jobs.gantt:gantt", "Draw what ran, what runs and what is planned.", _JOBS),
    "attempts": Lazy("hal.cli.jobs.attempts:attempts", "List ended attempts.", _JOBS),
    "events": Lazy("hal.cli.jobs.events:events", "Show the event log.", _JOBS),
    "nodes": Lazy("hal.cli.nodes.node_list:nodes", "List nodes and their resources.", _NODES),
    "node": Lazy("hal.cli.nodes.node:node", "Manage nodes: drain, resume, remove and more.", _NODES),
    "topology": Lazy("hal.cli.nodes.topology:topology", "Show which rack or switch nodes are in, and its use.", _NODES),
    "offer": Lazy("hal.cli.nodes.offer:offer", "Manage offers of machines that could be rented.", _NODES),
    "wants": Lazy("hal.cli.nodes.wants:wants", "Show what waits for nodes, and what it is short of.", _NODES),
    "plan": Lazy("hal.cli.nodes.wants:plan", "Show which nodes are reserved for waiting jobs.", _NODES),
    "token": Lazy("hal.cli.nodes.token:token", "Manage the tokens with which machines join as nodes.", _NODES),
    "certificate": Lazy("hal.cli.nodes.certificate:certificate", "Manage certificates of HAL's processes.", _NODES),
    "agent": Lazy("hal.cli.local.agent:agent", "Run this machine as a node of a HAL on another machine.", _NODES),
    "queues": Lazy("hal.cli.policy.queue_list:queues", "List queues and the jobs in them.", _POLICY),
    "queue": Lazy("hal.cli.policy.queue:queue", "Manage queues.", _POLICY),
    "account": Lazy("hal.cli.policy.account:account", "Manage accounts and their shares.", _POLICY),
    "qos": Lazy("hal.cli.policy.qos:qos", "Manage qualities of service (QOS).", _POLICY),
    "limit": Lazy("hal.cli.policy.limit:limit", "Manage limits and quotas.", _POLICY),
    "booking": Lazy("hal.cli.policy.booking:booking", "Manage bookings of nodes and licences.", _POLICY),
    "licences": Lazy("hal.cli.policy.licences:licences", "List licences and their use.", _POLICY),
    "gate": Lazy("hal.cli.policy.gate:gate", "Manage the gates that jobs may name.", _POLICY),
    "shares": Lazy("hal.cli.policy.shares:shares", "Show fair-share usage by account and user.", _POLICY),
    "advice": Lazy("hal.cli.policy.advice:advice", "Manage advice for policies: prices, loads and more.", _POLICY),
    "policy": Lazy("hal.cli.policy.policy:policy", "Manage the policy as a whole: show, apply, roll back.", _POLICY),
    "login": Lazy("hal.cli.access.login:login", "Log in to a HAL on another machine.", _ACCESS),
    "logout": Lazy("hal.cli.access.login:logout", "Log out.", _ACCESS),
    "whoami": Lazy("hal.cli.access.login:whoami", "Show who you are to HAL.", _ACCESS),
    "api-token": Lazy("hal.cli.access.api_token:api_token", "Manage API tokens.", _ACCESS),
    "secret": Lazy("hal.cli.access.secret:secret", "Manage secrets that jobs use by name.", _ACCESS),
    "reader": Lazy("hal.cli.access.reader:reader", "Manage the registered readers of the feeds.", _ACCESS),
    "access": Lazy("hal.cli.access.access:access", "Explain who may do what.", _ACCESS),
    "security": Lazy("hal.cli.access.security:security", "Check how well this HAL is protected.", _HERE),
    "audit": Lazy("hal.cli.access.audit:audit", "Show the audit log.", _ACCESS),
    "alerts": Lazy("hal.cli.observability.alerts:alerts", "List what is wrong with this HAL.", _HERE),
    "alert": Lazy("hal.cli.observability.alerts:alert", "Silence alerts, and test who is told.", _HERE),
    "up": Lazy("hal.cli.local.up:up", "Start HAL on this machine.", _HERE),
    "down": Lazy("hal.cli.local.down:down", "Stop HAL on this machine.", _HERE),
    "status": Lazy("hal.cli.local.status:status", "Show the status of HAL.", _HERE),
    "metrics": Lazy("hal.cli.observability.metrics:metrics", "Print the metrics of HAL's controller.", _HERE),
    "web": Lazy("hal.cli.local.web:web", "Serve HAL's page, and open it.", _HERE),
    "service": Lazy("hal.cli.local.service:service", "Start HAL with the machine, as a service of systemd.", _HERE),
    "config": Lazy("hal.cli.local.config:config", "Check hal.toml and show its settings.", _HERE),
    "backup": Lazy("hal.cli.local.backup:backup", "Back up all state to a file.", _HERE),
    "restore": Lazy("hal.cli.local.backup:restore", "Restore a backup into an empty store.", _HERE),
    "simulate": Lazy("hal.cli.simulation.simulate:simulate", "Replay a workload log under policies.", _OTHER),
    "workload": Lazy("hal.cli.simulation.workload:workload", "Generate synthetic workload logs.", _OTHER),
    "completion": Lazy("hal.cli.kit.completion:completion", "Print the completion script for a shell.", _OTHER),
}
"""Every command; `hal --help` lists them in this order. The sentence opens the command's own help, too."""

EPILOG = "To begin: hal up, then hal run -- hostname. Every command has -h, with examples."


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"hal {__version__}")
        ctx.exit()


root = LazyGroup(
    "hal",
    lazy=COMMANDS,
    context_settings=CONTEXT,
    help="Schedule batch, high-throughput and AI jobs on this machine and on others.",
    epilog=EPILOG,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Print the version.",
        ),
        *place_options(),
        *output_options(),
    ],
)


_NO_ARGUMENTS: tuple[type[click.UsageError], ...] = (
    (click.exceptions.NoArgsIsHelpError,) if hasattr(click.exceptions, "NoArgsIsHelpError") else ()
)
"""A group was named without a command: the message is its help. Older versions of click print that themselves."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Arguments: default sys.argv."""
    args = list(sys.argv[1:] if argv is None else argv)
    _write_any_text()
    try:
        code = _run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED  # Ctrl-C once more, while an error was being printed
    except (BrokenPipeError, ReaderGoneError):
        # Our reader has gone (`hal jobs | head`): print nothing, and flush nothing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.BROKEN_PIPE
    return code


def _write_any_text() -> None:
    """Write a letter that the terminal's encoding lacks as an escape; no command fails because of it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(args: list[str]) -> int:
    screen = Screen()
    try:
        code = root.main(args, prog_name="hal", standalone_mode=False, obj=screen)
    except _NO_ARGUMENTS as error:
        click.echo(error.format_message(), err=True)
        return exit_codes.USAGE
    except click.UsageError as error:
        return _report(args, "invalid-usage", _message(error), _hint(error), exit_codes.USAGE)
    except click.ClickException as error:
        return _report(args, "error", error.format_message(), "", error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _report(args, "interrupted", "interrupted", "", exit_codes.INTERRUPTED)
    except _hal_error() as error:
        return _report(args, error.code, error.message, error.hint, exit_codes.of_error(error.code))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        at = f": {error.filename}" if error.filename is not None else ""
        return _report(args, "error", f"{error.strerror or error}{at}", "", exit_codes.FAILED)
    finally:
        screen.close()
    return code if isinstance(code, int) else exit_codes.OK


def _hal_error() -> type[HALError]:
    """HALError, imported only once something was raised (the model costs 30 ms)."""
    from hal.core.model import errors

    return errors.HALError


def _message(error: click.UsageError) -> str:
    text = error.format_message()
    return f"{text[:1].lower()}{text[1:]}".rstrip(".")


def _hint(error: click.UsageError) -> str:
    if isinstance(error, UnknownCommandError | UnknownOptionError | UnlikelyValueError) and error.hint:
        return error.hint
    return f"see {error.ctx.command_path} --help" if error.ctx is not None else ""


def _report(args: Sequence[str], code: str, message: str, hint: str, exit_code: int) -> int:
    """Print an error and its hint on standard error, as JSON where JSON was asked for; returns `exit_code`."""
    if _wants_json(args):
        from hal.cli.kit.screen import json_text

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
