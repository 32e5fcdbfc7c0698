"""What people do to their jobs: cancel, hold, release, update; of one task, of what runs, and who did it."""

from __future__ import annotations

import pytest

from hal.core.model import ConflictError, Duration, NotFoundError, Reason, SpecError, StepId, TaskState
from hal.planes.tasks import JobPatch
from hal.wire.frames.agent_keeper import ExitCause
from tests.planes.tasks.small_plane import BY, SmallPlane


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


def test_a_cancelled_job_says_who_cancelled_it() -> None:
    """Its step ends as cancelled afterwards: that does not hide the name."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    plane.plane.cancel(job, None, BY, plane.now_ms)
    plane.commit()
    (ended,) = plane.end(job, code=143, cause=ExitCause.CANCELLED).ended
    assert (ended.state, ended.reason) == (TaskState.CANCELLED, "cancelled by alice")


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
