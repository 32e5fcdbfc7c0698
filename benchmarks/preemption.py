"""Preemption for a blocked gang, and for a job of two groups, on full clusters: until a plan names victims and claims.

    python benchmarks/preemption.py [--nodes 1000,5000] [--repeats 5]

Every node has 8 GPUs and 64 cpus and is full: four fifths with work that may be taken back (single tasks of 2 and 4
GPUs, gangs of 4 nodes), one fifth with work that may not. A gang of a tenth of the nodes, whole nodes each, comes; or
two groups of one job: as many whole nodes, and as many with half their cpus. In slices as the controller cuts them.
Prints JSON lines: the time of all slices together, and the longest one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.classes import ClassSpec, OwnerSpec, grouped
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import ClockAdvanced, JobsSubmitted, NodesChanged, NodeSpec, PlanAssumed, submit_rows
from hal.core.engine.plan import Plan
from hal.core.model import Duration
from hal.core.model.policy import Policy, PreemptMode, Qos

SLICE_WORK: Final = 20_000
TARGETS_MS: Final = {1_000: 100.0, 5_000: 500.0}
POLICY: Final = Policy(
    qos={
        "urgent": Qos(name="urgent", priority=10, preempts=("low", "spot")),
        "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE, grace=Duration(30_000)),
        "spot": Qos(name="spot", preempt_mode=PreemptMode.CHECKPOINT, grace=Duration(60_000)),
        "firm": Qos(name="firm"),
    }
)
NODE: Final = {"cpu": 64_000, "gpu": 8_000, "memory": 1 << 38}


def request(gpus: int) -> dict[str, int]:
    """What a task of so many GPUs asks for on each node."""
    return {"gpu": gpus * 1_000, "cpu": gpus * 8_000, "memory": gpus << 34}


KINDS: Final = (
    (ClassSpec(request(2)), "low"),
    (ClassSpec(request(4)), "spot"),
    (ClassSpec(request(8), 4), "low"),
    (ClassSpec(request(8)), "firm"),
)


def filled(nodes: int, seed: int) -> tuple[State, int, int]:
    """A full cluster whose jobs began at different times; the last job id and the time."""
    state = new_state(EngineConfig(policy=POLICY, slice_work=SLICE_WORK))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{number}", NODE) for number in range(nodes))))
    random = np.random.default_rng(seed)
    owners = tuple(OwnerSpec(account=f"a{number % 200}", qos=quality) for number, (_, quality) in enumerate(KINDS))
    classes = tuple(kind for kind, _ in KINDS)
    plan = [0] * (4 * (nodes * 3 // 10)) + [1] * (2 * (nodes * 3 // 10)) + [2] * (nodes // 20) + [3] * (nodes // 5)
    job, now = 0, 0
    for part in np.array_split(random.permutation(plan), 20):
        rows = submit_rows(len(part))
        rows["job"] = np.arange(job + 1, job + 1 + len(part))
        rows["class_index"] = rows["owner_index"] = part
        rows["walltime_ms"] = random.integers(3_600_000, 86_400_000, len(part))
        rows["submit_ms"] = now
        apply(state, JobsSubmitted(rows, classes, owners))
        now = whole_pass(state, now)[1] + 60_000
        job += len(part)
    top_up = submit_rows(8 * nodes)
    top_up["job"] = np.arange(job + 1, job + 1 + len(top_up))
    top_up["submit_ms"] = now
    top_up["walltime_ms"] = 86_400_000
    apply(state, JobsSubmitted(top_up, (ClassSpec(request(1)),), (OwnerSpec(qos="low"),)))
    whole_pass(state, now)
    return state, job + len(top_up), now + 600_000


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


def measure(nodes: int, seed: int, groups: int = 1) -> dict[str, Any]:
    """One cluster, one gang, or a job of two groups."""
    state, job, now = filled(nodes, seed)
    rows = submit_rows(groups)
    rows["job"], rows["priority"], rows["submit_ms"] = job + 1, 1_000, now
    rows["first_task"] = rows["class_index"] = range(groups)
    gang = ClassSpec(request(8), nodes // 10)
    half = ClassSpec({"cpu": 32_000}, nodes // 10)
    classes = (gang,) if groups == 1 else grouped([replace(gang, group="whole"), replace(half, group="half")])
    begun = time.perf_counter()
    apply(state, JobsSubmitted(rows, classes, (OwnerSpec(qos="urgent"),)))
    submitted = time.perf_counter() - begun
    plans, _now, took = whole_pass(state, now)
    claims = sum(len(plan.claims) for plan in plans)
    assert claims == groups, f"{claims} claims"
    return {
        "ms": 1_000 * (submitted + sum(took)),
        "slice_ms": 1_000 * max(took),
        "victims": sum(len(plan.preemptions) for plan in plans),
        "running": state.running_attempts - groups,
        "slices": len(took),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="preemption for one blocked gang")
    parser.add_argument("--nodes", default="1000,5000")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    for nodes in [int(text) for text in arguments.nodes.split(",")]:
        for groups, what in ((1, "preempt"), (2, "preempt-groups")):
            measure(max(nodes // 10, 40), 0, groups)
            runs = [measure(nodes, seed, groups) for seed in range(arguments.repeats)]
            facts = {
                "nodes": nodes,
                "gang": groups * (nodes // 10),
                "running": runs[0]["running"],
                "victims": runs[0]["victims"],
                "slices": runs[0]["slices"],
            }
            for bench, field, target in (
                (f"{what}-gang-{nodes}", "ms", TARGETS_MS.get(nodes)),
                (f"{what}-slice-{nodes}", "slice_ms", None),
            ):
                line: dict[str, Any] = {
                    "bench": bench,
                    "value": round(statistics.median(run[field] for run in runs), 3),
                    "unit": "ms",
                    "better": "lower",
                    **facts,
                }
                if target is not None:
                    line["target"] = target
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
