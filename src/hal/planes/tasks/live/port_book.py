"""At which port the ranks of each active attempt meet: a number that no other attempt has on any of its nodes.

Pure. It follows from the active attempts of the table, whose rows say their ports, so it is not stored, and what is
undone is undone here, too. The numbers lie below those that keepers give to services (`keeper.service_ports`), and
below the range from which Linux gives connections theirs. A number is given again only after all the others were.
O(nodes) an attempt; an attempt of one node that asks for no ranks costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hal.planes.tasks.live.attempt import Attempt

FIRST_PORT: Final = 18_000
PORTS: Final = 2_000
"""Numbers from that one on."""
MAX_TRIES: Final = 256
"""Numbers that are tried for one attempt."""

Key = tuple[int, int, int]
"""Job, task, attempt."""


class PortBook:
    """The ports of all active attempts that have one."""

    def __init__(self) -> None:
        self._held: dict[str, dict[int, Key]] = {}
        """By address and port, whose it is. Nodes of one machine have one address."""
        self._places: dict[Key, tuple[str, ...]] = {}
        """By attempt, the addresses at which it holds its port: nodes may have others by the time it ends."""
        self._next = 0

    def choose(self, addresses: Iterable[str]) -> int:
        """Choose a port that nobody holds at any of these addresses; 0: none was found. `take` must follow."""
        held = [ports for address in set(addresses) if (ports := self._held.get(address))]
        for _ in range(MAX_TRIES):
            port = FIRST_PORT + self._next
            self._next = (self._next + 1) % PORTS
            if not any(port in ports for ports in held):
                return port
        return 0

    def take(self, key: Key, port: int, addresses: Sequence[str]) -> None:
        """An attempt holds a port from now on."""
        places = self._places[key] = tuple(dict.fromkeys(addresses))
        for address in places:
            self._held.setdefault(address, {})[port] = key

    def give(self, key: Key, port: int) -> None:
        """It holds it no longer."""
        for address in self._places.pop(key, ()):
            held = self._held.get(address, {})
            if held.get(port) == key:  # not if the end of its former holder was undone
                del held[port]
            if not held:
                self._held.pop(address, None)

    def give_all(self, job: int, attempts: Iterable[Attempt]) -> None:
        """These attempts hold nothing any longer."""
        for attempt in attempts:
            if attempt.port:
                self.give((job, attempt.task, attempt.attempt), attempt.port)

    def holds(self, key: Key, port: int) -> bool:
        """Whether an attempt holds a port, alone, wherever it runs."""
        places = self._places.get(key, ())
        return bool(places) and all(self._held.get(address, {}).get(port) == key for address in places)

    def __len__(self) -> int:
        """How many attempts hold one."""
        return len(self._places)

    def clear(self) -> None:
        """Begin again: the active attempts are told next."""
        self._held.clear()
        self._places.clear()
