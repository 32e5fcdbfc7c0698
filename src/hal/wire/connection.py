"""One end of a connection that carries frames: reads many at once, writes all frames of one turn of the loop
together.

An asyncio protocol above any asyncio transport: a Unix socket or TLS in production, the virtual network in simulations,
so all of them run this code. Everything that waits is bounded. Bytes that are not a frame end the connection with a
Goodbye and one call of `on_fault`; they never raise into the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from hal.core.model.errors import OverloadedError, TimedOutError, UnreachableError
from hal.wire.codec import FrameDecoder, encode
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.conversation import Conversation, Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.peer import CertifiedName, Peer

MAX_OUTGOING_BYTES: Final = 64 << 20
"""Bytes that may wait to be written on one connection; beyond that, `send_nowait` raises OverloadedError."""
MAX_INCOMING_FRAMES: Final = 1_024
"""Decoded frames that may wait for `receive`; beyond that, nothing more is read from the other end."""
MAX_INCOMING_BYTES: Final = 16 << 20
"""Size on the wire of these frames; beyond that, nothing more is read until all of them were received."""
WRITE_HIGH_BYTES: Final = 1 << 20
"""`send` waits while more than this waits in the transport."""
CLOSE_LINGER_S: Final = 5.0
"""How long `close` waits for the other end to read what is queued; then the rest is dropped."""


Notify = Callable[["FrameConnection"], None]


class FrameConnection(asyncio.Protocol):
    """Frames over one transport; see `hal.runtime.interface.Connection` for its contract.

    Args:
        label: for logs.
        conversation: the frames that the other end may send.
        on_open: called once the transport is connected.
        on_closed: called once the connection is fully closed.
        on_fault: called with the reason when the other end sent something that is not a frame.
    """

    def __init__(
        self,
        label: str,
        conversation: Conversation[Any],
        *,
        on_open: Notify | None = None,
        on_closed: Notify | None = None,
        on_fault: Callable[[FrameConnection, str], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._label = label
        self._on_open = on_open
        self._on_closed = on_closed
        self._on_fault = on_fault
        self._decoder: FrameDecoder[Any] = FrameDecoder(conversation)
        self._incoming: deque[Frame] = deque()
        self._incoming_bytes = 0
        """Size of the frames that arrived since the queue was last empty."""
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()
        self._reading_paused = False
        self._closing = False
        self._reason = ""
        self._fault = ""
        self._linger: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self.peer: Peer | None = None
        self.certified: CertifiedName | None = None

    # ── what shells use ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def label(self) -> str:
        return self._label

    @property
    def closed(self) -> bool:
        return self._closing

    @property
    def close_reason(self) -> str:
        return self._reason

    @property
    def fault(self) -> str:
        return self._fault

    def send_nowait(self, frame: Frame) -> None:
        if self._closing or self.transport is None:
            raise UnreachableError(f"{self._label} is closed: {self._reason or 'not open yet'}")
        waiting = self._outgoing_bytes + self.transport.get_write_buffer_size()
        if waiting > MAX_OUTGOING_BYTES:
            raise OverloadedError(f"{self._label}: {waiting} bytes are waiting for the other end to read them")
        data = encode(frame)
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(data)
        self._outgoing_bytes += len(data)

    async def send(self, frame: Frame) -> None:
        if self._outgoing_bytes > WRITE_HIGH_BYTES:
            self._flush()
        while not (self._writable.is_set() or self._closing):
            await self._writable.wait()
        self.send_nowait(frame)

    async def receive(self, timeout_ms: int | None = None) -> Frame | None:
        incoming = self._incoming
        while not incoming:
            if self._closing:
                return None
            if self._waiter is not None:
                raise RuntimeError(f"{self._label}: two tasks wait for its next frame")
            self._waiter = self._loop.create_future()
            timer = None if timeout_ms is None else self._loop.call_later(timeout_ms / 1000, self._expire, timeout_ms)
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        frame = incoming.popleft()
        if not incoming:
            self._incoming_bytes = 0
        if self._reading_paused and not self._closing and self._has_room():
            self._reading_paused = False
            if self.transport is not None:
                self.transport.resume_reading()
        return frame

    def close(self, reason: str = "closed here") -> None:
        if self._closing:
            return
        self._flush()
        self._end(reason)
        if self.transport is not None:
            self.transport.close()
            self._linger = self._loop.call_later(CLOSE_LINGER_S, self.transport.abort)

    def abort(self, reason: str = "aborted here") -> None:
        self._end(reason)
        self._outgoing.clear()
        self._outgoing_bytes = 0
        if self.transport is not None:
            self.transport.abort()

    async def wait_closed(self) -> None:
        await self._gone.wait()

    def refuse(self, code: str, reason: str, hint: str = "") -> None:
        """Send the other end the reason, and close."""
        if not self._closing:
            self._outgoing.append(encode(Goodbye(code=code, reason=reason, hint=hint)))
            self.close(reason)

    # ── what the transport calls ──────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports match by structure, not by inheritance.
        self.transport = stream = cast(asyncio.Transport, transport)
        stream.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        try:
            frames = self._decoder.feed(data)
        except MalformedFrameError as error:
            self._incoming.extend(error.frames)
            self._fault = error.message
            self._wake()
            self.refuse(error.code, error.message)
            if self._on_fault is not None:
                self._on_fault(self, error.message)
            return
        if self._incoming or frames:
            self._incoming_bytes += len(data)
        if frames:
            self._incoming.extend(frames)
            self._wake()
        over = len(self._incoming) > MAX_INCOMING_FRAMES or self._incoming_bytes > MAX_INCOMING_BYTES
        if over and not self._reading_paused and self.transport is not None:
            self._reading_paused = True
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        cut_off = self._decoder.pending_bytes
        self._end(f"the other end closed inside a frame ({cut_off} bytes of it arrived)" if cut_off else "closed there")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error) if error else "closed there")
        if self._linger is not None:
            self._linger.cancel()
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._gone.set()
        if self._on_closed is not None:
            self._on_closed(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _has_room(self) -> bool:
        few = len(self._incoming) <= MAX_INCOMING_FRAMES // 2
        return few and (self._incoming_bytes <= MAX_INCOMING_BYTES or not self._incoming)

    def _flush(self) -> None:
        if self._outgoing and self.transport is not None:
            self.transport.write(b"".join(self._outgoing))
            self._outgoing.clear()
            self._outgoing_bytes = 0

    def _end(self, reason: str) -> None:
        if not self._closing:
            self._closing = True
            self._reason = reason
            self._writable.set()
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _expire(self, timeout_ms: int) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(TimedOutError(f"{self._label}: nothing arrived for {timeout_ms} ms"))
