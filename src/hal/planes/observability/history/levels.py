"""Which sums answer a question about a range of time: as coarse as they can be in its middle, finer towards its ends.

Pure. Buckets of all levels begin at multiples of their length since 1970 (days are those of UTC). A range is cut into
parts of levels that do not overlap. Where the finest that is still kept is coarser than the range's end, a bucket
counts where it begins within the range, so that neighbouring ranges never count one twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


class Level(StrEnum):
    """A table, and how long its buckets are; attempts have an instant each."""

    DAYS = "days"
    HOURS = "hours"
    MINUTES = "minutes"
    ATTEMPTS = "attempts"


LENGTH_MS: Final = {Level.DAYS: DAY_MS, Level.HOURS: HOUR_MS, Level.MINUTES: MINUTE_MS, Level.ATTEMPTS: 1}
"""From the coarsest to the finest."""


class Segment(NamedTuple):
    """A part of a range that one level answers: buckets that begin in [since, until)."""

    level: Level
    since_ms: int
    until_ms: int


def segments(since_ms: int, until_ms: int, kept: Mapping[Level, int]) -> list[Segment]:
    """Cut [since, until) into parts, in order of time.

    Args:
        kept: from when on each level is kept, at the beginning of a day.
    """
    edges = sorted({since_ms, until_ms, *(edge for edge in kept.values() if since_ms < edge < until_ms)})
    found: list[Segment] = []
    for low, high in pairwise(edges):
        levels = [level for level in LENGTH_MS if kept[level] <= low]
        found += _cut(low, high, levels)
    return found


def rounds(since_ms: int, until_ms: int, kept: Mapping[Level, int]) -> Level | None:
    """The coarsest level to whose buckets an end of the range is rounded, because nothing finer is kept; None: neither
    is."""
    found = [
        finest
        for instant in (since_ms, until_ms)
        if (finest := _finest(instant, kept)) is not None and instant % LENGTH_MS[finest]
    ]
    return max(found, key=LENGTH_MS.__getitem__, default=None)


def day_of(instant_ms: int) -> int:
    """When the day (of UTC) began."""
    return instant_ms // DAY_MS * DAY_MS


def _finest(instant_ms: int, kept: Mapping[Level, int]) -> Level | None:
    found = [level for level in LENGTH_MS if kept[level] <= instant_ms]
    return found[-1] if found else None


def _cut(low: int, high: int, levels: Sequence[Level]) -> Iterator[Segment]:
    if low >= high or not levels:
        return
    level, *finer = levels
    length = LENGTH_MS[level]
    first = -(-low // length) * length
    last = high // length * length if finer else -(-high // length) * length
    if first >= last:
        yield from _cut(low, high, finer)
        return
    if finer:
        yield from _cut(low, first, finer)
    yield Segment(level, first, last)
    if finer:
        yield from _cut(last, high, finer)
