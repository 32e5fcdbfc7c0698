"""Commands on some tasks of a job: by number, by array index, by state; what they say of what they did."""

from __future__ import annotations

import pytest

from hal.core.model import ConflictError, NotFoundError, SpecError, TaskState, parse_tasks_ref
from hal.planes.tasks import EndedTask, EndedTasks, Selection
from hal.planes.tasks.jobs.selection import LOOKUPS_A_SLICE
from hal.planes.tasks.slices import finished
from tests.planes.tasks.small_plane import BY, SmallPlane


def tasks(text: str, *states: TaskState) -> Selection:
    """The tasks that `8.TEXT` or `8[…]` names, in these states."""
    ref = parse_tasks_ref(f"8{text}")
    return Selection(ref.ranges, ref.by_index, states)


def pending(plane: SmallPlane) -> list[int]:
    """Tasks that the engine may start."""
    return sorted(task for _, task in plane.engine.pending)


def test_a_range_of_tasks_is_cancelled_and_the_others_wait_on() -> None:
    """Ten tasks, of which 2 to 4 and 8 go."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 10})
    done = finished(plane.plane.cancelling(job, tasks(".2-4,8"), BY, 1_000))
    plane.commit()
    assert (done.state, done.tasks, done.detail) == (TaskState.PENDING, 4, "4 tasks cancelled")
    assert pending(plane) == [0, 1, 5, 6, 7, 9]


def test_tasks_are_named_by_their_array_index() -> None:
    """Indices 1, 3, 5, 7, 9 are tasks 0 to 4; index 4 is nobody's, and does not matter beside others."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": "1-9:2"})
    plane.plane.hold(job, tasks("[3-5]"), BY, 1_000)
    plane.commit()
    assert pending(plane) == [0, 3, 4]
    with pytest.raises(NotFoundError, match="no task of job 1 has such a HAL_ARRAY_INDEX"):
        plane.plane.hold(job, tasks("[4]"), BY, 1_000)


def test_the_pending_tasks_of_a_running_array_are_cancelled() -> None:
    """What runs continues, and is said to be left alone."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 10})
    plane.start((job, 0), (job, 1))
    done = finished(plane.plane.cancelling(job, Selection(states=(TaskState.PENDING,)), BY, 1_000))
    plane.commit()
    assert (done.state, done.tasks) == (TaskState.ALLOCATED, 8)
    assert sorted(plane.live(job).active) == [0, 1]


def test_a_state_that_no_task_is_in_is_an_error_and_changes_nothing() -> None:
    """It names the state."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 3})
    with pytest.raises(ConflictError, match=f"no task of {job} is held"):
        plane.plane.cancel(job, Selection(states=(TaskState.HELD,)), BY, 1_000)
    assert pending(plane) == [0, 1, 2]


def test_a_task_beyond_the_array_is_refused_and_the_others_of_the_range_stay() -> None:
    """All that an id names, or nothing."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 3})
    with pytest.raises(NotFoundError, match="job 1 has no task 3"):
        plane.plane.cancel(job, tasks(".1-3"), BY, 1_000)
    plane.commit()
    assert pending(plane) == [0, 1, 2]


def test_more_separate_tasks_than_one_command_may_name() -> None:
    """4,096; neighbours count as one."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 20_000})
    with pytest.raises(SpecError, match="more than 4,096 separate tasks"):
        plane.plane.cancel(job, tasks(".0-19999:2"), BY, 1_000)
    assert finished(plane.plane.cancelling(job, tasks(".0-19998"), BY, 1_000)).tasks == 19_999


def test_indices_are_looked_up_in_slices() -> None:
    """A thousand of an array with gaps: some dozen in a turn of the loop."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": ",".join(str(3 * n + n % 2) for n in range(4_000))})
    wanted = tasks("[" + ",".join(str(12 * n) for n in range(1_000)) + "]")
    work = plane.plane.holding(job, wanted, BY, 1_000)
    turns = sum(1 for _ in work)
    plane.commit()
    assert turns >= 1_000 // LOOKUPS_A_SLICE
    assert plane.live(job).counts.held == 1_000


def test_a_requeue_says_what_runs_again() -> None:
    """Of three tasks that ended, the two that failed; of the ended ones that are named, all."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 4})
    plane.start((job, 0), (job, 1), (job, 2))
    for task, code in ((0, 0), (1, 1), (2, 1)):
        plane.end(job, task, code=code)
    ended = EndedTasks(
        [
            EndedTask(0, 1, TaskState.SUCCEEDED, 0),
            EndedTask(1, 1, TaskState.FAILED, 1),
            EndedTask(2, 1, TaskState.FAILED, 1),
        ]
    )
    done = finished(plane.plane.requeueing(job, None, ended, BY, plane.now_ms))
    plane.commit()
    assert (done.tasks, done.detail) == (2, "2 failed tasks run again")
    assert pending(plane) == [1, 2, 3]
    done = finished(plane.plane.requeueing(job, tasks(".0-1"), ended, BY, plane.now_ms))
    plane.commit()
    assert done.detail == "1 succeeded task runs again"


def test_a_requeue_of_states_takes_only_tasks_in_them() -> None:
    """The failed one runs again, the cancelled one stays."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 4})
    plane.start((job, 0))
    plane.end(job, 0, code=1)
    plane.plane.cancel(job, tasks(".1"), BY, plane.now_ms)
    plane.commit()
    ended = EndedTasks([EndedTask(0, 1, TaskState.FAILED, 1)])
    failed = Selection(states=(TaskState.FAILED, TaskState.TIMED_OUT))
    done = finished(plane.plane.requeueing(job, failed, ended, BY, plane.now_ms))
    plane.commit()
    assert done.detail == "1 failed task runs again"
    assert pending(plane) == [0, 2, 3]


def test_holding_what_runs_says_that_it_runs_on() -> None:
    """It is held afterwards, if it has to run again."""
    plane = SmallPlane()
    one, many = plane.submit({}, {"array": 3})
    plane.start((one, 0), (many, 0))
    assert finished(plane.plane.holding(one, None, BY, 1_000)).detail == "runs on, and is held if it has to run again"
    said = finished(plane.plane.holding(many, None, BY, 1_000)).detail
    assert said == "1 task runs on, and is held if it has to run again, 2 tasks held"


def test_single_tasks_and_jobs_of_one_task_need_no_words() -> None:
    """The state says it."""
    plane = SmallPlane()
    one, many = plane.submit({}, {"array": 3})
    assert finished(plane.plane.cancelling(one, None, BY, 1_000)).detail == ""
    assert finished(plane.plane.cancelling(many, 1, BY, 1_000)).detail == ""
