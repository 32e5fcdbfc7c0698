"""Instants as people write them: `now+2h`, `tomorrow 08:00`, `18:00`, `2030-01-31T18:00 Europe/Berlin`.

What `hal` prints as an instant is read back as the same one. Text without a zone is in the zone of this machine,
which is why this is the client's and not the controller's.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as time_of_day
from typing import Any, Final

from hal.core.model import SpecError, parse_duration, shown

MAX_CHARS: Final = 128
"""Longest text of an instant."""

MAX_INSTANT_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""

_TIMES: Final = {"midnight": (0, 0), "noon": (12, 0), "teatime": (16, 0)}
_DAYS: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}
_CLOCK: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?(?:\s*(am|pm))?|([0-9]{1,2})\s*(am|pm)")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_RELATIVE: Final = re.compile(r"(?:now)?\s*([+-])\s*(.+)")
_OFFSET: Final = re.compile(r"[+-][0-9]{2}:?[0-9]{2}")
_HINT: Final = (
    "write, for example, 2030-01-31T18:00 (local time unless a zone is given), tomorrow 08:00, 18:00 or now+2h"
)


def instant_ms(value: Any, field: str = "begin") -> int:
    """Milliseconds since 1970 of a datetime, a timedelta from now, seconds since 1970, or text (`parse_instant`).

    Raises:
        SpecError: none of these; names `field`.
    """
    if isinstance(value, timedelta):
        value = time.time() + value.total_seconds()
    if isinstance(value, str):
        return parse_instant(value, field=field, now_ms=round(time.time() * 1000))
    if isinstance(value, datetime):
        value = value.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(
            f"{field}: expected a datetime or seconds since 1970, got {value!r}",
            hint="or text, such as '2h', 'tomorrow 08:00', '2027-01-31 08:00'",
        )
    return round(value * 1000)


def parse_instant(text: str, *, field: str, now_ms: int, past: bool = False, local: tzinfo | None = None) -> int:
    """Milliseconds since 1970 of `now+1h`, `+90min`, `now-30d`; of a time of day (`18:00`, `6pm`, `noon`), which is its
    next occurrence, or with `past` its last; of `today`, `tomorrow 08:00`, a date, or a date and a time. A zone may
    follow: `Z`, `+01:00`, `UTC`, `Europe/Berlin`, or the abbreviation of the local zone.

    Args:
        local: the zone of text without one; None: the machine's.
    Raises:
        SpecError: it is none of these, or out of the range of dates; names `field`.
    """
    words = text.strip()
    refused = SpecError(f"{field}: '{shown(text)}' is not an instant", hint=_HINT)
    if len(words) > MAX_CHARS:
        raise refused
    relative = _RELATIVE.fullmatch(words.lower())
    if words.lower() == "now":
        return now_ms
    if relative:
        span_ms = int(parse_duration(relative.group(2), field=field))
        at_ms = now_ms + (span_ms if relative.group(1) == "+" else -span_ms)
        if not 0 <= at_ms <= MAX_INSTANT_MS:
            raise refused
        return at_ms
    try:
        return _absolute(words, field, now_ms, past, local)
    except (ValueError, OverflowError, OSError):
        raise refused from None


def _absolute(words: str, field: str, now_ms: int, past: bool, local: tzinfo | None) -> int:
    try:
        iso = datetime.fromisoformat(words)
        return _epoch_ms(iso.replace(tzinfo=None), iso.tzinfo, local, "")
    except ValueError:
        words, zone_text = _without_zone(words)
    zone = _zone(zone_text, field) if zone_text else None
    today = datetime.fromtimestamp(now_ms / 1000, zone or local).date()
    day, clock = _day_and_clock(words, today)
    abbreviation = zone_text if zone is None else ""
    at_ms = _epoch_ms(datetime.combine(day or today, clock), zone, local, abbreviation)
    if day is None and (at_ms > now_ms if past else at_ms < now_ms):
        moved = today + timedelta(days=-1 if past else 1)
        at_ms = _epoch_ms(datetime.combine(moved, clock), zone, local, abbreviation)
    return at_ms


def _day_and_clock(words: str, today: date) -> tuple[date | None, time_of_day]:
    """Its date (None: the next such time of day) and its time of day; midnight where it names a day alone."""
    words = words.lower()
    if _DATE.match(words):
        first, _, rest = words.replace("t", " ", 1).partition(" ")
        return date.fromisoformat(first), _clock(rest) if rest.strip() else time_of_day()
    for name, days in _DAYS.items():
        if name in words.split():
            rest = " ".join(word for word in words.split() if word not in (name, "at"))
            return today + timedelta(days=days), _clock(rest) if rest else time_of_day()
    return None, _clock(words)


def _clock(text: str) -> time_of_day:
    """`18:00`, `18:00:30`, `18:00:30.5`, `6pm`, `noon`.

    Raises:
        ValueError: none of these.
    """
    text = text.strip()
    if text in _TIMES:
        return time_of_day(*_TIMES[text])
    match = _CLOCK.fullmatch(text)
    if match is None:
        if ":" not in text:
            raise ValueError(text)
        return time_of_day.fromisoformat(text)
    hour, minute, second = (int(part or 0) for part in (match.group(1) or match.group(5), *match.group(2, 3)))
    half = match.group(4) or match.group(6)
    if half:
        if not 1 <= hour <= 12:
            raise ValueError(text)
        hour = hour % 12 + (12 if half == "pm" else 0)
    return time_of_day(hour, minute, second)


def _without_zone(words: str) -> tuple[str, str]:
    """Split `18:00 Europe/Berlin` and `2030-01-31T18:00Z` into what comes before the zone and the zone; '' for none."""
    before, space, last = words.rpartition(" ")
    named = last.lower() not in {*_TIMES, *_DAYS, "am", "pm"} and last[:1].isalpha()
    if space and (named or _OFFSET.fullmatch(last)):
        return before.strip(), last
    if _DATE.match(words):
        if words[-1] in "zZ":
            return words[:-1].strip(), "UTC"
        offset = _OFFSET.search(words, len("2030-01-31"))
        if offset and offset.end() == len(words):
            return words[: offset.start()].strip(), offset.group()
    return words, ""


def _zone(text: str, field: str) -> tzinfo | None:
    """A zone by its name or offset; None for the abbreviation of the local one, which `_epoch_ms` checks."""
    if text.upper() in ("UTC", "GMT", "Z"):
        return UTC
    if _OFFSET.fullmatch(text):
        return datetime.strptime(text.replace(":", ""), "%z").tzinfo
    if "/" not in text:
        return None
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # takes milliseconds, and few write a zone

    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise SpecError(f"{field}: there is no time zone '{shown(text)}'", hint="write it like Europe/Berlin") from None


def _epoch_ms(wall: datetime, zone: tzinfo | None, local: tzinfo | None, abbreviation: str) -> int:
    """Milliseconds since 1970 of a wall clock; of the two instants that a clock shows when it is set back, the one of
    the abbreviation, else the earlier.

    Raises:
        ValueError: the local zone has no such abbreviation then.
    """
    if zone is not None:
        return _since_1970_ms(wall.replace(tzinfo=zone))
    for fold in (0, 1):
        at = wall.replace(fold=fold, tzinfo=local) if local is not None else wall.replace(fold=fold).astimezone()
        if not abbreviation or abbreviation.upper() == (at.tzname() or "").upper():
            return _since_1970_ms(at)
    raise ValueError(abbreviation)


def _since_1970_ms(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
