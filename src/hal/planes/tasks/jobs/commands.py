"""What people do to jobs and tasks that they submitted: cancel, hold, release, update, requeue.

Pure. Each call is about one job or tasks of it, and is done in slices (an array may be in very many ranges); errors
are values of the caller's own (`ConflictError` when the thing named is in no state for it) and leave everything as it
was.
"""

from __future__ import annotations

from hal.core.lifecycle import TaskEvent
from hal.core.model import (
    ConflictError,
    EventKind,
    TaskState,
    plural,
)
from hal.planes.tasks.attempts.exclusion import HELD_BY_GATE
from hal.planes.tasks.dependencies.decisions import (
    decide_job,
    is_held_by_rule,
    waive_job,
    waive_tasks,
)
from hal.planes.tasks.jobs.selection import (
    Done,
    Named,
    active_attempts,
    choose,
    counted,
    done,
    nothing_to_do,
    refuse_ended,
    waiting_pieces,
)
from hal.planes.tasks.live.attempt import CANCELLED
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.nodes.failed_gates import HELD_BY_PROLOG
from hal.planes.tasks.slices import Work
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.extensions import leave_to_people
from hal.planes.tasks.table.propagation import apply_decisions, settle, settling
from hal.planes.tasks.table.stops import stop_attempt
from hal.planes.tasks.table.table import JobTable

# ── cancel ────────────────────────────────────────────────────────────────────────────────────────────────────────


def cancel(table: JobTable, job_id: int, named: Named, by: Submitter, now_ms: int) -> Work[Done]:
    """Cancel a job or tasks: what waits is cancelled at once, what runs is stopped and cancelled when it has ended.

    Raises:
        NotFoundError: no live job of this id, or no such task.
        ConflictError: the tasks have ended, or none is in the states that were asked for.
    """
    job = table.jobs.peek(job_id) or table.touch(job_id)
    chosen = yield from choose(job, named)
    refuse_ended(job, chosen, "cancelled")
    job = table.touch(job_id)
    reason = f"cancelled by {by.user}"
    waiting = stopped = 0
    for first, count in (yield from waiting_pieces(job, chosen)):
        waiting += yield from table.applying_event(job, first, count, TaskEvent.CANCEL, reason)
    attempts = active_attempts(job, chosen)
    for attempt in attempts:
        if attempt.stopping != CANCELLED:
            stop_attempt(table, job, attempt, CANCELLED, now_ms)
            stopped += 1
    if chosen.whole:
        job.reason = reason
    elif not (waiting or attempts):
        raise nothing_to_do(chosen, "cancelled")
    table.draft.note(EventKind.JOBS_CANCELLED, by.cause, by.trace_id, job.id, tasks=waiting + stopped, reason=reason)
    settle(table, job, now_ms, by.cause)
    yield from settling(table)
    return done(job, chosen, waiting + stopped, counted(waiting, "cancelled"), counted(stopped, "being stopped"))


# ── hold and release ──────────────────────────────────────────────────────────────────────────────────────────────


def hold(table: JobTable, job_id: int, named: Named, by: Submitter, now_ms: int) -> Work[Done]:
    """Hold a job or tasks: nothing of it starts until it is released; what runs continues.

    Raises:
        NotFoundError: as `cancel`.
        ConflictError: the tasks run or have ended.
    """
    job = table.touch(job_id)
    chosen = yield from choose(job, named)
    if chosen.single is not None and job.task_state(chosen.single) not in (TaskState.PENDING, TaskState.HELD):
        refuse_ended(job, chosen, "held")
        raise ConflictError(
            f"task {chosen.name} is {job.task_state(chosen.single)} and cannot be held",
            hint="hold keeps waiting tasks from starting; cancel or requeue ends a running one",
        )
    held = 0
    for first, count in (yield from waiting_pieces(job, chosen)):
        leave_to_people(table, job, first, count)
        held += yield from table.applying_event(job, first, count, TaskEvent.HOLD, f"held by {by.user}")
    if chosen.whole and not job.hold:
        job.hold = True
        table.draft.edited.add(job.id)
        table.recall_credit(job)
    elif not chosen.whole and chosen.single is None and not held:
        raise nothing_to_do(chosen, "held")
    table.draft.note(EventKind.JOBS_HELD, by.cause, by.trace_id, job.id, tasks=held)
    settle(table, job, now_ms, by.cause)
    yield from settling(table)
    if chosen.whole and job.counts.active:
        return Done(job.state, held, _runs_on(job) + (f", {counted(held, 'held')}" if held else ""))
    return done(job, chosen, held, counted(held, "held"))


def _runs_on(job: LiveJob) -> str:
    """What is said of a job that is held while it runs."""
    if job.spec.tasks == 1:
        return "runs on, and is held if it has to run again"
    active = job.counts.active
    what = "runs on, and is held if it has" if active == 1 else "run on, and are held if they have"
    return f"{plural(active, 'task')} {what} to run again"


def release(table: JobTable, job_id: int, named: Named, by: Submitter, now_ms: int) -> Work[Done]:
    """Release held tasks: they wait for resources again, at their former position.

    Raises:
        NotFoundError, ConflictError: as `hold`; releasing what is not held changes nothing.
    """
    job = table.touch(job_id)
    chosen = yield from choose(job, named)
    if not chosen.whole:
        refuse_ended(job, chosen, "released")
        if is_held_by_rule(job):
            raise ConflictError(
                f"task {chosen.name} cannot be released alone: {job.reason}",
                hint=f"`hal release {job.id}` releases the job without this dependency",
            )
    waived = not job.hold and is_held_by_rule(job)
    released = 0
    pieces = yield from waiting_pieces(job, chosen)
    if waived:
        released = job.counts.held
        yield from apply_decisions(table, job, waive_job(job, table, now_ms))
    elif not job.hold:
        for first, count in pieces:
            released += yield from apply_decisions(table, job, waive_tasks(job, first, count))
    for first, count in pieces:
        released += yield from table.applying_event(job, first, count, TaskEvent.RELEASE)
    if chosen.whole and job.hold:
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
    return done(job, chosen, released, counted(released, "released"))
