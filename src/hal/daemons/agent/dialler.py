"""Which controller to connect to, and how long to wait before the next try: doubling from 50 ms to 2 s, with jitter.

Pure apart from the random numbers that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from hal.core.model.errors import SpecError
from hal.runtime.interface import Address, TcpAddress
from hal.wire.address import parse_address

FIRST_MS: Final = 50
LONGEST_MS: Final = 2_000


class Numbers(Protocol):
    """Random numbers, as from `random.Random`."""

    def randint(self, a: int, b: int, /) -> int: ...


class Backoff:
    """Delays between attempts to connect."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._ms = FIRST_MS

    def next_ms(self) -> int:
        """Return between half and all of the current delay, and double it."""
        wait_ms, self._ms = self._ms, min(LONGEST_MS, 2 * self._ms)
        return self._numbers.randint(wait_ms // 2, wait_ms)

    def reset(self) -> None:
        """Reset the delay after a success."""
        self._ms = FIRST_MS


class Controllers:
    """Selects one of several controllers: the one that worked, then the next, or one that another controller names."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = list(addresses)
        self._at = 0
        self._named: Address | None = None

    @property
    def address(self) -> Address:
        """The controller to connect to now."""
        return self._named or self._addresses[self._at]

    def failed(self) -> None:
        """It did not answer, or is of no use: select the next one, and after the last the first."""
        if self._named is not None:
            self._named = None
        else:
            self._at = (self._at + 1) % len(self._addresses)

    def not_leader(self, leader: str) -> None:
        """It is not the leader: select the leader that it names as `HOST:PORT`, or the next one if it does not know."""
        self.failed()
        try:
            self._named = TcpAddress(*parse_address(leader)) if leader else None
        except SpecError:
            self._named = None
        if self._named in self._addresses:
            self._at, self._named = self._addresses.index(self._named), None
