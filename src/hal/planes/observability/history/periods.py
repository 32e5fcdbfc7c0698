"""A range of time cut into days, weeks or months of a time zone. Pure: the zone is given."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from enum import StrEnum

from hal.core.model import SpecError
from hal.planes.observability.history.usage import MAX_PERIODS


class Period(StrEnum):
    """How long each is; weeks begin on Monday."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


def edges_of(since_ms: int, until_ms: int, period: Period | None, zone: tzinfo) -> list[int]:
    """Where each period of a range begins, and where the last one ends: the first and the last may be cut.

    Raises:
        SpecError: more than `MAX_PERIODS`.
    """
    edges = [since_ms]
    if period is None:
        return [*edges, until_ms]
    at_ms = since_ms
    while (at_ms := _next(at_ms, period, zone)) < until_ms:
        edges.append(at_ms)
        if len(edges) > MAX_PERIODS:
            raise SpecError(f"more than {MAX_PERIODS:,} periods of a {period}", hint="ask for longer ones")
    return [*edges, until_ms]


def _next(at_ms: int, period: Period, zone: tzinfo) -> int:
    """When the next one begins, by the clocks of the zone."""
    if period is Period.HOUR:
        ahead_ms = (datetime.fromtimestamp(at_ms / 1000, zone).utcoffset() or timedelta()) // timedelta(milliseconds=1)
        return ((at_ms + ahead_ms) // 3_600_000 + 1) * 3_600_000 - ahead_ms  # not all zones are whole hours ahead
    day = datetime.fromtimestamp(at_ms / 1000, zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    if period is Period.DAY:
        following = day + timedelta(days=1)
    elif period is Period.WEEK:
        following = day + timedelta(days=7 - day.weekday())
    else:
        following = day.replace(year=day.year + day.month // 12, month=day.month % 12 + 1, day=1)
    return max(round(following.replace(tzinfo=zone).timestamp() * 1000), at_ms + 1)
