"""Arrays with extensions, and arrays of workers: which tasks leave first, what waits and counts, when all is done."""

from __future__ import annotations

from typing import Any

import pytest

from hal.core.engine.events import JobsSubmitted
from hal.core.lifecycle import GAVE_BACK, PLACE_GIVEN_BACK
from hal.core.model import AttemptState, ConflictError, SpecError, TaskState, spec_from_plain
from hal.core.model.policy import Limit, Policy, Queue
from hal.planes.tasks import Change
from hal.planes.tasks.jobs.patches import patch_of
from hal.planes.tasks.table.propagation import NO_WORK_LEFT
from hal.store.operations import EndAttempts
from hal.wire.frames.agent_keeper import ExitCause
from tests.planes.tasks.attempts.test_preemption import moves
from tests.planes.tasks.small_plane import BY, SmallPlane

POOL = {"array": "0-5%3", "extensions": 4, "workers": True}


def pool(policy: Policy | None = None, **fields: object) -> tuple[SmallPlane, int]:
    """Six workers, of which three may run, the last four extensions."""
    plane = SmallPlane(policy, nodes=4)
    (job,) = plane.submit({**POOL, **fields})
    return plane, job


def wanted(plane: SmallPlane, job: int, most: int) -> Change:
    """So many of its workers are wanted now."""
    plane.plane.update(job, patch_of({"max_running": most}), BY, plane.now_ms)
    return plane.commit()


def waiting(plane: SmallPlane, job: int) -> list[int]:
    return sorted(task for number, task in plane.engine.pending if number == job)


def left(plane: SmallPlane, job: int, task: int, **how: Any) -> None:
    plane.end(job, task, code=PLACE_GIVEN_BACK, **how)


def test_the_last_tasks_of_an_array_are_extensions() -> None:
    """One range of six tasks: two are anybody's work to the engine, four are marked."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 6, "extensions": 4})
    assert waiting(plane, job) == [0, 1, 2, 3, 4, 5]
    plane.plane.hold(job, None, BY, plane.now_ms)
    plane.commit()
    plane.plane.release(job, None, BY, plane.now_ms)
    events = [event for event in plane.commit().engine if isinstance(event, JobsSubmitted)]
    rows = [(row, event) for event in events for row in event.rows]
    marked = {
        (int(row["first_task"]), int(row["tasks"])): event.owners[row["owner_index"]].extension for row, event in rows
    }
    assert marked == {(0, 2): False, (2, 4): True}


def test_all_tasks_of_an_array_may_be_extensions() -> None:
    plane = SmallPlane()
    (job,) = plane.submit({"array": 3, "extensions": 3})
    plane.start((job, 0))
    plane.end(job, 0, code=9)
    again = plane.live(job).ranges[0]
    assert (again.first, again.state, again.attempt, again.retries) == (0, TaskState.PENDING, 2, 1)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"array": 3, "extensions": 4}, "4 of 3 tasks"),
        ({"array": 3, "extensions": 1, "nodes": 2}, "nodes"),
        ({"workers": True}, "no array"),
        ({"array": 3, "workers": True, "service": True}, "service"),
        ({"array": 3, "workers": True, "nodes": 2}, "nodes"),
    ],
)
def test_what_has_no_meaning_together_is_refused(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(SpecError, match=word):
        spec_from_plain({"command": ["true"], **fields})


def test_an_array_with_extensions_ends_as_any_array() -> None:
    """Its tasks are no workers: each has its own part, and a success ends no other."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 3, "extensions": 2})
    plane.start((job, 0), (job, 1))
    plane.end(job, 1)
    assert waiting(plane, job) == [2]
    live = plane.live(job)
    plane.start((job, 2))
    plane.end(job, 2)
    plane.end(job, 0, code=4)
    assert (live.state, live.exit_code, live.counts.succeeded) == (TaskState.FAILED, 4, 2)


def test_workers_wait_as_far_as_they_are_wanted() -> None:
    """The first three, then five, then nobody more beside the two that run."""
    plane, job = pool()
    assert waiting(plane, job) == [0, 1, 2]
    wanted(plane, job, 5)
    assert waiting(plane, job) == [0, 1, 2, 3, 4]
    plane.start((job, 0), (job, 1))
    wanted(plane, job, 2)
    assert waiting(plane, job) == []
    wanted(plane, job, 3)
    assert waiting(plane, job) == [2]


def test_a_worker_that_gives_its_place_back_waits_again_when_more_are_wanted() -> None:
    """No retry is counted, nothing has failed, and it waits for no back-off."""
    plane, job = pool()
    plane.start((job, 0), (job, 1), (job, 2))
    wanted(plane, job, 2)
    left(plane, job, 1)
    live = plane.live(job)
    again = next(one for one in live.ranges if one.first <= 1 < one.end)
    assert (again.state, again.attempt, again.retries, again.eligible_ms) == (TaskState.PENDING, 2, 0, 0)
    assert (again.reason, live.counts.failed, live.exit_code) == (GAVE_BACK, 0, None)
    assert waiting(plane, job) == []
    wanted(plane, job, 3)
    assert waiting(plane, job) == [1]


def test_a_place_given_back_is_an_attempt_that_was_preempted() -> None:
    plane, job = pool()
    plane.start((job, 0))
    change = plane.end(job, 0, code=PLACE_GIVEN_BACK)
    (ends,) = [operation for operation in change.operations if isinstance(operation, EndAttempts)]
    assert [(row.state, row.exit_code) for row in ends.rows] == [(AttemptState.PREEMPTED, PLACE_GIVEN_BACK)]


def test_the_same_exit_code_of_a_task_that_is_no_worker_is_a_failure() -> None:
    plane = SmallPlane()
    (job,) = plane.submit({"array": 1})
    live = plane.live(job)
    plane.start((job, 0))
    left(plane, job, 0)
    assert (live.state, live.exit_code) == (TaskState.FAILED, PLACE_GIVEN_BACK)


def test_workers_are_done_when_one_finds_no_work_left() -> None:
    """None begins any more; what runs ends by itself, and a place that is given back is not taken again."""
    plane, job = pool()
    plane.start((job, 0), (job, 1), (job, 2))
    plane.end(job, 1)
    live = plane.live(job)
    assert {(one.first, one.count, one.state, one.reason) for one in live.ranges} == {
        (3, 3, TaskState.CANCELLED, NO_WORK_LEFT)
    }
    assert set(live.active) == {0, 2}
    assert not any(attempt.stopping for attempt in live.active.values())
    left(plane, job, 2)
    plane.end(job, 0)
    assert (live.state, live.counts.succeeded, live.counts.cancelled) == (TaskState.SUCCEEDED, 2, 4)


def test_workers_of_which_only_extensions_succeeded_are_a_success_with_exit_code_0() -> None:
    """The first tasks never began, or gave their places back."""
    plane, job = pool()
    plane.start((job, 2))
    live = plane.live(job)
    plane.end(job, 2)
    assert (live.state, live.exit_code, live.counts.cancelled) == (TaskState.SUCCEEDED, 0, 5)


def test_workers_of_which_one_failed_have_failed() -> None:
    """Task 0 is no extension and has no retries; that another found no work left does not hide it."""
    plane, job = pool()
    plane.start((job, 0), (job, 1))
    live = plane.live(job)
    plane.end(job, 0, code=3)
    plane.end(job, 1)
    assert (live.state, live.exit_code) == (TaskState.FAILED, 3)


@pytest.mark.parametrize("code", [0, 143, PLACE_GIVEN_BACK])
def test_a_worker_that_leaves_for_others_waits_again_whatever_its_exit_code(code: int) -> None:
    """Exit code 0 of one that was told to leave does not say that no work is left."""
    plane, job = pool()
    plane.start((job, 2))
    block = moves(job, for_job=0)
    block["task"], block["mode"] = 2, 5
    plane.plane.preempt(block, plane.now_ms)
    plane.commit()
    plane.end(job, 2, code=code, cause=ExitCause.EXITED if code != 143 else ExitCause.PREEMPTED)
    live = plane.live(job)
    assert (live.state, live.counts.pending, live.counts.succeeded) == (TaskState.PENDING, 6, 0)
    assert waiting(plane, job) == [0, 1, 2]


def test_a_worker_that_reaches_its_walltime_waits_again() -> None:
    """The first one is no extension, and it comes back, too; the least delay is 1 s."""
    plane, job = pool(walltime="1h")
    plane.start((job, 0))
    plane.end(job, 0, code=143, cause=ExitCause.TIMED_OUT)
    again = plane.live(job).ranges[0]
    assert (again.state, again.eligible_ms) == (TaskState.PENDING, plane.now_ms + 1_000)


def test_a_cancelled_worker_does_not_come_back() -> None:
    """It exits with the code of a place given back, as programs do on SIGTERM."""
    plane, job = pool()
    plane.start((job, 2))
    plane.plane.cancel(job, 2, BY, plane.now_ms)
    plane.commit()
    left(plane, job, 2)
    assert plane.live(job).task_state(2) is None
    assert plane.live(job).counts.cancelled == 1


def test_workers_that_are_done_run_again_together_when_somebody_requeues_the_job() -> None:
    """All six, and nothing remembers that no work was left."""
    plane, job = pool()
    plane.start((job, 0), (job, 1))
    plane.end(job, 1)
    plane.plane.requeue(job, None, _ended(plane, job), BY, plane.now_ms)
    plane.commit()
    live = plane.live(job)
    assert (live.counts.pending, live.succeeded) == (5, ())


def _ended(plane: SmallPlane, job: int) -> list[Any]:
    from hal.planes.tasks import EndedTask

    return [EndedTask(1, 1, TaskState.SUCCEEDED, 0)]


def few(most: int) -> Policy:
    return Policy(limits={"few": Limit(user="*", pending=most)})


def test_only_workers_that_are_wanted_count_as_waiting() -> None:
    """A thousand, of which three are wanted: a limit of four leaves room for one job, not for two."""
    plane, _ = pool(few(4), array="0-999%3")
    plane.submit({})
    with pytest.raises(ConflictError, match="4 wait already"):
        plane.submit({})


def test_wanting_more_workers_than_may_wait_is_refused() -> None:
    """Those that run do not count: with three of them running, four more may be wanted, and no fifth."""
    plane, job = pool(few(4), array="0-999%3")
    with pytest.raises(ConflictError, match="limit 'few'"):
        wanted(plane, job, 5)
    wanted(plane, job, 3)
    plane.start((job, 0), (job, 1), (job, 2))
    for task in range(3):
        _begun(plane, job, task)
    wanted(plane, job, 7)
    assert waiting(plane, job) == [3, 4, 5, 6]
    with pytest.raises(ConflictError, match="limit 'few'"):
        wanted(plane, job, 8)


def _begun(plane: SmallPlane, job: int, task: int) -> None:
    from tests.planes.tasks.table.test_extensions import begun

    begun(plane, job, task)


def test_tasks_of_other_arrays_count_whether_they_may_run_or_not() -> None:
    plane = SmallPlane(few(4))
    with pytest.raises(ConflictError, match="limit 'few'"):
        plane.submit({"array": "0-999%3"})


def test_a_queue_bounds_the_extensions_of_an_array() -> None:
    plane = SmallPlane(Policy(queues={"short": Queue(max_extensions=2)}))
    plane.submit({"queue": "short", "array": 5, "extensions": 2})
    with pytest.raises(SpecError, match="3 tasks of the array; queue 'short' allows at most 2"):
        plane.submit({"queue": "short", "array": 5, "extensions": 3})


def test_a_worker_of_an_array_gets_no_variables_of_a_base() -> None:
    """Nobody looks for a base that is not there."""
    plane, job = pool()
    change = plane.start((job, 0), (job, 2))
    (template,) = {id(one): one for orders in change.orders.values() for one in orders.templates.values()}.values()
    assert not [name for name in template.env if name.startswith(("HAL_ELASTIC", "HAL_BASE", "HAL_MIN", "HAL_MAX"))]
    assert AttemptState(plane.live(job).active[2].state) is AttemptState.ALLOCATED
