"""The collector's part for log lines: takes what arrives, keeps it, finds it.

What arrives waits in memory, within bounds; what does not fit is dropped and counted. A write that fails leaves its
lines waiting: the part is run again, and goes on with them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from hal.core.model.log_config import LogsSection
from hal.planes.observability.logs.component_logs import ComponentLogs
from hal.planes.observability.logs.lines import STEP, Batch, Line, Source, severity_of
from hal.planes.observability.logs.partition import Found
from hal.planes.observability.logs.store import DAY_MS, FoundOutputs, LogReader, LogWriter, Outputs, Page, Wanted
from hal.planes.observability.otlp.encoding import SERVICE, logs_request
from hal.planes.observability.otlp.exporter import OtlpExporter
from hal.runtime.interface import Runtime
from hal.runtime.uninterrupted import uninterrupted
from hal.wire.frames.telemetry import LogLine, Severity

LANE: Final = "logs"
READS: Final = "logs-reads"
TURN_MS: Final = 500
"""How long lines wait for others of their transaction."""
TEND_MS: Final = 10_000
MAX_WAITING_LINES: Final = 200_000
MAX_WAITING_CHARS: Final = 64 << 20
MAX_WRITTEN_LINES: Final = 10_000
"""In one transaction."""
MAX_AHEAD_MS: Final = 60_000
"""How far a sender's clock may be ahead; a line from later is of now."""
USER: Final = "user"
"""Field of the first line of a step in a batch: whose job it is."""
JOB: Final = "job"
"""Field of a line of a process of HAL: the job that it is about, where no attempt is."""
PART: Final = "part"
"""Field of a line that goes on in the next one."""
LINE_OVERHEAD: Final = 200
"""About what a line takes in memory beside its text."""

T = TypeVar("T")


class LogsPart:
    """See `Part`."""

    name: Final = "logs"

    def __init__(self, runtime: Runtime, directory: Path, section: LogsSection, *, home_logs: Path) -> None:
        """
        Args:
            directory: of the store; made when it is first needed.
            home_logs: where HAL's processes on this host log.
        """
        self._runtime, self._directory, self._section = runtime, directory, section
        self._writer = LogWriter(directory, max_bytes=section.size_bytes, keep_ms=section.days * DAY_MS)
        self._reader = LogReader(directory)
        self._components = ComponentLogs(home_logs, self._read_to)
        self._waiting: deque[Batch] = deque()
        self._waiting_lines = self._waiting_chars = 0
        self._lines = self._dropped = self._writes_failed = 0
        self._exporter = OtlpExporter(runtime, section.otlp, "otlp-logs")

    def take(self, sender: str, lines: Sequence[LogLine]) -> None:
        """Lines that have arrived; keeps them for the next write, or drops and counts them.

        Args:
            sender: the node or process, as the connection says.
        """
        now_ms = self._runtime.now_ms()
        for batch in batches_of(sender, lines, now_ms):
            wanted = self._section.jobs if batch.source.component == STEP else self._section.components
            if wanted:
                self._put(batch)

    async def run(self) -> None:
        """See `Part`."""
        if not self._exporter.wanted:
            await self._keep()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._exporter.run())
            group.create_task(self._keep())

    async def _keep(self) -> None:
        await self._runtime.run_blocking(self._make_directory, LANE)
        self._components.forget()
        tended_ms = -TEND_MS
        while True:
            if self._section.components and not self._waiting:
                for batch in await self._runtime.run_blocking(self._components.read, LANE):
                    self._put(batch)
            while self._waiting:
                await uninterrupted(self._write())
            if self._runtime.monotonic_ms() - tended_ms >= TEND_MS:
                tended_ms = self._runtime.monotonic_ms()
                await self._runtime.run_blocking(partial(self._writer.tend, self._runtime.now_ms()), LANE)
            if not self._components.unread_bytes:
                await self._runtime.sleep(TURN_MS)

    def health(self) -> Mapping[str, float | int | str]:
        """See `Part`."""
        return {
            "lines": self._lines,
            "dropped_lines": self._dropped,
            "failed_writes": self._writes_failed,
            "waiting_lines": self._waiting_lines,
            "unread_bytes": self._components.unread_bytes,
            "bytes": self._writer.bytes,
            "files": self._writer.files,
            "exported_lines": self._exporter.sent,
            "dropped_exports": self._exporter.dropped,
        }

    async def close(self) -> None:
        """See `Part`."""
        await self._runtime.run_blocking(self._writer.close, LANE)
        await self._runtime.run_blocking(self._reader.close, READS)

    async def page(self, wanted: Wanted, limit: int, before: int) -> Page:
        """See `LogReader.page`."""
        return await self._read(lambda: self._reader.page(wanted, limit=limit, before=before), Page([], 0))

    async def of_job(self, wanted: Wanted, after: int) -> list[Found]:
        """See `LogReader.of_job`."""
        return await self._read(lambda: self._reader.of_job(wanted, after), [])

    async def outputs(self, job: int, asked: Outputs) -> FoundOutputs:
        """See `LogReader.outputs`."""
        return await self._read(lambda: self._reader.outputs(job, asked), FoundOutputs(False, False, asked, 0))

    async def _read(self, call: Callable[[], T], nothing: T) -> T:
        def read() -> T:
            return call() if self._directory.exists() else nothing

        return await self._runtime.run_blocking(read, READS)

    def _make_directory(self) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _read_to(self, source: Source) -> int:
        return self._writer.read_to(source, self._runtime.now_ms())

    def _put(self, batch: Batch) -> None:
        lines, chars = len(batch.lines), _weight(batch)
        if self._waiting_lines + lines > MAX_WAITING_LINES or self._waiting_chars + chars > MAX_WAITING_CHARS:
            self._dropped += lines
            return
        self._waiting.append(batch)
        self._waiting_lines += lines
        self._waiting_chars += chars

    async def _write(self) -> None:
        """One transaction; on failure its lines still wait."""
        chosen: list[Batch] = []
        lines = 0
        for batch in self._waiting:
            if chosen and lines + len(batch.lines) > MAX_WRITTEN_LINES:
                break
            chosen.append(batch)
            lines += len(batch.lines)
        try:
            kept = await self._runtime.run_blocking(partial(self._writer.add, chosen, self._runtime.now_ms()), LANE)
        except Exception:
            self._writes_failed += 1
            raise
        self._lines += kept
        for batch in chosen:
            self._waiting.popleft()
            self._waiting_lines -= len(batch.lines)
            self._waiting_chars -= _weight(batch)
        if self._exporter.wanted and kept:
            self._exporter.put(logs_request(chosen, SERVICE), lines)


def batches_of(sender: str, lines: Sequence[LogLine], now_ms: int) -> list[Batch]:
    """Lines as they came, those of one source together.

    Args:
        sender: the node or process that sent them.
    """
    found: dict[Source, list[Line]] = {}
    users: dict[int, str] = {}
    for line in lines:
        step, fields = line.step, line.fields
        trace_id = line.trace.hex() if len(line.trace) == 16 else ""
        if step is None:
            job = fields.get(JOB, "")
            number = int(job) if job.isascii() and job.isdigit() and len(job) < 17 else 0
            source = Source(sender, line.component, number, trace_id=trace_id)
        else:
            user = fields.get(USER) or users.get(step.job, "")
            users[step.job] = user
            source = Source(
                sender, line.component, step.job, step.task, step.attempt, step.rank, line.stream, user, trace_id
            )
        text = line.text
        if line.component != STEP and fields:
            text = " ".join([text, *(f"{key}={value}" for key, value in fields.items() if key != JOB)])
        severity = line.severity
        if line.component == STEP and severity is Severity.INFO:
            severity = severity_of(text)  # nodes leave it to the collector
        at_ms = line.at_ms if 0 < line.at_ms <= now_ms + MAX_AHEAD_MS else now_ms
        found.setdefault(source, []).append(Line(at_ms, severity, text, line.offset, PART not in fields))
    return [Batch(source, of, of[-1].offset + 1 if source.component == STEP else 0) for source, of in found.items()]


def _weight(batch: Batch) -> int:
    return sum(len(line.text) + LINE_OVERHEAD for line in batch.lines)
