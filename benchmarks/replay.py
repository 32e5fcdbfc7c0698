"""Replays of real logs by the production engine: are the figures right, how many jobs a second, how much memory.

The reference figures are mean bounded slowdowns of two independent simulators on whole logs as a pool; 'right' is
within 0.5 %. Speeds are medians of RUNS replays in one process, after the kernels are loaded and without parsing. Logs
are looked for in $HAL_SHARED/traces/swf, else in `shared/traces/swf` beside the repository; without them this exits 77.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any, Final

import numpy as np

ROOT: Final = Path(__file__).resolve().parent.parent
RUNS: Final = 3
NOT_HERE: Final = 77
WITHIN: Final = 0.005

REFERENCES: Final = {
    "SDSC-SP2-1998-4.2-cln.swf.gz": (13824.967, 87.760, 82.951, 70.414, 56.767),
    "ALCF-Theta-2022.swf.gz": (385.184, 115.840, 75.046, 79.215, 37.006),
    "CEA-Curie-2011-sample30k.swf.gz": (186.155, 5.071, 4.107, 3.127, 1.580),
}
"""Mean bounded slowdown under each of REFERENCE_RUNS."""

REFERENCE_RUNS: Final = (
    ("fcfs", False),
    ("easy", False),
    ("easy-sjbf", False),
    ("easy", True),
    ("easy-sjbf", True),
)
"""(policy, clairvoyant)"""

SDSC: Final = "SDSC-SP2-1998-4.2-cln.swf.gz"
LCG: Final = "LCG-2005-1.swf.gz"
SHORT: Final = dict(zip(REFERENCES, ("sdsc", "theta", "curie"), strict=True))


def logs_directory() -> Path | None:
    """Where the shared logs lie, or None."""
    shared = Path(os.environ.get("HAL_SHARED") or ROOT.parent / "shared")
    directory = shared / "traces" / "swf"
    return directory if directory.is_dir() else None


def main() -> int:
    directory = logs_directory()
    if directory is None:
        print("skipped: no logs; set HAL_SHARED to the directory that holds traces/swf")
        return NOT_HERE
    from hal.daemons.twin.replay import load_kernels

    load_kernels()
    for name, means in REFERENCES.items():
        for (policy, clairvoyant), expected in zip(REFERENCE_RUNS, means, strict=True):
            slowdown(directory / name, policy, clairvoyant, expected)
    same_starts_on_nodes(directory / SDSC)
    speed("replay-sdsc-easy-pool", directory / SDSC, 50_000)
    speed("replay-sdsc-easy-128-nodes", directory / SDSC, 30_000, nodes=128)
    speed("replay-sdsc-easy-arrivals-0.5", directory / SDSC, 25_000, scale_arrivals=0.5)
    lcg_time(directory / LCG)
    memory_of_waiting()
    memory_of_ended()
    return 0


def emit(benchmark: str, value: float, unit: str, target: float, holds: bool, **more: Any) -> None:
    """One measurement as a JSON line."""
    print(
        json.dumps({"bench": benchmark, "value": value, "unit": unit, "target": target, "holds": holds, **more}),
        flush=True,
    )


def slowdown(path: Path, policy: str, clairvoyant: bool, expected: float) -> None:
    """How far the mean bounded slowdown is from the reference, in percent."""
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.replay import replay
    from hal.daemons.twin.swf import read_log, usable_jobs

    log = read_log(path)
    machine = Machine.pool(log.machine_procs or 0)
    mean = replay(usable_jobs(log, machine.procs), machine, policy, clairvoyant=clairvoyant).metrics()
    off = abs(mean.mean_bounded_slowdown / expected - 1)
    name = f"slowdown-{SHORT[path.name]}-{policy}{'-clairvoyant' if clairvoyant else ''}"
    note = f"{mean.mean_bounded_slowdown:.3f}, reference {expected}"
    emit(name, round(100 * off, 4), "% off", 100 * WITHIN, off <= WITHIN, better="lower", note=note)


def same_starts_on_nodes(path: Path) -> None:
    """Jobs that start at another time on 128 nodes of one processor than in the pool of 128."""
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.replay import replay
    from hal.daemons.twin.swf import read_log, usable_jobs

    jobs = usable_jobs(read_log(path), 128)
    for policy in ("fcfs", "easy", "easy-sjbf"):
        pool = replay(jobs, Machine.pool(128), policy)
        nodes = replay(jobs, Machine(128, 1), policy)
        differ = int(np.count_nonzero(pool.start_s != nodes.start_s))
        emit(f"other-starts-on-nodes-{policy}", differ, "jobs", 0, differ == 0, better="lower")


def speed(benchmark: str, path: Path, target: float, *, nodes: int = 0, scale_arrivals: float = 1.0) -> None:
    """Jobs replayed a second under EASY."""
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.swf import read_log, usable_jobs

    jobs = usable_jobs(read_log(path), 128, scale_arrivals=scale_arrivals)
    machine = Machine(nodes, 1) if nodes else Machine.pool(128)
    wall_s, cpu_s = _timed(jobs, machine)
    value = round(jobs.jobs / wall_s)
    note = f"median of {RUNS}; {jobs.jobs / cpu_s:,.0f} a second of CPU"
    emit(benchmark, value, "jobs/s", target, value >= target, note=note)


def lcg_time(path: Path) -> None:
    """Seconds to replay 188,041 lines of serial jobs."""
    from hal.daemons.twin.machine import Machine
    from hal.daemons.twin.swf import read_log, usable_jobs

    log = read_log(path)
    machine = Machine.pool(log.machine_procs or 0)
    jobs = usable_jobs(log, machine.procs)
    wall_s, cpu_s = _timed(jobs, machine)
    note = f"median of {RUNS}; {cpu_s:.2f} s of CPU"
    emit("replay-lcg-easy", round(wall_s, 3), "s", 6, wall_s <= 6, better="lower", note=note)


def _timed(jobs: Any, machine: Any) -> tuple[float, float]:
    """Median wall and CPU seconds of RUNS replays."""
    from hal.daemons.twin.replay import replay

    wall_s, cpu_s = [], []
    for _ in range(RUNS):
        began, used = time.perf_counter(), time.process_time()
        replay(jobs, machine, "easy")
        wall_s.append(time.perf_counter() - began)
        cpu_s.append(time.process_time() - used)
    return statistics.median(wall_s), statistics.median(cpu_s)


def memory_of_waiting() -> None:
    """Bytes the engine keeps for each waiting job, as jobs grow eightfold: the same."""
    from hal.core.engine import apply
    from hal.core.engine.classes import ClassSpec, OwnerSpec
    from hal.core.engine.events import JobsSubmitted, submit_rows

    per_job = []
    for jobs in (1 << 16, 1 << 19):
        tracemalloc.start()
        state = _one_cpu_state()
        empty = tracemalloc.get_traced_memory()[0]
        rows = submit_rows(jobs)
        rows["job"] = np.arange(1, jobs + 1)
        apply(state, JobsSubmitted(rows, (ClassSpec({"cpu": 1000}),), (OwnerSpec(),)))
        per_job.append((tracemalloc.get_traced_memory()[0] - empty - rows.nbytes) / jobs)
        tracemalloc.stop()
    growth = round(per_job[1] / per_job[0], 3)
    note = f"{per_job[0]:.0f} bytes a job at 65,536, {per_job[1]:.0f} at 524,288"
    emit("engine-memory-per-waiting-job", growth, "x at 8x jobs", 1.25, growth <= 1.25, better="lower", note=note)


def memory_of_ended() -> None:
    """The engine's memory after 16,384 and after 131,072 jobs that came, ran and ended, 64 live at a time: the same."""
    from hal.core.engine import apply, cycle
    from hal.core.engine.classes import ClassSpec, OwnerSpec
    from hal.core.engine.events import END, AttemptsEnded, JobsSubmitted, PlanAssumed, submit_rows

    classes, owners = (ClassSpec({"cpu": 10}),), (OwnerSpec(),)
    at_once, first, last = 64, 1 << 14, 1 << 17
    tracemalloc.start()
    state = _one_cpu_state()
    used = {}
    for job in range(1, last + 1, at_once):
        rows = submit_rows(at_once)
        rows["job"] = np.arange(job, job + at_once)
        apply(state, JobsSubmitted(rows, classes, owners))
        plan = cycle(state, job)
        apply(state, PlanAssumed(plan))
        ends = np.zeros(at_once, END)
        ends["job"] = rows["job"]
        ends["attempt"] = 1
        apply(state, AttemptsEnded(ends))
        if job + at_once - 1 in (first, last):
            used[job + at_once - 1] = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    growth = round(used[last] / used[first], 3)
    note = f"{used[first] / 1e6:.1f} MB after {first:,} jobs, {used[last] / 1e6:.1f} MB after {last:,}"
    emit("engine-memory-after-ended-jobs", growth, "x at 8x jobs", 1.25, growth <= 1.25, better="lower", note=note)


def _one_cpu_state() -> Any:
    from hal.core.engine import apply, new_state
    from hal.core.engine.config import EngineConfig
    from hal.core.engine.events import NodesChanged, NodeSpec

    state = new_state(EngineConfig())
    apply(state, NodesChanged(nodes=(NodeSpec("pool", {"cpu": 1000}),)))
    return state


if __name__ == "__main__":
    sys.exit(main())
