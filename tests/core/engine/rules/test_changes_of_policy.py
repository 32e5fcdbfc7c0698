"""ConfigChanged: whatever the policy was, from now on the engine decides as one that always had the new one."""

from __future__ import annotations

import pytest

from hal.core.engine import State
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import ConfigChanged, NodeSpec, StartsRefused
from hal.core.engine.scheduler import Scheduler
from tests.core.engine.clusters import Starts, ended, engine, job, places

NODES = (NodeSpec("a", {"cpu": 4}), NodeSpec("b", {"cpu": 4}), NodeSpec("c", {"cpu": 2}))
CONFIGS = [
    EngineConfig(order=order, backfill=backfill, placement=placement)
    for order, placement in (("fcfs", "first-fit"), ("sjf", "best-fit"))
    for backfill in Backfill
]


def _waiting_line(scheduler: Scheduler) -> None:
    """Two jobs fill a and b; thirty wait, before any pass has seen them."""
    for number in (1, 2):
        scheduler.feed(job(number, 4, walltime_ms=10_000 * number))
        scheduler.run(0)
    for number in range(3, 33):
        scheduler.feed(
            job(
                number,
                3 + number % 2,
                gang=1 + (number % 5 == 0),
                priority=number % 3,
                account=str(number % 2),
                walltime_ms=1_000 * (1 + number * 7 % 11),
            )
        )


def _drain(state: State, sink: Starts, scheduler: Scheduler) -> list[int]:
    for now_ms in range(1_000, 60_000, 1_000):
        scheduler.run(now_ms)
        check_invariants(state)
        running = places(state)
        if running:
            scheduler.feed(ended(next(number for number in sink.jobs() if number in running)))
    return sink.jobs()


@pytest.mark.slow
@pytest.mark.parametrize("new", CONFIGS, ids=lambda config: f"{config.order}-{config.backfill}")
@pytest.mark.parametrize("old", CONFIGS[1::3], ids=lambda config: f"{config.order}-{config.backfill}")
def test_after_a_change_the_line_is_served_as_if_the_policy_had_always_been_so(
    old: EngineConfig, new: EngineConfig
) -> None:
    """A line that the old policy has planned for starts as under the new one alone."""
    state, sink, scheduler = engine(old, *NODES)
    _waiting_line(scheduler)
    scheduler.run(1)
    assert sink.jobs() == [1, 2]
    scheduler.feed(ConfigChanged(new))
    check_invariants(state)
    fresh = engine(new, *NODES)
    _waiting_line(fresh[2])
    changed = _drain(state, sink, scheduler)
    assert sorted(changed) == list(range(1, 33))
    assert changed == _drain(*fresh)


def test_a_change_in_the_middle_of_a_pass_begins_it_anew() -> None:
    """After a slice of the old order, the new order's first job is what starts next."""
    _state, sink, scheduler = engine(EngineConfig(slice_starts=1), NodeSpec("a", {"cpu": 12}))
    for number in range(1, 6):
        scheduler.feed(job(number, 4, walltime_ms=10_000 - number))
    assert scheduler.step(0).more
    scheduler.feed(ConfigChanged(EngineConfig(order="sjf", slice_starts=1)))
    scheduler.run(0)
    assert sink.jobs() == [1, 5, 4]


def test_what_ran_when_the_order_changed_waits_again_at_the_place_of_the_new_order() -> None:
    """Job 1 (8 s) is refused under `sjf` though it was started under `fcfs`: job 2 (4 s) goes before it now."""
    _state, sink, scheduler = engine(EngineConfig(), NodeSpec("a", {"cpu": 4}))
    scheduler.feed(job(1, 4, walltime_ms=8_000))
    scheduler.run(0)
    scheduler.feed(job(2, 4, walltime_ms=4_000))
    scheduler.feed(ConfigChanged(EngineConfig(order="sjf")))
    scheduler.feed(StartsRefused(sink.plans[-1].starts))
    scheduler.run(0)
    assert sink.jobs() == [1, 2]


def test_more_work_than_before_fits_in_after_the_index_by_planned_time_was_dropped() -> None:
    """200 jobs under EASY-SJBF, 1,000 more once the policy is EASY: all wait, in tables that grew."""
    state, _sink, scheduler = engine(EngineConfig(backfill=Backfill.EASY_SJBF), NodeSpec("a", {"cpu": 4}))
    for number in range(1, 201):
        scheduler.feed(job(number, 4))
    scheduler.feed(ConfigChanged(EngineConfig()))
    for number in range(201, 1_201):
        scheduler.feed(job(number, 4))
    assert state.pending_tasks == 1_200
    check_invariants(state)
