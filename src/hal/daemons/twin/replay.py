"""Replay a workload on the production engine under virtual time: submit the log's jobs, record their starts.

It reads no clock and decides nothing: what starts, and when, is planned by `cycle`. Event order of one second of the
log: ends, then submits in order, then one cycle. O(1) Python steps per instant; memory: the log's columns and the
running jobs' ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hal.core.engine import apply, cycle, new_state
from hal.core.engine.checks.invariants import check_invariants
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
from hal.core.model.errors import InternalError
from hal.daemons.twin.gang_domains import GangDomains, GangFigures
from hal.daemons.twin.machine import Machine, reservations_of
from hal.daemons.twin.metrics import Metrics, judge, judge_by_user
from hal.daemons.twin.pack_waits import PackWaits
from hal.daemons.twin.swf import Workload

IntArray = NDArray[np.int64]

CONFIGS: Final = {
    "fcfs": EngineConfig(order="fcfs", backfill=Backfill.NONE),
    "none": EngineConfig(order="fcfs", backfill=Backfill.NONE),
    "easy": EngineConfig(order="fcfs", backfill=Backfill.EASY),
    "easy-sjbf": EngineConfig(order="fcfs", backfill=Backfill.EASY_SJBF),
    "sjf": EngineConfig(order="sjf", backfill=Backfill.EASY),
    "top-k": EngineConfig(order="fcfs", backfill=Backfill.TOP_K),
    "conservative": EngineConfig(order="fcfs", backfill=Backfill.CONSERVATIVE),
}
"""The engine configuration of each policy in `hal.daemons.twin.machine.POLICIES`; `config_of` knows `top-K`, too."""

REPORT_EVERY = 1 << 12
"""Instants between two calls of `report`."""

IDLE_WAKES_MAX = 1 << 20
"""Consecutive cycles that the engine may request without an event of the log and without a start; beyond that, it
spins."""

_MILLI = 1000

Report = Callable[[int], None]
"""Called periodically with the number of jobs submitted so far."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplayResult:
    """The outcome of a workload under one policy; arrays of shape (J,), in the workload's order, in seconds of the
    log.

    Attributes:
        cycles: how many cycles the engine ran.
        peak_live: the most jobs waiting or running at one instant.
        gangs: on how many domains jobs of several nodes were; None without a topology.
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
    gangs: GangFigures | None = None

    def metrics(self) -> Metrics:
        """Return the figures over all jobs."""
        return judge(self.submit_s, self.start_s, self.end_s, self.procs, machine_procs=self.machine.procs)

    def metrics_by_user(self) -> dict[int, Metrics]:
        """Return the figures for each user number of the log."""
        return judge_by_user(
            self.user, self.submit_s, self.start_s, self.end_s, self.procs, machine_procs=self.machine.procs
        )


def replay(
    workload: Workload,
    machine: Machine,
    policy: str,
    *,
    config: EngineConfig | None = None,
    clairvoyant: bool = False,
    check: bool = False,
    report: Report | None = None,
) -> ReplayResult:
    """Run the whole workload through the engine.

    One function, because its loop reads top-down: ends, submits, cycle, next instant.

    Args:
        policy: a key of CONFIGS, or `top-K`; any name if `config` is given.
        config: another configuration, perhaps with plugins.
        clairvoyant: the engine plans with the true run times instead of the limits.
        check: verify the whole state after every cycle (slow).
        report: progress, about every REPORT_EVERY instants.
    Raises:
        InternalError: the engine leaves jobs waiting for ever, or asks to be called without end.
    """
    jobs = workload.jobs
    state = new_state(on_levels(config_of(policy) if config is None else config, machine))
    gangs = GangDomains(machine)
    apply(state, NodesChanged(nodes=node_specs(machine)))
    submits, classes = _submits(workload, machine, clairvoyant)
    packs = PackWaits(submits, machine.pack_ms, _later(classes))
    owners = (OwnerSpec(),)
    ends = _ends(jobs)
    next_group = _next_groups(workload.submit_s).tolist()
    # Job numbers count from 1, so index 0 of lists by number is unused. Times in here are milliseconds.
    submit_ms = [*(workload.submit_s * _MILLI).tolist(), INF]
    run_ms = [0, *(workload.run_s * _MILLI).tolist()]
    start_ms = [-1] * (jobs + 1)
    pop, push = heapq.heappop, heapq.heappush
    ending: dict[int, list[int]] = {}
    end_times: list[int] = [INF]
    arrived = ended = cycles = idle_wakes = peak_live = 0

    def has_started(index: int) -> bool:
        return start_ms[index + 1] >= 0

    wake_ms = INF
    while ended < jobs:
        now = submit_ms[arrived]
        if end_times[0] < now:
            now = end_times[0]
        give_up_ms = packs.next_ms(has_started)
        now = min(now, give_up_ms)
        if wake_ms < now:
            now = min(now, -(-wake_ms // _MILLI) * _MILLI)
            idle_wakes += 1
            if idle_wakes > IDLE_WAKES_MAX:
                raise InternalError(f"{policy}: the engine asked for {idle_wakes} cycles in a row that started nothing")
        if end_times[0] == now:
            if now == INF:
                raise InternalError(
                    f"{policy}: the engine left {jobs - ended} jobs of the log waiting on an empty machine"
                )
            pop(end_times)
            numbers = ending.pop(now)
            ended += len(numbers)
            if len(numbers) == 1:
                apply(state, AttemptsEnded(ends[numbers[0] - 1 : numbers[0]]))
            else:
                apply(state, AttemptsEnded(ends[[number - 1 for number in numbers]]))
        if give_up_ms <= now < INF:
            withdrawn, again = packs.give_up(now, has_started)
            apply(state, withdrawn)
            apply(state, JobsSubmitted(again, classes, owners))
        if submit_ms[arrived] == now:
            until = next_group[arrived]
            apply(state, JobsSubmitted(submits[arrived:until], classes, owners))
            arrived = until
            if arrived - ended > peak_live:
                peak_live = arrived - ended
        plan = cycle(state, now)
        while True:
            if plan.changes:
                apply(state, PlanAssumed(plan))
                starts = plan.starts
                if starts.size:
                    idle_wakes = 0
                    gangs.count(plan)
                    for number in starts["job"].tolist():
                        start_ms[number] = now
                        end = now + run_ms[number]
                        if end in ending:
                            ending[end].append(number)
                        else:
                            ending[end] = [number]
                            push(end_times, end)
            if check:
                check_invariants(state)
            if plan.cursor is None:
                break
            plan = cycle(state, now, cursor=plan.cursor)
        wake_ms = plan.wake_ms
        cycles += 1
        if report is not None and not cycles % REPORT_EVERY:
            report(arrived)
    start_s = np.array(start_ms[1:], np.int64) // _MILLI
    return ReplayResult(
        policy=policy,
        clairvoyant=clairvoyant,
        machine=machine,
        id=workload.id,
        submit_s=workload.submit_s,
        start_s=start_s,
        end_s=start_s + workload.run_s,
        procs=workload.procs,
        user=workload.user,
        cycles=cycles,
        peak_live=peak_live,
        gangs=gangs.figures(),
    )


def on_levels(config: EngineConfig, machine: Machine) -> EngineConfig:
    """The configuration with the levels of the machine's topology."""
    return config if machine.topology is None else replace(config, levels=machine.topology.levels)


def config_of(policy: str) -> EngineConfig:
    """Return the engine configuration of a policy that `hal simulate --policy` can name.

    Raises:
        KeyError: there is no such policy.
    """
    reservations = reservations_of(policy)
    if reservations is None:
        return CONFIGS[policy]
    return EngineConfig(order="fcfs", backfill=Backfill.TOP_K, reservations=reservations)


def load_kernels() -> None:
    """Compile or load every kernel that a replay uses, so that the first replay's time excludes it."""
    one = np.ones(3, np.int64)
    tiny = Workload(
        id=one, submit_s=np.array([0, 0, 1]), run_s=2 * one, limit_s=3 * one, procs=one, user=one, skipped={}
    )
    for policy in CONFIGS:
        for machine in (Machine(nodes=1, cpus_per_node=1), Machine(nodes=2, cpus_per_node=1)):
            replay(tiny, machine, policy)


def node_specs(machine: Machine) -> tuple[NodeSpec, ...]:
    """Describe the machine to the engine: `pool`, or n1, n2, …, or the nodes of its topology with their domains."""
    capacity = {"cpu": machine.cpus_per_node * _MILLI}
    topology = machine.topology
    if topology is None:
        return tuple(NodeSpec(name, capacity) for name in machine.node_names)
    return tuple(NodeSpec(name, capacity, domains=topology.domains_of(name, {})) for name in machine.node_names)


def _submits(workload: Workload, machine: Machine, clairvoyant: bool) -> tuple[SubmitRows, tuple[ClassSpec, ...]]:
    """Build one submit row for each job, numbered from 1 in the order of the log, and the classes that they index."""
    sizes, class_index = np.unique(workload.procs, return_inverse=True)
    classes = []
    for procs in sizes.tolist():
        nodes, cpus = machine.shape_of(procs)
        classes.append(
            ClassSpec(
                {"cpu": cpus * _MILLI}, nodes=nodes, within=machine.within_of(nodes), preference=machine.preference
            )
        )
    if machine.pack_ms:
        classes += [replace(spec, within="") for spec in classes if spec.within]
    rows = submit_rows(workload.jobs)
    rows["job"] = np.arange(1, workload.jobs + 1)
    rows["class_index"] = class_index
    rows["submit_ms"] = workload.submit_s * _MILLI
    rows["eligible_ms"] = rows["submit_ms"]
    rows["walltime_ms"] = workload.limit_s * _MILLI
    rows["planned_ms"] = (workload.run_s if clairvoyant else workload.limit_s) * _MILLI
    return rows, tuple(classes)


def _later(classes: tuple[ClassSpec, ...]) -> IntArray:
    """By class: the index of the same without a level, which is its own where there is none."""
    of = {(tuple(spec.request.items()), spec.nodes, spec.within): index for index, spec in enumerate(classes)}
    anywhere = [(tuple(spec.request.items()), spec.nodes, "") for spec in classes]
    return np.array([of.get(key, index) for index, key in enumerate(anywhere)], np.int64)


def _ends(jobs: int) -> EndRows:
    rows = np.zeros(jobs, END)
    rows["job"] = np.arange(1, jobs + 1)
    rows["attempt"] = 1
    return rows


def _next_groups(submit_s: IntArray) -> IntArray:
    """For each job that is the first of its second, return the index of the first job of a later second; shape (J,)."""
    return np.searchsorted(submit_s, submit_s, side="right")
