"""Spans that processes have sent: kept by trace, within days and a number of them. Runs on a database's threads."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from hal.core.model import StepId
from hal.core.model.printable import printable
from hal.planes.observability.telemetry import ReceivedSpans
from hal.planes.observability.traces.spans import Span, SpanLink, Status
from hal.wire.frames.telemetry import SPAN_ID_BYTES, TRACE_ID_BYTES

MIGRATIONS: Final = (
    """
    CREATE TABLE spans (
        id INTEGER PRIMARY KEY,
        job INTEGER NOT NULL,         -- 0: of no job
        trace BLOB NOT NULL,          -- 16 bytes
        end_ms INTEGER NOT NULL,
        sender TEXT NOT NULL,
        span TEXT NOT NULL            -- JSON, as it is shown
    );
    CREATE INDEX spans_of_job ON spans (job, trace);
    """,
)
MAX_US: Final = 1 << 54
"""Of an instant, in the year 2540: later ones do not fit into OTLP's nanoseconds."""
MAX_SHOWN: Final = 1_000
"""Of one trace."""
TRIMMED_ROWS: Final = 5_000
"""In one transaction."""
_STATUS: Final = (Status.UNSET, Status.OK, Status.ERROR)
_DECODER: Final = msgspec.json.Decoder(Span)


class KeptSpan(NamedTuple):
    """One span, with whom it is about and who has sent it."""

    trace_id: str
    job: int
    """0: no job."""
    sender: str
    span: Span


def spans_in(received: ReceivedSpans) -> Iterator[KeptSpan]:
    """The spans of a batch; those whose ids are zero, or that end before they begin, are left out."""
    batch = received.spans
    count = len(batch.names)
    starts = struct.unpack(f"<{count}Q", batch.starts_us)
    ends = struct.unpack(f"<{count}Q", batch.ends_us)
    links: dict[int, list[SpanLink]] = {}
    for link in batch.links:
        links.setdefault(link.index, []).append(SpanLink(link.trace.hex(), link.span.hex(), printable(link.why)))
    for at, name in enumerate(batch.names):
        trace = batch.traces[at * TRACE_ID_BYTES : (at + 1) * TRACE_ID_BYTES]
        own, parent = (column[at * SPAN_ID_BYTES : (at + 1) * SPAN_ID_BYTES] for column in (batch.spans, batch.parents))
        if not any(trace) or not any(own) or ends[at] < starts[at] or ends[at] > MAX_US:
            continue
        step: StepId | None = batch.steps[at] if batch.steps else None
        attributes: dict[str, str | int] = dict(batch.fields[at]) if batch.fields else {}
        attributes["hal.sender"] = received.sender.name
        if step is not None:
            attributes |= {"hal.job": str(step.job), "hal.task": step.task, "hal.attempt": step.attempt}
        yield KeptSpan(
            trace.hex(),
            step.job if step is not None else 0,
            received.sender.name,
            Span(
                name=name,
                span_id=own.hex(),
                parent_id=parent.hex() if any(parent) else "",
                start_ms=starts[at] // 1_000,
                end_ms=-(-ends[at] // 1_000),
                status=_STATUS[batch.statuses[at]] if batch.statuses[at] < len(_STATUS) else Status.UNSET,
                attributes=attributes,
                links=tuple(links.get(at, ())),
            ),
        )


def write(connection: sqlite3.Connection, spans: Sequence[KeptSpan]) -> None:
    """Keep them."""
    connection.executemany(
        "INSERT INTO spans (job, trace, end_ms, sender, span) VALUES (?, ?, ?, ?, ?)",
        [
            (one.job, bytes.fromhex(one.trace_id), one.span.end_ms, one.sender, msgspec.json.encode(one.span).decode())
            for one in spans
        ],
    )


def of_job(connection: sqlite3.Connection, job: int, trace_id: str, *, of_none: bool) -> list[Span]:
    """Of a job and its trace, as they came; at most `MAX_SHOWN`.

    Args:
        of_none: also those of the trace that are about no job.
    """
    jobs = (job, 0) if of_none else (job,)
    found = []
    for one in jobs:
        query = "SELECT span FROM spans WHERE job = ? AND trace = ? ORDER BY id LIMIT ?"
        found += connection.execute(query, (one, bytes.fromhex(trace_id), MAX_SHOWN)).fetchall()
    return [_DECODER.decode(text) for (text,) in found[:MAX_SHOWN]]


def trim(connection: sqlite3.Connection, before_ms: int, most: int) -> int:
    """Remove some of those that ended before an instant, and of the oldest beyond a number; returns how many."""
    (first, last) = connection.execute("SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM spans").fetchone()
    gone = connection.execute(
        "DELETE FROM spans WHERE id >= ? AND id < ? AND (id <= ? OR end_ms < ?)",
        (first, first + TRIMMED_ROWS, last - most, before_ms),
    ).rowcount
    connection.execute("PRAGMA incremental_vacuum(500)")
    return int(gone)
