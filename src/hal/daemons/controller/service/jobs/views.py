"""What REST shows of jobs and tasks: values with their JSON form.

Pure. Times are milliseconds since 1970, None where it has not happened; ids are text.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, Raw, Struct, UnsetType, field

from hal.core.engine.events import INF
from hal.core.engine.why.scores import ScoredNodes
from hal.core.model import (
    AttemptState,
    Duration,
    Findings,
    Reason,
    Resources,
    TaskState,
    Verdict,
    to_json,
    to_plain,
)
from hal.planes.tasks import Placement, Updated, job_row
from hal.store import AttemptRow, JobRow, TaskRow

_TIMED: Final = (Reason.BEGIN_AT, Reason.BACKOFF, Reason.HOURS)
"""What ends at a known time, which is no forecast."""
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


class WaitingView(Struct, frozen=True, kw_only=True, gc=False):
    """Why a job waits, as `whyJob` finds it, without its numbers and advice."""

    reason: Reason
    short: str
    """In a few words: `limit user cpu`."""
    starts_at_ms: int | None
    """When that ends, where it is known without a forecast."""


class PlacementView(Struct, frozen=True, kw_only=True, gc=False):
    """Where a job runs."""

    nodes: tuple[str, ...]
    """By name, the first 64."""
    more: bool
    """There may be more nodes than are named."""
    ends_by_ms: int | None
    """When all that runs will have reached its walltime; null without one, or before anything has started."""


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
    """The largest of its tasks' when it has ended; null before that, and where no task failed but the job did not
    succeed."""
    restarts: int
    held: bool
    reason: str
    trace_id: str
    labels: dict[str, str]
    removed: str
    """What was removed of an ended job: `outputs`, `attempts` (and outputs), or empty."""
    tasks_removed: int | UnsetType = UNSET
    """Tasks that were removed of a job that stays, which are not among the counts; absent where there is none."""
    spec: Raw | UnsetType = UNSET
    """As submitted, in canonical JSON; not in listings."""
    waiting: WaitingView | UnsetType = UNSET
    """Why its next task waits; only in listings that ask for it, and only where something waits."""
    placement: PlacementView | UnsetType = UNSET
    """Where it runs now; only in listings that ask for it, and only where it does."""
    present_nodes: tuple[str, ...] | UnsetType = UNSET
    """Of an elastic job whose base runs: the nodes of its tasks that run and were not told to leave, the base's first;
    not in listings."""
    ready: int | UnsetType = UNSET
    """Of a service that runs: how many of its tasks are ready."""
    dependants: tuple[str, ...] | UnsetType = UNSET
    """Jobs that wait and name this one, on request also those that did; the first 1,000 by id; only where one job is
    asked for."""


class ChangeView(Struct, frozen=True, kw_only=True):
    """A field of a job that changed, as its spec shows it."""

    field: str
    before: Any
    after: Any


class UpdatedView(JobView, frozen=True, kw_only=True, gc=False):
    """A job after a change; in a dry run as it is, with what would change."""

    changes: list[ChangeView]
    dry_run: bool = False
    starts_now: bool | None = None
    """In a dry run: whether its next task would then start at once; null where that was not tried."""
    never: str = ""
    """Why it could not start even if nothing else ran; only of a job with `wait_for_change`."""


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
    gpus: tuple[tuple[str, ...], ...]
    """What it was given of the GPUs of each node; empty: none, or they are only counted."""


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
    ready: bool | UnsetType = UNSET
    """Of a running task of a service: whether it is ready; absent while it is starting."""
    cpus: dict[str, str] | UnsetType = UNSET
    """Of a task that has run for some seconds on nodes that bind: by node, its CPUs there (`0-3,8`); only when one task
    is asked for."""
    attempts: list[AttemptView] | UnsetType = UNSET
    """Only when one task is asked for."""


class TaskStatesView(Struct, frozen=True, kw_only=True):
    """In which state all tasks of a job are."""

    job: str
    tasks: int
    states: list[str]
    """What the first numbers of `runs` mean; `removed`: the task is no longer kept."""
    runs: list[tuple[int, int]]
    """From the first task to the last: a state, by its position in `states`, and how many tasks in a row are in it."""


class NodeScoreView(Struct, frozen=True, kw_only=True, gc=False):
    """A node that has room for a task of the job now."""

    node: str
    score: float
    """From 0 to 1, by the placement in force, 0 where that is first-fit; and what the job's preferences add."""
    terms: dict[str, float]
    """The scores that built-in placements would give it, by their names."""
    parts: dict[str, float]
    """What the score is the sum of, where preferences add to it."""
    held: int | None
    """Of a job that is spread: how many nodes it has in the domain of this one; null: it is in no domain."""


class DomainScoreView(Struct, frozen=True, kw_only=True, gc=False):
    """A domain that has room for all nodes of the job now, with its score from 0 to 1."""

    domain: str
    level: str
    score: float
    fits: int
    """Nodes of it that have room for a part of the job now."""


class ScoresView(Struct, frozen=True, kw_only=True):
    """The best nodes for a job now, as its placement scores them."""

    job: str
    placement: str
    """In force; what `auto` means now."""
    fits: int
    """Nodes that have room for a task now; reservations and bookings are not looked at."""
    spread: str
    """The level over which the job is spread; its domains with fewest nodes of the job come first."""
    nodes: list[NodeScoreView]
    domains: list[DomainScoreView]
    """Where a policy scores domains and the job is one of several nodes: the best of these."""
    group: str
    """Of a job with several groups of nodes the one that this is about, the first; else empty."""


def scores_view(job: int, found: ScoredNodes) -> ScoresView:
    """The view of what the engine found."""
    nodes = [
        NodeScoreView(node=one.node, score=one.score, terms=one.terms, parts=one.parts, held=one.held)
        for one in found.nodes
    ]
    domains = [
        DomainScoreView(domain=one.domain, level=one.level, score=one.score, fits=one.fits) for one in found.domains
    ]
    return ScoresView(
        job=str(job), placement=found.placement, fits=found.fits, spread=found.spread, nodes=nodes, domains=domains,
        group=found.group,
    )  # fmt: skip


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
        exit_code=_exit_code(row),
        restarts=row.restarts,
        held=row.hold,
        reason=row.reason,
        trace_id=row.trace_id,
        labels=row.spec.labels,
        removed=_REMOVED[row.removed],
        tasks_removed=row.removed_tasks or UNSET,
        spec=Raw(to_json(row.spec)) if spec else UNSET,
    )


def waiting_view(verdict: Verdict) -> WaitingView:
    """The reason of a verdict."""
    known = verdict.reason in _TIMED and verdict.starts_at_ms is not None and verdict.starts_at_ms < INF
    return WaitingView(reason=verdict.reason, short=verdict.short, starts_at_ms=verdict.starts_at_ms if known else None)


def placement_view(found: Placement) -> PlacementView:
    """The placement's view."""
    return PlacementView(nodes=found.nodes, more=found.more, ends_by_ms=found.ends_by_ms)


def _exit_code(row: JobRow) -> int | None:
    """None while it lives, and where 0 would pass for a success: a cancelled array whose tasks did no wrong."""
    if row.end_ms is None or (row.state is not TaskState.SUCCEEDED and not row.exit_code):
        return None
    return row.exit_code


def task_view(row: TaskRow, attempts: list[AttemptRow] | None = None, ready: bool | UnsetType = UNSET) -> TaskView:
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
        ready=ready,
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
        gpus=tuple(tuple(map(str, of_node)) for of_node in row.gpus),
    )


def why_view(verdict: Verdict, state: TaskState) -> WhyView:
    """The verdict's view."""
    findings = {name: getattr(verdict, name) for name in Findings.__struct_fields__}
    if verdict.starts_at_ms is not None and verdict.starts_at_ms >= INF:
        findings["starts_at_ms"] = None
    return WhyView(job=str(verdict.job), state=state, **findings)


def updated_view(updated: Updated, *, dry_run: bool = False, starts_now: bool | None = None) -> UpdatedView:
    """The view of a change that was made, or of one that would be."""
    shown = job_view(job_row(updated.job), spec=True)
    return UpdatedView(
        **{name: getattr(shown, name) for name in JobView.__struct_fields__},
        changes=[
            ChangeView(field=one.field, before=to_plain(one.before), after=to_plain(one.after))
            for one in updated.changes
        ],
        dry_run=dry_run,
        starts_now=starts_now,
        never=updated.never.text if updated.never is not None else "",
    )
