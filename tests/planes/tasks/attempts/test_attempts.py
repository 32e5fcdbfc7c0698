"""Attempts: what becomes of tasks that end, are stopped, are tried again, and of what nodes tell of them."""

from __future__ import annotations

import pytest

from hal.core.model import AttemptState, Reason, StepId, TaskState
from hal.core.model.step_token import read_attempt_token
from hal.planes.tasks import Arrival
from hal.store import EndAttempts
from hal.wire.frames.agent_keeper import ExitCause, Refusal, StepExit, StepStarted, StopReason, Usage
from hal.wire.frames.hello import HeldStep
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
    """Two ranks: cpu times add up, of the memory the largest counts; a cgroup has counted what it counted of both."""
    plane = SmallPlane()
    (job,) = plane.submit({"nodes": 2})
    plane.start((job, 0))
    assert plane.end(job, rank=1, cgroup=3).ended == []
    change = plane.end(job, rank=0, cgroup=6)
    (operation,) = [o for o in change.operations if isinstance(o, EndAttempts)]
    assert operation.rows[0].usage == {
        "user_ms": 2, "system_ms": 2, "max_rss_bytes": 20, "read_bytes": 0, "written_bytes": 0, "cgroup": 2,
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


@pytest.mark.parametrize(("job", "seen"), [({"comment": "für die Gruppe"}, "für die Gruppe"), ({}, None)])
def test_a_start_carries_the_comment_of_its_job(job: dict[str, str], seen: str | None) -> None:
    """Without one the step gets no variable: nothing that a job does not ask for costs it a byte."""
    plane = SmallPlane()
    (number,) = plane.submit(job)
    (orders,) = plane.start((number, 0)).orders.values()
    assert orders.templates[number].env.get("HAL_JOB_COMMENT") == seen


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
