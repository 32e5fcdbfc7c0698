"""`hal trace`: where the time of a job went, drawn as bars."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from hal.cli.kit.command import command, pass_screen
from hal.cli.kit.screen import Screen

if TYPE_CHECKING:
    from hal.client.rest.trace_calls import SpanInfo, TraceInfo

MAX_DEPTH: Final = 8
LEAST_BAR: Final = 20
MOST_BAR: Final = 100
PLAIN_WIDTH: Final = 120
MARKS: Final = {"held back": "·", "waiting": "░", "starting": "▒"}
"""Of phases in which nothing of the job runs; all else is a full bar."""


@command(
    "trace",
    output=True,
    examples="""
    hal trace 42
    hal trace 42.7            # of task 7
    hal trace 42 -o json      # spans with their ids
    """,
)
@click.argument("job", metavar="JOB[.TASK]")
@click.option("-n", "--limit", type=click.IntRange(1, 2_000), metavar="N", help="Most attempts (default: 200).")
@click.option("--collector", metavar="URL", help="The collector (default: $HAL_COLLECTOR, else the one of this HAL).")
@pass_screen
def trace(screen: Screen, job: str, limit: int | None, collector: str | None) -> None:
    """Each line is a span: how long it took, and when, from the submission on the left to the end on the right.

    Dots: held back, by dependencies, a begin time or a hold. Light: waiting for resources. Grey: starting, at gates
    for example. Full: running. The collector has them: `hal up --with observability`.
    """
    from hal.cli.kit.collector import collector_client
    from hal.client.rest import trace_calls
    from hal.core.model import parse_tasks_ref

    ref = parse_tasks_ref(job)
    if ref.ranges and ref.task is None:
        raise click.UsageError("a trace is of a job, or of one task of it: JOB.TASK")
    found = collector_client(screen, collector or "").call(trace_calls.trace(str(ref.job), task=ref.task, limit=limit))
    screen.show(found, lambda: _draw(screen, found))


def _draw(screen: Screen, found: TraceInfo) -> None:
    width = shutil.get_terminal_size().columns if screen.out.isatty() else PLAIN_WIDTH
    for line in drawn(found.spans, round(time.time() * 1000), width):
        screen.line(line)
    screen.note(f"trace {found.trace_id}" + ("; there are more attempts: -n gives more" if found.truncated else ""))


def drawn(spans: Sequence[SpanInfo], now_ms: int, width: int) -> Iterator[str]:
    """The lines of a trace.

    Args:
        now_ms: where spans reach that have not ended.
        width: columns.
    """
    from hal.core.model import format_duration

    if not spans:
        return
    first_ms = min(span.start_ms for span in spans)
    last_ms = max(now_ms if span.end_ms is None else span.end_ms for span in spans)
    rows = [("  " * depth + span.name, span) for depth, span in _ordered(spans)]
    took = [format_duration(max(0, (span.end_ms or now_ms) - span.start_ms)) for _, span in rows]
    named, timed = min(max(len(name) for name, _ in rows), 48), max(map(len, took))
    bar = min(max(width - named - timed - 4, LEAST_BAR), MOST_BAR)
    scale = bar / max(last_ms - first_ms, 1)
    for (name, span), text in zip(rows, took, strict=True):
        begin = min(int((span.start_ms - first_ms) * scale), bar - 1)
        end = bar if span.end_ms is None else max(begin + 1, round((span.end_ms - first_ms) * scale))
        mark = MARKS.get(span.name, "█")
        line = f"{name[:named]:<{named}}  {text:>{timed}}  {' ' * begin}{mark * (min(end, bar) - begin)}"
        if span.end_ms is None:
            line += "▶"
        if span.status == "error" and span.message:
            line += f" ✗ {span.message}"
        yield line.rstrip()


def _ordered(spans: Sequence[SpanInfo]) -> Iterator[tuple[int, SpanInfo]]:
    """Each span once, with its depth: below its parent, by when it began."""
    ids = {span.span_id for span in spans}
    below: dict[str, list[SpanInfo]] = {}
    for span in spans:
        below.setdefault(span.parent_id if span.parent_id in ids else "", []).append(span)

    def walk(parent: str, depth: int) -> Iterator[tuple[int, SpanInfo]]:
        for span in sorted(below.pop(parent, []), key=lambda one: one.start_ms):
            yield depth, span
            if depth < MAX_DEPTH:
                yield from walk(span.span_id, depth + 1)

    yield from walk("", 0)
    while below:  # spans that name one another as parents, and what is deeper
        yield from walk(next(iter(below)), 0)
