"""The controller's wall clock: it never goes back, not even when the host's does, nor across restarts."""

from __future__ import annotations

from hal.runtime.interface import Runtime


class Clock:
    """max(the host's clock, everything told before, the last commit)."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._latest_ms = 0

    def not_before(self, ms: int) -> None:
        """The instant of a commit that is durable."""
        self._latest_ms = max(self._latest_ms, ms)

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        self._latest_ms = max(self._latest_ms, self._runtime.now_ms())
        return self._latest_ms
