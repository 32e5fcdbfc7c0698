"""Bookings in the task plane: what the engine is told of them and when, and that what runs in one ends with it."""

from __future__ import annotations

from typing import Any

import pytest

from hal.core.engine.events import BookingsChanged
from hal.core.model import ConflictError, Duration, TaskState
from hal.core.model.occurrences import DAY_MS, HORIZON_MS
from hal.core.model.policy import Booking, Policy, Repeat
from hal.core.model.policy_check import check_policy
from hal.planes.tasks.engine.booking_times import REFRESH_MS, BookingTimes
from hal.planes.tasks.jobs.patches import JobPatch
from hal.wire.frames.agent_keeper import ExitCause, StopReason
from tests.planes.tasks.small_plane import BY, SmallPlane


def booking(start_ms: int, duration_ms: int, **more: Any) -> Booking:
    """One on node n1, for alice."""
    fields = {"nodes": ("n1",), "users": () if more.get("maintenance") else ("alice",)} | more
    return Booking(name="course", start_ms=start_ms, duration=Duration(duration_ms), **fields)


def policy(*bookings: Booking, **more: Any) -> Policy:
    """With these bookings."""
    return check_policy(Policy(bookings={one.name: one for one in bookings}, **more))


def told(event: BookingsChanged | None) -> list[tuple[str, int, int]]:
    """Names and times."""
    assert event is not None
    return [(spec.name, spec.start_ms, spec.end_ms) for spec in event.bookings]


def test_the_engine_is_told_once_of_a_booking_and_again_when_it_changes() -> None:
    """An engine that is new knows of none, and is told nothing where there are none."""
    times = BookingTimes()
    assert times.news(None, 0) is None
    assert times.news(policy(), 0) is None
    assert told(times.news(policy(booking(1_000, 500)), 0)) == [("course", 1_000, 1_500)]
    assert times.news(policy(booking(1_000, 500)), 100) is None
    assert told(times.news(policy(booking(1_000, 900)), 100)) == [("course", 1_000, 1_900)]
    assert told(times.news(policy(), 100)) == []


def test_what_repeats_is_told_ahead_and_told_on_before_the_horizon_is_reached() -> None:
    """Each occurrence by itself, under a name of its own."""
    times = BookingTimes()
    daily = policy(booking(1_000, 500, repeat=Repeat.DAILY))
    first = told(times.news(daily, 0))
    assert first[:2] == [("course", 1_000, 1_500), ("course#1", DAY_MS + 1_000, DAY_MS + 1_500)]
    assert len(first) == HORIZON_MS // DAY_MS
    assert times.news(daily, REFRESH_MS - 1) is None
    assert told(times.news(daily, REFRESH_MS + 2_000))[0][0] == "course#2"


def test_what_runs_in_a_booking_is_stopped_when_it_is_over() -> None:
    """As by a time limit, and the job says which booking it was; others go on."""
    one = SmallPlane(policy(booking(1_000, 5_000)))
    inside, outside = one.submit({"booking": "course"}, {})
    one.start((inside, 0), (outside, 0))
    one.now_ms = 5_999
    assert one.plane.end_with_bookings(one.now_ms) == 0
    one.now_ms = 6_000
    assert one.plane.end_with_bookings(one.now_ms) == 1
    assert one.plane.end_with_bookings(one.now_ms) == 0
    orders = one.commit().orders["n1"]
    assert [(reason, [step.job for step in steps]) for reason, steps in orders.stops.items()] == [
        (StopReason.TIMED_OUT, [inside])
    ]
    ended = one.end(inside, code=143, cause=ExitCause.TIMED_OUT).ended[0]
    assert (ended.state, ended.reason) == (TaskState.TIMED_OUT, "it reached its time limit (booking 'course' was over)")


@pytest.mark.parametrize("after", [(), (booking(1_000, 2_000),)], ids=["removed", "shorter"])
def test_a_booking_that_is_removed_or_made_shorter_takes_its_work_along(after: tuple[Booking, ...]) -> None:
    """From the instant at which it does not hold any more."""
    one = SmallPlane(policy(booking(1_000, 10_000)))
    (inside,) = one.submit({"booking": "course"})
    one.start((inside, 0))
    one.now_ms = 4_000
    one.plane.change_policy(policy(*after), BY, one.now_ms)
    assert one.plane.end_with_bookings(one.now_ms) == 1


def test_a_longer_booking_lets_its_work_go_on() -> None:
    """Until its new end."""
    one = SmallPlane(policy(booking(1_000, 2_000)))
    (inside,) = one.submit({"booking": "course"})
    one.start((inside, 0))
    one.plane.change_policy(policy(booking(1_000, 10_000)), BY, one.now_ms)
    one.commit()
    assert one.plane.end_with_bookings(3_000) == 0
    assert one.plane.end_with_bookings(11_000) == 1


def test_work_of_one_occurrence_ends_before_the_next() -> None:
    """Also where work may begin early: then the next one holds at once."""
    one = SmallPlane(policy(booking(1_000, 2_000, repeat=Repeat.DAILY, early=True)))
    (inside,) = one.submit({"booking": "course"})
    one.start((inside, 0))
    assert one.plane.end_with_bookings(3_000) == 1


def test_a_walltime_is_not_made_longer_into_a_booking() -> None:
    """The engine is asked before anything is changed; a shorter one is nobody's business."""
    one = SmallPlane()
    (job,) = one.submit({"walltime": "1h"})
    one.start((job, 0))
    with pytest.raises(ConflictError, match=f"job {job} runs on a node of booking 'upkeep' and would run into it"):
        one.plane.update(job, JobPatch(walltime=Duration(2 * DAY_MS)), BY, one.now_ms)
    one.plane.update(job, JobPatch(walltime=Duration(1_000)), BY, one.now_ms)
    assert one.live(job).walltime_ms == 1_000
