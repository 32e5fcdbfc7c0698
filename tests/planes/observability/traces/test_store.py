"""Spans that processes send: kept by job and trace, sampled, and bounded by days and number."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

from hal.core.model import StepId
from hal.planes.observability.database import Database
from hal.planes.observability.otlp.encoding import traces_request
from hal.planes.observability.telemetry import ReceivedSpans, Sender
from hal.planes.observability.traces import store
from hal.planes.observability.traces.spans import Status
from hal.planes.observability.traces.store import KeptSpan, spans_in
from hal.runtime.interface import Runtime
from hal.wire.frames.telemetry import SpanLink, Spans
from hal.wire.roles import Role
from tests.runtime.real_runtime import run_real

TRACE = bytes.fromhex("4bf92f3577b34da6a3ce929d0e0e4736")
SENDER = Sender(Role.AGENT, "n1", "boot:1")


def sent(*names: str, trace: bytes = TRACE, job: int | None = 42, end_ms: int = 20, status: int = 1) -> Spans:
    """Spans of a step, from 10 ms on, numbered from 1, with a field."""
    count = len(names)
    return Spans(
        batch=0,
        names=names,
        traces=trace * count,
        spans=b"".join(struct.pack(">Q", number + 1) for number in range(count)),
        parents=bytes(8 * count),
        starts_us=struct.pack("<Q", 10_000) * count,
        ends_us=struct.pack("<Q", end_ms * 1_000) * count,
        statuses=bytes([status]) * count,
        steps=(StepId(job, 0, 1, 0),) * count if job is not None else (),
        fields=({"bytes": "5"},) * count,
        links=(SpanLink(0, TRACE, bytes(7) + b"\x09", "former-attempt"),),
    )


def kept(spans: Spans) -> list[KeptSpan]:
    return list(spans_in(ReceivedSpans(SENDER, 0, spans)))


def opened(tmp_path: Path) -> sqlite3.Connection:
    async def main(runtime: Runtime) -> None:
        database = Database(runtime, tmp_path / "traces.sqlite", store.MIGRATIONS)
        await database.write(lambda connection: None)
        await database.close()

    run_real(tmp_path, main)
    return sqlite3.connect(tmp_path / "traces.sqlite", isolation_level=None)


def test_a_span_is_read_as_it_was_sent_with_its_sender() -> None:
    (one,) = kept(sent("stage in"))
    assert (one.trace_id, one.job, one.sender) == (TRACE.hex(), 42, "n1")
    assert (one.span.name, one.span.span_id, one.span.parent_id) == ("stage in", f"{1:016x}", "")
    assert (one.span.start_ms, one.span.end_ms, one.span.status) == (10, 20, Status.OK)
    assert one.span.attributes == {
        "bytes": "5", "hal.sender": "n1", "hal.job": "42", "hal.task": 0, "hal.attempt": 1,
    }  # fmt: skip
    assert [(link.span_id, link.why) for link in one.span.links] == [(f"{9:016x}", "former-attempt")]


def test_spans_that_make_no_sense_are_left_out() -> None:
    """Of a trace without an id, one that ends before it begins, and one in the year 140,000."""
    assert kept(sent("a", trace=bytes(16))) == []
    assert kept(sent("a", end_ms=9)) == []
    assert kept(sent("a", end_ms=1 << 53)) == []


def test_spans_of_a_job_are_those_of_its_trace_and_operators_see_those_of_no_job(tmp_path: Path) -> None:
    connection = opened(tmp_path)
    other = bytes(15) + b"\x01"
    for batch in (sent("mine"), sent("other trace", trace=other), sent("other job", job=43), sent("of none", job=None)):
        store.write(connection, kept(batch))
    mine = store.of_job(connection, 42, TRACE.hex(), of_none=False)
    assert [span.name for span in mine] == ["mine"]
    everything = store.of_job(connection, 42, TRACE.hex(), of_none=True)
    assert [span.name for span in everything] == ["mine", "of none"]
    connection.close()


def test_old_spans_go_and_the_oldest_beyond_their_number(tmp_path: Path) -> None:
    """Of ten that ended at 20 ms and ten at 1 s at most eight are kept; then those before 2 s go, too."""
    connection = opened(tmp_path)
    store.write(connection, kept(sent(*(f"old {number}" for number in range(10)))))
    store.write(connection, kept(sent(*(f"new {number}" for number in range(10)), end_ms=1_000)))
    assert store.trim(connection, before_ms=500, most=100) == 10
    assert store.trim(connection, before_ms=500, most=8) == 2
    assert store.of_job(connection, 42, TRACE.hex(), of_none=False)[0].name == "new 2"
    assert store.trim(connection, before_ms=2_000, most=100) == 8
    assert store.trim(connection, before_ms=2_000, most=100) == 0
    connection.close()


def test_what_ends_in_a_year_that_otlp_does_not_know_is_left_out() -> None:
    """Its nanoseconds have 64 bits, up to the year 2554."""
    (last,) = kept(sent("late", end_ms=(1 << 54) // 1_000))
    assert traces_request([(last.trace_id, last.span)])
    assert kept(sent("too late", end_ms=(1 << 54) // 1_000 + 1)) == []
