"""Open hours of a queue: `mon-fri 18:00-08:00`, `sat,sun`, and the instant when they next open or close.

Pure. Hours repeat every week; an instant is open if any window contains it. A window that ends before it begins ends on
the next day, so `fri 18:00-08:00` is open on Saturday morning. They are read on the clock of a zone, whose offsets from
UTC are passed in: an hour that its clocks show twice counts twice, one that they skip not at all. O(windows) and
O(log changes), parsed once for equal texts.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import Final

from msgspec import Struct

from hal.core.model.errors import SpecError, shown

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MIN: Final = 24 * 60
WEEK_MIN: Final = 7 * DAY_MIN
MINUTE_MS: Final = 60_000
WEEK_MS: Final = WEEK_MIN * MINUTE_MS
MAX_WINDOWS: Final = 64
"""Windows of one queue's hours."""
REMEMBERED: Final = 1_024

_MONDAY_MS: Final = 4 * DAY_MIN * MINUTE_MS
"""The first Monday after the epoch, which was a Thursday."""
_TIMES: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})\s*-\s*([0-9]{1,2}):([0-9]{2})")
_HINT: Final = "write it like 'mon-fri 18:00-08:00', 'sat,sun' or '22:00-24:00'; times are of the queue's zone"
UTC_ZONE: Final = "UTC"
"""The zone of hours that name none."""
MAX_ZONE_CHARS: Final = 64
_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}")

Windows = tuple[tuple[int, int], ...]
"""Minutes since Monday 00:00, [from, to), disjoint, ascending, not touching; empty: never. One that crosses the end
of the week is two."""


def parse_hours(hours: tuple[str, ...], *, field: str = "hours") -> Windows:
    """Parse the windows of the week; without any text it is always open.

    Raises:
        SpecError: a text that is not a window, or more than `MAX_WINDOWS`.
    """
    if len(hours) > MAX_WINDOWS:
        raise SpecError(f"{field}: {len(hours)} windows; at most {MAX_WINDOWS} are allowed")
    try:
        return _windows(hours)
    except SpecError as error:
        raise SpecError(f"{field}: {error.message}", hint=error.hint) from None


class ZoneOffsets(Struct, frozen=True):
    """What to add to UTC for the wall clock of a zone, from which instant on."""

    from_ms: tuple[int, ...] = (0,)
    """Ascending; before the first, the first offset holds, too."""
    offset_ms: tuple[int, ...] = (0,)
    """As many."""

    def at(self, at_ms: int) -> tuple[int, int | None]:
        """The offset at `at_ms`, and the next instant at which it changes; None where no change is known."""
        index = max(bisect_right(self.from_ms, at_ms) - 1, 0)
        later = self.from_ms[index + 1] if index + 1 < len(self.from_ms) else None
        return self.offset_ms[index], later


UTC_OFFSETS: Final = ZoneOffsets()


def check_zone(zone: str, field: str) -> None:
    """Check that a text can be the name of a zone, like `Europe/Berlin`. Whether there is one, the zone table says.

    Raises:
        SpecError: it cannot; names `field`.
    """
    if len(zone) > MAX_ZONE_CHARS or not _ZONE.fullmatch(zone):
        raise SpecError(f"{field}: '{shown(zone)}' is not a time zone", hint="write it like Europe/Berlin, or UTC")


def is_open(hours: tuple[str, ...], at_ms: int, zone: ZoneOffsets = UTC_OFFSETS) -> bool:
    """Whether `at_ms` (since 1970) is in one of the windows, on the clock of the zone."""
    minute = _minute(at_ms + zone.at(at_ms)[0])
    return any(begin <= minute < end for begin, end in _windows(hours))


def next_open_ms(hours: tuple[str, ...], at_ms: int, zone: ZoneOffsets = UTC_OFFSETS) -> int:
    """Return the first open instant from `at_ms` on; `at_ms` itself if it is open."""
    if is_open(hours, at_ms, zone):
        return at_ms
    return _next_edge(hours, at_ms, zone, [begin for begin, _ in _windows(hours)], opens=True)


def next_close_ms(hours: tuple[str, ...], at_ms: int, zone: ZoneOffsets = UTC_OFFSETS) -> int | None:
    """Return the first closed instant from `at_ms` on; None if there is none, because the hours are always open."""
    if not is_open(hours, at_ms, zone):
        return at_ms
    windows = _windows(hours)
    if windows == ((0, WEEK_MIN),):
        return None
    begins = {begin for begin, _ in windows}
    # If one window ends with the week and another begins with it, the two are one.
    ends = [end % WEEK_MIN for _, end in windows if end % WEEK_MIN not in begins]
    return _next_edge(hours, at_ms, zone, ends, opens=False)


def _next_edge(hours: tuple[str, ...], at_ms: int, zone: ZoneOffsets, minutes: list[int], *, opens: bool) -> int:
    """Return the first instant after `at_ms` at which the clock shows one of these minutes, or is set to where it is
    open, or closed, as asked. Ends after as many rounds as the zone has changes."""
    while True:
        offset_ms, change_ms = zone.at(at_ms)
        edge_ms = _next(at_ms + offset_ms, minutes) - offset_ms
        if change_ms is None or edge_ms < change_ms:
            return edge_ms
        if is_open(hours, change_ms, zone) is opens:
            return change_ms
        at_ms = change_ms


@lru_cache(maxsize=REMEMBERED)
def _windows(hours: tuple[str, ...]) -> Windows:
    if not hours:
        return ((0, WEEK_MIN),)
    parts: list[tuple[int, int]] = []
    for text in hours:
        for begin, end in _parsed(text):
            parts.append((begin, min(end, WEEK_MIN)))
            if end > WEEK_MIN:
                parts.append((0, end - WEEK_MIN))
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(parts):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return tuple(merged)


def _parsed(text: str) -> list[tuple[int, int]]:
    """Parse one text: a window for each of its days; its end may be in the next week."""
    words = text.strip().lower()
    times = _TIMES.search(words)
    days_text = words[: times.start()].strip() if times else words
    if times is not None and times.end() != len(words):
        raise SpecError(f"'{shown(text)}' is not a time window", hint=_HINT)
    begin, end = 0, DAY_MIN
    if times is not None:
        begin, end = (_clock(times.group(i), times.group(i + 1), text) for i in (1, 3))
        if begin == end:
            raise SpecError(f"'{shown(text)}' begins and ends at the same time", hint="a whole day is 00:00-24:00")
        if begin == DAY_MIN:
            raise SpecError(f"'{shown(text)}' begins at the end of a day", hint="24:00 can only be an end")
        if end < begin:
            end += DAY_MIN
    elif not days_text:
        raise SpecError("an empty text is not a time window", hint=_HINT)
    return [(day * DAY_MIN + begin, day * DAY_MIN + end) for day in _days(days_text, text)]


def _days(names: str, text: str) -> list[int]:
    if not names or names == "daily":
        return list(range(7))
    found: list[int] = []
    for part in names.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        if first not in DAYS or (dash and last not in DAYS):
            raise SpecError(f"'{shown(text)}' is not a time window", hint=_HINT)
        begin = DAYS.index(first)
        count = (DAYS.index(last) - begin) % 7 + 1 if dash else 1
        found.extend((begin + step) % 7 for step in range(count))
    return found


def _clock(hour: str, minute: str, text: str) -> int:
    at = int(hour) * 60 + int(minute)
    if int(minute) > 59 or at > DAY_MIN:
        raise SpecError(f"'{shown(text)}': {hour}:{minute} is not a time of day", hint=_HINT)
    return at


def _minute(at_ms: int) -> int:
    return (at_ms - _MONDAY_MS) // MINUTE_MS % WEEK_MIN


def _next(at_ms: int, minutes: list[int]) -> int:
    """Return the first instant after `at_ms` at which one of these minutes of the week begins."""
    week_ms = (at_ms - _MONDAY_MS) // WEEK_MS * WEEK_MS + _MONDAY_MS
    ordered = sorted(minute * MINUTE_MS for minute in minutes)
    at = bisect_right(ordered, at_ms - week_ms)
    return week_ms + (ordered[at] if at < len(ordered) else ordered[0] + WEEK_MS)
