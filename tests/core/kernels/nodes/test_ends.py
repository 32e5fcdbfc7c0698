"""Planned ends: whoever comes and goes, and whenever somebody asks, the tree lists those that there are, by time."""

from __future__ import annotations

from random import Random

import pytest

from hal.core.engine import new_state
from hal.core.kernels.nodes.ends import add_end, drop_end, ends_root
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.jit import plain
from tests.core.kernels.engine_reading import in_order

RUNS = 12


@pytest.mark.parametrize("seed", range(20))
def test_the_tree_of_ends_is_a_sorted_list(seed: int) -> None:
    """Attempts are noted, dropped and asked for in any order; some of them end at one instant, some never."""
    r = Random(seed)
    state = new_state()
    state.make_room_for_nodes(1)
    t = state.tables()
    assert t.runs.shape[0] >= RUNS
    there: dict[int, int] = {}
    for _ in range(80):
        run = r.randrange(RUNS)
        if run in there:
            plain(drop_end)(t, run)
            del there[run]
        else:
            there[run] = r.choice((5, 5, 7, 9, L.INF))
            t.runs[run, [L.R_JOB, L.R_TASK, L.R_END]] = run % 4, run, there[run]
            plain(add_end)(t, run)
        if r.random() < 0.3:
            expected = sorted((end, one % 4, one) for one, end in there.items() if end < L.INF)
            assert in_order(state.work.ends, plain(ends_root)(t)) == [one for _end, _job, one in expected]
            assert state.meta[L.M_UNLISTED] == 0
    waiting = sum(end < L.INF for end in there.values())
    plain(ends_root)(t)
    assert len(in_order(state.work.ends, int(state.meta[L.M_END_ROOT]))) == waiting
