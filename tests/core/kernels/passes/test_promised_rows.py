"""Promised rows are chosen first where the work ends in time, last where it fits beside the promise, else never."""

from __future__ import annotations

import pytest

from hal.core.engine.applying import apply
from hal.core.engine.classes import ClassSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import NodesChanged, NodeSpec
from hal.core.engine.rules.configuration import new_state
from hal.core.engine.rules.interning import intern_classes
from hal.core.kernels.structures import layout as L
from tests.core.kernels.passes.test_placing import _promise as reserve_node
from tests.core.kernels.passes.test_placing import choose

NODES = 4
PROMISED_ROW = 2
STARTS_AT = 1_000


@pytest.mark.parametrize("placement", ["first-fit", "best-fit"])
@pytest.mark.parametrize(
    ("kind", "end", "extra", "expected"),
    [
        (L.KIND_RESERVED, STARTS_AT, 0, [2, 0, 1, 3]),
        (L.KIND_RESERVED, STARTS_AT + 1, 2_000, [0, 1, 3, 2]),
        (L.KIND_RESERVED, STARTS_AT + 1, 1_999, [0, 1, 3]),
        (L.KIND_CLAIM, STARTS_AT, 2_000, [0, 1, 3, 2]),
        (L.KIND_CLAIM, STARTS_AT, 1_999, [0, 1, 3]),
    ],
)
def test_a_promised_row_is_chosen_by_when_the_work_ends_and_what_is_left(
    placement: str, kind: int, end: int, extra: int, expected: list[int]
) -> None:
    """Four nodes of 4 cpus, one of them promised from 1 s on; 2 cpus are asked of each. A claim has no end in time."""
    state = new_state(EngineConfig(placement=placement))
    apply(state, NodesChanged(tuple(NodeSpec(f"n{k}", {"cpu": 4_000}) for k in range(NODES))))
    (class_id,) = intern_classes(state, (ClassSpec({"cpu": 2_000}, NODES),))
    planned, nodes = state.scratch.planned, state.scratch.planned_nodes
    planned[0, L.V_KIND], planned[0, L.V_START] = kind, STARTS_AT
    nodes[0] = [PROMISED_ROW, 0, *[extra] * len(state.nodes.resources)]
    state.counts[L.COUNT_RESERVED] = 1
    reserve_node(state.allocation.tables(), PROMISED_ROW, 0)
    shape = int(state.catalogue.classes[class_id, L.C_SHAPE])
    assert choose(state, shape, NODES, end, 1) == expected
