"""`hal fetch`: get the files that were collected of a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.file_calls import CollectedInfo
    from hal.core.model.index_ranges import IndexRange

COLUMNS = ("TASK", "ATTEMPT", "RANK", "FILES", "SIZE", "COLLECTED")


@command(
    "fetch",
    output=True,
    examples="""
    hal submit --ship . --collect 'results/*.csv' -- ./fit.py
    hal fetch 42                 # into the current directory
    hal fetch 42 --to results
    hal fetch 42.7-9             # of these tasks: 7/…, 8/…, 9/…
    hal fetch 42 --list
    """,
)
@click.argument("job", metavar="JOB[.TASKS]")
@click.option(
    "--to", type=click.Path(path_type=Path), default=Path(), metavar="DIR", help="Directory (default: the current one)."
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.option("--list", "lists", is_flag=True, help="List what was collected, fetch nothing.")
@pass_screen
def fetch(screen: Screen, job: str, to: Path, force: bool, lists: bool) -> None:
    """Of each task, the files of the latest attempt of which something was collected. The files of an array are in a
    directory for each task, those of a gang in one for each node (rank-0, rank-1, …).

    A file that is there already is not replaced without --force.
    """
    from hal.client.flows.shipping import latest
    from hal.core.model import NotFoundError, SpecError, parse_tasks_ref, plural

    ref = parse_tasks_ref(job)
    if ref.by_index:
        raise SpecError(f"'{job}' names tasks by index", hint="name them by number, as `hal show` lists them: 42.7-9")
    handle = screen.client.job(ref.job)
    found = handle.collected()
    tasks = sorted({one.task for one in found if not ref.ranges or _within(ref.ranges, one.task)})
    if lists:
        listed = [one for one in found if one.task in tasks]
        screen.show(listed, lambda: _render(screen, listed))
        return
    if not latest(found, tasks):
        wants = (handle.info.spec or {}).get("collect")
        why = "none of its attempts has ended as it says" if wants else "it names no files to collect"
        raise NotFoundError(f"nothing was collected of {job}: {why}", hint=f"hal show {ref.job}")
    paths = handle.fetch(to, tasks=tasks, force=force)
    if screen.plain:
        screen.emit([str(path) for path in paths])
        return
    for path in paths:
        screen.line(str(path))
    screen.note(f"{plural(len(paths), 'file')} of job {ref.job}")


def _within(ranges: Sequence[IndexRange], task: int) -> bool:
    return any(one.first <= task <= one.last and not (task - one.first) % one.step for one in ranges)


def _render(screen: Screen, found: list[CollectedInfo]) -> None:
    from hal.cli.kit.formats import instant
    from hal.core.model.units import format_size

    rows = [
        (*map(str, (one.task, one.attempt, one.rank, one.files)), format_size(one.size_bytes), instant(one.at_ms))
        for one in found
    ]
    screen.table(COLUMNS, rows)
