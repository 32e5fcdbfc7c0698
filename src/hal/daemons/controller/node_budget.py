"""What one node may cost the controller: lines of its log, and frames of the kinds that an honest node sends rarely.

A bucket fills at a steady rate up to its size. What a node tells beyond its log's bucket is counted, and the count is
one line; frames beyond theirs make its connection wait, so that it is read slower and nobody else is.
"""

from __future__ import annotations

from typing import Any, Final

from hal.runtime.interface import Runtime

LOG_LINES: Final = 30
"""Lines about one node at once."""
LOG_LINES_PER_S: Final = 0.2
"""And in the long run."""
FRAMES: Final = 300
"""Heartbeats, or the like, of one node at once; see `COSTS`."""
FRAMES_PER_S: Final = 50.0
HELLOS: Final = 30
"""Hellos in the name of one node at once."""
HELLOS_PER_S: Final = 1.0
WAIT_MS: Final = 1_000
"""How long a connection over its budget waits before its next frame is looked at."""


class Bucket:
    """A budget that fills up again."""

    __slots__ = ("_at_ms", "_left", "_per_s", "_runtime", "_size")

    def __init__(self, runtime: Runtime, size: int, per_s: float) -> None:
        self._runtime = runtime
        self._size = size
        self._per_s = per_s
        self._left = float(size)
        self._at_ms = runtime.monotonic_ms()

    def take(self, cost: int = 1) -> bool:
        """Spend so much; False, and nothing is spent, when it is not there."""
        now_ms = self._runtime.monotonic_ms()
        self._left = min(self._left + (now_ms - self._at_ms) * self._per_s / 1_000, float(self._size))
        self._at_ms = now_ms
        if self._left < cost:
            return False
        self._left -= cost
        return True


class NodeLog:
    """The controller's log, as far as one node makes it write."""

    def __init__(self, runtime: Runtime, node: str) -> None:
        self._runtime = runtime
        self._node = node
        self._bucket = Bucket(runtime, LOG_LINES, LOG_LINES_PER_S)
        self._left_out = 0

    def info(self, event: str, **values: Any) -> None:
        """As `Logger.info`, within the budget."""
        if self._may():
            self._runtime.log.info(event, node=self._node, **values)

    def warning(self, event: str, **values: Any) -> None:
        """As `Logger.warning`, within the budget."""
        if self._may():
            self._runtime.log.warning(event, node=self._node, **values)

    def _may(self) -> bool:
        if not self._bucket.take():
            self._left_out += 1
            return False
        if self._left_out:
            self._runtime.log.warning("lines about a node were left out", node=self._node, lines=self._left_out)
            self._left_out = 0
        return True
