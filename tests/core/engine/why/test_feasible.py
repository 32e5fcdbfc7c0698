"""What could never run: the answer in whole columns is that of looking at machines one by one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine.classes import ClassSpec, Match, Requirement, grouped
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import Health, NodeSpec
from hal.core.engine.why.feasible import Machines, _shortage_of, enough_known
from tests.core.engine.clusters import engine
from tests.examples import examples

FAST = (Requirement("fast", Match.EXISTS),)
PARTS = st.tuples(
    st.dictionaries(st.sampled_from(["cpu", "gpu", "fpga"]), st.integers(0, 4), max_size=2),
    st.integers(1, 4),
    st.sampled_from([(), (), FAST]),
    st.sampled_from([(), ("old",)]),
)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(0, 4)), st.booleans(), st.booleans(),
            st.sampled_from(["", "r1", "r2"]), st.sampled_from(list(Health)),
        ),
        max_size=7,
    ),
    st.lists(PARTS, min_size=1, max_size=4),
    st.sampled_from(["", "", "rack", "row"]),
    st.sets(st.sampled_from([f"n{at}" for at in range(7)])),
    st.none() | st.sets(st.sampled_from([f"n{at}" for at in range(7)])),
)  # fmt: skip
def test_enough_nodes_are_known_just_where_nothing_is_short(
    cluster: Sequence[tuple[dict[str, int], bool, bool, str, Health]],
    drawn: Sequence[tuple[dict[str, int], int, tuple[Requirement, ...], tuple[str, ...]]],
    within: str,
    without: set[str],
    only: set[str] | None,
) -> None:
    """Nodes with labels, taints and racks, up or not; requests of one part or several groups, of levels that there are
    and are not."""
    nodes = [
        NodeSpec(
            f"n{at}", capacity, {"fast": ""} if fast else {}, health, domains=(rack,), taints={"old": ""} if old else {}
        )
        for at, (capacity, fast, old, rack, health) in enumerate(cluster)
    ]
    state, _sink, _scheduler = engine(EngineConfig(levels=("rack",)), *nodes)
    parts = [
        ClassSpec(request, wide, constraints, within=within, tolerates=tolerates, group=f"g{at}")
        for at, (request, wide, constraints, tolerates) in enumerate(drawn)
    ]
    spec = grouped(parts)[0] if len(parts) > 1 else parts[0]
    short = _shortage_of(spec, Machines(state, without=frozenset(without), only=only))
    assert enough_known(state, spec, frozenset(without), only) == (short is None)
