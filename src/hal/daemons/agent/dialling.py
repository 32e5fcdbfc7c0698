"""How long to wait before dialling again: doubling from 50 ms to 2 s, with jitter, for ever.

Pure apart from the random numbers that it is given.
"""

from __future__ import annotations

from typing import Final, Protocol

FIRST_MS: Final = 50
LONGEST_MS: Final = 2_000


class Numbers(Protocol):
    """Random numbers, as `random.Random` gives them."""

    def randint(self, a: int, b: int, /) -> int: ...


class Backoff:
    """Waits between tries."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._ms = FIRST_MS

    def next_ms(self) -> int:
        """Between half and all of the current wait; the next is twice as long."""
        wait_ms, self._ms = self._ms, min(LONGEST_MS, 2 * self._ms)
        return self._numbers.randint(wait_ms // 2, wait_ms)

    def reset(self) -> None:
        """It worked: begin anew."""
        self._ms = FIRST_MS
