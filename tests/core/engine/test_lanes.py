"""The scheduler's two lanes: what is new is looked at from the top while a long pass goes on by its cursor."""

from __future__ import annotations

import pytest

from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import JobsSubmitted, NodeSpec, submit_rows
from hal.core.model.policy import Discipline, Limit, Policy, Queue
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


def test_a_new_pass_does_not_count_the_starts_of_the_one_before_it() -> None:
    """A queue of turns, slices of one candidate: the first of a pass starts nothing, and the next one still may; the
    count of the pass before it had it begin anew for ever."""
    policy = Policy(
        queues={"turns": Queue(name="turns", order=Discipline.ROUND_ROBIN), "first": Queue(name="first", priority=9)},
        limits={"none": Limit(user="bob", running=0)},
    )
    config = EngineConfig(order="priority", policy=policy, slice_work=1)
    state, sink, scheduler = engine(config, NodeSpec("n", {"cpu": 4}))
    scheduler.feed(owned(1, "turns", "ada"))
    scheduler.run(0)
    scheduler.feed(owned(2, "first", "bob"))
    scheduler.feed(owned(3, "turns", "eve"))
    step = scheduler.run(0, most_slices=20)
    assert (sink.jobs(), step.more) == ([1, 3], False)
    check_invariants(state)


def owned(number: int, queue: str, user: str) -> JobsSubmitted:
    """A job of one cpu."""
    rows = submit_rows(1)
    rows["job"] = number
    return JobsSubmitted(rows, (ClassSpec({"cpu": 1}),), (OwnerSpec(queue, "", user),))
