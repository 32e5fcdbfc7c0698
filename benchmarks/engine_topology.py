"""Placing gangs on 10,000 nodes in a tree of five levels, in steady state at 80 % load, beside Slurm's topology/tree.

Gangs of 4 to 512 whole nodes arrive and end; sizes are log-uniform, half of them powers of two, run times log-normal,
walltimes one to three times as long. No job asks for a level: what is compared is where the engine puts what may go
anywhere. The engine runs the same stream of jobs twice, with EASY: `compact`, as a site with a topology has it, and
first-fit in node order. A re-implementation of Slurm's topology/tree (`_slurm_tree.py`) then places the very starts of
the first run on a cluster of its own, where they always fit, since nodes are alike. Node order is that of the tree,
which flatters first-fit. It ends when the last gang arrives.

A third run has a policy that scores all domains alike (`domains`): what it costs to ask one; gangs are where they were.

A decision is a start or a refusal of a gang, with the state after it. The first quarter of the starts is not counted.
Prints JSON lines: `python benchmarks/engine_topology.py [--jobs 12000]`.
"""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from _clusters import emit, load_kernels
from _slurm_tree import SlurmTree
from hal.core.engine import apply, cycle, new_state
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    INF,
    AttemptsEnded,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    submit_rows,
)
from hal.core.engine.policies import SMALLEST, register
from hal.core.interfaces import DomainView, Gang, NodeView, PolicyInfo

NODES: Final = 10_000
LEVELS: Final = ("fabric", "zone", "row", "rack", "switch")
WIDTHS: Final = (10_000, 2_000, 400, 100, 20)
"""Nodes of a domain by level."""
LOAD: Final = 0.8
LEAST, MOST, LARGE = 4, 512, 128
"""Nodes of a gang; those of `LARGE` or more are counted."""
TARGET: Final = 2_000.0
SKIPPED: Final = 0.25
"""Of the starts, before the cluster is in its steady state."""

Ints = NDArray[np.int64]
NOWHERE: Final = np.zeros(0, np.int64)


class Alike:
    """A domain score that has no opinion."""

    info = PolicyInfo("benchmark-alike", "domain-score/1")

    def score(self, request: Gang, view: NodeView, domains: DomainView) -> NDArray[np.float32]:
        return np.zeros(domains.domains, np.float32)


class Jobs(NamedTuple):
    """A stream of gangs; times in milliseconds."""

    nodes: Ints
    submit_ms: Ints
    run_ms: Ints
    walltime_ms: Ints


class Ran(NamedTuple):
    """What one run did."""

    order: list[tuple[bool, int]]
    """Starts (True) and ends of jobs, in order."""
    nodes: dict[int, Ints]
    """By job: the nodes that it had."""
    refusals: int
    decided_s: float
    told_s: float
    """Of events: submissions and ends."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=12_000)
    jobs = stream(parser.parse_args().jobs)
    load_kernels()
    compact, first_fit = run(jobs, compact=True), run(jobs, compact=False)
    tree = SlurmTree([path_of(node) for node in range(NODES)])
    slurm = placed_by(tree, jobs, compact.order)
    decisions = len(compact.nodes) + compact.refusals
    plain = (len(first_fit.nodes) + first_fit.refusals) / first_fit.decided_s
    emit(
        "topology-decisions", round(decisions / compact.decided_s), "decisions/s", TARGET, better="higher",
        starts=len(compact.nodes), refusals=compact.refusals, first_fit=round(plain),
        with_events=round(decisions / (compact.decided_s + compact.told_s)), nodes=NODES, levels=len(LEVELS),
    )  # fmt: skip
    register(Alike())
    asked = run(jobs, compact=True, domains=Alike.info.name)
    moved = sum(not np.array_equal(asked.nodes.get(job, NOWHERE), nodes) for job, nodes in compact.nodes.items())
    emit(
        "topology-scored-decisions", round((len(asked.nodes) + asked.refusals) / asked.decided_s), "decisions/s", None,
        starts=len(asked.nodes), placed_elsewhere=moved, nodes=NODES,
    )  # fmt: skip
    counted = [job for started, job in compact.order if started][int(SKIPPED * len(compact.nodes)) :]
    for level in range(len(LEVELS) - 1, 0, -1):
        ours, beside, theirs = (mean_domains(one, counted, level) for one in (compact.nodes, first_fit.nodes, slurm))
        least = float(np.mean([-(-jobs.nodes[job] // WIDTHS[level]) for job in counted]))
        emit(
            f"topology-{LEVELS[level]}-of-a-job", ours, f"{LEVELS[level]} domains", round(theirs, 4),
            first_fit=round(beside, 3), slurm_tree=round(theirs, 3),
            least_possible=round(least, 3), fewer_than_slurm=f"{1 - ours / theirs:.1%}", jobs=len(counted),
        )  # fmt: skip
    last_ms = int(jobs.submit_ms[-1])
    large = [sum(int(jobs.nodes[job]) >= LARGE for job in one.nodes) for one in (compact, first_fit)]
    emit(
        "topology-large-gangs", large[0], "starts", large[1], better="higher", at_least_nodes=LARGE,
        hours=round(last_ms / 3.6e6), note="as many as with first-fit and, on these starts, with Slurm's tree",
    )  # fmt: skip
    return 0


def stream(count: int, seed: int = 1) -> Jobs:
    """So many gangs, which arrive just fast enough for the load."""
    draw = np.random.default_rng(seed)
    nodes = np.exp(np.log(LEAST) + draw.random(count) * np.log((MOST + 1) / LEAST)).astype(np.int64)
    rounded = 2 ** np.round(np.log2(nodes)).astype(np.int64)
    nodes = np.where(draw.random(count) < 0.5, rounded, nodes).clip(LEAST, MOST)
    run_ms = (1_000 * draw.lognormal(8.0, 1.2, count)).astype(np.int64) + 1
    gap_ms = float(np.mean(nodes * run_ms)) / (LOAD * NODES)
    submit_ms = np.cumsum(draw.exponential(gap_ms, count)).astype(np.int64)
    return Jobs(nodes, submit_ms, run_ms, (run_ms * draw.uniform(1.0, 3.0, count)).astype(np.int64))


def path_of(node: int) -> tuple[str, ...]:
    """By level."""
    return tuple(f"{level}-{node // width}" for level, width in zip(LEVELS, WIDTHS, strict=True))


def run(jobs: Jobs, *, compact: bool, domains: str = SMALLEST) -> Ran:
    """The stream on the engine, until its last gang has arrived."""
    state = new_state(EngineConfig(backfill=Backfill.EASY, levels=LEVELS, compact=compact, domains=domains))
    capacity = {"cpu": 64_000}
    apply(
        state, NodesChanged(tuple(NodeSpec(f"n{node:05d}", capacity, domains=path_of(node)) for node in range(NODES)))
    )
    sizes, class_index = np.unique(jobs.nodes, return_inverse=True)
    classes = tuple(ClassSpec(capacity, nodes=int(size)) for size in sizes)
    owners = (OwnerSpec(),)
    count = len(jobs.nodes)
    submits = submit_rows(count)
    submits["job"] = np.arange(1, count + 1)
    submits["class_index"] = class_index
    submits["submit_ms"] = submits["eligible_ms"] = jobs.submit_ms
    submits["walltime_ms"] = jobs.walltime_ms
    ends = np.zeros(count, END)
    ends["job"], ends["attempt"] = np.arange(1, count + 1), 1
    ending: list[tuple[int, int]] = []
    order: list[tuple[bool, int]] = []
    nodes: dict[int, Ints] = {}
    refusals, arrived, wake_ms = 0, 0, INF
    decided_s = told_s = 0.0
    while arrived < count:
        arrives_ms = int(jobs.submit_ms[arrived])
        now_ms = min(arrives_ms, ending[0][0] if ending else INF, wake_ms)
        began = time.perf_counter()
        while ending and ending[0][0] == now_ms:
            job = heapq.heappop(ending)[1]
            apply(state, AttemptsEnded(ends[job : job + 1]))
            order.append((False, job))
        if arrives_ms == now_ms:
            apply(state, JobsSubmitted(submits[arrived : arrived + 1], classes, owners))
            arrived += 1
        told_s += time.perf_counter() - began
        plan = None
        while plan is None or plan.cursor is not None:
            began = time.perf_counter()
            plan = cycle(state, now_ms, cursor=plan.cursor if plan is not None else None)
            if plan.changes:
                apply(state, PlanAssumed(plan))
            decided_s += time.perf_counter() - began
            refusals += len(plan.verdicts)
            for job, at, width in plan.starts[["job", "row_offset", "row_count"]].tolist():
                nodes[job - 1] = plan.rows[at : at + width].copy()
                order.append((True, job - 1))
                heapq.heappush(ending, (now_ms + int(jobs.run_ms[job - 1]), job - 1))
        wake_ms = plan.wake_ms
    return Ran(order, nodes, refusals, decided_s, told_s)


def placed_by(tree: SlurmTree, jobs: Jobs, order: list[tuple[bool, int]]) -> dict[int, Ints]:
    """The nodes that each of these starts has in that tree."""
    found: dict[int, Ints] = {}
    for started, job in order:
        if not started:
            tree.give_back(found[job])
            continue
        chosen = tree.take(int(jobs.nodes[job]))
        assert chosen is not None, "nodes are alike, so what fits there fits here"
        found[job] = chosen
    return found


def mean_domains(nodes: dict[int, Ints], jobs: list[int], level: int) -> float:
    """Domains of a level that a job is on, on average."""
    return float(np.mean([len(np.unique(nodes[job] // WIDTHS[level])) for job in jobs]))


if __name__ == "__main__":
    sys.exit(main())
