"""Replays a workload on the production engine under virtual time: feeds it what the log says, writes down its starts.

Shell of the engine; reads no clock and decides nothing: what starts, and when, is what `cycle` plans. Event order of
one second of the log: ends, then submits in order, then one cycle. O(1) Python steps an instant; memory: the log's
columns and the running jobs' ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hal.core.engine import State, apply, cycle
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    INF,
    AttemptsEnded,
    EndRows,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    SubmitRows,
    submit_rows,
)
from hal.core.engine.invariants import check_invariants
from hal.core.model.errors import InternalError
from hal.daemons.twin.machine import Machine
from hal.daemons.twin.metrics import Metrics, judge, judge_by_user
from hal.daemons.twin.swf import Workload

IntArray = NDArray[np.int64]

CONFIGS: Final = {
    "fcfs": EngineConfig(order="fcfs", backfill=Backfill.NONE),
    "easy": EngineConfig(order="fcfs", backfill=Backfill.EASY),
    "easy-sjbf": EngineConfig(order="fcfs", backfill=Backfill.EASY_SJBF),
    "conservative": EngineConfig(order="fcfs", backfill=Backfill.CONSERVATIVE),
}
"""What each policy name of `hal.daemons.twin.machine.POLICIES` means to the engine."""

REPORT_EVERY = 1 << 12
"""Instants between two calls of `report`."""

IDLE_WAKES_MAX = 1 << 20
"""Cycles in a row that the engine may ask for without an event of the log and without a start: beyond it, it spins."""

_MILLI = 1000
_NEVER = INF // _MILLI

Report = Callable[[int], None]
"""Called now and then with the number of jobs submitted so far."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplayResult:
    """What one policy made of a workload; arrays of shape (J,), in the workload's order, in seconds of the log.

    Attributes:
        cycles: how many cycles the engine ran.
        peak_live: most jobs waiting or running at one instant.
    """

    policy: str
    clairvoyant: bool
    machine: Machine
    id: IntArray
    submit_s: IntArray
    start_s: IntArray
    end_s: IntArray
    procs: IntArray
    user: IntArray
    cycles: int
    peak_live: int

    def metrics(self) -> Metrics:
        """Figures over all jobs."""
        return judge(self.submit_s, self.start_s, self.end_s, self.procs, machine_procs=self.machine.procs)

    def metrics_by_user(self) -> dict[int, Metrics]:
        """Figures for each user number of the log."""
        return judge_by_user(
            self.user, self.submit_s, self.start_s, self.end_s, self.procs, machine_procs=self.machine.procs
        )


def replay(
    workload: Workload,
    machine: Machine,
    policy: str,
    *,
    clairvoyant: bool = False,
    check: bool = False,
    report: Report | None = None,
) -> ReplayResult:
    """Run the whole workload through the engine.

    Args:
        policy: a key of CONFIGS.
        clairvoyant: the engine plans with the true run times instead of the limits.
        check: verify the whole state after every cycle (slow).
        report: progress, about every REPORT_EVERY instants.
    Raises: InternalError when the engine leaves jobs waiting for ever, or asks to be called without end.
    """
    jobs = workload.jobs
    state = State(CONFIGS[policy])
    apply(state, NodesChanged(nodes=_nodes(machine)))
    submits, classes = _submits(workload, machine, clairvoyant)
    owners = (OwnerSpec(),)
    ends = _ends(jobs)
    next_group = _next_groups(workload.submit_s).tolist()
    submit_s = [*workload.submit_s.tolist(), _NEVER]
    run_s = workload.run_s.tolist()
    start_s = [-1] * jobs
    pop, push = heapq.heappop, heapq.heappush
    running: list[int] = [_NEVER * jobs]
    arrived = ended = cycles = idle_wakes = peak_live = 0
    wake_s = _NEVER
    while ended < jobs:
        now = submit_s[arrived]
        next_end = running[0] // jobs
        if next_end < now:
            now = next_end
        if wake_s < now:
            now = wake_s
            idle_wakes += 1
            if idle_wakes > IDLE_WAKES_MAX:
                raise InternalError(f"{policy}: the engine asked for {idle_wakes} cycles in a row that started nothing")
        elif now == _NEVER:
            raise InternalError(f"{policy}: the engine left {jobs - ended} jobs of the log waiting on an empty machine")
        else:
            if next_end == now:
                job = pop(running) % jobs
                ended += 1
                if running[0] // jobs == now:
                    together = [job]
                    while running[0] // jobs == now:
                        together.append(pop(running) % jobs)
                    ended += len(together) - 1
                    apply(state, AttemptsEnded(ends[together]))
                else:
                    apply(state, AttemptsEnded(ends[job : job + 1]))
            if submit_s[arrived] == now:
                until = next_group[arrived]
                apply(state, JobsSubmitted(submits[arrived:until], classes, owners))
                arrived = until
                if arrived - ended > peak_live:
                    peak_live = arrived - ended
        now_ms = now * _MILLI
        plan = cycle(state, now_ms)
        while True:
            if plan.changes:
                apply(state, PlanAssumed(plan))
                if plan.starts.size:
                    idle_wakes = 0
                    for number in plan.starts["job"].tolist():
                        start_s[number - 1] = now
                        push(running, (now + run_s[number - 1]) * jobs + number - 1)
            if check:
                check_invariants(state)
            if plan.cursor is None:
                break
            plan = cycle(state, now_ms, cursor=plan.cursor)
        wake_s = -(-plan.wake_ms // _MILLI)
        cycles += 1
        if report is not None and not cycles % REPORT_EVERY:
            report(arrived)
    started = np.array(start_s, np.int64)
    return ReplayResult(
        policy=policy,
        clairvoyant=clairvoyant,
        machine=machine,
        id=workload.id,
        submit_s=workload.submit_s,
        start_s=started,
        end_s=started + workload.run_s,
        procs=workload.procs,
        user=workload.user,
        cycles=cycles,
        peak_live=peak_live,
    )


def load_kernels() -> None:
    """Compile or load every kernel that a replay uses, so that the first replay's time is its own."""
    one = np.ones(3, np.int64)
    tiny = Workload(
        id=one, submit_s=np.array([0, 0, 1]), run_s=2 * one, limit_s=3 * one, procs=one, user=one, skipped={}
    )
    for policy in CONFIGS:
        for machine in (Machine(nodes=1, cpus_per_node=1), Machine(nodes=2, cpus_per_node=1)):
            replay(tiny, machine, policy)


def _nodes(machine: Machine) -> tuple[NodeSpec, ...]:
    if machine.nodes == 1:
        return (NodeSpec("pool", {"cpu": machine.cpus_per_node * _MILLI}),)
    capacity = {"cpu": machine.cpus_per_node * _MILLI}
    return tuple(NodeSpec(f"n{number}", capacity) for number in range(1, machine.nodes + 1))


def _submits(workload: Workload, machine: Machine, clairvoyant: bool) -> tuple[SubmitRows, tuple[ClassSpec, ...]]:
    """One submit row for each job, numbered from 1 in the order of the log, and the classes they index."""
    sizes, class_index = np.unique(workload.procs, return_inverse=True)
    classes = []
    for procs in sizes.tolist():
        nodes, cpus = machine.shape_of(procs)
        classes.append(ClassSpec({"cpu": cpus * _MILLI}, nodes=nodes))
    rows = submit_rows(workload.jobs)
    rows["job"] = np.arange(1, workload.jobs + 1)
    rows["class_index"] = class_index
    rows["submit_ms"] = workload.submit_s * _MILLI
    rows["eligible_ms"] = rows["submit_ms"]
    rows["walltime_ms"] = workload.limit_s * _MILLI
    rows["planned_ms"] = (workload.run_s if clairvoyant else workload.limit_s) * _MILLI
    return rows, tuple(classes)


def _ends(jobs: int) -> EndRows:
    rows = np.zeros(jobs, END)
    rows["job"] = np.arange(1, jobs + 1)
    rows["attempt"] = 1
    return rows


def _next_groups(submit_s: IntArray) -> IntArray:
    """For each job that is the first of its second: the index of the first job of a later second; shape (J,)."""
    return np.searchsorted(submit_s, submit_s, side="right")
