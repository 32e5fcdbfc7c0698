"""Sends what a process measures and logs to the collector, where there is one; nothing ever waits for it.

What is given is queued and returns at once. The queue is bounded in bytes: where the collector is slow, stopped or
away, the oldest batch is dropped and counted. Batches are kept until the collector has named them, and are sent again
on the next connection. While no collector is announced, nothing is queued and nothing is counted.

Used from the loop only; `run` is one task.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from array import array
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hal.core.model.errors import HALError, SpecError, TimedOutError, UnreachableError, error_from_code
from hal.runtime.interface import Address, Connection, Credentials, Runtime, TcpAddress, UnixAddress
from hal.runtime.line_budget import BudgetedLog
from hal.wire.address import parse_address
from hal.wire.agree import SPOKEN
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye, Hello, Welcome
from hal.wire.frames.telemetry import (
    MAX_LABEL,
    MAX_LINES,
    MAX_SERIES,
    TELEMETRY,
    BatchesReceived,
    Dropped,
    LogLine,
    LogLines,
    Series,
    SeriesKind,
    SeriesTable,
    SeriesValues,
    Spans,
)
from hal.wire.roles import Role

MAX_QUEUED_BYTES: Final = 4 << 20
"""Of all batches that are kept, sent ones included; beyond that, the oldest is dropped."""
WINDOW_BYTES: Final = 512 << 10
"""Sent and not named by the collector: no more is sent meanwhile."""
WINDOW_BATCHES: Final = 64
BATCH_BYTES: Final = 128 << 10
"""Longer lists of lines are several batches."""
TABLE_SERIES: Final = 100
"""In one frame: so many fit, however long their labels are."""
ANSWER_MS: Final = 5_000
SILENT_MS: Final = 30_000
"""A connection on which a batch is not named for so long is given up."""
LOOK_MS: Final = 5_000
"""How often it is looked for such a connection, and drops are reported at most."""
FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 30_000
UNIX: Final = "unix:"
VALUES, LINES, SPANS = "values", "lines", "spans"
KINDS: Final = (VALUES, LINES, SPANS)
LINE_BYTES: Final = 64
"""Of a line beside its text, about."""
SPAN_BYTES: Final = 200
VALUE_BYTES: Final = 16


class SeriesKey(NamedTuple):
    """What is measured; see `hal.wire.frames.telemetry.Series`."""

    name: str
    kind: SeriesKind
    labels: tuple[tuple[str, str], ...] = ()


class _Values(NamedTuple):
    at_ms: int
    keys: tuple[SeriesKey, ...]
    values: bytes


class _Batch(NamedTuple):
    number: int
    kind: str
    items: int
    size: int
    content: _Values | LogLines | Spans


class TelemetrySender:
    """Of one process."""

    def __init__(
        self,
        runtime: Runtime,
        role: Role,
        name: str,
        credentials: Credentials | None = None,
        *,
        local: bool = True,
        max_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        """
        Args:
            name: of the node or process; over TLS the collector takes that of the certificate.
            credentials: for TLS; None: only a Unix socket can be dialled.
            local: the controller is on this host, so Unix sockets that it names are, too.
        """
        self._runtime, self._role, self._name = runtime, role, name
        self._credentials, self._local, self._max_bytes = credentials, local, max_bytes
        self._log = BudgetedLog(runtime.log, runtime.monotonic_ms)
        self._addresses: tuple[Address, ...] = ()
        self._at = 0
        """Index of the address that is dialled next."""
        self._connection: Connection | None = None
        self._connected_to: Address | None = None
        self._queue: deque[_Batch] = deque()
        self._sent: deque[_Batch] = deque()
        """On this connection, and not named by the collector yet."""
        self._bytes = self._sent_bytes = 0
        self._number = 0
        self._changed = asyncio.Event()
        self._numbers: dict[SeriesKey, int] = {}
        """Of the series on this connection."""
        self._dropped: Counter[str] = Counter()
        self._told: dict[str, int] = {}
        """What this collector was told of it on this connection."""
        self._told_ms = self._heard_ms = 0

    # ── what a process gives ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def active(self) -> bool:
        """A collector is announced that can be dialled: what is given is sent, or counted as dropped."""
        return bool(self._addresses)

    @property
    def queued_bytes(self) -> int:
        """About what is kept now."""
        return self._bytes

    @property
    def dropped(self) -> Mapping[str, int]:
        """How much was dropped since this process began, by kind."""
        return {kind: self._dropped[kind] for kind in KINDS}

    def dial(self, addresses: Sequence[str]) -> None:
        """Send to the collector at the first of these addresses that answers; none: there is no collector now.

        Args:
            addresses: `unix:/PATH`, `HOST:PORT`. Those that this process cannot use are left out.
        """
        found = tuple(one for text in addresses if (one := self._usable(text)) is not None)
        if found == self._addresses:
            return
        self._addresses, self._at = found, 0
        if self._connection is not None and self._connected_to not in found:
            self._connection.abort()
        self._changed.set()

    def values(self, at_ms: int, values: Mapping[SeriesKey, float]) -> None:
        """Queue the values of some series at one instant."""
        if not self.active or not values:
            return
        items = list(values.items())
        for at in range(0, len(items), MAX_SERIES // 2):
            part = items[at : at + MAX_SERIES // 2]
            packed = array("d", [value for _, value in part])
            keys = tuple(key for key, _ in part)
            self._put(VALUES, len(part), VALUE_BYTES * len(part), _Values(at_ms, keys, packed.tobytes()))

    def lines(self, lines: Sequence[LogLine]) -> None:
        """Queue lines, in their order."""
        if not self.active:
            return
        part: list[LogLine] = []
        size = 0
        for line in lines:
            part.append(line)
            size += _line_bytes(line)
            if size >= BATCH_BYTES or len(part) >= MAX_LINES:
                self._put(LINES, len(part), size, LogLines(batch=0, lines=tuple(part)))
                part, size = [], 0
        if part:
            self._put(LINES, len(part), size, LogLines(batch=0, lines=tuple(part)))

    def spans(self, spans: Spans) -> None:
        """Queue finished spans; their batch number is given here."""
        if self.active and spans.names:
            size = sum(len(one) for fields in spans.fields for pair in fields.items() for one in pair)
            self._put(SPANS, len(spans.names), SPAN_BYTES * len(spans.names) + size, spans)

    def _put(self, kind: str, count: int, size: int, content: _Values | LogLines | Spans) -> None:
        self._number += 1
        if not isinstance(content, _Values):
            content = msgspec.structs.replace(content, batch=self._number)
        self._queue.append(_Batch(self._number, kind, count, size, content))
        self._bytes += size
        while self._bytes > self._max_bytes and self._queue:
            oldest = self._queue.popleft()
            self._bytes -= oldest.size
            self._dropped[oldest.kind] += oldest.items
        self._changed.set()

    # ── the connection ────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Send until cancelled."""
        pause_ms = FIRST_PAUSE_MS
        complaint = ""
        try:
            while True:
                while not (self._addresses and self._queue):
                    self._changed.clear()
                    await self._changed.wait()
                address = self._addresses[self._at % len(self._addresses)]
                began_ms = self._runtime.monotonic_ms()
                try:
                    await self._send_to(address)
                except HALError as error:
                    if str(error) != complaint:
                        complaint = str(error)
                        self._log.warning("the collector cannot be reached", collector=str(address), reason=complaint)
                else:
                    complaint = ""
                self._at += 1
                if self._runtime.monotonic_ms() - began_ms > LONGEST_PAUSE_MS:
                    pause_ms = FIRST_PAUSE_MS
                await self._runtime.sleep(self._runtime.random().randint(pause_ms // 2, pause_ms))
                pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
        finally:
            if self._connection is not None:
                self._connection.abort()

    async def flush(self, timeout_ms: int) -> None:
        """Wait until all that is queued was sent and named, or the time is over. For the end of a process."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._bytes and self._addresses:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass

    async def _send_to(self, address: Address) -> None:
        """Send over one connection until it ends.

        Raises:
            HALError: it cannot be opened, or was refused, or given up.
        """
        credentials = self._credentials if isinstance(address, TcpAddress) else None
        connection = await self._runtime.connect(address, credentials=credentials, conversation=TELEMETRY)
        self._connection, self._connected_to = connection, address
        reading: asyncio.Future[None] | None = None
        try:
            await connection.send(self._hello())
            _check_welcome(await connection.receive(ANSWER_MS))
            self._numbers, self._told = {}, {}
            self._heard_ms = self._runtime.monotonic_ms()
            reading = asyncio.ensure_future(self._read(connection))
            await self._write(connection)
        finally:
            self._connection = self._connected_to = None
            connection.abort()
            self._queue.extendleft(reversed(self._sent))
            self._sent.clear()
            self._sent_bytes = 0
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    def _hello(self) -> Hello:
        return Hello(
            role=self._role,
            versions=SPOKEN,
            name=self._name,
            boot_id=self._runtime.boot_id,
            pid=self._runtime.pid,
        )

    async def _write(self, connection: Connection) -> None:
        while not connection.closed:
            self._send_due(connection)
            self._changed.clear()
            try:
                async with asyncio.timeout(LOOK_MS / 1000):
                    await self._changed.wait()
            except TimeoutError:
                pass
            silent_ms = self._runtime.monotonic_ms() - self._heard_ms
            if self._sent and silent_ms > SILENT_MS:
                raise TimedOutError(f"the collector has taken nothing for {silent_ms // 1000} s")

    async def _read(self, connection: Connection) -> None:
        try:
            while (frame := await connection.receive()) is not None:
                if isinstance(frame, BatchesReceived):
                    self._forget_sent(frame.batch)
                elif isinstance(frame, Goodbye):
                    self._log.info("the collector says goodbye", code=frame.code, reason=frame.reason)
                    connection.abort()
        finally:
            self._changed.set()

    def _forget_sent(self, number: int) -> None:
        self._heard_ms = self._runtime.monotonic_ms()
        while self._sent and self._sent[0].number <= number:
            batch = self._sent.popleft()
            self._bytes -= batch.size
            self._sent_bytes -= batch.size
        self._changed.set()

    def _send_due(self, connection: Connection) -> None:
        now_ms = self._runtime.monotonic_ms()
        dropped = self.dropped
        if any(dropped.values()) and dropped != self._told and (not self._told or now_ms - self._told_ms >= LOOK_MS):
            self._told, self._told_ms = dict(dropped), now_ms
            connection.send_nowait(Dropped(counts=self._told))
        while self._queue and len(self._sent) < WINDOW_BATCHES and self._sent_bytes < WINDOW_BYTES:
            batch = self._queue[0]
            for frame in self._frames(batch):
                connection.send_nowait(frame)
            self._queue.popleft()
            if not self._sent:
                self._heard_ms = now_ms
            self._sent.append(batch)
            self._sent_bytes += batch.size

    def _frames(self, batch: _Batch) -> Iterator[Frame]:
        content = batch.content
        if not isinstance(content, _Values):
            yield content
            return
        new = [key for key in content.keys if key not in self._numbers]
        if len(self._numbers) + len(new) > MAX_SERIES:
            self._numbers.clear()
            new = list(content.keys)
        for at in range(0, len(new), TABLE_SERIES):
            part = new[at : at + TABLE_SERIES]
            first = len(self._numbers)
            for key in part:
                self._numbers.setdefault(key, len(self._numbers))
            yield SeriesTable(first=first, series=tuple(_series(key) for key in part))
        numbers = [self._numbers[key] for key in content.keys]
        packed = struct.pack(f"<{len(numbers)}I", *numbers)
        yield SeriesValues(
            batch=batch.number, at_ms=content.at_ms, series=packed, values=_little_endian(content.values)
        )

    def _usable(self, text: str) -> Address | None:
        if text.startswith(UNIX):
            return UnixAddress(Path(text.removeprefix(UNIX))) if self._local else None
        if self._credentials is None:
            return None
        try:
            return TcpAddress(*parse_address(text))
        except SpecError:
            return None


def _check_welcome(frame: Frame | None) -> None:
    """
    Raises:
        HALError: it is none.
    """
    if isinstance(frame, Goodbye):
        raise error_from_code(frame.code, f"the collector refused: {frame.reason}", frame.hint)
    if frame is None:
        raise UnreachableError("the collector closed the connection before it answered")
    if not isinstance(frame, Welcome):
        raise MalformedFrameError(f"the collector answered a hello with a {type(frame).__name__} frame")


def _series(key: SeriesKey) -> Series:
    return Series(key.name, key.kind, {name: value[:MAX_LABEL] for name, value in key.labels})


def _line_bytes(line: LogLine) -> int:
    fields = sum(len(name) + len(value) for name, value in line.fields.items())
    return LINE_BYTES + len(line.text) * (1 if line.text.isascii() else 3) + 3 * fields


def _little_endian(values: bytes) -> bytes:
    if sys.byteorder == "little":
        return values
    swapped = array("d", values)
    swapped.byteswap()
    return swapped.tobytes()
