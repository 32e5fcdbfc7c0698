"""Conservative backfill on many nodes: a whole re-plan, its slices, and what an event costs when promises are kept.

A full cluster of NODES nodes of 64 cpus, 512 GiB and 8 GPUs with about five attempts on each, all ending at different
times; WAITING jobs in CLASSES classes, a fifth of them gangs of 2 to 64 nodes, all with different walltimes. The same
again with licences: two of five attempts hold one of a kind of licence, of which there are no more, and half of what
waits needs up to four.
Times are of the CPU, so that others on the machine count less.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from typing import Any, Final

import numpy as np

NODES: Final = 10_000
WAITING: Final = 1_000
CLASSES: Final = 50
LICENCES: Final = ("matlab", "ansys")
EVENTS: Final = 60
SLICE_WORK: Final = 30_000
MINUTE: Final = 60_000
GIB: Final = 1 << 30


def main() -> int:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    waiting = int(sys.argv[2]) if len(sys.argv) > 2 else WAITING
    whole_plan(nodes, waiting)
    slices_and_events(nodes, waiting)
    with_licences(nodes, waiting)
    return 0


def emit(benchmark: str, value: float, unit: str, target: float, **more: Any) -> None:
    """One measurement as a JSON line."""
    bar = {"target": target, "holds": value <= target}
    print(json.dumps({"bench": benchmark, "value": value, "unit": unit, "better": "lower", **bar, **more}), flush=True)


def full_cluster(nodes: int, waiting: int, slice_work: int, licensed: bool = False) -> Any:
    """A state in which everything is taken and `waiting` jobs wait, not yet planned."""
    from hal.core.engine import apply, cycle, new_state
    from hal.core.engine.classes import ClassSpec
    from hal.core.engine.config import Backfill, EngineConfig
    from hal.core.engine.events import JobsSubmitted, NodesChanged, NodeSpec, PlanAssumed, submit_rows
    from hal.core.model.policy import Policy

    chance = random.Random(7)
    policy = Policy(licences=dict.fromkeys(LICENCES, nodes)) if licensed else None
    state = new_state(EngineConfig(backfill=Backfill.EASY, slice_starts=20_000, policy=policy))
    capacity = {"cpu": 64_000, "memory": 512 * GIB, "gpu": 8_000}
    apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", dict(capacity)) for k in range(nodes))))
    shares = ((8, 1), (16, 2), (16, 2), (8, 1), (16, 2))
    job = 1
    for k, (cpu, gpu) in enumerate(shares):
        held = {LICENCES[k]: 1} if licensed and k < len(LICENCES) else {}
        rows = submit_rows(nodes)
        rows["job"] = np.arange(job, job + nodes)
        rows["walltime_ms"] = [chance.randint(30, 2_880) * MINUTE + chance.randint(0, MINUTE) for _ in range(nodes)]
        spec = ClassSpec({"cpu": cpu * 1_000, "memory": 8 * cpu * GIB, "gpu": gpu * 1_000}, licences=held)
        apply(state, JobsSubmitted(rows, (spec,)))
        job += nodes
    while state.pending_tasks:
        apply(state, PlanAssumed(cycle(state, 0)))
    classes = tuple(
        ClassSpec(
            {"cpu": 1_000 * chance.choice((4, 8, 16, 32, 64)), "memory": chance.randint(1, 32) * 8 * GIB,
             "gpu": 1_000 * chance.choice((0, 1, 2, 4, 8))},
            chance.choice((2, 4, 8, 16, 64)) if k % 5 == 0 else 1,
            licences={LICENCES[k // 2 % len(LICENCES)]: 1 + k % 4} if licensed and k % 2 else {},
        )
        for k in range(CLASSES)
    )  # fmt: skip
    rows = submit_rows(waiting)
    rows["job"] = np.arange(job, job + waiting)
    rows["class_index"] = np.arange(waiting) % CLASSES
    rows["walltime_ms"] = [chance.randint(10, 2_880) * MINUTE + k for k in range(waiting)]
    apply(state, JobsSubmitted(rows, classes))
    use_conservative(state, slice_work)
    return state


def use_conservative(state: Any, slice_work: int) -> None:
    """Forget what was planned: the next pass plans from nothing."""
    from hal.core.engine import apply
    from hal.core.engine.config import Backfill, EngineConfig
    from hal.core.engine.events import ConfigChanged

    config = EngineConfig(backfill=Backfill.CONSERVATIVE, slice_work=slice_work, policy=state.config.policy)
    apply(state, ConfigChanged(config))


def run_pass(state: Any, now: int) -> list[float]:
    """A pass in slices, as the scheduler takes them; milliseconds of CPU for each, and to assume its plan."""
    from hal.core.engine import apply, cycle
    from hal.core.engine.cycling import learn
    from hal.core.engine.events import PlanAssumed
    from hal.core.engine.scheduler import MOST_LEARNT

    took = []
    cursor = None
    while True:
        began = time.process_time()
        if cursor is None and len(took) < MOST_LEARNT and learn(state, now):
            took.append(1_000 * (time.process_time() - began))
            continue
        plan = cycle(state, now, cursor=cursor)
        if plan.changes:
            apply(state, PlanAssumed(plan))
        took.append(1_000 * (time.process_time() - began))
        cursor = plan.cursor
        if cursor is None:
            return took


def whole_plan(nodes: int, waiting: int) -> None:
    """Every promise from nothing, in one slice."""
    state = full_cluster(nodes, waiting, 1 << 40)
    run_pass(state, 1)
    took = []
    for _ in range(3):
        use_conservative(state, 1 << 40)
        took.append(sum(run_pass(state, 1)))
    held = int((state.work.reservations[:waiting, 9] == 0).sum())
    emit("backfill-replan", round(statistics.median(took), 1), "ms", 500, note=f"{held} promises on {nodes} nodes")


def slices_and_events(nodes: int, waiting: int) -> None:
    """Slices of a re-plan; then attempts that end as planned (promises are kept), and attempts that end early.

    After an early end many promises move in turn, in slices like any other pass.
    """
    from hal.core.engine.views import running

    state = full_cluster(nodes, waiting, SLICE_WORK)
    took = run_pass(state, 1)
    note = f"{len(took)} slices, longest {max(took):.1f}"
    emit("backfill-slice", round(statistics.median(took), 2), "ms", 5, note=note)
    runs = running(state)
    early = random.Random(3).sample(range(len(runs)), EVENTS)
    costs, slices = ends_of(state, runs, early, now=1_000)
    note = f"median of {EVENTS}; 95th percentile {percentile(costs):.1f}, median slice {statistics.median(slices):.1f}"
    emit("backfill-event-early-end", round(statistics.median(costs), 2), "ms", 5, note=note)
    runs = running(state)
    first = np.argsort(runs["end_ms"], kind="stable")[: 2 * EVENTS].tolist()
    costs, _ = ends_of(state, runs, first, now=0)
    note = f"median of {EVENTS} ends as planned after as many more; 95th percentile {percentile(costs[EVENTS:]):.1f}"
    emit("backfill-event", round(statistics.median(costs[EVENTS:]), 2), "ms", 5, note=note)


def with_licences(nodes: int, waiting: int) -> None:
    """A re-plan in one slice and in slices, where licences run short too."""
    state = full_cluster(nodes, waiting, 1 << 40, licensed=True)
    run_pass(state, 1)
    took = []
    for _ in range(3):
        use_conservative(state, 1 << 40)
        took.append(sum(run_pass(state, 1)))
    held = int((state.work.reservations[:waiting, 9] == 0).sum())
    note = f"{held} promises on {nodes} nodes, half of them with licences"
    emit("backfill-licences-replan", round(statistics.median(took), 1), "ms", 1_500, note=note)
    use_conservative(state, SLICE_WORK)
    took = run_pass(state, 1)
    note = f"{len(took)} slices, {sum(took):.0f} in all, longest {max(took):.1f}"
    emit("backfill-licences-slice", round(statistics.median(took), 2), "ms", 5, note=note)


def percentile(costs: list[float]) -> float:
    """The 95th."""
    return sorted(costs)[int(0.95 * len(costs))]


def ends_of(state: Any, runs: Any, places: list[int], now: int) -> tuple[list[float], list[float]]:
    """Let these attempts end one by one, at `now` or (0) as planned: milliseconds of each event, and of each slice."""
    from hal.core.engine import apply
    from hal.core.engine.events import END, AttemptsEnded

    costs = []
    slices: list[float] = []
    for k, place in enumerate(places):
        ends = np.zeros(1, END)
        for name in ("job", "task", "attempt"):
            ends[0][name] = runs[place][name]
        began = time.process_time()
        apply(state, AttemptsEnded(ends))
        slices += run_pass(state, now + k if now else int(runs[place]["end_ms"]))
        costs.append(1_000 * (time.process_time() - began))
    return costs, slices


if __name__ == "__main__":
    sys.exit(main())
