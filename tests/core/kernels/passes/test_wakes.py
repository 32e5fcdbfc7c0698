"""When an engine wants to be called again though nothing happens: at the first instant that may change something."""

from __future__ import annotations

import pytest

from hal.core.engine import State, apply, cycle, new_state
from hal.core.engine.config import Backfill, EngineConfig
from hal.core.engine.events import INF, BookingsChanged, ClockAdvanced, NodesChanged, NodeSpec, PlanAssumed
from hal.core.engine.plan import Plan
from hal.core.engine.tables.bookings import BookingSpec
from hal.core.model import Duration
from hal.core.model.policy import Policy, PreemptMode, Qos
from tests.core.engine.clusters import job

CLAIM_AFTER = 600
EVERY = 50
POLICIES = [Backfill.EASY, Backfill.EASY_SJBF, Backfill.CONSERVATIVE, Backfill.TOP_K]


def one_node(backfill: Backfill, policy: Policy | None = None) -> State:
    config = EngineConfig(
        backfill=backfill, claim_after_ms=CLAIM_AFTER, preempt_every_ms=EVERY, order="fcfs", policy=policy
    )
    state = new_state(config)
    apply(state, NodesChanged((NodeSpec("n", {"cpu": 4}),)))
    return state


def go(state: State, now: int) -> Plan:
    """One pass; what it decides is true."""
    apply(state, ClockAdvanced(now))
    plan = cycle(state, now)
    assert plan.cursor is None
    apply(state, PlanAssumed(plan))
    return plan


@pytest.mark.parametrize("backfill", POLICIES)
def test_nothing_waits_for_an_instant(backfill: Backfill) -> None:
    """The first job runs until 1,000, the second is promised the node then: the end is an event."""
    state = one_node(backfill)
    apply(state, job(1, 4, walltime_ms=1_000))
    assert go(state, 0).wake_ms == INF
    apply(state, job(2, 4, walltime_ms=1_000))
    expected = INF if backfill in (Backfill.EASY, Backfill.EASY_SJBF) else 1_000
    assert go(state, 10).wake_ms == expected


@pytest.mark.parametrize("backfill", POLICIES)
def test_work_that_waits_for_never_claims_when_it_has_waited_long_enough(backfill: Backfill) -> None:
    """The first job has no limit; the second is blocked from 10 on, whenever it is looked at again."""
    state = one_node(backfill)
    apply(state, job(1, 4, walltime_ms=INF))
    go(state, 0)
    apply(state, job(2, 4, walltime_ms=1_000))
    assert [go(state, now).wake_ms for now in (10, 11, 300)] == [10 + CLAIM_AFTER] * 3


@pytest.mark.parametrize("backfill", POLICIES)
@pytest.mark.parametrize("delays", [(30, 50), (50, 30)])
def test_work_that_is_eligible_later_is_looked_at_then(backfill: Backfill, delays: tuple[int, int]) -> None:
    state = one_node(backfill)
    for number, delay in enumerate(delays):
        apply(state, job(1 + number, 4, eligible_ms=delay, walltime_ms=5))
    assert go(state, 0).wake_ms == 30
    assert go(state, 30).wake_ms == 50


@pytest.mark.parametrize("backfill", POLICIES)
def test_a_booking_is_an_instant_at_its_beginning_and_its_end(backfill: Backfill) -> None:
    state = one_node(backfill)
    apply(state, BookingsChanged((BookingSpec("b", 20, 70, ("n",), maintenance=True),)))
    apply(state, job(1, 4, walltime_ms=100))
    assert [go(state, now).wake_ms for now in (0, 20)] == [20, 70]


@pytest.mark.parametrize("backfill", POLICIES)
def test_work_that_may_preempt_is_searched_for_at_once(backfill: Backfill) -> None:
    """The pass stops for the search at the task that may preempt."""
    qos = {
        "urgent": Qos(name="urgent", preempts=("low",)),
        "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE, grace=Duration(10)),
    }
    state = one_node(backfill, Policy(qos=qos))
    apply(state, job(1, 4, qos="low", walltime_ms=INF))
    go(state, 0)
    apply(state, job(2, 4, qos="urgent", walltime_ms=10))
    apply(state, ClockAdvanced(5))
    plan = cycle(state, 5)
    assert plan.cursor is not None
    assert plan.cursor.phase == 1
    assert plan.wake_ms == 5
