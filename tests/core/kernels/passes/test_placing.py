"""Placement follows rows through what happens to them and takes the rows that looking at all of them would take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine.applying import apply
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import NodesChanged, NodeSpec
from hal.core.engine.rules.configuration import new_state
from hal.core.engine.rules.interning import intern_classes
from hal.core.engine.state import State
from hal.core.kernels.nodes.rows import give_node, reserve_node, settle_counts, take_later
from hal.core.kernels.passes.domain_placing import choose_nodes
from hal.core.kernels.passes.node_scores import SCORE_ONE
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain
from hal.core.kernels.structures.layout import BLOCK, ROOM_BITS
from tests.examples import examples

NODES = 2 * BLOCK + 40
CAPACITIES = (
    {"cpu": 64_000, "memory": 512 << 30, "gpu": 8_000},
    {"cpu": 48_000, "memory": 384 << 30},
    {"cpu": 64_000, "memory": 512 << 30, "gpu": 7_999},
)
CLASSES = (
    ClassSpec({"cpu": 8_000, "memory": 64 << 30, "gpu": 1_000}),
    ClassSpec({"cpu": 8_000, "memory": (64 << 30) + 1}),
    ClassSpec({"gpu": 2_000}),
    ClassSpec({"cpu": 64_000, "memory": 512 << 30}),
    ClassSpec({"cpu": 30_000}, nodes=5),
    ClassSpec({}),
)

steps = st.lists(
    st.tuples(st.sampled_from(("take", "take", "take", "give", "promise", "burst")), st.integers(0, len(CLASSES) - 1)),
    min_size=1,
    max_size=25,
)


# As plain Python: compiling them by themselves takes 20 s. Compiled they are a part of the kernels that plan, which are
# compared with a whole pass (test_pass_definition.py).
_choose, _take_later, _settle, _give, _promise = map(
    plain, (choose_nodes, take_later, settle_counts, give_node, reserve_node)
)


def choose(state: State, shape: int, nodes: int, end: int, stamp: int) -> list[int]:
    """The nodes that a slice of this stamp chooses, when it has started something already."""
    state.pass_record[L.PASS_STARTS] = 1
    state.pass_record[L.PASS_STAMP] = stamp
    found = _choose(state.allocation.tables(), 0, shape, nodes, end, -1)
    return [int(node) for node in state.outputs.start_nodes[:found]]


def take(state: State, row: int, shape: int) -> None:
    """As a start does."""
    t = state.allocation.tables()
    _take_later(t, row, shape)
    _settle(t)


@pytest.mark.parametrize("capacities", [CAPACITIES[:1], CAPACITIES])
@given(steps=steps, seed=st.integers(0, 1 << 20))
@settings(max_examples=examples(40), deadline=None)
def test_best_rows_are_those_of_looking_at_every_row(
    capacities: tuple[dict[str, int], ...], steps: list[tuple[str, int]], seed: int
) -> None:
    """Least (tier, -score, row) of all rows that fit, by the exact score, after takes, gives and promises anywhere."""
    draw = np.random.default_rng(seed)
    state = new_state(EngineConfig(placement="best-fit"))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", capacities[k % len(capacities)]) for k in range(NODES))))
    shapes = [int(state.catalogue.classes[class_id, L.C_SHAPE]) for class_id in intern_classes(state, CLASSES)]
    held: list[tuple[int, int]] = []
    promises, promised = state.scratch.planned, state.scratch.planned_nodes
    promises[0, L.V_START], promises[1, L.V_KIND] = 1_000, L.KIND_CLAIM
    count = 0
    for what, which in steps:
        shape, nodes = shapes[which], CLASSES[which].nodes
        end = int(draw.choice((500, 1_000, 5_000)))
        expected = exact(state, promises, promised[:count], shape, nodes, end)
        state.counts[L.COUNT_RESERVED] = count
        assert choose(state, shape, nodes, end, 1) == expected
        if what == "take":
            rows = expected
        elif what == "burst":  # so many that they are followed block by block
            rows = [int(row) for row in draw.integers(0, NODES, 90) if fits(state, int(row), shape)]
        else:
            rows = []
        for row in dict.fromkeys(rows):
            take(state, row, shape)
            held.append((row, shape))
        if what == "give":
            draw.shuffle(held)
            for row, taken in held[: len(held) // 2]:
                _give(state.allocation.tables(), row, taken)
            held = held[len(held) // 2 :]
        if what == "promise":
            row = int(draw.integers(0, NODES))
            if state.nodes.rows[row, L.N_RESERVED] < 0:
                promised[count, : L.Q_EXTRA] = row, int(draw.integers(0, 2))
                promised[count, L.Q_EXTRA :] = state.nodes.free[row] - state.catalogue.request[:, shape]
                _promise(state.allocation.tables(), row, count)
                count += 1


@given(steps=steps, seed=st.integers(0, 1 << 20))
@settings(max_examples=examples(40), deadline=None)
def test_first_rows_are_those_of_looking_at_every_row(steps: list[tuple[str, int]], seed: int) -> None:
    """Groups of rows that are passed over as one hold no row that fits, however much is taken in a cycle; what is given
    back, which begins another cycle, is seen."""
    draw = np.random.default_rng(seed)
    state = new_state(EngineConfig(placement="first-fit"))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", CAPACITIES[k % len(CAPACITIES)]) for k in range(NODES))))
    shapes = [int(state.catalogue.classes[class_id, L.C_SHAPE]) for class_id in intern_classes(state, CLASSES)]
    held: list[tuple[int, int]] = []
    stamp = 1
    for what, which in steps:
        for each in (which, *range(len(CLASSES))):
            shape, nodes = shapes[each], CLASSES[each].nodes
            expected = [row for row in range(NODES) if fits(state, row, shape)][:nodes]
            assert choose(state, shape, nodes, 1_000, stamp) == expected
        rows: list[int] = []
        if what == "take":
            rows = [row for row in range(NODES) if fits(state, row, shapes[which])][: CLASSES[which].nodes]
        elif what in ("burst", "promise"):  # most of what there is, in one place or everywhere
            begin = int(draw.integers(0, NODES))
            rows = [row for row in range(NODES) if what == "burst" or begin <= row < begin + (3 << ROOM_BITS)]
        for row in rows:
            while fits(state, row, shapes[which]) and CLASSES[which].request and draw.random() < 0.9:
                take(state, row, shapes[which])
                held.append((row, shapes[which]))
                if what == "take":
                    break
        if what == "give":
            draw.shuffle(held)
            for row, taken in held[: len(held) // 2]:
                _give(state.allocation.tables(), row, taken)
            held = held[len(held) // 2 :]
            stamp += 1


def fits(state: State, row: int, shape: int) -> bool:
    return bool((state.nodes.free[row] >= state.catalogue.request[:, shape]).all())


def exact(state: State, promises: Any, promised: Any, shape: int, nodes: int, end: int) -> list[int]:
    """All rows that fit, by (tier, -score, row), as plain Python computes them."""
    ranked = []
    request = state.catalogue.request[:, shape]
    for row in range(NODES):
        if not fits(state, row, shape):
            continue
        tier = 1
        place = int(state.nodes.rows[row, L.N_RESERVED])
        if place >= 0:
            promise = promises[promised[place, L.Q_RESERVATION]]
            if promise[L.V_KIND] == L.KIND_RESERVED and end <= promise[L.V_START]:
                tier = 0
            elif (promised[place, L.Q_EXTRA :] >= request).all():
                tier = 2
            else:
                continue
        left = [
            (int(free) - int(asked)) / int(whole)
            for free, asked, whole in zip(state.nodes.free[row], request, state.nodes.capacity[row], strict=True)
            if asked > 0
        ]
        score = int(np.floor((1.0 - min([1.0, *left])) * SCORE_ONE + 0.5))
        ranked.append((tier, -score, row))
    return [row for _tier, _score, row in sorted(ranked)[:nodes]]
