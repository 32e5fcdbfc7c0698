"""What judges the engine's tables after each step notices a wrong value in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hal.core.engine.checks.invariants import InvariantError, check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import NodeSpec
from hal.core.engine.state import State
from hal.core.kernels.structures import layout as L
from tests.core.engine.clusters import engine, job


def shape(state: State) -> Any:
    """What is known of what the jobs want."""
    return state.catalogue.shapes[0]


def bucket(state: State) -> Any:
    """The one that holds the job that waits."""
    return state.work.buckets[int(state.work.active[0])]


def begin_of_line(state: State) -> Any:
    """Of the timeline of the first node."""
    return state.timelines.profile[0]


WRONG: dict[str, tuple[Callable[[State], Any], int]] = {
    "fits on 1 rows, counted otherwise": (shape, L.S_FIT),
    "could fit on 2 rows, counted otherwise": (shape, L.S_EVER),
    "counted by domain, or not, wrongly": (shape, L.S_WITHIN),
    "first-fit would miss a row": (shape, L.S_FROM),
    "does not know its place": (bucket, L.B_ACTIVE),
    "counts wrongly": (bucket, L.B_COUNT),
    "has another head": (bucket, L.B_HEAD),
    "places its head wrongly": (bucket, L.B_HEAD_JOB),
    "has another least walltime": (bucket, L.B_LEAST),
    "counts its references wrongly": (bucket, L.B_REFS),
    "row 0 is said to have": (begin_of_line, L.POINT_SIZE),
}
"""What is said, and of which value."""


@pytest.mark.parametrize("says", WRONG)
def test_a_wrong_value_is_noticed(says: str) -> None:
    """Two too many, where one job runs on the first of two nodes and one waits for both."""
    nodes = (NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 4}))
    state, _, scheduler = engine(EngineConfig(backfill=Backfill.CONSERVATIVE), *nodes)
    scheduler.feed(job(1, 3, walltime_ms=1_000))
    scheduler.feed(job(2, 3, gang=2, walltime_ms=1_000))
    for now in range(4):
        scheduler.run(now)
    check_invariants(state)
    record, column = WRONG[says]
    record(state)[column] += 2
    with pytest.raises(InvariantError, match=says):
        check_invariants(state)
