"""What runs in a replay: since when, what is left of it, and every span of time in which a job held its processors.

Pure. A job runs in one leg unless the policy takes it back: suspended it goes on where it was, asked to leave it goes
at the end of its grace. O(log n) a leg.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.events import INF
from hal.core.kernels.layout import MODE_CANCEL, MODE_CHECKPOINT, MODE_REQUEUE, MODE_SUSPEND

IntArray = NDArray[np.int64]

_MILLI: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Spans in which jobs held processors, by job and time; arrays of shape (H,), places of jobs and seconds."""

    job: IntArray
    begin_s: IntArray
    end_s: IntArray


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that has ended. requeue: taken back, and its task waits again. cancelled: taken back for good."""

    at: int
    attempt: int
    requeue: bool
    cancelled: bool


class Legs:
    """The running jobs of one replay; jobs are places 0..J-1, times milliseconds of one clock."""

    def __init__(self, run_ms: list[int], origin_ms: int) -> None:
        self._run_ms = run_ms
        self._origin_ms = origin_ms
        self._left = list(run_ms)
        self._since = [-1] * len(run_ms)
        """When the leg that goes on began; -1: none does."""
        self._attempt = [1] * len(run_ms)
        self._turn: dict[int, int] = {}
        """Of jobs that were taken back: which of their ends still counts."""
        self._mode: dict[int, int] = {}
        """Of jobs that are asked to leave: how."""
        self._times: list[int] = []
        self._due: dict[int, list[tuple[int, int]]] = {}
        self._spans: list[tuple[int, int, int]] = []
        self.end_ms = [-1] * len(run_ms)
        self.taken = 0
        """How often a running job was taken back."""
        self.lost_ms: dict[int, int] = {}
        """By job: time that it ran for nothing."""

    @property
    def next_ms(self) -> int:
        """When the next leg may end; INF when nothing runs."""
        return self._times[0] if self._times else INF

    def begin(self, at: int, now_ms: int) -> None:
        """A start, or a suspended job goes on."""
        self._since[at] = now_ms
        self._end_at(at, now_ms + self._left[at])

    def take(self, at: int, mode: int, grace_ms: int, now_ms: int) -> None:
        """The job is told to leave, or stands still from now on."""
        self.taken += 1
        if mode == MODE_SUSPEND:
            self._turn[at] = self._turn.get(at, 0) + 1
            self._left[at] -= now_ms - self._since[at]
            self._close(at, now_ms)
            return
        leaves = now_ms + -(-grace_ms // _MILLI) * _MILLI
        if leaves < self._since[at] + self._left[at]:
            self._turn[at] = self._turn.get(at, 0) + 1
            self._mode[at] = mode
            self._end_at(at, leaves)

    def pop(self, now_ms: int) -> list[Ended]:
        """What ends at the instant `next_ms`."""
        heapq.heappop(self._times)
        out: list[Ended] = []
        for at, turn in self._due.pop(now_ms):
            if self._turn.get(at, 0) != turn or self._since[at] < 0:
                continue
            attempt, mode = self._attempt[at], self._mode.pop(at, 0)
            ran = now_ms - self._since[at]
            self._close(at, now_ms)
            if mode in (MODE_REQUEUE, MODE_CHECKPOINT):
                self._attempt[at] += 1
                if mode == MODE_CHECKPOINT:
                    self._left[at] -= ran
                else:
                    self.lost_ms[at] = self.lost_ms.get(at, 0) + self._run_ms[at] - self._left[at] + ran
                    self._left[at] = self._run_ms[at]
            else:
                self.end_ms[at] = now_ms
            out.append(Ended(at, attempt, mode in (MODE_REQUEUE, MODE_CHECKPOINT), mode == MODE_CANCEL))
        return out

    def held(self, until_ms: int) -> Held:
        """All spans until then; what still runs has held its processors so far."""
        spans = [*self._spans, *((at, since, until_ms) for at, since in enumerate(self._since) if since >= 0)]
        table = np.array(sorted(spans), np.int64).reshape(-1, 3)
        begin, end = ((table[:, column] - self._origin_ms) // _MILLI for column in (1, 2))
        return Held(table[:, 0], begin, end)

    def foreseen_end_ms(self, at: int) -> int:
        """When it ended; of a job that still runs, when it will unless it is taken back; -1 of another."""
        if self.end_ms[at] < 0 <= self._since[at]:
            return self._since[at] + self._left[at]
        return self.end_ms[at]

    def _end_at(self, at: int, when_ms: int) -> None:
        turn = self._turn.get(at, 0) if self._turn else 0
        there = self._due.get(when_ms)
        if there is None:
            self._due[when_ms] = [(at, turn)]
            heapq.heappush(self._times, when_ms)
        else:
            there.append((at, turn))

    def _close(self, at: int, now_ms: int) -> None:
        self._spans.append((at, self._since[at], now_ms))
        self._since[at] = -1
