"""How long to wait between tries of reaching a controller that is being restarted.

Pure: it says how long, the caller sleeps and tells the time.
"""

from __future__ import annotations

FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 1.0


class Backoff:
    """Doubling waits from `FIRST_DELAY_S` to `LONGEST_DELAY_S`, until `limit_s` after the first failure."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since_s: float | None = None
        self._delay_s = FIRST_DELAY_S

    def failed(self, now_s: float) -> float | None:
        """Seconds to wait before the next try; None when it is time to give up.

        Args:
            now_s: a monotonic clock.
        """
        if self._since_s is None:
            self._since_s = now_s
        delay_s = min(self._delay_s, LONGEST_DELAY_S)
        self._delay_s = delay_s * 2
        return delay_s if now_s + delay_s <= self._since_s + self._limit_s else None

    def worked(self) -> None:
        """The next failure starts a new series."""
        self._since_s = None
        self._delay_s = FIRST_DELAY_S
