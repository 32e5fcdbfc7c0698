"""How old idempotency keys are, by a clock that does not jump: a client that tries again must find its key.

Keys carry the wall clock of their commit. It may be set forward by a day while a client retries; so the wall clock is
noted beside the monotonic one, and a key is old when it was written before a note that has aged enough. After a restart
notes begin again, and so does the age of all keys that are there.
"""

from __future__ import annotations

from collections import deque


class KeyAge:
    """Of one controller; bounded by retention / interval notes."""

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._notes: deque[tuple[int, int]] = deque()
        self._before_ms = 0

    def written_before(self, now_ms: int, monotonic_ms: int) -> int:
        """Keys that were written before this instant of the wall clock are older than they are kept.

        Args:
            now_ms: the controller's clock, which never goes back; noted for later calls.
        """
        self._notes.append((monotonic_ms, now_ms))
        while self._notes[0][0] <= monotonic_ms - self._keep_ms:
            self._before_ms = self._notes.popleft()[1]
        return self._before_ms
