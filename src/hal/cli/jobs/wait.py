"""`hal wait`: wait for jobs to end; the exit code is the largest of theirs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hal.cli.kit import exit_codes
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.progress import Progress
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.views import JobInfo, TaskInfo
    from hal.core.model import TasksRef


@command(
    "wait",
    output=True,
    examples="""
    hal wait 42 43
    hal wait --any 42 43
    hal wait 42.0-9
    hal wait $(hal submit sweep.toml) --timeout 1h && echo well done
    """,
)
@click.argument("ids", metavar="JOB[.TASKS]...", nargs=-1, required=True)
@click.option("--timeout", metavar="TIME", help="Stop waiting after TIME, with exit code 124; the jobs continue.")
@click.option("--any", "first", is_flag=True, help="Wait until any one of the jobs has ended.")
@pass_screen
def wait(screen: Screen, ids: Sequence[str], timeout: str | None, first: bool) -> int:
    """The exit code is the largest of the jobs' exit codes, or 124 after --timeout."""
    from hal.core.model import parse_duration, parse_tasks_ref

    refs = [parse_tasks_ref(one) for one in ids]
    timeout_s = parse_duration(timeout, field="--timeout") / 1000 if timeout is not None else None
    if any(ref.ranges for ref in refs):
        if len(refs) > 1 or first:
            raise click.UsageError(f"'{ids[0]}': tasks are waited for alone, and all of them: hal wait JOB.TASKS")
        return _wait_for_tasks(screen, refs[0], timeout_s)
    return wait_for(screen, list(dict.fromkeys(str(ref.job) for ref in refs)), timeout_s, first=first)


def _wait_for_tasks(screen: Screen, ref: TasksRef, timeout_s: float | None) -> int:
    """Wait for some tasks of a job; returns the largest exit code.

    Raises:
        NotFoundError: the job has no such task.
        TimedOutError: `timeout_s` passed.
    """
    from hal.cli.jobs.results import task_exit_code
    from hal.core.model.index_ranges import text_of

    job = screen.client.job(ref.job)
    inside = text_of(ref.ranges)
    left = {task.task for task in job.tasks(tasks=f"[{inside}]" if ref.by_index else inside)}
    ended: list[TaskInfo] = []
    try:
        for task in job.tasks_as_ended(timeout_s):
            if task.task not in left:
                continue
            left.discard(task.task)
            ended.append(task)
            if not screen.plain and not screen.quiet:
                screen.line(f"{task.id} {task.state}{f': {task.message}' if task.message else ''}")
            if not left:
                break
    except KeyboardInterrupt:
        screen.note("interrupted; the job continues")
        return exit_codes.INTERRUPTED
    if screen.plain:
        screen.emit(ended)
    return max(map(task_exit_code, ended), default=exit_codes.OK)


def wait_for(screen: Screen, ids: Sequence[str], timeout_s: float | None, *, first: bool = False) -> int:
    """Wait, and print how each job ended; returns the largest exit code.

    Raises:
        TimedOutError: `timeout_s` passed.
    """
    from hal.cli.jobs.results import job_exit_code

    ended: list[JobInfo] = []
    try:
        _print_each(screen, ids, timeout_s, ended, first=first)
    except KeyboardInterrupt:
        left = len(ids) - len(ended)
        screen.note(f"interrupted; {'the job continues' if left == 1 else f'{left} jobs continue'}")
        return exit_codes.INTERRUPTED
    if screen.plain:
        screen.emit(ended)
    return max((job_exit_code(info) for info in ended), default=exit_codes.OK)


def _print_each(
    screen: Screen, ids: Sequence[str], timeout_s: float | None, ended: list[JobInfo], *, first: bool
) -> None:
    """Print how each job ended, and append it to `ended`."""
    from hal.cli.jobs.results import result_line
    from hal.client.flows.completion import as_ended
    from hal.core.model import plural

    since_s = time.monotonic()
    with Progress(screen) as progress:

        def report() -> None:
            progress.show(f"{len(ended)} of {plural(len(ids), 'job')} ended, {time.monotonic() - since_s:.0f} s")

        for info in as_ended(screen.client.connections, ids, timeout_s, report=report):
            ended.append(info)
            progress.clear()
            if not screen.plain and not screen.quiet:
                screen.line(result_line(info))
            if first:
                break
