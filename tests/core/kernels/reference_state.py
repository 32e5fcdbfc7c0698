"""The engine's state in plain Python: one object for each task and each node, one obvious loop for each event.

It knows nothing of entries, treaps, counts kept per change or slots that are used again. What a cycle decides it takes
as given (`reference_pass` is the reference of that); what becomes of it, and of every other event, it works out anew.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    INF,
    KEEP,
    AllocationsAdopted,
    AttemptsEnded,
    BookingsChanged,
    ClockAdvanced,
    ConfigChanged,
    Health,
    JobsCancelled,
    JobsEligible,
    JobsHeld,
    JobsReleased,
    JobsSubmitted,
    JobsUpdated,
    NodesChanged,
    PlanAssumed,
    StartsRefused,
)
from hal.core.engine.tables.bookings import BookingSpec
from tests.core.kernels.reference_topology import Choice, domain

LONGEST_IN_KEY: Final = (1 << 43) - 1
"""Longer planned times are alike to the order `sjf`."""
IN_LINE, ON_TIMER, ASIDE = "in line", "on timer", "aside"

Amounts = dict[str, int]
Task = tuple[int, int]
Line = tuple[Any, int, OwnerSpec]
"""A bucket by value: shape, gang size, owner."""


@dataclass
class Node:
    """One node from its joining to the end of the last attempt that it had when it left."""

    name: str
    row: int
    capacity: Amounts = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    domains: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    up: bool = True
    here: bool = True

    def admits(self, kind: ClassSpec) -> bool:
        """Whether work of this kind may start here, whatever is free."""
        return self.up and self.here and self.is_within(kind) and all(p.holds(self.labels) for p in kind.constraints)

    def is_within(self, kind: ClassSpec) -> bool:
        """Whether it is in a domain of the level that the work names."""
        if not kind.within:
            return True
        return kind.within in self.levels and domain(self.domains, self.levels.index(kind.within)) is not None


@dataclass
class Work:
    """One task that waits or runs; `nodes` in rank order when it runs."""

    job: int
    task: int
    attempt: int
    kind: ClassSpec
    owner: OwnerSpec
    priority: int
    submit_ms: int
    eligible_ms: int
    held: bool
    walltime_ms: int
    planned_ms: int
    where: str = ASIDE
    nodes: list[Node] = field(default_factory=list)
    start_ms: int = -1

    @property
    def name(self) -> Task:
        return self.job, self.task

    @property
    def line(self) -> Line:
        return self.kind.shape_key(), self.kind.nodes, self.owner

    @property
    def end_ms(self) -> int:
        """When its rows are planned to come free."""
        return min(self.start_ms + self.planned_ms, INF)


@dataclass
class Promise:
    """What a waiting task was promised by the last plan that promised anew."""

    start_ms: int
    kind: int
    rows: list[int]


def holds(amounts: Amounts, request: Amounts) -> bool:
    """Whether there is enough of everything; a node that is short of anything takes nothing."""
    return all(amounts.get(name, 0) >= request.get(name, 0) for name in {*amounts, *request})


def less(amounts: Amounts, request: Amounts) -> Amounts:
    """What is left of the amounts."""
    return {name: amounts.get(name, 0) - request.get(name, 0) for name in {*amounts, *request}}


def _alike(one: Work, other: Work) -> bool:
    names = ("attempt", "line", "priority", "walltime_ms", "planned_ms")
    return all(getattr(one, name) == getattr(other, name) for name in names)


class ReferenceState:
    """The same events, the same meaning."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.clock = 0
        self.nodes: list[Node] = []
        self.waiting: dict[Task, Work] = {}
        self.running: dict[Task, Work] = {}
        self.promises: dict[Task, Promise] = {}
        self.bookings: tuple[BookingSpec, ...] = ()
        """All that have not ended, each of named nodes."""
        self.doubtful: set[int] = set()
        """Jobs whose promise the last event may have taken: it touched some tasks of theirs."""

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def node(self, name: str) -> Node:
        """The node that is here under this name."""
        (found,) = [node for node in self.nodes if node.here and node.name == name]
        return found

    def free(self, node: Node) -> Amounts:
        """What is not held by attempts; below zero where there are more of them than it has room for."""
        left = dict(node.capacity)
        for work in self.running.values():
            if node in work.nodes:
                left = less(left, work.kind.request)
        return left

    def fits(self, kind: ClassSpec) -> tuple[int, int]:
        """On how many nodes such work fits now, and on how many it would if they were empty."""
        admitting = [node for node in self.nodes if node.admits(kind)]
        now = [node.row for node in admitting if holds(self.free(node), kind.request)]
        ever = [node.row for node in admitting if holds(node.capacity, kind.request)]
        choice = Choice(self.config.levels, self.nodes)
        return choice.most(kind, now), choice.most(kind, ever)

    def rank(self, work: Work) -> tuple[int, ...]:
        """Who is first: priority, then planned time where the order asks, then the job's number."""
        planned = min(work.planned_ms, LONGEST_IN_KEY)
        key = {"fcfs": (-work.priority,), "sjf": (-work.priority, planned), "test-longest-first": (-planned,)}
        return *key[self.config.order], work.job, work.task

    def lines(self) -> dict[Line, list[Task]]:
        """Each bucket's tasks in order."""
        found: dict[Line, list[Task]] = defaultdict(list)
        for work in sorted(self.waiting.values(), key=self.rank):
            if work.where is IN_LINE:
                found[work.line].append(work.name)
        return dict(found)

    def shortest_first(self) -> dict[Line, list[Task]]:
        """Each bucket's tasks by planned time, where the policy asks for them so."""
        found: dict[Line, list[Task]] = defaultdict(list)
        if self.config.backfill is Backfill.EASY_SJBF:
            for work in sorted(self.waiting.values(), key=lambda work: (work.planned_ms, *work.name)):
                if work.where is IN_LINE:
                    found[work.line].append(work.name)
        return dict(found)

    def timers(self) -> list[tuple[int, int, int]]:
        """What enters its bucket by itself: instant, job, task."""
        return sorted((work.eligible_ms, *work.name) for work in self.waiting.values() if work.where is ON_TIMER)

    def releases(self) -> list[tuple[int, int, int]]:
        """Planned ends in order: instant, job, task."""
        return sorted((work.end_ms, *work.name) for work in self.running.values() if work.end_ms < INF)

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, event: Any) -> None:
        """What the event means. New nodes have no row until the caller says which one they were given."""
        self.doubtful = set()
        match event:
            case NodesChanged():
                self._nodes_changed(event)
            case JobsSubmitted():
                self._submitted(event)
            case JobsEligible():
                for job, when in zip(event.jobs.tolist(), event.eligible_ms.tolist(), strict=True):
                    self._each_waiting(job, eligible_ms=min(when, INF))
            case JobsHeld():
                for job in event.jobs.tolist():
                    self._each_waiting(job, held=True)
            case JobsReleased():
                for job in event.jobs.tolist():
                    self._each_waiting(job, held=False)
            case JobsCancelled():
                self._cancelled(event)
            case JobsUpdated():
                self._updated(event)
            case PlanAssumed():
                self._assumed(event)
            case StartsRefused():
                self._refused(event)
            case AttemptsEnded():
                self._ended(event)
            case AllocationsAdopted():
                self._adopted(event)
            case ClockAdvanced():
                self.clock = max(self.clock, event.now_ms)
                for work in self.waiting.values():
                    if work.where is ON_TIMER and work.eligible_ms <= self.clock:
                        work.where = IN_LINE
            case ConfigChanged():
                self.config = event.config
                self.promises = {}
            case BookingsChanged():
                self.bookings = event.bookings
                self.promises = {}
            case _:
                raise AssertionError(f"no reference for {type(event).__name__}")
        # A node that left is forgotten with its last attempt.
        used = [node for work in self.running.values() for node in work.nodes]
        self.nodes = [node for node in self.nodes if node.here or node in used]

    def _settle(self, work: Work) -> None:
        """Where a waiting task belongs."""
        if work.held or work.eligible_ms >= INF:
            work.where = ASIDE
        elif work.eligible_ms > self.clock and work.eligible_ms > work.submit_ms:
            work.where = ON_TIMER
        else:
            work.where = IN_LINE

    def _wait(self, work: Work) -> None:
        work.nodes, work.start_ms = [], -1
        self.waiting[work.name] = work
        self._settle(work)

    def _of(self, job: int) -> list[Work]:
        return [work for work in self.waiting.values() if work.job == job]

    def _touched(self, work: Work) -> None:
        self.doubtful.add(work.job)
        self.promises.pop(work.name, None)

    def _each_waiting(self, job: int, **changes: Any) -> None:
        for work in self._of(job):
            for name, value in changes.items():
                setattr(work, name, value)
            self._touched(work)
            self._settle(work)

    def _nodes_changed(self, event: NodesChanged) -> None:
        for name in event.removed:
            node = self.node(name)
            node.here, node.capacity, node.labels, node.domains = False, {}, {}, ()
        for spec in event.nodes:
            there = [node for node in self.nodes if node.here and node.name == spec.name]
            node = there[0] if there else Node(spec.name, -1)
            node.capacity, node.labels = dict(spec.capacity), dict(spec.labels)
            node.domains, node.levels = spec.domains, self.config.levels
            node.up = spec.health is Health.UP
            if not there:
                self.nodes.append(node)

    def _submitted(self, event: JobsSubmitted) -> None:
        for row in event.rows:
            wall = min(int(row["walltime_ms"]), INF)
            planned = min(int(row["planned_ms"]), INF)
            for task in range(int(row["first_task"]), int(row["first_task"] + row["tasks"])):
                self._wait(
                    Work(
                        job=int(row["job"]),
                        task=task,
                        attempt=int(row["attempt"]),
                        kind=event.classes[row["class_index"]],
                        owner=event.owners[row["owner_index"]],
                        priority=int(row["priority"]),
                        submit_ms=int(row["submit_ms"]),
                        eligible_ms=min(int(row["eligible_ms"]), INF),
                        held=bool(row["held"]),
                        walltime_ms=wall,
                        planned_ms=wall if planned < 0 else planned,
                    )
                )

    def _cancelled(self, event: JobsCancelled) -> None:
        for place, job in enumerate(event.jobs.tolist()):
            for work in self._of(job):
                if event.first_task is not None and event.tasks is not None:
                    first, count = int(event.first_task[place]), int(event.tasks[place])
                    if not first <= work.task < first + count:
                        continue
                self._touched(work)
                del self.waiting[work.name]

    def _updated(self, event: JobsUpdated) -> None:
        for row in event.rows:
            job, priority = int(row["job"]), int(row["priority"])
            wall, planned = int(row["walltime_ms"]), int(row["planned_ms"])
            for work in [*self._of(job), *(work for work in self.running.values() if work.job == job)]:
                if priority != KEEP:
                    work.priority = priority
                if wall != KEEP:
                    if work.planned_ms == work.walltime_ms:
                        work.planned_ms = min(wall, INF)
                    work.walltime_ms = min(wall, INF)
                if planned != KEEP:
                    work.planned_ms = work.walltime_ms if planned < 0 else min(planned, INF)
            self._each_waiting(job)

    def _assumed(self, event: PlanAssumed) -> None:
        plan = event.plan
        self.clock = max(self.clock, plan.now_ms)
        by_row = {node.row: node for node in self.nodes}
        for start in plan.starts:
            work = self.waiting.pop((int(start["job"]), int(start["task"])))
            assert work.where is IN_LINE, f"{work.name} was started from {work.where}"
            assert work.attempt == start["attempt"]
            first = int(start["row_offset"])
            work.nodes = [by_row[row] for row in plan.rows[first : first + int(start["row_count"])].tolist()]
            work.start_ms, work.where = plan.now_ms, "running"
            self.running[work.name] = work
        if plan.replans:
            self.promises = {}
            for promise in plan.reservations:
                first = int(promise["row_offset"])
                rows = plan.reservation_rows[first : first + int(promise["row_count"])].tolist()
                self.promises[int(promise["job"]), int(promise["task"])] = Promise(
                    int(promise["start_ms"]), int(promise["kind"]), rows
                )

    def _refused(self, event: StartsRefused) -> None:
        for start in reversed(event.starts):
            work = self.running.pop((int(start["job"]), int(start["task"])))
            work.attempt += int(event.new_attempt)
            # What a person asked of the job meanwhile holds for this task, too.
            work.held = any(other.held for other in self._of(work.job))
            after = self.waiting.get((work.job, work.task + 1))
            if after is not None and after.where is IN_LINE and _alike(work, after):
                work.eligible_ms = after.eligible_ms  # one run of tasks again
            self._wait(work)

    def _ended(self, event: AttemptsEnded) -> None:
        for row in event.rows:
            work = self.running.pop((int(row["job"]), int(row["task"])))
            if row["requeue"]:
                work.attempt += 1
                work.eligible_ms = max(min(int(row["eligible_ms"]), INF), work.submit_ms)
                work.held = bool(row["held"])
                self._wait(work)

    def _adopted(self, event: AllocationsAdopted) -> None:
        for row in event.rows:
            wall, planned = min(int(row["walltime_ms"]), INF), min(int(row["planned_ms"]), INF)
            first, count = int(row["row_offset"]), int(row["row_count"])
            work = Work(
                job=int(row["job"]),
                task=int(row["task"]),
                attempt=int(row["attempt"]),
                kind=event.classes[row["class_index"]],
                owner=event.owners[row["owner_index"]],
                priority=int(row["priority"]),
                submit_ms=int(row["submit_ms"]),
                eligible_ms=int(row["submit_ms"]),
                held=False,
                walltime_ms=wall,
                planned_ms=wall if planned < 0 else planned,
                where="running",
                nodes=[self.node(event.nodes[k]) for k in event.node_index[first : first + count].tolist()],
                start_ms=int(row["start_ms"]),
            )
            self.running[work.name] = work
