"""Which nodes a shape could ever use, as bits: the same as a look at each node, also beyond the first word of bits."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from hal.core.engine import apply, new_state
from hal.core.engine.classes import ClassSpec, Match, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import Health, NodesChanged, NodeSpec
from hal.core.engine.rules.interning import intern_classes
from hal.core.kernels.nodes.reach import competes, reaches
from hal.core.kernels.nodes.rows import compete
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain

POOLS = ("a", "b", "c", "d")
NODES = 3 * L.WORD + 5


@pytest.mark.parametrize("neighbours", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_two_shapes_compete_where_one_node_could_hold_either(seed: int, neighbours: bool) -> None:
    """Shapes of four pools and two sizes; the nodes of a pool are neighbours, or anywhere. A few nodes are down."""
    r = Random(seed)
    pools = sorted(r.choice(POOLS) for _ in range(NODES))
    if not neighbours:
        r.shuffle(pools)
    specs = [NodeSpec(f"n{k}", {"cpu": r.choice((2, 4))}, {"pool": pool}) for k, pool in enumerate(pools)]
    state = new_state(EngineConfig(backfill=Backfill.CONSERVATIVE))
    apply(state, NodesChanged(tuple(specs)))
    kinds = tuple(
        ClassSpec({"cpu": cpu}, 1, (Requirement("pool", Match.IN, wanted),))
        for cpu in (1, 4)
        for wanted in (*((pool,) for pool in POOLS), ("a", "c"), ("d", "b"))
    )
    shapes = [int(state.catalogue.classes[one, L.C_SHAPE]) for one in intern_classes(state, kinds)]
    gone: list[int] = []
    for _ in range(2):
        t = state.tables()
        for one in shapes:
            for other in shapes:
                assert plain(competes)(t, one, other) == plain(compete)(t, one, other)
        for shape, kind in zip(shapes, kinds, strict=True):
            for node in (0, L.WORD - 1, L.WORD, 2 * L.WORD, NODES - 1, *gone):
                spec = specs[node]
                holds = kind.constraints[0].holds(spec.labels) and spec.capacity["cpu"] >= kind.request["cpu"]
                assert plain(reaches)(t, shape, node) == (holds and node not in gone)
        gone = r.sample(range(NODES), 20)
        apply(state, NodesChanged(tuple(replace(specs[k], health=Health.DOWN) for k in gone)))


def test_shapes_do_not_compete_because_both_reach_the_last_node_s_word() -> None:
    """Two pools whose nodes are in turn, none in the first word of bits, and nodes in all words that there are."""
    state = new_state(EngineConfig(backfill=Backfill.CONSERVATIVE))
    pools = ["none"] * L.WORD + ["a", "b"] * (64 - L.WORD // 2)
    apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": 1}, {"pool": pool}) for k, pool in enumerate(pools))))
    kinds = tuple(ClassSpec({"cpu": 1}, 1, (Requirement("pool", Match.IN, (pool,)),)) for pool in "ab")
    one, other = (int(state.catalogue.classes[kind, L.C_SHAPE]) for kind in intern_classes(state, kinds))
    t = state.tables()
    words = t.reach.shape[1] - 2
    assert (words - 1) * L.WORD < len(pools) <= words * L.WORD
    assert not plain(competes)(t, one, other)
