"""`hal history`: what has ended, over time: by job, summed by user or queue, as CSV, or as a log to replay."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.output_files import checked_output, written_whole
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.feed_calls import EndedAttemptInfo

DEFAULT_SINCE = "1d"
DEFAULT_LIMIT = 100
MAX_ATTEMPTS = 1_000_000
"""Ended attempts that one command reads."""
KINDS = ("job", "attempt", "name", "user", "account", "queue", "node", "state", "day")
COLUMNS_HELP = (
    "Comma list of columns: group (what a row is about), name, user, account, queue, state, jobs, tasks, attempts, "
    "failed, exit, nodes, started, ended, ran, cputime, memory."
)


@command(
    "history",
    output=True,
    examples="""
    hal history                              # jobs that ran within the last day
    hal history --since 7d -s failed         # what failed within a week
    hal history --since 30d --by user        # who used how much
    hal history --since 2030-01-01 --until 2030-02-01 --by day --csv > january.csv
    hal history --job 42 --by attempt        # each attempt of one job
    hal history --since 90d --swf own.swf    # a log of your own jobs: hal simulate own.swf
    hal history --since 90d --export own.parquet   # what the collector keeps of each attempt
    """,
)
@click.option("-s", "--state", multiple=True, metavar="STATE", help="Only attempts that ended like this; repeatable.")
@click.option("-u", "--user", metavar="NAME", help="Only jobs of this user.")
@click.option("-A", "--account", metavar="NAME", default="", help="Only jobs of this account.")
@click.option("-Q", "--queue", metavar="NAME", default="", help="Only jobs in this queue.")
@click.option("-n", "--name", metavar="PATTERN", default="", help="Only jobs with this name; * and ? stand for others.")
@click.option("--job", metavar="JOB", help="Only this job.")
@click.option("--node", metavar="NAME", help="Only what ran on this node.")
@click.option(
    "--since", metavar="TIME", help=f"What ended within the last TIME (1h, 7d), or since (default: {DEFAULT_SINCE})."
)
@click.option("--until", metavar="TIME", help="What ended before TIME, or more than so long ago.")
@click.option("--by", type=click.Choice(KINDS), default="job", show_default=True, help="What a row sums up.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    help=f"The last rows to list; 0: all (default: {DEFAULT_LIMIT}, of --csv all).",
)
@click.option("--columns", metavar="COLUMN,...", help=COLUMNS_HELP)
@click.option("--csv", "as_csv", is_flag=True, help="Print all fields of the rows as CSV.")
@click.option(
    "--swf",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=checked_output,
    help="Write a log in the Standard Workload Format, for hal simulate.",
)
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=checked_output,
    help="Write each attempt that the collector keeps, as Parquet or CSV.",
)
@click.option("--format", "kind", type=click.Choice(("parquet", "csv")), help="Of --export (default: by FILE's name).")
@click.option(
    "--collector", metavar="URL", default="", help="For --export (default: $HAL_COLLECTOR, else as HAL says)."
)
@pass_screen
def history(
    screen: Screen,
    state: tuple[str, ...],
    user: str | None,
    account: str,
    queue: str,
    name: str,
    job: str | None,
    node: str | None,
    since: str | None,
    until: str | None,
    by: str,
    limit: int | None,
    columns: str | None,
    as_csv: bool,
    swf: Path | None,
    export: Path | None,
    kind: str | None,
    collector: str,
) -> None:
    """What has run and ended, from the ended attempts that HAL keeps; the last to end is last.

    A job's row sums up all its tasks and their attempts. Jobs that were cancelled before they ran have none: see
    `hal jobs --all --state cancelled`.
    """
    from hal.cli.jobs import history_rows
    from hal.cli.kit.instants import ago_ms

    if as_csv and screen.plain:
        raise click.UsageError("--csv and -o cannot be combined; give one of them")
    shown = history_rows.chosen(columns, by)
    filters: dict[str, Any] = {"state": state, "user": user, "job": job, "node": node}
    if since is not None or job is None:
        filters["since_ms"] = ago_ms(since or DEFAULT_SINCE, "--since")
    if until is not None:
        filters["until_ms"] = ago_ms(until, "--until")
    if export is not None:
        filters |= {"account": account, "queue": queue, "name": name}
        _export(screen, export, kind, filters, collector)
        return
    lost = _Lost()
    found = _bounded(screen.client.attempts(on_lost=lost, **filters))
    found = history_rows.matching(found, account=account, queue=queue, name=name)
    if swf is not None:
        _write_swf(screen, swf, found)
        _note_lost(screen, lost, filters.get("since_ms", 0))
        return
    rows = history_rows.summed(found, by)
    _note_lost(screen, lost, filters.get("since_ms", 0))
    most = (0 if as_csv else DEFAULT_LIMIT) if limit is None else limit
    listed = rows[-most:] if most else rows
    if as_csv:
        screen.out.write(history_rows.as_csv(listed, by))
        return
    if screen.plain:
        screen.emit(listed)
        return
    table = [[history_rows.COLUMNS[name].cell(row) for name in shown] for row in listed]
    screen.table(history_rows.titles(shown, by), table)
    if not rows:
        screen.note("nothing that matches has ended in this time; --since 30d looks further back")
    elif len(listed) < len(rows):
        screen.note(f"these are the last {len(listed)} of {len(rows)}; --limit 0 lists all")


class _Lost:
    """Whether attempts are no longer kept, of whatever time."""

    def __init__(self) -> None:
        self.any = False

    def __call__(self, first: int, last: int) -> None:
        self.any = True


def _note_lost(screen: Screen, lost: _Lost, since_ms: int) -> None:
    """Note it where the oldest that is kept ended within the time that was asked for."""
    if not lost.any:
        return
    from hal.client.rest import feed_calls

    oldest = screen.client.call(feed_calls.attempts({}, limit=1)).attempts
    if not oldest or oldest[0].recorded_ms > since_ms:
        screen.note("older attempts are no longer kept; for how long they are is in [retention] of hal.toml")


def _bounded(found: Iterable[EndedAttemptInfo]) -> Iterable[EndedAttemptInfo]:
    from hal.core.model import SpecError

    attempts = iter(found)
    yield from islice(attempts, MAX_ATTEMPTS)
    if next(attempts, None) is not None:
        raise SpecError(
            f"more than {MAX_ATTEMPTS:,} attempts have ended in this time",
            hint="ask for less: --since, --until, --user",
        )


def _export(screen: Screen, path: Path, kind: str | None, filters: dict[str, Any], collector: str) -> None:
    from hal.cli.accounting.history_export import check_format, format_of, write_attempts
    from hal.cli.kit.collector import collector_client
    from hal.client.rest.usage_calls import kept_attempts
    from hal.core.model import plural

    states = filters.pop("state")
    kind = format_of(path, kind)
    check_format(kind)
    rows = collector_client(screen, collector).items_of(kept_attempts(filters))
    with written_whole(path) as unfinished:
        count = write_attempts(unfinished, kind, (row for row in rows if not states or row.state in states))
    screen.note(f"{path}: {plural(count, 'attempt')}")


def _write_swf(screen: Screen, path: Path, found: Iterable[EndedAttemptInfo]) -> None:
    from hal.cli.jobs.swf_export import Exported, swf_lines
    from hal.cli.kit.formats import id_number
    from hal.core.model import plural

    attempts = list(found)
    wanted = {one.job for one in attempts}
    jobs = {}
    if wanted:
        oldest = min(map(id_number, map(str, wanted)))
        for info in screen.client.jobs():
            if id_number(info.id) < oldest:
                break
            if info.id in wanted:
                jobs[info.id] = info
    done = Exported()
    with written_whole(path) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        for line in swf_lines(attempts, jobs, screen.client.nodes(), done):
            file.write(f"{line}\n")
    screen.note(f"{path}: {plural(done.lines, 'line')}; replay it with: hal simulate {path}")
    for count, what in (
        (done.without_walltime, "had no walltime: the time that they ran stands for it"),
        (done.rounded_up, "asked for a part of a processor: it counts as a whole one"),
        (done.never_ran, "never began and are left out"),
        (done.job_unknown, "are of jobs that are no longer kept, and are left out"),
    ):
        if count:
            screen.note(f"{plural(count, 'attempt')} {what}")
