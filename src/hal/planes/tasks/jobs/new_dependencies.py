"""Other dependencies of a job that has not begun: checked like those of a submission, and that no circle closes.

Pure. O(jobs and dependencies that are reached from it), in slices. In a submission older jobs cannot wait for newer
ones; here they can, so what the named jobs wait for is followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.lifecycle import TaskEvent
from hal.core.model import ConflictError, Dependency, DependencyKind, JobSpec, SpecError, TaskState, each_dependency
from hal.planes.tasks.dependencies.decisions import BY_DEPENDENCY
from hal.planes.tasks.dependencies.resolution import UnknownJobs, refuse_other_length, resolved
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.standings import SINGLETON, EndedJob, Mentions, mentions_of
from hal.planes.tasks.live.task_ranges import made_of
from hal.planes.tasks.slices import CHEAP_A_SLICE, Pace, Work
from hal.planes.tasks.table.table import JobTable

MAX_FOLLOWED: Final = 100_000
"""Jobs that are followed to find a circle; more are refused."""


def checking(
    table: JobTable, job: LiveJob, spec: JobSpec, ended: Mapping[int, EndedJob]
) -> Work[tuple[tuple[Dependency, ...], Mentions]]:
    """The dependencies of the spec by id, and whom they name.

    Raises:
        SpecError: a job that does not exist, another length, or a circle.
        UnknownJobs: some are neither live nor in `ended`.
    """
    entries = resolved(spec, table.next_id, job.id).dependencies
    named = mentions_of(entries)
    others = [other for other in named if other > SINGLETON]
    missing = [one for one in others if one not in table.jobs and one not in ended and one not in table.ended]
    if missing:
        raise UnknownJobs(tuple(sorted(missing)))
    for one in each_dependency(entries):
        if one.kind is DependencyKind.AFTERCORR:
            other = int(one.job)
            found = table.jobs.get(other) or table.ended.get(other) or ended[other]
            past = found.past() if isinstance(found, LiveJob) else found
            refuse_other_length(spec, past.title, past.tasks)
    yield from _refuse_circle(table, job, spec, named)
    return entries, named


def _refuse_circle(table: JobTable, job: LiveJob, spec: JobSpec, named: Mentions) -> Work[None]:
    key = (job.user, spec.name)
    came_from: dict[int, int] = {}
    ahead = list(_waited_for(table, job.id, key, named))
    came_from.update(dict.fromkeys(ahead, job.id))
    pace = Pace(CHEAP_A_SLICE)
    while ahead:
        at = ahead.pop()
        if at == job.id:
            raise SpecError(
                f"dependencies: job {job.id} would wait for itself: {_path(came_from, job.id)}",
                hint="leave one of them out",
            )
        other = table.jobs.get(at)
        if other is None or other.waits is None:
            continue
        for after in _waited_for(table, at, other.key, other.waits.mentions):
            if after not in came_from:
                came_from[after] = at
                ahead.append(after)
        if len(came_from) > MAX_FOLLOWED:
            raise ConflictError(
                f"dependencies: more than {MAX_FOLLOWED} jobs wait for one another there; whether job {job.id} would "
                "wait for itself cannot be told",
                hint="name fewer jobs, or wait until some have ended",
            )
        if pace.over():
            yield


def _waited_for(table: JobTable, job: int, key: tuple[str, str], named: Mentions) -> Iterator[int]:
    """The live jobs that a job waits for, those ahead of it under its name included."""
    for other in named:
        if other == SINGLETON:
            yield from table.singletons.earlier(key, job)
        elif other in table.jobs:
            yield other


def _path(came_from: Mapping[int, int], job: int) -> str:
    steps = [job, came_from[job]]
    while steps[-1] != job and len(steps) <= _MAX_SHOWN:
        steps.append(came_from[steps[-1]])
    return " → ".join(str(step) for step in reversed(steps)) + ("" if steps[-1] == job else " …")


_MAX_SHOWN: Final = 12
"""Most jobs of a circle that an error names."""


def forgetting(table: JobTable, job: LiveJob) -> Work[None]:
    """Let the job wait for no other: what a rule had held because of them waits again, unless a person holds it."""
    pace = Pace()
    for tasks in job.ranges:
        if tasks.state is TaskState.HELD and tasks.reason == BY_DEPENDENCY and not job.hold:
            table.apply_event(job, tasks.first, tasks.count, TaskEvent.RELEASE)
        if pace.over():
            yield
    if job.waits is not None:
        table.stop_waiting(job)
    if job.reason.startswith(BY_DEPENDENCY):
        job.reason = ""


def beginning(table: JobTable, job: LiveJob, ended: Mapping[int, EndedJob], named: Mentions, now_ms: int) -> None:
    """Let it wait for what its spec says now. The engine must not know of its tasks; what follows is still to be
    decided."""
    by_task = any(one.kind is DependencyKind.AFTERCORR for one in each_dependency(job.spec.dependencies))
    job.eligible_ms = INF if job.spec.dependencies else max(now_ms, job.spec.begin_at_ms)
    eligible_ms = INF if by_task else 0
    job.ranges = made_of([one if one.state.ended else replace(one, eligible_ms=eligible_ms) for one in job.ranges])
    for other in named:
        if other > SINGLETON and other not in table.jobs and other not in table.ended:
            table.remember(other, ended[other])
    if job.spec.dependencies:
        table.begin_waiting(job, named)
