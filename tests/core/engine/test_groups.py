"""Jobs with several groups of nodes: all of them start in one cycle or none does, and no backfill delays them.

A plain judge computes when all groups could start together: it tries every release, and matches nodes to groups one by
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hal.core.engine import State
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Liking, Match, OwnerSpec, Preference, Requirement, Term, grouped
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    INF,
    AttemptsEnded,
    Health,
    JobsCancelled,
    JobsHeld,
    JobsReleased,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    StartsRefused,
    submit_rows,
)
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import reservations, rows_of_run, running
from hal.core.engine.why.explain import explain
from hal.core.kernels.structures import layout as L
from hal.core.model.policy import Limit, Policy, PreemptMode, Qos
from hal.core.model.resources import Resources
from hal.core.model.verdict import Reason
from tests.core.engine.clusters import ended, engine, job, matched
from tests.examples import examples

Part = tuple[dict[str, int], int]
"""What each node of a group gives, and how many nodes it has."""
DRIVER: Part = ({"cpu": 1000}, 1)
GPU_NODES = [NodeSpec(f"g{at}", {"cpu": 8000, "gpu": 4000}, {"kind": "gpu"}) for at in range(3)]
CPU_NODES = [NodeSpec(f"c{at}", {"cpu": 4000}) for at in range(2)]
RACKS = {"c0": "r1", "g0": "r1", "g1": "r1", "c1": "r2", "g2": "r2", "big": ""}


def in_racks(nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
    """The same nodes, each in its rack."""
    return [replace(node, domains=(RACKS[node.name],)) for node in nodes]


def with_groups(number: int, parts: Sequence[Part | ClassSpec], within: str = "", **columns: Any) -> JobsSubmitted:
    """A job of these groups."""
    classes = grouped(
        [
            part if isinstance(part, ClassSpec) else ClassSpec(part[0], part[1], within=within, group=f"group{at}")
            for at, part in enumerate(parts)
        ]
    )
    rows = submit_rows(len(classes))
    rows["job"], rows["first_task"], rows["class_index"] = number, range(len(classes)), range(len(classes))
    for name, value in columns.items():
        rows[name] = value
    return JobsSubmitted(rows, classes)


def all_ended(*attempts: tuple[int, int, int], requeue: bool = False) -> AttemptsEnded:
    """These (job, task, attempt) ended."""
    return AttemptsEnded(np.array([(*one, int(requeue), 0, 0, 0) for one in attempts], END))


def where(state: State) -> dict[tuple[int, int], list[str]]:
    """The nodes of each running attempt, by job and group."""
    return {
        (int(run["job"]), int(run["task"])): [state.node_name(row) for row in rows_of_run(state, int(run["run"]))]
        for run in running(state)
    }


def reserved_at(state: State, number: int) -> set[int]:
    """The instants at which a job's groups are reserved nodes."""
    return {int(one["start_ms"]) for one in reservations(state) if one["job"] == number}


def test_all_groups_start_together() -> None:
    """A driver and three GPU nodes start in one step, on nodes of their own, each in its group."""
    state, _, scheduler = engine(EngineConfig(), *CPU_NODES, *GPU_NODES)
    scheduler.feed(with_groups(1, [DRIVER, ({"cpu": 4000, "gpu": 4000}, 3)]))
    scheduler.run(0)
    assert where(state) == {(1, 0): ["c0"], (1, 1): ["g0", "g1", "g2"]}


@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_group_job_waits_for_its_instant_and_a_short_filler_passes(backfill: Backfill) -> None:
    """GPU nodes come free at 10 s, the CPU node at 20 s. Whatever the backfill, nothing starts before; where there is
    backfill, a filler of 9 s runs on the GPU node meanwhile, and one of 11 s does not."""
    state, _, scheduler = engine(EngineConfig(backfill=backfill), CPU_NODES[0], GPU_NODES[0])
    gpu = (Requirement("kind", Match.IN, ("gpu",)),)
    scheduler.feed(job(1, 8000, constraints=gpu, walltime_ms=10_000))
    scheduler.feed(job(2, 4000, walltime_ms=20_000))
    scheduler.run(0)
    scheduler.feed(with_groups(3, [({"cpu": 4000}, 1), ({"gpu": 4000, "cpu": 8000}, 1)], walltime_ms=5_000))
    scheduler.run(0)
    scheduler.feed(ended(1))
    scheduler.feed(job(4, 8000, walltime_ms=11_000))
    scheduler.feed(job(5, 8000, walltime_ms=9_000))
    scheduler.run(10_000)
    assert set(where(state)) == ({(2, 0)} if backfill is Backfill.NONE else {(2, 0), (5, 0)})
    scheduler.feed(ended(2) if backfill is Backfill.NONE else ended(2, 5))
    scheduler.run(19_000)
    assert {(3, 0), (3, 1)} <= set(where(state))


def test_a_job_that_comes_later_is_planned_around_all_groups() -> None:
    """Conservative: groups are reserved 10 s to 15 s on both nodes, so a gang of both, of 20 s, is reserved 15 s."""
    state, _, scheduler = engine(EngineConfig(backfill=Backfill.CONSERVATIVE), CPU_NODES[0], GPU_NODES[0])
    scheduler.feed(job(1, 8000, walltime_ms=10_000))
    scheduler.run(0)
    scheduler.feed(with_groups(2, [({"cpu": 4000}, 1), ({"gpu": 1000}, 1), ({"cpu": 1}, 1)], walltime_ms=5_000))
    scheduler.feed(with_groups(3, [({"cpu": 4000}, 1), ({"gpu": 1000, "cpu": 8000}, 1)], walltime_ms=5_000))
    scheduler.feed(job(4, 4000, gang=2, walltime_ms=20_000))
    scheduler.run(0)
    assert reserved_at(state, 2) == set()  # three nodes of two: nobody waits for it
    assert reserved_at(state, 3) == {10_000}
    assert reserved_at(state, 4) == {15_000}


def test_what_ranks_before_moves_the_reservations_of_all_groups() -> None:
    """Better work that needs the GPU node alone takes its time: both groups are reserved later, at one instant."""
    state, _, scheduler = engine(
        EngineConfig(order="priority", backfill=Backfill.CONSERVATIVE), CPU_NODES[0], GPU_NODES[0]
    )
    scheduler.feed(job(1, 8000, walltime_ms=10_000))
    scheduler.run(0)
    scheduler.feed(with_groups(2, [({"cpu": 4000}, 1), ({"gpu": 1000, "cpu": 8000}, 1)], walltime_ms=5_000))
    scheduler.run(0)
    assert reserved_at(state, 2) == {10_000}
    scheduler.feed(job(3, 8000, walltime_ms=30_000, priority=5))
    scheduler.run(1)
    assert (reserved_at(state, 3), reserved_at(state, 2)) == ({10_000}, {40_000})


@pytest.mark.parametrize("backfill", list(Backfill))
def test_all_groups_are_in_one_domain(backfill: Backfill) -> None:
    """A driver and two GPU nodes of one rack: only r1 has them, when its GPU nodes are free."""
    state, _, scheduler = engine(EngineConfig(backfill=backfill, levels=("rack",)), *in_racks([*CPU_NODES, *GPU_NODES]))
    scheduler.feed(job(1, 8000, gang=3, walltime_ms=10_000))
    scheduler.run(0)
    scheduler.feed(with_groups(3, [({"cpu": 4000}, 1), ({"gpu": 4000, "cpu": 1}, 2)], "rack", walltime_ms=5_000))
    scheduler.run(0)
    verdict = explain(state, 3, 0)
    assert verdict.reason is Reason.RESOURCES
    if backfill is not Backfill.NONE:
        assert reserved_at(state, 3) == {10_000}
    scheduler.feed(ended(1))
    scheduler.run(10_000)
    assert where(state) == {(3, 0): ["c0"], (3, 1): ["g0", "g1"]}


def test_groups_that_no_domain_could_hold_are_told_so() -> None:
    """Three GPU nodes of one rack: there are two at most."""
    state, _, scheduler = engine(EngineConfig(levels=("rack",)), *in_racks([*CPU_NODES, *GPU_NODES]))
    scheduler.feed(with_groups(1, [DRIVER, ({"gpu": 4000}, 1), ({"gpu": 1000}, 2)], "rack"))
    scheduler.run(0)
    assert not where(state)
    verdict = explain(state, 1, 0)
    assert verdict.reason is Reason.IMPOSSIBLE
    assert "all 3 groups are to be in one rack, and no rack could hold all of them" in verdict.message
    assert "until enough such nodes of one rack join" in verdict.message


def test_none_starts_where_one_group_lacks_a_node() -> None:
    """With one of three GPU nodes taken, the driver waits, too, though its own node is free."""
    state, _, scheduler = engine(EngineConfig(), *CPU_NODES, *GPU_NODES)
    scheduler.feed(job(1, 8000))
    scheduler.feed(with_groups(2, [DRIVER, ({"cpu": 4000, "gpu": 4000}, 3)]))
    scheduler.run(0)
    assert set(where(state)) == {(1, 0)}
    verdict = explain(state, 2, 0)
    assert verdict.reason is Reason.RESOURCES
    assert "group group1 lacks 1 of 3 nodes" in verdict.message


def test_a_group_leaves_another_the_nodes_that_only_it_can_use() -> None:
    """The driver would fit first on the GPU node; there the second group alone fits, so the driver goes elsewhere."""
    state, _, scheduler = engine(EngineConfig(), GPU_NODES[0], CPU_NODES[0])
    scheduler.feed(with_groups(1, [DRIVER, ({"gpu": 1000}, 1)]))
    scheduler.run(0)
    assert where(state) == {(1, 0): ["c0"], (1, 1): ["g0"]}


def test_the_reservation_is_of_the_instant_at_which_all_groups_fit() -> None:
    """GPU nodes come free at 10 s and the CPU node at 20 s: all groups are reserved for 20 s, a filler until then runs
    on the GPU node, a longer one does not."""
    state, _, scheduler = engine(EngineConfig(), CPU_NODES[0], GPU_NODES[0])
    gpu = (Requirement("kind", Match.IN, ("gpu",)),)
    scheduler.feed(job(1, 8000, constraints=gpu, walltime_ms=10_000))
    scheduler.feed(job(2, 4000, walltime_ms=20_000))
    scheduler.run(0)
    scheduler.feed(with_groups(3, [({"cpu": 4000}, 1), ({"gpu": 4000, "cpu": 8000}, 1)], walltime_ms=5_000))
    scheduler.run(0)
    assert reserved_at(state, 3) == {20_000}
    scheduler.feed(ended(1))
    scheduler.feed(job(4, 8000, walltime_ms=11_000))
    scheduler.feed(job(5, 8000, walltime_ms=9_000))
    scheduler.run(10_000)
    assert set(where(state)) == {(2, 0), (5, 0)}
    scheduler.feed(ended(2, 5))
    scheduler.run(19_000)
    assert {(3, 0), (3, 1)} <= set(where(state))


def test_groups_that_never_fit_together_keep_nobody_waiting() -> None:
    """Two groups need the only GPU node: the job is told so, and what comes after it gets the reservation."""
    state, _, scheduler = engine(EngineConfig(), GPU_NODES[0], CPU_NODES[0])
    scheduler.feed(with_groups(1, [({"gpu": 1000}, 1), ({"gpu": 1000}, 1)]))
    scheduler.feed(job(2, 4000, gang=2, walltime_ms=1_000))
    scheduler.run(0)
    scheduler.feed(job(3, 4000, gang=2, walltime_ms=1_000))
    scheduler.run(0)
    assert set(where(state)) == {(2, 0)}
    assert reserved_at(state, 3) == {1_000}
    verdict = explain(state, 1, 0)
    assert verdict.reason is Reason.IMPOSSIBLE
    assert "groups group0, group1: 2 distinct nodes asked for together; 1 could hold one of them" in verdict.message


def test_a_limit_counts_the_amounts_of_all_groups_and_one_task() -> None:
    """A limit of 9 cores holds 1 + 2 x 4, and not one core more; a limit of one task is one job."""
    policy = Policy(limits={"all": Limit(name="all", resources=Resources({"cpu": 9000}), running=1)})
    parts = [DRIVER, ({"cpu": 4000}, 2)]
    state, _, scheduler = engine(EngineConfig(order="priority", policy=policy), *CPU_NODES, *GPU_NODES)
    scheduler.feed(with_groups(1, parts))
    scheduler.feed(with_groups(2, parts))
    scheduler.run(0)
    assert set(where(state)) == {(1, 0), (1, 1)}
    assert explain(state, 2, 0).reason is Reason.LIMIT
    state, _, scheduler = engine(EngineConfig(order="priority", policy=policy), *CPU_NODES, *GPU_NODES)
    scheduler.feed(with_groups(1, [({"cpu": 2000}, 1), ({"cpu": 4000}, 2)]))
    scheduler.run(0)
    assert not where(state)
    verdict = explain(state, 1, 0)
    assert (verdict.reason, verdict.asked) == (Reason.LIMIT, 10_000)


def test_refused_and_requeued_groups_wait_together_and_start_again_together() -> None:
    """A refused start, and an attempt that is requeued, take all groups back; the job starts again as a whole."""
    state, sink, scheduler = engine(EngineConfig(), *CPU_NODES, *GPU_NODES)
    scheduler.feed(with_groups(1, [DRIVER, ({"gpu": 4000}, 3)]))
    scheduler.run(0)
    scheduler.feed(StartsRefused(sink.plans[0].starts, new_attempt=True))
    check_invariants(state)
    assert not where(state)
    scheduler.run(0)
    scheduler.feed(all_ended((1, 0, 2), (1, 1, 2), requeue=True))
    check_invariants(state)
    scheduler.run(1_000)
    assert set(where(state)) == {(1, 0), (1, 1)}
    assert {int(run["attempt"]) for run in running(state)} == {3}


def test_groups_leave_together_when_one_is_preempted() -> None:
    """Urgent work needs the node of one group: the other group is told to leave as well, and is not suspended."""
    policy = Policy(
        qos={
            "high": Qos(name="high", preempts=("low",)),
            "low": Qos(name="low", preempt_mode=PreemptMode.SUSPEND),
        }
    )
    _, sink, scheduler = engine(EngineConfig(order="priority", policy=policy, min_run_ms=0), *CPU_NODES, *GPU_NODES)
    block = with_groups(1, [DRIVER, ({"cpu": 8000}, 3)])
    scheduler.feed(JobsSubmitted(block.rows, block.classes, (OwnerSpec(qos="low"),)))
    scheduler.run(0)
    rows = submit_rows(1)
    rows["job"] = 2
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 8000}),), (OwnerSpec(qos="high"),)))
    scheduler.run(1_000)
    told = [
        (int(move["job"]), int(move["task"]), int(move["mode"])) for plan in sink.plans for move in plan.preemptions
    ]
    assert told == [(1, 0, L.MODE_REQUEUE), (1, 1, L.MODE_REQUEUE)]


# --- against a plain judge -------------------------------------------------------------------------------------------


class Judge:
    """What runs where and until when, as nodes, amounts and ends; it decides nothing."""

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.jobs: dict[int, list[Part]] = {}
        self.walltime: dict[int, int] = {}
        self.within: set[int] = set()
        """Jobs whose nodes are all in one rack."""

    def check(self, state: State, now: int) -> None:
        """Nothing is half-started or over-packed, and the first group job's reservation is when all its groups fit."""
        runs = running(state)
        found = where(state)
        for number, parts in self.jobs.items():
            mine = sorted(task for one, task in found if one == number)
            assert mine in ([], list(range(len(parts)))), f"job {number} is half-started"
            on = [node for task in mine for node in found[number, task]]
            assert len(set(on)) == len(on), f"groups of job {number} share a node"
            if number in self.within and on:
                assert len({RACKS[node] for node in on}) == 1
                assert RACKS[on[0]]
            for task in mine:
                assert len(found[number, task]) == parts[task][1]
        self._free_at(runs, found, now)  # raises where a node is over-packed
        if state.keeps_timelines:
            self._check_plan(state, runs, found, now)
            return
        for number in {int(one["job"]) for one in reservations(state) if one["kind"] == L.KIND_RESERVED}:
            if len(self.jobs[number]) > 1:
                assert reserved_at(state, number) == {self._earliest(state, runs, found, number, now)}

    def _free_at(self, runs: Any, found: dict[tuple[int, int], list[str]], at: int) -> dict[str, dict[str, int]]:
        free = {name: dict(node.capacity) for name, node in self.nodes.items()}
        for run in runs:
            number, task = int(run["job"]), int(run["task"])
            if int(run["start_ms"]) + self.walltime[number] <= at:
                continue
            for name in found[number, task]:
                for resource, amount in self.jobs[number][task][0].items():
                    free[name][resource] = free[name].get(resource, 0) - amount
        assert all(amount >= 0 for amounts in free.values() for amount in amounts.values())
        return free

    def _check_plan(self, state: State, runs: Any, found: dict[tuple[int, int], list[str]], now: int) -> None:
        """All groups of a job are reserved the same instant or none is, on nodes of their own, and no plan over-packs
        any node."""
        for number in {int(one["job"]) for one in reservations(state) if one["kind"] != L.KIND_NEVER}:
            mine = [one for one in reservations(state) if one["job"] == number]
            assert len({(int(one["start_ms"]), int(one["kind"])) for one in mine}) == 1
            on = [name for one in mine for name in self._nodes_of(state, one)]
            assert len(set(on)) == len(on) == sum(nodes for _, nodes in self.jobs[number])
            assert number not in self.within or len({RACKS[name] for name in on}) == 1
            assert [len(self._nodes_of(state, one)) for one in mine] == [nodes for _, nodes in self.jobs[number]]
        uses = self._uses(state, runs, found)
        for at in {now, *(use[1] for use in uses)}:
            for name, node in self.nodes.items():
                self._left(name, node, uses, at, now)

    def _uses(self, state: State, runs: Any, found: dict[tuple[int, int], list[str]]) -> list[tuple[Any, ...]]:
        """Who takes what of which node, from when until when: what runs, and what is reserved."""
        uses: list[tuple[Any, ...]] = []
        for run in runs:
            number, task = int(run["job"]), int(run["task"])
            end = int(run["start_ms"]) + self.walltime[number]
            uses += [(name, int(run["start_ms"]), end, self.jobs[number][task][0]) for name in found[number, task]]
        seen: dict[int, int] = {}
        for one in reservations(state):
            number = int(one["job"])
            task = seen[number] = seen.get(number, -1) + 1
            if one["kind"] == L.KIND_RESERVED:
                begin = int(one["start_ms"])
                request = self.jobs[number][task][0]
                uses += [
                    (name, begin, begin + self.walltime[number], request, number) for name in self._nodes_of(state, one)
                ]
        return uses

    @staticmethod
    def _left(name: str, node: NodeSpec, uses: list[tuple[Any, ...]], at: int, now: int) -> dict[str, int]:
        free = dict(node.capacity)
        for use in uses:
            if use[0] == name and use[1] <= at < use[2]:
                for resource, amount in use[3].items():
                    free[resource] = free.get(resource, 0) - amount
        assert node.health is not Health.UP or at <= now or all(amount >= 0 for amount in free.values())
        return free

    def earliest_beside(self, state: State, number: int, now: int) -> int:
        """When all its groups fit for its whole walltime, beside what runs and what others are reserved: every instant
        at which something ends is tried."""
        uses = [use for use in self._uses(state, running(state), where(state)) if use[4:] != (number,)]
        walltime = self.walltime[number]
        edges = sorted({now, *(use[1] for use in uses), *(use[2] for use in uses)})
        for at in (edge for edge in edges if edge >= now):
            inside = [edge for edge in edges if at <= edge < at + walltime]
            free: dict[str, dict[str, int]] = {}
            for name, node in self.nodes.items():
                left = [self._left(name, node, uses, edge, now) for edge in inside]
                free[name] = {resource: min(one.get(resource, 0) for one in left) for resource in ("cpu", "gpu")}
            if self._matches(number, free):
                return at
        return INF

    def _earliest(self, state: State, runs: Any, found: dict[tuple[int, int], list[str]], number: int, now: int) -> int:
        others = {name for one in reservations(state) if one["job"] != number for name in self._nodes_of(state, one)}
        ends = sorted({int(run["start_ms"]) + self.walltime[int(run["job"])] for run in runs})
        for at in [now, *(end for end in ends if end > now)]:
            free = self._free_at(runs, found, at)
            if self._matches(number, {name: free[name] for name in free if name not in others}):
                return at
        return INF

    @staticmethod
    def _nodes_of(state: State, reservation: Any) -> list[str]:
        first = int(reservation["row_offset"])
        rows = state.work.reserved[first : first + int(reservation["row_count"]), L.Q_NODE].tolist()
        return [state.node_name(row) for row in rows]

    def _matches(self, number: int, free: dict[str, dict[str, int]]) -> bool:
        """Whether each node that the groups ask for can be another one, in some rack if they are to be in one."""
        if number not in self.within:
            return self._matches_in(number, free)
        racks = {RACKS[name] for name in free} - {""}
        return any(
            self._matches_in(number, {name: free[name] for name in free if RACKS[name] == rack}) for rack in racks
        )

    def _matches_in(self, number: int, free: dict[str, dict[str, int]]) -> bool:
        """The same on these nodes: augmenting paths, one node at a time."""
        wanted = [request for request, nodes in self.jobs[number] for _ in range(nodes)]
        taken: dict[str, int] = {}

        def place(at: int, tried: set[str]) -> bool:
            for name, amounts in free.items():
                up = self.nodes[name].health is Health.UP
                if name in tried or not up or any(amounts.get(r, 0) < asked for r, asked in wanted[at].items()):
                    continue
                tried.add(name)
                if name not in taken or place(taken[name], tried):
                    taken[name] = at
                    return True
            return False

        return all(place(at, set()) for at in range(len(wanted)))

    def could_ever(self, number: int) -> bool:
        """Whether the nodes that are up hold it when they are empty."""
        return self._matches(number, {name: dict(node.capacity) for name, node in self.nodes.items()})


REQUESTS = [{"cpu": 1000}, {"cpu": 4000}, {"cpu": 2000, "gpu": 1000}, {"gpu": 4000, "cpu": 1000}, {"cpu": 8000}]
PARTS = st.tuples(st.sampled_from(REQUESTS), st.integers(1, 3))
JOBS = st.tuples(
    st.one_of(st.lists(PARTS, min_size=1, max_size=1), st.lists(PARTS, min_size=2, max_size=4)),
    st.sampled_from([1_000, 2_000, 3_000, 5_000, 10_000, 40_000]),
    st.integers(0, 2),
    st.sampled_from([False, False, True]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), JOBS),
        st.tuples(st.just("submit"), JOBS),
        st.tuples(st.just("wait"), st.sampled_from([500, 1_000, 4_000])),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("requeue"), st.integers(0, 20)),
        st.tuples(st.just("cancel"), st.integers(0, 20)),
        st.tuples(st.just("hold"), st.integers(0, 20)),
        st.tuples(st.just("release"), st.integers(0, 20)),
        st.tuples(st.just("close"), st.integers(0, 5)),
        st.tuples(st.just("open"), st.integers(0, 5)),
    ),
    max_size=30,
)


BUSY_PARTS = st.tuples(st.sampled_from(REQUESTS[1:]), st.integers(1, 3))
BUSY_JOBS = st.tuples(
    st.one_of(
        st.lists(BUSY_PARTS, min_size=1, max_size=1),
        st.lists(BUSY_PARTS, min_size=2, max_size=3),
        st.lists(BUSY_PARTS, min_size=2, max_size=3),
    ),
    st.sampled_from([2_000, 5_000, 10_000, 40_000]),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([False, False, True]),
)
BUSY_STEPS = st.tuples(st.lists(st.tuples(st.just("submit"), BUSY_JOBS), min_size=5, max_size=12), STEPS).map(
    lambda both: both[0] + both[1][:15]
)
"""The cluster is full before anything else happens."""


class World:
    """Engines side by side on the same events, and the judge."""

    def __init__(self, backfill: Backfill, placement: str, slice_work: int, most: int = 10) -> None:
        nodes = in_racks([*CPU_NODES, *GPU_NODES, NodeSpec("big", {"cpu": 16_000})])
        common: dict[str, Any] = {
            "backfill": backfill, "placement": placement, "reservations": most, "levels": ("rack",), "compact": False
        }  # fmt: skip
        configs = (
            EngineConfig(**common),
            EngineConfig(**common, parking=False),
            EngineConfig(**common, slice_work=slice_work),
        )
        made = [engine(config, *nodes) for config in configs]
        self.states = [state for state, _, _ in made]
        self.schedulers: list[Scheduler] = [scheduler for _, _, scheduler in made]
        self.judge = Judge(nodes)
        self.attempts: dict[int, int] = {}
        self.held: set[int] = set()
        self.now = 0

    def feed(self, event: Any) -> None:
        """All engines get an event, and plan."""
        for scheduler in self.schedulers:
            scheduler.feed(event)

    def settle(self) -> None:
        """All engines plan: they start the same, and the judge agrees."""
        for scheduler in self.schedulers:
            scheduler.run(self.now, most_slices=10_000)
        first = where(self.states[0])
        for state in self.states:
            check_invariants(state)
            assert where(state) == first
        self.judge.check(self.states[0], self.now)

    def running(self) -> list[int]:
        """Jobs that run."""
        return sorted({number for number, _ in where(self.states[0])})

    def running_of(self, number: int) -> bool:
        """Whether a job runs."""
        return number in self.running()

    def end(self, number: int, *, requeue: bool = False) -> None:
        """All groups of a job end."""
        parts = self.judge.jobs[number]
        attempt = {int(run["attempt"]) for run in running(self.states[0]) if run["job"] == number}.pop()
        self.feed(all_ended(*((number, task, attempt) for task in range(len(parts))), requeue=requeue))
        if not requeue:
            self.attempts.pop(number)

    def advance(self, until: int) -> None:
        """Time passes; what reaches its walltime ends."""
        while True:
            starts = {int(run["job"]): int(run["start_ms"]) for run in running(self.states[0])}
            ends = {number: start + self.judge.walltime[number] for number, start in starts.items()}
            at = min([until, *ends.values()])
            self.now = max(at, self.now)
            due = [number for number, end in ends.items() if end <= self.now]
            for number in due:
                self.end(number)
            self.settle()
            if not due and at >= until:
                return

    def step(self, what: str, value: Any) -> None:
        """One step of a plan."""
        waiting = sorted(set(self.attempts) - set(self.running()))
        runs = self.running()
        if what == "submit":
            number = len(self.judge.jobs) + 1
            parts, walltime, priority, together = value
            if together and (len(parts) > 1 or parts[0][1] > 1):
                self.judge.within.add(number)
            within = "rack" if number in self.judge.within else ""
            self.judge.jobs[number], self.judge.walltime[number] = parts, walltime
            self.attempts[number] = 1
            columns = {"walltime_ms": walltime, "priority": priority, "submit_ms": self.now}
            self.feed(
                with_groups(number, parts, within, **columns)
                if len(parts) > 1
                else JobsSubmitted(with_groups(number, parts, **columns).rows, (ClassSpec(*parts[0], within=within),))
            )
            if priority == 0 and self.states[0].keeps_timelines:
                self.settle()
                found = reserved_at(self.states[0], number)
                if found and not self.running_of(number) and min(found) >= 0:
                    assert found == {self.judge.earliest_beside(self.states[0], number, self.now)}
        elif what == "wait":
            self.advance(self.now + value)
        elif what in ("end", "requeue") and runs:
            self.end(runs[value % len(runs)], requeue=what == "requeue")
        elif what in ("cancel", "hold", "release") and waiting:
            number = waiting[value % len(waiting)]
            jobs = np.array([number], np.int64)
            self.feed({"cancel": JobsCancelled, "hold": JobsHeld, "release": JobsReleased}[what](jobs))
            if what == "cancel":
                self.attempts.pop(number)
                self.held.discard(number)
            else:
                (self.held.add if what == "hold" else self.held.discard)(number)
        elif what in ("close", "open"):
            name = sorted(self.judge.nodes)[value]
            node = self.judge.nodes[name]
            health = Health.CORDONED if what == "close" else Health.UP
            self.judge.nodes[name] = replace(node, health=health)
            self.feed(NodesChanged((self.judge.nodes[name],)))
        self.settle()


@given(
    STEPS,
    st.sampled_from([Backfill.EASY, Backfill.EASY_SJBF]),
    st.sampled_from(["first-fit", "best-fit"]),
    st.integers(1, 60),
)
@settings(max_examples=examples(300), deadline=None)
def test_safety_groups_start_together_when_the_judge_says(
    steps: list[tuple[str, Any]], backfill: Backfill, placement: str, slice_work: int
) -> None:
    """Whatever happens, no job is half-started, reservations are those of a plain search over all releases, and work
    that has one starts by then; in the end, all that could ever start has run."""
    play(World(backfill, placement, slice_work), steps)


@pytest.mark.slow
@given(
    BUSY_STEPS,
    st.sampled_from([(Backfill.CONSERVATIVE, 10), (Backfill.TOP_K, 1), (Backfill.TOP_K, 2)]),
    st.sampled_from(["first-fit", "best-fit"]),
    st.integers(1, 60),
)
@settings(max_examples=examples(300), deadline=None)
def test_safety_groups_are_planned_ahead_as_other_jobs(
    steps: list[tuple[str, Any]], backfill: tuple[Backfill, int], placement: str, slice_work: int
) -> None:
    """Groups are reserved together, no plan over-packs a node, who comes last gets the earliest instant that a search
    over all instants finds, and work starts by its reservation; in the end, all that could ever start has run."""
    play(World(backfill[0], placement, slice_work, backfill[1]), steps)


def play(world: World, steps: list[tuple[str, Any]]) -> None:
    """Take all steps, and then let everything run."""
    world.settle()
    for what, value in steps:
        world.step(what, value)
    for name, node in sorted(world.judge.nodes.items()):
        world.judge.nodes[name] = replace(node, health=Health.UP)
    world.feed(NodesChanged(tuple(world.judge.nodes.values())))
    if world.held:
        world.feed(JobsReleased(np.array(sorted(world.held), np.int64)))
    world.settle()
    promised: dict[int, int] = {}
    possible = {number for number in world.attempts if world.judge.could_ever(number)}
    for _ in range(2 * len(world.attempts) + 2):
        for one in reservations(world.states[0]):
            if one["kind"] == L.KIND_RESERVED:
                promised.setdefault(int(one["job"]), int(one["start_ms"]))
        for run in running(world.states[0]):
            number = int(run["job"])
            assert int(run["start_ms"]) <= promised.get(number, INF)
        if not world.running():
            break
        starts = [int(run["start_ms"]) + world.judge.walltime[int(run["job"])] for run in running(world.states[0])]
        world.advance(min(starts))
    assert not set(world.attempts) & possible


def test_why_names_the_nodes_that_are_cleared_for_all_groups() -> None:
    """Low work has all GPU nodes; the same job of another QOS waits."""
    policy = Policy(
        qos={"high": Qos(name="high", preempts=("low",)), "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE)}
    )
    state, sink, scheduler = engine(EngineConfig(order="priority", policy=policy), *CPU_NODES, *GPU_NODES)
    low = job(1, 8000, gang=3)
    scheduler.feed(JobsSubmitted(low.rows, low.classes, (OwnerSpec(qos="low"),)))
    scheduler.run(0)
    for number, quality in ((2, "high"), (3, "")):
        block = with_groups(number, [DRIVER, ({"cpu": 8000}, 2)])
        scheduler.feed(JobsSubmitted(block.rows, block.classes, (OwnerSpec(qos=quality),)))
    scheduler.run(1_000)
    assert [int(one["job"]) for plan in sink.plans for one in plan.preemptions] == [1]
    verdict = explain(state, 2, 1_000)
    assert (verdict.reason, verdict.asked) == (Reason.RESOURCES, 3)
    assert "waits for c0, g0, g1 to be cleared: 1 attempt (job 1) preempted for it" in verdict.message
    assert "preempt" not in explain(state, 3, 1_000).message


# --- preferences and affinity ----------------------------------------------------------------------------------------

WEB, DB = "ann app=web", "ann app=db"


def wishing(parts: Sequence[Part], **wishes: Any) -> list[ClassSpec]:
    """The same groups, each with these wishes and terms."""
    return [ClassSpec(part[0], part[1], group=f"group{at}", **wishes) for at, part in enumerate(parts)]


@pytest.mark.parametrize("backfill", list(Backfill))
def test_the_nodes_of_all_groups_are_spread_over_racks(backfill: Backfill) -> None:
    """Racks of four nodes, with GPUs in the first half of each: a driver, two of one kind and two of another are in
    five racks, where by score they would be in one."""
    nodes = [
        NodeSpec(f"n{at}", {"cpu": 8000, "gpu": 4000 if at % 4 < 2 else 0}, domains=(f"r{at // 4}",))
        for at in range(20)
    ]
    state, _, scheduler = engine(EngineConfig(backfill=backfill, levels=("rack",)), *nodes)
    parts = [DRIVER, ({"gpu": 1000}, 2), ({"cpu": 2000}, 2)]
    scheduler.feed(with_groups(1, wishing(parts, preference=Preference("rack")), walltime_ms=1_000))
    scheduler.run(0)
    check_invariants(state)
    names = [name for task in range(3) for name in where(state)[1, task]]
    assert len({int(name[1:]) // 4 for name in names}) == 5


@pytest.mark.parametrize("backfill", list(Backfill))
def test_each_group_prefers_the_nodes_near_what_it_would_be_beside(backfill: Backfill) -> None:
    """The database is on g2, in rack r2, which has c1, too: the driver and the GPU node are both there."""
    config = EngineConfig(backfill=backfill, levels=("rack",))
    state, _, scheduler = engine(config, *in_racks([*CPU_NODES, *GPU_NODES]))
    rows = submit_rows(1)
    rows["job"], rows["walltime_ms"] = 1, 9_000
    on_g2 = (Requirement("hal.node", Match.IN, ("g2",)),)
    scheduler.feed(NodesChanged((replace(in_racks(GPU_NODES)[2], labels={"kind": "gpu", "hal.node": "g2"}),)))
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 1000}, labels=(DB,), constraints=on_g2),)))
    scheduler.run(0)
    near = Preference(near=(Liking(Term(DB, "rack"), 100),))
    parts = wishing([({"cpu": 4000}, 1), ({"gpu": 1000}, 1)], preference=near)
    scheduler.feed(with_groups(2, parts, walltime_ms=1_000))
    scheduler.run(1)
    check_invariants(state)
    assert (where(state)[2, 0], where(state)[2, 1]) == (["c1"], ["g2"])


@pytest.mark.parametrize("backfill", list(Backfill))
def test_groups_are_apart_from_other_work_and_not_from_each_other(backfill: Backfill) -> None:
    """The web runs in rack r1. Two groups of the web's label, that are apart from it by rack, share rack r2; the next
    such job waits for a rack without any."""
    config = EngineConfig(backfill=backfill, levels=("rack",))
    state, _, scheduler = engine(config, *in_racks([*CPU_NODES, *GPU_NODES]))
    rows = submit_rows(1)
    rows["job"], rows["walltime_ms"] = 1, 9_000
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 8000}, labels=(WEB,)),)))
    scheduler.run(0)
    assert where(state)[1, 0] == ["g0"]
    terms = {"labels": (WEB,), "apart": (Term(WEB, "rack"),)}
    scheduler.feed(with_groups(2, wishing([DRIVER, ({"gpu": 1000}, 1)], **terms), walltime_ms=1_000))
    scheduler.feed(with_groups(3, wishing([DRIVER, ({"cpu": 1000}, 1)], **terms), walltime_ms=1_000))
    scheduler.run(1)
    check_invariants(state)
    assert (where(state)[2, 0], where(state)[2, 1]) == (["c1"], ["g2"])
    assert (3, 0) not in where(state)
    verdict = explain(state, 3, 1)
    assert verdict.reason is Reason.AFFINITY
    assert "group group0: what runs keeps it from 4 nodes" in verdict.message
    scheduler.feed(ended(1))
    scheduler.run(2)
    assert {RACKS[name] for task in (0, 1) for name in where(state)[3, task]} == {"r1"}


def test_why_says_that_what_runs_leaves_too_few_nodes_for_all_groups_at_once() -> None:
    """Each group alone could be on c1; the web keeps them from the rest."""
    state, _, scheduler = engine(EngineConfig(levels=("rack",)), *in_racks([*CPU_NODES, GPU_NODES[0]]))
    rows = submit_rows(1)
    rows["job"] = 1
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 8000}, labels=(WEB,)),)))
    scheduler.run(0)
    parts = wishing([DRIVER, ({"cpu": 2000}, 1)], apart=(Term(WEB, "rack"),))
    scheduler.feed(with_groups(2, parts))
    scheduler.run(1)
    verdict = explain(state, 2, 1)
    assert (verdict.reason, verdict.asked) == (Reason.AFFINITY, 2)
    assert "do not do for all its groups at once" in verdict.message


@pytest.mark.parametrize("within", ["", "rack"])
def test_why_says_that_nodes_are_down_where_affinity_keeps_it_from_none(within: str) -> None:
    """Of the rack's two nodes one drains. Each group alone could be on the other, and no web runs anywhere."""
    nodes = in_racks([CPU_NODES[0], GPU_NODES[0]])
    state, _, scheduler = engine(EngineConfig(levels=("rack",)), *nodes)
    scheduler.feed(NodesChanged((replace(nodes[1], health=Health.DRAINING),)))
    parts = wishing([DRIVER, ({"cpu": 2000}, 1)], apart=(Term(WEB, "rack"),), within=within)
    scheduler.feed(with_groups(1, parts))
    scheduler.run(0)
    verdict = explain(state, 1, 0)
    assert verdict.reason is Reason.NODES_DOWN
    assert "are up to hold all of them at once" in verdict.message
    assert verdict.message.endswith("in one rack") == bool(within)


@given(
    st.lists(st.tuples(st.sampled_from(["", "r1", "r2", "r3"]), st.integers(0, 2), st.booleans()), max_size=10),
    st.lists(st.tuples(st.sampled_from([{"cpu": 1000}, {"gpu": 1000}, {"cpu": 2000}]), st.integers(1, 4)), min_size=2,
             max_size=4),
    st.sampled_from(["", "zone"]),
    st.sampled_from(list(Backfill)),
    st.sampled_from(["first-fit", "best-fit"]),
)  # fmt: skip
@settings(max_examples=examples(100), deadline=None)
def test_safety_groups_are_spread_as_evenly_as_there_is_room(
    cluster: list[tuple[str, int, bool]], parts: list[Part], within: str, backfill: Backfill, placement: str
) -> None:
    """Node by node, in the order in which they are chosen: none is in a rack of which the job has more nodes than of
    another one that has a node left with which all groups would still have enough; what is in no rack comes last. It
    starts just where there is a choice for all groups."""
    nodes = [
        NodeSpec(f"n{at}", {"cpu": 1000 * cpu, "gpu": 1000 * gpu}, domains=("z1" if rack < "r3" else "z2", rack))
        for at, (rack, cpu, gpu) in enumerate(cluster)
    ]
    racks = {node.name: node.domains for node in nodes}
    config = EngineConfig(backfill=backfill, placement=placement, levels=("zone", "rack"))
    state, _, scheduler = engine(config, *nodes)
    scheduler.feed(with_groups(1, wishing(parts, preference=Preference("rack"), within=within), walltime_ms=1_000))
    scheduler.run(0)
    check_invariants(state)
    there = where(state)
    wanted = [request for request, count in parts for _ in range(count)]
    room = {node.name: node.capacity for node in nodes}
    fits = {
        name: {at for at, asked in enumerate(wanted) if all(amounts.get(r, 0) >= a for r, a in asked.items())}
        for name, amounts in room.items()
    }
    zones = {zone for zone, _rack in racks.values()}
    groups_of = [[name for name in room if racks[name][0] == zone] for zone in zones] if within else [list(room)]
    if not there:
        assert not any(matched(fits, names, range(len(wanted))) for names in groups_of)
        return
    chosen = [name for task in range(len(parts)) for name in there[1, task]]
    used = [name for name in room if not within or racks[name][0] == racks[chosen[0]][0]]
    held = dict.fromkeys(("r1", "r2", "r3"), 0)
    for at, name in enumerate(chosen):
        left = [other for other in used if other not in chosen[:at]]
        may = [
            other for other in left
            if at in fits[other] and matched(fits, [one for one in left if one != other], range(at + 1, len(wanted)))
        ]  # fmt: skip
        assert name in may
        counts = {racks[other][1]: held[racks[other][1]] for other in may if racks[other][1]}
        if counts:
            assert held[racks[name][1]] == min(counts.values())
            held[racks[name][1]] += 1
