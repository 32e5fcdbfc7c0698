"""How much of a cluster's GPUs is given to jobs when more is asked for than there is, by how nodes are chosen.

The cluster is that of the Alibaba trace "openb" (cluster-trace-gpu-v2023): 1,523 nodes, of which 310 have no GPUs, with
6,212 GPUs. Jobs are drawn from its pods with replacement; none ends. They arrive one by one until the GPUs asked for
are 1.3 times those there are; each is decided when it arrives, and one that finds no node is withdrawn, as where the
published method was measured. GPUs are shared as `gpu_parts = true` has it: HAL binds each start to GPUs of its node,
and tells the engine what is left of them. The allocation rate is the share of the cluster's GPUs that was given, the
mean of the seeds.

Then they arrive in blocks, and the decisions of the default placement are timed: starts and refusals, with the state
after them, without the events that say what was bound.

The trace is looked for in $HAL_SHARED/traces/gpu, else in `shared/traces/gpu` beside the repository; without it this
exits 77. Prints JSON lines: `python benchmarks/engine_gpu_packing.py [--seeds 10]`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from _clusters import emit, load_kernels
from _gpu_fragmentation import NOT_THERE, Anywhere, FragmentationGradientDescent, Typical
from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import (
    END,
    INF,
    AttemptsEnded,
    JobsCancelled,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    submit_rows,
)
from hal.core.engine.policies import register
from hal.core.model.devices import GPU, GPU_PART, GPU_WHOLE, WHOLE, HeldGpu, beside, bind_gpus, withheld_beside
from hal.core.model.facts import GpuFacts

ROOT: Final = Path(__file__).resolve().parent.parent
TRACE: Final = "alibaba-gpu-v2023-openb-{}.csv.gz"
SEEDS: Final = 10
FIRST_SEED: Final = 1_000
"""Other streams than those on which the default was chosen."""
ASKED: Final = 1.3
"""GPUs asked for, as a multiple of the cluster's."""
BLOCK: Final = 500
"""Jobs that wait at once where decisions are timed."""
DECISIONS: Final = 20_000.0
BETTER_BY: Final = 3.0
"""Points of the allocation rate that the default is to be ahead of best-fit."""
DEFAULT: Final = "auto"
DESCENT: Final = "fgd"
"""The published method, in the engine's columns and with the work that is live for typical."""
MIB: Final = 1 << 20

Ints = NDArray[np.int64]


class Trace(NamedTuple):
    """Columns cores (millicores), memory (MiB), GPUs (thousandths)."""

    nodes: Ints
    pods: Ints


class Ran(NamedTuple):
    """What one run did."""

    given: float
    """Share of the cluster's GPUs."""
    starts: int
    refusals: int
    refused_later: int
    """Starts of one plan that wanted what only one of them could have: they are decided again."""
    decided_s: float


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=SEEDS)
    seeds = range(FIRST_SEED, FIRST_SEED + parser.parse_args().seeds)
    trace = read()
    if trace is None:
        print("skipped: no trace; set HAL_SHARED to the directory that holds traces/gpu")
        return 77
    load_kernels()
    rates = {
        placement: [Cluster(trace, placement).run(jobs(trace, seed), 1).given for seed in seeds]
        for placement in ("random", "best-fit", "dot-product", FragmentationGradientDescent.info.name, DESCENT, DEFAULT)
    }
    means = {placement: 100.0 * float(np.mean(given)) for placement, given in rates.items()}
    published = means[FragmentationGradientDescent.info.name]
    emit(
        "gpu-packing-allocation", means[DEFAULT], "% of the GPUs", max(means["best-fit"] + BETTER_BY, published),
        better="higher", seeds=len(seeds), nodes=len(trace.nodes), asked_for=ASKED,
        spread=round(100.0 * float(np.ptp(rates[DEFAULT])), 2),
        **{placement.replace("-", "_"): round(mean, 2) for placement, mean in means.items() if placement != DEFAULT},
        note="target: best-fit and 3 points more, and the published method",
    )  # fmt: skip
    for placement, name in ((DEFAULT, "gpu-packing-decisions"), (DESCENT, "gpu-descent-decisions")):
        _time(trace, placement, name, seeds)
    return 0


def _time(trace: Trace, placement: str, name: str, seeds: range) -> None:
    """Decisions a second, starts and refusals, where jobs arrive in blocks."""
    ran = [Cluster(trace, placement).run(jobs(trace, seed), BLOCK) for seed in seeds]
    decisions = sum(one.starts + one.refusals for one in ran)
    emit(
        name, round(decisions / sum(one.decided_s for one in ran)),
        "decisions/s", DECISIONS, better="higher", nodes=len(trace.nodes), waiting=BLOCK,
        starts=sum(one.starts for one in ran), refusals=sum(one.refusals for one in ran),
        decided_again=sum(one.refused_later for one in ran),
        allocation=round(100.0 * float(np.mean([one.given for one in ran])), 2),
    )  # fmt: skip


def read() -> Trace | None:
    """The trace; None where it is not."""
    shared = Path(os.environ.get("HAL_SHARED") or ROOT.parent / "shared") / "traces" / "gpu"
    if not (shared / TRACE.format("nodes")).exists():
        return None
    rows: dict[str, list[tuple[int, int, int]]] = {}
    for what, gpus in (("nodes", "gpu"), ("pods", "num_gpu")):
        with gzip.open(shared / TRACE.format(what), "rt") as file:
            rows[what] = [
                (int(row["cpu_milli"]), int(row["memory_mib"]), int(row[gpus]) * int(row.get("gpu_milli", WHOLE)))
                for row in csv.DictReader(file)
            ]
    return Trace(np.array(rows["nodes"], np.int64), np.array(rows["pods"], np.int64))


def jobs(trace: Trace, seed: int) -> Ints:
    """Pods drawn with replacement, until enough GPUs are asked for."""
    drawn = trace.pods[np.random.default_rng(seed).integers(0, len(trace.pods), 4 * len(trace.pods))]
    asked = np.cumsum(drawn[:, 2])
    return drawn[: int(np.searchsorted(asked, ASKED * trace.nodes[:, 2].sum())) + 1]


class Cluster:
    """The engine, and what the tasks plane does for it: which GPUs each start holds."""

    def __init__(self, trace: Trace, placement: str) -> None:
        most = int(trace.nodes[:, 2].max()) // WHOLE
        self._left: Ints = np.full((len(trace.nodes), most), NOT_THERE, np.int64)
        register(Anywhere())
        register(FragmentationGradientDescent(Typical(trace.pods[:, [0, 2]]), self._left))
        self._gpus = [
            tuple(GpuFacts(index=at, uuid=f"n{node}-{at}") for at in range(gpus // WHOLE))
            for node, gpus in enumerate(trace.nodes[:, 2].tolist())
        ]
        self._held: list[dict[str, int]] = [{} for _ in self._gpus]
        self._shares: list[list[HeldGpu]] = [[] for _ in self._gpus]
        self._specs: list[NodeSpec] = []
        for at, (cpu, memory, gpu) in enumerate(trace.nodes.tolist()):
            capacity = {"cpu": cpu, "memory": memory * MIB}
            if gpu:
                capacity |= {GPU: gpu, GPU_WHOLE: gpu, GPU_PART: WHOLE}
                self._left[at, : gpu // WHOLE] = WHOLE
            self._specs.append(NodeSpec(f"n{at:04d}", capacity, labels={"at": str(at)}))
        kinds = np.unique(trace.pods, axis=0).tolist()
        self._kind_of = {tuple(kind): at for at, kind in enumerate(kinds)}
        self._classes = tuple(
            ClassSpec({"cpu": cpu, "memory": memory * MIB, GPU: gpu, **beside(gpu)}) for cpu, memory, gpu in kinds
        )
        self._owners = (OwnerSpec(),)
        self._state: State = new_state(EngineConfig(placement=placement, parking=True))
        apply(self._state, NodesChanged(tuple(self._specs)))
        self._there = int(trace.nodes[:, 2].sum())
        self._tries: dict[int, int] = {}
        self._arriving: Ints = np.zeros((0, 3), np.int64)
        self._ran: dict[str, Any] = {"starts": 0, "refusals": 0, "refused_later": 0, "decided_s": 0.0}

    def run(self, arriving: Ints, at_once: int) -> Ran:
        """Let all of them arrive, so many at once."""
        self._arriving = arriving
        submits = submit_rows(len(arriving))
        submits["job"] = np.arange(1, len(arriving) + 1)
        submits["class_index"] = [self._kind_of[tuple(one)] for one in arriving.tolist()]
        submits["walltime_ms"] = INF
        for first in range(0, len(arriving), at_once):
            some = submits[first : first + at_once]
            apply(self._state, JobsSubmitted(some, self._classes, self._owners))
            waiting = set(some["job"].tolist())
            while True:
                started, again = self._decide()
                waiting -= started
                if not again:
                    break
            self._ran["refusals"] += len(waiting)
            if waiting:
                apply(self._state, JobsCancelled(np.array(sorted(waiting), np.int64)))
        given = sum(sum(held.values()) for held in self._held)
        return Ran(given / self._there, **self._ran)

    def _decide(self) -> tuple[set[int], bool]:
        """One pass. Which jobs it started, and whether some could not be bound, so that another one is needed."""
        started: set[int] = set()
        again = False
        plan = None
        while plan is None or plan.cursor is not None:
            began = time.perf_counter()
            plan = cycle(self._state, 0, cursor=plan.cursor if plan is not None else None)
            if plan.changes:
                apply(self._state, PlanAssumed(plan))
            self._ran["decided_s"] += time.perf_counter() - began
            failed, told = [], set()
            for job, at in plan.starts[["job", "row_offset"]].tolist():
                node = int(plan.rows[at])
                asked = int(self._arriving[job - 1, 2])
                bound = bind_gpus(self._gpus[node], self._held[node], asked) if asked else ()
                if bound is None:
                    failed.append(job)
                    continue
                started.add(job)
                if bound:
                    self._hold(node, bound)
                    told.add(node)
            self._ran["starts"] += len(plan.starts) - len(failed)
            self._ran["refused_later"] += len(failed)
            self._tell(sorted(told), failed)
            again = again or bool(failed)
        return started, again

    def _hold(self, node: int, bound: tuple[HeldGpu, ...]) -> None:
        for one in bound:
            held = self._held[node]
            held[one.id] = held.get(one.id, 0) + one.milli
            assert held[one.id] <= WHOLE, "no GPU is given more than once over"
            self._left[node, int(one.id.partition("-")[2])] = WHOLE - held[one.id]
        self._shares[node] += bound

    def _tell(self, nodes: list[int], failed: list[int]) -> None:
        """What is withheld now on these nodes, and that these attempts did not begin: their jobs wait again."""
        if failed:
            ends = np.zeros(len(failed), END)
            ends["job"], ends["attempt"], ends["requeue"] = failed, self._attempts(failed), 1
            apply(self._state, AttemptsEnded(ends))
        changed = []
        for node in nodes:
            withheld = withheld_beside(self._gpus[node], self._shares[node])
            if withheld != self._specs[node].withheld:
                before = self._specs[node]
                self._specs[node] = NodeSpec(before.name, before.capacity, before.labels, withheld=withheld)
                changed.append(self._specs[node])
        if changed:
            apply(self._state, NodesChanged(tuple(changed)))

    def _attempts(self, failed: list[int]) -> list[int]:
        """The number of the attempt of each that is given back; the next one is one more."""
        for job in failed:
            self._tries[job] = self._tries.get(job, 0) + 1
        return [self._tries[job] for job in failed]


if __name__ == "__main__":
    sys.exit(main())
