"""The collector's part for traces: keeps spans that processes send, and sends what it may to a receiver of OTLP.

Spans of attempts are built from the history whenever somebody asks; of these nothing is kept here but how far the
history was sent. It begins with what ends after a receiver was configured. What a receiver does not take in time, or
the disk does not, is dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from hal.core.model import HALError, StoreError
from hal.core.model.log_config import TracesSection
from hal.core.model.trace_ids import job_span, share_of
from hal.planes.observability.database import Database
from hal.planes.observability.history.part import History
from hal.planes.observability.history.reading import KeptAttempt
from hal.planes.observability.history.usage import Wanted
from hal.planes.observability.otlp.encoding import traces_request
from hal.planes.observability.otlp.exporter import OtlpExporter
from hal.planes.observability.telemetry import ReceivedSpans
from hal.planes.observability.traces import store
from hal.planes.observability.traces.spans import (
    DEPENDENCY,
    GateNote,
    Known,
    Span,
    SpanLink,
    Status,
    spans_of_attempt,
    spans_of_job,
)
from hal.planes.observability.traces.store import KeptSpan, spans_in
from hal.runtime.interface import Runtime
from hal.runtime.uninterrupted import uninterrupted

TURN_MS: Final = 1_000
LATE_MS: Final = 7 * 86_400_000
"""An attempt whose node was silent for longer is not sent."""
PAGE: Final = 500
TRACE_CHARS: Final = 32
MAX_WAITING: Final = 50_000
"""Spans that were received and are not written yet."""
WRITTEN_AT_ONCE: Final = 5_000
TRIM_EVERY_MS: Final = 60_000
DAY_MS: Final = 86_400_000
MAX_KNOWN_TRACES: Final = 10_000
"""Jobs whose trace is remembered, because others waited for them."""
MAX_EVENTS: Final = 1_000
MAX_ASKED_GATES: Final = 20
"""Jobs of one page whose gates the controller is asked about; those of further ones are not in what is sent."""


class Controller(Protocol):
    """Asks the controller, as an operator."""

    async def ask(self, method: str, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """The body of its answer."""
        ...


class _Event(Struct, frozen=True):
    at_ms: int
    kind: str
    payload: dict[str, Any] = {}


class _Events(Struct, frozen=True):
    events: tuple[_Event, ...] = ()


_EVENTS: Final = msgspec.json.Decoder(_Events)


class TracesPart:
    """See `Part`."""

    name: Final = "traces"

    def __init__(
        self, runtime: Runtime, directory: Path, history: History, section: TracesSection, controller: Controller
    ) -> None:
        """
        Args:
            directory: of its database.
            controller: knows at which gates attempts waited.
        """
        self._runtime, self._history, self._section, self._controller = runtime, history, section, controller
        self._database = Database(runtime, directory / "traces.sqlite", store.MIGRATIONS)
        self._exporter = OtlpExporter(runtime, section.otlp, "otlp-traces")
        self._after: int | None = None
        """Position in the history; None: where it is when this begins."""
        self._waiting: list[KeptSpan] = []
        self._traces: OrderedDict[str, str] = OrderedDict()
        """By job."""
        self._left_out = self._received = self._dropped = self._failed_writes = 0

    def take(self, received: ReceivedSpans) -> None:
        """Keep the spans of a batch, soon."""
        for one in spans_in(received):
            if one.span.status is not Status.ERROR and share_of(one.trace_id) >= self._section.sample:
                self._left_out += 1
            elif len(self._waiting) >= MAX_WAITING:
                self._dropped += 1
            else:
                self._waiting.append(one)
                self._received += 1

    async def sent_of_job(self, job: int, trace_id: str, *, of_none: bool) -> list[Span]:
        """What processes have sent about a job within its trace; see `store.of_job`."""
        return await self._database.read(partial(store.of_job, job=job, trace_id=trace_id, of_none=of_none))

    async def gates_of(self, job: int) -> list[GateNote]:
        """At which gates its attempts waited, by the events that the controller still has."""
        query = {"job": str(job), "limit": str(MAX_EVENTS)}
        try:
            found = _EVENTS.decode(await self._controller.ask("GET", "/v1/events", query))
        except (HALError, msgspec.DecodeError):
            return []
        return [
            GateNote(event.at_ms, *(str(one.get(key, "")) for key in ("id", "node", "gate", "state", "reason")))
            for event in found.events
            if event.kind == "attempts-gated"
            for one in event.payload.get("attempts", ())
        ]

    async def run(self) -> None:
        """See `Part`."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep())
            if self._exporter.wanted:
                group.create_task(self._exporter.run())
                group.create_task(self._follow())

    def health(self) -> Mapping[str, float | int | str]:
        """See `Part`."""
        return {
            "received_spans": self._received,
            "exported_spans": self._exporter.sent,
            "dropped_spans": self._dropped + self._exporter.dropped,
            "attempts_left_out": self._left_out,
            "failed_writes": self._failed_writes,
            "waiting_spans": len(self._waiting),
            "bytes": self._database.size_bytes(),
            "receiver": self._exporter.failure or ("answers" if self._exporter.wanted else "none"),
        }

    async def close(self) -> None:
        """See `Part`."""
        await self._database.close()

    # ── what processes have sent ──────────────────────────────────────────────────────────────────────────────────

    async def _keep(self) -> None:
        trimmed_ms = 0
        while True:
            while self._waiting:
                await uninterrupted(self._write())
            now_ms = self._runtime.monotonic_ms()
            if self._received and now_ms - trimmed_ms >= TRIM_EVERY_MS:
                trimmed_ms = now_ms
                before_ms = self._runtime.now_ms() - self._section.days * DAY_MS
                trim = partial(store.trim, before_ms=before_ms, most=self._section.spans)
                while await self._database.write(trim):
                    await self._runtime.sleep(1)
            await self._runtime.sleep(TURN_MS)

    async def _write(self) -> None:
        part = self._waiting[:WRITTEN_AT_ONCE]
        try:
            await self._database.write(partial(store.write, spans=part))
        except StoreError:
            self._failed_writes += 1
            raise
        del self._waiting[: len(part)]
        if self._exporter.wanted:
            self._exporter.put(traces_request([(one.trace_id, one.span) for one in part]), len(part))

    # ── ended attempts to the receiver ────────────────────────────────────────────────────────────────────────────

    async def _follow(self) -> None:
        while True:
            now_ms = self._runtime.now_ms()
            if self._after is None:
                self._after = await self._history.newest_attempt()
            page = await self._history.attempts(Wanted(), now_ms - LATE_MS, now_ms + LATE_MS, self._after, PAGE)
            if page:
                await self._send(page)
                self._after = page[-1].id
            if len(page) < PAGE:
                await self._runtime.sleep(TURN_MS)

    async def _send(self, attempts: Sequence[KeptAttempt]) -> None:
        spans: list[tuple[str, Span]] = []
        gates: dict[str, list[GateNote]] = {}
        for one in attempts:
            if not self._is_sampled(one):
                self._left_out += 1
                continue
            if one.gated and one.job not in gates and len(gates) < MAX_ASKED_GATES:
                gates[one.job] = await self.gates_of(int(one.job))
            known = Known(
                job=int(one.job),
                trace_id=one.trace_id,
                name=one.name,
                submit_ms=one.submit_ms,
                parent_id=one.parent_span,
                links=await self._links(one) if one.task == 0 else (),
                gates=gates.get(one.job, ()),
            )
            # The job's own span goes with its first task's attempts; receivers keep the last one that they are sent.
            found = spans_of_job(known, [one]) if one.task == 0 else spans_of_attempt(known, one)
            spans += [(one.trace_id, span) for span in found]
        if spans:
            self._exporter.put(traces_request(spans), len(spans))

    async def _links(self, one: KeptAttempt) -> tuple[SpanLink, ...]:
        """To the jobs for which its job waited, as far as the history knows them."""
        links = []
        for job in one.after_jobs:
            trace_id = self._traces.get(job)
            if trace_id is None:
                found = await self._history.attempts_of(int(job), Wanted(), 0, 1)
                trace_id = self._traces[job] = found[0].trace_id if found else ""
                if len(self._traces) > MAX_KNOWN_TRACES:
                    self._traces.popitem(last=False)
            if len(trace_id) == TRACE_CHARS:
                links.append(SpanLink(trace_id, job_span(trace_id, int(job)), DEPENDENCY))
        return tuple(links)

    def _is_sampled(self, one: KeptAttempt) -> bool:
        if len(one.trace_id) != TRACE_CHARS:
            return False
        known = Known(job=int(one.job), trace_id=one.trace_id)
        failed = spans_of_attempt(known, one)[0].status is Status.ERROR
        return failed or share_of(one.trace_id) < self._section.sample
