"""`hal gantt`: draw what ran, what runs and what is planned, by node or by job."""

from __future__ import annotations

import shutil
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.output_files import checked_output, written_whole
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.cli.jobs.gantt_bars import Bar

DEFAULT_SINCE = "1h"
MAX_BARS = 5_000
"""Bars of one drawing."""
MAX_TASKS = 500
"""Running tasks of one array that are drawn."""
MAX_ROWS = 40
"""Rows of text."""
MAX_DRAWN_ROWS = 500
"""Rows of a file."""
PIPE_WIDTH = 100
MINUTE_MS = 60_000


def _drawing(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and path.suffix not in (".svg", ".html"):
        raise click.BadParameter(f"the name of {path} must end in .svg or .html", ctx, param)
    return checked_output(ctx, param, path)


@command(
    "gantt",
    output=True,
    examples="""
    hal gantt                                # the last hour and the plan, by node
    hal gantt --since 1d --by job            # a line for each job
    hal gantt --node n1 --node n2 --since 4h
    hal gantt --since 1d -f day.svg          # a picture; .html: a page
    """,
)
@click.option(
    "--since", metavar="TIME", help=f"Begin TIME ago (30m, 1d), or at that instant (default: {DEFAULT_SINCE})."
)
@click.option("--until", metavar="TIME", help="End there (default: when all that runs or is planned has ended).")
@click.option("--by", type=click.Choice(["node", "job"]), default="node", show_default=True, help="What a row is.")
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Only this node; repeatable.")
@click.option("-u", "--user", metavar="NAME", help="Only jobs of this user.")
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_drawing,
    help="Draw into a file, .svg or .html, instead of the terminal.",
)
@pass_screen
def gantt(
    screen: Screen, since: str | None, until: str | None, by: str, nodes: tuple[str, ...], user: str | None,
    path: Path | None,
) -> None:  # fmt: skip
    """Bars show when tasks ran and where, what runs now, up to its walltime, and what is reserved for waiting jobs.

    JSON and YAML list the bars.
    """
    from hal.cli.jobs.gantt_bars import rows_of
    from hal.cli.jobs.gantt_drawing import as_html, as_svg, as_text
    from hal.cli.kit.formats import instant
    from hal.cli.kit.instants import ago_ms
    from hal.core.model import plural

    now_ms = round(time.time() * 1000)
    begin_ms = ago_ms(since or DEFAULT_SINCE, "--since")
    limit_ms = None if until is None else ago_ms(until, "--until")
    if limit_ms is not None and limit_ms <= begin_ms:
        raise click.UsageError("--until is not after --since: there is nothing to draw")
    bars = _bars(screen, begin_ms, limit_ms, now_ms, frozenset(nodes), user)
    if len(bars) > MAX_BARS:
        screen.note(f"only the latest {MAX_BARS:,} bars are drawn; ask for less: --since, --node, --user")
        bars = sorted(bars, key=lambda bar: bar.end_ms)[-MAX_BARS:]
    if screen.plain:
        screen.emit([{**bar._asdict(), "kind": bar.kind.value} for bar in bars])
        return
    if not bars:
        screen.note("nothing ran in this time, and nothing is planned; --since 1d looks further back")
        return
    rows = rows_of(bars, by_job=by == "job")
    end_ms = limit_ms or max(now_ms, *(bar.end_ms for bar in bars)) + 1
    most = MAX_ROWS if path is None else MAX_DRAWN_ROWS
    if len(rows) > most:
        kept = rows[-most:] if by == "job" else rows[:most]
        screen.note(f"{plural(len(rows) - most, by)} are left out; ask for less: --since, --node, --user")
        rows = kept
    if path is None:
        width = shutil.get_terminal_size().columns if screen.out.isatty() else PIPE_WIDTH
        for line in as_text(rows, begin_ms, end_ms, now_ms, width):
            screen.line(line)
        return
    title = f"{instant(begin_ms)} to {instant(end_ms)}"
    svg = as_svg(rows, begin_ms, end_ms, now_ms, title)
    with written_whole(path) as unfinished:
        unfinished.write_text(as_html(svg, title) if path.suffix == ".html" else svg, "utf-8")
    screen.note(f"{path}: {plural(len(bars), 'bar')}")


def _bars(
    screen: Screen, begin_ms: int, limit_ms: int | None, now_ms: int, nodes: frozenset[str], user: str | None
) -> list[Bar]:
    """What ran since then, what runs, and what is planned; at most a few more than `MAX_BARS`."""
    from hal.cli.jobs.gantt_bars import past

    filters: dict[str, Any] = {"user": user, "since_ms": begin_ms}
    if len(nodes) == 1:
        filters["node"] = next(iter(nodes))
    bars = [past(row) for row in islice(screen.client.attempts(newest=MAX_BARS, **filters), MAX_BARS)]
    found = [bar for bar in bars if bar is not None]
    if limit_ms is None or limit_ms > now_ms:
        found += _running(screen, now_ms, user)
        found += _planned(screen, user, max(now_ms - begin_ms, MINUTE_MS))
    return [
        bar
        for bar in found
        if (not nodes or nodes & set(bar.nodes))
        and bar.end_ms > begin_ms
        and (limit_ms is None or bar.start_ms < limit_ms)
    ]


def _running(screen: Screen, now_ms: int, user: str | None) -> list[Bar]:
    from hal.cli.jobs.gantt_bars import Bar, Kind

    found: list[Bar] = []
    for info in screen.client.jobs(state="active", user=user, placed=True, limit=MAX_BARS):
        walltime = None if info.walltime is None else int(info.walltime)
        starts: list[tuple[int | None, tuple[str, ...], int | None]]
        if info.tasks == 1 and info.placement is not None and not info.restarts:
            starts = [(None, info.placement.nodes, info.start_ms)]
        else:
            tasks = screen.client.job(info.id).tasks(state="active", limit=MAX_TASKS)
            starts = [(task.task if info.tasks > 1 else None, task.nodes, task.start_ms) for task in tasks]
        for number, where, start_ms in starts:
            if start_ms is not None:
                end_ms = max(now_ms if walltime is None else start_ms + walltime, now_ms)
                found.append(Bar(info.id, number, info.name, info.user, where, start_ms, end_ms, Kind.RUNNING))
        if len(found) > MAX_BARS:
            break
    return found


def _planned(screen: Screen, user: str | None, span_ms: int) -> list[Bar]:
    from hal.cli.jobs.gantt_bars import planned
    from hal.client.rest import ask_calls

    if user is not None:
        mine = {info.id for info in screen.client.jobs(state="pending", user=user, limit=MAX_BARS)}
    bars = [planned(one, span_ms) for one in screen.client.call(ask_calls.plan()).reservations[:MAX_BARS]]
    return [bar for bar in bars if bar is not None and (user is None or bar.job in mine)]
