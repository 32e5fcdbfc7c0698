"""When waiting jobs will start if walltimes are true and nobody submits anything: the engine played forward.

Works on a copy of a state, which it uses up. Bounded: MOST_INSTANTS instants, and fewer where many buckets wait, so
that an answer takes milliseconds; what does not start by then starts at the last instant played, or later.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from hal.core.engine.events import END, INF, AttemptsEnded, Event
from hal.core.engine.plan import Plan
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.state import State
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Records

MOST_INSTANTS: Final = 200
"""Instants at which something ends, opens or becomes eligible."""
FEWEST_INSTANTS: Final = 4
"""Where fewer than these could be played, none is."""
BUCKET_VISITS: Final = 60_000
"""Waiting buckets times instants: what a pass at each of them may cost in all."""
MAX_SLICES: Final = 64
"""Slices of scheduling at one instant."""

Attempt = tuple[int, int, int, int]
"""End, job, task, attempt number."""


class Played:
    """A copy that goes on by itself: what runs ends when it is planned to, what can start does."""

    def __init__(self, shadow: State, jobs: Iterable[int], events: Sequence[Event] = ()) -> None:
        """Args:
        shadow: a copy of the state.
        jobs: those that are to start.
        events: what happens to the copy first.
        """
        self._state = shadow
        self._waited = set(jobs)
        self._now_ms = 0
        self.starts: dict[int, int] = {}
        """When each of the jobs has started, as far as it has."""
        self.is_over = False
        """Whether nothing is left that would end, open or become eligible."""
        self._instants = _instants(shadow)
        self._scheduler = Scheduler(shadow, self, learns=False)
        for event in events:
            self._scheduler.feed(event)

    def until_start(self, now_ms: int) -> tuple[int, bool]:
        """The instant at which the last of the jobs starts, and True; or the last instant played, and False."""
        self._now_ms = now_ms
        wake = self._scheduler.run(now_ms, MAX_SLICES).wake_ms
        ends = _ends(self._state, self._instants)
        heapq.heapify(ends)
        for _ in range(self._instants):
            if not self._waited:
                break
            due = max(min(ends[0][0] if ends else INF, wake), now_ms + 1)
            if due >= INF:
                self.is_over = True
                break
            self._now_ms = now_ms = due
            ended = []
            while ends and ends[0][0] <= due:
                ended.append(heapq.heappop(ends))
            if ended:
                self._scheduler.feed(AttemptsEnded(_end_rows(ended)))
            wake = self._scheduler.run(due, MAX_SLICES).wake_ms
            for begun in _ends(self._state, self._instants, since=due):
                heapq.heappush(ends, begun)
        return now_ms, not self._waited

    def accept(self, plan: Plan) -> None:
        """See `hal.core.engine.scheduler.Sink`."""
        begun = self._waited.intersection(plan.starts["job"].tolist()) if self._waited else ()
        self.starts.update(dict.fromkeys(begun, self._now_ms))
        self._waited.difference_update(begun)


def can_play(state: State) -> bool:
    """Whether few enough buckets wait that playing tells something in time."""
    return _instants(state) >= FEWEST_INSTANTS


def _instants(state: State) -> int:
    return min(MOST_INSTANTS, BUCKET_VISITS // max(int(state.meta[L.M_ACTIVE]), 1))


def _ends(state: State, instants: int, *, since: int = -1) -> list[Attempt]:
    """What has started at `since` (all that runs), as far as it ends by the first so many of its ends."""
    table = state.work.runs[: int(state.meta[L.M_RUN_TOP])]
    live = (table[:, L.R_NODES] > 0) & (table[:, L.R_END] < L.INF) & (table[:, L.R_STATE] != L.RUN_CLAIM)
    rows = table[live if since < 0 else live & (table[:, L.R_START] == since)]
    times = np.unique(rows[:, L.R_END])
    if times.size > instants:
        rows = rows[rows[:, L.R_END] <= times[instants]]
    columns = (rows[:, L.R_END], rows[:, L.R_JOB], rows[:, L.R_TASK], rows[:, L.R_ATTEMPT])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _end_rows(ended: list[Attempt]) -> Records:
    rows = np.zeros(len(ended), END)
    rows["ended_ms"], rows["job"], rows["task"], rows["attempt"] = np.array(ended, np.int64).T
    return rows
