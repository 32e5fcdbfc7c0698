"""Submitting: all jobs of a submission are accepted, or none and nothing is stored.

Pure. O(jobs + dependencies), and one question to the engine for each distinct class of request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hal.core.engine.classes import ClassSpec
from hal.core.engine.events import INF
from hal.core.lifecycle import TaskCounts
from hal.core.model import Dependency, EventKind, HALError, JobSpec, OverloadedError, SpecError, TaskState
from hal.planes.tasks.admission import MAX_JOBS_IN_SUBMISSION, MAX_LIVE_JOBS, LimitsByOwner, admitted, owner_of
from hal.planes.tasks.dependencies import Standing, Waits, resolve, standing
from hal.planes.tasks.engine_view import EngineView
from hal.planes.tasks.live import LiveJob
from hal.planes.tasks.spans import Span
from hal.planes.tasks.table import JobTable, never_text
from hal.planes.tasks.waiting import Ask


class EndedJob(Struct, frozen=True):
    """What must be known of a job that has ended when another one names it as a dependency."""

    id: int
    title: str
    state: TaskState


class UnknownJobs(Exception):
    """The submission depends on jobs that are not live: nobody's error; the caller looks them up and asks again."""

    def __init__(self, jobs: tuple[int, ...]) -> None:
        super().__init__(f"jobs {jobs} are not live")
        self.jobs = jobs


class Submitter(Struct, frozen=True):
    """On whose behalf, and in the course of which request, something is changed."""

    user: str
    trace_id: str = ""

    @property
    def cause(self) -> str:
        """For events."""
        return f"user:{self.user}"


def submit(
    table: JobTable,
    engine: EngineView,
    specs: Sequence[JobSpec],
    by: Submitter,
    now_ms: int,
    *,
    ended: Mapping[int, EndedJob],
    dry_run: bool = False,
) -> list[LiveJob]:
    """Accept the jobs; a dry run does everything but keep them (ids are those that they would have had).

    Args:
        specs: well formed in themselves.
        ended: jobs that are not live, as far as the caller looked them up.
    Raises:
        SpecError, ConflictError: one of them cannot be accepted; with several, its place in the list is named.
        OverloadedError: too many live jobs.
        UnknownJobs: dependencies that are neither live nor in `ended`.
    """
    _check_counts(table, len(specs))
    accepted = _admitted(table, specs, by, now_ms)
    table.waiting.refuse((Ask(owner_of(spec), spec.tasks) for spec in accepted), table.jobs.get)
    waits = resolve(accepted, table.next_id)
    failed = _against_existing(table, waits, ended, table.next_id)
    requests = _requests(table, engine, accepted)
    jobs = [
        _job(table, spec, requests[position], waits[position], by, now_ms, table.next_id + position)
        for position, spec in enumerate(accepted)
    ]
    if dry_run:
        return jobs
    _stage(table, jobs, by, now_ms)
    for job in jobs:
        if job.id in failed and job.end_ms is None:
            table.fail_dependant(job, failed[job.id])
        table.settle(job, now_ms, by.cause)
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


def _admitted(table: JobTable, specs: Sequence[JobSpec], by: Submitter, now_ms: int) -> list[JobSpec]:
    out: list[JobSpec] = []
    limits: LimitsByOwner = {}
    known: dict[int, JobSpec] = {}
    for position, spec in enumerate(specs):
        found = known.get(id(spec))
        if found is None:
            try:
                found = known[id(spec)] = admitted(spec, table.policy, user=by.user, now_ms=now_ms, known=limits)
            except HALError as error:
                raise _placed(error, position, len(specs)) from error
        out.append(found)
    return out


def _requests(table: JobTable, engine: EngineView, specs: Sequence[JobSpec]) -> list[ClassSpec]:
    """The class of each job.

    Raises:
        SpecError: no set of nodes could ever give it.
    """
    out: list[ClassSpec] = []
    asked: set[int] = set()
    for position, spec in enumerate(specs):
        request = table.class_of(spec, spec.queue)
        if table.nodes and id(request) not in asked:
            asked.add(id(request))
            impossible = engine.impossible(request)
            if impossible:
                error = SpecError(impossible, hint="ask for less; `hal nodes` lists what there is")
                raise _placed(error, position, len(specs))
        out.append(request)
    return out


def _against_existing(
    table: JobTable, waits: list[Waits], ended: Mapping[int, EndedJob], first_id: int
) -> dict[int, str]:
    """Drop what is met already; the jobs that can never run, and why."""
    missing = {j for wait in waits for j in wait if j < first_id and j not in table.jobs and j not in ended}
    if missing:
        raise UnknownJobs(tuple(sorted(missing)))
    failed: dict[int, str] = {}
    for position, wait in enumerate(waits):
        left: Waits = {}
        for other, kinds in wait.items():
            if other >= first_id:
                left[other] = kinds
                continue
            live = table.jobs.get(other)
            state, started = (live.state, live.start_ms is not None) if live else (ended[other].state, True)
            title = (live.name or live.spec.title) if live else ended[other].title
            for kind in kinds:
                how = standing(kind, state, started=started)
                if how is Standing.NEVER:
                    failed.setdefault(first_id + position, never_text(kind, other, title, state))
                elif how is Standing.WAITING:
                    left[other] = (*left.get(other, ()), kind)
        waits[position] = left
    return failed


def _job(
    table: JobTable, spec: JobSpec, request: ClassSpec, waits: Waits, by: Submitter, now_ms: int, job_id: int
) -> LiveJob:
    state = TaskState.HELD if spec.hold else TaskState.PENDING
    counts = TaskCounts()
    counts.move(None, state, spec.tasks)
    return LiveJob(
        id=job_id,
        spec=spec,
        name=spec.name,
        queue=spec.queue,
        account=spec.account,
        user=spec.user,
        priority=spec.priority,
        walltime_ms=None if spec.walltime is None else int(spec.walltime),
        submit_ms=now_ms,
        eligible_ms=INF if waits else max(now_ms, spec.begin_at_ms),
        trace_id=by.trace_id,
        request=request,
        owner=table.interning.owner_of(owner_of(spec)),
        state=state,
        hold=spec.hold,
        waits=waits,
        counts=counts,
        spans=(Span(0, spec.tasks, state),),
        active={},
    )


def _stage(table: JobTable, jobs: list[LiveJob], by: Submitter, now_ms: int) -> None:
    first = table.next_id
    ids_of_names = {job.name: job.id for job in jobs if job.name}
    for job in jobs:
        if job.spec.dependencies:
            job.spec = _with_ids(job.spec, ids_of_names)
        table.add(job)
        for span in job.spans:
            table.enter(job, span)
    table.next_id = first + len(jobs)
    note = table.draft.note
    for job in jobs:
        note(EventKind.JOBS_SUBMITTED, by.cause, by.trace_id, job.id, tasks=job.spec.tasks)
    note(
        EventKind.JOBS_SUBMITTED,
        by.cause,
        by.trace_id,
        count=len(jobs),
        first=first,
        last=first + len(jobs) - 1,
        user=by.user,
    )


def _with_ids(spec: JobSpec, ids_of_names: dict[str, int]) -> JobSpec:
    """What is stored names jobs by id: names mean something in their submission only."""
    named = tuple(Dependency(str(ids_of_names.get(d.job.strip(), d.job)), d.kind) for d in spec.dependencies)
    return replace(spec, dependencies=named)


def _placed(error: HALError, position: int, count: int) -> HALError:
    if count == 1:
        return error
    return type(error)(f"job {position + 1} of {count}: {error.message}", hint=error.hint)
