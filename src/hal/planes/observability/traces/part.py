"""The collector's part for traces: sends the spans of ended attempts to a receiver of OTLP, if one is configured.

Spans are built from the history whenever somebody asks, so nothing is kept here but how far the history was sent. It
begins with what ends after it was configured. What a receiver does not take in time is dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from hal.core.model.log_config import TracesSection
from hal.core.model.trace_ids import share_of
from hal.planes.observability.history.part import History
from hal.planes.observability.history.reading import KeptAttempt
from hal.planes.observability.history.usage import Wanted
from hal.planes.observability.otlp.encoding import traces_request
from hal.planes.observability.otlp.exporter import OtlpExporter
from hal.planes.observability.traces.spans import Known, Span, Status, spans_of_attempt, spans_of_job
from hal.runtime.interface import Runtime

TURN_MS: Final = 1_000
LATE_MS: Final = 7 * 86_400_000
"""An attempt whose node was silent for longer is not sent."""
PAGE: Final = 500
TRACE_CHARS: Final = 32


class TracesPart:
    """See `Part`."""

    name: Final = "traces"

    def __init__(self, runtime: Runtime, history: History, section: TracesSection) -> None:
        self._runtime, self._history, self._section = runtime, history, section
        self._exporter = OtlpExporter(runtime, section.otlp, "otlp-traces")
        self._after: int | None = None
        """Position in the history; None: where it is when this begins."""
        self._left_out = 0

    async def run(self) -> None:
        """See `Part`."""
        if not self._exporter.wanted:
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._exporter.run())
            group.create_task(self._follow())

    def health(self) -> Mapping[str, float | int | str]:
        """See `Part`."""
        return {
            "exported_spans": self._exporter.sent,
            "dropped_spans": self._exporter.dropped,
            "attempts_left_out": self._left_out,
            "receiver": self._exporter.failure or ("answers" if self._exporter.wanted else "none"),
        }

    async def close(self) -> None:
        """See `Part`."""

    async def _follow(self) -> None:
        while True:
            now_ms = self._runtime.now_ms()
            if self._after is None:
                self._after = await self._history.newest_attempt()
            page = await self._history.attempts(Wanted(), now_ms - LATE_MS, now_ms + LATE_MS, self._after, PAGE)
            if page:
                self._after = page[-1].id
                self._send(page)
            if len(page) < PAGE:
                await self._runtime.sleep(TURN_MS)

    def _send(self, attempts: Sequence[KeptAttempt]) -> None:
        spans: list[tuple[str, Span]] = []
        for one in attempts:
            if not self._is_sampled(one):
                self._left_out += 1
                continue
            known = Known(job=int(one.job), trace_id=one.trace_id, name=one.name, submit_ms=one.submit_ms)
            # The job's own span goes with its first task's attempts; receivers keep the last one that they are sent.
            found = spans_of_job(known, [one]) if one.task == 0 else spans_of_attempt(known, one)
            spans += [(one.trace_id, span) for span in found]
        if spans:
            self._exporter.put(traces_request(spans), len(spans))

    def _is_sampled(self, one: KeptAttempt) -> bool:
        if len(one.trace_id) != TRACE_CHARS:
            return False
        known = Known(job=int(one.job), trace_id=one.trace_id)
        failed = spans_of_attempt(known, one)[0].status is Status.ERROR
        return failed or share_of(one.trace_id) < self._section.sample
