"""`hal alloc`: hold nodes, and work on them by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from hal.cli.jobs.exec import refuse_lost_input
from hal.cli.jobs.job_options import job_options, options_of
from hal.cli.jobs.trailing_command import TrailingCommand, trailing_command
from hal.cli.kit.command import pass_screen
from hal.cli.kit.screen import Screen

SHELL: Final = ("/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}"')
"""The shell of whoever's job it is, on its node."""


@click.command(
    "alloc",
    cls=TrailingCommand,
    context_settings={"allow_interspersed_args": False},
    examples="""
    hal alloc -N 2 -c 4 -t 2h         # a shell on the first of two nodes; in it: hal launch ./solver
    hal alloc -N 4 --here             # a shell here; hal launch in it runs on the nodes
    hal alloc -N 2 -- ./steps.sh      # instead of a shell
    """,
)
@click.argument("words", metavar="", nargs=-1, type=click.UNPROCESSED)
@click.option("--here", is_flag=True, help="Run the shell here; the nodes are held until it ends.")
@job_options
@pass_screen
@click.pass_context
def alloc(ctx: click.Context, screen: Screen, /, words: Sequence[str], here: bool, **given: Any) -> int:
    """The nodes are those of a job, which ends with the shell, or with this command; `hal launch` in the shell runs
    commands on all of them. While the job waits, this shows why; Ctrl-C cancels it then.

    The exit code is the shell's.
    """
    behind = trailing_command(ctx)
    command = [*words, *(["--", *behind] if words and behind is not None else behind or [])]
    options = options_of(given)
    options.setdefault("name", "alloc")
    options.setdefault("nodes", 1)
    if here:
        from hal.cli.jobs.allocation_here import work_here

        return work_here(screen, command, options)
    from hal.cli.jobs.interactive import run_interactively

    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not terminal and not command:
        raise click.UsageError("this is no terminal for a shell; write: hal alloc -- COMMAND", ctx)
    if not terminal:
        refuse_lost_input(ctx, "write </dev/null, or --here to pass it to a command here")
    return run_interactively(screen, command or list(SHELL), options, terminal=terminal)
