"""Tasks on credit: handed over when the latest were short, placed as places go on, and back in the engine otherwise."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hal.core.engine.events import AllocationsAdopted, AttemptsEnded
from hal.core.model import AttemptState, Duration, EventKind, StepId, TaskState
from hal.core.model.eviction import Evict, EvictMode
from hal.core.model.policy import Booking, Policy
from hal.planes.tasks import Change
from hal.planes.tasks.attempts.credit import CREDIT_MS, CREDIT_WORK_MS, MAX_AHEAD
from hal.planes.tasks.live.attempt import PREEMPTED
from hal.planes.tasks.nodes.arrivals import Arrival
from hal.store import AppendEvents, InsertAttempts, MarkAttempts
from hal.wire.frames.agent_keeper import ExitCause, Refusal, StepExit, StopReason, Usage
from hal.wire.frames.hello import HeldStep
from tests.planes.tasks.small_plane import BY, SmallPlane


def credit_plane() -> SmallPlane:
    """Two nodes that take starts on credit."""
    plane = SmallPlane()
    for name in plane.names:
        plane.plane.record_arrival(Arrival(name=name, capacity={"cpu": 64_000}, boot_id="b1", credit=True), 1_000)
    plane.commit()
    return plane


def exit_of(plane: SmallPlane, job: int, task: int, *, code: int = 0, next_task: int | None = None) -> StepExit:
    heir = None if next_task is None else StepId(job, next_task, 1, 0)
    begun_ms = plane.now_ms - 5
    return StepExit(StepId(job, task, 1, 0), ExitCause.EXITED, code, 0, begun_ms, plane.now_ms, Usage(), "", heir)


def after_two(plane: SmallPlane, tasks: int, *, took_ms: int = 5, **spec: object) -> int:
    """An array of which two tasks have run for so long each, and nothing runs now."""
    (job,) = plane.submit({"array": tasks, **spec})
    for task in (0, 1):
        plane.start((job, task))
        report = StepExit(
            StepId(job, task, 1, 0), ExitCause.EXITED, 0, 0, plane.now_ms, plane.now_ms + took_ms, Usage(), ""
        )
        plane.plane.record_exits("n1", [report], plane.now_ms)
        plane.commit()
    return job


def started(change: Change) -> dict[int, int]:
    """The credit of each task that the first node is told to start."""
    return {start.step.task: start.credit_ms for start in change.orders["n1"].starts}


def test_the_first_tasks_of_an_array_are_not_handed_over() -> None:
    """Nothing is known about them: an hour of work could wait behind an hour of work."""
    plane = credit_plane()
    (job,) = plane.submit({"array": 50})
    assert started(plane.start((job, 0), credit=True)) == {0: 0}


def test_short_tasks_follow_the_start_that_the_engine_decided() -> None:
    """The latest took 5 ms: 100 ms of work are 20 tasks, but the place's share of the 8 that wait is 7 of them."""
    plane = credit_plane()
    job = after_two(plane, 10)
    change = plane.start((job, 2), credit=True)
    assert started(change) == {2: 0} | dict.fromkeys(range(3, 10), CREDIT_MS)
    (rows,) = [operation.rows for operation in change.operations if isinstance(operation, InsertAttempts)]
    assert [row.credit for row in rows] == [False] + [True] * 7
    assert plane.engine.pending == {}
    assert plane.live(job).counts.allocated == 8


def test_how_much_is_handed_over_is_bounded_by_work_and_by_number() -> None:
    """Of tasks of 30 ms five, of 1 ms 64, of more than 160 ms none."""
    for took_ms, most in ((30, CREDIT_WORK_MS // 30), (1, MAX_AHEAD), (CREDIT_WORK_MS + 1, 0)):
        plane = credit_plane()
        job = after_two(plane, 100, took_ms=took_ms)
        assert len(started(plane.start((job, 2), credit=True))) == 1 + most


def test_nothing_is_handed_over_where_it_could_start_elsewhere_or_mean_more_than_an_amount() -> None:
    """While the engine has more to start; to a keeper that knows no credit; a job that asks for a gpu."""
    plane = credit_plane()
    job = after_two(plane, 10)
    assert len(started(plane.start((job, 2)))) == 1
    old = SmallPlane()
    job = after_two(old, 10)
    assert len(started(old.start((job, 2), credit=True))) == 1
    job = after_two(plane, 10, request={"cpu": 1, "gpu": 1})
    assert len(started(plane.start((job, 2), credit=True))) == 1


def test_a_place_goes_on_and_the_engine_hears_of_the_last_who_got_it() -> None:
    """Tasks 2, 3 and 4 end in one report, each naming the next: the engine sees 2 end and 5 begin."""
    plane = credit_plane()
    job = after_two(plane, 10)
    plane.start((job, 2), credit=True)
    plane.plane.record_exits("n1", [exit_of(plane, job, task, next_task=task + 1) for task in (2, 3, 4)], plane.now_ms)
    change = plane.commit()
    assert [type(event).__name__ for event in change.engine] == ["AttemptsEnded", "AllocationsAdopted"]
    assert plane.engine.running == {(job, 5): 1}
    (marks,) = [operation.rows for operation in change.operations if isinstance(operation, MarkAttempts)]
    assert [(row.task, row.credit) for row in marks] == [(5, False)]
    # Told again, it changes nothing.
    plane.plane.record_exits("n1", [exit_of(plane, job, task, next_task=task + 1) for task in (2, 3, 4)], plane.now_ms)
    assert plane.commit().engine == []


def test_the_use_of_a_place_that_came_free_within_one_report_is_told_to_the_engine() -> None:
    """2 passes it to 3 at 1,095, 3 to 4, 4 to nobody: 2 ends then, 4 is adopted from then on, and ends at 1,100."""
    plane = credit_plane()
    job = after_two(plane, 10)
    plane.start((job, 2), credit=True)
    plane.now_ms = 1_100
    first = replace(exit_of(plane, job, 2, next_task=3), ended_ms=1_095)
    plane.plane.record_exits("n1", [first, exit_of(plane, job, 3, next_task=4), exit_of(plane, job, 4)], plane.now_ms)
    ends, adopted, last = plane.commit().engine
    assert isinstance(ends, AttemptsEnded)
    assert isinstance(adopted, AllocationsAdopted)
    assert isinstance(last, AttemptsEnded)
    assert ends.rows[["task", "ended_ms"]].tolist() == [(2, 1_095)]
    assert adopted.rows[["task", "start_ms"]].tolist() == [(4, 1_095)]
    assert last.rows[["task", "ended_ms"]].tolist() == [(4, 1_100)]
    assert plane.engine.running == {}


def test_a_task_that_fails_on_a_place_that_went_on_is_tried_again_through_the_engine() -> None:
    """Its place is its successor's; it waits for one of its own."""
    plane = credit_plane()
    job = after_two(plane, 10, retries=1)
    plane.start((job, 2), credit=True)
    reports = [exit_of(plane, job, 2, next_task=3), exit_of(plane, job, 3, code=1, next_task=4)]
    plane.plane.record_exits("n1", reports, plane.now_ms)
    plane.commit()
    assert plane.engine.running == {(job, 4): 1}
    assert plane.engine.pending[(job, 3)][0] == 2


def test_what_a_node_gives_back_waits_in_the_engine_at_once_and_is_not_handed_over_again() -> None:
    """Its second attempt gets a place of its own."""
    plane = credit_plane()
    job = after_two(plane, 5)
    plane.start((job, 2), credit=True)
    plane.plane.record_refusals("n1", [Refusal(StepId(job, 3, 1, 0), "credit-over", "")], plane.now_ms)
    plane.commit()
    assert plane.engine.pending == {(job, 3): (2, plane.now_ms)}
    assert plane.engine.running == {(job, 2): 1}
    plane.end(job, 2)
    plane.end(job, 4)
    assert started(plane.start((job, 3), credit=True)) == {3: 0}


def test_a_hold_asks_back_what_has_not_begun() -> None:
    """The running task goes on; the others are held when the node has given them back."""
    plane = credit_plane()
    job = after_two(plane, 5)
    plane.start((job, 2), credit=True)
    plane.plane.hold(job, None, BY, plane.now_ms)
    change = plane.commit()
    assert change.orders["n1"].recalls == [StepId(job, 3, 1, 0), StepId(job, 4, 1, 0)]
    plane.plane.record_refusals(
        "n1", [Refusal(step, "recalled", "") for step in change.orders["n1"].recalls], plane.now_ms
    )
    plane.commit()
    assert plane.live(job).counts.held == 2


def test_a_cancel_stops_what_waits_on_credit_and_the_engine_hears_only_of_who_had_a_place() -> None:
    """Two exits of three are of tasks that it never knew."""
    plane = credit_plane()
    job = after_two(plane, 5)
    plane.start((job, 2), credit=True)
    plane.plane.cancel(job, None, BY, plane.now_ms)
    steps = plane.commit().orders["n1"].stops[StopReason.CANCELLED]
    assert [step.task for step in steps] == [2, 3, 4]
    for step in steps:
        gone = plane.end(job, step.task, code=143, cause=ExitCause.CANCELLED)
    assert gone.ended[0].state is TaskState.CANCELLED
    assert plane.engine.running == {}


def test_a_node_that_returns_is_told_again_what_it_does_not_hold_on_credit_as_before() -> None:
    """It may have lost the frame: on credit it was, on credit it is."""
    plane = credit_plane()
    job = after_two(plane, 5)
    plane.start((job, 2), credit=True)
    held = (HeldStep(StepId(job, 2, 1, 0), running=True, pid=7, started_ms=1_000),)
    plane.plane.record_arrival(
        Arrival(name="n1", capacity={"cpu": 64_000}, boot_id="b1", credit=True, held=held), plane.now_ms
    )
    assert started(plane.commit()) == {3: CREDIT_MS, 4: CREDIT_MS}


def test_a_node_that_is_lost_loses_what_waits_there_too() -> None:
    """All three wait in the engine again."""
    plane = credit_plane()
    job = after_two(plane, 5)
    plane.start((job, 2), credit=True)
    plane.plane.record_arrival(Arrival(name="n1", capacity={"cpu": 64_000}, boot_id="b2", credit=True), plane.now_ms)
    plane.commit()
    assert sorted(plane.engine.pending) == [(job, 2), (job, 3), (job, 4)]
    assert not any(attempt.state is AttemptState.LOST for attempt in plane.live(job).active.values())


@pytest.mark.parametrize(("start_ms", "handed_over"), [(2_000, 0), (20_000, 7)])
def test_no_task_is_handed_over_that_could_run_into_a_booking(start_ms: int, handed_over: int) -> None:
    """Only the engine knows which nodes are booked; work that ends before any booking begins goes on as ever."""
    plane = credit_plane()
    upkeep = Booking(name="upkeep", start_ms=start_ms, duration=Duration(1_000), nodes=("n9",), maintenance=True)
    plane.plane.change_policy(Policy(bookings={"upkeep": upkeep}), BY, plane.now_ms)
    job = after_two(plane, 10, walltime="5s")
    assert len(started(plane.start((job, 2), credit=True))) == 1 + handed_over


# ── evictions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_successor_that_is_being_cancelled_is_not_preempted_instead() -> None:
    """The job is evicted by cancelling all of it. The node had passed the slot of 2 on to 3 before it heard of that: 3,
    which is being cancelled too, was made to wait again."""
    plane = credit_plane()
    job = after_two(plane, 5)
    plane.start((job, 2), credit=True)
    plane.plane.evict(job, None, Evict(mode=EvictMode.CANCEL, reason="quota"), BY, plane.now_ms)
    plane.commit()
    stopped = replace(exit_of(plane, job, 3, code=143), cause=ExitCause.PREEMPTED)
    plane.plane.record_exits("n1", [exit_of(plane, job, 2, next_task=3), stopped], plane.now_ms)
    plane.commit()
    assert plane.live(job).counts.cancelled == 1


def test_the_successor_of_a_task_that_is_evicted_by_cancelling_it_waits_again_and_the_feed_says_why() -> None:
    """Its slot is to come free; it was not meant itself."""
    plane = credit_plane()
    job = after_two(plane, 5)
    plane.start((job, 2), credit=True)
    plane.plane.evict(job, 2, Evict(mode=EvictMode.CANCEL, reason="too slow"), BY, plane.now_ms)
    plane.commit()
    plane.plane.record_exits("n1", [exit_of(plane, job, 2, next_task=3)], plane.now_ms)
    (noted,) = [
        event.payload["attempts"]
        for operation in plane.commit().operations
        if isinstance(operation, AppendEvents)
        for event in operation.events
        if event.kind is EventKind.ATTEMPTS_PREEMPTED
    ]
    assert noted == [{"id": f"{job}.3.1", "mode": "requeue", "by": BY.user, "reason": "too slow"}]
    assert plane.live(job).active[3].stopping == PREEMPTED


def test_an_eviction_is_told_before_the_end_of_what_was_evicted() -> None:
    """One report has the exit of 2, which was evicted, and that of its successor, which is evicted for it."""
    plane = credit_plane()
    job = after_two(plane, 5)
    plane.start((job, 2), credit=True)
    plane.plane.evict(job, 2, Evict(reason="too slow"), BY, plane.now_ms)
    plane.commit()
    plane.plane.record_exits("n1", [exit_of(plane, job, 2, next_task=3), exit_of(plane, job, 3)], plane.now_ms)
    told = [
        event.kind
        for operation in plane.commit().operations
        if isinstance(operation, AppendEvents)
        for event in operation.events
    ]
    assert told.index(EventKind.ATTEMPTS_PREEMPTED) < told.index(EventKind.ATTEMPTS_ENDED)
