"""`hal wait`: until jobs have ended; the exit code is the worst of theirs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli import exit_codes
from hal.cli.command import command, pass_screen
from hal.cli.progress import Progress
from hal.cli.screen import Screen

if TYPE_CHECKING:
    from hal.client.views import JobInfo


@command(
    "wait",
    short_help="Wait until jobs have ended.",
    output=True,
    examples="""
    hal wait 42 43
    hal wait --any 42 43
    hal wait $(hal submit sweep.toml) --timeout 1h && echo well done
    """,
)
@click.argument("ids", metavar="JOB...", nargs=-1, required=True)
@click.option("--timeout", metavar="TIME", help="Give up after so long (exit code 124); the jobs go on.")
@click.option("--any", "first", is_flag=True, help="Until one of them has ended.")
@pass_screen
def wait(screen: Screen, ids: Sequence[str], timeout: str | None, first: bool) -> int:
    """Wait until all JOBs have ended. The exit code is the worst of theirs, 124 after --timeout."""
    from hal.core.model import parse_duration, parse_task_ref

    numbers = []
    for one in ids:
        number, task = parse_task_ref(one)
        if task is not None:
            raise click.UsageError(f"'{one}' is a task; wait for its job: {number}")
        numbers.append(str(number))
    timeout_s = parse_duration(timeout, field="--timeout") / 1000 if timeout is not None else None
    return wait_for(screen, list(dict.fromkeys(numbers)), timeout_s, first=first)


def wait_for(screen: Screen, ids: Sequence[str], timeout_s: float | None, *, first: bool = False) -> int:
    """Wait, say how each ended, and give the worst exit code.

    Raises:
        TimedOutError: `timeout_s` passed.
    """
    from hal.cli.endings import job_exit_code

    ended: list[JobInfo] = []
    try:
        _tell_each(screen, ids, timeout_s, ended, first=first)
    except KeyboardInterrupt:
        left = len(ids) - len(ended)
        screen.note(f"interrupted; {'the job goes' if left == 1 else f'{left} jobs go'} on")
        return exit_codes.INTERRUPTED
    if screen.plain:
        screen.emit(ended)
    return max((job_exit_code(info) for info in ended), default=exit_codes.OK)


def _tell_each(
    screen: Screen, ids: Sequence[str], timeout_s: float | None, ended: list[JobInfo], *, first: bool
) -> None:
    """Say of each how it ended, and put it into `ended`."""
    from hal.cli.endings import ending
    from hal.client.ended import as_ended

    since_s = time.monotonic()
    with Progress(screen) as progress:

        def tell() -> None:
            progress.say(f"{len(ended)} of {len(ids)} ended, {time.monotonic() - since_s:.0f} s")

        for info in as_ended(screen.client, ids, timeout_s, tell=tell):
            ended.append(info)
            progress.clear()
            if not screen.plain and not screen.quiet:
                screen.line(ending(info))
            if first:
                break
