"""Bars of a Gantt chart: what ran, what runs, and what is planned; by node or by job, in lanes without overlaps.

Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from hal.client.rest.ask_calls import ReservationInfo
from hal.client.rest.feed_calls import EndedAttemptInfo
from hal.core.model import AttemptState

MAX_LANES: Final = 64
"""Lanes of one node or job."""


class Kind(StrEnum):
    """What a bar stands for."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Did not succeed, for whatever reason."""
    RUNNING = "running"
    PLANNED = "planned"
    """Reserved for a job that waits."""


class Bar(NamedTuple):
    """A task on its nodes for a time."""

    job: str
    task: int | None
    """None: of a job that is no array."""
    name: str
    user: str
    nodes: tuple[str, ...]
    start_ms: int
    end_ms: int
    kind: Kind

    @property
    def label(self) -> str:
        """`42.7`"""
        return self.job if self.task is None else f"{self.job}.{self.task}"


class Row(NamedTuple):
    """A node, or a job, and its bars in lanes."""

    name: str
    lanes: list[list[Bar]]
    hidden: int
    """Bars for which there was no lane."""


def past(row: EndedAttemptInfo) -> Bar | None:
    """The bar of an attempt that ran; None: it never did."""
    if row.start_ms is None:
        return None
    kind = Kind.SUCCEEDED if row.state is AttemptState.SUCCEEDED else Kind.FAILED
    task = row.task or None  # the first task of an array has the array's own number
    return Bar(row.job, task, row.name, row.user, row.nodes, row.start_ms, max(row.end_ms, row.start_ms), kind)


def planned(one: ReservationInfo, span_ms: int) -> Bar | None:
    """The bar of a reservation; None: its start is not known.

    Args:
        span_ms: how long it is drawn where it has no end.
    """
    if one.start_ms is None:
        return None
    end_ms = one.end_ms if one.end_ms is not None else one.start_ms + span_ms
    return Bar(one.job, one.task or None, "", "", tuple(one.nodes), one.start_ms, end_ms, Kind.PLANNED)


def rows_of(bars: Iterable[Bar], *, by_job: bool) -> list[Row]:
    """A row for each node, by name, or for each job, by its first start; a bar on several nodes is in all of theirs."""
    found: dict[str, list[Bar]] = {}
    for bar in sorted(bars, key=lambda one: (one.start_ms, one.end_ms)):
        for name in (bar.job,) if by_job else bar.nodes:
            found.setdefault(name, []).append(bar)
    names = list(found) if by_job else sorted(found)
    return [_laned(name, found[name]) for name in names]


def _laned(name: str, bars: Sequence[Bar]) -> Row:
    """Each bar into the lane that has been free for longest; bars come by ascending start."""
    lanes: list[list[Bar]] = []
    free: list[tuple[int, int]] = []
    hidden = 0
    for bar in bars:
        if free and free[0][0] <= bar.start_ms:
            _, lane = heapq.heappop(free)
        elif len(lanes) < MAX_LANES:
            lane = len(lanes)
            lanes.append([])
        else:
            hidden += 1
            continue
        lanes[lane].append(bar)
        heapq.heappush(free, (bar.end_ms, lane))
    return Row(name, lanes, hidden)


def ticks(begin_ms: int, end_ms: int, most: int) -> list[int]:
    """Round instants within a time, at most so many: whole seconds, minutes, hours or days, in local time."""
    from datetime import datetime

    step = next((one for one in _STEPS_MS if (end_ms - begin_ms) // one <= most), _STEPS_MS[-1])
    offset = datetime.fromtimestamp(begin_ms / 1000).astimezone().utcoffset()
    shift_ms = 0 if offset is None else round(offset.total_seconds() * 1000)
    first = -(-(begin_ms + shift_ms) // step) * step - shift_ms
    return list(range(first, end_ms + 1, step))[: most + 1]


def tick_text(ms: int, step_ms: int) -> str:
    """`18:00`, `18:00:05` where ticks are seconds apart, `31 Jan` where they are days apart."""
    from datetime import datetime

    when = datetime.fromtimestamp(ms / 1000).astimezone()
    if step_ms >= _DAY_MS:
        return when.strftime("%d %b")
    return when.strftime("%H:%M:%S" if step_ms < _MINUTE_MS else "%H:%M")


_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_STEPS_MS: Final = (
    1_000, 2_000, 5_000, 10_000, 30_000, _MINUTE_MS, 2 * _MINUTE_MS, 5 * _MINUTE_MS, 10 * _MINUTE_MS, 30 * _MINUTE_MS,
    _HOUR_MS, 2 * _HOUR_MS, 6 * _HOUR_MS, 12 * _HOUR_MS, _DAY_MS, 2 * _DAY_MS, 7 * _DAY_MS, 30 * _DAY_MS,
    365 * _DAY_MS,
)  # fmt: skip
