"""Sends to the collector what HAL's processes of a joined node log; logs of its own home the collector reads itself.

Lines are read from the files as they grow, bounded each turn, while a collector is there; the files stay as they are.
How far each was read is noted in a file, so that another agent goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from hal.core.model import StepId
from hal.planes.observability.logs.component_logs import ComponentLogs
from hal.planes.observability.logs.lines import Batch, Source
from hal.runtime.interface import Runtime
from hal.runtime.privacy import write_private
from hal.runtime.regular_files import read_regular
from hal.runtime.telemetry_sender import TelemetrySender
from hal.wire.frames.telemetry import LogLine

LANE: Final = "logs"
TURN_MS: Final = 1_000
QUEUED_BYTES: Final = 1 << 20
"""While the sender has so much, nothing is read."""
MAX_NOTE_BYTES: Final = 1 << 20
MAX_FILES: Final = 256
"""Whose positions are noted; those that were read last."""


class LogTails:
    """Of one node. `run` is one task."""

    def __init__(self, runtime: Runtime, directory: Path, node: str, note: Path, sender: TelemetrySender) -> None:
        """
        Args:
            directory: of the logs.
            note: the file for the next agent.
        """
        self._runtime, self._note, self._sender = runtime, note, sender
        self._read = _read_note(note)
        """By file: how far it was read."""
        self._logs = ComponentLogs(directory, self._read_to, node=node, only=node)

    async def run(self) -> None:
        """Read and send until cancelled."""
        while True:
            await self._runtime.sleep(TURN_MS)
            if not self._sender.active or self._sender.queued_bytes >= QUEUED_BYTES:
                continue
            batches = await self._runtime.run_blocking(self._logs.read, LANE)
            if not batches:
                continue
            self._sender.lines(list(_lines(batches)))
            for batch in batches:
                if batch.end:
                    self._read.pop(batch.source.stream, None)
                    self._read[batch.source.stream] = batch.end
            while len(self._read) > MAX_FILES:
                del self._read[next(iter(self._read))]
            await self._runtime.run_blocking(self._write_note, LANE)

    def _read_to(self, source: Source) -> int:
        return self._read.get(source.stream, 0)

    def _write_note(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: the next agent sends some lines again
            write_private(self._note, msgspec.json.encode(self._read).decode())


def _lines(batches: Iterable[Batch]) -> Iterable[LogLine]:
    for batch in batches:
        source = batch.source
        step = StepId(source.job, source.task, source.attempt, 0) if source.job and source.attempt else None
        fields = {"job": str(source.job)} if source.job and step is None else {}
        trace = bytes.fromhex(source.trace_id) if len(source.trace_id) == 32 else b""
        for line in batch.lines:
            yield LogLine(line.at_ms, line.severity, source.component, line.text, step, trace=trace, fields=fields)


def _read_note(path: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode(read_regular(path, MAX_NOTE_BYTES), type=dict[str, int])
    except (OSError, msgspec.DecodeError):
        return {}
