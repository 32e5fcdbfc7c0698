"""Expected run times: the plan uses them instead of walltimes, corrects them while work runs, and ends nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.engine import EngineError, State
from hal.core.engine.checks.digest import state_digest
from hal.core.engine.checks.invariants import check_invariants
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import INF, NodeSpec, RuntimesPredicted
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import reservations, running
from tests.core.engine.clusters import Starts, ended, engine, job
from tests.examples import examples

HOUR_MS = 3_600_000
MINUTE_MS = 60_000


def predicted(version: int = 1, expires_ms: int = INF, **times: int) -> RuntimesPredicted:
    """Of jobs named j1, j2, …"""
    jobs = np.array([int(name[1:]) for name in times], np.int64)
    return RuntimesPredicted(version, jobs, np.array(list(times.values()), np.int64), expires_ms)


def small(backfill: Backfill = Backfill.EASY) -> tuple[State, Starts, Scheduler]:
    """Two cpus: job 1 runs on one of them, job 2 waits for both, and each may run for an hour."""
    state, sink, scheduler = engine(EngineConfig(backfill=backfill), NodeSpec("n", {"cpu": 2}))
    scheduler.feed(job(1, 1, walltime_ms=HOUR_MS))
    scheduler.feed(job(2, 2, walltime_ms=HOUR_MS))
    scheduler.run(0)
    return state, sink, scheduler


def forecast(state: State) -> int:
    """When the first waiting job is planned to start."""
    return int(reservations(state)[0]["start_ms"])


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE])
def test_the_plan_uses_what_is_predicted(backfill: Backfill) -> None:
    """Ten minutes instead of an hour: job 2 is planned for then, and what takes longer does not slip in before it."""
    state, sink, scheduler = small(backfill)
    assert forecast(state) == HOUR_MS
    scheduler.feed(predicted(j1=10 * MINUTE_MS))
    scheduler.feed(job(3, 1, walltime_ms=30 * MINUTE_MS))
    scheduler.run(0)
    assert (forecast(state), sink.jobs()) == (10 * MINUTE_MS, [1])


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE])
def test_an_attempt_that_outlives_its_prediction_is_planned_longer_and_not_ended(backfill: Backfill) -> None:
    """The engine asks to be called then; 10, 20, 40 minutes, the hour of its walltime, and no further."""
    state, sink, scheduler = small(backfill)
    scheduler.feed(predicted(j1=10 * MINUTE_MS))
    step = scheduler.run(0)
    seen = []
    while step.wake_ms < HOUR_MS:
        step = scheduler.run(step.wake_ms)
        check_invariants(state)
        seen.append(forecast(state) // MINUTE_MS)
    assert seen == [20, 40, 60]
    assert len(running(state)) == 1
    scheduler.run(HOUR_MS + 5)
    scheduler.feed(ended(1))
    scheduler.run(HOUR_MS + 5)
    assert sink.jobs() == [1, 2]


def test_a_newer_signal_replaces_an_older_one_and_an_older_one_is_ignored() -> None:
    """What it no longer names is planned by its walltime again."""
    state, _, scheduler = small()
    scheduler.feed(predicted(version=3, j1=10 * MINUTE_MS))
    scheduler.feed(predicted(version=2, j1=20 * MINUTE_MS))
    scheduler.run(0)
    assert forecast(state) == 10 * MINUTE_MS
    scheduler.feed(predicted(version=4, j2=MINUTE_MS))
    scheduler.run(0)
    assert forecast(state) == HOUR_MS


def test_nobody_believes_a_signal_that_has_expired() -> None:
    """The engine asks to be called when it does."""
    state, _, scheduler = small()
    scheduler.feed(predicted(expires_ms=MINUTE_MS, j1=10 * MINUTE_MS))
    assert scheduler.run(0).wake_ms == MINUTE_MS
    scheduler.run(MINUTE_MS)
    assert forecast(state) == HOUR_MS


@pytest.mark.parametrize("times", [[0], [5, 5]])
def test_a_malformed_signal_changes_nothing(times: list[int]) -> None:
    """Nothing runs for no time; no job is named twice."""
    state, _, scheduler = small()
    before = state_digest(state)
    jobs = np.ones(len(times), np.int64)
    with pytest.raises(EngineError, match="each job once, with a time of at least 1 ms"):
        scheduler.feed(RuntimesPredicted(1, jobs, np.array(times, np.int64)))
    assert state_digest(state) == before


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_predictions_lose_and_double_nothing(data: Any) -> None:
    """Jobs, signals and time in any order: all tables agree, every job starts once, and all of them start."""
    backfill = data.draw(st.sampled_from([Backfill.EASY, Backfill.EASY_SJBF, Backfill.CONSERVATIVE]))
    state, sink, scheduler = engine(
        EngineConfig(backfill=backfill), NodeSpec("n", {"cpu": 4}), NodeSpec("m", {"cpu": 2})
    )
    now, number, version = 0, 0, 0
    for _ in range(data.draw(st.integers(5, 25))):
        what = data.draw(st.sampled_from(["job", "job", "signal", "end", "later"]))
        if what == "job":
            number += 1
            wall = data.draw(st.sampled_from([5, 50, 500, INF]))
            scheduler.feed(job(number, data.draw(st.integers(1, 4)), walltime_ms=wall, submit_ms=now))
        elif what == "signal" and number:
            version += 1
            named = data.draw(st.sets(st.integers(1, number + 2), max_size=5))
            times = {f"j{one}": data.draw(st.sampled_from([1, 7, 70, 10_000])) for one in named}
            scheduler.feed(predicted(version, data.draw(st.sampled_from([now + 9, INF])), **times))
        elif what == "end" and len(running(state)):
            scheduler.feed(ended(int(data.draw(st.sampled_from(running(state)["job"].tolist())))))
        else:
            now += data.draw(st.integers(1, 60))
        scheduler.run(now)
        check_invariants(state)
    while len(running(state)):
        for one in running(state)["job"].tolist():
            scheduler.feed(ended(int(one)))
        scheduler.run(now)
    assert sorted(sink.jobs()) == list(range(1, number + 1))
