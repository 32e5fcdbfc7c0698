"""Whom to dial, and how long to wait before dialling again: doubling from 50 ms to 2 s, with jitter, for ever.

Pure apart from the random numbers that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from hal.core.model.errors import SpecError
from hal.runtime.interface import Address, TcpAddress
from hal.wire.address import host_and_port

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


class Controllers:
    """Which of several controllers to dial: the one that worked, then the next, and whomever one of them names."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = list(addresses)
        self._at = 0
        self._named: Address | None = None

    @property
    def address(self) -> Address:
        """To be dialled now."""
        return self._named or self._addresses[self._at]

    def failed(self) -> None:
        """It did not answer, or it is no use: the next one, and after the last the first."""
        if self._named is not None:
            self._named = None
        else:
            self._at = (self._at + 1) % len(self._addresses)

    def not_leader(self, leader: str) -> None:
        """It says that another one leads: `HOST:PORT`, or that it does not know which."""
        self.failed()
        try:
            self._named = TcpAddress(*host_and_port(leader)) if leader else None
        except SpecError:
            self._named = None
        if self._named in self._addresses:
            self._at, self._named = self._addresses.index(self._named), None
