"""Bookings that return without end: for how long they leave their nodes at most.

Pure. O(names of nodes in such bookings), once for each policy.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.model.occurrences import longest_gap_ms
from hal.core.model.policy import Booking, Policy, Repeat
from hal.core.model.units import Duration

MAX_RETURNING: Final = 64
"""Bookings without an end whose gaps are looked at; a policy with more is judged without them."""
MAX_RETURNING_NODES: Final = 5_000
"""Names of nodes in these bookings, together."""


class KeptNodes(Struct, frozen=True):
    """Nodes that the same returning bookings take: how long they leave them at most, once the last has begun."""

    nodes: frozenset[str]
    bookings: tuple[str, ...]
    since_ms: int
    gap_ms: int


class ReturningBookings:
    """Bookings that return without end, and how long their nodes are free between them."""

    def __init__(self, policy: Policy) -> None:
        found = [
            booking
            for booking in policy.bookings.values()
            if booking.repeat is not Repeat.ONCE and not booking.until_ms and booking.nodes
        ]
        self.kept: tuple[KeptNodes, ...] = ()
        if len(found) > MAX_RETURNING or sum(len(booking.nodes) for booking in found) > MAX_RETURNING_NODES:
            return
        takers: dict[str, list[Booking]] = {}
        for booking in found:
            for name in booking.nodes:
                takers.setdefault(name, []).append(booking)
        alike: dict[tuple[str, ...], set[str]] = {}
        for name, some in takers.items():
            alike.setdefault(tuple(booking.name for booking in some), set()).add(name)
        self.kept = tuple(
            KeptNodes(
                frozenset(nodes),
                names,
                max(policy.bookings[name].start_ms for name in names),
                longest_gap_ms([policy.bookings[name] for name in names]),
            )
            for names, nodes in alike.items()
        )

    def closed_to(self, walltime: Duration | None, now_ms: int) -> list[KeptNodes]:
        """Those that never leave their nodes for so long; None: for any time."""
        return [one for one in self.kept if one.since_ms <= now_ms and (walltime is None or one.gap_ms < int(walltime))]
