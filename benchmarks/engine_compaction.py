"""Compaction for one waiting gang: from its submission to the plan that moves work for it; and how much is gained.

    python benchmarks/engine_compaction.py [--nodes 1000,5000] [--repeats 5] [--scenes 200]

Every node has 64 cpus. Movable work of 4 to 32 cpus is on every node, and takes six tenths of the cluster; a tenth of
the nodes has work that stays. A gang of a tenth of the nodes comes, whole nodes each. In slices as the controller cuts
them. Prints JSON lines: the time of all slices together, and the longest one; and on small clusters, what is gained in
relation to the best of all sets of victims and all ways to place them, from the judge of the tests.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    ClockAdvanced,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    submit_rows,
)
from hal.core.engine.plan import MOVED, Plan
from hal.core.engine.views import running

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

SLICE_WORK: Final = 30_000
TARGETS_MS: Final = {5_000: 200.0}
LEAST_PART: Final = 0.9
CORES: Final = 64
"""Of a node."""
SIZES: Final = (4, 8, 16, 32)
"""Cores of what runs."""
HOUR_MS: Final = 3_600_000


def scattered(nodes: int, seed: int) -> tuple[State, int, int]:
    """A cluster that was full and has lost four tenths of its work; the last job id and the time."""
    state = new_state(EngineConfig(slice_work=SLICE_WORK, compaction=2.0, compaction_nodes=8))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{number}", {"cpu": 1_000 * CORES}) for number in range(nodes))))
    random = np.random.default_rng(seed)
    stays = ClassSpec({"cpu": 1_000 * CORES})
    classes = (*(ClassSpec({"cpu": 1_000 * cores}, movable=True) for cores in SIZES), stays)
    # As many of each size as fill nine tenths; each node has a mix.
    each = nodes * 9 // 10 * CORES // sum(SIZES)
    plan = random.permutation([kind for kind in range(len(SIZES)) for _ in range(each)] + [len(SIZES)] * (nodes // 10))
    job, now = 0, 0
    for part in np.array_split(plan, 20):
        rows = submit_rows(len(part))
        rows["job"] = np.arange(job + 1, job + 1 + len(part))
        rows["class_index"] = part
        rows["walltime_ms"] = random.integers(2 * HOUR_MS, 24 * HOUR_MS, len(part))
        rows["submit_ms"] = now
        apply(state, JobsSubmitted(rows, classes))
        now = whole_pass(state, now)[1] + 60_000
        job += len(part)
    there = running(state)
    gone = random.permutation(len(there))[: len(there) * 4 // 10]
    rows = np.zeros(len(gone), END)
    rows["job"], rows["attempt"] = there["job"][gone], there["attempt"][gone]
    apply(state, AttemptsEnded(rows))
    whole_pass(state, now)
    return state, job, now


def whole_pass(state: State, now: int) -> tuple[list[Plan], int, list[float]]:
    """All slices of one pass, and the seconds that each took."""
    apply(state, ClockAdvanced(now))
    plans: list[Plan] = []
    took: list[float] = []
    cursor = None
    while True:
        begun = time.perf_counter()
        plan = cycle(state, now, cursor=cursor)
        if plan.changes:
            apply(state, PlanAssumed(plan))
        took.append(time.perf_counter() - begun)
        plans.append(plan)
        cursor = plan.cursor
        if cursor is None:
            return plans, now, took


def measure(nodes: int, seed: int) -> dict[str, Any]:
    """One cluster, one gang."""
    state, job, now = scattered(nodes, seed)
    rows = submit_rows(1)
    rows["job"], rows["priority"], rows["submit_ms"], rows["walltime_ms"] = job + 1, 1_000, now, HOUR_MS
    gang = ClassSpec({"cpu": 1_000 * CORES}, nodes // 10)
    begun = time.perf_counter()
    apply(state, JobsSubmitted(rows, (gang,)))
    submitted = time.perf_counter() - begun
    plans, _now, took = whole_pass(state, now)
    moved = sum(int((plan.preemptions["lent"] == MOVED).sum()) for plan in plans)
    return {
        "ms": 1_000 * (submitted + sum(took)),
        "slice_ms": 1_000 * max(took),
        "moved": moved,
        "running": state.running_attempts,
        "slices": len(took),
    }


def gain(scenes: int) -> dict[str, Any]:
    """What is gained on small clusters, in parts of the best that there is."""
    from tests.core.engine.test_compaction_safety import gained_of

    found = [gained_of(seed) for seed in range(scenes)]
    gained = sum(one for one, _, _ in found)
    return {
        "bench": "compaction-gain",
        "value": round(gained / sum(best for _, best, _ in found), 3),
        "unit": "part of the best",
        "better": "higher",
        "target": LEAST_PART,
        "with_chains": round(gained / sum(best for _, _, best in found), 3),
        "scenes": sum(best > 0 for _, best, _ in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="compaction for one waiting gang")
    parser.add_argument("--nodes", default="1000,5000")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--scenes", type=int, default=200)
    arguments = parser.parse_args()
    for nodes in [int(text) for text in arguments.nodes.split(",")]:
        measure(max(nodes // 10, 100), 0)
        runs = [measure(nodes, seed) for seed in range(arguments.repeats)]
        facts = {name: runs[0][name] for name in ("running", "moved", "slices")} | {"nodes": nodes, "gang": nodes // 10}
        for bench, field, target in (
            (f"compaction-gang-{nodes}", "ms", TARGETS_MS.get(nodes)),
            (f"compaction-slice-{nodes}", "slice_ms", None),
        ):
            values = [run[field] for run in runs]
            line: dict[str, Any] = {
                "bench": bench, "value": round(statistics.median(values), 3), "unit": "ms", "better": "lower",
            }  # fmt: skip
            if target is not None:
                line["target"] = target
            print(json.dumps(line | {"worst": max(values)} | facts), flush=True)
    if arguments.scenes:
        print(json.dumps(gain(arguments.scenes)), flush=True)


if __name__ == "__main__":
    main()
