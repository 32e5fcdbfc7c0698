"""Submitting: all jobs of a submission are accepted, or none and nothing is stored.

Pure. O(jobs + dependencies), in slices, and one question to the engine for each distinct class of request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hal.core.engine.classes import ClassSpec
from hal.core.engine.events import INF
from hal.core.lifecycle import TaskCounts
from hal.core.model import (
    DependencyKind,
    Duration,
    EventKind,
    HALError,
    JobSpec,
    OverloadedError,
    SpecError,
    TaskState,
    each_dependency,
)
from hal.core.model.policy_scope import Owner
from hal.core.model.trace_context import trace_id_of
from hal.core.model.units import limit_ms
from hal.planes.tasks.admission.levels import check_level, unpacked
from hal.planes.tasks.admission.never import NeverStartsError, never_on_nodes
from hal.planes.tasks.admission.policy_rules import (
    MAX_JOBS_IN_SUBMISSION,
    MAX_LIVE_JOBS,
    LimitsByOwner,
    admitted,
    owner_of,
)
from hal.planes.tasks.admission.whole_nodes import with_whole_nodes
from hal.planes.tasks.dependencies.decisions import decide_job
from hal.planes.tasks.dependencies.resolution import UnknownJobs, numbered, refuse_other_length, resolving
from hal.planes.tasks.engine.view import EngineView
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.standings import SINGLETON, EndedJob, Mentions
from hal.planes.tasks.live.task_ranges import TaskRange, TaskRanges
from hal.planes.tasks.slices import CHEAP_A_SLICE, Pace, Work, emptied
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.extensions import BY_BASE
from hal.planes.tasks.table.pending_limits import Ask, wanted_tasks
from hal.planes.tasks.table.propagation import apply_decisions, settle, settling
from hal.planes.tasks.table.table import JobTable
from hal.store import NoticeRow, PutNotices


def submitting(
    table: JobTable,
    engine: EngineView,
    specs: Sequence[JobSpec],
    by: Submitter,
    now_ms: int,
    *,
    ended: Mapping[int, EndedJob],
    dry_run: bool = False,
) -> Work[list[LiveJob]]:
    """Accept the jobs, in slices; a dry run does everything but keep them (ids are those that they would have had).

    Args:
        specs: well formed in themselves.
        ended: jobs that are not live, as far as the caller looked them up.
    Raises:
        SpecError, ConflictError: one of them cannot be accepted; with several, its number in the list is named.
        OverloadedError: too many live jobs.
        UnknownJobs: dependencies that are neither live nor in `ended`.
    """
    _check_counts(table, len(specs))
    accepted = yield from _admitted(table, specs, by, now_ms)
    if table.pending_limits.limited:
        table.pending_limits.refuse((yield from _asks(accepted)), table.jobs.get)
    accepted, mentions = yield from resolving(accepted, table.next_id)
    yield from _check_existing(table, accepted, mentions, ended)
    requests = yield from _requests(table, engine, accepted, now_ms)
    jobs: list[LiveJob] = []
    pace = Pace()
    for position, spec in enumerate(accepted):
        jobs.append(_job(table, spec, requests[position], by, now_ms, table.next_id + position))
        if pace.over():
            yield
    if dry_run:
        yield from emptied(mentions)
        return jobs
    first = table.next_id
    yield from _stage(table, jobs, by)
    waiters = [(job, named) for job, named in zip(jobs, mentions, strict=True) if named]
    for _, named in waiters:
        for other in named:
            if SINGLETON < other < first and other not in table.jobs and other not in table.ended:
                table.remember(other, ended[other])
        if pace.over(len(named)):
            yield
    for job, named in waiters:
        table.begin_waiting(job, named)
        if pace.over(len(named)):
            yield
    for job, _ in waiters:
        if job.end_ms is None:
            yield from apply_decisions(table, job, decide_job(job, table, now_ms))
            settle(table, job, now_ms, by.cause)
            yield from settling(table)
        if pace.over():
            yield
    for job, named in zip(jobs, mentions, strict=True):
        if not named:
            settle(table, job, now_ms, by.cause)
            if pace.over():
                yield
    return jobs


def _check_counts(table: JobTable, count: int) -> None:
    if count == 0:
        raise SpecError("no job to submit")
    if count > MAX_JOBS_IN_SUBMISSION:
        raise SpecError(
            f"{count} jobs in one submission; at most {MAX_JOBS_IN_SUBMISSION} are allowed",
            hint="submit them in parts, or alike ones as one array",
        )
    if len(table.jobs) + count > MAX_LIVE_JOBS:
        raise OverloadedError(
            f"{len(table.jobs)} jobs are live; {count} more would exceed the limit of {MAX_LIVE_JOBS}",
            hint="submit alike jobs as one array, or later",
        )


def _admitted(table: JobTable, specs: Sequence[JobSpec], by: Submitter, now_ms: int) -> Work[list[JobSpec]]:
    out: list[JobSpec] = []
    limits: LimitsByOwner = {}
    known: dict[int, JobSpec] = {}
    pace = Pace()
    for position, spec in enumerate(specs):
        found = known.get(id(spec))
        if found is None:
            try:
                whole = _with_whole_nodes(table, spec) if spec.exclusive else spec
                found = admitted(whole, table.policy, user=by.user, now_ms=now_ms, known=limits, rules=table.rules)
                check_level(found, table.topology)
                known[id(spec)] = found
            except HALError as error:
                raise numbered(error, position, len(specs)) from error
        out.append(found)
        if pace.over():
            yield
    return out


def _with_whole_nodes(table: JobTable, spec: JobSpec) -> JobSpec:
    queue = table.policy.queues.get(spec.queue)
    return with_whole_nodes(spec, queue.nodes if queue is not None else (), table.nodes.values())


def _asks(specs: Sequence[JobSpec]) -> Work[list[Ask]]:
    """How many tasks of each owner would wait."""
    tasks: dict[Owner, int] = {}
    pace = Pace(CHEAP_A_SLICE)
    for spec in specs:
        owner = owner_of(spec)
        tasks[owner] = tasks.get(owner, 0) + wanted_tasks(spec, spec.tasks)
        if pace.over():
            yield
    return [Ask(owner, count) for owner, count in tasks.items()]


def _requests(table: JobTable, engine: EngineView, specs: Sequence[JobSpec], now_ms: int) -> Work[list[ClassSpec]]:
    """The class of each job.

    Raises:
        NeverStartsError: no set of nodes could ever give it, and it does not say `wait_for_change`.
    """
    out: list[ClassSpec] = []
    asked: set[tuple[int, Duration | None]] = set()
    returning = table.returning_bookings
    pace = Pace()
    for position, spec in enumerate(specs):
        request = table.class_of(spec, spec.queue)
        lasting = table.class_of(unpacked(spec), spec.queue)
        key = (id(lasting), spec.walltime if returning.kept else None)
        if table.nodes and not spec.wait_for_change and key not in asked:
            asked.add(key)
            never = never_on_nodes(engine, lasting, spec.walltime, table.policy, returning, now_ms)
            if never is not None:
                raise numbered(NeverStartsError.of(never), position, len(specs))
        out.append(request)
        if pace.over():
            yield
    return out


def _check_existing(
    table: JobTable, specs: Sequence[JobSpec], mentions: Sequence[Mentions], ended: Mapping[int, EndedJob]
) -> Work[None]:
    """Every older job that is named is known, and as long as an array that follows it task by task.

    Raises:
        UnknownJobs: some are neither live nor in `ended`.
        SpecError: one has another length.
    """
    if not any(mentions):
        return
    first = table.next_id
    pace = Pace(CHEAP_A_SLICE)
    older: set[int] = set()
    for named in mentions:
        older.update(job for job in named if SINGLETON < job < first)
        if pace.over(1 + len(named)):
            yield
    missing = [job for job in older if job not in table.jobs and job not in ended and job not in table.ended]
    if missing:
        raise UnknownJobs(tuple(sorted(missing)))
    for position, named in enumerate(mentions):
        for other, entries in named.items():
            if SINGLETON < other < first and any(kind is DependencyKind.AFTERCORR for _, kind in entries):
                found = table.jobs.get(other) or table.ended.get(other) or ended[other]
                past = found.past() if isinstance(found, LiveJob) else found
                try:
                    refuse_other_length(specs[position], past.title, past.tasks)
                except SpecError as error:
                    raise numbered(error, position, len(specs)) from error
        if pace.over(1 + len(named)):
            yield


def _job(table: JobTable, spec: JobSpec, request: ClassSpec, by: Submitter, now_ms: int, job_id: int) -> LiveJob:
    state = TaskState.HELD if spec.hold else TaskState.PENDING
    counts = TaskCounts()
    by_task = spec.array is not None and any(
        one.kind is DependencyKind.AFTERCORR for one in each_dependency(spec.dependencies)
    )
    held = spec.extensions if spec.has_base else 0
    counts.move(None, state, spec.tasks - held)
    ranges: TaskRanges = (TaskRange(0, spec.tasks - held, state, eligible_ms=INF if by_task else 0),)
    if held:
        counts.move(None, TaskState.HELD, held)
        ranges = (*ranges, TaskRange(1, held, TaskState.HELD, reason=BY_BASE))
    return LiveJob(
        id=job_id,
        spec=spec,
        name=spec.name,
        queue=spec.queue,
        account=spec.account,
        user=spec.user,
        priority=spec.priority,
        walltime_ms=limit_ms(spec.walltime),
        submit_ms=now_ms,
        eligible_ms=INF if spec.dependencies else max(now_ms, spec.begin_at_ms),
        trace_id=trace_id_of(spec.traceparent) or by.trace_id,
        request=request,
        owner=table.interning.owner_of(owner_of(spec)),
        state=state,
        hold=spec.hold,
        counts=counts,
        ranges=ranges,
        active={},
    )


def _stage(table: JobTable, jobs: list[LiveJob], by: Submitter) -> Work[None]:
    first = table.next_id
    note = table.draft.note
    pace = Pace(CHEAP_A_SLICE)
    trace_id = by.trace_id
    for job in jobs:
        if job.trace_id != jobs[0].trace_id:  # they are one event nevertheless, of the request
            trace_id = by.trace_id
            break
        trace_id = job.trace_id
        if pace.over():
            yield
    pace = Pace()
    for job in jobs:
        table.add(job)
        for task_range in job.ranges:
            table.enter(job, task_range)
        note(EventKind.JOBS_SUBMITTED, by.cause, trace_id, job.id, tasks=job.spec.tasks)
        if pace.over():
            yield
    notifying = tuple(NoticeRow(job.id) for job in jobs if job.spec.notify)
    if notifying:
        table.draft.other.append(PutNotices(notifying, new=True))
    table.next_id = first + len(jobs)
    note(
        EventKind.JOBS_SUBMITTED,
        by.cause,
        trace_id,
        count=len(jobs),
        first=first,
        last=first + len(jobs) - 1,
        user=by.user,
    )
