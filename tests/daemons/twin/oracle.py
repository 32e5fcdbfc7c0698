"""An independent simulator of textbook schedulers on a pool of processors: what the engine's replay is judged against.

Deliberately naive and shares no code with HAL: lists of jobs, one processor count, no classes, no windows. Times are
whole seconds. Event order of one instant: ends, then submits in order, then one scheduling pass.

- FCFS: jobs start in submit order; the first that does not fit blocks all behind it.
- EASY (Lifka 1995): the blocked head is promised the earliest instant (shadow) at which enough processors are free by
  the planned ends; a later job may start if it fits now and either ends by the shadow or takes only processors that
  the head will not need (extra, which counts every release up to and including the shadow).
- EASY-SJBF: the same, later jobs considered by planned time, ties by submit order.
- Conservative (Mu'alem and Feitelson 2001): every job is promised the earliest place in the profile when it arrives;
  whenever a job has ended, jobs in submit order move, once each, to the earliest place at or before their promise.
- top-K: the same, but only the first K waiting jobs are promised anything; a job behind them may start if it fits
  beside all promises, from now to its planned end.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence

NEVER = 1 << 60
POLICIES = ("fcfs", "easy", "easy-sjbf", "conservative")


def oracle_starts(
    submit: Sequence[int],
    run: Sequence[int],
    planned: Sequence[int],
    procs: Sequence[int],
    machine: int,
    policy: str,
) -> list[int]:
    """Start second of each job; jobs are given by rising submit time, 0 < run <= planned, procs <= machine."""
    scheduler: _Conservative | _Backfill
    if policy == "conservative":
        scheduler = _Conservative(machine, NEVER)
    elif policy.startswith("top-"):
        scheduler = _Conservative(machine, int(policy.removeprefix("top-")))
    else:
        scheduler = _Backfill(machine, policy)
    starts = [-1] * len(submit)
    ends: list[tuple[int, int]] = []
    arriving = 0
    while arriving < len(submit) or ends:
        now = scheduler.wake_at()
        if arriving < len(submit):
            now = min(now, submit[arriving])
        if ends:
            now = min(now, ends[0][0])
        while ends and ends[0][0] == now:
            job = heapq.heappop(ends)[1]
            scheduler.ended(job, now, starts[job] + planned[job], procs[job])
        while arriving < len(submit) and submit[arriving] == now:
            scheduler.submitted(arriving, now, procs[arriving], planned[arriving])
            arriving += 1
        for job in scheduler.starting(now):
            starts[job] = now
            heapq.heappush(ends, (now + run[job], job))
    return starts


class _Backfill:
    """FCFS, EASY and EASY-SJBF."""

    def __init__(self, machine: int, policy: str) -> None:
        self.free = machine
        self.policy = policy
        self.queue: list[tuple[int, int, int]] = []
        self.releases: list[tuple[int, int, int]] = []

    def submitted(self, job: int, now: int, procs: int, planned: int) -> None:
        self.queue.append((job, procs, planned))

    def wake_at(self) -> int:
        return NEVER

    def ended(self, job: int, now: int, planned_end: int, procs: int) -> None:
        self.free += procs
        del self.releases[bisect.bisect_left(self.releases, (planned_end, job, procs))]

    def starting(self, now: int) -> list[int]:
        started: list[int] = []
        while self.queue and self.queue[0][1] <= self.free:
            started.append(self._start(self.queue.pop(0), now))
        if self.policy == "fcfs" or len(self.queue) < 2 or self.free == 0:
            return started
        shadow, extra = self._shadow(self.queue[0][1])
        candidates = self.queue[1:]
        if self.policy == "easy-sjbf":
            candidates.sort(key=lambda entry: entry[2])
        for entry in candidates:
            _, procs, planned = entry
            if procs > self.free:
                continue
            if now + planned > shadow:
                if procs > extra:
                    continue
                extra -= procs
            self.queue.remove(entry)
            started.append(self._start(entry, now))
        return started

    def _start(self, entry: tuple[int, int, int], now: int) -> int:
        job, procs, planned = entry
        self.free -= procs
        bisect.insort(self.releases, (now + planned, job, procs))
        return job

    def _shadow(self, wanted: int) -> tuple[int, int]:
        free = self.free
        shadow = -1
        for planned_end, _, procs in self.releases:
            if shadow >= 0 and planned_end > shadow:
                break
            free += procs
            if shadow < 0 and free >= wanted:
                shadow = planned_end
        return shadow, free - wanted


class _Conservative:
    """Conservative backfill and top-K on a profile of free processors: `free[i]` from `times[i]` to `times[i + 1]`."""

    def __init__(self, machine: int, promises: int) -> None:
        self.promises = promises
        self.times = [0]
        self.free = [machine]
        self.queue: list[tuple[int, int, int]] = []
        self.promised: dict[int, int] = {}
        self.compress = False

    def submitted(self, job: int, now: int, procs: int, planned: int) -> None:
        self.queue.append((job, procs, planned))

    def wake_at(self) -> int:
        """The next promise. Nothing need end then: what the promise was made to follow may have moved meanwhile."""
        return min(self.promised.values(), default=NEVER)

    def ended(self, job: int, now: int, planned_end: int, procs: int) -> None:
        if planned_end > now:
            self._add(now, planned_end, procs)
        self.compress = True

    def starting(self, now: int) -> list[int]:
        self._forget_before(now)
        started: list[int] = []
        waiting: list[tuple[int, int, int]] = []
        for entry in self.queue:
            job, procs, planned = entry
            at = self.promised.get(job)
            if at is None or self.compress:
                if at is not None:
                    self._add(at, at + planned, procs)
                at = self._earliest(now, procs, planned)
                if at > now and len(waiting) >= self.promises:
                    waiting.append(entry)
                    continue
                self._add(at, at + planned, -procs)
                self.promised[job] = at
            if at == now:
                del self.promised[job]
                started.append(job)
            else:
                waiting.append(entry)
        self.queue = waiting
        self.compress = False
        return started

    def _split(self, at: int) -> int:
        """Index of the breakpoint at that instant, made if it is not there."""
        index = bisect.bisect_left(self.times, at)
        if index == len(self.times) or self.times[index] != at:
            self.times.insert(index, at)
            self.free.insert(index, self.free[index - 1])
        return index

    def _add(self, begin: int, end: int, procs: int) -> None:
        first, last = self._split(begin), self._split(end)
        for index in range(first, last):
            self.free[index] += procs

    def _earliest(self, now: int, procs: int, planned: int) -> int:
        begin = now
        for index, at in enumerate(self.times):
            if at >= begin + planned:
                break
            if self.free[index] < procs:
                begin = self.times[index + 1]
        return begin

    def _forget_before(self, now: int) -> None:
        index = bisect.bisect_right(self.times, now) - 1
        del self.times[:index]
        del self.free[:index]
        self.times[0] = now
