"""Where the collector listens for telemetry: a Unix socket for this host, TLS for others. A part of its own.

Its connections and counts outlive a failure to listen: the part is run again, as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hal.planes.observability.telemetry import Callback, Telemetry
from hal.runtime.interface import Listener, Runtime, UnixAddress
from hal.wire.frames.telemetry import TELEMETRY

WIRE_SOCKET: Final = "observability-wire.sock"


class Reception:
    """Listens while it runs."""

    name: Final = "telemetry"

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.telemetry = Telemetry(runtime)

    def received(self, kind: str, callback: Callback) -> None:
        """See `Telemetry.received`."""
        self.telemetry.received(kind, callback)

    async def run(self) -> None:
        """See `Part`."""
        listeners: list[Listener] = []
        try:
            path = self._runtime.paths.socket_dir() / WIRE_SOCKET
            listeners.append(
                await self._runtime.listen(UnixAddress(path), self.telemetry.serve, conversation=TELEMETRY)
            )
            await self._runtime.stopping.wait()
        finally:
            for listener in listeners:
                await listener.close()

    def health(self) -> Mapping[str, float | int | str]:
        """See `Part`."""
        return self.telemetry.health()

    async def close(self) -> None:
        """See `Part`: it keeps nothing open."""
