"""When a node that is not heard has certainly ended its guarded steps, so that their tasks may run elsewhere.

A keeper's lease runs from its own stamp, so it ends no later than L after the acknowledgement of that stamp was sent.
Counted here is from that sending, by the clock that runs on: T later (see `lease_times`) what ran there under the lease
is lost. From the moment that this is decided until it is flushed, and starts of it that still waited for a stamp are
withdrawn, nothing is acknowledged to the node: an acknowledgement would give it a new lease on what is being given
away. Who comes to lead knows nothing of what was acknowledged before, and counts from taking the leadership, in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from hal.core.model.lease_times import LeaseTimes, lost_after
from hal.runtime.interface import Runtime, Timer


class NodeLeases:
    """The leases that one controller has given to keepers."""

    def __init__(self, runtime: Runtime, times: LeaseTimes, over: Callable[[str], None]) -> None:
        """`over`: called with a node whose lease has lapsed; called again until `lost`."""
        self.times = times
        self.lost_after_ms = times.lost_after_ms
        self._runtime = runtime
        self._over = over
        self._since_ms: dict[str, int] = {}
        """From when T counts, by the monotonic clock, of nodes that may hold a lease."""
        self._timers: dict[str, Timer] = {}
        self._ending: set[str] = set()

    def count_from_election(self, nodes: Iterable[str], longest_ms: int) -> None:
        """Count from now, as this controller leads; `longest_ms`: longest lease that an earlier one may have given."""
        self.lost_after_ms = lost_after(self.times, max(longest_ms, self.times.node_ms))
        for node in nodes:
            self.count_from_now(node)

    def outlived(self) -> None:
        """Note that no lease of an earlier controller holds any more."""
        self.lost_after_ms = self.times.lost_after_ms

    def may_renew(self, node: str) -> bool:
        """Whether its stamps may be acknowledged: not while what it ran is being given away."""
        return node not in self._ending

    def count_from_now(self, node: str) -> None:
        """It has been acknowledged a stamp, or may have been by somebody else."""
        self._since_ms[node] = self._runtime.monotonic_ms()
        if node not in self._timers:
            self._wait(node, self.lost_after_ms)

    def lost(self, nodes: Iterable[str]) -> None:
        """What these ran under a lease was given away, and that is flushed: they may come back."""
        for node in nodes:
            if node in self._ending:
                self._ending.discard(node)
                self._since_ms.pop(node, None)
                self._timers.pop(node).cancel()

    def _wait(self, node: str, ms: int) -> None:
        self._timers[node] = self._runtime.call_later(ms, partial(self._look, node))

    def _look(self, node: str) -> None:
        left_ms = self._since_ms[node] + self.lost_after_ms - self._runtime.monotonic_ms()
        if left_ms > 0:
            self._wait(node, left_ms)
            return
        self._ending.add(node)
        self._wait(node, self.lost_after_ms)
        self._over(node)
