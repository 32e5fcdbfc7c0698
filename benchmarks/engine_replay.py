"""Replay of workload logs by the production engine: mean bounded slowdown against independent simulators, and speed.

    python benchmarks/engine_replay.py [--log SP2,THETA,CURIE,LCG] [--policy fcfs,easy,sjbf,cons] [--nodes] [--clair]
        [--scale F] [--first N]

Prints one JSON line a run. Reads ../shared/traces/swf; says so and stops where it is not there.
"""

from __future__ import annotations

import argparse
import gzip
import heapq
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from hal.core.engine import apply, cycle, new_state
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    submit_rows,
)

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces" / "swf"
LOGS = {
    "SP2": ("SDSC-SP2-1998-4.2-cln.swf.gz", 128),
    "THETA": ("ALCF-Theta-2022.swf.gz", 4360),
    "CURIE": ("CEA-Curie-2011-sample30k.swf.gz", 93312),
    "LCG": ("LCG-2005-1.swf.gz", 24515),
}
POLICIES = {
    "fcfs": Backfill.NONE,
    "easy": Backfill.EASY,
    "sjbf": Backfill.EASY_SJBF,
    "cons": Backfill.CONSERVATIVE,
}
TARGETS = {
    ("SP2", "fcfs", False): 13824.967, ("SP2", "easy", False): 87.760, ("SP2", "sjbf", False): 82.951,
    ("SP2", "easy", True): 70.414, ("SP2", "sjbf", True): 56.767,
    ("THETA", "fcfs", False): 385.184, ("THETA", "easy", False): 115.840, ("THETA", "sjbf", False): 75.046,
    ("THETA", "easy", True): 79.215, ("THETA", "sjbf", True): 37.006,
    ("CURIE", "fcfs", False): 186.155, ("CURIE", "easy", False): 5.071, ("CURIE", "sjbf", False): 4.107,
    ("CURIE", "easy", True): 3.127, ("CURIE", "sjbf", True): 1.580,
}  # fmt: skip


def read_log(name: str, first: int | None) -> tuple[Any, int]:
    """Usable jobs as an array of (submit, run, procs, requested) in seconds, and the machine size."""
    file, machine = LOGS[name]
    kept = []
    has_estimates = False
    with gzip.open(TRACES / file, "rt", errors="replace") as lines:
        for line in lines:
            fields = line.split()
            if not fields or line.startswith(";") or len(fields) < 18:
                continue
            submit, run = int(float(fields[1])), int(float(fields[3]))
            allocated, requested, wanted = int(fields[4]), int(fields[7]), int(float(fields[8]))
            has_estimates = has_estimates or wanted > 0
            kept.append((submit, run, allocated, requested, wanted))
    jobs = []
    for submit, run, allocated, requested, wanted in kept:
        estimate = wanted if has_estimates else run
        if allocated > machine or requested > machine or (allocated <= 0 and requested <= 0):
            continue
        if run <= 0 or estimate <= 0 or submit < 0:
            continue
        jobs.append((submit, min(run, estimate), requested if requested > 0 else allocated, estimate))
    jobs.sort(key=lambda job: job[0])
    return np.array(jobs[:first], np.int64), machine


def replay(
    jobs: Any, machine: int, backfill: Backfill, *, nodes: bool, clairvoyant: bool, scale: float, **extra: Any
) -> dict[str, Any]:
    """One replay; returns figures and the starts in seconds by job."""
    count = len(jobs)
    submit_s = np.floor((jobs[:, 0] - jobs[0, 0]) * scale).astype(np.int64)
    sizes = np.unique(jobs[:, 2])
    state = new_state(EngineConfig(backfill=backfill, **extra))
    if nodes:
        apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": 1}) for k in range(machine))))
        classes = tuple(ClassSpec({"cpu": 1}, nodes=int(size)) for size in sizes)
    else:
        apply(state, NodesChanged((NodeSpec("pool", {"cpu": machine}),)))
        classes = tuple(ClassSpec({"cpu": int(size)}) for size in sizes)
    owners = (OwnerSpec(),)
    log = submit_rows(count)
    log["job"] = np.arange(count)
    log["class_index"] = np.searchsorted(sizes, jobs[:, 2])
    log["submit_ms"] = log["eligible_ms"] = submit_s * 1000
    log["walltime_ms"] = jobs[:, 3] * 1000
    if clairvoyant:
        log["planned_ms"] = jobs[:, 1] * 1000
    ends = np.zeros(count, END)
    ends["job"] = np.arange(count)
    ends["attempt"] = 1
    run_ms = (jobs[:, 1] * 1000).tolist()
    submit_ms = (submit_s * 1000).tolist()
    start_ms = [-1] * count
    due: list[tuple[int, int]] = []
    infinity = 1 << 60
    push, pop = heapq.heappush, heapq.heappop
    begun, begun_cpu = time.perf_counter(), time.process_time()
    at = 0
    cycles = 0
    while at < count or due:
        now = submit_ms[at] if at < count else infinity
        if due and due[0][0] <= now:
            now = due[0][0]
            _, job = pop(due)
            if due and due[0][0] == now:
                gone = [job]
                while due and due[0][0] == now:
                    gone.append(pop(due)[1])
                apply(state, AttemptsEnded(ends[gone]))
            else:
                apply(state, AttemptsEnded(ends[job : job + 1]))
        if at < count and submit_ms[at] == now:
            begin = at
            while at < count and submit_ms[at] == now:
                at += 1
            apply(state, JobsSubmitted(log[begin:at], classes, owners))
        plan = cycle(state, now)
        cycles += 1
        while True:
            if plan.changes:
                apply(state, PlanAssumed(plan))
            if len(plan.starts):
                for job in plan.starts["job"].tolist():
                    start_ms[job] = now
                    push(due, (now + run_ms[job], job))
            if plan.cursor is None:
                break
            plan = cycle(state, now, cursor=plan.cursor)
    took, took_cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    wait = np.array(start_ms) / 1000 - submit_s
    slowdown = np.maximum(1.0, (wait + jobs[:, 1]) / np.maximum(jobs[:, 1], 10))
    work = state.work
    return {
        "jobs": count, "unstarted": start_ms.count(-1), "mean_bounded_slowdown": round(float(slowdown.mean()), 3),
        "mean_wait_s": round(float(wait.mean()), 1), "replay_s": round(took, 3), "jobs_per_s": int(count / took),
        "cpu_s": round(took_cpu, 3), "jobs_per_cpu_s": int(count / took_cpu),
        "cycles": cycles, "starts": start_ms,
        "state_bytes": sum(t.nbytes for t in (work.entries, work.rank, work.runs, work.ends, work.pieces)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", default="SP2")
    parser.add_argument("--policy", default="easy")
    parser.add_argument("--nodes", action="store_true")
    parser.add_argument("--clair", action="store_true")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--first", type=int, default=None)
    parser.add_argument("--same-as-pool", action="store_true", help="compare the starts with the pool's")
    asked = parser.parse_args()
    if not TRACES.is_dir():
        print(f"no traces at {TRACES}: nothing measured", file=sys.stderr)
        return
    for name in asked.log.split(","):
        jobs, machine = read_log(name, asked.first)
        for policy in asked.policy.split(","):
            figures = replay(
                jobs, machine, POLICIES[policy], nodes=asked.nodes, clairvoyant=asked.clair, scale=asked.scale
            )
            starts = figures.pop("starts")
            line = {"bench": "engine_replay", "log": name, "policy": policy, "clairvoyant": asked.clair,
                    "nodes": asked.nodes, "scale": asked.scale, **figures}  # fmt: skip
            target = TARGETS.get((name, policy, asked.clair))
            if target and asked.scale == 1.0 and not asked.first:
                line["target"] = target
                line["off_percent"] = round(100 * (figures["mean_bounded_slowdown"] / target - 1), 3)
            if asked.same_as_pool:
                pool = replay(jobs, machine, POLICIES[policy], nodes=False, clairvoyant=asked.clair, scale=asked.scale)
                line["differs_from_pool"] = sum(a != b for a, b in zip(starts, pool["starts"], strict=True))
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
