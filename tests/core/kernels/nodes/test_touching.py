"""What better work has come since reservations were made, and which nodes came free: kept in small lists."""

from __future__ import annotations

from random import Random

import pytest

from hal.core.engine import State, apply, new_state
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import NodesChanged, NodeSpec
from hal.core.kernels.nodes.touching import free_node, free_replaced, make_freed, make_stale, overtake, pass_over
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain

CONFIG = EngineConfig(backfill=Backfill.CONSERVATIVE)
NODES = 5


@pytest.mark.parametrize("seed", range(10))
def test_the_best_of_each_shape_is_remembered(seed: int) -> None:
    """As long as there are few shapes."""
    r = Random(seed)
    state = new_state(CONFIG)
    best: dict[int, tuple[int, int]] = {}
    for _ in range(12):
        shape, key, job = r.randrange(L.MAX_DROPS - 1), r.randrange(4), r.randrange(4)
        plain(overtake)(state.tables(), key, job, shape)
        best[shape] = min((key, job), best.get(shape, (key, job)))
    drops = state.work.drops[: int(state.meta[L.M_DROPS])]
    assert {int(one[L.X_SHAPE]): (int(one[L.X_KEY]), int(one[L.X_JOB])) for one in drops} == best
    assert len(drops) == len(best)


@pytest.mark.parametrize("seed", range(10))
def test_of_many_shapes_some_are_remembered_as_any(seed: int) -> None:
    """All that came is behind something that is remembered of its shape, or of any; all that is remembered came."""
    r = Random(seed)
    state = new_state(CONFIG)
    came = [(r.randrange(9), r.randrange(9), r.randrange(3 * L.MAX_DROPS)) for _ in range(6 * L.MAX_DROPS)]
    for key, job, shape in came:
        plain(overtake)(state.tables(), key, job, shape)
    drops = state.work.drops[: int(state.meta[L.M_DROPS])]
    known = [(int(one[L.X_KEY]), int(one[L.X_JOB]), int(one[L.X_SHAPE])) for one in drops]
    assert len(known) == L.MAX_DROPS
    for key, job, shape in came:
        assert any(of in (shape, -1) and (first, number) <= (key, job) for first, number, of in known)
    assert all((first, number) in [(key, job) for key, job, _shape in came] for first, number, _of in known)


def nodes_of_five(backfill: Backfill = Backfill.CONSERVATIVE) -> State:
    state = new_state(EngineConfig(backfill=backfill))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": 1}) for k in range(NODES))))
    t = state.tables()
    state.meta[L.M_FREED] = state.counts[L.COUNT_STALE] = 0
    for column in (L.N_FREED, L.N_STALE, L.N_EVENT):
        t.rows[:, column] = 0
    return state


def test_a_node_is_listed_once_and_by_the_last_time_it_came_free() -> None:
    state = nodes_of_five()
    t = state.tables()
    for node, epoch in ((3, 10), (1, 11), (3, 12), (4, 13)):
        plain(make_freed)(t, node, epoch)
    plain(make_stale)(t, 0)
    plain(make_stale)(t, 0)
    assert t.freed[: int(state.meta[L.M_FREED])].tolist() == [3, 1, 4]
    assert t.stale[: int(state.counts[L.COUNT_STALE])].tolist() == [3, 1, 4, 0]
    assert t.rows[:NODES, L.N_FREED].tolist() == [0, 11, 0, 12, 13]


@pytest.mark.parametrize(("seen", "left"), [(9, [3, 1, 4]), (11, [3, 4]), (12, [4]), (13, [])])
def test_a_whole_pass_forgets_what_came_free_before_it_began(seen: int, left: list[int]) -> None:
    state = nodes_of_five()
    t = state.tables()
    for node, epoch in ((3, 10), (1, 11), (3, 12), (4, 13)):
        plain(make_freed)(t, node, epoch)
    plain(pass_over)(t, seen)
    assert t.freed[: int(state.meta[L.M_FREED])].tolist() == left
    assert [node for node in range(NODES) if t.rows[node, L.N_FREED]] == sorted(left)
    assert state.meta[L.M_SEEN] == seen


@pytest.mark.parametrize(("backfill", "listed"), [(Backfill.CONSERVATIVE, [2]), (Backfill.EASY, [])])
def test_an_event_counts_later_than_any_pass_before_it(backfill: Backfill, listed: list[int]) -> None:
    """Where the policy plans with timelines; the event counts the epoch up afterwards."""
    state = nodes_of_five(backfill)
    t = state.tables()
    state.meta[L.M_EPOCH] = 40
    plain(free_node)(t, 2)
    assert t.freed[: int(state.meta[L.M_FREED])].tolist() == listed
    assert t.rows[2, [L.N_FREED, L.N_EVENT]].tolist() == ([41, 41] if listed else [0, 0])


@pytest.mark.parametrize(
    ("column", "freed"), [(None, []), *((column, [1, 3]) for column in (L.V_START, L.V_KIND, L.V_HELD, L.V_NODES))]
)
def test_nodes_of_a_reservation_come_free_when_anything_of_it_moves(column: int | None, freed: list[int]) -> None:
    """It holds two nodes; the plan keeps it as it is, or with one number another."""
    state = nodes_of_five()
    t = state.tables()
    state.meta[[L.M_TIMELINES, L.M_RESERVATIONS]] = 1
    t.reservations[0] = 0
    t.reservations[0, [L.V_ENTRY, L.V_JOB, L.V_START, L.V_KIND, L.V_NODES]] = 5, 7, 100, L.KIND_BLOCK, 2
    t.reserved[:2, L.Q_NODE] = 1, 3
    planned, nodes = t.reservations[:1].copy(), t.reserved[:3].copy()
    if column is not None:
        planned[0, column] += 1
    plain(free_replaced)(t, planned, nodes, 9)
    assert t.freed[: int(state.meta[L.M_FREED])].tolist() == freed


def test_only_nodes_of_the_reservation_that_is_gone_come_free() -> None:
    """Of four with a node each the plan keeps all but the third."""
    state = nodes_of_five()
    t = state.tables()
    state.meta[L.M_TIMELINES], state.meta[L.M_RESERVATIONS] = 1, 4
    t.reservations[:4] = 0
    for at in range(4):
        columns = [L.V_ENTRY, L.V_JOB, L.V_START, L.V_KIND, L.V_FIRST, L.V_NODES]
        t.reservations[at, columns] = at, 7 + at, 100, L.KIND_BLOCK, at, 1
        t.reserved[at, L.Q_NODE] = at
    planned, nodes = t.reservations[[0, 1, 3]].copy(), t.reserved[:4].copy()
    plain(free_replaced)(t, planned, nodes, 9)
    assert t.freed[: int(state.meta[L.M_FREED])].tolist() == [2]
