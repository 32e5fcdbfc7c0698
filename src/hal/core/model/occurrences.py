"""When a booking applies: its occurrences within a horizon, and whether those of two bookings ever overlap.

Pure. Occurrence k of a booking is [start + k · period, start + k · period + duration); one that does not repeat has
only k = 0. Periods are days and weeks of UTC, so a change to summer time moves nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Final

from msgspec import Struct

from hal.core.model.policy import WEEK_MS, Booking, Repeat

DAY_MS: Final = 86_400_000
HORIZON_MS: Final = 14 * DAY_MS
"""How far ahead recurring bookings are expanded."""
MAX_OCCURRENCES: Final = 10_000
"""Most occurrences that one expansion returns: the earliest."""

PERIOD_MS: Final = {Repeat.ONCE: 0, Repeat.DAILY: DAY_MS, Repeat.WEEKLY: WEEK_MS}


class Occurrence(Struct, frozen=True, order=True):
    """One occurrence of a booking: [start_ms, end_ms). `number` counts from 0 at the booking's first start."""

    start_ms: int
    end_ms: int
    booking: str
    number: int

    @property
    def name(self) -> str:
        """Unique among all occurrences: `maintenance` if it does not repeat, else `maintenance#12`."""
        return f"{self.booking}#{self.number}" if self.number else self.booking


def occurrences(booking: Booking, from_ms: int) -> Iterator[Occurrence]:
    """Generate those that end after `from_ms`, in order; endless if the booking repeats without end."""
    period, duration = PERIOD_MS[booking.repeat], int(booking.duration)
    number = 0
    if period:
        number = max(0, (from_ms - duration - booking.start_ms) // period + 1)
    while True:
        start_ms = booking.start_ms + number * period
        if number and booking.until_ms and start_ms > booking.until_ms:
            return
        if start_ms + duration > from_ms:
            yield Occurrence(start_ms, start_ms + duration, booking.name, number)
        if not period:
            return
        number += 1


def expand(
    bookings: Iterable[Booking], now_ms: int, *, horizon_ms: int = HORIZON_MS, limit: int = MAX_OCCURRENCES
) -> tuple[Occurrence, ...]:
    """Return all that have not ended and begin before `now_ms + horizon_ms`, by start; the earliest `limit` of them.

    An occurrence that does not repeat is included however far ahead it is: a long job that starts today must see it.
    """
    until_ms = now_ms + horizon_ms
    single = [b for b in bookings if b.repeat is Repeat.ONCE]
    repeated = [b for b in bookings if b.repeat is not Repeat.ONCE]
    streams: list[Iterable[Occurrence]] = [sorted(o for b in single for o in occurrences(b, now_ms))]
    for booking in repeated:
        streams.append(takewhile(lambda o: o.start_ms < until_ms, occurrences(booking, now_ms)))
    return tuple(islice(heapq.merge(*streams), limit))


def current_occurrence(booking: Booking, now_ms: int) -> Occurrence | None:
    """Return the current occurrence, or else the next one; None if all are over."""
    return next(occurrences(booking, now_ms), None)


def longest_gap_ms(bookings: Iterable[Booking]) -> int:
    """Return the longest time between occurrences of bookings that all repeat without end: within any week, which is as
    any other once all have begun. 0 if they leave none."""
    taken: list[tuple[int, int]] = []
    for booking in bookings:
        period = PERIOD_MS[booking.repeat]
        if booking.duration >= period:
            return 0
        for number in range(WEEK_MS // period):
            start_ms = (booking.start_ms + number * period) % WEEK_MS
            taken.append((start_ms, start_ms + booking.duration))
    taken.sort()
    longest, end_ms = 0, max(end for _, end in taken) - WEEK_MS
    for start_ms, until_ms in taken:
        longest = max(longest, start_ms - end_ms)
        end_ms = max(end_ms, until_ms)
    return longest


def first_overlap(a: Booking, b: Booking) -> tuple[Occurrence, Occurrence] | None:
    """Return the first occurrences of two bookings that overlap in time; None if none ever do.

    Exact without expanding: one period divides the other, so if any two occurrences overlap, so do two of which one is
    in the first week of its booking.
    """
    if _never_meet(a, b):
        return None
    return _meet_from(a, b) or _swapped(_meet_from(b, a))


def _never_meet(a: Booking, b: Booking) -> bool:
    """Whether they cannot overlap at a glance: two single occurrences apart, or times of day (or week) apart on
    every day (or week)."""
    period = min(PERIOD_MS[a.repeat], PERIOD_MS[b.repeat])
    if period:
        ahead = (b.start_ms - a.start_ms) % period
        return a.duration <= ahead and ahead + b.duration <= period
    if a.repeat is not Repeat.ONCE or b.repeat is not Repeat.ONCE:
        return False
    return a.start_ms + a.duration <= b.start_ms or b.start_ms + b.duration <= a.start_ms


def _meet_from(a: Booking, b: Booking) -> tuple[Occurrence, Occurrence] | None:
    """Find an occurrence in the first week of `a` that overlaps one of `b`."""
    for one in islice(occurrences(a, a.start_ms), max(1, WEEK_MS // (PERIOD_MS[a.repeat] or WEEK_MS))):
        other = next(occurrences(b, one.start_ms), None)
        if other is not None and other.start_ms < one.end_ms:
            return one, other
    return None


def _swapped(pair: tuple[Occurrence, Occurrence] | None) -> tuple[Occurrence, Occurrence] | None:
    return None if pair is None else (pair[1], pair[0])
