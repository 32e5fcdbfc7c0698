"""Bookings and what is taken back: nobody leaves in vain, and what stood still does not run into a booking."""

from __future__ import annotations

from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import BookingsChanged, JobsSubmitted, submit_rows
from hal.core.engine.tables.bookings import BookingSpec
from hal.core.model.policy import Policy, PreemptMode
from tests.core.engine.clusters import engine, places
from tests.core.engine.test_preempting import SECOND, A, B, config, full, job, over, play, qos, taken


def upkeep(start_s: int, *nodes: str) -> BookingsChanged:
    """An hour from then on."""
    start_ms = start_s * SECOND
    return BookingsChanged((BookingSpec("upkeep", start_ms, start_ms + 3_600 * SECOND, nodes, maintenance=True),))


def test_nobody_leaves_a_node_on_which_the_urgent_job_could_not_end_in_time() -> None:
    """Job 2 would lose least, but b is booked from 300 s on: job 1 leaves."""
    _state, sink, scheduler = full()
    play(scheduler, 200 * SECOND, upkeep(300, "b"), job(3, 4, "urgent", walltime_ms=90 * SECOND))
    assert taken(sink) == [(1, "requeue", 3)]


def test_nobody_leaves_where_the_grace_would_use_up_the_time() -> None:
    """The longest grace of any QOS counts, 30 s: nothing is taken back for 100 s when there are 105."""
    _state, sink, scheduler = full()
    play(scheduler, 200 * SECOND, upkeep(305, "a", "b"), job(3, 4, "urgent", walltime_ms=100 * SECOND))
    assert taken(sink) == []
    _state, sink, scheduler = full()
    play(scheduler, 200 * SECOND, upkeep(330, "a", "b"), job(3, 4, "urgent", walltime_ms=100 * SECOND))
    assert taken(sink) == [(2, "requeue", 3)]


def test_a_claim_falls_when_a_booking_was_made_in_between() -> None:
    """What was freed for it is nobody's any more; it waits for its place behind the booking."""
    state, sink, scheduler = full()
    play(scheduler, 200 * SECOND, job(3, 4, "urgent", walltime_ms=100 * SECOND))
    play(scheduler, 205 * SECOND, upkeep(250, "b"), over((2, 1), requeue=True))
    assert 3 not in places(state)
    assert sink.jobs() == [1, 2]


def test_what_was_suspended_does_not_go_on_into_a_booking() -> None:
    """Job 1 has 90 s left when job 2 ends, 50 s before the booking: it goes on afterwards."""
    state, sink, scheduler = engine(config(PreemptMode.SUSPEND), A)
    play(scheduler, 0, job(1, 4, walltime_ms=100 * SECOND))
    play(scheduler, 10 * SECOND, job(2, 4, "urgent", walltime_ms=40 * SECOND))
    assert taken(sink) == [(1, "suspend", 2)]
    play(scheduler, 20 * SECOND, upkeep(100, "a"))
    play(scheduler, 50 * SECOND, over((2, 1)))
    goes_on = [plan for plan in sink.plans if len(plan.resumes)]
    assert goes_on == []
    play(scheduler, 3_700 * SECOND)
    assert len([plan for plan in sink.plans if len(plan.resumes)]) == 1
    assert places(state) == {1: ["a"]}


def test_nobody_leaves_for_a_job_that_waits_for_licences() -> None:
    """It would hold an empty node."""
    policy = Policy(qos=qos().qos, licences={"matlab": 1})
    _state, sink, scheduler = engine(EngineConfig(policy=policy), A, B)
    rows = submit_rows(2)
    rows["job"], rows["priority"] = [1, 2], [20, 10]
    wants = ClassSpec({"cpu": 4}, licences={"matlab": 1})
    play(scheduler, 0, job(3, 4), JobsSubmitted(rows[:1], (wants,), (OwnerSpec(qos="plain"),)))
    play(scheduler, 200 * SECOND, JobsSubmitted(rows[1:], (wants,), (OwnerSpec(qos="urgent"),)))
    assert taken(sink) == []
