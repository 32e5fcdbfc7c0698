"""`hal jobs`: list jobs, once or until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from hal.cli.jobs.job_filters import filter_options, filters_from
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.views import JobInfo

COLUMNS = ("ID", "NAME", "USER", "QUEUE", "STATE", "TASKS", "NODES", "TIME", "WAIT/REASON")
DEFAULT_LIMIT = 100
WATCH_EVERY_S = 1.0


@command(
    "jobs",
    output=True,
    examples="""
    hal jobs                          # pending and running jobs
    hal jobs --all --limit 20         # the newest 20, ended jobs too
    hal jobs -s failed -s timed-out   # jobs that went wrong
    hal jobs 42 43                    # these jobs, ended or not
    hal jobs -w                       # update the list until Ctrl-C
    hal jobs -o json | jq '.[].id'
    """,
)
@click.argument("ids", metavar="[JOB]...", nargs=-1)
@filter_options
@click.option("--all", "everything", is_flag=True, help="Include ended jobs.")
@click.option(
    "--limit", type=click.IntRange(0), default=DEFAULT_LIMIT, show_default=True, help="Most jobs to list; 0: all."
)
@click.option("-w", "--watch", is_flag=True, help="Update the list until Ctrl-C.")
@pass_screen
def jobs(screen: Screen, /, ids: Sequence[str], everything: bool, limit: int, watch: bool, **which: Any) -> None:
    """Newest first. Without options, only jobs that have not ended are listed; --all and --state include ended ones."""
    filters = filters_from(which)
    if ids:
        if filters or everything:
            raise click.UsageError("ids and filters cannot be combined; give one of them")
        filters["ids"] = _numbers(ids)
    elif not everything and "state" not in filters:
        from hal.core.model import TaskState

        filters["state"] = [one.value for one in TaskState if not one.ended]
    if watch and not screen.plain and screen.out.isatty():
        _watch(screen, lambda: _rows(screen, filters, limit))
        return
    if screen.plain:
        screen.emit(list(_found(screen, filters, limit)))
        return
    rows = _rows(screen, filters, limit)
    screen.table(COLUMNS, rows)
    if not rows and not everything:
        screen.note("no jobs match; `hal jobs --all` includes ended ones")
    elif limit and len(rows) == limit and not ids:
        screen.note(f"these are the newest {limit}; --limit 0 lists all")


def _rows(screen: Screen, filters: dict[str, Any], limit: int) -> list[tuple[str, ...]]:
    from hal.cli.jobs.job_cells import done, ran_ms, remark
    from hal.cli.kit.formats import span

    now_ms = round(time.time() * 1000)
    return [
        (
            info.id,
            info.name,
            info.user,
            info.queue,
            info.state.value,
            done(info),
            str(info.nodes),
            span(ran_ms(info, now_ms)),
            remark(info, now_ms),
        )
        for info in _found(screen, filters, limit)
    ]


def _found(screen: Screen, filters: dict[str, Any], limit: int) -> Iterable[JobInfo]:
    """The jobs that are named, in that order, else those that match the filters."""
    if "ids" in filters:
        return [screen.client.job(number).info for number in filters["ids"]]
    return screen.client.jobs(limit=limit or None, **filters)


def _numbers(ids: Sequence[str]) -> list[int]:
    from hal.core.model import parse_task_ref

    return list(dict.fromkeys(parse_task_ref(one)[0] for one in ids))


def _watch(screen: Screen, rows: Callable[[], Sequence[Sequence[str]]]) -> None:
    from rich.live import Live

    from hal.cli.kit.tables import console_on, rich_table

    console = console_on(screen.out)
    with Live(console=console, auto_refresh=False, screen=False) as live:
        try:
            while True:
                live.update(rich_table(COLUMNS, rows(), "STATE", console), refresh=True)
                time.sleep(WATCH_EVERY_S)
        except KeyboardInterrupt:
            return
