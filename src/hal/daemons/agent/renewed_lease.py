"""The keeper's lease as far as the agent's connection to a controller has renewed it.

What waits at a gate of the node is forwarded with the newest stamp of the same connection, and dropped if the lease
lapsed meanwhile. The keeper alone decides in the end: see `keeper.lease`.
"""

from __future__ import annotations

from hal.daemons.agent.keeper.lease import Lease
from hal.daemons.agent.keeper.ports import Instant
from hal.runtime.interface import Runtime
from hal.wire.frames.agent_keeper import HeartbeatAck, Start


class RenewedLease:
    """See the module."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lease = Lease(0, runtime.boot_id)
        self.epoch = 0
        """Of the connected controller; 0: none is."""
        self.stamp_boot_ms = 0
        """The newest stamp."""
        self.lease_ms = 0
        """The duration that came with it."""

    def begin(self, epoch: int, default_ms: int) -> None:
        """A controller of that epoch is connected; `default_ms`: the duration if it does not say any."""
        self.epoch = epoch
        self._lease = Lease(default_ms, self._runtime.boot_id)

    def end(self) -> None:
        """The controller is no longer connected."""
        self.epoch = self.stamp_boot_ms = self.lease_ms = 0

    def refuses(self, frame: Start | HeartbeatAck) -> bool:
        """Whether the frame is of an earlier connection, or of an earlier boot."""
        stale = self._lease.refusal(frame.stamp_boot_ms, frame.lease_ms, self._now())
        return frame.epoch < self.epoch or stale != ""

    @property
    def has_lapsed(self) -> bool:
        """Whether there was a lease, which is over."""
        return self._lease.until_boot_ms > 0 and self._lease.lapsed(self._now())

    def renew(self, frame: Start | HeartbeatAck) -> None:
        """Renew it by a frame that it does not refuse."""
        self.epoch = frame.epoch
        self._lease.renew(frame.stamp_boot_ms, frame.lease_ms, self._now())
        if frame.stamp_boot_ms >= self.stamp_boot_ms:
            self.stamp_boot_ms, self.lease_ms = frame.stamp_boot_ms, frame.lease_ms

    def _now(self) -> Instant:
        return Instant(self._runtime.now_ms(), self._runtime.boot_ms())
