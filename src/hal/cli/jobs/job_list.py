"""`hal jobs`: list jobs, once or until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from hal.cli.jobs.job_filters import filter_options, filters_from
from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.views import JobInfo

DEFAULT_LIMIT = 100
MAX_SORTED = 10_000
"""The newest jobs that match, among which --sort finds the first."""
WATCH_EVERY_S = 1.0
COLUMNS_HELP = (
    "Comma list of columns, or, behind a +, of columns beside the usual ones: id, name, user, account, queue, state, "
    "priority, tasks, nodes, width, cpu, memory, gpu, walltime, time, left, waited, submitted, started, ended, exit, "
    "restarts, ready, labels, reason."
)


@command(
    "jobs",
    output=True,
    examples="""
    hal jobs                          # pending and running jobs
    hal jobs --all --limit 20         # the newest 20, ended jobs too
    hal jobs -s failed -s timed-out   # jobs that went wrong
    hal jobs --node n1                # what runs on n1
    hal jobs --all --since 2h         # submitted within the last two hours
    hal jobs --sort -waited           # those that have waited longest first
    hal jobs --columns +waited,cpu    # two columns more
    hal jobs 42 43                    # these jobs, ended or not
    hal jobs -w                       # update the list until Ctrl-C
    hal jobs -o json | jq '.[].id'
    """,
)
@click.argument("ids", metavar="[JOB]...", nargs=-1)
@filter_options
@click.option("--node", metavar="NAME", help="Only jobs that run on this node.")
@click.option("--since", metavar="TIME", help="Only jobs that were submitted within the last TIME (1h, 2d), or since.")
@click.option("--until", metavar="TIME", help="Only jobs that were submitted before TIME, or more than so long ago.")
@click.option("--all", "everything", is_flag=True, help="Include ended jobs.")
@click.option(
    "--limit", type=click.IntRange(0), default=DEFAULT_LIMIT, show_default=True, help="Most jobs to list; 0: all."
)
@click.option("--sort", metavar="COLUMN,...", help="Sort by these columns; -COLUMN: descending. Default: -id.")
@click.option("--columns", metavar="COLUMN,...", help=COLUMNS_HELP)
@click.option("-w", "--watch", is_flag=True, help="Update the list until Ctrl-C; in a pipe it is printed once.")
@pass_screen
def jobs(
    screen: Screen,
    /,
    ids: Sequence[str],
    node: str | None,
    since: str | None,
    until: str | None,
    everything: bool,
    limit: int,
    sort: str | None,
    columns: str | None,
    watch: bool,
    **which: Any,
) -> None:
    """Newest first. Without options, only jobs that have not ended are listed; --all and --state include ended ones.

    REASON is what `hal why` explains in full. JSON and YAML have all fields, whatever the columns.
    """
    from hal.cli.jobs.job_columns import chosen, sort_keys

    filters = filters_from(which) | _bounds(node, since, until)
    shown, keys = chosen(columns), [] if sort is None else sort_keys(sort)
    if ids:
        if filters or everything:
            raise click.UsageError("ids and filters cannot be combined; give one of them")
        filters["ids"] = _numbers(ids)
    elif not everything and "state" not in filters:
        from hal.core.model import TaskState

        filters["state"] = [one.value for one in TaskState if not one.ended]

    def found() -> list[JobInfo]:
        return _found(screen, filters, limit, keys)

    if watch and not screen.plain and screen.out.isatty():
        _watch(screen, shown, found)
        return
    listed = found()
    if screen.plain:
        screen.emit(listed)
        return
    screen.table([name.upper() for name in shown], _rows(listed, shown))
    if not listed and (unknown := _unknown(screen, filters)):
        screen.note(unknown)
    elif not listed and not everything:
        screen.note("no jobs match; `hal jobs --all` includes ended ones")
    elif limit and len(listed) == limit and not ids:
        which_ones = f"the first {limit} in this order" if keys else f"the newest {limit}"
        screen.note(f"these are {which_ones}; --limit 0 lists all")


def _unknown(screen: Screen, filters: Mapping[str, Any]) -> str:
    """What to say of a node or queue that a listing names and that is not there (now): it may be mistyped."""
    for kind, known in (("node", screen.client.nodes), ("queue", screen.client.queues)):
        name = filters.get(kind)
        if name and name not in (names := [one.name for one in known()]):
            from difflib import get_close_matches

            near = get_close_matches(name, names, n=1)
            return f"there is no {kind} '{name}'{f'; did you mean {near[0]}?' if near else f'; see: hal {kind}s'}"
    return ""


def _bounds(node: str | None, since: str | None, until: str | None) -> dict[str, Any]:
    """The filters of a listing that actions on jobs do not know."""
    from hal.cli.kit.instants import ago_ms

    bounds: dict[str, Any] = {"node": node} if node else {}
    if since is not None:
        bounds["submitted_from_ms"] = ago_ms(since, "--since")
    if until is not None:
        bounds["submitted_before_ms"] = ago_ms(until, "--until")
    return bounds


def _rows(found: Sequence[JobInfo], columns: Sequence[str]) -> list[tuple[str, ...]]:
    from hal.cli.jobs.job_columns import rows_of

    return rows_of(found, columns, round(time.time() * 1000))


def _found(screen: Screen, filters: dict[str, Any], limit: int, keys: Sequence[tuple[str, bool]]) -> list[JobInfo]:
    """The jobs that are named, in that order, else those that match the filters, newest first; or in the order of the
    keys."""
    if "ids" in filters:
        from hal.client.rest import calls

        jobs = [screen.client.call(calls.job(str(number), listed=True)) for number in filters["ids"]]
    else:
        most = MAX_SORTED + 1 if keys else limit or None
        jobs = list(screen.client.jobs(limit=most, reasons=True, placed=True, **filters))
    if not keys:
        return jobs
    from hal.cli.jobs.job_columns import sorted_by

    if len(jobs) > MAX_SORTED:
        screen.note(f"more than {MAX_SORTED:,} jobs match; only the newest {MAX_SORTED:,} are sorted")
        jobs = jobs[:MAX_SORTED]
    return list(islice(sorted_by(jobs, keys, round(time.time() * 1000)), limit or None))


def _numbers(ids: Sequence[str]) -> list[int]:
    from hal.core.model import parse_task_ref

    return list(dict.fromkeys(parse_task_ref(one)[0] for one in ids))


def _watch(screen: Screen, columns: Sequence[str], found: Callable[[], Sequence[JobInfo]]) -> None:
    from rich.live import Live

    from hal.cli.kit.tables import console_on, rich_table

    console = console_on(screen.out)
    titles = [name.upper() for name in columns]
    with Live(console=console, auto_refresh=False, screen=False) as live:
        try:
            while True:
                live.update(rich_table(titles, _rows(found(), columns), "STATE", console), refresh=True)
                time.sleep(WATCH_EVERY_S)
        except KeyboardInterrupt:
            return
