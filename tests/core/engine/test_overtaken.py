"""EASY with several first jobs: promises that do not compete with each other and both shut out a third job."""

from __future__ import annotations

import numpy as np
import pytest

from hal.core.engine.classes import Match, Requirement
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import JobsCancelled, NodeSpec
from hal.core.engine.views import reservations
from tests.core.engine.clusters import ended, engine, job, places


def test_who_was_shut_out_by_a_promise_that_is_gone_comes_before_a_worse_promise() -> None:
    """Job 3 wants a cpu on each node and would outlast what job 2 is promised on a. Job 4, behind it, is promised b.

    When job 2 is cancelled, job 3 starts, though that moves job 4's start.
    """
    state, sink, scheduler = engine(
        EngineConfig(backfill=Backfill.EASY, order="fcfs"),
        NodeSpec("a", {"cpu": 4}, {"rack": "a"}),
        NodeSpec("b", {"cpu": 4}, {"rack": "b"}),
    )

    def on(rack: str) -> tuple[Requirement, ...]:
        return (Requirement("rack", Match.IN, (rack,)),)

    scheduler.feed(job(1, 3, gang=2, walltime_ms=100_000))
    scheduler.run(0)
    scheduler.feed(job(2, 4, constraints=on("a"), walltime_ms=1_000))
    scheduler.feed(job(3, 1, gang=2, walltime_ms=500_000))
    scheduler.feed(job(4, 4, constraints=on("b"), walltime_ms=1_000))
    scheduler.run(1)
    assert sink.jobs() == [1]
    assert sorted(int(one["job"]) for one in reservations(state)) == [2, 4]
    scheduler.feed(JobsCancelled(np.array([2], np.int64)))
    scheduler.run(2)
    assert sink.jobs() == [1, 3]
    assert [(int(one["job"]), int(one["start_ms"])) for one in reservations(state)] == [(4, 500_002)]


@pytest.mark.parametrize("parking", [True, False])
def test_work_whose_user_has_used_less_than_was_thought_goes_before_a_reservation(parking: bool) -> None:
    """Bob's gang waits for node a, and holds b. Ann's job behind it would fit on b, but outlasts the reservation.

    Her other job ends early, on a node that neither could use: now she has used less than Bob, and goes first.
    """
    state, sink, scheduler = engine(
        EngineConfig(backfill=Backfill.EASY, order="priority", parking=parking),
        NodeSpec("a", {"cpu": 4}),
        NodeSpec("b", {"cpu": 4}),
        NodeSpec("c", {"cpu": 1}, {"rack": "c"}),
    )
    on_c = (Requirement("rack", Match.IN, ("c",)),)
    scheduler.feed(job(1, 4, user="bob", walltime_ms=100_000))
    scheduler.feed(job(2, 1, user="ann", constraints=on_c, walltime_ms=3_600_000))
    scheduler.run(0)
    scheduler.feed(job(3, 4, gang=2, user="bob", walltime_ms=1_000))
    scheduler.feed(job(4, 3, user="ann", walltime_ms=500_000))
    scheduler.run(1)
    assert sink.jobs() == [1, 2]
    scheduler.feed(ended(2))
    scheduler.run(10_000)
    assert sink.jobs() == [1, 2, 4]
    assert places(state)[4] == ["b"]
