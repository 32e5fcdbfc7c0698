"""One end of a connection over an asyncio transport: opening, closing, lingering, and whether it may be written to.

`FrameConnection` (frames) and `BlockStream` (bytes) are ends; listeners and diallers, real and virtual, know no more of
them than this class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from hal.core.model.errors import TimedOutError
from hal.wire.peer import CertifiedName, Peer

WRITE_HIGH_BYTES: Final = 1 << 20
"""A sender waits while more than this waits in the transport."""
CLOSE_LINGER_S: Final = 5.0
"""How long `close` waits for the other end to read what is queued; then the rest is dropped."""


Hook = Callable[[Any], None]
"""Called with the end."""
FaultHook = Callable[[Any, str], None]
"""Called with the end and what was wrong."""


class TransportEnd(asyncio.Protocol):
    """What every end has.

    Attributes:
        transport: None before it is connected.
        peer: the other process, as the kernel reports it; None for TCP.
        certified: the name in the other end's certificate; None on a Unix socket, and if it presented none.
        remote: the IP address of whoever dialled over TCP, as this host sees it; '' otherwise.
    """

    def __init__(
        self,
        label: str,
        *,
        on_open: Hook | None = None,
        on_closed: Hook | None = None,
        on_fault: FaultHook | None = None,
    ) -> None:
        """
        Args:
            label: for logs.
            on_open: called once the transport is connected.
            on_closed: called once the connection is fully closed.
            on_fault: called with the reason when the other end sent what breaks the protocol.
        """
        self._loop = asyncio.get_running_loop()
        self._label = label
        self._on_open = on_open
        self._on_closed = on_closed
        self._on_fault = on_fault
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
        self.remote = ""

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

    def close(self, reason: str = "closed here") -> None:
        """Write what is queued, then close. Harmless if closed."""
        if self._closing:
            return
        self._flush()
        self._end(reason)
        if self.transport is not None:
            self.transport.close()
            self._linger = self._loop.call_later(CLOSE_LINGER_S, self.transport.abort)

    def abort(self, reason: str = "aborted here") -> None:
        """Close at once; what is queued is dropped."""
        self._end(reason)
        self._drop_queued()
        if self.transport is not None:
            self.transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is fully closed."""
        await self._gone.wait()

    def refuse(self, code: str, reason: str, hint: str = "") -> None:
        """Send the other end the reason, and close."""
        raise NotImplementedError

    # ── what the transport calls ──────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports match by structure, not by inheritance.
        self.transport = stream = cast(asyncio.Transport, transport)
        stream.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        if self._on_open is not None:
            self._on_open(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error) if error else "closed there")
        if self._linger is not None:
            self._linger.cancel()
        self._drop_queued()
        self._gone.set()
        if self._on_closed is not None:
            self._on_closed(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _flush(self) -> None:
        """Write what is queued in this end, if it queues anything."""

    def _drop_queued(self) -> None:
        """Forget what is queued in this end."""

    def _pause_reading(self) -> None:
        if not self._reading_paused and self.transport is not None:
            self._reading_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading_paused and not self._closing:
            self._reading_paused = False
            if self.transport is not None:
                self.transport.resume_reading()

    async def _wait_for_more(self, timeout_ms: int | None) -> None:
        """Wait until `_wake`.

        Raises:
            TimedOutError: nothing arrived.
        """
        if self._waiter is not None:
            raise RuntimeError(f"{self._label}: two tasks wait for what arrives next")
        self._waiter = self._loop.create_future()
        timer = None if timeout_ms is None else self._loop.call_later(timeout_ms / 1000, self._expire, timeout_ms)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

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
