"""The pace at which an answer has to arrive: a server that sends a byte now and then keeps nobody waiting for ever.

Its head, interim answers before it included, comes within the time that an answer may take; its body then at no less
than `LEAST_BYTES_PER_S` in the long run. What is read as it comes (a followed log, the feed) has no pace.
"""

from __future__ import annotations

from typing import Final

LEAST_BYTES_PER_S: Final = 16 << 10
TOO_SLOW: Final = "the answer comes too slowly"


class Pace:
    """Of one answer."""

    def __init__(self, now_s: float, patience_s: float) -> None:
        """
        Args:
            patience_s: how long its head may take, and its body more than its length explains.
        """
        self._patience_s = patience_s
        self._since_s = now_s
        self._received: int | None = None

    def head_is_read(self, now_s: float) -> None:
        """Its body begins."""
        self._since_s, self._received = now_s, 0

    def came(self, amount: int) -> None:
        """So many bytes more."""
        if self._received is not None:
            self._received += amount

    def left_s(self, now_s: float) -> float:
        """How long the next byte may take; 0 or less: it is too late."""
        return self._since_s + self._patience_s + (self._received or 0) / LEAST_BYTES_PER_S - now_s
