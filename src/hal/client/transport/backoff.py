"""How long to wait between tries of reaching a controller that is being restarted.

Pure: it says how long, the caller sleeps and tells the time.
"""

from __future__ import annotations

FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 1.0


LONGEST_TURN_S = 60.0
"""How long one request waits in all because the controller gets too many."""


class Turn:
    """How long to wait when the controller answers 429: as long as it asks for, up to `LONGEST_TURN_S` in all."""

    def __init__(self) -> None:
        self._left_s = LONGEST_TURN_S

    def refused(self, retry_after: str | None) -> float | None:
        """Seconds to wait before the same request is sent again; None when it is time to give up.

        Args:
            retry_after: the header's text.
        """
        delay_s = float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 1.0
        if delay_s > self._left_s:
            return None
        self._left_s -= max(delay_s, FIRST_DELAY_S)
        return max(delay_s, FIRST_DELAY_S)


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
