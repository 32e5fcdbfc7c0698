"""Judges what waiting jobs are promised: that it can be kept on what is known, and that it never moves later by itself.

Plain Python over the judge's own cluster. It reads the engine's reservations and knows nothing of how they were found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hal.core.engine import State
from hal.core.engine.config import Backfill
from hal.core.engine.views import reservations, reserved_rows
from hal.core.kernels.layout import KIND_CLAIM, KIND_PROMISE
from tests.core.engine.model_cluster import INF, Cluster, Task

Name = tuple[int, int]
Rank = tuple[int, ...]


@dataclass
class Promised:
    """A task that waits, and from when on it is promised which nodes."""

    task: Task
    start_ms: int
    nodes: list[str]
    rank: Rank

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
        rows = reserved_rows(state)
        promised: dict[Name, Promised] = {}
        for row in table:
            name = int(row["job"]), int(row["task"])
            assert name in waiting, f"{name} is promised a start and does not wait for one"
            if row["kind"] == KIND_PROMISE:
                first = int(row["row_offset"])
                nodes = [state.row_name(k) for k in rows[first : first + int(row["row_count"])].tolist()]
                promised[name] = Promised(cluster.tasks[name], int(row["start_ms"]), nodes, waiting[name])
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
            if all(other in reserved for other, rank in waiting.items() if rank < one.rank):
                self.kept[name] = one.start_ms, one.rank, one.task.attempt, one.task.planned_ms


def _can_be_kept(cluster: Cluster, promised: list[Promised], now: int, backfill: Backfill) -> None:
    """On the promised nodes there is room at the promised instant; under conservative also for the whole planned time,
    beside everybody else's promises."""
    for one in promised:
        assert one.start_ms > now, f"{one.task.job}.{one.task.task} was promised {one.start_ms}, which is not later"
        assert len(set(one.nodes)) == one.task.gang
        instants = {one.start_ms}
        others: list[Promised] = []
        if backfill is Backfill.CONSERVATIVE:
            others = [other for other in promised if other is not one]
            instants |= {other.start_ms for other in others if one.start_ms < other.start_ms < one.until_ms}
        for name in one.nodes:
            assert cluster.may_host(one.task, name), f"{one.task.job}.{one.task.task} is promised {name}"
            for instant in instants:
                free = dict(cluster.nodes[name].capacity)
                running = [task for task in cluster.running() if name in task.nodes]
                users = [task for task in running if max(task.start_ms + task.planned_ms, now + 1) > instant]
                users += [o.task for o in others if name in o.nodes and o.start_ms <= instant < o.until_ms]
                for task in [*users, one.task]:
                    for resource, amount in task.request.items():
                        free[resource] = free.get(resource, 0) - amount
                lacking = {r: n for r, n in free.items() if n < 0 and one.task.request.get(r)}
                assert not lacking, f"{one.task.job}.{one.task.task} cannot have {name} at {instant}: {lacking}"
