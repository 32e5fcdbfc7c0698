"""Gangs in a topology: where they start, what they wait for, what they are told, what they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hal.core.engine import State, apply
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import Health, JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import reservations, reserved_rows
from hal.core.engine.why.explain import explain
from hal.core.engine.why.feasible import never_fits
from hal.core.model import Duration
from hal.core.model.policy import Policy, PreemptMode, Qos
from hal.core.model.verdict import Reason
from tests.core.engine.clusters import ended, engine, places

ALL = pytest.mark.parametrize("backfill", list(Backfill))
LEVELS = ("zone", "rack")
QOS = {
    "urgent": Qos(name="urgent", preempts=("low",)),
    "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE, grace=Duration(10)),
}


def node(name: str, rack: str, cpu: int = 4, zone: str = "z1", health: Health = Health.UP) -> NodeSpec:
    return NodeSpec(name, {"cpu": cpu}, {}, health, domains=(zone, rack))


def racks(*sizes: int) -> list[NodeSpec]:
    """Racks r1, r2 … of so many nodes: n1, n2 … in this order."""
    of = [f"r{rack}" for rack, size in enumerate(sizes, start=1) for _ in range(size)]
    return [node(f"n{number}", rack) for number, rack in enumerate(of, start=1)]


def cluster(*nodes: NodeSpec, **config: Any) -> tuple[State, Scheduler]:
    state, _sink, scheduler = engine(EngineConfig(levels=LEVELS, **config), *nodes)
    return state, scheduler


def submit(
    scheduler: Scheduler, job: int, nodes: int, *, within: str = "", cpu: int = 4, qos: str = "", **columns: int
) -> None:
    rows = submit_rows(1)
    rows["job"] = job
    for name, value in columns.items():
        rows[name] = value
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": cpu}, nodes, within=within),), (OwnerSpec(qos=qos),)))


@ALL
def test_a_gang_starts_in_one_rack(backfill: Backfill) -> None:
    """Three of five free nodes are in r2; first-fit would take n1, n2 and n3."""
    state, scheduler = cluster(*racks(2, 3), backfill=backfill)
    submit(scheduler, 1, 3, within="rack")
    scheduler.run(0)
    assert places(state) == {1: ["n3", "n4", "n5"]}


@ALL
def test_a_gang_waits_until_one_rack_has_room(backfill: Backfill) -> None:
    """Two nodes of r1 are free, none of r2, and three of one rack are asked for: until job 1 leaves, at 20."""
    state, scheduler = cluster(*racks(3, 3), backfill=backfill)
    submit(scheduler, 1, 1, within="rack", walltime_ms=20)
    submit(scheduler, 2, 3, within="rack", walltime_ms=100)
    scheduler.run(0)
    submit(scheduler, 4, 3, within="rack", walltime_ms=10)
    scheduler.run(1)
    assert places(state)[2] == ["n4", "n5", "n6"]
    assert 4 not in places(state)
    (reserved,) = [row for row in reservations(state) if row["job"] == 4]
    if backfill is not Backfill.NONE:
        first = int(reserved["row_offset"])
        names = [state.node_name(row) for row in reserved_rows(state)[first : first + 3].tolist()]
        assert (int(reserved["start_ms"]), sorted(names)) == (20, ["n1", "n2", "n3"])
    scheduler.feed(ended(1))
    scheduler.run(20)
    assert places(state)[4] == ["n1", "n2", "n3"]


@ALL
def test_what_is_reserved_in_a_rack_is_not_taken_by_what_would_delay_it(backfill: Backfill) -> None:
    """Job 3 is to start in r1 at 20, on n1 to n3. Job 4 would run there until 101, job 5 only until 11."""
    state, scheduler = cluster(*racks(3, 2), backfill=backfill)
    submit(scheduler, 1, 2, within="rack", walltime_ms=1000)
    submit(scheduler, 2, 1, within="rack", walltime_ms=20)
    scheduler.run(0)
    assert places(state) == {1: ["n4", "n5"], 2: ["n1"]}
    submit(scheduler, 3, 3, within="rack", walltime_ms=50)
    submit(scheduler, 4, 1, walltime_ms=100)
    submit(scheduler, 5, 1, walltime_ms=10)
    scheduler.run(1)
    assert sorted(places(state)) == ([1, 2] if backfill is Backfill.NONE else [1, 2, 5])


def test_the_smallest_domain_that_fits_is_taken() -> None:
    """Racks have 4, 2 and 3 free nodes: two go to the second, three to the third."""
    state, scheduler = cluster(*racks(4, 2, 3))
    submit(scheduler, 1, 2)
    submit(scheduler, 2, 3)
    scheduler.run(0)
    assert places(state) == {1: ["n5", "n6"], 2: ["n7", "n8", "n9"]}


def test_a_gang_that_no_rack_holds_is_on_as_few_as_can_be_and_leaves_large_pieces() -> None:
    """Of 3, 2, 4 and 1 free, six take the four, and the two that are enough for the rest."""
    state, scheduler = cluster(*racks(3, 2, 4, 1))
    submit(scheduler, 1, 6)
    scheduler.run(0)
    assert places(state) == {1: ["n4", "n5", "n6", "n7", "n8", "n9"]}


def test_of_equal_racks_the_one_in_the_fuller_zone_is_taken() -> None:
    """Two nodes are free in a rack of each zone; the second zone has less beside it."""
    state, scheduler = cluster(
        node("a1", "r1"), node("a2", "r1"), node("a3", "r2"), node("b1", "r1", zone="z2"), node("b2", "r1", zone="z2")
    )
    submit(scheduler, 1, 2)
    scheduler.run(0)
    assert places(state) == {1: ["b1", "b2"]}


def test_ranks_follow_the_topology() -> None:
    """Nodes joined crosswise; ranks 0 and 1 are in r1, ranks 2 and 3 in r2."""
    state, scheduler = cluster(node("a", "r1"), node("b", "r2"), node("c", "r1"), node("d", "r2"))
    submit(scheduler, 1, 4)
    scheduler.run(0)
    assert places(state) == {1: ["a", "c", "b", "d"]}


def test_without_compactness_nodes_are_taken_as_they_come() -> None:
    """First-fit, unless a level is asked for."""
    state, scheduler = cluster(*racks(1, 3), compact=False)
    submit(scheduler, 1, 2)
    submit(scheduler, 2, 2, within="rack")
    scheduler.run(0)
    assert places(state) == {1: ["n1", "n2"], 2: ["n3", "n4"]}


def test_a_claim_for_which_others_are_preempted_is_in_one_rack() -> None:
    """Job 1 in r1 has run for longer; clearing r2 loses less."""
    state, scheduler = cluster(*racks(2, 2), policy=Policy(qos=QOS), min_run_ms=0)
    submit(scheduler, 1, 2, qos="low")
    scheduler.run(0)
    submit(scheduler, 2, 1, qos="low", submit_ms=50)
    submit(scheduler, 3, 1, qos="low", submit_ms=50)
    scheduler.run(50)
    submit(scheduler, 4, 2, within="rack", qos="urgent", submit_ms=60)
    scheduler.run(60)
    scheduler.feed(ended(2, 3))
    scheduler.run(61)
    assert places(state) == {1: ["n1", "n2"], 4: ["n3", "n4"]}


@ALL
def test_a_reservation_whose_nodes_are_parted_is_made_again(backfill: Backfill) -> None:
    """Job 3 is to follow job 1 in r1; n2 goes to r2, where two more are, until 90."""
    state, scheduler = cluster(*racks(2, 2), backfill=backfill)
    submit(scheduler, 1, 2, within="rack", walltime_ms=20)
    submit(scheduler, 2, 2, within="rack", walltime_ms=90)
    submit(scheduler, 3, 2, within="rack", walltime_ms=5)
    scheduler.run(0)
    apply(state, NodesChanged((node("n2", "r2"),)))
    scheduler.run(1)
    check_invariants(state)
    promised = [int(row["start_ms"]) for row in reservations(state) if row["job"] == 3 and row["kind"] == 0]
    assert promised == ([] if backfill is Backfill.NONE else [90])


def test_a_node_that_returns_costs_no_pass() -> None:
    """Where reservations are kept, a pass that is not finished goes on when a node joins, with its domains."""
    state, _scheduler = cluster(*racks(2, 3), backfill=Backfill.CONSERVATIVE)
    breaks = state.nodes.breaks
    apply(state, NodesChanged((node("n9", "r2"),)))
    assert state.nodes.breaks == breaks
    apply(state, NodesChanged((node("n9", "r1"),)))
    assert state.nodes.breaks == breaks + 1


def test_why_says_on_how_many_nodes_of_one_rack_it_fits() -> None:
    """Two of three nodes are free in r1 and one of three in r2; three of one rack are asked for."""
    state, scheduler = cluster(*racks(3, 3))
    submit(scheduler, 1, 1, walltime_ms=20)
    scheduler.run(0)
    submit(scheduler, 2, 2, within="rack", walltime_ms=30)
    submit(scheduler, 3, 1, walltime_ms=10)
    scheduler.run(0)
    assert places(state) == {1: ["n1"], 2: ["n2", "n3"], 3: ["n4"]}
    submit(scheduler, 4, 3, within="rack")
    scheduler.run(1)
    verdict = explain(state, 4, 1)
    assert verdict.reason is Reason.RESOURCES
    assert verdict.message == (
        "waits for 0.004 cpu on each of 3 nodes of one rack; it fits on 2 nodes, but on at most 2 of one rack now"
    )
    assert verdict.starts_at_ms == 10
    assert verdict.helps == ("2 nodes instead of 3 would fit now",)


def test_why_says_that_there_is_no_such_level() -> None:
    """Of a job that waited when the topology lost the level that it names."""
    state, scheduler = cluster(*racks(2))
    submit(scheduler, 1, 2, within="row")
    scheduler.run(0)
    verdict = explain(state, 1, 0)
    assert verdict.reason is Reason.IMPOSSIBLE
    assert "there is no level 'row'; levels are zone, rack" in verdict.message


def test_a_gang_larger_than_any_rack_never_starts_and_is_told() -> None:
    """Racks of two and three nodes."""
    state, _scheduler = cluster(*racks(2, 3))
    never = never_fits(state, ClassSpec({"cpu": 4}, 4, within="rack"))
    assert never is not None
    assert never.because == "4 nodes of one rack asked for; of those that could hold it, one rack has at most 3"
    assert never_fits(state, ClassSpec({"cpu": 4}, 4, within="zone")) is None


def test_why_says_that_nodes_of_the_rack_are_down() -> None:
    """r2 could hold three, and one of its nodes is down."""
    state, scheduler = cluster(*racks(2, 3))
    apply(state, NodesChanged((node("n5", "r2", health=Health.DOWN),)))
    submit(scheduler, 1, 3, within="rack")
    scheduler.run(0)
    verdict = explain(state, 1, 0)
    assert verdict.reason is Reason.NODES_DOWN
    assert verdict.message == "needs 3 nodes of one rack; of those that could hold it 2 are up"


def test_one_node_within_a_level_is_in_some_domain_of_it() -> None:
    """n1 is in no rack."""
    state, scheduler = cluster(NodeSpec("n1", {"cpu": 4}), node("n2", "r1"))
    submit(scheduler, 1, 1, within="rack")
    scheduler.run(0)
    assert places(state) == {1: ["n2"]}


def test_arrays_of_gangs_fill_racks_one_by_one() -> None:
    """Three gangs of two in racks of two, three and four nodes."""
    state, scheduler = cluster(*racks(2, 3, 4))
    rows = submit_rows(1)
    rows["job"], rows["tasks"] = 1, 4
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"cpu": 4}, 2, within="rack"),)))
    scheduler.run(0)
    check_invariants(state)
    held = np.bincount([2 if int(name[1:]) < 3 else 3 if int(name[1:]) < 6 else 4 for name in _names(state)])
    assert held[2:].tolist() == [2, 2, 4]


def _names(state: State) -> list[str]:
    return [state.node_name(node) for node in range(len(state.nodes.names)) if state.nodes.free[node, 0] == 0]
