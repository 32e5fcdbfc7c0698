"""Frames to one process that may read slowly, or not at all: they wait in memory, then in files, in order.

Whoever does not read harms itself alone: first no more of its tasks are handed out, and when even its files have
reached their bound it is told so, and disconnected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from hal.core.model.errors import HALError
from hal.planes.sessions.spill import Filed, Spill
from hal.runtime.interface import Connection, Lane, Runtime
from hal.wire.codec import FrameDecoder, encode
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import SESSIONS, RunTasks, StoreObject, TaskResults

DIRECT_BYTES: Final = 4 << 20
"""So many may wait in the connection itself."""
MEMORY_BYTES: Final = 16 << 20
"""Behind it, in memory."""
MIN_BYTES: Final = 256 << 10
"""Behind it, in memory that is short."""
FILE_BYTES: Final = 4 << 20
"""Of one file, about."""
PRESSED_BYTES: Final = 64 << 20
"""A client for which more waits gets no more of its tasks run until half of that is left."""
MOST_BYTES: Final = 1 << 30
"""A client for which more waits is disconnected."""
FRAME_BYTES: Final = 256
"""What a frame costs besides its payload."""
RESULTS_NOT_TAKEN: Final = "results-not-taken"
"""Code of the goodbye to that client."""


class FlowBounds(NamedTuple):
    """Of what waits for one process."""

    direct_bytes: int = DIRECT_BYTES
    memory_bytes: int = MEMORY_BYTES
    pressed_bytes: int = PRESSED_BYTES
    most_bytes: int = MOST_BYTES


class Outflow:
    """An outbox of the broker, before one connection.

    Args:
        pressed: called with True when too much waits, and with False when much less does.
        failed: called once when nothing more can be kept; what waits is dropped.
    """

    def __init__(
        self,
        runtime: Runtime,
        connection: Connection,
        spill: Spill,
        bounds: FlowBounds,
        *,
        pressed: Callable[[bool], object] = lambda _pressed: None,
        failed: Callable[[], object] = lambda: None,
    ) -> None:
        self._runtime = runtime
        self._connection = connection
        self._spill = spill
        self._bounds = bounds
        self._tell_pressed, self._tell_failed = pressed, failed
        self._waiting: deque[Frame] = deque()
        self._waiting_bytes = 0
        self._filed: deque[Filed] = deque()
        """What came before all that is in memory."""
        self._filed_bytes = 0
        self._more = asyncio.Event()
        self._pumping = False
        self._pressed = False
        self.failed = False
        """Nothing more is sent but the reason."""

    def send_nowait(self, frame: Frame) -> None:
        """Send it now, or after what waits."""
        connection = self._connection
        if not self._pumping:
            if connection.closed or self.failed:
                return
            if connection.outgoing_bytes <= self._bounds.direct_bytes:
                try:
                    connection.send_nowait(frame)
                except HALError:
                    connection.abort()
                return
            self._pumping = True
            self._runtime.spawn_task(self._pump(), "outflow")
        if self.failed:
            return
        size = _size(frame)
        self._waiting.append(frame)
        self._waiting_bytes += size
        self._spill.take_memory(size)
        self._more.set()
        self._press()
        if self._waiting_bytes + self._filed_bytes > self._bounds.most_bytes:
            self._fail()

    def abort(self) -> None:
        """Disconnect."""
        self._connection.abort()

    async def _pump(self) -> None:
        connection = self._connection
        try:
            while (self._waiting or self._filed) and not connection.closed and not self.failed:
                if self._has_too_much:
                    await self._file()
                elif connection.outgoing_bytes <= self._bounds.direct_bytes:
                    await self._send_next()
                else:
                    await self._wait()
            if self.failed:
                await connection.wait_writable()
                reason = "there is no room for more results of a client that does not read them"
                connection.send_nowait(Goodbye(code=RESULTS_NOT_TAKEN, reason=reason))
                connection.close()
        except HALError:
            connection.abort()
        finally:
            self._clear()
            self._pumping = False

    @property
    def _has_too_much(self) -> bool:
        """Whether memory is not the place for it."""
        if not self._spill.has_files:
            return False
        return self._waiting_bytes > (MIN_BYTES if self._spill.is_full else self._bounds.memory_bytes)

    async def _file(self) -> None:
        pieces, size = [], 0
        while self._waiting and size < FILE_BYTES:
            frame = self._waiting.popleft()
            size += _size(frame)
            pieces.append(encode(frame))
        filed = await self._spill.file(pieces)
        self._take_off(size)
        if filed is None:
            self._fail()
        else:
            self._filed.append(filed)
            self._filed_bytes += filed.size

    async def _send_next(self) -> None:
        if not self._filed:
            frame = self._waiting.popleft()
            self._take_off(_size(frame))
            self._connection.send_nowait(frame)
        else:
            filed = self._filed.popleft()
            self._filed_bytes -= filed.size
            try:
                data = await self._runtime.run_blocking(filed.read, Lane.FILES)
            except OSError:
                data = b""
            filed.drop()
            frames = FrameDecoder(SESSIONS).feed(data)
            if not frames:
                self._fail()
            for frame in frames:
                self._connection.send_nowait(frame)
        self._press()

    async def _wait(self) -> None:
        """Until the connection takes more, or more waits."""
        self._more.clear()
        waits = [asyncio.ensure_future(self._connection.wait_writable()), asyncio.ensure_future(self._more.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    def _press(self) -> None:
        waits = self._waiting_bytes + self._filed_bytes
        if self._pressed:
            if waits < self._bounds.pressed_bytes // 2:
                self._pressed = False
                self._tell_pressed(False)
        elif waits > self._bounds.pressed_bytes:
            self._pressed = True
            self._tell_pressed(True)

    def _take_off(self, size: int) -> None:
        self._waiting_bytes -= size
        self._spill.give_memory(size)

    def _fail(self) -> None:
        if not self.failed:
            self.failed = True
            self._more.set()
            self._tell_failed()

    def _clear(self) -> None:
        self._waiting.clear()
        self._take_off(self._waiting_bytes)
        while self._filed:
            self._filed.popleft().drop()
        self._filed_bytes = 0


def _size(frame: Frame) -> int:
    """What it takes in memory, about."""
    match frame:
        case TaskResults() | RunTasks():
            return FRAME_BYTES + len(frame.payload) + len(frame.sizes)
        case StoreObject():
            return FRAME_BYTES + len(frame.data)
    return FRAME_BYTES
