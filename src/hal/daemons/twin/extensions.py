"""The extensions of the jobs of a replay: which wait, run and leave, and when they held their processors.

Pure; it decides nothing: what starts and leaves is the engine's decision, as it is for jobs. Extensions wait while
their base runs, and end when it ends, leaves or is suspended. O(log n) for each that is asked to leave, O(extensions
of the job) when its base starts or ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.events import END, INF, AttemptsEnded, Event, JobsCancelled, JobsSubmitted
from hal.daemons.twin.legs import Held

IntArray = NDArray[np.int64]

_MILLI: Final = 1000


class Extended(NamedTuple):
    """A job that may have extensions."""

    most: int
    class_index: int
    owner_index: int
    nodes: int
    """Of its base."""


class Gone(NamedTuple):
    """An extension that has ended."""

    at: int
    task: int
    attempt: int


class Grown(NamedTuple):
    """When extensions held processors, and how many: arrays of the same length."""

    held: Held
    procs: IntArray
    nodes: tuple[str, ...] = ()


NOT_GROWN: Final = Grown(Held(*(np.zeros(0, np.int64) for _ in range(3))), np.zeros(0, np.int64))


class ExtensionFigures(NamedTuple):
    """What came of extensions."""

    jobs: int
    """Jobs that had any."""
    starts: int
    left: int
    """How often one left for other work."""
    core_hours: float
    """Held by extensions."""

    def as_dict(self) -> dict[str, object]:
        """Ready for JSON."""
        return self._asdict()


class _Leg(NamedTuple):
    since_ms: int
    node: str


class Extensions:
    """Of one replay; jobs are indexes, times milliseconds of one clock."""

    def __init__(self, extended: Mapping[int, Extended]) -> None:
        """Args:
        extended: by job, of those that may have some.
        """
        self._extended = extended
        self._running: dict[int, dict[int, _Leg]] = {}
        """By job and task."""
        self._leaving: dict[int, dict[int, int]] = {}
        """Of those the ones that were asked to leave, and when they will have left."""
        self._attempt: dict[tuple[int, int], int] = {}
        """Which attempt at it is the next, or runs; 1 unless it is here."""
        self._due: list[tuple[int, int, int]] = []
        """When something has left, the job and the task: a heap; of those that ended before, nothing is left."""
        self._to_wait: list[int] = []
        self._to_end: list[Gone] = []
        self._to_cancel: list[int] = []
        self._legs: list[tuple[int, int, int, str]] = []
        self._starts = self._left = 0

    @property
    def jobs(self) -> Collection[int]:
        """The jobs that may have extensions."""
        return self._extended.keys()

    @property
    def next_ms(self) -> int:
        """When the next one has left for other work; INF: none is leaving."""
        while self._due and self._leaving.get(self._due[0][1], {}).get(self._due[0][2]) != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else INF

    def let_wait(self, at: int) -> None:
        """The base of this job runs now."""
        if at in self._extended:
            self._to_wait.append(at)
            self._running[at] = {}
            self._leaving[at] = {}

    def begin(self, at: int, task: int, node: str, now_ms: int) -> None:
        """An extension starts."""
        self._starts += 1
        self._running[at][task] = _Leg(now_ms, node)

    def ask(self, at: int, task: int, grace_ms: int, now_ms: int) -> None:
        """Others need its node: it leaves at the end of its grace, and does nothing for its job until then."""
        if task not in self._running.get(at, ()):
            return  # its base was preempted by the same plan
        self._left += 1
        leaves_ms = now_ms + -(-grace_ms // _MILLI) * _MILLI
        self._leaving[at][task] = leaves_ms
        heapq.heappush(self._due, (leaves_ms, at, task))

    def leave(self, now_ms: int) -> list[Gone]:
        """Those that have left for others by now; they wait again."""
        left = []
        while self.next_ms <= now_ms:
            _, at, task = heapq.heappop(self._due)
            left.append(self._end(at, task, now_ms))
        return left

    def send_away(self, at: int, now_ms: int) -> list[Gone]:
        """The base does not run any more: nor do these, and none waits."""
        if at not in self._running:
            return []
        gone = [self._end(at, task, now_ms) for task in list(self._running[at])]
        del self._running[at], self._leaving[at]
        self._to_end += gone
        if at in self._to_wait:  # the engine has not heard of them
            self._to_wait.remove(at)
        else:
            self._to_cancel.append(at)
        return gone

    def width(self, at: int) -> tuple[int, int]:
        """The nodes of its base, and those of extensions that work for it."""
        return self._extended[at].nodes, len(self._running.get(at, ())) - len(self._leaving.get(at, ()))

    def events(
        self, submits: NDArray[np.void], now_ms: int, classes: tuple[ClassSpec, ...], owners: tuple[OwnerSpec, ...]
    ) -> list[Event]:
        """What the engine is to be told of since this was called last.

        Args:
            submits: by job the row with which its base was submitted.
        """
        if not (self._to_wait or self._to_end or self._to_cancel):
            return []
        found: list[Event] = []
        if self._to_end:
            rows = np.zeros(len(self._to_end), END)
            rows["job"] = [one.at + 1 for one in self._to_end]
            rows["task"] = [one.task for one in self._to_end]
            rows["attempt"] = [one.attempt for one in self._to_end]
            rows["ended_ms"] = now_ms
            found.append(AttemptsEnded(rows))
        if self._to_cancel:
            jobs = np.array(self._to_cancel, np.int64)
            counts = np.array([self._extended[at].most for at in self._to_cancel], np.int64)
            found.append(JobsCancelled(jobs + 1, np.ones(jobs.size, np.int64), counts))
        waiting = [row for at in sorted(self._to_wait) for row in self._waiting(at, submits)]
        if waiting:
            found.append(JobsSubmitted(np.array(waiting, submits.dtype), classes, owners))
        self._to_wait, self._to_end, self._to_cancel = [], [], []
        return found

    def grown(self, origin_ms: int, until_ms: int, procs: Mapping[int, int]) -> Grown:
        """When extensions held processors until then, by begin.

        Args:
            procs: by job, of one extension.
        """
        legs = self._legs + [
            (leg.since_ms, until_ms, at, leg.node) for at, some in self._running.items() for leg in some.values()
        ]
        legs = sorted(leg for leg in legs if leg[0] < until_ms)
        if not legs:
            return NOT_GROWN
        begin, end, job = (np.array([leg[column] for leg in legs], np.int64) for column in range(3))
        held = Held(job, (begin - origin_ms) // _MILLI, (np.minimum(end, until_ms) - origin_ms) // _MILLI)
        return Grown(held, np.array([procs[at] for at in job.tolist()], np.int64), tuple(leg[3] for leg in legs))

    def figures(self, grown: Grown) -> ExtensionFigures | None:
        """What came of them; None where no job may have any."""
        if not self._extended:
            return None
        used_s = int(((grown.held.end_s - grown.held.begin_s) * grown.procs).sum())
        return ExtensionFigures(int(np.unique(grown.held.job).size), self._starts, self._left, used_s / 3_600)

    def _end(self, at: int, task: int, now_ms: int) -> Gone:
        leg = self._running[at].pop(task)
        self._leaving[at].pop(task, None)
        attempt = self._attempt.get((at, task), 1)
        self._attempt[at, task] = attempt + 1
        self._legs.append((leg.since_ms, now_ms, at, leg.node))
        return Gone(at, task, attempt)

    def _waiting(self, at: int, submits: NDArray[np.void]) -> list[np.void]:
        """Rows for all of its extensions; those whose next attempt has the same number together."""
        what = self._extended[at]
        rows: list[np.void] = []
        for task in range(1, what.most + 1):
            attempt = self._attempt.get((at, task), 1)
            if rows and rows[-1]["attempt"] == attempt:
                rows[-1]["tasks"] += 1
                continue
            row = submits[at].copy()
            row["class_index"], row["owner_index"] = what.class_index, what.owner_index
            row["first_task"], row["tasks"], row["attempt"] = task, 1, attempt
            rows.append(row)
        return rows
