"""When the engine must hear of bookings: those of a policy as concrete times, and again before the horizon is reached.

Pure but for what was sent last. Bookings that repeat are sent for HORIZON_MS ahead, and again each REFRESH_MS.
"""

from __future__ import annotations

from typing import Final

from hal.core.engine.events import BookingsChanged
from hal.core.engine.tables.bookings import BookingSpec
from hal.core.model.occurrences import DAY_MS, expand
from hal.core.model.policy import Booking, Policy
from hal.planes.tasks.engine.interning import requirements

REFRESH_MS: Final = DAY_MS


class BookingTimes:
    """The bookings that an engine knows; none at first."""

    def __init__(self) -> None:
        self._known: dict[str, Booking] = {}
        self._again_ms = 0

    def news(self, policy: Policy | None, now_ms: int) -> BookingsChanged | None:
        """The event to feed at `now_ms`; None if nothing has changed."""
        bookings = {} if policy is None else policy.bookings
        if bookings == self._known and (not bookings or now_ms < self._again_ms):
            return None
        self._known, self._again_ms = bookings, now_ms + REFRESH_MS
        times = expand(bookings.values(), now_ms)
        return BookingsChanged(tuple(_spec(bookings[one.booking], one.name, one.start_ms, one.end_ms) for one in times))


def _spec(booking: Booking, name: str, start_ms: int, end_ms: int) -> BookingSpec:
    return BookingSpec(
        name=name,
        start_ms=start_ms,
        end_ms=end_ms,
        nodes=booking.nodes,
        count=0 if booking.nodes else booking.count,
        constraints=requirements(booking.constraints),
        booking=booking.name,
        maintenance=booking.maintenance,
        early=booking.early,
        overlap=booking.overlap,
        licences=dict(booking.licences),
    )
