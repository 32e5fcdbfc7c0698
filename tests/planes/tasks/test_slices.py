"""(H5) What may be much is done in slices: how much each of them does is bounded, and together they do all of it."""

from __future__ import annotations

from hal.core.engine.events import JobsCancelled
from hal.core.model import TaskState, spec_from_plain
from hal.planes.interface import MAX_WITHDRAWN_A_BLOCK
from hal.planes.tasks import Work
from hal.planes.tasks.discarded import Discarded
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.slices import A_SLICE, CHEAP_A_SLICE, FREED_A_SLICE, finished
from hal.planes.tasks.table.engine_feed import MAX_ROWS_A_BLOCK
from hal.planes.tasks.table.propagation import STEPS_A_SLICE
from hal.store.views import JobFilter
from tests.planes.tasks.small_plane import BY, SmallPlane

MANY = 2_000


def most_at_once(plane: SmallPlane, work: Work[object]) -> int:
    """How many jobs the slice of that work changed that changed most."""
    draft = plane.plane._table.draft
    most, seen = 0, len(draft.jobs_before)
    while True:
        over = next(work, work) is work
        most, seen = max(most, len(draft.jobs_before) - seen), len(draft.jobs_before)
        if over:
            return most


def test_what_ends_because_a_job_ended_ends_in_slices() -> None:
    """(H5) Each turn ends at most a slice of the jobs that can never start now: 60,000 were ended in one turn."""
    plane = SmallPlane()
    first, *_ = plane.submit({"name": "first", "hold": True}, *[{"dependencies": ["first"]}] * MANY)
    ended, most, seen = plane.plane._table.draft.ended_jobs, 0, 0
    for _ in plane.plane.cancelling(first, None, BY, 1_000):
        most, seen = max(most, len(ended) - seen), len(ended)
    assert seen == 1 + MANY
    assert most <= STEPS_A_SLICE


def test_jobs_of_a_filter_are_looked_for_in_slices() -> None:
    """So many live jobs in one turn."""
    plane = SmallPlane()
    ids = plane.submit(*[{"hold": True}] * (2 * CHEAP_A_SLICE + 1))
    work = plane.plane.matching(JobFilter(states=(TaskState.HELD,)))
    assert next(work, None) is None
    assert next(work, None) is None
    assert finished(work) == ids


def test_what_is_of_no_more_use_is_freed_in_slices_also_where_somebody_holds_its_list() -> None:
    """Lists are emptied in place; what is little is left alone."""
    discarded = Discarded()
    many, few = list(range(2 * FREED_A_SLICE + 1)), [1]
    discarded.add(many)
    discarded.add(few)
    left = []
    while discarded:
        discarded.free_some()
        left.append(len(many))
    assert left == [FREED_A_SLICE + 1, 1, 0]
    assert few == [1]


def test_a_commit_that_failed_is_undone_in_slices() -> None:
    """And all is as it was."""
    plane = SmallPlane()
    specs = [spec_from_plain({"command": ["true"], "name": f"j{n}"}) for n in range(MANY)]
    plane.plane.submit(specs, BY, 1_000)
    plane.plane.seal(1_000)
    assert sum(1 for _ in plane.plane.undoing()) >= MANY // A_SLICE
    assert len(plane.plane._table.jobs) == 0


def test_a_job_that_thousands_wait_for_ends_in_slices() -> None:
    """Each turn of the loop tells at most a slice of its dependants, and all of them hear of it in the end."""
    plane = SmallPlane()
    first, *others = plane.submit({"name": "first", "hold": True}, *[{"dependencies": ["first"]}] * MANY)
    assert most_at_once(plane, plane.plane.cancelling(first, None, BY, 1_000)) <= A_SLICE + 1
    change = plane.plane.seal(1_000)
    plane.plane.keep()
    assert len(change.ended) == 1 + len(others)
    assert {job.state for job in change.ended} == {TaskState.CANCELLED}


def test_a_submission_of_thousands_is_staged_in_slices_and_told_to_the_engine_in_blocks() -> None:
    """So many jobs at a time, also of a dry run; the engine hears of so many rows at once."""
    plane = SmallPlane()
    specs = [spec_from_plain({"command": ["true"], "name": f"j{n}"}) for n in range(MANY)]
    assert most_at_once(plane, plane.plane.submitting(specs, BY, 1_000)) <= A_SLICE
    events = plane.plane.take_engine_events()
    assert len(events) == -(-MANY // MAX_ROWS_A_BLOCK)
    dry: Work[list[LiveJob]] = plane.plane.submitting(specs, BY, 1_000, dry_run=True)
    assert sum(1 for _ in dry) >= MANY // A_SLICE


def test_a_fragmented_array_is_cancelled_and_its_rows_are_made_in_slices() -> None:
    """4,000 ranges: neither the cancel nor the rows of the commit are done in one turn."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 2 * MANY, "hold": True})
    for task in range(0, 2 * MANY, 2):
        plane.plane.cancel(job, task, BY, 1_000)
    assert sum(1 for _ in plane.plane.sealing(1_000)) >= 2 * MANY // A_SLICE
    plane.plane.keep()
    live = plane.plane._table.jobs[job]
    assert len(live.ranges) == 2 * MANY
    assert sum(1 for _ in plane.plane.cancelling(job, None, BY, 1_000)) >= 2 * MANY // A_SLICE
    assert live.state is TaskState.CANCELLED


def test_scattered_tasks_that_leave_the_engine_leave_in_small_blocks() -> None:
    """(H5) Each range costs the engine a look at all ranges of the job: 1,024 in one block took 25 ms."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 2 * MANY})
    plane.commit()
    for task in range(0, MANY, 2):
        plane.plane.hold(job, task, BY, 1_000)
    events = plane.plane.take_engine_events()
    gone = [len(event.jobs) for event in events if isinstance(event, JobsCancelled)]
    assert sum(gone) == MANY // 2
    assert max(gone) <= MAX_WITHDRAWN_A_BLOCK
