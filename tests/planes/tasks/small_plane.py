"""A task plane on the plain model of the engine, without a store: what is staged is taken as committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hal.core.interfaces import Admit
from hal.core.model import StepId, spec_from_plain
from hal.core.model.policy import Policy
from hal.core.model.policy_check import check_policy
from hal.core.model.topology.tree import Topology
from hal.planes.tasks import Arrival, Change, EndedJob, LiveJob, Submitter, TaskPlane, check_table
from hal.wire.frames.agent_keeper import ExitCause, StepExit, Usage
from tests.planes.tasks.pending_model import PendingModel, Task

BY = Submitter("alice", "trace")
TRUE = {"command": ["true"]}


class SmallPlane:
    """Submit, plan, end, by short names; time stands where the test puts it."""

    def __init__(
        self,
        policy: Policy | None = None,
        nodes: int = 2,
        rules: Sequence[Admit] = (),
        topology: Topology | None = None,
    ) -> None:
        self.now_ms = 1_000
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.engine = PendingModel()
        self.plane = TaskPlane(check_policy(policy or Policy()), self.engine, rules=rules, topology=topology)
        for name in self.names:
            self.plane.record_arrival(Arrival(name=name, capacity={"cpu": 64_000}, boot_id="b1"), self.now_ms)
        self.commit()

    def commit(self) -> Change:
        change = self.plane.seal(self.now_ms)
        self.plane.keep()
        for event in change.engine:
            self.engine.apply(event)
        check_table(self.plane._table)
        self.engine.check(self.plane._table)
        return change

    def submit(self, *jobs: dict[str, Any], ended: dict[int, EndedJob] | None = None) -> list[int]:
        specs = [spec_from_plain({**TRUE, **job} if "script" not in job else job) for job in jobs]
        made = self.plane.submit(specs, BY, self.now_ms, ended=ended or {})
        self.commit()
        return [job.id for job in made]

    def start(self, *tasks: Task, credit: bool = False) -> Change:
        width = {job: self.live(job).spec.nodes for job, _ in tasks}
        starts, rows = self.engine.plan(list(tasks), width)
        self.engine.assume(starts)
        self.plane.allocate(starts, rows, self.names.__getitem__, 1, self.now_ms, credit=credit)
        return self.commit()

    def end(
        self,
        job: int,
        task: int = 0,
        *,
        code: int = 0,
        cause: ExitCause = ExitCause.EXITED,
        rank: int = 0,
        message: str = "",
        cgroup: int = 0,
    ) -> Change:
        attempt = self.live(job).active[task]
        step = StepId(job, task, attempt.attempt, rank)
        usage = Usage(1, 1, 10 * (rank + 1), 0, 0, cgroup)
        report = StepExit(step, cause, code, 0, self.now_ms, self.now_ms, usage, message)
        self.plane.record_exits(attempt.nodes[rank], [report], self.now_ms)
        return self.commit()

    def live(self, job: int) -> LiveJob:
        return self.plane._table.jobs[job]
