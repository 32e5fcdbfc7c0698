"""A reservation that may move to an earlier instant: what the plan says of it, slice by slice."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.classes import Match, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import END, AttemptsEnded, ClockAdvanced, NodesChanged, NodeSpec, PlanAssumed
from hal.core.engine.views import reservations
from hal.core.kernels.passes.conservative import _differs
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain
from tests.core.engine.clusters import job

WHOLE: Final = 1 << 20
ON_B: Final = (Requirement("rack", Match.IN, ("b",)),)


def go(state: State, now: int, budget: int) -> None:
    """A whole pass, each of its slices assumed."""
    apply(state, ClockAdvanced(now))
    cursor = None
    for _ in range(20):
        plan = cycle(state, now, budget=budget, cursor=cursor)
        if plan.changes:
            apply(state, PlanAssumed(plan))
        cursor = plan.cursor
        if cursor is None:
            return
    raise AssertionError("a pass without an end")


def end(state: State, number: int) -> None:
    rows = np.zeros(1, END)
    rows["job"], rows["attempt"] = number, 1
    apply(state, AttemptsEnded(rows))


def promised(state: State) -> dict[int, tuple[int, int]]:
    """By job: when, and whether it has yet to look at what others left."""
    return {int(one["job"]): (int(one["start_ms"]), int(one["behind"])) for one in reservations(state)}


@pytest.mark.parametrize("budget", [1, WHOLE])
def test_a_gang_moves_though_the_job_whose_turn_comes_first_does_not(budget: int) -> None:
    """Two nodes are busy until 100 and 80, a third one, of another rack, until 90. The first ends at 50."""
    state = new_state(EngineConfig(backfill=Backfill.CONSERVATIVE, order="fcfs"))
    apply(state, NodesChanged((NodeSpec("n0", {"cpu": 4}), NodeSpec("n1", {"cpu": 4}))))
    apply(state, job(1, 4, walltime_ms=100))
    apply(state, job(2, 4, walltime_ms=80))
    go(state, 0, WHOLE)
    apply(state, NodesChanged((NodeSpec("n2", {"cpu": 4}, {"rack": "b"}),)))
    apply(state, job(3, 4, constraints=ON_B, walltime_ms=90))
    go(state, 0, WHOLE)
    apply(state, job(4, 4, constraints=ON_B, walltime_ms=500))
    apply(state, job(5, 3, gang=2, walltime_ms=200))
    go(state, 0, budget)
    assert promised(state) == {4: (90, 0), 5: (100, 0)}
    end(state, 1)
    go(state, 50, budget)
    assert promised(state) == {4: (90, 0), 5: (80, 0)}


@pytest.mark.parametrize("budget", [1, WHOLE])
def test_who_looked_at_all_nodes_and_stays_has_not_to_look_again(budget: int) -> None:
    """A gang wants two of three nodes, which are busy until 80, 80 and 300. What ends at 50 ends on the one it has."""
    state = new_state(EngineConfig(backfill=Backfill.CONSERVATIVE, order="fcfs"))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": 4}) for k in range(3))))
    for number, until in ((1, 80), (2, 80), (3, 300)):
        apply(state, job(number, 4, walltime_ms=until))
    apply(state, job(4, 3, gang=2, walltime_ms=200))
    go(state, 0, budget)
    end(state, 1)
    go(state, 50, budget)
    assert promised(state) == {4: (80, 0)}


@pytest.mark.parametrize(
    ("start", "kind", "nodes", "differs"),
    [
        (100, L.KIND_RESERVED, (1, 3), False),
        (101, L.KIND_RESERVED, (1, 3), True),
        (100, L.KIND_CLAIM, (1, 3), True),
        (100, L.KIND_RESERVED, (1, 2), True),
        (100, L.KIND_RESERVED, (1,), True),
        (100, L.KIND_RESERVED, (), True),
    ],
)
def test_a_reservation_differs_in_time_kind_or_nodes(
    start: int, kind: int, nodes: tuple[int, ...], differs: bool
) -> None:
    """It is at 100, of nodes 1 and 3."""
    state = new_state()
    apply(state, NodesChanged(tuple(NodeSpec(f"n{at}", {"cpu": 1}) for at in range(4))))
    t = state.tables()
    t.planned[0, [L.V_START, L.V_KIND, L.V_FIRST, L.V_NODES]] = 100, L.KIND_RESERVED, 0, 2
    t.planned_nodes[:2, L.Q_NODE] = 1, 3
    t.scratch[L.SCRATCH_CHOSEN, : len(nodes)] = nodes
    assert plain(_differs)(t, 0, start, kind, len(nodes)) is differs
