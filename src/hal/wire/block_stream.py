"""One end of a byte stream: bytes in both directions on a connection of their own, with back-pressure and half-close.

On the wire a direction is a sequence of blocks: a 4-byte little-endian head and that many bytes. A head of 0 ends the
direction, so that an end is told from a connection that broke, over TLS, too, where nothing else half-closes. A head
with its highest bit set is followed by a `goodbye` frame's body: the sender gives up both directions, and says why.
spec/frames.md describes it for other languages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

import msgspec

from hal.core.interfaces.directory import Data
from hal.core.model.errors import HALError, TimedOutError, UnreachableError, error_from_code
from hal.wire.frames.hello import Goodbye
from hal.wire.transport_end import FaultHook, Hook, TransportEnd

HEAD_BYTES: Final = 4
MAX_BLOCK_BYTES: Final = 1 << 20
"""Bytes of one block; a longer one breaks the protocol."""
GOODBYE_BIT: Final = 1 << 31
MAX_GOODBYE_BYTES: Final = 1 << 16
MAX_INCOMING_BYTES: Final = 1 << 20
"""Bytes that wait for `read`; beyond that, nothing more is read from the other end."""
PIECE_BYTES: Final = 64
"""What a piece costs beside its bytes: many short blocks take no more memory than long ones."""

_goodbyes: msgspec.msgpack.Decoder[Goodbye] = msgspec.msgpack.Decoder(Goodbye)


class BlockStream(TransportEnd):
    """See `hal.runtime.interface.ByteStream` for its contract."""

    def __init__(
        self,
        label: str,
        *,
        on_open: Hook | None = None,
        on_closed: Hook | None = None,
        on_fault: FaultHook | None = None,
    ) -> None:
        super().__init__(label, on_open=on_open, on_closed=on_closed, on_fault=on_fault)
        self._incoming: deque[bytes] = deque()
        self._incoming_bytes = 0
        self._head = bytearray()
        """What has arrived of the next head."""
        self._left = 0
        """Bytes of the current block that have not arrived."""
        self._goodbye: bytearray | None = None
        """The body of a goodbye, while it arrives."""
        self._ended_there = False
        self._ended_here = False
        self._refusal: HALError | None = None

    # ── what shells use ───────────────────────────────────────────────────────────────────────────────────────────

    async def read(self, limit: int = MAX_BLOCK_BYTES, timeout_ms: int | None = None) -> bytes:
        if limit < 1:
            raise ValueError(f"{limit} bytes cannot be read")
        while not self._incoming:
            if self._refusal is not None:
                raise self._refusal
            if self._ended_there:
                return b""
            if self._closing:
                raise UnreachableError(f"{self._label} broke before its end: {self._reason}")
            await self._wait_for_more(timeout_ms)
        piece = self._incoming.popleft()
        if len(piece) > limit:
            self._incoming.appendleft(piece[limit:])
            piece = piece[:limit]
        else:
            self._incoming_bytes -= PIECE_BYTES
        self._incoming_bytes -= len(piece)
        if self._incoming_bytes <= MAX_INCOMING_BYTES // 2:
            self._resume_reading()
        return piece

    async def write(self, data: Data, timeout_ms: int | None = None) -> None:
        # Bytes cannot change while they wait in the transport; anything else is copied.
        view = memoryview(data if isinstance(data, bytes) else bytes(data))
        for at in range(0, len(view), MAX_BLOCK_BYTES):
            await self._wait_writable(timeout_ms)
            block = view[at : at + MAX_BLOCK_BYTES]
            self._open_transport().writelines((len(block).to_bytes(HEAD_BYTES, "little"), block))

    def end(self) -> None:
        if self._ended_here or self._closing:
            return
        self._open_transport().write(bytes(HEAD_BYTES))
        self._ended_here = True
        if self._ended_there:
            self.close("both directions have ended")

    def close(self, reason: str = "closed here") -> None:
        self.end()
        super().close(reason)

    def refuse(self, code: str, reason: str, hint: str = "") -> None:
        if self._closing or self.transport is None:
            return
        if not self._ended_here:
            body = msgspec.msgpack.encode(Goodbye(code=code, reason=reason, hint=hint))[:MAX_GOODBYE_BYTES]
            self._ended_here = True
            self.transport.write((GOODBYE_BIT | len(body)).to_bytes(HEAD_BYTES, "little") + body)
        super().close(reason)

    # ── what the transport calls ──────────────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        at = 0
        while at < len(data):
            if self._ended_there or self._refusal is not None:
                self._break("it sent bytes after its end")
                return
            if not self._left:
                needed = HEAD_BYTES - len(self._head)
                self._head += data[at : at + needed]
                at += needed
                if len(self._head) == HEAD_BYTES and not self._begin_block():
                    return
                continue
            piece = data[at : at + self._left]
            at += len(piece)
            self._left -= len(piece)
            if self._goodbye is None:
                self._incoming.append(piece)
                self._incoming_bytes += len(piece) + PIECE_BYTES
            else:
                self._goodbye += piece
                if not self._left and not self._hear_goodbye(bytes(self._goodbye)):
                    return
        self._wake()
        if self._incoming_bytes > MAX_INCOMING_BYTES:
            self._pause_reading()

    def eof_received(self) -> bool:
        self._end("closed there")
        return False

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_block(self) -> bool:
        head = int.from_bytes(self._head, "little")
        self._head.clear()
        if head & GOODBYE_BIT:
            self._left = head & ~GOODBYE_BIT
            self._goodbye = bytearray()
            if not 0 < self._left <= MAX_GOODBYE_BYTES:
                return self._break(f"it announced a goodbye of {self._left} bytes")
        elif head > MAX_BLOCK_BYTES:
            return self._break(f"it announced a block of {head} bytes; at most {MAX_BLOCK_BYTES} are allowed")
        elif head:
            self._left = head
        else:
            self._ended_there = True
            if self._ended_here:
                self._wake()
                self.close("both directions have ended")
        return True

    def _hear_goodbye(self, body: bytes) -> bool:
        try:
            said = _goodbyes.decode(body)
        except msgspec.DecodeError:
            return self._break("it sent a goodbye that is none")
        self._refusal = error_from_code(said.code, said.reason, said.hint)
        self._ended_here = True
        super().close(said.reason)
        return True

    def _break(self, fault: str) -> bool:
        self._fault = fault
        self.refuse("malformed-frame", fault)
        if self._on_fault is not None:
            self._on_fault(self, fault)
        return False

    def _open_transport(self) -> asyncio.Transport:
        if self._refusal is not None:
            raise self._refusal
        if self._ended_here or self._closing or self.transport is None:
            raise UnreachableError(f"{self._label} is closed: {self._reason or 'this side has ended'}")
        return self.transport

    async def _wait_writable(self, timeout_ms: int | None) -> None:
        if self._writable.is_set():
            return
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while not (self._writable.is_set() or self._closing):
                    await self._writable.wait()
        except TimeoutError:
            raise TimedOutError(f"{self._label}: the other end read nothing for {timeout_ms} ms") from None
