"""From the engine's plan to attempts, and to what their nodes are told to start.

Pure. O(starts), with a run of neighbouring tasks taken out of a job's spans at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from hal.core.engine.plan import Rows, StartRows
from hal.core.lifecycle import TASK, TaskEvent, transition
from hal.core.model import AttemptState, EventKind, InternalError, TaskState
from hal.planes.tasks.live import Attempt, LiveJob
from hal.planes.tasks.spans import locate, take
from hal.planes.tasks.table import JobTable
from hal.planes.tasks.template import step_template
from hal.wire.frames import StepStart

ENGINE = "engine"


def allocate(
    table: JobTable, starts: StartRows, rows: Rows, row_name: Callable[[int], str], epoch: int, now_ms: int
) -> int:
    """A plan's starts as attempts, and orders for their nodes; how many.

    Args:
        starts: shape (S,), dtype `START`, in the order decided.
        rows: the engine's node rows that `starts` point into.
    Raises:
        InternalError: a task does not wait for that attempt.
    """
    names = [row_name(row) for row in rows.tolist()]
    run: list[tuple[int, Attempt]] = []
    last_job = 0
    job: LiveJob | None = None
    taken: list[int] = []
    for job_id, task, number, offset, width, _ in starts.tolist():
        if job is None or job_id != last_job:
            _untake(job, taken)
            job, last_job, taken = table.touch(job_id), job_id, []
        span = locate(job.spans, task)
        if span is None or span.attempt != number:
            raise InternalError(f"the engine started attempt {number} of {job_id}.{task}, which does not wait for it")
        attempt = Attempt(
            task=task,
            attempt=number,
            state=AttemptState.ALLOCATED,
            nodes=tuple(names[offset : offset + width]),
            token=f"{table.instance}-{job_id}.{task}.{number}-{epoch:x}",
            allocated_ms=now_ms,
            retries=span.retries,
        )
        transition(TASK, span.state, TaskEvent.ALLOCATE)
        job.counts.move(span.state, TaskState.ALLOCATED)
        job.active[task] = attempt
        taken.append(task)
        table.draft.new_attempts[(job_id, task, number)] = attempt
        table.draft.note(
            EventKind.ATTEMPTS_ALLOCATED,
            ENGINE,
            job.trace_id,
            job_id,
            {"id": f"{job_id}.{task}.{number}", "nodes": attempt.nodes},
        )
        order_start(table, job, attempt)
        run.append((job_id, attempt))
    _untake(job, taken)
    for job_id in dict.fromkeys(job_id for job_id, _ in run):
        table.settle(table.touch(job_id), now_ms, ENGINE)
    return len(run)


def _untake(job: LiveJob | None, tasks: list[int]) -> None:
    """Take the tasks out of the job's spans, a run of neighbours at a time."""
    if job is None:
        return
    start = 0
    for at in range(1, len(tasks) + 1):
        if at == len(tasks) or tasks[at] != tasks[at - 1] + 1:
            job.spans = take(job.spans, tasks[start], at - start)
            if job.window:
                job.fed = take(job.fed, tasks[start], at - start)
            start = at


def order_start(table: JobTable, job: LiveJob, attempt: Attempt) -> None:
    """Tell its nodes to start the attempt (again: a repeated start is harmless)."""
    array = job.spec.array
    index, count = (array.index(attempt.task), array.count) if array else (attempt.task, 1)
    for node, step in attempt.steps_left(job.id):
        orders = table.draft.order(node)
        if job.id not in orders.templates:
            orders.templates[job.id] = step_template(job)
        orders.starts.append(StepStart(step, job.id, attempt.token, attempt.nodes, index, count, attempt.allocated_ms))
