"""Which tasks and attempts a command names, and their state.

Pure.
"""

from __future__ import annotations

from hal.core.model import (
    ConflictError,
    NotFoundError,
    TaskState,
)
from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob


def task_numbers(job: LiveJob, task: int | None) -> tuple[int, int]:
    if task is None:
        return 0, job.spec.tasks
    if not 0 <= task < job.spec.tasks:
        raise NotFoundError(f"job {job.id} has no task {task}", hint=f"its tasks are 0 to {job.spec.tasks - 1}")
    return task, 1


def active_attempts(job: LiveJob, task: int | None) -> list[Attempt]:
    """The active attempts of that task, or of all."""
    if task is None:
        return list(job.active.values())
    return [job.active[task]] if task in job.active else []


def refuse_ended(job: LiveJob, task: int, what: str) -> None:
    state = job.task_state(task)
    if state is None or state.ended:
        ended = "has ended" if state is None else f"is {state}"
        raise ConflictError(
            f"task {job.id}.{task} {ended} and cannot be {what}", hint=f"see `hal show {job.id}.{task}`"
        )


def state_now(job: LiveJob, task: int | None) -> TaskState:
    return job.state if task is None else job.task_state(task) or job.state
