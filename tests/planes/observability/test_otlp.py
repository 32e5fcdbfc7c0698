"""OTLP as the official classes read it, and a receiver that is slow, refuses or is away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from hal.core.model import UnreachableError
from hal.core.model.log_config import OtlpSection
from hal.planes.observability.logs.lines import Batch, Line, Source
from hal.planes.observability.otlp import exporter as exporting
from hal.planes.observability.otlp.encoding import logs_request, traces_request
from hal.planes.observability.otlp.exporter import OtlpExporter
from hal.planes.observability.traces.spans import Span, SpanEvent, SpanLink, Status
from hal.runtime.http_post import post_bytes
from hal.runtime.interface import Runtime
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.frames.telemetry import Severity
from tests.runtime.real_runtime import run_real

TRACE, SPAN, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "00f067aa0ba902b8"


def test_the_official_classes_read_a_span_as_it_is() -> None:
    """Ids, times, status, attributes of each type, links and events."""
    span = Span(
        name="job 42 ü",
        span_id=SPAN,
        parent_id=PARENT,
        start_ms=1_800_000_000_000,
        end_ms=1_800_000_000_250,
        status=Status.ERROR,
        message="exit code 3",
        attributes={"hal.job": "42", "hal.exit_code": -3},
        links=(SpanLink(TRACE, PARENT, "former-attempt"),),
        events=(SpanEvent(1_800_000_000_100, "suspended"),),
    )
    request = ExportTraceServiceRequest.FromString(traces_request([(TRACE, span)]))
    (found,) = request.resource_spans[0].scope_spans[0].spans
    assert (found.trace_id.hex(), found.span_id.hex(), found.parent_span_id.hex()) == (TRACE, SPAN, PARENT)
    assert (found.name, found.end_time_unix_nano - found.start_time_unix_nano) == ("job 42 ü", 250_000_000)
    assert (found.status.code, found.status.message) == (2, "exit code 3")
    assert found.attributes[0].value.string_value == "42"
    assert found.attributes[1].value.int_value == -3
    assert (found.links[0].span_id.hex(), found.events[0].name) == (PARENT, "suspended")
    assert request.resource_spans[0].resource.attributes[0].value.string_value == "hal"


def test_the_official_classes_read_a_line_as_it_is() -> None:
    """Text, severity, time, trace, and what it comes from."""
    source = Source("n1", "step", 42, 7, 1, 0, "stderr", "alice", TRACE)
    batch = Batch(source, [Line(1_800_000_000_000, Severity.ERROR, "disk <full> \x1b[31m")], 1)
    (resource,) = ExportLogsServiceRequest.FromString(logs_request([batch])).resource_logs
    (record,) = resource.scope_logs[0].log_records
    assert (record.body.string_value, record.severity_number) == ("disk <full> \x1b[31m", 17)
    assert (record.trace_id.hex(), record.time_unix_nano) == (TRACE, 1_800_000_000_000 * 1_000_000)
    assert {one.key: one.value.string_value or one.value.int_value for one in record.attributes} == {
        "hal.job": "42", "hal.task": 7, "hal.attempt": 1, "hal.rank": 0, "log.iostream": "stderr",
        "enduser.id": "alice",
    }  # fmt: skip


@contextmanager
def receiver(status: int) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server that answers so; its URL, and what it was sent."""
    got: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.headers["Authorization"], self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.send_header("Retry-After", "7")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_receiver_gets_bytes_and_headers() -> None:
    """And says when to come again."""
    with receiver(503) as (url, got):
        assert post_bytes(url, b"spans", {"Authorization": "secret"}) == (503, 7)
    assert got == [("secret", b"spans")]


def test_a_receiver_that_is_away_is_one_clear_error() -> None:
    """Without what was to be sent."""
    with pytest.raises(UnreachableError) as error:
        post_bytes("http://127.0.0.1:9/v1/traces", b"spans", {"Authorization": "secret"})
    assert "secret" not in str(error.value)


def exported(status: int, monkeypatch: pytest.MonkeyPatch) -> OtlpExporter:
    """What an exporter has done within two minutes of virtual time with three requests, too large to wait together."""
    monkeypatch.setattr(exporting, "MAX_WAITING_BYTES", 20)
    found: list[OtlpExporter] = []
    with receiver(status) as (url, _), VirtualWorld(1) as world:

        async def main(runtime: Runtime) -> None:
            exporter = OtlpExporter(runtime, OtlpSection(endpoint=url), "otlp")
            found.append(exporter)
            for _ in range(3):
                exporter.put(b"x" * 8, 5)
            await exporter.run()

        world.start(world.host("h"), "observability", main)
        world.run_for(120_000)
    return found[0]


def test_what_does_not_fit_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three requests of 8 bytes fit in 20; the receiver takes these."""
    exporter = exported(200, monkeypatch)
    assert (exporter.sent, exporter.dropped, exporter.failure) == (10, 5, "")


def test_a_receiver_that_is_overloaded_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost meanwhile but what does not fit."""
    exporter = exported(503, monkeypatch)
    assert (exporter.sent, exporter.dropped) == (0, 5)
    assert "503" in exporter.failure


def test_what_a_receiver_refuses_for_good_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """And counted."""
    exporter = exported(400, monkeypatch)
    assert (exporter.sent, exporter.dropped) == (0, 15)


def test_a_request_under_way_is_sent_once_though_its_task_is_cancelled(tmp_path: Path) -> None:
    """The part is run again while the receiver has the first request and has not answered: it gets it once, and the
    second one after it."""
    got: list[bytes] = []
    arrived, answer = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            arrived.set()
            answer.wait(30)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    async def main(runtime: RealRuntime) -> None:
        section = OtlpSection(endpoint=f"http://127.0.0.1:{server.server_port}/v1/logs")
        exporter = OtlpExporter(runtime, section, "otlp")
        exporter.put(b"first", 3)
        exporter.put(b"second", 4)
        running = asyncio.ensure_future(exporter.run())
        await asyncio.to_thread(arrived.wait, 30)
        running.cancel()
        answer.set()
        await asyncio.gather(running, return_exceptions=True)
        again = asyncio.ensure_future(exporter.run())
        while exporter.sent < 7:
            await runtime.sleep(10)
        again.cancel()
        assert (got, exporter.sent, exporter.dropped) == ([b"first", b"second"], 7, 0)

    try:
        run_real(tmp_path, main)
    finally:
        answer.set()
        server.shutdown()
        thread.join()
        server.server_close()
