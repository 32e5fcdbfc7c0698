"""Changes that people make to what they submitted: checked as a whole like a submission, before anything is changed.

Pure. In slices: an array may be in very many ranges.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.model import (
    ConflictError,
    DeniedError,
    Duration,
    EventKind,
    Failed,
    JobSpec,
    OnNodeLost,
    SpecError,
    check_spec,
    format_duration,
)
from hal.core.model.job import MAX_TASKS
from hal.planes.tasks.admission.policy_rules import (
    admitted,
    check_priority,
    check_signal,
    check_walltime,
    longest_walltime,
    owner_of,
    with_defaults,
)
from hal.planes.tasks.admission.site_rules import refuse_changed, ruled
from hal.planes.tasks.dependencies.decisions import (
    decide_job,
)
from hal.planes.tasks.engine.view import EngineView
from hal.planes.tasks.jobs.commands import hold, release
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.slices import Pace, Work
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.propagation import apply_decisions, rename, settle, settling
from hal.planes.tasks.table.table import JobTable


class JobPatch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Changes to a job that has not ended; only the given fields change."""

    name: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    account: str | UnsetType = UNSET
    qos: str | UnsetType = UNSET
    """Empty: the queue's default."""
    priority: int | UnsetType = UNSET
    walltime: Duration | UnsetType | None = UNSET
    """None: the queue's default."""
    max_running: Annotated[int, Meta(ge=0, le=MAX_TASKS)] | UnsetType = UNSET
    """Tasks of the array that run at once; 0: no limit. What runs already continues."""
    on_dependency_failed: Failed | UnsetType = UNSET
    begin_at_ms: int | UnsetType = UNSET
    deadline_ms: int | UnsetType = UNSET
    """0: none."""
    exclude: tuple[str, ...] | UnsetType = UNSET
    """Nodes not to run on; what runs there already continues."""
    hold: bool | UnsetType = UNSET


def update(
    table: JobTable, engine: EngineView, job_id: int, patch: JobPatch, by: Submitter, now_ms: int
) -> Work[LiveJob]:
    """Change what is set in the patch. A new walltime holds for running tasks too, from their start.

    Raises:
        NotFoundError: no live job of this id.
        SpecError, ConflictError: a value cannot be accepted; nothing was changed.
        DeniedError: a user lengthens what runs.
    """
    job = table.jobs.get(job_id) or table.touch(job_id)
    final = as_changed(table, job, patch, by, now_ms)
    _check_bookings(engine, job, final)
    _check_lengthening(job, final, by)
    moving = (patch.queue, patch.account, patch.qos, patch.begin_at_ms, patch.max_running, patch.exclude)
    moved = any(value is not UNSET for value in moving)
    if moved:
        table.pending_limits.moved(job, owner_of(final), table.jobs.get)
    job = table.touch(job_id)
    waiting, pace = job.ranges if moved else (), Pace()
    for task_range in waiting:
        table.leave(job, task_range)
        if pace.over():
            yield
    limits_before = (job.priority, job.walltime_ms)
    rename(table, job, final.name, now_ms)
    job.queue, job.account, job.priority = final.queue, final.account, final.priority
    job.walltime_ms = None if final.walltime is None else int(final.walltime)
    _respecify(table, job, final)
    if patch.begin_at_ms is not UNSET and job.eligible_ms < INF:
        job.eligible_ms = max(final.begin_at_ms, job.submit_ms)
    table.draft.edited.add(job.id)
    for task_range in waiting:
        table.enter(job, task_range)
        if pace.over():
            yield
    if (job.priority, job.walltime_ms) != limits_before:
        _update_limits(table, job, limits_before[1], moved=moved)
    if patch.on_dependency_failed is not UNSET:
        yield from apply_decisions(table, job, decide_job(job, table, now_ms))
    changed = {f: v for f in JobPatch.__struct_fields__ if (v := getattr(patch, f)) is not UNSET}
    if "walltime" in changed:
        changed["walltime"] = None if job.walltime_ms is None else str(Duration(job.walltime_ms))
    table.draft.note(EventKind.JOBS_CHANGED, by.cause, by.trace_id, job.id, fields=changed)
    settle(table, job, now_ms, by.cause)
    yield from settling(table)
    if patch.hold is not UNSET and patch.hold != job.hold:
        yield from (hold if patch.hold else release)(table, job_id, None, by, now_ms)
    return job


_ONLY_IN_SPEC = ("begin_at_ms", "qos", "deadline_ms", "exclude", "array", "on_dependency_failed")
_RULED = ("queue", "account", "qos", "priority", "walltime", "deadline_ms")
"""Changes that the rules of the site are asked about."""


def _respecify(table: JobTable, job: LiveJob, final: JobSpec) -> None:
    """What of a change only the spec says; what rows of their own say (name, queue …) stays there as submitted."""
    fields = {name: getattr(final, name) for name in _ONLY_IN_SPEC}
    if any(getattr(job.spec, field) != value for field, value in fields.items()):
        job.spec = replace(job.spec, **fields)
    job.request = table.class_of(job.spec, job.queue)
    job.owner = table.interning.owner_of(owner_of(final))


def as_changed(table: JobTable, job: LiveJob, patch: JobPatch, by: Submitter, now_ms: int) -> JobSpec:
    """All of the patch against the rules of a submission, before anything is changed; the spec as it would then be."""
    walltime: Duration | None
    if patch.walltime is not UNSET:
        walltime = patch.walltime
    else:
        walltime = None if job.walltime_ms is None else Duration(job.walltime_ms)
    if walltime is not None and walltime <= 0:
        raise SpecError("walltime: must be longer than 0", hint="leave it out for the queue's default")
    if patch.begin_at_ms is not UNSET and patch.begin_at_ms < 0:
        raise SpecError("begin_at_ms: is before 1970")
    if patch.deadline_ms is not UNSET and patch.deadline_ms < 0:
        raise SpecError("deadline_ms: is before 1970")
    if patch.max_running is not UNSET and job.spec.array is None:
        raise SpecError(f"max_running: job {job.id} is not an array", hint="it limits how many tasks of an array run")
    asked = replace(
        job.spec,
        name=job.name if patch.name is UNSET else patch.name,
        queue=job.queue if patch.queue is UNSET else patch.queue,
        account=job.account if patch.account is UNSET else patch.account,
        user=job.user,
        qos=job.spec.qos if patch.qos is UNSET else patch.qos,
        priority=job.priority if patch.priority is UNSET else check_priority(patch.priority),
        walltime=walltime,
        begin_at_ms=job.spec.begin_at_ms if patch.begin_at_ms is UNSET else patch.begin_at_ms,
        deadline_ms=job.spec.deadline_ms if patch.deadline_ms is UNSET else patch.deadline_ms,
        exclude=job.spec.exclude if patch.exclude is UNSET else patch.exclude,
        # Never that of another queue: what runs of it was started with or without a guard.
        on_node_lost=job.spec.on_node_lost if patch.queue is UNSET else job.spec.on_node_lost or OnNodeLost.WAIT,
    )
    if patch.max_running is not UNSET and asked.array is not None:
        asked = replace(asked, array=replace(asked.array, max_running=patch.max_running))
    if patch.on_dependency_failed is not UNSET:
        asked = replace(asked, on_dependency_failed=patch.on_dependency_failed)
    check_spec(asked)
    if table.rules and any(getattr(patch, name) is not UNSET for name in _RULED):
        after = ruled(asked, table.rules, partial(with_defaults, policy=table.policy))
        refuse_changed(asked, after, table.rules)
    if all(value is UNSET for value in (patch.queue, patch.account, patch.qos, patch.deadline_ms)):
        # Its queue may have been closed or narrowed since: that does not concern what stays as it was.
        if patch.walltime is UNSET:
            return asked
        queue = table.policy.queues.get(asked.queue)
        default = queue.default_walltime if queue is not None else None
        limit = check_walltime(walltime, longest_walltime(asked, table.policy), default)
        check_signal(asked.signal, limit)
        return replace(asked, walltime=limit)
    return admitted(asked, table.policy, user=by.user, now_ms=now_ms)


def _check_lengthening(job: LiveJob, final: JobSpec, by: Submitter) -> None:
    """
    Raises:
        DeniedError: what was placed by its walltime would run longer, which its user does not decide.
    """
    before_ms, after_ms = (INF if one is None else int(one) for one in (job.walltime_ms, final.walltime))
    if job.active and after_ms > before_ms and not by.lengthens:
        raise DeniedError(
            f"walltime: job {job.id} runs, and only operators may extend it",
            hint="ask one, or let it be requeued: hal requeue, then hal update before it starts again",
        )


def _check_bookings(engine: EngineView, job: LiveJob, final: JobSpec) -> None:
    wall_ms = INF if final.walltime is None else int(final.walltime)
    if job.active and wall_ms > (INF if job.walltime_ms is None else job.walltime_ms):
        booking = engine.met_by(job.id, wall_ms)
        if booking:
            raise ConflictError(
                f"walltime: job {job.id} runs on a node of booking '{booking}' and would run into it",
                hint=f"`hal booking list` shows when it begins; the current walltime is {_walltime(job)}",
            )


def _walltime(job: LiveJob) -> str:
    return "any time" if job.walltime_ms is None else format_duration(job.walltime_ms)


def _update_limits(table: JobTable, job: LiveJob, walltime_before: int | None, *, moved: bool) -> None:
    if job.active or not moved:
        table.draft.feed.update(job.id, job.priority, INF if job.walltime_ms is None else job.walltime_ms)
    if job.walltime_ms == walltime_before:
        return
    for attempt in job.active.values():
        for node, step in attempt.steps_left(job.id):
            table.draft.order(node).walltimes.setdefault(job.walltime_ms or INF, []).append(step)
