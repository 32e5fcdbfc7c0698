"""Sends what a broker counts to the collector of this machine, if there is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from hal.planes.sessions.series import values_of
from hal.runtime.interface import Runtime
from hal.runtime.telemetry_sender import TelemetrySender
from hal.wire.frames.sessions import SessionNumbers
from hal.wire.roles import Role

FIRST_MS: Final = 1_000
EVERY_MS: Final = 10_000
END_MS: Final = 500
"""So long the end of a broker waits for the collector to take its last values."""
MAX_BYTES: Final = 64 << 10
"""Of values that no collector has taken."""


class BrokerTelemetry:
    """Of one broker."""

    def __init__(
        self, runtime: Runtime, socket: str, name: str, queue: str, count: Callable[[], SessionNumbers]
    ) -> None:
        """
        Args:
            socket: of the collector; '': there is none. It may come and go.
            name: of this process, among all brokers.
            queue: in which the session's jobs are.
            count: the numbers to send.
        """
        self._runtime, self._socket, self._queue, self._count = runtime, socket, queue, count
        self._sender = TelemetrySender(runtime, Role.BROKER, name, max_bytes=MAX_BYTES)

    def begin(self) -> None:
        """Send in the background."""
        if self._socket:
            self._runtime.spawn_task(self._sender.run(), "telemetry")
            self._runtime.spawn_task(self._sample_always(), "samples")

    async def end(self) -> None:
        """Send the last values."""
        if self._socket and self._sample():
            await self._sender.flush(END_MS)

    async def _sample_always(self) -> None:
        await self._runtime.sleep(FIRST_MS)
        while True:
            self._sample()
            await self._runtime.sleep(EVERY_MS)

    def _sample(self) -> bool:
        """Queue the values of now; False: there is no collector."""
        there = Path(self._socket).exists()
        self._sender.dial([f"unix:{self._socket}"] if there else [])
        if there:
            self._sender.values(self._runtime.now_ms(), values_of(self._count(), self._queue))
        return there
