"""The scheduler's two lanes: what is new is looked at from the top while a long pass goes on by its cursor."""

from __future__ import annotations

import pytest

from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import NodeSpec
from hal.core.engine.invariants import check_invariants
from tests.core.engine.clusters import ended, engine, job, places

NODES = tuple(NodeSpec(f"n{k}", {"cpu": 4}) for k in range(3))
MOST_STEPS = 10_000


@pytest.mark.parametrize("backfill", list(Backfill))
def test_urgent_work_starts_beside_an_unfinished_pass(backfill: Backfill) -> None:
    """200 jobs start five a slice; urgent work comes after the first slice and is what the next one starts with."""
    config = EngineConfig(backfill=backfill, slice_starts=5, fast_starts=1)
    state, sink, scheduler = engine(config, NodeSpec("large", {"cpu": 1_000}))
    for number in range(10, 210):
        scheduler.feed(job(number, 4, account=str(number % 7), walltime_ms=60_000))
    step = scheduler.step(1)
    assert (step.more, step.starts) == (True, 5)
    scheduler.feed(job(900, 4, priority=100, walltime_ms=1_000))
    step = scheduler.step(2)
    assert sink.jobs() == [10, 11, 12, 13, 14, 900]
    check_invariants(state)
    assert not scheduler.run(2, MOST_STEPS).more
    assert sink.jobs() == [*range(10, 15), 900, *range(15, 210)]
    check_invariants(state)


@pytest.mark.parametrize("backfill", list(Backfill))
def test_cut_small_or_not_the_same_work_starts(backfill: Backfill) -> None:
    """Thirty jobs, the oldest running one ends each second: the same starts whatever the size of a slice."""
    started = []
    for slice_work in (3, 1 << 40):
        config = EngineConfig(backfill=backfill, slice_work=slice_work, fast_starts=1, fast_work=4)
        state, sink, scheduler = engine(config, *NODES)
        for number in range(1, 31):
            scheduler.feed(job(number, 1 + number % 4, account=str(number % 5), walltime_ms=1_000 * (1 + number % 7)))
        for now_ms in range(1_000, 60_000, 1_000):
            assert not scheduler.run(now_ms, MOST_STEPS).more
            check_invariants(state)
            running = places(state)
            if running:
                scheduler.feed(ended(next(number for number in sink.jobs() if number in running)))
        started.append(sink.jobs())
    assert started[0] == started[1]
    assert sorted(started[0]) == list(range(1, 31))
