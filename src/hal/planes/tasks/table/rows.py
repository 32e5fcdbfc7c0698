"""From what a draft touched to the rows of one transaction.

Pure. One operation of each kind for the whole group; of a job's ranges only those that differ from the committed ones
are written.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from hal.planes.tasks.live.attempt import Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.task_ranges import TaskRange, differences
from hal.planes.tasks.slices import Pace, Work
from hal.planes.tasks.table.draft import Draft
from hal.store.operations import (
    AppendEvents,
    AttemptMark,
    AttemptRow,
    DropNodes,
    EditJobs,
    EndAttempts,
    InsertAttempts,
    InsertJobs,
    JobEdit,
    JobProgress,
    JobRow,
    MarkAttempts,
    NodeRow,
    Operation,
    ProgressJobs,
    PutNodes,
    PutTaskRanges,
    TaskRangeRow,
)


def operations(
    draft: Draft, changed: Sequence[LiveJob], nodes: dict[str, NodeRow], now_ms: int
) -> Work[list[Operation]]:
    """All rows and events of the draft; `changed` are the jobs of `draft.jobs_before` as they now are."""
    new = set(draft.new_jobs)
    inserted: list[JobRow] = []
    progressed: list[JobProgress] = []
    drop: list[tuple[int, int]] = []
    put: list[TaskRangeRow] = []
    pace = Pace()
    for job in changed:
        before = draft.jobs_before[job.id]
        if job.id in new:
            inserted.append(job_row(job))
        else:
            progressed.append(_progress(job))
        old = before.ranges if before is not None else draft.stored_ranges.get(job.id, ())
        if job.ranges is not old:
            left, come = yield from differences(old, job.ranges)
            drop.extend((job.id, first) for first in left)
            for task_range in come:
                put.append(_range_row(job.id, task_range))
                if pace.over():
                    yield
        if pace.over():
            yield
    out: list[Operation] = []
    if inserted:
        out.append(InsertJobs(inserted))
    if draft.edited:
        by_id = {job.id: job for job in changed}
        edits: list[JobEdit] = []
        for job_id in sorted(draft.edited - new):
            edits.append(_edit(by_id[job_id], draft.jobs_before[job_id]))
            if pace.over():
                yield
        if edits:
            out.append(EditJobs(edits))
    if draft.new_attempts:
        out.append(InsertAttempts([attempt_row(key[0], attempt) for key, attempt in draft.new_attempts.items()]))
    # The end of an attempt says all but for whom it was preempted or by whom it was evicted.
    ended = draft.ended_attempts
    marks = [_mark(key, a) for key, a in draft.marked_attempts.items() if key not in ended or a.preemption is not None]
    if marks:
        out.append(MarkAttempts(marks))
    if ended:
        out.append(EndAttempts(list(ended.values())))
    if drop or put:
        out.append(PutTaskRanges(drop, put))
    if progressed:
        out.append(ProgressJobs(progressed))
    if there := [nodes[name] for name in draft.nodes_before if name in nodes]:
        out.append(PutNodes(there))
    if gone := [name for name in draft.nodes_before if name not in nodes]:
        out.append(DropNodes(gone))
    out.extend(draft.other)
    events = draft.events(now_ms)
    if events:
        out.append(AppendEvents(events))
    return out


def job_row(job: LiveJob) -> JobRow:
    """The job's row."""
    counts = job.counts
    return JobRow(
        id=job.id,
        spec=job.spec,
        name=job.name,
        queue=job.queue,
        account=job.account,
        user=job.user,
        priority=job.priority,
        state=job.state,
        tasks=job.spec.tasks,
        nodes=job.spec.nodes,
        walltime_ms=job.walltime_ms,
        submit_ms=job.submit_ms,
        eligible_ms=job.eligible_ms,
        start_ms=job.start_ms,
        end_ms=job.end_ms,
        hold=job.hold,
        trace_id=job.trace_id,
        reason=job.reason,
        pending=counts.pending,
        held=counts.held,
        active=counts.active,
        running=counts.running,
        succeeded=counts.succeeded,
        failed=counts.failed,
        timed_out=counts.timed_out,
        cancelled=counts.cancelled,
        exit_code=job.exit_code,
        restarts=job.restarts,
    )


def attempt_row(job: int, attempt: Attempt) -> AttemptRow:
    """The row of an attempt that continues."""
    return AttemptRow(
        job=job,
        task=attempt.task,
        attempt=attempt.attempt,
        state=attempt.state,
        nodes=attempt.nodes,
        token=attempt.token,
        allocated_ms=attempt.allocated_ms,
        retries=attempt.retries,
        credit=attempt.credit,
        started_ms=attempt.started_ms,
        cause=attempt.stopping,
        steps=attempt.steps,
        preemption=attempt.preemption,
        gpus=attempt.gpus,
        port=attempt.port,
    )


def _progress(job: LiveJob) -> JobProgress:
    counts = job.counts
    return JobProgress(
        job.id,
        job.state,
        job.eligible_ms,
        job.start_ms,
        job.end_ms,
        job.reason,
        counts.pending,
        counts.held,
        counts.active,
        counts.running,
        counts.succeeded,
        counts.failed,
        counts.timed_out,
        counts.cancelled,
        job.exit_code,
        job.restarts,
    )


def _edit(job: LiveJob, before: LiveJob | None) -> JobEdit:
    return JobEdit(
        id=job.id,
        spec=UNSET if before is not None and before.spec is job.spec else job.spec,
        name=job.name,
        queue=job.queue,
        account=job.account,
        priority=job.priority,
        walltime_ms=job.walltime_ms,
        nodes=UNSET if before is not None and before.spec.nodes == job.spec.nodes else job.spec.nodes,
        hold=job.hold,
    )


def _mark(key: tuple[int, int, int], attempt: Attempt) -> AttemptMark:
    job, task, number = key
    return AttemptMark(
        job,
        task,
        number,
        attempt.state,
        attempt.started_ms,
        attempt.steps or None,
        attempt.stopping or None,
        attempt.credit,
        attempt.preemption,
    )


def _range_row(job: int, task_range: TaskRange) -> TaskRangeRow:
    return TaskRangeRow(
        job,
        task_range.first,
        task_range.count,
        task_range.state,
        task_range.attempt,
        task_range.retries,
        task_range.eligible_ms,
        task_range.reason,
    )
