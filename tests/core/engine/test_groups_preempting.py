"""Jobs with several groups of nodes preempt: victims for all groups at once, claims that stand and fall together.

The judge of `reference_victims` tries every set of victims, and matches nodes to groups one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import State
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, OwnerSpec, Preference, Requirement, Term, grouped
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import (
    END,
    AttemptsEnded,
    Health,
    JobsCancelled,
    JobsHeld,
    JobsSubmitted,
    NodesChanged,
    NodeSpec,
    submit_rows,
)
from hal.core.engine.plan import Plan
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import ledger_rows, rows_of_run, running
from hal.core.engine.why.explain import explain
from hal.core.kernels.structures import layout as L
from hal.core.model import Duration
from hal.core.model.policy import Limit, Policy, PreemptMode, Qos
from hal.core.model.resources import Resources
from hal.core.model.verdict import Reason
from tests.core.engine.busy_cluster import ASKER, MIN_RUN_MS, Before, crowd, runs_of, work
from tests.core.engine.clusters import Starts, engine, matched
from tests.core.engine.reference_victims import Amounts, Running, Scene
from tests.core.engine.test_preempting_long import RANK, SECOND, TAKES, World, long_run
from tests.core.engine.test_preempting_safety import leave, prepare
from tests.examples import examples

ALL = pytest.mark.parametrize("backfill", list(Backfill))
URGENT = OwnerSpec(qos="urgent")
QOS = {
    "urgent": Qos(name="urgent", preempts=("low", "idle"), priority=10),
    "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE, grace=Duration(10)),
    "idle": Qos(name="idle", preempt_mode=PreemptMode.SUSPEND),
}
CPU, GPU = ({"cpu": 4}, {"cpu": 8, "gpu": 4})
CLUSTER = [NodeSpec("c0", CPU), NodeSpec("c1", CPU), NodeSpec("g0", GPU), NodeSpec("g1", GPU)]
DRIVER, WORKERS = ({"cpu": 3}, 1), ({"gpu": 4}, 2)
Part = tuple[Amounts, int]


def parts_of(parts: Sequence[Part | ClassSpec], within: str = "") -> tuple[ClassSpec, ...]:
    """Classes of a job of these groups."""
    return grouped(
        [
            part if isinstance(part, ClassSpec) else ClassSpec(part[0], part[1], within=within, group=f"group{at}")
            for at, part in enumerate(parts)
        ]
    )


def submit(
    scheduler: Scheduler, number: int, classes: Sequence[ClassSpec], qos: str = "", tasks: int = 1, **columns: Any
) -> None:
    """A job of these groups, or of one class."""
    rows = submit_rows(len(classes))
    rows["job"], rows["first_task"], rows["class_index"] = number, range(len(classes)), range(len(classes))
    rows["tasks"] = tasks
    for name, value in columns.items():
        rows[name] = value
    scheduler.feed(JobsSubmitted(rows, tuple(classes), (OwnerSpec(qos=qos),)))


def busy(backfill: Backfill, nodes: Sequence[NodeSpec] = CLUSTER, **config: Any) -> tuple[State, Starts, Scheduler]:
    """A cluster whose urgent work preempts low work, which has 10 ms to leave, and suspends idle work."""
    settings = {"backfill": backfill, "policy": Policy(qos=QOS), "min_run_ms": 0, "preempt_every_ms": 1, **config}
    return engine(EngineConfig(**settings), *nodes)


def on(*names: str) -> tuple[Requirement, ...]:
    """Only these nodes."""
    return (Requirement("hal.node", Match.IN, names),)


def named(nodes: Sequence[NodeSpec]) -> list[NodeSpec]:
    """The same, with their names as labels, as agents give them."""
    return [NodeSpec(node.name, node.capacity, {"hal.node": node.name}, domains=node.domains) for node in nodes]


def racked(*sizes: int) -> list[NodeSpec]:
    """Racks r1, r2 … of so many nodes n1, n2 … with four cores."""
    racks = [f"r{rack}" for rack, size in enumerate(sizes, 1) for _ in range(size)]
    return named([NodeSpec(f"n{at}", {"cpu": 4}, domains=(rack,)) for at, rack in enumerate(racks, 1)])


def victims(sink: Starts) -> list[int]:
    """The jobs that were preempted, in order."""
    return [int(one["job"]) for plan in sink.plans for one in plan.preemptions]


def by_state(state: State, number: int, kind: int) -> list[list[str]]:
    """The nodes of each group of a job that is in a state, group by group."""
    mine = [run for run in running(state) if run["job"] == number and run["state"] == kind]
    mine.sort(key=lambda run: int(run["task"]))
    return [[state.node_name(row) for row in rows_of_run(state, int(run["run"]))] for run in mine]


def claimed(state: State, number: int) -> list[list[str]]:
    """The nodes that each group of a job claims."""
    return by_state(state, number, L.RUN_CLAIM)


def begun(state: State, number: int) -> list[list[str]]:
    """The nodes on which each group of a job runs."""
    return by_state(state, number, L.RUN_ON)


def gone(number: int, task: int = 0, attempt: int = 1, requeue: int = 1) -> AttemptsEnded:
    """An attempt has left, and its task waits again."""
    return AttemptsEnded(np.array([(number, task, attempt, requeue, 0, 1, 0)], END))


@ALL
def test_victims_are_found_for_all_groups_and_all_start_when_the_last_has_left(backfill: Backfill) -> None:
    """Low work has one CPU node and both GPU nodes; the other CPU node has work that is never preempted."""
    state, sink, scheduler = busy(backfill, named(CLUSTER))
    for number, name, qos in ((1, "c0", ""), (2, "c1", "low"), (3, "g0", "low"), (4, "g1", "low")):
        submit(scheduler, number, (ClassSpec({"cpu": 4}, constraints=on(name)),), qos, walltime_ms=500_000)
    submit(scheduler, 5, (ClassSpec({"cpu": 4}, constraints=on("g0", "g1")),), "low", tasks=2, walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 4}, 1), ({"gpu": 4, "cpu": 8}, 2)]), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    check_invariants(state)
    assert sorted(victims(sink)) == [2, 3, 4, 5, 5]
    assert claimed(state, 9) == [["c1"], ["g0", "g1"]]
    assert "waits for c1, g0, g1 to be cleared: 5 attempts" in explain(state, 9, 100).message
    submit(scheduler, 10, (ClassSpec({"cpu": 4}),), walltime_ms=1, tasks=5)  # would take whatever is free
    for number, task in ((2, 0), (3, 0), (4, 0), (5, 0)):
        scheduler.feed(gone(number, task))
        scheduler.run(101)
        check_invariants(state)
        assert begun(state, 9) == []
    scheduler.feed(gone(5, 1))
    sink.plans.clear()
    scheduler.run(102)
    check_invariants(state)
    assert begun(state, 9) == [["c1"], ["g0", "g1"]]
    starts = next(plan for plan in sink.plans if len(plan.starts))
    assert [(int(one["job"]), int(one["task"])) for one in starts.starts[:2]] == [(9, 0), (9, 1)]
    assert starts.starts["row_offset"][1] == starts.starts["row_offset"][0] + 1, "their nodes are neighbours"


@ALL
def test_nobody_is_preempted_where_one_group_could_not_start_then(backfill: Backfill) -> None:
    """Low work has the CPU nodes; of the GPU nodes one has work that nobody may preempt."""
    state, sink, scheduler = busy(backfill, named(CLUSTER))
    for number, name, qos in ((1, "c0", "low"), (2, "c1", "low"), (3, "g0", "low"), (4, "g1", "")):
        submit(scheduler, number, (ClassSpec({"cpu": 4}, constraints=on(name)),), qos, walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 3}, 1), ({"gpu": 4, "cpu": 8}, 2)]), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    assert victims(sink) == []
    assert "group group1 lacks 2 of 2 nodes" in explain(state, 9, 100).message


@ALL
def test_two_groups_never_count_on_one_node(backfill: Backfill) -> None:
    """Each of two groups could have c0 when its low work has left; c1 has other work: nobody is preempted. When that
    is low work, too, both are."""
    state, sink, scheduler = busy(backfill, CLUSTER[:2])
    submit(scheduler, 1, (ClassSpec({"cpu": 4}),), "low", walltime_ms=500_000)
    submit(scheduler, 2, (ClassSpec({"cpu": 4}),), "", walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 3}, 1), ({"cpu": 2}, 1)]), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    assert victims(sink) == []
    scheduler.feed(gone(2, requeue=0))
    submit(scheduler, 3, (ClassSpec({"cpu": 4}),), "low", walltime_ms=500_000, priority=100)
    scheduler.feed(JobsHeld(np.array([9], np.int64)))
    scheduler.run(200)
    scheduler.feed(JobsCancelled(np.array([9], np.int64)))
    submit(scheduler, 10, parts_of([({"cpu": 3}, 1), ({"cpu": 2}, 1)]), "urgent", walltime_ms=1_000)
    scheduler.run(300)
    check_invariants(state)
    assert sorted(victims(sink)) == [1, 3]


@ALL
def test_a_group_is_cleared_where_another_then_moves_to(backfill: Backfill) -> None:
    """a is free, and does for both groups; the second group fits nowhere else. b has low work: no node alone that is
    cleared helps but b for the first group, which leaves a to the second."""
    nodes = [NodeSpec("a", {"cpu": 4, "gpu": 1}), NodeSpec("b", {"cpu": 4})]
    state, sink, scheduler = busy(backfill, named(nodes))
    submit(scheduler, 1, (ClassSpec({"cpu": 4}, constraints=on("b")),), "low", walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 2}, 1), ({"gpu": 1}, 1)]), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    check_invariants(state)
    assert victims(sink) == [1]
    assert claimed(state, 9) == [["b"], ["a"]]


@ALL
def test_clearing_two_nodes_that_help_only_together_is_found(backfill: Backfill) -> None:
    """a holds a small low job beside which only the first group fits; b is full of low work and does only for the
    first group. The second group fits on a alone when that is empty: both have to be cleared, neither helps by
    itself."""
    nodes = [NodeSpec("a", {"cpu": 4, "gpu": 1}), NodeSpec("b", {"cpu": 4})]
    state, sink, scheduler = busy(backfill, named(nodes))
    submit(scheduler, 1, (ClassSpec({"cpu": 1}, constraints=on("a")),), "low", walltime_ms=500_000)
    submit(scheduler, 2, (ClassSpec({"cpu": 4}, constraints=on("b")),), "low", walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 2}, 1), ({"cpu": 4, "gpu": 1}, 1)]), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    check_invariants(state)
    assert sorted(victims(sink)) == [1, 2]
    assert claimed(state, 9) == [["b"], ["a"]]


@ALL
def test_all_groups_are_cleared_in_one_rack(backfill: Backfill) -> None:
    """Rack r1 would be cleared for less, but has one GPU node only."""
    racks = {"c0": "r1", "g0": "r1", "c1": "r2", "g1": "r2", "g2": "r2"}
    nodes = [NodeSpec(name, GPU if name[0] == "g" else CPU, domains=(rack,)) for name, rack in racks.items()]
    state, sink, scheduler = busy(backfill, named(nodes), levels=("rack",))
    for number, name in enumerate(sorted(racks), 1):
        walltime = {"walltime_ms": 500_000}
        submit(scheduler, number, (ClassSpec({"cpu": 4}, constraints=on(name)),), "low", **walltime)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 3}, 1), ({"gpu": 4, "cpu": 8}, 2)], "rack"), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    check_invariants(state)
    assert claimed(state, 9) == [["c1"], ["g1", "g2"]]
    assert sorted(victims(sink)) == [2, 4, 5]


@ALL
def test_what_comes_free_as_soon_by_itself_is_waited_for(backfill: Backfill) -> None:
    """The low job ends in 5 ms by its walltime, and would have 10 ms to leave."""
    state, sink, scheduler = busy(backfill, CLUSTER[:2])
    submit(scheduler, 1, (ClassSpec({"cpu": 4}),), "low", tasks=2, walltime_ms=105)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 3}, 1), ({"cpu": 2}, 1)]), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    assert victims(sink) == []
    for task in (0, 1):
        scheduler.feed(gone(1, task, requeue=0))
    scheduler.run(105)
    assert len(begun(state, 9)) == 2


@ALL
def test_nobody_is_preempted_where_other_work_ends_as_soon_as_victims_would_leave(backfill: Backfill) -> None:
    """c0 comes free in 5 ms, low work on c1 would have 10 ms to leave; c2 is free."""
    nodes = [*CLUSTER[:2], NodeSpec("c2", CPU)]
    state, sink, scheduler = busy(backfill, named(nodes))
    submit(scheduler, 1, (ClassSpec({"cpu": 4}, constraints=on("c0")),), walltime_ms=105)
    submit(scheduler, 2, (ClassSpec({"cpu": 4}, constraints=on("c1")),), "low", walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 3}, 1), ({"cpu": 2}, 1)]), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    assert victims(sink) == []
    scheduler.feed(gone(1, requeue=0))
    scheduler.run(105)
    assert sorted(begun(state, 9)) == [["c0"], ["c2"]]


@ALL
def test_whom_another_victim_makes_needless_is_let_be(backfill: Backfill) -> None:
    """On a the young job 2 is cleared first, for the first group; for the second one the gang of job 1 has to leave b,
    and with it a."""
    nodes = [NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 2})]
    state, sink, scheduler = busy(backfill, named(nodes))
    submit(scheduler, 1, (ClassSpec({"cpu": 2}, 2),), "low", walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 2, (ClassSpec({"cpu": 2}),), "low", walltime_ms=500_000)
    scheduler.run(90)
    groups = [ClassSpec({"cpu": 2}, constraints=on(name), group=name) for name in ("a", "b")]
    submit(scheduler, 9, parts_of(groups), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    check_invariants(state)
    assert victims(sink) == [1]


@ALL
def test_groups_take_what_is_free_before_what_is_cleared(backfill: Backfill) -> None:
    """A gang has to leave n1 and n2 for the second group; the first one is put on n3, which is free."""
    state, sink, scheduler = busy(backfill, racked(3))
    submit(scheduler, 1, (ClassSpec({"cpu": 4}, 2, on("n1", "n2")),), "low", walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 3}, 1), ({"cpu": 2}, 1)]), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    check_invariants(state)
    assert victims(sink) == [1]
    assert claimed(state, 9)[0] == ["n3"]


@ALL
@pytest.mark.parametrize("young", ["r1", "r2"])
def test_the_rack_is_cleared_whose_work_loses_least(backfill: Backfill, young: str) -> None:
    """Either rack could be cleared; the work in one of them has run for a shorter time."""
    state, sink, scheduler = busy(backfill, racked(2, 2), levels=("rack",))
    racks = {"r1": on("n1", "n2"), "r2": on("n3", "n4")}
    for number, rack in enumerate(sorted(racks, key=lambda rack: rack == young), 1):
        submit(scheduler, number, (ClassSpec({"cpu": 4}, 2, racks[rack]),), "low", walltime_ms=500_000)
        scheduler.run(50 * number)
    submit(scheduler, 9, parts_of([({"cpu": 3}, 1), ({"cpu": 2}, 1)], "rack"), "urgent", walltime_ms=1_000)
    scheduler.run(200)
    check_invariants(state)
    assert victims(sink) == [2]


@ALL
def test_what_is_suspended_leaves_its_cpu_alone_to_the_groups(backfill: Backfill) -> None:
    """Idle work holds the GPUs, which suspension does not release: only CPU groups start at once."""
    state, sink, scheduler = busy(backfill, CLUSTER[2:])
    submit(scheduler, 1, (ClassSpec({"cpu": 8, "gpu": 1}),), "idle", tasks=2, walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 3}, 1), ({"gpu": 4}, 1)]), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    assert victims(sink) == []
    scheduler.feed(JobsCancelled(np.array([9], np.int64)))
    submit(scheduler, 10, parts_of([({"cpu": 3}, 1), ({"gpu": 3}, 1)]), "urgent", walltime_ms=1_000)
    scheduler.run(200)
    check_invariants(state)
    assert victims(sink) == [1]
    assert len(begun(state, 10)) == 2


def claiming(backfill: Backfill, **config: Any) -> tuple[State, Starts, Scheduler]:
    """Low work leaves both CPU nodes for the groups of job 9."""
    state, sink, scheduler = busy(backfill, CLUSTER[:2], **config)
    submit(scheduler, 1, (ClassSpec({"cpu": 4}),), "low", tasks=2, walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 3}, 1), ({"cpu": 2}, 1)]), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    assert len(claimed(state, 9)) == 2
    return state, sink, scheduler


@ALL
@pytest.mark.parametrize("what", ["cancelled", "held", "node", "late"])
def test_claims_of_all_groups_are_given_up_together(backfill: Backfill, what: str) -> None:
    """The job is cancelled or held, one of its nodes drains, or one of its victims does not leave."""
    state, _, scheduler = claiming(backfill, claim_patience_ms=50)
    scheduler.feed(gone(1, 0))
    scheduler.run(101)
    if what == "node":
        scheduler.feed(NodesChanged((replace_health(CLUSTER[1]),)))
    elif what != "late":
        scheduler.feed({"cancelled": JobsCancelled, "held": JobsHeld}[what](np.array([9], np.int64)))
    scheduler.run(200 if what == "late" else 102)
    check_invariants(state)
    assert claimed(state, 9) == []
    assert begun(state, 9) == []


def replace_health(node: NodeSpec) -> NodeSpec:
    """The same, draining."""
    return NodeSpec(node.name, node.capacity, node.labels, Health.DRAINING)


@ALL
def test_groups_whose_claims_were_given_up_start_later(backfill: Backfill) -> None:
    """A node drains while it is cleared, and comes back."""
    state, _, scheduler = claiming(backfill)
    scheduler.feed(NodesChanged((replace_health(CLUSTER[1]),)))
    scheduler.run(101)
    for task in (0, 1):
        scheduler.feed(gone(1, task))
    scheduler.run(105)
    scheduler.feed(NodesChanged((CLUSTER[1],)))
    scheduler.run(106)
    check_invariants(state)
    assert len(begun(state, 9)) == 2


@ALL
def test_claims_are_given_up_when_a_node_leaves_the_rack_of_the_others(backfill: Backfill) -> None:
    """Each group has one node; that of the second one turns out to be in another rack."""
    nodes = racked(2)
    state, _, scheduler = busy(backfill, nodes, levels=("rack",))
    submit(scheduler, 1, (ClassSpec({"cpu": 4}),), "low", tasks=2, walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 3}, 1), ({"cpu": 2}, 1)], "rack"), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    assert len(claimed(state, 9)) == 2
    scheduler.feed(NodesChanged((NodeSpec("n2", {"cpu": 4}, nodes[1].labels, domains=("r2",)),)))
    scheduler.run(101)
    check_invariants(state)
    assert claimed(state, 9) == []


# --- rules of placement ----------------------------------------------------------------------------------------------

WEB, DB = "ann app=web", "ann app=db"


def wishing(parts: Sequence[Part], **wishes: Any) -> tuple[ClassSpec, ...]:
    """Groups with these wishes and terms."""
    return parts_of([ClassSpec(part[0], part[1], group=f"group{at}", **wishes) for at, part in enumerate(parts)])


@ALL
def test_cleared_nodes_are_spread_over_racks(backfill: Backfill) -> None:
    """One node of each rack is free. Both groups have two nodes, and all four racks get one each."""
    state, sink, scheduler = busy(backfill, racked(2, 2, 2, 2), levels=("rack",), compact=False)
    low = ClassSpec({"cpu": 4}, constraints=on("n1", "n2", "n3", "n5", "n7"))
    submit(scheduler, 1, (low,), "low", tasks=5, walltime_ms=500_000)
    scheduler.run(0)
    spread = wishing([({"cpu": 3}, 2), ({"cpu": 2}, 2)], preference=Preference("rack"))
    submit(scheduler, 9, spread, "urgent", walltime_ms=1_000)
    scheduler.run(100)
    check_invariants(state)
    assert len(victims(sink)) == 1
    nodes = [name for names in claimed(state, 9) for name in names]
    assert len({(int(name[1:]) + 1) // 2 for name in nodes}) == 4


@ALL
def test_groups_with_terms_preempt_where_these_let_them_be(backfill: Backfill) -> None:
    """The web is in rack r1; groups that are apart from it by rack are cleared a place in r2, though low work in r1 has
    run for a shorter time."""
    state, sink, scheduler = busy(backfill, racked(2, 2), levels=("rack",))
    web = ClassSpec({"cpu": 1}, labels=(WEB,), constraints=on("n1"))
    submit(scheduler, 1, (web,), walltime_ms=500_000)
    submit(scheduler, 2, (ClassSpec({"cpu": 4}, constraints=on("n3", "n4")),), "low", tasks=2, walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 3, (ClassSpec({"cpu": 3}, constraints=on("n1", "n2")),), "low", tasks=2, walltime_ms=500_000)
    scheduler.run(50)
    groups = wishing([({"cpu": 3}, 1), ({"cpu": 2}, 1)], apart=(Term(WEB, "rack"),))
    submit(scheduler, 9, groups, "urgent", walltime_ms=1_000)
    scheduler.run(100)
    check_invariants(state)
    assert victims(sink) == [2, 2]
    for task in (0, 1):
        scheduler.feed(gone(2, task))
    scheduler.run(101)
    assert {name for names in begun(state, 9) for name in names} == {"n3", "n4"}


@ALL
def test_groups_that_are_apart_from_their_like_are_not_from_each_other(backfill: Backfill) -> None:
    """Both groups have the label from which they are apart by rack: as for a start, they may be in one rack, and their
    claims do not break each other."""
    state, sink, scheduler = busy(backfill, racked(2), levels=("rack",))
    submit(scheduler, 1, (ClassSpec({"cpu": 4}),), "low", tasks=2, walltime_ms=500_000)
    scheduler.run(0)
    groups = wishing([({"cpu": 3}, 1), ({"cpu": 2}, 1)], labels=(WEB,), apart=(Term(WEB, "rack"),))
    submit(scheduler, 9, groups, "urgent", walltime_ms=1_000)
    scheduler.run(100)
    assert victims(sink) == [1, 1]
    for task in (0, 1):
        assert len(claimed(state, 9)) == 2
        scheduler.feed(gone(1, task))
        scheduler.run(101 + task)
        check_invariants(state)
    assert len(begun(state, 9)) == 2


@ALL
def test_groups_give_up_together_when_their_company_ends(backfill: Backfill) -> None:
    """The database ends while low work leaves for the groups that are to be beside it."""
    state, sink, scheduler = busy(backfill, racked(2, 1), levels=("rack",))
    submit(scheduler, 1, (ClassSpec({"cpu": 1}, labels=(DB,), constraints=on("n1")),), walltime_ms=500_000)
    submit(scheduler, 2, (ClassSpec({"cpu": 3}),), "low", tasks=3, walltime_ms=500_000)
    scheduler.run(0)
    groups = wishing([({"cpu": 3}, 1), ({"cpu": 2}, 1)], together=(Term(DB, "rack"),))
    submit(scheduler, 9, groups, "urgent", walltime_ms=1_000)
    scheduler.run(100)
    assert len(claimed(state, 9)) == 2
    assert victims(sink) == [2, 2]
    scheduler.feed(gone(1, requeue=0))
    scheduler.run(101)
    check_invariants(state)
    assert claimed(state, 9) == []
    assert explain(state, 9, 101).reason is Reason.AFFINITY


@ALL
def test_a_group_that_keeps_its_company_gives_up_with_the_other(backfill: Backfill) -> None:
    """Both racks have a database beside low work. That of r1 ends: the group there could not start any more."""
    state, _, scheduler = busy(backfill, racked(1, 1), levels=("rack",))
    for number, name in ((1, "n1"), (2, "n2")):
        submit(scheduler, number, (ClassSpec({"cpu": 1}, labels=(DB,), constraints=on(name)),), walltime_ms=500_000)
    submit(scheduler, 3, (ClassSpec({"cpu": 3}),), "low", tasks=2, walltime_ms=500_000)
    scheduler.run(0)
    groups = wishing([({"cpu": 3}, 1), ({"cpu": 2}, 1)], together=(Term(DB, "rack"),))
    submit(scheduler, 9, groups, "urgent", walltime_ms=1_000)
    scheduler.run(100)
    assert claimed(state, 9) == [["n1"], ["n2"]]
    scheduler.feed(gone(1, requeue=0))
    scheduler.run(101)
    check_invariants(state)
    assert claimed(state, 9) == []


@ALL
def test_a_limit_is_charged_once_for_groups_whose_claims_start(backfill: Backfill) -> None:
    """While they wait for their nodes, and when they run: 3 + 2 cores, one task."""
    limit = Limit(name="all", resources=Resources({"cpu": 100}), running=10)
    state, _, scheduler = busy(backfill, CLUSTER[:2], policy=Policy(qos=QOS, limits={"all": limit}))
    submit(scheduler, 1, (ClassSpec({"cpu": 4}),), "low", tasks=2, walltime_ms=500_000)
    scheduler.run(0)
    submit(scheduler, 9, parts_of([({"cpu": 3}, 1), ({"cpu": 2}, 1)]), "urgent", walltime_ms=1_000)
    scheduler.run(100)
    for task in (0, 1):
        scheduler.feed(gone(1, task))
        scheduler.run(101 + task)
    assert len(begun(state, 9)) == 2
    assert sorted(row.used for row in ledger_rows(state)) == [1, 5]


# --- against a plain judge -------------------------------------------------------------------------------------------


@dataclass
class GroupScene(Scene):
    """The same where several groups wait."""

    parts: list[Part] = field(default_factory=list)

    def left(self, gone: Iterable[Running], until_ms: int | None = None) -> dict[str, Amounts]:
        """What is free on each node, as `fitting` counts it."""
        leaving = {run.job: run for run in gone}
        left = {}
        for name, capacity in self.capacity.items():
            free = left[name] = dict(capacity)
            for run in self.running:
                if name not in run.nodes:
                    continue
                by_itself = self.now_ms < run.end_ms <= until_ms if until_ms is not None else self.leaves(run)
                back = dict(run.request) if by_itself else leaving[run.job].gives() if run.job in leaving else {}
                for resource, amount in run.request:
                    free[resource] = free.get(resource, 0) - amount + back.get(resource, 0)
        return left

    def all_fit(self, left: dict[str, Amounts]) -> bool:
        """Whether each node that the groups ask for can be another one, in some rack if they are to be in one."""
        wanted = [request for request, count in self.parts for _ in range(count)]
        fits = {
            name: {at for at, asked in enumerate(wanted) if all(free.get(r, 0) >= a for r, a in asked.items())}
            for name, free in left.items()
        }
        racks = self.racks
        places = [list(left)]
        if racks is not None:
            places = [[name for name in left if racks[name] == rack] for rack in set(racks.values()) - {""}]
        return any(matched(fits, names, range(len(wanted))) for names in places)

    def enough(self, gone: Iterable[Running]) -> bool:
        return self.all_fit(self.left(gone))


NODES = st.lists(st.fixed_dictionaries({"cpu": st.integers(2, 6), "memory": st.integers(2, 6)}), min_size=2, max_size=4)
WORK = work(
    st.builds(OwnerSpec, qos=st.sampled_from(["low", "low", "low", "spot", "idle", "plain"])),
    st.fixed_dictionaries({"cpu": st.integers(1, 5), "memory": st.integers(0, 3)}),
)
GROUPS = st.lists(
    st.tuples(
        st.fixed_dictionaries({"cpu": st.integers(1, 5), "memory": st.integers(0, 3)}), st.sampled_from([1, 1, 1, 2])
    ),
    min_size=2,
    max_size=3,
)


@settings(max_examples=examples(1500), deadline=None)
@given(
    nodes=NODES, before=WORK, parts=GROUPS, pause=st.integers(0, 120), backfill=st.sampled_from(list(Backfill)),
    racks=st.none() | st.lists(st.sampled_from(["a", "a", "b", ""]), min_size=4, max_size=4),
)  # fmt: skip
def test_safety_victims_for_groups_are_lawful_needed_and_found_where_there_are_any(
    nodes: list[Amounts], before: list[Before], parts: list[Part], pause: int, backfill: Backfill,
    racks: list[str] | None,
) -> None:  # fmt: skip
    """Against every set of victims that there is. When the victims leave, all groups start on the nodes that were
    claimed, whatever others ask for meanwhile."""
    state, sink, scheduler, now = prepare(nodes, before, pause, backfill, "least-lost", racks)
    scene = GroupScene(
        now, {f"n{number}": dict(amounts) for number, amounts in enumerate(nodes)}, runs_of(state, before, leave), {},
        0, {"low", "spot", "idle"}, MIN_RUN_MS, parts=parts,
    )  # fmt: skip
    scene.racks = None if racks is None else {f"n{number}": racks[number] for number in range(len(nodes))}
    sink.plans.clear()
    columns = {"submit_ms": now, "priority": 100, "walltime_ms": 50}
    submit(scheduler, ASKER, parts_of(parts, "" if racks is None else "rack"), "urgent", **columns)
    scheduler.run(now)
    check_invariants(state)
    by_job = {run.job: run for run in scene.running}
    taken = [by_job[number] for number in victims(sink)]
    started = {int(start["job"]) for plan in sink.plans for start in plan.starts}
    if not taken:
        sets = scene.sets()
        if ASKER not in started and sets and not scene.enough(()):
            soonest = min(max(now, *(now + scene.grace(run) for run in chosen)) for chosen in sets)
            longest = max(now + run.grace_ms for run in scene.running if run.quality in scene.takes)
            assert scene.all_fit(scene.left((), longest)) or soonest > longest, "a way was not found"
        return
    assert all(run in scene.candidates() for run in taken), "a victim that may not be taken"
    assert not scene.enough(()), "they fit without any"
    assert scene.enough(taken)
    for run in taken:
        assert not scene.enough([other for other in taken if other is not run]), f"job {run.job} was not needed"
    due = max(now + scene.grace(run) for run in taken)
    assert not scene.all_fit(scene.left((), due)), "they would have started by themselves"
    claims = claimed(state, ASKER) or begun(state, ASKER)
    assert [len(names) for names in claims] == [count for _, count in parts]
    crowd(scheduler, OwnerSpec(qos="plain"))
    claim_due = max([now, *(int(run["due_ms"]) for run in running(state) if run["job"] == ASKER)])
    leave_one_by_one(scheduler, [run for run in taken if run.mode != "suspend"], claim_due, len(parts))
    assert begun(state, ASKER) == claims


def leave_one_by_one(scheduler: Scheduler, leaving: list[Running], due_ms: int, groups: int) -> None:
    """The victims leave; at no time is a part of the groups begun."""
    state = scheduler.state
    scheduler.run(due_ms - 1 if due_ms > state.clock_ms else due_ms)
    for victim in leaving:
        scheduler.feed(gone(victim.job, attempt=victim.attempt))
        scheduler.run(due_ms)
        check_invariants(state)
        assert len(begun(state, ASKER)) in (0, groups)
    for run in running(state):
        if int(run["end_ms"]) <= due_ms and run["job"] != ASKER:
            scheduler.feed(gone(int(run["job"]), int(run["task"]), int(run["attempt"]), requeue=0))
    scheduler.run(due_ms)
    check_invariants(state)


class GroupWorld(World):
    """A third of all jobs have several groups: of those that preempt as of those that are preempted."""

    def __init__(self, seed: int, backfill: Backfill) -> None:
        super().__init__(seed, backfill)
        self.groups: dict[int, int] = {}
        self.claims = 0

    def submit(self, job: int) -> None:
        if self.random.random() < 2 / 3:
            super().submit(job)
            return
        quality = self.random.choice(("top", "mid", "mid", "low", "spot", "idle"))
        length = self.random.randint(1, 40) * SECOND if quality in TAKES else self.random.randint(5, 400) * SECOND
        self.quality[job], self.length[job], self.left[job] = quality, length, length
        parts = [
            ({"cpu": self.random.randint(1, 4), "memory": self.random.randint(0, 3)}, self.random.choice((1, 1, 2)))
            for _ in range(self.random.randint(2, 3))
        ]
        self.groups[job] = len(parts)
        wall = length + self.random.choice((0, 30 * SECOND))
        columns = {"submit_ms": self.now, "priority": RANK.get(quality, 0), "walltime_ms": wall}
        submit(self.scheduler, job, parts_of(parts), quality, **columns)

    def accept(self, plan: Plan) -> None:
        super().accept(replace_columns(plan))
        begins = [(int(start["job"]), int(start["task"])) for start in plan.starts]
        for job in {job for job, _ in begins} & self.groups.keys():
            mine = [at for at, (other, _) in enumerate(begins) if other == job]
            assert [begins[at][1] for at in mine] == list(range(self.groups[job])), "a part of the groups starts"
            assert mine == list(range(mine[0], mine[0] + len(mine))), "others start between"
        self.claims += len({int(one["job"]) for one in plan.claims} & self.groups.keys())

    def judge(self) -> None:
        """No job is half there, and nothing that has begun is more than its node has."""
        runs = running(self.state)
        for job in {int(run["job"]) for run in runs} & self.groups.keys():
            mine = [run for run in runs if run["job"] == job]
            assert sorted(int(run["task"]) for run in mine) == list(range(self.groups[job]))
            assert len({int(run["state"]) for run in mine}) == 1
        used = np.zeros_like(self.state.nodes.free)
        for run in runs[runs["state"] != L.RUN_CLAIM]:
            amounts = self.state.catalogue.request[:, self.state.catalogue.classes[run["class_id"], L.C_SHAPE]].copy()
            if run["state"] == L.RUN_SUSPENDED:
                amounts[self.state.meta[L.M_CPU]] = 0
            used[rows_of_run(self.state, int(run["run"]))] += amounts[: used.shape[1]]
        assert (used <= self.state.nodes.capacity).all(), "a node is over-packed"

    def end(self, job: int, attempt: int, leaves: int, turn: int) -> None:
        if job not in self.groups or self.turn[job] != turn or job not in self.going:
            super().end(job, attempt, leaves, turn)
            return
        del self.going[job]
        self.turn[job] += 1
        rows = np.array([(job, task, attempt, leaves, 0, 0, 0) for task in range(self.groups[job])], END)
        self.scheduler.feed(AttemptsEnded(rows))
        if not leaves:
            self.ended.add(job)


def replace_columns(plan: Plan) -> Plan:
    """The same without what concerns other groups than the first: their job is told of as a whole."""
    moves = plan.moves
    kept = ~(np.isin(moves[:, L.A_OP], (L.OP_PREEMPT, L.OP_RESUME)) & (moves[:, L.A_TASK] > 0))
    return Plan(**{name: getattr(plan, name) for name in plan.__struct_fields__ if name not in ("moves", "starts")},
                moves=moves[kept], starts=plan.starts[plan.starts["task"] == 0])  # fmt: skip


@pytest.mark.parametrize("backfill", [Backfill.NONE, Backfill.EASY, Backfill.TOP_K, Backfill.CONSERVATIVE])
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 15))])
def test_safety_preemption_for_groups_ends(seed: int, backfill: Backfill) -> None:
    """All jobs end, groups start, leave and give up together, and some were preempted for."""
    world = long_run(seed, backfill, 100, GroupWorld)
    assert world.taken, "nobody was preempted: the run shows nothing"
    assert isinstance(world, GroupWorld)
    assert world.claims, "nothing was claimed for groups: the run shows nothing"
