"""A plain model of the engine for tests of the task plane: one entry for each task, every event checked strictly."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from hal.core.engine.classes import ClassSpec, Elsewhere
from hal.core.engine.events import (
    INF,
    AllocationsAdopted,
    AttemptsEnded,
    ConfigChanged,
    Event,
    JobsCancelled,
    JobsSubmitted,
    JobsUpdated,
    NodesChanged,
    NodesOffered,
)
from hal.core.engine.plan import START, Rows, StartRows
from hal.core.model import Never, Outlook, Reason, TaskState, Verdict
from hal.planes.tasks.table.table import JobTable

Task = tuple[int, int]


class PendingModel:
    """What waits and what runs, as the events tell it; anything told twice is an error."""

    def __init__(self) -> None:
        self.pending: dict[Task, tuple[int, int]] = {}
        """Attempt number and eligible instant."""
        self.within: dict[Task, str] = {}
        """The level that what waits or runs was told with."""
        self.running: dict[Task, int] = {}
        self.nodes: set[str] = set()

    def never_fits(
        self, request: ClassSpec, without: Set[str] = frozenset(), only: Set[str] | None = None
    ) -> Never | None:
        """More than 64 cores never fit here; nor does anything once no node counts."""
        names = self.nodes - without if only is None else self.nodes & only
        some = len(names) >= request.nodes or not (without or only is not None)
        cpu = request.request.get("cpu", 0)
        if cpu <= 64_000 and some:
            return None
        because = f"cpu: asks for {cpu // 1000}; the largest node has 64" if cpu > 64_000 else "no node counts"
        return Never(reason=Reason.IMPOSSIBLE, because=because, until="a larger node joins")

    def met_by(self, job: int, walltime_ms: int) -> str:
        """A walltime of a day and more meets one."""
        return "upkeep" if walltime_ms >= 86_400_000 else ""

    def explain(self, job: int, now_ms: int, *, brief: bool = False) -> Verdict:
        return Verdict(job=job, reason=Reason.RESOURCES, message="waits for resources")

    def look(self, job: int, now_ms: int, elsewhere: Sequence[Elsewhere]) -> Outlook | None:
        return None

    def foresee(
        self, submitted: Sequence[Event], jobs: Sequence[int], now_ms: int
    ) -> tuple[dict[int, int], int] | None:
        return None

    def apply(self, event: Event) -> None:
        match event:
            case JobsSubmitted():
                assert all(0 <= int(r["class_index"]) < len(event.classes) for r in event.rows)
                for row in event.rows:
                    for task in range(int(row["first_task"]), int(row["first_task"] + row["tasks"])):
                        self._wait((int(row["job"]), task), int(row["attempt"]), int(row["eligible_ms"]))
                        self.within[int(row["job"]), task] = event.classes[row["class_index"]].within
            case JobsCancelled():
                assert event.first_task is not None
                assert event.tasks is not None
                for job, first, count in zip(event.jobs, event.first_task, event.tasks, strict=True):
                    for task in range(int(first), int(first + count)):
                        del self.pending[(int(job), task)]
            case AttemptsEnded():
                for row in event.rows:
                    key = (int(row["job"]), int(row["task"]))
                    assert self.running.pop(key) == int(row["attempt"])
                    if row["requeue"]:
                        self._wait(key, int(row["attempt"]) + 1, int(row["eligible_ms"]))
            case NodesChanged():
                assert self.nodes.issuperset(event.removed)
                self.nodes.difference_update(event.removed)
                self.nodes.update(node.name for node in event.nodes)
            case AllocationsAdopted():
                for row in event.rows:
                    key = (int(row["job"]), int(row["task"]))
                    assert key not in self.pending, f"{key} waits"
                    assert key not in self.running, f"{key} runs already"
                    self.within[key] = event.classes[row["class_index"]].within
                    self.running[key] = int(row["attempt"])
            case JobsUpdated() | ConfigChanged() | NodesOffered():
                pass
            case _:
                raise AssertionError(f"the plane never says {type(event).__name__}")

    def plan(self, tasks: list[Task], width: dict[int, int]) -> tuple[StartRows, Rows]:
        """Start these tasks; a gang of `width[job]` takes the rows from 0 on."""
        rows: list[int] = []
        starts = []
        for job, task in tasks:
            starts.append((job, task, self.pending[(job, task)][0], len(rows), width[job], -1))
            rows.extend(range(width[job]))
        return np.array(starts, START), np.array(rows, np.int64)

    def assume(self, starts: StartRows) -> None:
        for job, task, attempt, *_ in starts.tolist():
            assert self.pending.pop((job, task))[0] == attempt
            assert (job, task) not in self.running
            self.running[(job, task)] = attempt

    def _wait(self, task: Task, attempt: int, eligible_ms: int) -> None:
        assert task not in self.pending, f"{task} waits already"
        assert task not in self.running, f"{task} runs"
        assert 0 <= eligible_ms < INF
        self.pending[task] = (attempt, eligible_ms)

    def check(self, table: JobTable) -> None:
        """The engine knows exactly the tasks that the plane thinks it does."""
        waiting = {
            (job.id, task): task_range.attempt
            for job in table.jobs.values()
            for task_range in (job.fed if job.window else job.ranges)
            if task_range.state is TaskState.PENDING and job.eligible_of(task_range) < INF
            for task in range(task_range.first, task_range.end)
        }
        assert {task: attempt for task, (attempt, _) in self.pending.items()} == waiting
        levels = {task: table.jobs.peek(task[0]).request.within for task in waiting}  # type: ignore[union-attr]
        assert {task: self.within[task] for task in waiting} == levels
        jobs = table.jobs.values()
        active = {(job.id, a.task): a.attempt for job in jobs for a in job.active.values() if not a.credit}
        assert self.running == active
