"""From the engine's plan to attempts, and to what their nodes are told to start; with it, tasks on credit.

Pure. O(starts), with a run of neighbouring tasks taken out of a job's spans at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from hal.core.engine.plan import Rows, StartRows
from hal.core.lifecycle import TASK, TaskEvent, transition
from hal.core.model import AttemptState, EventKind, InternalError, StepId, TaskState
from hal.planes.tasks.credit import CREDIT_MS, share, waiting
from hal.planes.tasks.live import Attempt, LiveJob
from hal.planes.tasks.spans import Span, locate, take
from hal.planes.tasks.table import JobTable
from hal.planes.tasks.template import step_template
from hal.wire.frames import StepStart

ENGINE = "engine"


def allocate(
    table: JobTable,
    starts: StartRows,
    rows: Rows,
    row_name: Callable[[int], str],
    epoch: int,
    now_ms: int,
    *,
    credit: bool = False,
) -> int:
    """A plan's starts as attempts, and orders for their nodes; how many.

    Args:
        starts: shape (S,), dtype `START`, in the order decided.
        rows: the engine's node rows that `starts` point into.
        credit: nothing more can start now, so what waits may be handed over ahead of time (see `credit`).
    Raises:
        InternalError: a task does not wait for that attempt.
    """
    names = [row_name(row) for row in rows.tolist()]
    places: dict[int, list[str]] = {}
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
        nodes = tuple(names[offset : offset + width])
        _begin(table, job, span, task, nodes, epoch, now_ms)
        taken.append(task)
        places.setdefault(job_id, []).append(nodes[0])
    _untake(job, taken)
    for job_id, nodes_given in places.items():
        if credit:
            _hand_over(table, table.jobs[job_id], nodes_given, epoch, now_ms)
        table.settle(table.touch(job_id), now_ms, ENGINE)
    return len(starts)


def _begin(
    table: JobTable,
    job: LiveJob,
    span: Span,
    task: int,
    nodes: tuple[str, ...],
    epoch: int,
    now_ms: int,
    *,
    credit: bool = False,
) -> None:
    """Make a task of the span an attempt; the caller takes it out of the job's spans."""
    number = span.attempt
    attempt = Attempt(
        task=task,
        attempt=number,
        state=AttemptState.ALLOCATED,
        nodes=nodes,
        token=f"{table.instance}-{job.id}.{task}.{number}-{epoch:x}{table.term}",
        allocated_ms=now_ms,
        retries=span.retries,
        credit=credit,
    )
    transition(TASK, span.state, TaskEvent.ALLOCATE)
    job.counts.move(span.state, TaskState.ALLOCATED)
    job.active[task] = attempt
    table.draft.new_attempts[(job.id, task, number)] = attempt
    item: dict[str, object] = {"id": f"{job.id}.{task}.{number}", "nodes": nodes}
    if credit:
        item["credit"] = True
    table.draft.note(EventKind.ATTEMPTS_ALLOCATED, ENGINE, job.trace_id, job.id, item)
    order_start(table, job, attempt)


def _hand_over(table: JobTable, job: LiveJob, nodes: list[str], epoch: int, now_ms: int) -> None:
    """Hand waiting tasks over for the places that the engine has just given the job, each on one of these nodes."""
    most = share(table, job, now_ms)
    for node in nodes if most else ():
        span = waiting(job, now_ms) if node in table.credit_nodes else None
        if span is None:
            continue
        count = min(most, span.count)
        table.leave(job, replace(span, count=count))
        for task in range(span.first, span.first + count):
            _begin(table, job, span, task, (node,), epoch, now_ms, credit=True)
        job.spans = take(job.spans, span.first, count)


def _untake(job: LiveJob | None, tasks: list[int]) -> None:
    """Take the tasks out of the job's spans, a run of neighbours at a time."""
    if job is None:
        return
    start = 0
    for at in range(1, len(tasks) + 1):
        if at == len(tasks) or tasks[at] != tasks[at - 1] + 1:
            job.spans = take(job.spans, tasks[start], at - start)
            if job.window:
                job.fed = tuple(take(job.fed, tasks[start], at - start))
            start = at


def order_start(table: JobTable, job: LiveJob, attempt: Attempt, only: Collection[StepId] | None = None) -> None:
    """Tell its nodes to start the attempt.

    Args:
        only: those of its steps that their node, which has just said what it holds, does not have. The others may have
            been told before: a repeated start is harmless where it arrives, but one that waits for its node to return
            would be taken for one that never left.
    """
    array = job.spec.array
    index, count = (array.index(attempt.task), array.count) if array else (attempt.task, 1)
    credit_ms = CREDIT_MS if attempt.credit else 0
    for node, step in attempt.steps_left(job.id):
        if only is not None and step not in only:
            continue
        orders = table.draft.order(node)
        if job.id not in orders.templates:
            orders.templates[job.id] = step_template(job, table.step_secret, table.reached_at)
        orders.starts.append(
            StepStart(step, job.id, attempt.token, attempt.nodes, index, count, attempt.allocated_ms, credit_ms)
        )
