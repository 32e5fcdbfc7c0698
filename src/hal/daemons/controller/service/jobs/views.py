"""What REST shows of jobs and tasks: values with their JSON form.

Pure. Times are milliseconds since 1970, None where it has not happened; ids are text.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType, field

from hal.core.engine.events import INF
from hal.core.model import (
    AttemptState,
    Duration,
    Findings,
    Reason,
    Resources,
    TaskState,
    Verdict,
    to_json,
)
from hal.store import AttemptRow, JobRow, TaskRow

_REMOVED: Final = ("", "outputs", "attempts", "attempts", "job")
"""By `Removed`; of a job that is removed nothing is shown."""


class TaskCountsView(Struct, frozen=True, kw_only=True):
    """Tasks by state; `active` counts all that hold resources, `running` those of them whose processes run."""

    pending: int
    held: int
    active: int
    running: int
    succeeded: int
    failed: int
    timed_out: int = field(name="timed-out")
    cancelled: int


class JobView(Struct, frozen=True, kw_only=True, gc=False):
    """A job at the time of the request."""

    id: str
    name: str
    state: TaskState
    queue: str
    account: str
    user: str
    priority: int
    tasks: int
    counts: TaskCountsView
    nodes: int
    request: Resources
    walltime: Duration | None
    submit_ms: int
    eligible_ms: int | None
    start_ms: int | None
    end_ms: int | None
    exit_code: int | None
    restarts: int
    held: bool
    reason: str
    trace_id: str
    labels: dict[str, str]
    removed: str
    """What was removed of an ended job: `outputs`, `attempts` (and outputs), or empty."""
    spec: Raw | UnsetType = UNSET
    """As submitted, in canonical JSON; not in listings."""
    dependants: tuple[str, ...] | UnsetType = UNSET
    """Jobs that wait and name this one, the first 1,000 by id; only where one job is asked for."""


class AttemptView(Struct, frozen=True, kw_only=True):
    """One attempt at running a task."""

    attempt: int
    state: AttemptState
    nodes: tuple[str, ...]
    token: str
    allocated_ms: int
    start_ms: int | None
    end_ms: int | None
    cause: str
    exit_code: int | None
    signal: int | None
    message: str
    usage: dict[str, int]


class TaskView(Struct, frozen=True, kw_only=True):
    """One task, and its latest attempt."""

    job: str
    task: int
    state: TaskState
    attempt: int
    retries: int
    nodes: tuple[str, ...]
    start_ms: int | None
    end_ms: int | None
    exit_code: int | None
    signal: int | None
    cause: str
    message: str
    reason: str
    usage: dict[str, int]
    attempts: list[AttemptView] | UnsetType = UNSET
    """Only when one task is asked for."""


class WhyView(Findings, frozen=True, kw_only=True):
    """Why a job has not started, or how it ended."""

    job: str
    state: TaskState
    reason: Reason


def job_view(row: JobRow, *, spec: bool = False) -> JobView:
    """The job's view."""
    return JobView(
        id=str(row.id),
        name=row.name or row.spec.title,
        state=row.state,
        queue=row.queue,
        account=row.account,
        user=row.user,
        priority=row.priority,
        tasks=row.tasks,
        counts=TaskCountsView(
            pending=row.pending,
            held=row.held,
            active=row.active,
            running=row.running,
            succeeded=row.succeeded,
            failed=row.failed,
            timed_out=row.timed_out,
            cancelled=row.cancelled,
        ),
        nodes=row.nodes,
        request=row.spec.request,
        walltime=None if row.walltime_ms is None else Duration(row.walltime_ms),
        submit_ms=row.submit_ms,
        eligible_ms=None if row.eligible_ms >= INF else row.eligible_ms,
        start_ms=row.start_ms,
        end_ms=row.end_ms,
        exit_code=row.exit_code,
        restarts=row.restarts,
        held=row.hold,
        reason=row.reason,
        trace_id=row.trace_id,
        labels=row.spec.labels,
        removed=_REMOVED[row.removed],
        spec=Raw(to_json(row.spec)) if spec else UNSET,
    )


def task_view(row: TaskRow, attempts: list[AttemptRow] | None = None) -> TaskView:
    """The task's view."""
    return TaskView(
        job=str(row.job),
        task=row.task,
        state=row.state,
        attempt=row.attempt,
        retries=row.retries,
        nodes=row.nodes,
        start_ms=row.start_ms,
        end_ms=row.end_ms,
        exit_code=row.exit_code,
        signal=row.signal,
        cause=row.cause,
        message=row.message,
        reason=row.reason,
        usage=row.usage or {},
        attempts=UNSET if attempts is None else [_attempt_view(attempt) for attempt in attempts],
    )


def _attempt_view(row: AttemptRow) -> AttemptView:
    return AttemptView(
        attempt=row.attempt,
        state=row.state,
        nodes=row.nodes,
        token=row.token,
        allocated_ms=row.allocated_ms,
        start_ms=row.started_ms,
        end_ms=row.ended_ms,
        cause=row.cause,
        exit_code=row.exit_code,
        signal=row.signal,
        message=row.message,
        usage=row.usage or {},
    )


def why_view(verdict: Verdict, state: TaskState) -> WhyView:
    """The verdict's view."""
    findings = {name: getattr(verdict, name) for name in Findings.__struct_fields__}
    if verdict.starts_at_ms is not None and verdict.starts_at_ms >= INF:
        findings["starts_at_ms"] = None
    return WhyView(job=str(verdict.job), state=state, **findings)
