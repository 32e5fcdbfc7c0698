"""Preferences: which nodes work gets that prefers some, judged start by start by a plain reading of the rule; and that
it never waits for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hal.core.engine import State, new_state
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import NODE, ClassSpec, Liking, OwnerSpec, Preference, Term, grouped
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    AdviceUpdated,
    AdviceWithdrawn,
    AttemptsEnded,
    ConfigChanged,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    submit_rows,
)
from hal.core.engine.plan import Plan
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import reservations, rows_of_run, running
from hal.core.kernels.structures import layout as L
from hal.core.model.advice import KeySpace
from hal.core.model.policy import Policy, Queue
from tests.core.engine.clusters import Starts, ended, engine, matched
from tests.examples import examples

ALL = pytest.mark.parametrize("backfill", list(Backfill))
LEVELS = ("zone", "rack")
WEB, DB = "ann app=web", "ann app=db"


def zones(*racks: tuple[int, ...], cpu: int = 4) -> list[NodeSpec]:
    """Zones z1, z2 … of racks of so many nodes: n1, n2 … in this order."""
    paths = [
        (f"z{zone}", f"r{rack}")
        for zone, sizes in enumerate(racks, start=1)
        for rack, size in enumerate(sizes, start=1)
        for _ in range(size)
    ]
    return [NodeSpec(f"n{number}", {"cpu": cpu}, domains=path) for number, path in enumerate(paths, start=1)]


def cluster(
    *nodes: NodeSpec,
    backfill: Backfill = Backfill.EASY,
    placement: str = "first-fit",
    queues: Sequence[Queue] = (),
) -> tuple[State, Scheduler, Starts]:
    policy = Policy(queues={queue.name: queue for queue in queues}) if queues else None
    config = EngineConfig(levels=LEVELS, backfill=backfill, placement=placement, policy=policy)
    state, sink, scheduler = engine(config, *nodes)
    return state, scheduler, sink


def submit(
    scheduler: Scheduler,
    job: int,
    *,
    spread: str = "",
    near: Sequence[Liking] = (),
    labels: Sequence[str] = (),
    cpu: int = 1,
    nodes: int = 1,
    within: str = "",
    queue: str = "default",
    **columns: int,
) -> None:
    rows = submit_rows(1)
    rows["job"] = job
    for name, value in columns.items():
        rows[name] = value
    preference = Preference(spread, tuple(near)) if spread or near else None
    spec = ClassSpec({"cpu": cpu}, nodes, within=within, labels=tuple(labels), preference=preference)
    scheduler.feed(JobsSubmitted(rows, (spec,), (OwnerSpec(queue),)))


def advised(kind: str, version: int, **values: float) -> AdviceUpdated:
    """What is advised of nodes."""
    return AdviceUpdated(kind, KeySpace.NODES, version, tuple(values), np.array(list(values.values()), np.float64))


def where(state: State) -> dict[tuple[int, int], list[str]]:
    """The nodes of each task that runs."""
    return {
        (int(run["job"]), int(run["task"])): [state.node_name(row) for row in rows_of_run(state, int(run["run"]))]
        for run in running(state)
    }


@ALL
def test_tasks_of_an_array_are_in_different_zones(backfill: Backfill) -> None:
    """First-fit would put all four on n1. n4 to n6 are zone z2: two tasks in each."""
    state, scheduler, _ = cluster(*zones((2, 1), (3,)), backfill=backfill)
    submit(scheduler, 1, spread="zone", tasks=4, walltime_ms=100)
    scheduler.run(0)
    check_invariants(state)
    assert where(state) == {(1, 0): ["n1"], (1, 1): ["n4"], (1, 2): ["n1"], (1, 3): ["n4"]}


@ALL
def test_a_task_that_comes_back_goes_where_fewest_of_its_job_are(backfill: Backfill) -> None:
    """The task of zone z2 is run again, while n1 has room, too."""
    state, scheduler, _ = cluster(*zones((1,), (1,)), backfill=backfill)
    submit(scheduler, 1, spread="zone", tasks=2, walltime_ms=100)
    scheduler.run(0)
    rows = np.zeros(1, END)
    rows["job"], rows["task"], rows["attempt"], rows["requeue"] = 1, 1, 1, 1
    scheduler.feed(AttemptsEnded(rows))
    scheduler.run(1)
    assert where(state) == {(1, 0): ["n1"], (1, 1): ["n2"]}


@ALL
def test_the_nodes_of_a_gang_are_in_as_many_racks_as_there_is_room_in(backfill: Backfill) -> None:
    """Four racks; compactly they would all be in rack r1 of zone z2."""
    state, scheduler, _ = cluster(*zones((2, 3), (4, 1)), backfill=backfill)
    submit(scheduler, 1, spread="rack", nodes=4, cpu=4, walltime_ms=100)
    submit(scheduler, 2, spread="rack", nodes=4, cpu=4, walltime_ms=100)
    scheduler.run(0)
    assert where(state) == {(1, 0): ["n1", "n3", "n6", "n10"], (2, 0): ["n2", "n4", "n5", "n7"]}


@ALL
def test_a_gang_within_a_zone_is_spread_over_its_racks(backfill: Backfill) -> None:
    """And the gangs of an array over zones, if they are within racks."""
    state, scheduler, _ = cluster(*zones((2, 2), (3, 3)), backfill=backfill)
    submit(scheduler, 1, spread="rack", within="zone", nodes=4, cpu=2, walltime_ms=100)
    submit(scheduler, 2, spread="zone", within="rack", nodes=2, cpu=2, tasks=2, walltime_ms=100)
    scheduler.run(0)
    assert where(state)[1, 0] == ["n1", "n2", "n3", "n4"]
    zone = {name: state.domains.path_of(state.node_index(name))[0] for name in state.nodes.by_name}
    assert {zone[nodes[0]] for (job, _task), nodes in where(state).items() if job == 2} == {"z1", "z2"}


@ALL
def test_over_nodes_tasks_share_one_only_where_they_must(backfill: Backfill) -> None:
    state, scheduler, _ = cluster(*zones((3,)), backfill=backfill)
    submit(scheduler, 1, spread=NODE, tasks=5, walltime_ms=100)
    scheduler.run(0)
    assert sorted(nodes for (nodes,) in where(state).values()) == ["n1", "n1", "n2", "n2", "n3"]


@ALL
def test_over_nodes_it_needs_no_topology(backfill: Backfill) -> None:
    """Tasks, and gangs beside what the job holds already."""
    nodes = [NodeSpec(f"n{number}", {"cpu": 2}) for number in range(1, 5)]
    state, _, scheduler = engine(EngineConfig(backfill=backfill), *nodes)
    submit(scheduler, 1, spread=NODE, tasks=3, walltime_ms=100)
    submit(scheduler, 2, spread=NODE, nodes=2, tasks=2, walltime_ms=100)
    scheduler.run(0)
    check_invariants(state)
    assert where(state) == {
        (1, 0): ["n1"], (1, 1): ["n2"], (1, 2): ["n3"], (2, 0): ["n1", "n2"], (2, 1): ["n3", "n4"],
    }  # fmt: skip


@ALL
def test_where_a_job_is_stays_counted_when_one_with_groups_starts_between_its_tasks(backfill: Backfill) -> None:
    """Job 1 is in zone z1, on a small node, when job 2's groups start on large ones in z2. Its next task ranks behind
    them, and is in z2, too: in z1 there would be room."""
    nodes = [
        NodeSpec(name, {"cpu": cpu}, domains=(zone, "")) for name, cpu, zone in (
            ("s1", 1, "z1"), ("s2", 1, "z1"), ("n1", 4, "z2"), ("n2", 4, "z2"), ("n3", 4, "z2"),
        )
    ]  # fmt: skip
    state, scheduler, _ = cluster(*nodes, backfill=backfill)
    one, large = (ClassSpec({"cpu": cpu}, preference=Preference("zone")) for cpu in (1, 4))
    parts = grouped([replace(large, group=f"g{at}") for at in range(2)])
    rows = submit_rows(4)
    rows["job"], rows["first_task"], rows["class_index"] = (1, 1, 2, 2), (0, 1, 0, 1), (0, 0, 1, 2)
    rows["priority"], rows["walltime_ms"] = (10, 0, 5, 5), 50
    scheduler.feed(JobsSubmitted(rows, (one, *parts)))
    scheduler.run(0)
    assert where(state) == {(1, 0): ["s1"], (2, 0): ["n1"], (2, 1): ["n2"], (1, 1): ["n3"]}


@ALL
def test_what_is_in_no_domain_is_used_last(backfill: Backfill) -> None:
    """n1 says nothing of its zone; n2 has room for one more."""
    nodes = (NodeSpec("n1", {"cpu": 4}), NodeSpec("n2", {"cpu": 2}, domains=("z1", "r1")))
    state, scheduler, _ = cluster(*nodes, backfill=backfill)
    submit(scheduler, 1, spread="zone", tasks=3, walltime_ms=100)
    scheduler.run(0)
    assert [where(state)[1, task] for task in range(3)] == [["n2"], ["n2"], ["n1"]]


def test_a_level_that_is_declared_later_counts_from_then_on() -> None:
    """Without the level nothing is preferred."""
    state, scheduler, _ = cluster(*zones((1,), (1,)))
    scheduler.feed(ConfigChanged(EngineConfig()))
    submit(scheduler, 1, spread="zone", tasks=2, walltime_ms=100)
    scheduler.run(0)
    assert where(state) == {(1, 0): ["n1"], (1, 1): ["n1"]}
    scheduler.feed(ConfigChanged(EngineConfig(levels=LEVELS)))
    scheduler.feed(NodesChanged(tuple(zones((1,), (1,)))))
    submit(scheduler, 2, spread="zone", tasks=2, walltime_ms=100)
    scheduler.run(1)
    assert [where(state)[2, task] for task in (0, 1)] == [["n1"], ["n2"]]


def test_a_preference_is_no_part_of_a_shape() -> None:
    """Three classes of one shape: what is counted for one is counted for all."""
    state, scheduler, _ = cluster(*zones((1,), (1,)))
    for job, spread in enumerate(("", "zone", "rack"), start=1):
        submit(scheduler, job, spread=spread, cpu=9)
    assert len(state.catalogue.class_ids) == 3
    assert len(state.catalogue.shape_ids) == 1


def test_preferences_that_nobody_has_are_forgotten() -> None:
    """A thousand of them, one after the other."""
    state, scheduler, _ = cluster(*zones((1,)))
    for job in range(1, 1_001):
        submit(scheduler, job, spread=f"level{job}", cpu=1 + job % 2, walltime_ms=1)
        scheduler.run(job)
        scheduler.feed(ended(job))
    check_invariants(state)
    assert state.catalogue.preferences.shape[0] <= 256


@ALL
def test_work_goes_near_what_it_would_be_beside_while_there_is_room(backfill: Backfill) -> None:
    """The database is on n3, in zone z2. Of three tasks that like it two fit on its node."""
    state, scheduler, _ = cluster(*zones((2,), (2,), cpu=3), backfill=backfill)
    submit(scheduler, 1, cpu=3, tasks=2, walltime_ms=100)
    scheduler.run(0)
    submit(scheduler, 2, labels=[DB], walltime_ms=100)
    scheduler.run(1)
    assert where(state)[2, 0] == ["n3"]
    scheduler.feed(ended(1))
    submit(scheduler, 3, near=[Liking(Term(DB, NODE), 100)], tasks=3, walltime_ms=50)
    scheduler.run(2)
    check_invariants(state)
    assert [where(state)[3, task] for task in range(3)] == [["n3"], ["n3"], ["n1"]]


@ALL
def test_tasks_that_would_be_apart_share_a_node_only_where_they_must(backfill: Backfill) -> None:
    """By their own label, slice by slice: no start waits for it."""
    state, scheduler, _ = cluster(*zones((2,)), backfill=backfill)
    submit(scheduler, 1, labels=[WEB], near=[Liking(Term(WEB, NODE), -100)], tasks=4, walltime_ms=100)
    scheduler.run(0)
    check_invariants(state)
    assert sorted(nodes for (nodes,) in where(state).values()) == ["n1", "n1", "n1", "n2"]


@ALL
def test_the_heavier_of_two_terms_decides(backfill: Backfill) -> None:
    """n1 has the web, n2 the database; no other node has either."""
    state, scheduler, _ = cluster(*zones((1, 1, 1)), backfill=backfill)
    submit(scheduler, 1, labels=[WEB], cpu=3, walltime_ms=100)
    submit(scheduler, 2, labels=[DB], cpu=3, walltime_ms=100)
    scheduler.run(0)
    assert (where(state)[1, 0], where(state)[2, 0]) == (["n1"], ["n2"])
    submit(scheduler, 3, near=[Liking(Term(WEB, "rack"), 30), Liking(Term(DB, "rack"), 31)], walltime_ms=100)
    submit(scheduler, 4, near=[Liking(Term(WEB, "zone"), -30), Liking(Term(DB, "rack"), -31)], walltime_ms=100)
    scheduler.run(1)
    check_invariants(state)
    assert (where(state)[3, 0], where(state)[4, 0]) == (["n2"], ["n1"])


@ALL
def test_what_it_liked_may_end_and_then_placement_decides(backfill: Backfill) -> None:
    state, scheduler, _ = cluster(*zones((1,), (1,), cpu=2), backfill=backfill)
    submit(scheduler, 1, cpu=2, walltime_ms=100)
    submit(scheduler, 2, labels=[WEB], walltime_ms=100)
    scheduler.run(0)
    scheduler.feed(ended(1, 2))
    submit(scheduler, 3, near=[Liking(Term(WEB, NODE), 100)], walltime_ms=100)
    scheduler.run(1)
    check_invariants(state)
    assert where(state) == {(3, 0): ["n1"]}


@ALL
def test_a_queue_has_a_placement_of_its_own(backfill: Backfill) -> None:
    """The site takes the first node, queue q the tightest, queue w the emptiest."""
    nodes = [NodeSpec(f"n{number}", {"cpu": cpu}) for number, cpu in enumerate((16, 4, 32), start=1)]
    queues = [Queue(name="q", placement="best-fit"), Queue(name="w", placement="worst-fit"), Queue(name="default")]
    state, scheduler, _ = cluster(*nodes, backfill=backfill, queues=queues)
    for job, queue in enumerate(("default", "q", "w"), start=1):
        submit(scheduler, job, queue=queue, walltime_ms=100)
    scheduler.run(0)
    check_invariants(state)
    assert where(state) == {(1, 0): ["n1"], (2, 0): ["n2"], (3, 0): ["n3"]}


@ALL
def test_advice_counts_by_the_weight_of_the_queue(backfill: Backfill) -> None:
    """n2 is the cheapest, n3 the dearest and nearest; without advice, and when it has expired, first-fit decides."""
    queues = [Queue(name="q", preferences={"price": -1.0, "near": 0.1}), Queue(name="default")]
    state, scheduler, _ = cluster(*zones((3,), cpu=9), backfill=backfill, queues=queues)
    submit(scheduler, 1, queue="q", walltime_ms=100)
    scheduler.run(0)
    scheduler.feed(advised("price", 1, n1=0.5, n2=0.1, n3=0.9))
    submit(scheduler, 2, queue="q", walltime_ms=100)
    submit(scheduler, 3, walltime_ms=100)
    scheduler.run(1)
    scheduler.feed(advised("near", 1, n3=9.0))
    submit(scheduler, 4, queue="q", walltime_ms=100)
    scheduler.run(2)
    scheduler.feed(AdviceWithdrawn(("price", "near")))
    submit(scheduler, 5, queue="q", walltime_ms=100)
    scheduler.run(3)
    check_invariants(state)
    assert [where(state)[job, 0] for job in range(1, 6)] == [["n1"], ["n2"], ["n1"], ["n3"], ["n1"]]


def test_weighed_advice_wakes_the_engine_when_it_expires() -> None:
    """As advice does that a plugin reads."""
    queues = [Queue(name="q", preferences={"price": -1.0, "compactness": 0}), Queue(name="default")]
    state, scheduler, _ = cluster(*zones((1,)), queues=queues)
    assert state.plugins.reads_advice == {"price"}
    scheduler.feed(replace(advised("price", 1, n1=0.5), expires_ms=70))
    scheduler.run(0)
    assert state.next_timer_ms() == 70


@ALL
def test_gangs_of_a_queue_that_does_without_compactness_go_by_score(backfill: Backfill) -> None:
    """Compactly they are in rack r1 of zone z1; the cheapest two nodes are of different zones."""
    queues = [Queue(name="q", preferences={"price": -1.0, "compactness": 0}), Queue(name="default")]
    state, scheduler, _ = cluster(*zones((2, 1), (3,)), backfill=backfill, queues=queues)
    scheduler.feed(advised("price", 1, n1=3.0, n2=1.0, n3=3.0, n4=3.0, n5=1.0, n6=3.0))
    submit(scheduler, 1, queue="q", nodes=2, walltime_ms=100)
    submit(scheduler, 2, nodes=2, walltime_ms=100)
    scheduler.run(0)
    assert where(state) == {(1, 0): ["n2", "n5"], (2, 0): ["n1", "n2"]}


def test_another_policy_takes_its_preferences_along() -> None:
    """A hundred policies: those of before are forgotten."""
    nodes = zones((3,), cpu=900)
    state, scheduler, _ = cluster(*nodes, queues=[Queue(name="default")])
    scheduler.feed(advised("price", 1, n1=0.5, n2=0.1, n3=0.9))
    for job in range(1, 101):
        queue = Queue(name="default", preferences={"price": -float(job) if job % 2 else float(job)})
        scheduler.feed(ConfigChanged(EngineConfig(levels=LEVELS, policy=Policy(queues={"default": queue}))))
        submit(scheduler, job, walltime_ms=100)
        scheduler.run(job)
        check_invariants(state)
        assert where(state)[job, 0] == ["n2" if job % 2 else "n3"]
        scheduler.feed(ended(job))
    assert state.catalogue.preferences.shape[0] <= 16


def test_labels_that_only_preferred_terms_name_keep_nobody_from_preempting_or_moving() -> None:
    """They concern where it starts; a required term would concern its claims, too."""
    state, scheduler, _ = cluster(*zones((2,)))
    submit(scheduler, 1, labels=[WEB], walltime_ms=100)
    submit(scheduler, 2, near=[Liking(Term(WEB, NODE), 5)], walltime_ms=100)
    submit(scheduler, 3, labels=[DB], walltime_ms=100)
    scheduler.run(0)
    flags = {
        spec.labels or spec.preference: int(state.catalogue.classes[number, L.C_AFFINE])
        for number, spec in enumerate(state.catalogue.class_specs)
        if spec is not None
    }
    assert sorted(flags.values()) == [0, 2, 2]
    assert flags[(DB,)] == 0


@ALL
def test_work_starts_when_it_would_without(backfill: Backfill) -> None:
    """Whole nodes, equal ones: which of them are taken changes no start."""
    shared = np.random.default_rng(5)
    jobs = [
        (int(shared.integers(1, 5)), int(shared.integers(1, 4)), int(shared.integers(1, 20)), int(at))
        for at in np.sort(shared.integers(0, 60, 60))
    ]

    def starts(spread: str) -> list[tuple[int, int, int]]:
        state, scheduler, sink = cluster(*zones((2, 2), (2, 2)), backfill=backfill)
        ends: list[tuple[int, int, int]] = []
        found = []
        for now in range(2_000):
            due = [one for one in ends if one[0] == now]
            ends = [one for one in ends if one[0] != now]
            if due:
                rows = np.zeros(len(due), END)
                rows["job"], rows["task"], rows["attempt"] = *np.array([one[1:] for one in due]).T, 1
                scheduler.feed(AttemptsEnded(rows))
            for number, (nodes, tasks, length, at) in enumerate(jobs, start=1):
                if at == now:
                    submit(scheduler, number, spread=spread, cpu=4, nodes=nodes, tasks=tasks, walltime_ms=length)
            before = len(sink.plans)
            scheduler.run(now)
            for plan in sink.plans[before:]:
                for start in plan.starts:
                    job, task = int(start["job"]), int(start["task"])
                    found.append((now, job, task))
                    ends.append((now + jobs[job - 1][2], job, task))
        assert not state.pending_tasks
        return found

    without = starts("")
    assert starts("zone") == starts("rack") == starts(NODE) == without


def in_domain(state: State, row: int, level: str) -> object:
    """What tells its domain of a level from others; None: it is in none."""
    if level == NODE:
        return row
    if not level:
        return None
    path = state.domains.path_of(row)
    at = state.config.levels.index(level)
    return path[: at + 1] if path[at] else None


def level_of(spec: ClassSpec) -> str:
    """Over which it is spread."""
    return spec.preference.spread if spec.preference is not None else ""


class Judge:
    """Follows plans with a table of its own of what is free, and says which nodes each start should have."""

    def __init__(self, state: State, specs: dict[int, ClassSpec], score: str, queues: dict[int, Queue]) -> None:
        self.state, self.specs, self.site, self.queues = state, specs, score, queues
        """specs: by job; of one with groups that of the first, which names the others."""
        self.advice: dict[str, dict[str, float]] = {}
        self.free = {row: int(state.nodes.capacity[row, 0]) for row in range(len(state.nodes.names))}
        self.held: dict[tuple[int, int], list[int]] = {}
        order = np.argsort([int(state.nodes.rows[row, L.N_PLACE]) for row in self.free])
        self.order = [int(row) for row in order]
        """As the topology lists them."""
        self.judged = 0

    def part(self, job: int, task: int) -> ClassSpec:
        """What each node of a task gives."""
        spec = self.specs[job]
        return (spec, *spec.groups)[task] if spec.groups else spec

    def end(self, job: int, task: int) -> None:
        for row in self.held.pop((job, task)):
            self.free[row] += self.part(job, task).request["cpu"]

    def follow(self, plan: Plan, *, alone: bool) -> None:
        """alone: no reservation was there before, or is made by the plan: then nothing but the rule decides."""
        for at, start in enumerate(plan.starts):
            job, task = int(start["job"]), int(start["task"])
            rows = rows_of_start(plan, at)
            spec = self.specs[job]
            if (spec.preference is not None or self.queues[job] != PLAIN) and alone:
                if not spec.groups:
                    self.check(spec, job, rows)
                elif task == 0:
                    assert plan.starts["job"][at : at + 1 + len(spec.groups)].tolist() == [job] * (1 + len(spec.groups))
                    self.check_groups(spec, job, [rows_of_start(plan, at + k) for k in range(1 + len(spec.groups))])
                self.judged += 1
            self.held[job, task] = rows
            for row in rows:
                self.free[row] -= self.part(job, task).request["cpu"]
                assert self.free[row] >= 0

    def check_groups(self, spec: ClassSpec, job: int, chosen: list[list[int]]) -> None:
        """The same of a job with groups. One node after the other: of those with which all that is left finds nodes,
        where the job has fewest, of these the best for the group."""
        wanted = [part for part in (spec, *spec.groups) for _ in range(part.nodes)]
        rows = [row for part in chosen for row in part]
        level = level_of(spec)
        left = {
            row: {at for at, part in enumerate(wanted) if self.free[row] >= part.request["cpu"]} for row in self.order
        }
        if spec.within:
            domains = {in_domain(self.state, row, spec.within) for row in rows}
            (mine,) = domains
            by_domain = {
                domain: {row: left[row] for row in left if in_domain(self.state, row, spec.within) == domain}
                for domain in {in_domain(self.state, row, spec.within) for row in left} - {None}
            }
            sizes = {
                domain: sum(bool(slots) for slots in there.values())
                for domain, there in by_domain.items()
                if matched(there, list(there), range(len(wanted)))
            }
            assert sizes[mine] == min(sizes.values())
            left = by_domain[mine]
        counts = self.counts(job, "" if level == NODE else level)
        first = {in_domain(self.state, row, level): at for at, row in reversed(list(enumerate(self.order)))}
        for at, row in enumerate(rows):
            may = [
                other
                for other in left
                if at in left[other]
                and matched(left, [one for one in left if one != other], range(at + 1, len(wanted)))
            ]

            def rank(other: int, part: ClassSpec = wanted[at]) -> tuple[float, int, int, int]:
                domain = None if level == NODE else in_domain(self.state, other, level)
                place = 0 if domain is None else first[domain]
                return counts[domain], -self.score_of(part, job, other), place, other

            assert row == min(may, key=rank)
            if level != NODE:
                counts[in_domain(self.state, row, level)] += 1
            left = {other: slots for other, slots in left.items() if other != row}

    def check(self, spec: ClassSpec, job: int, rows: list[int]) -> None:
        """That these are the nodes which the rule names."""
        usable = [row for row in self.order if self.free[row] >= spec.request["cpu"]]
        if spec.within:
            usable = [row for row in usable if in_domain(self.state, row, spec.within) is not None]
        if spec.within and spec.nodes > 1:
            usable = self.in_one(spec, job, usable, rows)
            if not self.is_narrower(level_of(spec), spec.within):
                return  # compactly in that domain
        compact = self.state.config.levels and self.queues[job].preferences.get("compactness", 1)
        if not level_of(spec) and spec.nodes > 1 and (compact or spec.within):
            return  # placed compactly, by score only within a domain: see test_topology
        assert rows == [row for row in self.order if row in self.greedy(spec, job, usable)]

    def in_one(self, spec: ClassSpec, job: int, usable: list[int], rows: list[int]) -> list[int]:
        """The usable nodes of the domain that was chosen, which is one of the best."""
        found = Counter(in_domain(self.state, row, spec.within) for row in usable)
        price = {
            domain: (self.around(spec, job, domain, usable), count)
            for domain, count in found.items()
            if count >= spec.nodes
        }
        (mine,) = {in_domain(self.state, row, spec.within) for row in rows}
        assert price[mine] == min(price.values())
        return [row for row in usable if in_domain(self.state, row, spec.within) == mine]

    def is_narrower(self, level: str, than: str) -> bool:
        levels = self.state.config.levels
        return level == NODE or (level in levels and levels.index(level) > levels.index(than))

    def around(self, spec: ClassSpec, job: int, domain: object, usable: list[int]) -> float:
        """How many nodes the job holds in the domain around another, where it is spread over wider ones."""
        level, levels = level_of(spec), self.state.config.levels
        if level not in levels or levels.index(level) > levels.index(spec.within):
            return 0
        row = next(row for row in usable if in_domain(self.state, row, spec.within) == domain)
        return self.counts(job, level)[in_domain(self.state, row, level)]

    def counts(self, job: int, level: str) -> dict[object, float]:
        if not level:
            return {None: 0}
        found: dict[object, float] = {in_domain(self.state, row, level): 0 for row in self.free}
        for (whose, _task), rows in self.held.items():
            for row in rows if whose == job else ():
                found[in_domain(self.state, row, level)] += 1
        return found | {None: inf}

    def greedy(self, spec: ClassSpec, job: int, usable: list[int]) -> Sequence[int]:
        """One node after the other: where the job has fewest, of these the best, of these the first."""
        level = level_of(spec)
        counts = self.counts(job, level)
        left, chosen = list(usable), []
        for _ in range(spec.nodes):
            best = min(
                left, key=lambda row: (counts[in_domain(self.state, row, level)], -self.score_of(spec, job, row))
            )
            left.remove(best)
            chosen.append(best)
            counts[in_domain(self.state, best, level)] += 1
        return chosen

    def score_of(self, spec: ClassSpec, job: int, row: int) -> int:
        """In millionths, as scores are rounded."""
        left = (self.free[row] - spec.request["cpu"]) / int(self.state.nodes.capacity[row, 0])
        tight = int(np.floor((1 - left) * 1e6 + 0.5))
        rule = self.queues[job].placement or self.site
        score = {"first-fit": 0, "best-fit": tight, "worst-fit": 1_000_000 - tight}[rule]
        for kind, weight in self.queues[job].preferences.items():
            score += round(1e6 * weight * self.advice.get(kind, {}).get(self.state.nodes.names[row], 0))
        terms = spec.preference.near if spec.preference is not None else ()
        return score + sum(10_000 * like.weight for like in terms if self.is_near(row, like.term))

    def is_near(self, row: int, term: Term) -> bool:
        """Whether work with the label of a term runs in its domain."""
        mine = in_domain(self.state, row, term.level)
        return mine is not None and any(
            in_domain(self.state, other, term.level) == mine
            for (job, _task), rows in self.held.items()
            if term.label in self.specs[job].labels
            for other in rows
        )


def rows_of_start(plan: Plan, at: int) -> list[int]:
    """The nodes of one start of a plan."""
    first = int(plan.starts["row_offset"][at])
    return [int(row) for row in plan.rows[first : first + int(plan.starts["row_count"][at])]]


PLAIN = Queue(name="default")
QUEUES = (
    PLAIN,
    PLAIN,
    Queue(name="worst", placement="worst-fit", preferences={"compactness": 0}),
    Queue(name="cheap", preferences={"price": -0.5}),
    Queue(name="both", placement="best-fit", preferences={"price": -0.25, "near": 2, "compactness": 0}),
)
SPREADS = (NODE, "zone", "rack", "")
LABELS = ((), (WEB,), (DB,), (WEB, DB))
TERMS = [Term(label, level) for label in (WEB, DB) for level in (NODE, "zone", "rack")]


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_each_start_is_on_the_nodes_that_the_rule_names(data: st.DataObject) -> None:
    """Arrays, gangs and groups of nodes, spread and not, near other work and away from it, within domains and not; some
    nodes are in no domain; slices are cut anywhere, attempts end and are run again."""
    levels = data.draw(st.sampled_from([LEVELS, LEVELS, ()]))
    judge_all(data, levels, SPREADS if levels else (NODE, ""), grouped_of_six=2)


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_groups_are_spread_over_the_nodes_that_the_rule_names(data: st.DataObject) -> None:
    """The same of jobs that nearly all are spread over domains, and most of which have groups."""
    judge_all(data, LEVELS, ("zone", "rack", "rack", NODE), grouped_of_six=4)


def judge_all(data: st.DataObject, levels: tuple[str, ...], spreads: tuple[str, ...], grouped_of_six: int) -> None:
    """Draw a cluster and what happens there, and judge each start to which nothing but the rule applies."""
    placement = data.draw(st.sampled_from(["first-fit", "best-fit", "worst-fit"]))
    config = EngineConfig(
        levels=levels,
        backfill=data.draw(st.sampled_from(list(Backfill))),
        placement=placement,
        slice_starts=data.draw(st.sampled_from([1, 3, 10_000])),
        policy=Policy(queues={queue.name: queue for queue in QUEUES}),
    )
    drawn = st.tuples(st.sampled_from(["z1", "z2", ""]), st.sampled_from(["r1", "r2", "r3", ""]))
    paths = data.draw(st.lists(drawn, min_size=2, max_size=9))
    cores = [data.draw(st.sampled_from([4, 8])) for _ in paths]
    nodes = [
        NodeSpec(f"n{at}", {"cpu": cpu}, domains=path) for at, (path, cpu) in enumerate(zip(paths, cores, strict=True))
    ]
    state = new_state(config)
    sink = Starts()
    scheduler = Scheduler(state, sink)
    scheduler.feed(NodesChanged(tuple(nodes)))
    specs: dict[int, ClassSpec] = {}
    queues: dict[int, Queue] = {}
    judge = Judge(state, specs, placement, queues)
    for now in range(data.draw(st.integers(3, 12))):
        if data.draw(st.integers(0, 3)) == 0:
            kind = data.draw(st.sampled_from(["price", "near"]))
            values = data.draw(
                st.dictionaries(st.sampled_from([node.name for node in nodes]), st.integers(0, 8), min_size=1)
            )
            judge.advice[kind] = {name: value / 8 for name, value in values.items()}
            scheduler.feed(advised(kind, now + 1, **judge.advice[kind]))
        if data.draw(st.booleans()) or not judge.held:
            job = len(specs) + 1
            spread = data.draw(st.sampled_from(spreads))
            terms = data.draw(st.lists(st.sampled_from(TERMS if levels else TERMS[::3]), unique=True, max_size=2))
            near = tuple(Liking(term, data.draw(st.integers(-100, 100).filter(bool))) for term in terms)
            specs[job] = ClassSpec(
                {"cpu": data.draw(st.integers(1, 3))},
                data.draw(st.integers(1, 4)),
                within=data.draw(st.sampled_from(["", "", *levels])),
                labels=data.draw(st.sampled_from(LABELS)),
                preference=Preference(spread, near) if spread or near else None,
            )
            parts: tuple[ClassSpec, ...] = (specs[job],)
            if data.draw(st.integers(0, 5)) < grouped_of_six:
                others = data.draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=2))
                parts = grouped(
                    [specs[job]] + [replace(specs[job], request={"cpu": cpu}, nodes=wide) for cpu, wide in others]
                )
                specs[job] = parts[0]
            rows = submit_rows(len(parts))
            rows["job"], rows["walltime_ms"] = job, 50
            rows["tasks"] = 1 if specs[job].groups else data.draw(st.integers(1, 4))
            rows["first_task"] = rows["class_index"] = range(len(parts))
            queues[job] = data.draw(st.sampled_from(QUEUES))
            scheduler.feed(JobsSubmitted(rows, parts, (OwnerSpec(queues[job].name),)))
        else:
            job, task = data.draw(st.sampled_from(sorted(judge.held)))
            tasks = sorted(one for other, one in judge.held if other == job) if specs[job].groups else [task]
            for one in tasks:
                judge.end(job, one)
            ends = np.zeros(len(tasks), END)
            attempt = next(int(run["attempt"]) for run in running(state) if (run["job"], run["task"]) == (job, task))
            ends["job"], ends["task"], ends["attempt"] = job, tasks, attempt
            ends["requeue"] = data.draw(st.integers(0, 1))
            scheduler.feed(AttemptsEnded(ends))
        before, reserved = len(sink.plans), reservations(state).shape[0]
        scheduler.run(now)
        for plan in sink.plans[before:]:
            judge.follow(plan, alone=reserved == 0 and plan.reservations.shape[0] == 0)
            reserved = reserved or plan.reservations.shape[0]
        check_invariants(state)
