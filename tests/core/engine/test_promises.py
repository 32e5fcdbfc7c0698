"""Every reserved job, not only the first in line: what it is promised can be kept, and no backfilled start moves it.

A line of jobs in front of a full cluster of unequal nodes: several resources, gangs, constraints, priorities, attempts
that end before their limit. Conservative is also compared with its definition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import apply, cycle, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    INF,
    AttemptsEnded,
    ClockAdvanced,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    PlanAssumed,
    submit_rows,
)
from hal.core.kernels.timelines.lines import FEW_NODES
from tests.core.engine.model_cluster import Cluster, Node, Task
from tests.core.engine.promise_judge import PromiseJudge, promised_now
from tests.examples import examples

NODES = (
    NodeSpec("a", {"cpu": 4, "memory": 8}, {"rack": "one"}),
    NodeSpec("b", {"cpu": 4, "memory": 2}, {"rack": "one"}),
    NodeSpec("c", {"cpu": 2, "memory": 8, "gpu": 2}, {"rack": "two"}),
    NodeSpec("d", {"cpu": 6, "memory": 4}, {"rack": "two"}),
)
KINDS = (
    ClassSpec({"cpu": 1}),
    ClassSpec({"cpu": 4}),
    ClassSpec({"cpu": 1, "memory": 6}),
    ClassSpec({"cpu": 1, "gpu": 1}),
    ClassSpec({"cpu": 2}, 2),
    ClassSpec({"cpu": 2}, 4),
    ClassSpec({"cpu": 1, "memory": 2}, 3),
    ClassSpec({"cpu": 3}, 1, (Requirement("rack", Match.IN, ("one",)),)),
    ClassSpec({"cpu": 2}, 2, (Requirement("rack", Match.IN, ("two",)),)),
)
WIDE_NODES = tuple(NodeSpec(f"{node.name}{k}", node.capacity, node.labels) for k in range(3) for node in NODES)
WIDE_KINDS = (*KINDS, ClassSpec({"cpu": 2}, 7), ClassSpec({"cpu": 4}, 5), ClassSpec({"cpu": 1}, 11))
LIMITS = (1, 2, 3, 4, 6, 8, 12, 16, 20)
MANY = 1 << 20
LAST_MS = 2_000


@dataclass(frozen=True)
class Work:
    """One job; it runs for `run` of the `limit` that it asked for."""

    submit: int
    kind: ClassSpec
    priority: int
    limit: int
    run: int

    def rank(self, number: int) -> tuple[int, int]:
        return -self.priority, number


def works(
    priorities: list[int],
    kinds: tuple[ClassSpec, ...] = KINDS,
    limits: tuple[int, ...] = (*LIMITS, INF),
    tasks: int = 30,
) -> st.SearchStrategy[list[Work]]:
    """Mostly submitted at once; one in ten names no limit."""
    one = st.tuples(
        st.sampled_from([0, 0, 0, 1, 3]),
        st.sampled_from(kinds),
        st.sampled_from(priorities),
        st.sampled_from(limits),
        st.integers(1, 20),
    )

    def timed(rows: list[tuple[int, ClassSpec, int, int, int]]) -> list[Work]:
        submits = np.cumsum([row[0] for row in rows]).tolist()
        return [
            Work(at, kind, rank, limit, min(run, limit))
            for at, (_, kind, rank, limit, run) in zip(submits, rows, strict=True)
        ]

    return st.lists(one, min_size=tasks // 5, max_size=tasks).map(timed)


class Replay:
    """The engine driven through the jobs, instant by instant; `cluster` is told what it starts."""

    def __init__(self, jobs: list[Work], config: EngineConfig, nodes: tuple[NodeSpec, ...] = NODES) -> None:
        self.jobs = jobs
        self.state = new_state(config)
        apply(self.state, NodesChanged(nodes))
        self.cluster = Cluster({node.name: Node(dict(node.capacity), dict(node.labels)) for node in nodes})
        self.started: dict[int, tuple[int, tuple[str, ...]]] = {}

    def run(self, after_pass: Callable[[dict[tuple[int, int], tuple[int, ...]], int], None]) -> None:
        """Until all have started; `after_pass` is told who could have started in the pass, and when it was."""
        for now in range(LAST_MS):
            gone = [k for k, (at, _) in self.started.items() if at + self.jobs[k].run == now]
            new = [k for k, job in enumerate(self.jobs) if job.submit == now]
            if gone:
                ends = np.zeros(len(gone), END)
                ends["job"], ends["attempt"] = gone, 1
                apply(self.state, AttemptsEnded(ends))
                for k in gone:
                    task = self.cluster.tasks[k, 0]
                    task.state, task.nodes = "ended", ()
            if new:
                self.submit(new, now)
            if gone or new:
                apply(self.state, ClockAdvanced(now))
                before = {name: self.jobs[name[0]].rank(name[0]) for name in self.waiting(now)}
                self.whole_pass(now)
                after_pass(before, now)
            if len(self.started) == len(self.jobs):
                return
        raise AssertionError(f"jobs {set(range(len(self.jobs))) - set(self.started)} have not started")

    def waiting(self, now: int) -> list[tuple[int, int]]:
        return [(task.job, task.task) for task in self.cluster.waiting(now)]

    def submit(self, numbers: list[int], now: int) -> None:
        rows = submit_rows(len(numbers))
        rows["job"] = numbers
        rows["class_index"] = [WIDE_KINDS.index(self.jobs[k].kind) for k in numbers]
        rows["priority"] = [self.jobs[k].priority for k in numbers]
        rows["submit_ms"] = rows["eligible_ms"] = now
        rows["walltime_ms"] = [self.jobs[k].limit for k in numbers]
        apply(self.state, JobsSubmitted(rows, WIDE_KINDS))
        for k in numbers:
            job = self.jobs[k]
            self.cluster.tasks[k, 0] = Task(
                *(k, 0, 1, dict(job.kind.request), job.kind.nodes, job.kind.constraints),
                *(job.priority, job.limit, now, False),
            )

    def whole_pass(self, now: int) -> None:
        cursor = None
        while True:
            plan = cycle(self.state, now, cursor=cursor)
            for start in plan.starts:
                first = int(start["row_offset"])
                rows = plan.rows[first : first + int(start["row_count"])].tolist()
                names = tuple(self.state.node_name(row) for row in rows)
                self.cluster.start(int(start["job"]), 0, int(start["attempt"]), names, now)
                self.started[int(start["job"])] = now, names
            if plan.changes:
                apply(self.state, PlanAssumed(plan))
            check_invariants(self.state)
            cursor = plan.cursor
            if cursor is None:
                return


@pytest.mark.parametrize("backfill", list(Backfill))
@given(
    jobs=works([0, 0, 0, 0, 3]),
    reservations=st.sampled_from([1, 2, 3, MANY, MANY]),
    slice_work=st.sampled_from([1, 20, MANY]),
    placement=st.sampled_from(["first-fit", "best-fit"]),
)
@settings(max_examples=examples(40), deadline=None)
def test_safety_no_backfilled_start_moves_what_any_job_was_promised(
    backfill: Backfill, jobs: list[Work], reservations: int, slice_work: int, placement: str
) -> None:
    """After every pass, of every job with a reservation: it can be kept, and it is no later than it was."""
    config = EngineConfig(
        backfill=backfill,
        reservations=reservations,
        max_reservations=reservations,
        slice_work=slice_work,
        placement=placement,
        claim_after_ms=INF,
    )
    replay, judge = Replay(jobs, config), PromiseJudge()

    def after_pass(before: dict[tuple[int, int], tuple[int, ...]], now: int) -> None:
        judge.after_pass(replay.state, replay.cluster, before, now, backfill)

    replay.run(after_pass)


@dataclass
class Definition:
    """Conservative by its definition, with compression, everything computed anew at each instant.

    Each job in turn gets the earliest place that is left and keeps it. When an attempt ends, each that could use one of
    its nodes gives up its place in turn for one that is earlier in time. Work that comes in ahead of others takes its
    place first, and those behind it that compete with it are placed anew. A place later on takes the nodes that come
    free latest, the last of those; a start takes nodes that are promised to others from its end on, then unpromised
    ones, then what is left, the first of each.
    """

    jobs: list[Work]
    nodes: tuple[NodeSpec, ...] = NODES

    def run(self) -> dict[int, tuple[int, tuple[str, ...]]]:
        started: dict[int, tuple[int, tuple[str, ...]]] = {}
        places: dict[int, tuple[int, tuple[str, ...]]] = {}
        for now in range(LAST_MS):
            new = [k for k, job in enumerate(self.jobs) if job.submit == now]
            ended = {name for k, (at, names) in started.items() if at + self.jobs[k].run == now for name in names}
            for k in [
                k for k in places if any(self.rank(n) < self.rank(k) and self.reach(n) & self.reach(k) for n in new)
            ]:
                del places[k]
            line = [k for k, job in enumerate(self.jobs) if job.submit <= now and k not in started]
            for k in sorted(line, key=self.rank):
                if k in places and not ended & self.reach(k):
                    continue
                kept = places.pop(k, None)
                running = {r: where for r, where in started.items() if where[0] + self.jobs[r].run > now}
                at, names = self.earliest(k, now, [*running.items(), *places.items()], list(places.items()))
                if kept is not None and now < kept[0] <= at:
                    at, names = kept
                if at == now:
                    started[k] = at, names
                else:
                    places[k] = at, names
            if len(started) == len(self.jobs):
                break
        return started

    def rank(self, k: int) -> tuple[int, int]:
        return self.jobs[k].rank(k)

    def reach(self, k: int) -> set[str]:
        """The nodes that could hold it when empty."""
        kind = self.jobs[k].kind
        return {
            node.name
            for node in self.nodes
            if all(part.holds(node.labels) for part in kind.constraints)
            and all(node.capacity.get(name, 0) >= amount for name, amount in kind.request.items())
        }

    def earliest(self, k: int, now: int, taken: list[Any], places: list[Any]) -> tuple[int, tuple[str, ...]]:
        """`taken`: who holds which nodes from when on, each for its whole limit; `places`: those that wait."""
        kind, limit = self.jobs[k].kind, self.jobs[k].limit
        spans = [(at, min(at + self.jobs[o].limit, INF), names, self.jobs[o].kind) for o, (at, names) in taken]
        edges = sorted({now, *(edge for begin, end, *_ in spans for edge in (begin, end) if now < edge < INF)})

        def holds(node: NodeSpec, instant: int) -> bool:
            used = [
                other.request for begin, end, names, other in spans if node.name in names and begin <= instant < end
            ]
            return all(
                amount + sum(request.get(name, 0) for request in used) <= node.capacity.get(name, 0)
                for name, amount in kind.request.items()
            )

        for at in edges:
            during = [at, *(edge for edge in edges if at < edge < at + limit)]
            fits = [
                node.name
                for node in self.nodes
                if all(part.holds(node.labels) for part in kind.constraints) and all(holds(node, t) for t in during)
            ]
            if len(fits) >= kind.nodes:
                if at == now:
                    return at, tuple(sorted(fits, key=lambda name: self.tier(name, now + limit, places))[: kind.nodes])
                since = {}
                for node in self.nodes:
                    if node.name in fits:
                        busy = [edge for edge in edges if edge < at and not holds(node, edge)]
                        since[node.name] = next((edge for edge in edges if busy and edge > busy[-1]), -1)
                fits.reverse()
                return at, tuple(sorted(fits, key=lambda name: -since[name])[: kind.nodes])
        return INF, ()

    def tier(self, name: str, end: int, places: list[Any]) -> int:
        """First nodes that are promised from `end` on or later, then unpromised ones."""
        starts = [at for _, (at, names) in places if name in names]
        return 1 if not starts else 0 if min(starts) >= end else 2


@given(jobs=works([0, 0, 0, 0, 3]), slice_work=st.sampled_from([1, 20, MANY]), parking=st.booleans())
@settings(max_examples=examples(80), deadline=None)
def test_conservative_places_gangs_as_its_definition_does(jobs: list[Work], slice_work: int, parking: bool) -> None:
    """The same starts on the same nodes, whatever the slices, with or without parking."""
    config = EngineConfig(backfill=Backfill.CONSERVATIVE, slice_work=slice_work, parking=parking, claim_after_ms=INF)
    replay = Replay(jobs, config)
    replay.run(lambda before, now: None)
    expected = Definition(jobs).run()
    assert {k: (at, set(names)) for k, (at, names) in replay.started.items()} == {
        k: (at, set(names)) for k, (at, names) in expected.items()
    }


@pytest.mark.slow
@given(
    jobs=works([0, 0, 0, 0, 3], WIDE_KINDS, LIMITS, tasks=60),
    slice_work=st.sampled_from([1, 20, MANY]),
    parking=st.booleans(),
)
@settings(max_examples=examples(40), deadline=None)
def test_conservative_places_gangs_on_many_nodes_as_its_definition_does(
    jobs: list[Work], slice_work: int, parking: bool
) -> None:
    """The same on so many nodes that for each kind of job it is kept when each of them comes to hold it."""
    assert len(WIDE_NODES) > FEW_NODES
    config = EngineConfig(backfill=Backfill.CONSERVATIVE, slice_work=slice_work, parking=parking, claim_after_ms=INF)
    replay = Replay(jobs, config, WIDE_NODES)
    replay.run(lambda before, now: None)
    expected = Definition(jobs, WIDE_NODES).run()
    assert {k: (at, set(names)) for k, (at, names) in replay.started.items()} == {
        k: (at, set(names)) for k, (at, names) in expected.items()
    }


def promised_after_early_ends(ending: list[int], waiting: list[tuple[ClassSpec, int]]) -> list[tuple[int, list[str]]]:
    """What is promised to whom still waits when attempts of full nodes have ended early: instants and nodes.

    `ending`: planned ends by node, those at MANY end at 10; `waiting`: kind and limit.
    """
    nodes = tuple(NodeSpec(f"n{k}", {"cpu": 4}) for k in range(len(ending)))
    jobs = [Work(0, KINDS[1], 0, limit, 10 if limit == MANY else limit) for limit in ending]
    jobs += [Work(0, kind, 0, limit, limit) for kind, limit in waiting]
    replay = Replay(jobs, EngineConfig(backfill=Backfill.CONSERVATIVE), nodes)
    promised: list[tuple[int, list[str]]] = []

    def after_pass(before: dict[tuple[int, int], tuple[int, ...]], now: int) -> None:
        if now == 10:
            promised.extend((one.start_ms, sorted(one.nodes)) for one in promised_now(replay.state, replay.cluster))

    replay.run(after_pass)
    return promised


def test_a_promise_moves_to_the_last_of_the_nodes_that_come_free_a_millisecond_before_it() -> None:
    """A gang leaves nodes 0-4 at 100 for nodes 5-9 now; who was promised node 10 at 101 moves to node 4."""
    ending = [100] * 5 + [MANY] * 5 + [101] + [400] * 19
    assert promised_after_early_ends(ending, [(WIDE_KINDS[-2], 200), (KINDS[1], 50)]) == [(100, ["n4"])]


def test_a_promise_moves_on_its_own_node_when_who_was_before_it_there_leaves() -> None:
    """The first leaves node 0 at 100-250 for node 5 now; the second, there at 250 for 200, moves to 100."""
    ending = [100] + [500] * 4 + [MANY] + [500] * 6
    assert promised_after_early_ends(ending, [(KINDS[1], 150), (KINDS[1], 200)]) == [(100, ["n0"])]
