"""What people do to jobs and tasks that they submitted: cancel, hold, release, update, requeue.

Pure. Each call is about one job or one task of it, and is done in slices (an array may be in very many ranges); errors
are values of the caller's own (`ConflictError` when the thing named is in no state for it) and leave everything as it
was.
"""

from __future__ import annotations

from hal.core.lifecycle import TaskEvent
from hal.core.model import (
    ConflictError,
    EventKind,
    TaskState,
)
from hal.planes.tasks.attempts.exclusion import HELD_BY_GATE
from hal.planes.tasks.attempts.stops import stop_attempt
from hal.planes.tasks.dependencies.decisions import (
    decide_job,
    is_held_by_rule,
    waive_job,
    waive_tasks,
)
from hal.planes.tasks.jobs.selection import active_attempts, refuse_ended, state_now, task_numbers
from hal.planes.tasks.live.attempt import CANCELLED
from hal.planes.tasks.nodes.failed_gates import HELD_BY_PROLOG
from hal.planes.tasks.slices import Work
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.propagation import apply_decisions, settle, settling
from hal.planes.tasks.table.table import JobTable

# ── cancel ────────────────────────────────────────────────────────────────────────────────────────────────────────


def cancel(table: JobTable, job_id: int, task: int | None, by: Submitter, now_ms: int) -> Work[TaskState]:
    """Cancel a job or task: what waits is cancelled at once, what runs is stopped and cancelled when it has ended.

    Returns: the state of the job or task now.
    Raises:
        NotFoundError: no live job of this id, or no such task.
        ConflictError: the task has ended.
    """
    job = table.touch(job_id)
    first, count = task_numbers(job, task)
    if task is not None:
        refuse_ended(job, task, "cancelled")
    reason = f"cancelled by {by.user}"
    done = yield from table.applying_event(job, first, count, TaskEvent.CANCEL, reason)
    for attempt in active_attempts(job, task):
        if attempt.stopping != CANCELLED:
            stop_attempt(table, job, attempt, CANCELLED)
            done += 1
    if task is None:
        job.reason = reason
    table.draft.note(EventKind.JOBS_CANCELLED, by.cause, by.trace_id, job.id, tasks=done, reason=reason)
    settle(table, job, now_ms, by.cause)
    yield from settling(table)
    return state_now(job, task)


# ── hold and release ──────────────────────────────────────────────────────────────────────────────────────────────


def hold(table: JobTable, job_id: int, task: int | None, by: Submitter, now_ms: int) -> Work[TaskState]:
    """Hold a job or task: nothing of it starts until it is released; what runs continues.

    Raises:
        NotFoundError: as `cancel`.
        ConflictError: the task runs or has ended.
    """
    job = table.touch(job_id)
    first, count = task_numbers(job, task)
    if task is not None and job.task_state(task) not in (TaskState.PENDING, TaskState.HELD):
        refuse_ended(job, task, "held")
        raise ConflictError(
            f"task {job.id}.{task} is {job.task_state(task)} and cannot be held",
            hint="hold keeps waiting tasks from starting; cancel or requeue ends a running one",
        )
    held = yield from table.applying_event(job, first, count, TaskEvent.HOLD, f"held by {by.user}")
    if task is None and not job.hold:
        job.hold = True
        table.draft.edited.add(job.id)
        table.recall_credit(job)
    table.draft.note(EventKind.JOBS_HELD, by.cause, by.trace_id, job.id, tasks=held)
    settle(table, job, now_ms, by.cause)
    yield from settling(table)
    return state_now(job, task)


def release(table: JobTable, job_id: int, task: int | None, by: Submitter, now_ms: int) -> Work[TaskState]:
    """Release held tasks: they wait for resources again, at their former position.

    Raises:
        NotFoundError, ConflictError: as `hold`; releasing what is not held changes nothing.
    """
    job = table.touch(job_id)
    first, count = task_numbers(job, task)
    if task is not None:
        refuse_ended(job, task, "released")
        if is_held_by_rule(job):
            raise ConflictError(
                f"task {job.id}.{task} cannot be released alone: {job.reason}",
                hint=f"`hal release {job.id}` releases the job without this dependency",
            )
    waived = not job.hold and is_held_by_rule(job)
    released = 0
    if waived:
        released = job.counts.held
        yield from apply_decisions(table, job, waive_job(job, table, now_ms))
    elif not job.hold:
        released = yield from apply_decisions(table, job, waive_tasks(job, first, count))
    released += yield from table.applying_event(job, first, count, TaskEvent.RELEASE)
    if task is None and job.hold:
        job.hold = False
        if job.reason.startswith((HELD_BY_PROLOG, HELD_BY_GATE)):
            job.reason = ""
        table.draft.edited.add(job.id)
    if not waived:
        # What a person held may still be held because of a dependency.
        yield from apply_decisions(table, job, decide_job(job, table, now_ms))
    table.draft.note(EventKind.JOBS_RELEASED, by.cause, by.trace_id, job.id, tasks=released)
    settle(table, job, now_ms, by.cause)
    yield from settling(table)
    return state_now(job, task)
