"""How many placement decisions a second the engine takes on an empty cluster of 10,000 nodes with 8 GPUs each.

100,000 jobs wait when the clock starts; it stops when the pass is complete and every plan is assumed, so a decision
is: the next job by rank, its row, and the state after its start. Submitting is not counted. Beside it, in the same
process, a plain-Python scheduler with the same rules takes the first decisions, and has to come to the same rows.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from _clusters import NODE, OwnerSpec, emit, empty_cluster, jobs, load_kernels, median, owners, small_classes
from hal.core.engine import State, apply, cycle
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import JobsSubmitted, PlanAssumed
from hal.core.engine.plan import Plan

NODES = 10_000
JOBS = 100_000
RUNS = 3
REFERENCE_JOBS = {"first-fit": 20_000, "best-fit": 100}


def main() -> int:
    load_kernels()
    for placement, classes, target in (
        ("first-fit", 50, 500_000),
        ("first-fit", 5_000, None),
        ("best-fit", 50, 200_000),
        ("best-fit", 5_000, 60_000),
    ):
        measure(placement, small_classes(classes), owners(), target)
    return 0


def measure(
    placement: str, classes: tuple[ClassSpec, ...], accounts: tuple[OwnerSpec, ...], target: int | None
) -> None:
    """Decisions a second, and how often as many as plain Python takes."""
    waiting = jobs(1, JOBS, len(classes), len(accounts))
    placed: dict[int, int] = {}
    walls, cpus, cycles = [], [], []
    started = 0
    for run in range(RUNS + 1):
        state = empty_cluster(NODES, EngineConfig(placement=placement))
        apply(state, JobsSubmitted(waiting, classes, accounts))
        began, used = time.perf_counter(), time.process_time()
        started, in_cycles = whole_pass(state, _Rows(placed) if run == 0 else None)
        if run:  # the first one remembers rows
            walls.append(started / (time.perf_counter() - began))
            cpus.append(started / (time.process_time() - used))
            cycles.append(started / in_cycles)
    expected, plain = reference(placement, classes, waiting, REFERENCE_JOBS[placement])
    same = all(placed[job] == row for job, row in expected.items())
    rate = median(walls)
    emit(
        f"placement-{placement}-{len(classes)}-classes", round(rate), "decisions/s", target, better="higher",
        a_second_of_cpu=round(median(cpus)), cycles_alone=round(median(cycles)), starts=started,
        plain_python=round(plain), ratio=round(rate / plain, 1), same_rows_as_plain=same,
        note="cycle and apply(PlanAssumed); cycles_alone: without the apply",
    )  # fmt: skip
    if not same:
        raise SystemExit(f"{placement}: other rows than plain Python")


def whole_pass(state: State, seen: _Rows | None) -> tuple[int, float]:
    """Starts of one whole pass, each slice assumed, and the seconds that its cycles took."""
    started, took = 0, 0.0
    plan = None
    while plan is None or plan.cursor is not None:
        began = time.perf_counter()
        plan = cycle(state, 0, cursor=plan.cursor if plan is not None else None)
        took += time.perf_counter() - began
        if plan.changes:
            apply(state, PlanAssumed(plan))
        started += len(plan.starts)
        if seen is not None:
            seen(plan)
    return started, took


class _Rows:
    """Remembers the row of each job."""

    def __init__(self, placed: dict[int, int]) -> None:
        self.placed = placed

    def __call__(self, plan: Plan) -> None:
        for start in plan.starts[["job", "row_offset"]].tolist():
            self.placed[start[0]] = int(plan.rows[start[1]])


def reference(placement: str, classes: tuple[ClassSpec, ...], waiting: Any, first: int) -> tuple[dict[int, int], float]:
    """Rows of the first jobs in plain Python, and its decisions a second."""
    names = sorted(NODE)
    capacity = [NODE[name] for name in names]
    wanted = [[spec.request.get(name, 0) for name in names] for spec in classes]
    free = [list(capacity) for _ in range(NODES)]
    lowest = [0] * len(classes)
    chosen: dict[int, int] = {}
    began = time.perf_counter()
    for job, of in waiting[["job", "class_index"]][:first].tolist():
        request = wanted[of]
        row = first_fit(free, request, lowest[of]) if placement == "first-fit" else best_fit(free, request, capacity)
        if row < 0:
            continue
        lowest[of] = row if placement == "first-fit" else 0
        chosen[job] = row
        free[row] = [have - take for have, take in zip(free[row], request, strict=True)]
    return chosen, first / (time.perf_counter() - began)


def first_fit(free: list[list[int]], request: list[int], begin: int) -> int:
    """The lowest row at or after `begin` that holds the request."""
    for row in range(begin, len(free)):
        if all(have >= take for have, take in zip(free[row], request, strict=True)):
            return row
    return -1


def best_fit(free: list[list[int]], request: list[int], capacity: list[int]) -> int:
    """The row left with the least spare of its tightest wanted resource, in millionths; ties by row."""
    best, score = -1, -1
    for row, have in enumerate(free):
        if all(left >= take for left, take in zip(have, request, strict=True)):
            shares = [
                (left - take) / whole for left, take, whole in zip(have, request, capacity, strict=True) if take > 0
            ]
            tight = math.floor((1.0 - min(1.0, *shares)) * 1_000_000 + 0.5)
            if tight > score:
                best, score = row, tight
    return best


if __name__ == "__main__":
    sys.exit(main())
