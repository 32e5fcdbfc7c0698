"""One end of a connection that carries frames: reads many at once, writes all frames of one turn of the loop
together.

An asyncio protocol above any asyncio transport: a Unix socket or TLS in production, the virtual network in simulations,
so all of them run this code. Everything that waits is bounded. Bytes that are not a frame end the connection with a
Goodbye and one call of `on_fault`; they never raise into the loop.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from hal.core.model.errors import OverloadedError, UnreachableError
from hal.wire.codec import FrameDecoder, encode
from hal.wire.errors import MalformedFrameError
from hal.wire.frames.conversation import Conversation, Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.transport_end import WRITE_HIGH_BYTES, FaultHook, Hook, TransportEnd

MAX_OUTGOING_BYTES: Final = 64 << 20
"""Bytes that may wait to be written on one connection; beyond that, `send_nowait` raises OverloadedError."""
MAX_INCOMING_FRAMES: Final = 1_024
"""Decoded frames that may wait for `receive`; beyond that, nothing more is read from the other end."""


class FrameConnection(TransportEnd):
    """Frames over one transport; see `hal.runtime.interface.Connection` for its contract."""

    def __init__(
        self,
        label: str,
        conversation: Conversation[Any],
        *,
        on_open: Hook | None = None,
        on_closed: Hook | None = None,
        on_fault: FaultHook | None = None,
    ) -> None:
        """
        Args:
            conversation: the frames that the other end may send.
            others: as `TransportEnd`.
        """
        super().__init__(label, on_open=on_open, on_closed=on_closed, on_fault=on_fault)
        self._decoder: FrameDecoder[Any] = FrameDecoder(conversation)
        self._max_incoming_bytes = conversation.max_incoming_bytes
        self._incoming: deque[Frame] = deque()
        self._incoming_bytes = 0
        """Size of the frames that arrived since the queue was last empty."""
        self._received_bytes = 0
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0

    # ── what shells use ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def outgoing_bytes(self) -> int:
        return self._outgoing_bytes + (0 if self.transport is None else self.transport.get_write_buffer_size())

    @property
    def received_bytes(self) -> int:
        return self._received_bytes

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

    async def wait_writable(self) -> None:
        if self._outgoing_bytes > WRITE_HIGH_BYTES:
            self._flush()
        while not (self._writable.is_set() or self._closing):
            await self._writable.wait()

    async def send(self, frame: Frame) -> None:
        await self.wait_writable()
        self.send_nowait(frame)

    async def receive(self, timeout_ms: int | None = None) -> Frame | None:
        incoming = self._incoming
        while not incoming:
            if self._closing:
                return None
            await self._wait_for_more(timeout_ms)
        frame = incoming.popleft()
        if not incoming:
            self._incoming_bytes = 0
        if self._has_room():
            self._resume_reading()
        return frame

    def refuse(self, code: str, reason: str, hint: str = "") -> None:
        """Send the other end the reason, and close."""
        if not self._closing:
            self._outgoing.append(encode(Goodbye(code=code, reason=reason, hint=hint)))
            self.close(reason)

    # ── what the transport calls ──────────────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._received_bytes += len(data)
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
        if len(self._incoming) > MAX_INCOMING_FRAMES or self._incoming_bytes > self._max_incoming_bytes:
            self._pause_reading()

    def eof_received(self) -> bool:
        cut_off = self._decoder.pending_bytes
        self._end(f"the other end closed inside a frame ({cut_off} bytes of it arrived)" if cut_off else "closed there")
        return False

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _has_room(self) -> bool:
        few = len(self._incoming) <= MAX_INCOMING_FRAMES // 2
        return few and (self._incoming_bytes <= self._max_incoming_bytes or not self._incoming)

    def _flush(self) -> None:
        if self._outgoing and self.transport is not None:
            self.transport.write(b"".join(self._outgoing))
            self._outgoing.clear()
            self._outgoing_bytes = 0

    def _drop_queued(self) -> None:
        self._outgoing.clear()
        self._outgoing_bytes = 0
