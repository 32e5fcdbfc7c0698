"""A million waiting jobs of others change no start of jobs that share no nodes, ledger or account with them."""

from __future__ import annotations

import heapq
import random
from typing import Any, NamedTuple

import numpy as np
import pytest

from hal.core.engine import new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import END, INF, AttemptsEnded, JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.plan import Plan
from hal.core.engine.scheduler import Scheduler
from hal.core.model import Resources
from hal.core.model.policy import Account, Limit, Policy

LAST_MS = 10_000
ARRAYS = 10
"""Others' work in compressed form: so many arrays, half of all tasks; the other half are jobs of their own."""
NODES = tuple(NodeSpec(f"{rack}{k}", {"cpu": 4_000}, {"rack": rack}) for rack in "ab" for k in range(3))
POLICY = Policy(
    accounts={"mine": Account(name="mine"), "others": Account(name="others")},
    limits={"others": Limit(name="others", account="others", running=4, resources=Resources({"cpu": 12_000}))},
)


class Work(NamedTuple):
    """A job: when it comes, its kind, its limit and how long it runs."""

    submit: int
    kind: int
    limit: int
    run: int


def kinds(rack: str) -> tuple[ClassSpec, ...]:
    """What jobs of one rack ask for."""
    there = (Requirement("rack", Match.IN, (rack,)),)
    shapes = ((1, 1), (2, 1), (4, 1), (3, 2), (1, 2), (4, 3))
    return tuple(ClassSpec({"cpu": 1_000 * cpu}, gang, there) for cpu, gang in shapes)


class Cluster:
    """An engine whose attempts end by themselves; keeps when and where each of my jobs started."""

    def __init__(self, **config: Any) -> None:
        self.state = new_state(EngineConfig(policy=POLICY, claim_after_ms=INF, **config))
        self.scheduler = Scheduler(self.state, self)
        self.scheduler.feed(NodesChanged(NODES))
        self.now = 0
        self.mine: dict[int, Work] = {}
        self.ends: list[tuple[int, int, int]] = []
        self.started: dict[int, tuple[int, list[str]]] = {}
        self.others_started = 0

    def accept(self, plan: Plan) -> None:
        """A sink: my jobs run for as long as they do, those of others for five, whatever their limits."""
        for start in plan.starts:
            job, first = int(start["job"]), int(start["row_offset"])
            where = [self.state.node_name(row) for row in plan.rows[first : first + int(start["row_count"])].tolist()]
            run = 5
            if job in self.mine:
                run = self.mine[job].run
                self.started[job] = self.now, sorted(where)
            else:
                self.others_started += 1
            heapq.heappush(self.ends, (self.now + run, job, int(start["task"])))

    def crowd(self, count: int) -> None:
        """So many tasks of others wait from the beginning on: all limits differ, and come after mine by their ids."""
        alone = count // 2
        rows = submit_rows(alone + ARRAYS)
        rows["job"] = np.arange(1_000, 1_000 + rows.size)
        rows["tasks"][alone:] = (count - alone) // ARRAYS
        rows["class_index"] = np.arange(rows.size) % len(kinds("b"))
        rows["walltime_ms"] = 10 + np.arange(rows.size)
        rows["owner_index"] = np.arange(rows.size) % 200
        owners = tuple(OwnerSpec("default", "others", f"u{k}") for k in range(200))
        self.scheduler.feed(JobsSubmitted(rows, kinds("b"), owners))

    def play(self, jobs: dict[int, Work]) -> dict[int, tuple[int, list[str]]]:
        """Until all of them have started."""
        self.mine = jobs
        coming = sorted((work.submit, job) for job, work in jobs.items())
        wake = 0
        while len(self.started) < len(jobs):
            assert self.now < LAST_MS, f"jobs {set(jobs) - set(self.started)} have not started"
            gone = []
            while self.ends and self.ends[0][0] <= self.now:
                gone.append(heapq.heappop(self.ends)[1:])
            if gone:
                ended = np.zeros(len(gone), END)
                ended["job"], ended["task"] = np.array(gone).T
                ended["attempt"] = 1
                self.scheduler.feed(AttemptsEnded(ended))
            while coming and coming[0][0] <= self.now:
                job = coming.pop(0)[1]
                rows = submit_rows(1)
                rows["job"], rows["class_index"] = job, jobs[job].kind
                rows["walltime_ms"], rows["submit_ms"], rows["eligible_ms"] = jobs[job].limit, self.now, self.now
                self.scheduler.feed(JobsSubmitted(rows, kinds("a"), (OwnerSpec("default", "mine", "me"),)))
            wake = self.scheduler.run(self.now).wake_ms
            instants = [at for at, *_ in self.ends[:1]] + [at for at, _ in coming[:1]] + [wake]
            self.now = max(self.now + 1, min(instants))
        return self.started


def work(seed: int, count: int) -> dict[int, Work]:
    """Jobs that come a little faster than they can run."""
    chance = random.Random(seed)
    jobs = {}
    at = 0
    for job in range(1, count + 1):
        at += chance.randint(0, 6)
        limit = chance.randint(1, 20)
        jobs[job] = Work(at, chance.randrange(len(kinds("a"))), limit, chance.randint(1, limit))
    return jobs


def started_among(count: int, seed: int, mine: int, config: dict[str, Any]) -> None:
    """My jobs start when and where they do alone, whatever waits besides."""
    jobs = work(seed, mine)
    alone = Cluster(**config).play(jobs)
    crowded = Cluster(**config)
    crowded.crowd(count)
    assert crowded.play(jobs) == alone
    assert crowded.others_started > mine
    assert crowded.state.pending_tasks == count - crowded.others_started
    check_invariants(crowded.state)


CONFIGS = [
    {"backfill": Backfill.EASY},
    {"backfill": Backfill.TOP_K, "reservations": 3},
    {"backfill": Backfill.CONSERVATIVE, "max_reservations": 200},
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("order", ["priority", "fcfs"])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config["backfill"]))
def test_waiting_jobs_of_others_change_no_start(config: dict[str, Any], order: str, seed: int) -> None:
    """In the same queue, with accounts and a limit of their own, under fair-share and without."""
    started_among(2_000, seed, 150, {**config, "order": order})


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config["backfill"]))
def test_a_million_waiting_jobs_of_others_change_no_start(config: dict[str, Any]) -> None:
    """Half of them tasks of arrays, half jobs of their own with different limits, of 200 users."""
    started_among(1_000_000, 7, 50, {**config, "order": "priority"})
