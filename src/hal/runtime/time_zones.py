"""Time zones by name, from the zone table of the machine or of the package tzdata, as the offsets that the core reads.

A zone is expanded once into the instants at which its offset changes; so the same policy gives the same decisions
wherever these are made again, and the core touches no file. Its file is read as it is (RFC 9636): the changes that it
lists, and behind them those of the rule at its end. Asking a zone for its offset again and again would take a hundred
times as long, and miss what changes twice in a few days.
"""

from __future__ import annotations

import difflib
import re
from calendar import timegm
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from pathlib import Path
from struct import Struct, error, unpack_from
from typing import Final
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError, available_timezones

from hal.core.model import SpecError, shown
from hal.core.model.policy import Policy
from hal.core.model.policy_check import zones_of
from hal.core.model.policy_hours import ZoneOffsets

FIRST_YEAR: Final = 1990
LAST_YEAR: Final = 2070
"""Changes before the first and after the last of these years are not known; the nearest offset holds."""
REMEMBERED: Final = 256
"""Zones whose offsets are cached."""
MAX_FILE_BYTES: Final = 1 << 20
_HEADER: Final = Struct(">4sc15x6L")
_DAY_S: Final = 86_400
_WHEN: Final = r"(?:M(\d+)\.(\d+)\.(\d+)|J(\d+)|(\d+))(?:/([+-]?\d+(?::\d+){0,2}))?"
_NAME: Final = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]+>)"
_CLOCK: Final = r"([+-]?\d+(?::\d+){0,2})"
_RULE: Final = re.compile(f"{_NAME}{_CLOCK}(?:{_NAME}{_CLOCK}?,{_WHEN},{_WHEN})?")


def zone_offsets(policy: Policy) -> dict[str, ZoneOffsets]:
    """The offsets of the zones in which the hours of its queues are, by name.

    Raises:
        SpecError: there is no such zone; names it and the nearest.
    """
    return {zone: offsets_of(zone) for zone in sorted(zones_of(policy))}


def zone_named(zone: str) -> ZoneInfo:
    """The zone itself; read once.

    Raises:
        SpecError: there is no such zone; names the nearest.
    """
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise _no_zone(zone) from None


@lru_cache(maxsize=REMEMBERED)
def offsets_of(zone: str) -> ZoneOffsets:
    """The offsets of a zone from `FIRST_YEAR` to `LAST_YEAR`. About half a millisecond for one that is not cached, and
    a tenth of a second for a name that there is not.

    Raises:
        SpecError: there is no such zone; names the nearest.
    """
    try:
        listed, rule = _read(_file_of(zone))
    except (OSError, ValueError, error):
        raise _no_zone(zone) from None
    first_s, end_s = (timegm((year, 1, 1, 0, 0, 0)) for year in (FIRST_YEAR, LAST_YEAR))
    from_ms, offset_ms = [first_s * 1000], [listed[0][1] * 1000]
    for at_s, offset_s in [*listed, *_by_rule(rule, listed[-1][0])]:
        if at_s <= first_s:
            offset_ms[0] = offset_s * 1000
        elif at_s < end_s and offset_s * 1000 != offset_ms[-1]:
            from_ms.append(at_s * 1000)
            offset_ms.append(offset_s * 1000)
    return ZoneOffsets(tuple(from_ms), tuple(offset_ms))


def _no_zone(zone: str) -> SpecError:
    near = difflib.get_close_matches(zone, sorted(available_timezones()), n=1)
    hint = f"did you mean {near[0]}?" if near else "write it like Europe/Berlin, or UTC"
    return SpecError(f"zone: there is no time zone '{shown(zone)}'", hint=hint)


def _file_of(zone: str) -> bytes:
    """
    Raises:
        OSError, ValueError: there is none.
    """
    parts = zone.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(zone)
    for root in TZPATH:
        path = Path(root, *parts)
        if path.is_file():
            return path.read_bytes()
    return resources.files("tzdata").joinpath("zoneinfo", *parts).read_bytes()


def _read(file: bytes) -> tuple[list[tuple[int, int]], str]:
    """The instants from which on offsets hold, in seconds, ascending, the first long ago; and the rule behind them.

    Raises:
        ValueError, struct.error: it is no such file.
    """
    at, width = 0, 4
    while True:
        magic, version, utc, std, leaps, times, types, chars = _HEADER.unpack_from(file, at)
        if magic != b"TZif" or not types or len(file) > MAX_FILE_BYTES:
            raise ValueError("no zone")
        body = at + _HEADER.size
        end = body + times * (width + 1) + types * 6 + chars + leaps * (width + 4) + std + utc
        if width == 8 or version < b"2":
            break
        at, width = end, 8
    instants = unpack_from(f">{times}{'q' if width == 8 else 'l'}", file, body)
    kinds = unpack_from(f">{times}B", file, body + times * width)
    offsets = [unpack_from(">l", file, body + times * (width + 1) + 6 * kind)[0] for kind in range(types)]
    before = (min(instants, default=0) - 1, offsets[0])
    listed = [before, *((at_s, offsets[kind]) for at_s, kind in zip(instants, kinds, strict=True))]
    return listed, file[end:].strip(b"\n").decode("ascii") if width == 8 else ""


def _by_rule(rule: str, after_s: int) -> Iterator[tuple[int, int]]:
    """What changes by a rule like `CET-1CEST,M3.5.0,M10.5.0/3`, behind the changes that are listed."""
    found = _RULE.fullmatch(rule)
    if found is None:  # none, or one of a kind that is not known: the last offset holds
        return
    groups = found.groups()
    standard_s = -_seconds(groups[0])
    if groups[2:] == (None,) * 12:
        yield after_s + 1, standard_s
        return
    summer_s = standard_s + 3_600 if groups[1] is None else -_seconds(groups[1])
    for year in range(FIRST_YEAR, LAST_YEAR):
        # Each change is given on the clock that holds before it.
        begin_s = _instant_of(year, *groups[2:8]) - standard_s
        over_s = _instant_of(year, *groups[8:14]) - summer_s
        for at_s, offset_s in sorted([(begin_s, summer_s), (over_s, standard_s)]):
            if at_s > after_s:
                yield at_s, offset_s


def _instant_of(
    year: int,
    month: str | None,
    week: str | None,
    weekday: str | None,
    julian: str | None,
    day: str | None,
    clock: str | None,
) -> int:
    """When a clock that shows UTC shows the time at which something changes in that year."""
    if month is not None and week is not None and weekday is not None:
        first_s = timegm((year, int(month), 1, 0, 0, 0))
        # The first of January 1970 was a Thursday; Sunday is 0.
        ahead = (int(weekday) - (first_s // _DAY_S + 4)) % 7 + 7 * (int(week) - 1)
        next_s = timegm((year + int(month) // 12, int(month) % 12 + 1, 1, 0, 0, 0))
        while first_s + ahead * _DAY_S >= next_s:  # the fifth one is the last
            ahead -= 7
        day_s = first_s + ahead * _DAY_S
    elif julian is not None:  # from 1, and the 29th of February is not counted
        leap = int(julian) >= 60 and (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
        day_s = timegm((year, 1, 1, 0, 0, 0)) + (int(julian) - 1 + leap) * _DAY_S
    else:
        day_s = timegm((year, 1, 1, 0, 0, 0)) + int(day or 0) * _DAY_S
    return day_s + (_seconds(clock) if clock is not None else 2 * 3_600)


def _seconds(text: str) -> int:
    """`-3`, `+5:30`, `26:00:00`."""
    sign = -1 if text.startswith("-") else 1
    hours, minutes, seconds = ([int(part) for part in text.lstrip("+-").split(":")] + [0, 0])[:3]
    return sign * (hours * 3_600 + minutes * 60 + seconds)
