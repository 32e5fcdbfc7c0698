"""`hal exec`: run a command inside a running step of a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from hal.cli.jobs.trailing_command import TrailingCommand, trailing_command
from hal.cli.kit import exit_codes
from hal.cli.kit.command import pass_screen
from hal.cli.kit.screen import Screen


@click.command(
    "exec",
    cls=TrailingCommand,
    context_settings={"allow_interspersed_args": False},
    examples="""
    hal exec 42 -- ps ux
    hal exec -it 42 -- bash          # a shell on this terminal
    hal exec 42.7 --node w2 -- nvidia-smi
    hal exec -i 42 -- tar x < data.tar
    """,
)
@click.argument("job", metavar="JOB[.TASK]")
@click.argument("words", metavar="", nargs=-1, type=click.UNPROCESSED)
@click.option("-i", "--stdin", "forward", is_flag=True, help="Pass standard input to the command.")
@click.option("-t", "--tty", "terminal", is_flag=True, help="Run it on a terminal, which this one is connected to.")
@click.option("--rank", type=click.IntRange(0), default=0, metavar="R", help="Rank within a gang (default: 0).")
@click.option("--node", default="", metavar="NAME", help="Node of a gang, instead of its rank.")
@pass_screen
@click.pass_context
def exec_(
    ctx: click.Context,
    screen: Screen,
    /,
    job: str,
    words: Sequence[str],
    forward: bool,
    terminal: bool,
    rank: int,
    node: str,
) -> int:
    """It runs as the step's user, with its limits, variables and sandbox, where the step began. It ends with this
    command, and with the step. The exit code is the command's.
    """
    words, rank, node = _late_options(words, rank, node)
    behind = trailing_command(ctx)
    argv = [*words, *(behind or [])]
    if not argv:
        raise click.UsageError("there is no command to run; write: hal exec JOB -- COMMAND", ctx)
    if terminal and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("-t: this is no terminal; leave it out", ctx)
    if not forward and not terminal:
        refuse_lost_input(ctx, "write -i to pass it on, or </dev/null")
    return run_inside(screen, job, argv, forward=forward, terminal=terminal, rank=rank, node=node)


def _late_options(words: Sequence[str], rank: int, node: str) -> tuple[list[str], int, str]:
    """`--rank R` and `--node NAME` behind the job, where people write them, too."""
    rest = list(words)
    if rest and rest[0] == "--rank" and len(rest) > 1 and rest[1].isdecimal():
        return rest[2:], int(rest[1]), node
    if rest and rest[0] == "--node" and len(rest) > 1:
        return rest[2:], rank, rest[1]
    return rest, rank, node


def refuse_lost_input(ctx: click.Context, instead: str = "write </dev/null") -> None:
    """Refuse to lose what waits at standard input.

    Args:
        instead: what to type.

    Raises:
        UsageError: something does.
    """
    from hal.cli.kit.raw_terminal import has_input

    if has_input(0):
        raise click.UsageError(f"something waits at standard input, which is not passed on; {instead}", ctx)


def run_inside(
    screen: Screen, job: str, argv: Sequence[str], *, forward: bool, terminal: bool, rank: int, node: str
) -> int:
    """Run a command inside a step; returns its exit code."""
    from hal.cli.jobs.step_session import Session, SessionEndedError
    from hal.cli.kit.raw_terminal import RawTerminal
    from hal.client.step_streams import connections_of, open_stream

    number, task = task_ref(job)
    raw = RawTerminal(0) if terminal else None
    rows, columns = raw.size if raw is not None else (0, 0)
    stream = open_stream(
        connections_of(screen.address),
        number,
        kind="exec",
        task=task,
        rank=rank,
        node=node,
        argv=list(argv),
        terminal=terminal,
        term=os.environ.get("TERM", "") if terminal else "",
        rows=rows,
        columns=columns,
    )
    sys.stdout.flush()
    try:
        return Session(stream, stdin=0 if forward or terminal else None).run(raw)
    except SessionEndedError as error:
        return exit_codes.SIGNALLED + error.number


def task_ref(text: str) -> tuple[int, int]:
    """Job and task; without the model's parser, which costs as much time as the command's own start."""
    job, _, task = text.partition(".")
    if job.isdecimal() and (task or "0").isdecimal() and text.isascii() and len(text) <= exit_codes.SIGNALLED:
        return int(job), int(task or 0)
    from hal.core.model import parse_task_ref

    number, position = parse_task_ref(text)
    return number, position or 0
