"""The controller's wall clock: it never goes back, not even when the host's does, nor across restarts.

Nor does it stand still: where the host's clock was set back, this one goes at half the speed until that has caught up,
so what waits for an instant waits twice as long at most.
"""

from __future__ import annotations

from hal.runtime.interface import Runtime


class Clock:
    """The host's clock, but never before anything reported, nor before the last commit."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._latest_ms = 0
        self._since_ms = 0
        """When `_latest_ms` was reported, by the monotonic clock."""

    def not_before(self, ms: int) -> None:
        """Set the instant of a durable commit, before which the clock never is."""
        if ms > self._latest_ms:
            self._latest_ms, self._since_ms = ms, self._runtime.monotonic_ms()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        since_ms = self._runtime.monotonic_ms()
        now_ms = max(self._runtime.now_ms(), self._latest_ms + (since_ms - self._since_ms) // 2)
        if now_ms > self._latest_ms:
            self._latest_ms, self._since_ms = now_ms, since_ms
        return self._latest_ms
