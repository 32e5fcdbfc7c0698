"""The errors for jobs and tasks that do not exist, or have ended.

Pure.
"""

from __future__ import annotations

from hal.core.model import ConflictError, NotFoundError, TaskState, parse_task_ref
from hal.daemons.controller.service.outcomes import OutcomeView, outcome_view
from hal.store import JobRow

_ENDED_WORDS = {
    TaskState.SUCCEEDED: "succeeded",
    TaskState.FAILED: "failed",
    TaskState.TIMED_OUT: "was timed out",
    TaskState.CANCELLED: "was cancelled",
}


def no_job(job: int) -> NotFoundError:
    """The error for a job that does not exist, or that the caller must not see."""
    return NotFoundError(f"there is no job {job}", hint="`hal jobs --all` lists the jobs there are")


def has_ended(row: JobRow) -> ConflictError:
    """The error for a job that has ended; its row may not say so yet, because the end is being committed."""
    how = f": it {_ENDED_WORDS[row.state]}" if row.state in _ENDED_WORDS else ""
    return ConflictError(f"job {row.id} has ended{how}", hint=f"see `hal show {row.id}`")


def no_task(row: JobRow, task: int) -> NotFoundError:
    return NotFoundError(f"job {row.id} has no task {task}", hint=f"its tasks are 0 to {row.tasks - 1}")


def explained(result: OutcomeView, rows: dict[int, JobRow | None]) -> OutcomeView:
    """An outcome of what was not found among the live jobs, from the rows of all jobs."""
    job, task = parse_task_ref(result.id)
    row = rows[job]
    if row is None:
        return outcome_view(result.id, no_job(job))
    if task is not None and task >= row.tasks:
        return outcome_view(result.id, no_task(row, task))
    return outcome_view(result.id, has_ended(row)) if row.end_ms else result
