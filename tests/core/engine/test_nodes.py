"""Nodes that leave and come back: their rows, the work on them, and who may start there."""

from __future__ import annotations

import numpy as np
import pytest

from hal.core.engine import cycle
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import Match, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.errors import EngineError
from hal.core.engine.events import END, AttemptsEnded, Health, NodesChanged, NodeSpec
from hal.core.engine.why.explain import explain
from hal.core.model import Constraint, Operator
from hal.core.model.verdict import Reason
from tests.core.engine.clusters import ended, engine, job, places

A, B = NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 4})


@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_node_that_left_takes_nothing_new_and_keeps_its_row_until_it_is_empty(backfill: Backfill) -> None:
    """While job 1 runs on the node that left, the node that joins gets another row; later the row is used again."""
    state, _sink, scheduler = engine(EngineConfig(backfill=backfill), A)
    scheduler.feed(job(1, 1))
    scheduler.run(0)
    row = state.node_index("a")
    scheduler.feed(NodesChanged(removed=("a",)))
    scheduler.feed(job(2, 1))
    scheduler.run(1)
    check_invariants(state)
    with pytest.raises(KeyError):
        state.node_index("a")
    assert explain(state, 2, 1).reason in (Reason.IMPOSSIBLE, Reason.NODES_DOWN)
    scheduler.feed(NodesChanged((B,)))
    assert state.node_index("b") != row
    scheduler.feed(ended(1))
    scheduler.feed(NodesChanged((NodeSpec("c", {"cpu": 1}),)))
    scheduler.run(2)
    check_invariants(state)
    assert state.node_index("c") == row
    assert places(state) == {2: ["b"]} or places(state) == {2: ["c"]}


@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_node_that_returns_before_its_work_has_ended_is_empty(backfill: Backfill) -> None:
    """The node joins anew under its old name: new work gets all of it, and the old attempt can still end."""
    state, _sink, scheduler = engine(EngineConfig(backfill=backfill), A)
    scheduler.feed(job(1, 4))
    scheduler.run(0)
    scheduler.feed(NodesChanged(removed=("a",)))
    scheduler.feed(NodesChanged((A,)))
    scheduler.feed(job(2, 4))
    scheduler.run(1)
    check_invariants(state)
    assert places(state) == {1: ["a"], 2: ["a"]}
    rows = np.zeros(1, END)
    rows["job"], rows["attempt"], rows["requeue"] = 1, 1, 1
    scheduler.feed(AttemptsEnded(rows))
    scheduler.run(2)
    check_invariants(state)
    assert places(state) == {2: ["a"]}
    scheduler.feed(ended(2))
    scheduler.run(3)
    assert places(state) == {1: ["a"]}


@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_promise_on_a_node_that_left_moves(backfill: Backfill) -> None:
    """A gang of two waits for a and b; b leaves, c joins: it starts on a and c once a is free."""
    state, _sink, scheduler = engine(EngineConfig(backfill=backfill), A, B)
    scheduler.feed(job(1, 4, walltime_ms=10_000))
    scheduler.run(0)
    scheduler.feed(job(2, 4, gang=2, walltime_ms=10_000))
    scheduler.run(1)
    scheduler.feed(NodesChanged(removed=("b",)))
    scheduler.run(2)
    check_invariants(state)
    scheduler.feed(NodesChanged((NodeSpec("c", {"cpu": 4}),)))
    scheduler.feed(ended(1))
    scheduler.run(3)
    check_invariants(state)
    assert {number: sorted(nodes) for number, nodes in places(state).items()} == {2: ["a", "c"]}


@pytest.mark.parametrize("backfill", [each for each in Backfill if each is not Backfill.NONE])
def test_a_cycle_that_is_repeated_moves_the_same_promise(backfill: Backfill) -> None:
    """Job 3 was promised node a, which left: each cycle, asked again before its plan is assumed, says where it goes."""
    state, _sink, scheduler = engine(EngineConfig(backfill=backfill), A, B)
    for number, walltime in ((1, 5), (2, 9), (3, 5)):
        scheduler.feed(job(number, 4, walltime_ms=walltime))
    scheduler.run(0)
    scheduler.feed(NodesChanged(removed=("a",)))
    plans = [cycle(state, 1) for _ in range(3)]
    assert len({(plan.reservations.tobytes(), plan.reservation_rows.tobytes()) for plan in plans}) == 1
    assert [state.node_name(int(row)) for row in plans[0].reservation_rows] == ["b"]


def test_a_smaller_node_may_owe_more_than_it_has() -> None:
    """The node comes back with 2 cpu while 4 are used: nothing starts there until enough has ended."""
    state, _sink, scheduler = engine(EngineConfig(), A)
    for number in (1, 2):
        scheduler.feed(job(number, 2))
    scheduler.run(0)
    scheduler.feed(NodesChanged((NodeSpec("a", {"cpu": 2}),)))
    scheduler.feed(job(3, 1))
    scheduler.run(1)
    check_invariants(state)
    scheduler.feed(ended(1))
    scheduler.run(2)
    assert sorted(places(state)) == [2]
    scheduler.feed(ended(2))
    scheduler.run(3)
    check_invariants(state)
    assert sorted(places(state)) == [3]


@pytest.mark.parametrize("backfill", list(Backfill))
def test_what_a_node_withholds_nobody_gets(backfill: Backfill) -> None:
    """Of 4 cpu 1 is withheld: a job of 4 waits, is not impossible, and starts when nothing is withheld any more."""
    state, _sink, scheduler = engine(EngineConfig(backfill=backfill), NodeSpec("a", {"cpu": 4}, withheld={"cpu": 1}))
    scheduler.feed(job(1, 4))
    scheduler.run(0)
    check_invariants(state)
    assert (places(state), explain(state, 1, 0).reason) == ({}, Reason.RESOURCES)
    scheduler.feed(NodesChanged((A,)))
    scheduler.run(1)
    check_invariants(state)
    assert places(state) == {1: ["a"]}


@pytest.mark.parametrize("backfill", list(Backfill))
def test_a_node_may_withhold_less_than_nothing(backfill: Backfill) -> None:
    """Two jobs of 3 on 4 cpu: what the first one takes is given back by the event, and again when it leaves."""
    state, _sink, scheduler = engine(EngineConfig(backfill=backfill), A)
    for number in (1, 2):
        scheduler.feed(job(number, 3))
    scheduler.run(0)
    assert places(state) == {1: ["a"]}
    scheduler.feed(NodesChanged((NodeSpec("a", {"cpu": 4}, withheld={"cpu": -3}),)))
    scheduler.run(1)
    check_invariants(state)
    assert places(state) == {1: ["a"], 2: ["a"]}
    scheduler.feed(NodesChanged(removed=("a",)))
    check_invariants(state)
    scheduler.feed(ended(1, 2))
    scheduler.feed(NodesChanged((B,)))
    check_invariants(state)
    assert state.nodes.free[state.node_index("b")].tolist() == [4]


def test_a_node_withholds_only_what_it_has() -> None:
    """Anything else is an error, and changes nothing."""
    _state, _sink, scheduler = engine(EngineConfig(), A)
    with pytest.raises(EngineError, match="withholds 1 of 'gpu'"):
        scheduler.feed(NodesChanged((NodeSpec("a", {"cpu": 4}, withheld={"gpu": 1}),)))


@pytest.mark.parametrize("health", [Health.CORDONED, Health.DRAINING, Health.DOWN])
def test_a_node_that_is_not_up_keeps_its_work_and_takes_none(health: Health) -> None:
    """Job 1 goes on, job 2 waits and says that nodes are down; up again, job 2 starts."""
    state, _sink, scheduler = engine(EngineConfig(), A)
    scheduler.feed(job(1, 1))
    scheduler.run(0)
    scheduler.feed(NodesChanged((NodeSpec("a", {"cpu": 4}, health=health),)))
    scheduler.feed(job(2, 1))
    scheduler.run(1)
    assert places(state) == {1: ["a"]}
    assert explain(state, 2, 1).reason is Reason.NODES_DOWN
    scheduler.feed(NodesChanged((A,)))
    scheduler.run(2)
    check_invariants(state)
    assert places(state) == {1: ["a"], 2: ["a"]}


@pytest.mark.parametrize("operator", list(Operator))
def test_a_condition_holds_in_the_engine_where_it_holds_in_the_model(operator: Operator) -> None:
    """Remarks about labels that no node has ask the model, placement asks the engine: no label, and three values."""
    values = ("a", "b") if operator in (Operator.IN, Operator.NOT_IN) else ()
    rule = Constraint("kind", operator, values)
    requirement = Requirement("kind", Match(operator), values)
    nodes: tuple[dict[str, str], ...] = ({}, {"kind": "a"}, {"kind": "c"}, {"kind": ""})
    assert [rule.holds(labels) for labels in nodes] == [requirement.holds(labels) for labels in nodes]
