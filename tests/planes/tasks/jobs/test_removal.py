"""Which ended jobs may be removed, and what is committed when they are."""

from __future__ import annotations

import pytest

from hal.core.model import ConflictError, EventKind, TaskState
from hal.planes.tasks import EndedJob
from hal.store import AppendEvents, MarkRemoved, Removed
from tests.planes.tasks.small_plane import BY, SmallPlane


def refusals(plane: SmallPlane, *jobs: int, removed: Removed = Removed.JOB) -> dict[int, str]:
    """Try to remove these; why they were not."""
    refused = plane.plane.remove(jobs, removed, BY)[1]
    assert all(isinstance(error, ConflictError) for error in refused.values())
    return {job: error.message for job, error in refused.items()}


def test_a_live_job_is_not_removed() -> None:
    """Nor one that ends with the group that is being staged: its end is not durable yet."""
    plane = SmallPlane()
    waiting, running = plane.submit({}, {})
    plane.start((running, 0))
    assert refusals(plane, waiting, running) == {
        waiting: f"job {waiting} has not ended: it is pending",
        running: f"job {running} has not ended: it is allocated",
    }
    plane.plane.cancel(waiting, None, BY, plane.now_ms)
    assert "about to end" in refusals(plane, waiting)[waiting]
    plane.commit()
    assert refusals(plane, waiting) == {}


def test_a_job_that_others_wait_for_keeps_all_but_its_outputs() -> None:
    """Until they no longer do."""
    plane = SmallPlane()
    (first,) = plane.submit({})
    plane.start((first, 0))
    (second,) = plane.submit({"dependencies": [f"afternotok:{first}"], "on_dependency_failed": "hold"})
    plane.end(first)
    assert "a job waits for it" in refusals(plane, first)[first]
    assert "a job waits for it" in refusals(plane, first, removed=Removed.ATTEMPTS_GOING)[first]
    assert refusals(plane, first, removed=Removed.OUTPUTS) == {}
    plane.commit()
    plane.plane.cancel(second, None, BY, plane.now_ms)
    plane.commit()
    assert refusals(plane, first) == {}


def test_a_job_that_a_request_is_about_is_not_removed_meanwhile() -> None:
    """Two requests pin it: it is free when both are done."""
    plane = SmallPlane()
    with plane.plane.pinned([7]), plane.plane.pinned([7, 8]):
        assert "another request is about it" in refusals(plane, 7)[7]
    assert refusals(plane, 7) == {}


def test_what_is_being_removed_is_told_to_those_who_pin_it() -> None:
    """Its rows are still seen, and will not be when they act on it."""
    plane = SmallPlane()
    assert plane.plane.remove([7], Removed.JOB, None) == ([7], {})
    with plane.plane.pinned([7, 8]) as going:
        assert going == {7}
    plane.commit()
    with plane.plane.pinned([7, 8]) as going:
        assert going == frozenset()


def test_a_group_marks_each_job_once_and_tells_the_feed_who_did_it() -> None:
    """Retention and a person want the same job: what the person wants more is marked, too."""
    plane = SmallPlane()
    plane.plane.remove([7, 8], Removed.OUTPUTS, None)
    plane.plane.remove([7], Removed.OUTPUTS, BY)
    plane.plane.remove([8], Removed.JOB, BY)
    change = plane.commit()
    marks = [one for one in change.operations if isinstance(one, MarkRemoved)]
    assert marks == [MarkRemoved([7, 8], Removed.OUTPUTS), MarkRemoved([8], Removed.JOB)]
    (events,) = [one.events for one in change.operations if isinstance(one, AppendEvents)]
    assert [(one.kind, one.cause, list(one.jobs), one.payload) for one in events] == [
        (EventKind.JOBS_REMOVED, "retention", [7, 8], {"removed": "outputs"}),
        (EventKind.JOBS_REMOVED, "user:alice", [8], {"removed": "job"}),
    ]


def test_a_removal_that_was_not_committed_has_not_happened() -> None:
    """Whoever pins the job afterwards sees it as it was."""
    plane = SmallPlane()
    plane.plane.remove([7], Removed.JOB, BY)
    plane.plane.seal(plane.now_ms)
    plane.plane.undo()
    with plane.plane.pinned([7]) as going:
        assert not going


@pytest.mark.parametrize("end", [TaskState.SUCCEEDED, TaskState.FAILED])
def test_a_job_that_was_submitted_after_an_ended_one_keeps_it(end: TaskState) -> None:
    """As long as it waits: `after` of a job that has ended is met at once."""
    plane = SmallPlane()
    kind = "afternotok" if end is TaskState.SUCCEEDED else "afterok"
    ended = {1: EndedJob(1, "one", end)}
    plane.plane._table.next_id = 5
    plane.submit({"dependencies": [f"{kind}:1"], "on_dependency_failed": "hold"}, ended=ended)
    assert 1 in refusals(plane, 1)
    plane.submit({"dependencies": ["after:2"]}, ended={2: EndedJob(2, "two", end)})
    assert 2 not in refusals(plane, 2)
