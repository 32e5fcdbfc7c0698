"""The running jobs of a replay: since when, what is left of them, and every period in which a job held its
processors.

Pure. A job runs in one leg unless it is preempted: a suspended job resumes where it was, one asked to stop ends at the
end of its grace. A job with extensions makes progress faster while it has some (`pace`). O(log n) per leg and change of
pace.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.events import INF
from hal.core.kernels.structures.layout import MODE_CANCEL, MODE_CHECKPOINT, MODE_REQUEUE, MODE_SUSPEND

IntArray = NDArray[np.int64]

_MILLI: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Periods in which jobs held processors, by job and time; arrays of shape (H,), indexes of jobs and seconds."""

    job: IntArray
    begin_s: IntArray
    end_s: IntArray


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that has ended. requeue: preempted, and its task waits again. cancelled: preempted for good."""

    at: int
    attempt: int
    requeue: bool
    cancelled: bool


class Legs:
    """The running jobs of one replay; jobs are indexes 0..J-1, times milliseconds of one clock."""

    def __init__(self, run_ms: list[int], origin_ms: int, timed: Collection[int] = ()) -> None:
        """Args:
        timed: jobs of which it is kept how long they took (`made_ms`).
        """
        self._run_ms = run_ms
        self._origin_ms = origin_ms
        self._left = list(run_ms)
        self._since = [-1] * len(run_ms)
        """When the current leg began; -1: none is running."""
        self._attempt = [1] * len(run_ms)
        self._paces: dict[int, tuple[int, int, int]] = {}
        """Of running jobs that do not make as much progress as time passes: since when, and how much in how long."""
        self._timed = timed
        self._made: dict[int, int] = {}
        """Of these jobs: how long they ran in earlier legs that were not in vain."""
        self._suspended: set[int] = set()
        self._turn: dict[int, int] = {}
        """For preempted jobs: which of their scheduled ends still counts."""
        self._mode: dict[int, int] = {}
        """For jobs asked to stop: the preemption mode."""
        self._times: list[int] = []
        self._due: dict[int, list[tuple[int, int]]] = {}
        self._spans: list[tuple[int, int, int]] = []
        self.end_ms = [-1] * len(run_ms)
        self.taken = 0
        """How often a running job was preempted."""
        self.lost_ms: dict[int, int] = {}
        """By job: time that it ran in vain."""

    @property
    def next_ms(self) -> int:
        """When the next leg may end; INF if nothing runs."""
        return self._times[0] if self._times else INF

    def begin(self, at: int, now_ms: int) -> None:
        """Start a leg: a job starts, or a suspended job resumes."""
        self._since[at] = now_ms
        self._suspended.discard(at)
        self._end_at(at, now_ms + self._left[at])

    def attempt_waiting(self, at: int) -> int:
        """The number of the attempt that a job waits for; 0: it runs, is suspended, or has ended."""
        holds = self._since[at] >= 0 or self.end_ms[at] >= 0 or at in self._suspended
        return 0 if holds else self._attempt[at]

    def take(self, at: int, mode: int, grace_ms: int, now_ms: int) -> None:
        """Preempt a job: ask it to stop, or suspend it from now on."""
        self.taken += 1
        if mode == MODE_SUSPEND:
            self._turn[at] = self._turn.get(at, 0) + 1
            self._left[at] -= self._progress(at, now_ms)
            self._suspended.add(at)
            self._note_time(at, now_ms)
            self._close(at, now_ms)
            return
        leaves = now_ms + -(-grace_ms // _MILLI) * _MILLI
        if leaves < self._foreseen(at):
            self._turn[at] = self._turn.get(at, 0) + 1
            self._mode[at] = mode
            self._end_at(at, leaves)

    def pace(self, at: int, much: int, of: int, now_ms: int) -> None:
        """From now on a running job makes so much progress in so long, until its leg ends or this is called again."""
        if self._since[at] < 0:
            return
        self._left[at] = max(self._left[at] - self._progress(at, now_ms), 0)
        self._paces[at] = (now_ms, much, of)
        if at not in self._mode:  # otherwise it leaves at a known time
            self._turn[at] = self._turn.get(at, 0) + 1
            self._end_at(at, self._foreseen(at))

    def runs(self, at: int) -> bool:
        """Whether it runs, and has not been asked to stop."""
        return self._since[at] >= 0 and at not in self._mode

    def pop(self, now_ms: int) -> list[Ended]:
        """Return what ends at the instant `next_ms`."""
        heapq.heappop(self._times)
        out: list[Ended] = []
        for at, turn in self._due.pop(now_ms):
            if self._turn.get(at, 0) != turn or self._since[at] < 0:
                continue
            attempt, mode = self._attempt[at], self._mode.pop(at, 0)
            ran = self._progress(at, now_ms)
            self._note_time(at, now_ms)
            self._close(at, now_ms)
            if mode in (MODE_REQUEUE, MODE_CHECKPOINT):
                self._attempt[at] += 1
                if mode == MODE_CHECKPOINT:
                    self._left[at] -= ran
                else:
                    self.lost_ms[at] = self.lost_ms.get(at, 0) + self._run_ms[at] - self._left[at] + ran
                    self._left[at] = self._run_ms[at]
                    self._made.pop(at, None)
            else:
                self.end_ms[at] = now_ms
            out.append(Ended(at, attempt, mode in (MODE_REQUEUE, MODE_CHECKPOINT), mode == MODE_CANCEL))
        return out

    def held(self, until_ms: int) -> Held:
        """Return all periods until then; running jobs have held their processors so far."""
        spans = [*self._spans, *((at, since, until_ms) for at, since in enumerate(self._since) if since >= 0)]
        table = np.array(sorted(spans), np.int64).reshape(-1, 3)
        begin, end = ((table[:, column] - self._origin_ms) // _MILLI for column in (1, 2))
        return Held(table[:, 0], begin, end)

    def foreseen_end_ms(self, at: int) -> int:
        """Return when it ended; for a running job, when it will end unless it is preempted; otherwise -1."""
        if self.end_ms[at] < 0 <= self._since[at]:
            return self._foreseen(at)
        return self.end_ms[at]

    def made_ms(self, at: int) -> int:
        """How long a job that has an end took, or will have taken, without what was in vain; one of `timed`."""
        now = self._foreseen(at) - self._since[at] if self._since[at] >= 0 else 0
        return self._made.get(at, 0) + now

    def _note_time(self, at: int, now_ms: int) -> None:
        if at in self._timed:
            self._made[at] = self._made.get(at, 0) + now_ms - self._since[at]

    def _progress(self, at: int, now_ms: int) -> int:
        """What it has done since its leg began, or its pace last changed."""
        since, much, of = self._paces.get(at, (self._since[at], 1, 1))
        return (now_ms - since) * much // of

    def _foreseen(self, at: int) -> int:
        """When it will have done all, at its pace; in whole seconds where that is not time's own."""
        found = self._paces.get(at)
        if found is None:
            return self._since[at] + self._left[at]
        since, much, of = found
        return since + -(-self._left[at] * of // (much * _MILLI)) * _MILLI

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
        self._paces.pop(at, None)
        self._since[at] = -1
