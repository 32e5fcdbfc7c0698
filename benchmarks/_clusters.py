"""What the engine's benchmarks run on: clusters of GPU nodes, classes, accounts, jobs; how a measurement is printed.

Every job has a walltime of its own, so that nothing can be gained by remembering the last one; amounts are base units.
"""

from __future__ import annotations

import gc
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import (
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    SubmitRows,
    submit_rows,
)
from hal.core.engine.plan import Plan

GIB: Final = 1 << 30
NODE: Final = {"cpu": 64_000, "memory": 512 * GIB, "gpu": 8_000}
"""A node of 64 cores, 512 GiB and 8 GPUs."""
ACCOUNTS: Final = 200
MINUTE_MS: Final = 60_000
GPU_SHARES: Final = (0, 250, 500, 1_000, 1_000, 2_000)
"""Milli-GPUs of the small classes: 0.79 GPU a job, so that 100,000 jobs about fill 10,000 nodes."""


def gpu_nodes(count: int) -> tuple[NodeSpec, ...]:
    """Alike nodes."""
    return tuple(NodeSpec(f"n{k:05d}", NODE) for k in range(count))


def small_classes(count: int, seed: int = 1) -> tuple[ClassSpec, ...]:
    """Distinct requests on one node: GPUs as GPU_SHARES, half a core to eight, 1 to 48 GiB."""
    draw = random.Random(seed)
    seen: dict[tuple[int, int, int], None] = {}
    while len(seen) < count:
        seen[draw.choice(GPU_SHARES), 100 * draw.randint(5, 80), draw.randint(4, 192) * GIB // 4] = None
    return tuple(ClassSpec({"gpu": gpu, "cpu": cpu, "memory": memory}) for gpu, cpu, memory in seen)


def owners(count: int = ACCOUNTS) -> tuple[OwnerSpec, ...]:
    """One owner for each account."""
    return tuple(OwnerSpec(account=f"a{k:03d}", user=f"u{k:03d}") for k in range(count))


def jobs(
    first: int, count: int, classes: int, accounts: int, seed: int = 2, buckets_of_class: int | None = None
) -> SubmitRows:
    """Jobs of mixed classes and accounts; walltimes are distinct, from one minute up.

    buckets_of_class: so many accounts use each class (all of them when None).
    """
    draw = np.random.default_rng(seed)
    rows = submit_rows(count)
    rows["job"] = np.arange(first, first + count)
    rows["class_index"] = draw.integers(0, classes, count)
    if buckets_of_class is None:
        rows["owner_index"] = draw.integers(0, accounts, count)
    else:
        rows["owner_index"] = (rows["class_index"] * 7 + draw.integers(0, buckets_of_class, count)) % accounts
    rows["walltime_ms"] = 10 * MINUTE_MS + 17 * draw.permutation(count)
    return rows


def empty_cluster(nodes: int, config: EngineConfig) -> State:
    """A state with these nodes and nothing else."""
    state = new_state(config)
    apply(state, NodesChanged(gpu_nodes(nodes)))
    return state


def run_pass(state: State, now_ms: int, seen: Callable[[Plan], None] | None = None) -> int:
    """One whole pass, each slice assumed. Returns how many attempts it started."""
    plan = cycle(state, now_ms)
    started = 0
    while True:
        if plan.changes:
            apply(state, PlanAssumed(plan))
        started += len(plan.starts)
        if seen is not None:
            seen(plan)
        if plan.cursor is None:
            return started
        plan = cycle(state, now_ms, cursor=plan.cursor)


def fill(state: State, count: int, first_job: int = 1, now_ms: int = 0) -> int:
    """Start `count` attempts of one GPU each, which is all there is with eight times as many as nodes."""
    classes = (ClassSpec({"gpu": 1_000, "cpu": 8_000, "memory": 64 * GIB}),)
    apply(state, JobsSubmitted(jobs(first_job, count, 1, ACCOUNTS), classes, owners()))
    return run_pass(state, now_ms)


def timed(action: Callable[[], Any]) -> float:
    """Seconds that an action takes, without the garbage collector."""
    gc.collect()
    gc.disable()
    began = time.perf_counter()
    action()
    took = time.perf_counter() - began
    gc.enable()
    return took


def median(values: list[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def table_bytes(state: State) -> int:
    """Bytes of all tables of a state, scratch and outputs included."""
    return sum(int(table.nbytes) for table in state.tables().arrays().values())


def resident_bytes() -> int:
    """Memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def emit(bench: str, value: float, unit: str, target: float | None, *, better: str = "lower", **more: Any) -> None:
    """One measurement as a JSON line."""
    record: dict[str, Any] = {"bench": bench, "value": round(value, 4), "unit": unit}
    if target is not None:
        holds = value <= target if better == "lower" else value >= target
        record |= {"target": target, "better": better, "holds": holds}
    print(json.dumps({**record, "load": round(os.getloadavg()[0], 1), **more}), flush=True)


def load_kernels() -> None:
    """Compile or load the kernels before anything is measured."""
    from hal.core.kernels.compile_all import compile_all

    compile_all(lambda line: print(line, file=sys.stderr))
