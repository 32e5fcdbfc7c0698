"""Judges what waiting jobs are promised: that it can be kept on what is known, and that it never moves later by itself.

Plain Python over the judge's own cluster. It reads the engine's reservations and knows nothing of how they were found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hal.core.engine import State
from hal.core.engine.config import Backfill
from hal.core.engine.views import reservations, reserved_rows
from hal.core.kernels.structures.layout import KIND_CLAIM, KIND_RESERVED
from tests.core.engine.model_cluster import INF, Cluster, Task

Name = tuple[int, int]
Rank = tuple[int, ...]


@dataclass
class Promised:
    """A task that waits, and from when on it is promised which nodes."""

    task: Task
    start_ms: int
    nodes: list[str]

    @property
    def until_ms(self) -> int:
        return min(self.start_ms + self.task.planned_ms, INF)


@dataclass
class PromiseJudge:
    """Remembers, from one pass of one engine to the next, the promises that nothing may move but what is named here.

    They hold as long as nodes stay as they are, attempts do not outlive their plans, passes come when they were asked
    for, and no work arrives ahead. `forget` is for whatever else changes the world.
    """

    kept: dict[Name, tuple[int, Rank, int, int]] = field(default_factory=dict)
    """Instant, rank, attempt and planned time."""
    known: set[tuple[int, int, int]] = field(default_factory=set)
    """Job, task, attempt of all that waited then."""

    def forget(self) -> None:
        self.kept = {}

    def after_pass(
        self, state: State, cluster: Cluster, before: dict[Name, Rank], now: int, backfill: Backfill
    ) -> None:
        """`before`: the rank of each task that could have started in this pass if there were room."""
        waiting = {name: rank for name, rank in before.items() if cluster.tasks[name].state == "pending"}
        table = [row for row in reservations(state) if row["entry"] >= 0]
        for row in table:
            name = int(row["job"]), int(row["task"])
            assert name in waiting, f"{name} is promised a start and does not wait for one"
        promised = {(one.task.job, one.task.task): one for one in promised_now(state, cluster)}
        _can_be_kept(cluster, list(promised.values()), now, backfill)
        late = any(task.start_ms + task.planned_ms <= now for task in cluster.running())
        if late or any(start_ms < now for start_ms, *_ in self.kept.values()):
            self.forget()
        for name, (start_ms, rank, attempt, planned_ms) in self.kept.items():
            task = cluster.tasks[name]
            if task.state != "pending" or task.held or (attempt, planned_ms) != (task.attempt, task.planned_ms):
                continue
            ahead = [other for other, other_rank in before.items() if other_rank < rank]
            if rank == waiting.get(name) and all((*o, cluster.tasks[o].attempt) in self.known for o in ahead):
                assert name in promised, f"{name} was promised {start_ms} and is promised nothing any more"
                moved_ms = promised[name].start_ms
                assert moved_ms <= start_ms, f"{name} was promised {start_ms} and now {moved_ms}"
        self.known = {(*name, cluster.tasks[name].attempt) for name in waiting}
        self.kept = {}
        reserved = {(int(row["job"]), int(row["task"])) for row in table}
        if late or any(row["kind"] == KIND_CLAIM for row in table):
            return
        for name, one in promised.items():
            # Who has no promise of his own (the later tasks of an array) may take what is promised behind him.
            if all(other in reserved for other, rank in waiting.items() if rank < waiting[name]):
                self.kept[name] = one.start_ms, waiting[name], one.task.attempt, one.task.planned_ms


def promised_now(state: State, cluster: Cluster) -> list[Promised]:
    """What an engine promises: tasks with an instant and nodes."""
    rows = reserved_rows(state)
    promised = []
    for row in reservations(state):
        if row["entry"] >= 0 and row["kind"] == KIND_RESERVED:
            first = int(row["row_offset"])
            nodes = [state.node_name(k) for k in rows[first : first + int(row["row_count"])].tolist()]
            task = cluster.tasks[int(row["job"]), int(row["task"])]
            promised.append(Promised(task, int(row["start_ms"]), nodes))
    return promised


def could_start_beside(cluster: Cluster, task: Task, promised: list[Promised], now: int) -> bool:
    """Enough nodes have room for all of a task's planned time, from now on, beside all that runs and is promised."""
    until = min(now + task.planned_ms, INF)
    instants = {now} | {one.start_ms for one in promised if now < one.start_ms < until}
    fits = []
    for name in cluster.nodes:
        if cluster.may_host(task, name):
            lacking = any(_lacking(cluster, task, name, promised, instant, now) for instant in instants)
            fits += [] if lacking else [name]
    return cluster.together(task, fits) >= task.gang


def _lacking(
    cluster: Cluster, task: Task, name: str, promised: list[Promised], instant: int, now: int
) -> dict[str, int]:
    """What a node is short of at an instant for a task beside what runs there and is promised there."""
    free = dict(cluster.nodes[name].capacity)
    running = [other for other in cluster.running() if name in other.nodes]
    users = [other for other in running if max(other.start_ms + other.planned_ms, now + 1) > instant]
    users += [o.task for o in promised if name in o.nodes and o.start_ms <= instant < o.until_ms]
    for user in [*users, task]:
        for resource, amount in user.request.items():
            free[resource] = free.get(resource, 0) - amount
    return {r: n for r, n in free.items() if n < 0 and task.request.get(r)}


def _can_be_kept(cluster: Cluster, promised: list[Promised], now: int, backfill: Backfill) -> None:
    """On the promised nodes there is room at the promised instant; under conservative and top-K also for the whole
    planned time, beside everybody else's promises."""
    for one in promised:
        assert one.start_ms > now, f"{one.task.job}.{one.task.task} was promised {one.start_ms}, which is not later"
        assert len(set(one.nodes)) == one.task.gang
        assert cluster.together(one.task, one.nodes) == one.task.gang, f"{one.task.job} is promised {one.nodes}"
        instants = {one.start_ms}
        others: list[Promised] = []
        if backfill in (Backfill.CONSERVATIVE, Backfill.TOP_K):
            others = [other for other in promised if other is not one]
            instants |= {other.start_ms for other in others if one.start_ms < other.start_ms < one.until_ms}
        for name in one.nodes:
            assert cluster.may_host(one.task, name), f"{one.task.job}.{one.task.task} is promised {name}"
            for instant in instants:
                lacking = _lacking(cluster, one.task, name, others, instant, now)
                assert not lacking, f"{one.task.job}.{one.task.task} cannot have {name} at {instant}: {lacking}"
