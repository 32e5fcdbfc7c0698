"""How active attempts change and leave the table: as they were judged, with all that is counted and reported of it.

Pure. O(1) for each, O(log ranges) where a task goes back to its job's ranges.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.lifecycle import TASK, TASK_STATE_OF, Next, TaskEvent, walk
from hal.core.model import EventKind, TaskState
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.task_ranges import TaskRange, put
from hal.planes.tasks.live.task_sets import added
from hal.planes.tasks.table.packs import give_up_ms
from hal.planes.tasks.table.table import JobTable
from hal.store.operations import AttemptEnd

_TASK_ENDS: Final = {
    TaskState.SUCCEEDED: TaskEvent.SUCCEED,
    TaskState.FAILED: TaskEvent.FAIL,
    TaskState.TIMED_OUT: TaskEvent.TIME_OUT,
    TaskState.CANCELLED: TaskEvent.CANCEL,
}


class AttemptOver(Struct, frozen=True, gc=False):
    """An attempt that has ended, as it was judged, and what follows for its task."""

    row: AttemptEnd
    following: Next
    reason: str | None = None
    """The job's reason from now on; None: it stays."""


def mark_attempt(table: JobTable, job: LiveJob, before: Attempt, after: Attempt) -> Attempt:
    """An attempt that stays active is in another state."""
    if before.state is not after.state:
        job.counts.move(TaskState(before.state), TaskState(after.state))
    job.active[after.task] = after
    table.draft.marked_attempts[(job.id, after.task, after.attempt)] = after
    return after


def end_attempt(table: JobTable, job: LiveJob, attempt: Attempt, over: AttemptOver, now_ms: int, cause: str) -> None:
    """An attempt has ended: its task ends with it, or waits again. `settle` must follow."""
    key, row = (job.id, attempt.task, attempt.attempt), over.row
    table.draft.ended_attempts[key] = row
    item = {
        "id": f"{job.id}.{attempt.task}.{attempt.attempt}",
        "state": row.state.value,
        "exit_code": row.exit_code,
        "cause": row.cause,
        "message": row.message,
    }
    table.draft.note(EventKind.ATTEMPTS_ENDED, cause, job.trace_id, job.id, item)
    table.gates.drop(key)
    table.readiness.drop(key)
    del job.active[attempt.task]
    if attempt.gpus:
        table.gpus.give(attempt.nodes, attempt.gpus)
    table.over_reserves.end(key)
    if attempt.port:
        table.ports.give(key, attempt.port)
    if over.following.state.ended:
        _end_task(table, job, attempt, over)
    else:
        _requeue_task(table, job, attempt, over.following, now_ms)


def _requeue_task(table: JobTable, job: LiveJob, attempt: Attempt, following: Next, now_ms: int) -> None:
    before = TaskState(attempt.state)
    after = walk(TASK, before, (TaskEvent.REQUEUE, TaskEvent.HOLD) if job.hold else (TaskEvent.REQUEUE,))
    job.counts.move(before, after)
    job.restarts += 1
    retries = attempt.retries - following.given_back + following.counts_as_retry
    eligible_ms = now_ms + following.delay_ms if following.delay_ms else 0
    tasks = TaskRange(attempt.task, 1, after, attempt.attempt + 1, eligible_ms, retries, following.reason)
    job.ranges = put(job.ranges, (tasks,))
    table.packs.note(give_up_ms(job), job.id)
    # Which task of an array with a limit the engine hears of next is decided when the job is settled.
    if table.is_unknown_to_engine(job, attempt):
        table.enter(job, tasks)
    elif job.id in table.reshaped or (job.spec.within and job.spec.has_base and attempt.task):
        # As the engine knows it, it would wait again as what was asked for when it started, or where the base was then.
        table.draft.feed.end(job, attempt.task, attempt.attempt, False, 0, now_ms)
        table.enter(job, tasks)
    else:
        again = not job.hold and not job.window
        table.draft.feed.end(job, attempt.task, attempt.attempt, again, eligible_ms if again else 0, now_ms)


def _end_task(table: JobTable, job: LiveJob, attempt: Attempt, over: AttemptOver) -> None:
    row, following = over.row, over.following
    before, event = TaskState(attempt.state), _TASK_ENDS[following.state]
    after = walk(TASK, before, (event,) if TASK.allows(before, event) else (TaskEvent.FINALISE, event))
    job.counts.move(before, after)
    if after is TaskState.SUCCEEDED and job.spec.several:
        job.succeeded = added(job.succeeded, attempt.task, attempt.task + 1)
    table.note_tasks(job, attempt.task, 1, before, after)
    of_job = not job.spec.is_extension(attempt.task)
    # A worker that finds no work left ends the job as a success, also where it is an extension.
    if row.exit_code is not None and (of_job or (job.spec.workers and after is TaskState.SUCCEEDED)):
        job.exit_code = max(row.exit_code, job.exit_code or 0)
    if TASK_STATE_OF.get(row.state) is not following.state:
        # Not as the attempt ended (lost once too often, a service restarted too often): the range says how.
        tasks = TaskRange(attempt.task, 1, after, attempt.attempt + 1, 0, attempt.retries, following.reason)
        job.ranges = put(job.ranges, (tasks,))
    if over.reason is not None and of_job:
        job.reason = over.reason
    if not table.is_unknown_to_engine(job, attempt):
        table.draft.feed.end(job, attempt.task, attempt.attempt, False, 0, row.ended_ms)
