"""Attempts and people: what becomes of tasks that end, are stopped, held, tried again."""

from __future__ import annotations

import pytest

from hal.core.model import AttemptState, ConflictError, NotFoundError, Reason, SpecError, StepId, TaskState
from hal.core.model.step_token import read_attempt_token
from hal.planes.tasks import Arrival, JobPatch
from hal.store import EndAttempts, InsertJobs
from hal.wire.frames import ExitCause, HeldStep, Refusal, StepExit, StepStarted, StopReason, Usage
from tests.planes.tasks.small_plane import BY, SmallPlane


def ended_state(change: object) -> AttemptState:
    """The state with which the only attempt of a change ended."""
    (operation,) = [o for o in change.operations if isinstance(o, EndAttempts)]  # type: ignore[attr-defined]
    (row,) = operation.rows
    state: AttemptState = row.state
    return state


def test_a_retry_waits_longer_each_time_and_then_the_task_has_failed() -> None:
    """back-off 1 s, factor 2: the second try waits 1 s, the third 2 s; there is no fourth."""
    plane = SmallPlane()
    (job,) = plane.submit({"retries": {"max": 2, "backoff": "1s"}})
    for eligible_ms in (2_000, 3_000):
        plane.start((job, 0))
        plane.end(job, code=1)
        assert plane.engine.pending[(job, 0)][1] == eligible_ms
        assert plane.plane.why(plane.live(job), 1_000).reason is Reason.BACKOFF
    plane.start((job, 0))
    (gone,) = plane.end(job, code=1).ended
    assert (gone.state, gone.exit_code, gone.restarts) == (TaskState.FAILED, 1, 2)


def test_a_gang_ends_with_its_last_step_and_its_usage_is_summed() -> None:
    """Two ranks: cpu times add up, of the memory the largest counts."""
    plane = SmallPlane()
    (job,) = plane.submit({"nodes": 2})
    plane.start((job, 0))
    assert plane.end(job, rank=1).ended == []
    change = plane.end(job, rank=0)
    (operation,) = [o for o in change.operations if isinstance(o, EndAttempts)]
    assert operation.rows[0].usage == {
        "user_ms": 2, "system_ms": 2, "max_rss_bytes": 20, "read_bytes": 0, "written_bytes": 0,
    }  # fmt: skip
    assert change.ended[0].state is TaskState.SUCCEEDED


def test_a_gang_one_of_whose_starts_was_refused_ends_after_it_began() -> None:
    """n2 refuses rank 1 at 1,000; rank 0 begins at 1,003 and is stopped at 1,010: that is when the attempt ended."""
    plane = SmallPlane()
    (job,) = plane.submit({"nodes": 2})
    plane.start((job, 0))
    plane.plane.record_refusals("n2", [Refusal(StepId(job, 0, 1, 1), "overloaded", "no")], plane.now_ms)
    plane.now_ms = 1_003
    plane.plane.record_starts("n1", [StepStarted(StepId(job, 0, 1, 0), 42, 1_003)], plane.now_ms)
    plane.now_ms = 1_010
    change = plane.end(job, code=143, cause=ExitCause.CANCELLED)
    (operation,) = [o for o in change.operations if isinstance(o, EndAttempts)]
    (row,) = operation.rows
    assert (row.cause, row.started_ms, row.ended_ms) == ("refused", 1_003, 1_010)


def test_a_step_whose_node_sets_its_clock_back_does_not_end_before_it_began() -> None:
    """It began at 1,500 by its node's clock, which then said 1,200."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    plane.now_ms = 2_000
    plane.plane.record_starts("n1", [StepStarted(StepId(job, 0, 1, 0), 42, 1_500)], plane.now_ms)
    late = StepExit(StepId(job, 0, 1, 0), ExitCause.EXITED, 0, 0, 1_500, 1_200, Usage(1, 1, 1, 0, 0), "")
    plane.plane.record_exits("n1", [late], plane.now_ms)
    (operation,) = [o for o in plane.commit().operations if isinstance(o, EndAttempts)]
    assert (operation.rows[0].started_ms, operation.rows[0].ended_ms) == (1_500, 1_500)


def test_the_first_bad_step_stops_its_siblings_and_decides() -> None:
    """Rank 0 exits with 5, rank 1 is stopped: failed with 5, not cancelled."""
    plane = SmallPlane()
    (job,) = plane.submit({"nodes": 2})
    plane.start((job, 0))
    change = plane.end(job, code=5)
    assert change.orders["n2"].stops == {StopReason.SIBLING: [StepId(job, 0, 1, 1)]}
    change = plane.end(job, rank=1, code=143, cause=ExitCause.CANCELLED)
    assert (change.ended[0].state, change.ended[0].exit_code) == (TaskState.FAILED, 5)


def test_a_node_that_returns_has_only_its_own_missing_steps_started() -> None:
    """A gang over two nodes, one of which comes back without its step: the other one is told nothing. A start that
    waited for that one's return would be preempted as one that never left, while its step runs."""
    plane = SmallPlane()
    (job,) = plane.submit({"nodes": 2})
    plane.start((job, 0))
    plane.plane.record_arrival(Arrival(name="n2", capacity={"cpu": 64_000}, boot_id="b1"), plane.now_ms)
    orders = plane.commit().orders
    assert [start.step for start in orders["n2"].starts] == [StepId(job, 0, 1, 1)]
    assert "n1" not in orders or not orders["n1"].starts


def test_a_cancel_that_came_too_late_does_not_undo_a_success() -> None:
    """Stopped after it had exited with 0: succeeded. After it had failed: cancelled, and not tried again."""
    plane = SmallPlane()
    good, bad = plane.submit({}, {"retries": 3})
    plane.start((good, 0), (bad, 0))
    for job in (good, bad):
        assert plane.plane.cancel(job, None, BY, 1_000) is TaskState.FINALISING
        plane.commit()
    assert plane.end(good).ended[0].state is TaskState.SUCCEEDED
    assert plane.end(bad, code=1).ended[0].state is TaskState.CANCELLED


def test_a_refused_start_is_tried_again_and_not_counted() -> None:
    """The same task, attempt 2, no retry used; the refusal of a bad work directory is the task's own failure."""
    plane = SmallPlane()
    first, second = plane.submit({}, {})
    plane.start((first, 0), (second, 0))
    plane.plane.record_refusals("n1", [Refusal(StepId(first, 0, 1, 0), "overloaded", "full")], 1_000)
    plane.commit()
    assert plane.engine.pending[(first, 0)][0] == 2
    plane.plane.record_refusals("n1", [Refusal(StepId(second, 0, 1, 0), "bad-workdir", "no such directory")], 1_000)
    assert ended_state(plane.commit()) is AttemptState.FAILED


def test_an_attempt_whose_number_a_keeper_has_buried_is_tried_again() -> None:
    """A power failure took attempt 1 from the store, not from the keeper: the next start of that number is refused as
    already ended, and the task does not stay allocated for ever. What ended here before is not touched by it."""
    plane = SmallPlane()
    (job,) = plane.submit({"nodes": 2})
    plane.start((job, 0))
    plane.end(job, rank=0)
    plane.plane.record_refusals("n1", [Refusal(StepId(job, 0, 1, 0), "already-ended", "")], 1_000)
    assert plane.commit().empty
    plane.plane.record_refusals("n2", [Refusal(StepId(job, 0, 1, 1), "already-ended", "")], 1_000)
    plane.commit()
    assert plane.engine.pending[(job, 0)][0] == 2


def test_two_starts_of_a_restored_store_give_the_same_attempt_different_tokens() -> None:
    """Same HAL, same epoch, same attempt: outside effects can be fenced, and one's credential is not the other's."""
    tokens = set()
    for start in ("1" * 32, "2" * 32):
        plane = SmallPlane()
        plane.plane._table.instance, plane.plane._table.step_secret = "a" * 32, "s"
        plane.plane.identify(start, "unused")
        (job,) = plane.submit({})
        plane.start((job, 0))
        token = plane.live(job).active[0].token
        assert read_attempt_token(token) == ("a" * 32, job, 0, 1)
        tokens.add(token)
    assert len(tokens) == 2


@pytest.mark.parametrize("stopping", [False, True])
@pytest.mark.parametrize("running", [False, True])
def test_what_a_node_held_of_another_store_is_no_end_of_an_attempt_of_that_number(
    running: bool, stopping: bool
) -> None:
    """The store was restored; the node held attempt 1 of before, and the same number was allocated there again. Its
    start and its exit are not this attempt's, which cannot begin any more: its task is tried again, or cancelled."""
    plane = SmallPlane(nodes=1)
    (job,) = plane.submit({})
    former = HeldStep(StepId(job, 0, 1, 0), running, 7, 900, 900)
    plane.plane.record_arrival(Arrival(name="n1", capacity={"cpu": 64_000}, boot_id="b1", held=(former,)), plane.now_ms)
    stops = plane.commit().orders["n1"].stops if running else {}
    assert stops == ({StopReason.UNKNOWN: [former.step]} if running else {})
    plane.start((job, 0))
    if stopping:
        plane.plane.cancel(job, None, BY, plane.now_ms)
    plane.plane.record_starts("n1", [StepStarted(former.step, 7, 900)], plane.now_ms)
    assert plane.live(job).active[0].started_ms is None
    change = plane.end(job)
    assert change.orders["n1"].acks == [former.step]
    if stopping:
        assert change.ended[0].state is TaskState.CANCELLED
    else:
        assert plane.engine.pending[(job, 0)][0] == 2


def test_an_attempt_of_the_same_number_allocated_at_another_time_is_another_one() -> None:
    """The restored store knows attempt 1 as running, the node holds attempt 1 of a later allocation: that one is
    stopped, this one is lost. Told without an instant (an agent of an earlier version), the id counts."""
    plane = SmallPlane(nodes=1)
    other, same, untold = plane.submit({}, {}, {})
    plane.start((other, 0), (same, 0), (untold, 0))
    steps = [StepId(job, 0, 1, 0) for job in (other, same, untold)]
    plane.plane.record_starts("n1", [StepStarted(step, 7, 1_000) for step in steps], plane.now_ms)
    plane.commit()
    held = tuple(HeldStep(step, True, 7, 1_000, at_ms) for step, at_ms in zip(steps, (900, 1_000, 0), strict=True))
    plane.plane.record_arrival(Arrival(name="n1", capacity={"cpu": 64_000}, boot_id="b1", held=held), plane.now_ms)
    assert plane.commit().orders["n1"].stops == {StopReason.UNKNOWN: [steps[0]]}
    assert plane.engine.pending[(other, 0)][0] == 2
    assert plane.end(same).ended
    assert plane.end(untold).ended


def test_one_task_of_an_array_is_held_released_and_cancelled_alone() -> None:
    """Its neighbours keep waiting for resources all the time."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 3})
    plane.plane.hold(job, 1, BY, 1_000)
    plane.commit()
    assert sorted(task for _, task in plane.engine.pending) == [0, 2]
    plane.plane.release(job, 1, BY, 1_000)
    plane.plane.cancel(job, 0, BY, 1_000)
    plane.commit()
    assert sorted(task for _, task in plane.engine.pending) == [1, 2]
    with pytest.raises(ConflictError):
        plane.plane.hold(job, 0, BY, 1_000)
    with pytest.raises(NotFoundError):
        plane.plane.cancel(job, 3, BY, 1_000)


def test_an_update_tells_the_engine_and_the_running_steps() -> None:
    """A new walltime of a running job is sent to its node; a moved begin-at waits."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 2, "walltime": "1h"})
    plane.start((job, 0))
    from hal.core.model import Duration

    plane.plane.update(job, JobPatch(walltime=Duration(60_000), begin_at_ms=9_000), BY, 1_000)
    change = plane.commit()
    assert change.orders["n1"].walltimes == {60_000: [StepId(job, 0, 1, 0)]}
    assert plane.engine.pending[(job, 1)][1] == 9_000
    assert plane.plane.why(plane.live(job), 1_000).reason is Reason.BEGIN_AT


def test_an_update_beyond_what_a_submission_may_ask_is_refused() -> None:
    """Priorities reach from -100,000 to 100,000, at submission and afterwards; the job stays as it was."""
    plane = SmallPlane()
    (job,) = plane.submit({"priority": 100_000})
    with pytest.raises(SpecError, match="100001 is out of range"):
        plane.plane.update(job, JobPatch(priority=100_001), BY, 1_000)
    with pytest.raises(SpecError, match="'a b' is not a name"):
        plane.plane.update(job, JobPatch(name="a b"), BY, 1_000)
    assert plane.commit().empty
    assert plane.live(job).priority == 100_000


def test_undo_takes_back_ids_jobs_and_nodes() -> None:
    """After a commit that failed everything is as it was, and the next submission gets the same id."""
    plane = SmallPlane()
    plane.plane.submit([plane_spec()], BY, 1_000)
    assert any(isinstance(o, InsertJobs) for o in plane.plane.seal(1_000).operations)
    plane.plane.undo()
    assert len(plane.plane._table.jobs) == 0
    assert plane.submit({}) == [1]


def plane_spec() -> object:
    """A spec to submit."""
    from hal.core.model import spec_from_plain

    return spec_from_plain({"command": ["true"]})


def test_a_cancelled_job_says_who_cancelled_it() -> None:
    """Its step ends as cancelled afterwards: that does not hide the name."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    plane.plane.cancel(job, None, BY, plane.now_ms)
    plane.commit()
    (ended,) = plane.end(job, code=143, cause=ExitCause.CANCELLED).ended
    assert (ended.state, ended.reason) == (TaskState.CANCELLED, "cancelled by alice")
