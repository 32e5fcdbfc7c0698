"""A node event counts again only what it touches; the counts are those of counting everything."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from hal.core.engine import State, apply
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, Match, Requirement
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import Health, JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.rules.node_counts import counts_apart
from hal.core.kernels.structures import layout as L
from tests.core.engine.clusters import engine

RACK = (Requirement("rack", Match.IN, ("r1",)),)
SPECS = (
    ClassSpec({"cpu": 1_000}),
    ClassSpec({"cpu": 3_000}),
    ClassSpec({"cpu": 2_000, "memory": 2 << 30}),
    ClassSpec({"cpu": 1_000}, 1, RACK),
    ClassSpec({"cpu": 9_000}),
)
NODES = tuple(NodeSpec(f"n{k}", {"cpu": 4_000, "memory": 4 << 30}, {"rack": f"r{k % 3}"}) for k in range(40))


def crowded() -> State:
    """Forty nodes; a few jobs of each class run, others wait."""
    state, _sink, scheduler = engine(EngineConfig(), *NODES)
    rows = submit_rows(60)
    rows["job"] = np.arange(1, 61)
    rows["class_index"] = np.arange(60) % len(SPECS)
    scheduler.feed(JobsSubmitted(rows, SPECS))
    scheduler.run(0)
    return state


def counts(state: State) -> list[list[int]]:
    """How many nodes each shape fits now, and could."""
    shapes = int(state.meta[L.M_SHAPES])
    both: list[list[int]] = state.catalogue.shapes[:shapes][:, [L.S_FIT, L.S_EVER]].tolist()
    return both


@pytest.mark.parametrize("seed", range(20))
def test_counts_of_touched_nodes_are_those_of_counting_everything(seed: int) -> None:
    """Nodes join, leave, close, open, change size and labels, one or two in an event, in any order."""
    state, r = crowded(), Random(seed)
    held = {name for name in state.nodes.by_name if state.nodes.rows[state.nodes.by_name[name], L.N_PIECES]}
    for number in range(30):
        name = r.choice(sorted(state.nodes.by_name))
        removed: tuple[str, ...] = (name,) if r.random() < 0.3 and name not in held else ()
        spec = NodeSpec(
            f"x{number}" if removed or r.random() < 0.2 else name,
            {"cpu": r.choice((2_000, 4_000, 10_000)), "memory": r.choice((1, 4)) << 30},
            {"rack": f"r{r.randrange(3)}"},
            r.choice(tuple(Health)),
        )
        assert counts_apart(state, 1 + len(removed))
        apply(state, NodesChanged((spec,), removed))
        apart = counts(state)
        check_invariants(state)
        state.recount(0, int(state.meta[L.M_SHAPES]))
        assert apart == counts(state)


def test_many_nodes_are_counted_as_a_whole() -> None:
    """A quarter of the cluster in one event."""
    state = crowded()
    assert not counts_apart(state, 10)
    apply(state, NodesChanged(tuple(NodeSpec(f"y{k}", {"cpu": 4_000}) for k in range(10))))
    check_invariants(state)


def test_a_resource_that_nobody_had_is_counted_everywhere() -> None:
    """Work that asked for it before fits on the node that brings it."""
    state, _sink, scheduler = engine(EngineConfig(), *NODES)
    rows = submit_rows(1)
    rows["job"] = 1
    scheduler.feed(JobsSubmitted(rows, (ClassSpec({"gpu": 1_000}),)))
    apply(state, NodesChanged((NodeSpec("n0", {"cpu": 4_000, "gpu": 8_000}),)))
    check_invariants(state)
    assert counts(state)[0] == [1, 1]
