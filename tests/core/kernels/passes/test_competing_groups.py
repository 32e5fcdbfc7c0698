"""Whether a job with several groups of nodes competes with another one: any of its groups may."""

from __future__ import annotations

from hal.core.engine import apply, new_state
from hal.core.engine.classes import ClassSpec, Match, Requirement
from hal.core.engine.events import NodesChanged, NodeSpec
from hal.core.engine.rules.interning import intern_classes
from hal.core.kernels.passes.kept_reservations import _competes
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain


def test_each_group_is_asked_also_that_of_the_first_class() -> None:
    """Classes are numbered from 0, and nothing else may stand for "no further group"."""
    state = new_state()
    apply(state, NodesChanged(tuple(NodeSpec(f"n{pool}", {"cpu": 4}, {"pool": pool}) for pool in "abc")))
    kinds = [ClassSpec({"cpu": 1}, 1, (Requirement("pool", Match.IN, (pool,)),)) for pool in "abc"]
    first, second, third = (int(one) for one in intern_classes(state, kinds))
    t = state.tables()
    assert first == 0
    t.classes[second, L.C_NEXT] = first + 1
    shapes = [int(t.classes[one, L.C_SHAPE]) for one in (first, second, third)]
    assert [plain(_competes)(t, second, shape) for shape in shapes] == [True, True, False]
    assert [plain(_competes)(t, first, shape) for shape in shapes] == [True, False, False]
