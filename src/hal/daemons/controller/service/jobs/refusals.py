"""The errors for jobs and tasks that do not exist, or have ended.

Pure.
"""

from __future__ import annotations

from hal.core.model import ConflictError, NotFoundError, TaskState, parse_tasks_ref
from hal.daemons.controller.service.outcomes import OutcomeView, outcome_view
from hal.planes.tasks import no_task_of
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
    """The error for a task that the job does not have, or no longer."""
    if 0 <= task < row.tasks and row.removed_tasks:
        return NotFoundError(f"task {row.id}.{task} was removed", hint=f"`hal show {row.id}` shows what is left")
    return no_task_of(row.id, task, row.tasks)


def explained(result: OutcomeView, rows: dict[int, JobRow | None]) -> OutcomeView:
    """An outcome of what was not found among the live jobs, from the rows of all jobs."""
    ref = parse_tasks_ref(result.id)
    row = rows[ref.job]
    if row is None:
        return outcome_view(result.id, no_job(ref.job))
    if ref.ranges and not ref.by_index and ref.ranges[-1].last >= row.tasks:
        return outcome_view(result.id, no_task(row, ref.ranges[-1].last))
    return outcome_view(result.id, has_ended(row)) if row.end_ms else result
