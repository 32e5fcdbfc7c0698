"""Changes that people make to what they submitted: checked as a whole like a submission, before anything is changed.

Pure. In slices: an array may be in very many ranges. What waits takes the change at once; what runs keeps what it was
started with, but for walltime, priority and `max_running`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec, Elsewhere
from hal.core.engine.events import INF
from hal.core.model import ConflictError, DeniedError, EventKind, JobSpec, Never, SpecError, format_duration, to_plain
from hal.core.model.affinity import FOLLOWED, followed
from hal.core.model.units import limit_ms
from hal.planes.tasks.admission.levels import check_level, unpacked
from hal.planes.tasks.admission.never import NeverStartsError, never_on_nodes
from hal.planes.tasks.admission.policy_rules import owner_of
from hal.planes.tasks.dependencies.decisions import decide_job
from hal.planes.tasks.engine.view import EngineView
from hal.planes.tasks.jobs import new_dependencies
from hal.planes.tasks.jobs.commands import hold, release
from hal.planes.tasks.jobs.patches import (
    IN_SPEC,
    MOVES,
    FieldChange,
    JobPatch,
    as_changed,
    changes_between,
    is_set,
    needs_room,
    spec_now,
)
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.standings import EndedJob, Mentions
from hal.planes.tasks.slices import Pace, Work
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.pending_limits import Ask, owner_of_live, wanted_tasks
from hal.planes.tasks.table.propagation import apply_decisions, rename, settle, settling
from hal.planes.tasks.table.table import JobTable

AS_CHANGED = "as changed"
"""Name under which the engine is asked about a change that was not made."""


class Updated(NamedTuple):
    """A job and what changed, or would change."""

    job: LiveJob
    changes: list[FieldChange]
    never: Never | None
    """Why it could not start even so; only of a job that says `wait_for_change`."""


class _Plan(NamedTuple):
    """A change that may be made."""

    final: JobSpec
    request: ClassSpec
    named: Mentions | None
    """Whom its new dependencies name; None: they stay."""
    changes: list[FieldChange]
    never: Never | None


def update(
    table: JobTable,
    engine: EngineView,
    job_id: int,
    patch: JobPatch,
    by: Submitter,
    now_ms: int,
    ended: Mapping[int, EndedJob] | None = None,
) -> Work[Updated]:
    """Change what is set in the patch. A new walltime holds for running tasks too, from their start.

    Args:
        ended: jobs that are not live, as far as the caller looked them up.
    Raises:
        NotFoundError: no live job of this id.
        SpecError, ConflictError: a value cannot be accepted; nothing was changed.
        DeniedError: a user lengthens what runs, or raises a priority.
        UnknownJobs: dependencies that are neither live nor in `ended`.
    """
    job = table.jobs.get(job_id) or table.touch(job_id)
    plan = yield from _planned(table, engine, job, patch, by, now_ms, ended or {})
    final = plan.final
    moved = is_set(patch, *MOVES)
    if moved:
        table.pending_limits.moved(job, owner_of(final), table.jobs.get)
        _check_wanted(table, job, final)
    job = table.touch(job_id)
    if plan.named is not None:
        yield from new_dependencies.forgetting(table, job)
    waiting, pace = job.ranges if moved else (), Pace()
    for task_range in waiting:
        table.leave(job, task_range)
        if pace.over():
            yield
    limits_before = (job.priority, job.walltime_ms)
    rename(table, job, final.name, now_ms)
    job.queue, job.account, job.priority = final.queue, final.account, final.priority
    job.walltime_ms = limit_ms(final.walltime)
    _respecify(table, job, final, plan)
    if plan.named is not None:
        new_dependencies.beginning(table, job, ended or {}, plan.named, now_ms)
    elif patch.begin_at_ms is not UNSET and job.eligible_ms < INF:
        job.eligible_ms = max(final.begin_at_ms, job.submit_ms)
    table.draft.edited.add(job.id)
    if moved and job.active:
        table.reshaped.add(job.id)
    for task_range in job.ranges if moved else ():
        table.enter(job, task_range)
        if pace.over():
            yield
    if (job.priority, job.walltime_ms) != limits_before:
        _update_limits(table, job, limits_before[1], moved=moved)
    if patch.on_dependency_failed is not UNSET or plan.named is not None:
        yield from apply_decisions(table, job, decide_job(job, table, now_ms))
    _note(table, job, patch, plan, by)
    settle(table, job, now_ms, by.cause)
    yield from settling(table)
    if patch.hold is not UNSET and patch.hold != job.hold:
        yield from (hold if patch.hold else release)(table, job_id, None, by, now_ms)
    return Updated(job, plan.changes, plan.never)


def preview(
    table: JobTable,
    engine: EngineView,
    job_id: int,
    patch: JobPatch,
    by: Submitter,
    now_ms: int,
    ended: Mapping[int, EndedJob] | None = None,
) -> Work[tuple[Updated, bool | None]]:
    """What `update` would do, and whether the job would then start now; None: that was not tried.

    Raises: as `update`.
    """
    job = table.jobs.get(job_id) or table.touch(job_id)
    plan = yield from _planned(table, engine, job, patch, by, now_ms, ended or {})
    final = plan.final
    would = Updated(job, plan.changes, plan.never)
    waits = job.counts.pending > 0 and not final.hold and job.eligible_ms <= now_ms and not final.dependencies
    if not waits or plan.never is not None or final.begin_at_ms > now_ms:
        return would, None
    owner = table.interning.owner_of(owner_of(final))
    walltime = limit_ms(final.walltime) or INF
    seen = engine.look(job_id, now_ms, [Elsewhere(AS_CHANGED, plan.request, owner, walltime)])
    if seen is None:
        return would, None
    as_it_is = seen.started and seen.starts_at_ms <= now_ms and not plan.changes
    return would, as_it_is or any((one.field, one.value) == ("queue", AS_CHANGED) for one in seen.sooner)


def _planned(
    table: JobTable,
    engine: EngineView,
    job: LiveJob,
    patch: JobPatch,
    by: Submitter,
    now_ms: int,
    ended: Mapping[int, EndedJob],
) -> Work[_Plan]:
    final = as_changed(table, job, patch, by, now_ms)
    if is_set(patch, "within", "pack", "spread"):
        check_level(final, table.topology)
    if patch.labels is not UNSET and followed(final.labels) != followed(job.spec.labels):
        raise SpecError(
            f"labels: jobs are placed by '{FOLLOWED}', which is fixed at submission", hint="change other labels only"
        )
    named: Mentions | None = None
    if patch.dependencies is not UNSET:
        entries, named = yield from new_dependencies.checking(table, job, final, ended)
        final = replace(final, dependencies=entries)
    _check_bookings(engine, job, final)
    _check_lengthening(job, final, by)
    request = table.class_of(final, final.queue)
    lasting = table.class_of(unpacked(final), final.queue)
    never: Never | None = None
    if table.nodes and needs_room(patch) and (job.counts.pending or job.counts.held):
        never = never_on_nodes(engine, lasting, final.walltime, table.policy, table.returning_bookings, now_ms)
        if never is not None and not final.wait_for_change:
            raise NeverStartsError.of(never)
    return _Plan(final, request, named, changes_between(spec_now(job), final), never)


def _check_wanted(table: JobTable, job: LiveJob, final: JobSpec) -> None:
    """
    Raises:
        ConflictError: more workers would wait than a limit allows.
    """
    waiting = job.counts.pending + job.counts.held
    more = wanted_tasks(final, waiting, len(job.active)) - wanted_tasks(job.spec, waiting, len(job.active))
    if more > 0:
        table.pending_limits.refuse([Ask(owner_of_live(job), more)], table.jobs.get)


def _respecify(table: JobTable, job: LiveJob, final: JobSpec, plan: _Plan) -> None:
    """What of a change only the spec says; what rows of their own say (name, queue …) stays there as submitted."""
    fields = {name: getattr(final, name) for name in IN_SPEC}
    if plan.named is not None:
        fields["dependencies"] = final.dependencies
    if any(getattr(job.spec, field) != value for field, value in fields.items()):
        job.spec = replace(job.spec, **fields)
    job.request = table.class_of(job.spec, job.queue)
    job.owner = table.interning.owner_of(owner_of(final))


def _note(table: JobTable, job: LiveJob, patch: JobPatch, plan: _Plan, by: Submitter) -> None:
    """Tell the event feed what was asked for, and what each field was and is."""
    asked = {f: to_plain(v) for f in JobPatch.__struct_fields__ if (v := getattr(patch, f)) is not UNSET}
    if "walltime" in asked:
        asked["walltime"] = to_plain(plan.final.walltime)
    before = {one.field: to_plain(one.before) for one in plan.changes}
    table.draft.note(EventKind.JOBS_CHANGED, by.cause, by.trace_id, job.id, fields=asked, before=before)


def _check_lengthening(job: LiveJob, final: JobSpec, by: Submitter) -> None:
    """
    Raises:
        DeniedError: what was placed by its walltime would run longer, which its user does not decide.
    """
    before_ms, after_ms = job.walltime_ms or INF, limit_ms(final.walltime) or INF
    if job.active and after_ms > before_ms and not by.lengthens:
        raise DeniedError(
            f"walltime: job {job.id} runs, and only operators may extend it",
            hint="ask one, or let it be requeued: hal requeue, then hal update before it starts again",
        )


def _check_bookings(engine: EngineView, job: LiveJob, final: JobSpec) -> None:
    wall_ms = limit_ms(final.walltime) or INF
    if job.active and wall_ms > (job.walltime_ms or INF):
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
        table.draft.feed.update(job.id, job.priority, job.walltime_ms or INF)
    if job.walltime_ms == walltime_before:
        return
    for attempt in job.active.values():
        for node, step in attempt.steps_left(job.id):
            table.draft.order(node).walltimes.setdefault(job.walltime_ms or INF, []).append(step)
