"""Jobs that wait for other jobs: when they may start, and what becomes of them when they never can.

Pure: a decision is a stream of changes (`dependencies.changes`), applied by the table one by one while the stream is
read, so each decision sees the effects of the former ones; None between them marks the end of a slice of the work. O(1)
for each job that a change reaches; O(ranges) of an array. When a dependency can no longer be met, the job's own rule
decides (`on_dependency_failed`): its tasks are cancelled, or held until somebody releases them or the other job runs
again, or the dependency counts as met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.lifecycle import TASK, TaskEvent, transition
from hal.core.model import Dependency, DependencyKind, Failed, TaskState
from hal.planes.tasks.dependencies.changes import (
    ApplyEvent,
    Change,
    MakeEligible,
    ReleaseHeld,
    ReplaceRange,
    SetDependencies,
    SetReason,
    StopWaiting,
)
from hal.planes.tasks.dependencies.corresponding_tasks import StandingRange, standing_ranges
from hal.planes.tasks.dependencies.others import Others
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.standings import (
    SINGLETON,
    Mentions,
    Phase,
    Standing,
    Waits,
    any_of,
    mentions_of,
    standing,
    waits_of,
    with_phase,
)
from hal.planes.tasks.live.task_ranges import TaskRange, parts_within, slices, summed
from hal.planes.tasks.slices import A_SLICE, Pace

Decisions = Iterator[Change | None]
"""Changes in order; None where a slice ends."""
BY_DEPENDENCY = "dependency"
"""Reason of tasks held or cancelled because a dependency cannot be met; the job's own reason begins with it."""
MAX_NAMED = 5
"""Most jobs that one reason names."""


# ── how it stands ─────────────────────────────────────────────────────────────────────────────────────────────────


def current_standings(job: LiveJob, others: Others, mentions: Mentions | None = None) -> Waits:
    """How its dependencies stand, from what is true now.

    Args:
        mentions: of its spec, where they are known.
    """
    if mentions is None:
        mentions = mentions_of(job.spec.dependencies)
    alone = SINGLETON not in mentions or others.is_first(job.key, job.id)
    waits = waits_of(job.spec.dependencies, mentions, others.phase, alone=alone)
    return waits if job.eligible_ms >= INF else waits.settled()


def changed_standings(
    job: LiveJob, other: int, before: Phase, after: Phase, *, alone: bool | None = None
) -> Waits | None:
    """How its dependencies stand after `other` went from one phase to another; None when that decides nothing.

    Args:
        alone: of a singleton: whether it is the first of its name now.
    """
    waits = job.waits
    assert waits is not None
    by_task = bool(waits.by_task) and any(
        index in waits.by_task and kind is not DependencyKind.AFTERCORR for index, kind in waits.mentions[other]
    )
    now = with_phase(waits, other, before, after) if job.eligible_ms >= INF else waits
    if now is waits and not by_task:
        return None
    return replace(now, alone=alone) if alone is not None and job.eligible_ms >= INF else now


def is_held_by_rule(job: LiveJob) -> bool:
    """Whether the job as a whole is held because a dependency cannot be met."""
    return job.waits is not None and job.eligible_ms >= INF and job.waits.never > 0 and job.if_never is Failed.HOLD


def is_decided(job: LiveJob) -> bool:
    """Whether none of its tasks waits for a task of another array any more, nor the job for a job."""
    return job.eligible_ms < INF and not summed(job.ranges).undecided


# ── what follows ──────────────────────────────────────────────────────────────────────────────────────────────────


def decide_job(job: LiveJob, others: Others, now_ms: int) -> Decisions:
    """What follows from how its dependencies stand now."""
    waits = job.waits
    if waits is None:
        return
    if job.eligible_ms >= INF:
        if waits.never and job.if_never is not Failed.RUN:
            yield SetReason(never_text(job, waits, others))
            yield ApplyEvent(TaskEvent.CANCEL if job.if_never is Failed.CANCEL else TaskEvent.HOLD, BY_DEPENDENCY)
            return
        if job.reason.startswith(BY_DEPENDENCY):
            yield SetReason("")
            yield ReleaseHeld()
        if waits.open == 0:
            yield MakeEligible(max(job.spec.begin_at_ms, now_ms))
    if waits.by_task:
        yield from decide_tasks(job, others, 0, job.spec.tasks)


def decide_tasks(job: LiveJob, others: Others, first: int, count: int) -> Decisions:
    """What becomes of the tasks in that range that wait for tasks of other arrays; the waiting ends with the last."""
    waits = job.waits
    if waits is None:
        return
    if waits.by_task:
        pace = Pace()
        for low, tasks in slices(job.ranges, first, count, A_SLICE) if count else ():
            for task_range in parts_within(job.ranges, low, tasks):
                if task_range.eligible_ms >= INF and not task_range.state.ended:
                    for begin, end, how in _standing_ranges(job, waits, others, task_range):
                        yield from _decide_range(job, replace(task_range, first=begin, count=end - begin), how)
                        if pace.over():
                            yield None
    if is_decided(job):
        yield StopWaiting()


def _standing_ranges(job: LiveJob, waits: Waits, others: Others, task_range: TaskRange) -> list[StandingRange]:
    def phase(other: int) -> Phase:
        if other == SINGLETON:
            return Phase.SUCCEEDED if others.is_first(job.key, job.id) else Phase.WAITS
        return others.phase(other)

    return standing_ranges(waits, job.spec.dependencies, task_range.first, task_range.end, others.job_or_ended, phase)


def _decide_range(job: LiveJob, tasks: TaskRange, how: Standing) -> Decisions:
    """Of tasks that have not been decided yet and all stand so."""
    by_rule = tasks.state is TaskState.HELD and tasks.reason == BY_DEPENDENCY and not is_held_by_rule(job)
    after = tasks
    if how is Standing.NEVER and job.if_never is not Failed.RUN:
        if job.if_never is Failed.CANCEL:
            after = replace(tasks, state=transition(TASK, tasks.state, TaskEvent.CANCEL), reason=BY_DEPENDENCY)
        elif tasks.state is TaskState.PENDING:
            after = replace(tasks, state=transition(TASK, tasks.state, TaskEvent.HOLD), reason=BY_DEPENDENCY)
        yield SetReason(_task_text(job, tasks))
    else:
        if by_rule and not job.hold:
            after = replace(tasks, state=transition(TASK, tasks.state, TaskEvent.RELEASE), reason="")
        if how is not Standing.WAITING:
            after = replace(after, eligible_ms=0)
    if after is not tasks:
        yield ReplaceRange(tasks, after)


# ── people ────────────────────────────────────────────────────────────────────────────────────────────────────────


def waive_job(job: LiveJob, others: Others, now_ms: int) -> Decisions:
    """Let the job run, as a person decided, without the dependencies that cannot be met."""
    waits = job.waits
    assert waits is not None
    yield SetReason("")
    yield ReleaseHeld()
    kept = tuple(
        entry
        for index, entry in enumerate(job.spec.dependencies)
        if index in waits.by_task or entry_standing(waits, entry, others.phase) is not Standing.NEVER
    )
    yield from _wait_for(job, kept, now_ms)
    yield from decide_job(job, others, now_ms)


def waive_tasks(job: LiveJob, first: int, count: int) -> Decisions:
    """Let tasks run, as a person decided, that are held because of the same tasks of another array."""
    waived = False
    for low, tasks in slices(job.ranges, first, count, A_SLICE):
        for held in parts_within(job.ranges, low, tasks):
            if held.state is TaskState.HELD and held.reason == BY_DEPENDENCY and held.eligible_ms >= INF:
                yield ReplaceRange(held, replace(held, state=TaskState.PENDING, reason="", eligible_ms=0))
                waived = True
        yield None
    if waived and job.waits is not None and is_decided(job):
        yield StopWaiting()


def wait_again(job: LiveJob, others: Others, now_ms: int) -> Decisions:
    """It is to run again although its dependencies were never met: it waits again for those of them that live again."""
    if job.waits is not None or not (job.eligible_ms >= INF or summed(job.ranges).endless):
        return
    kept = tuple(
        entry
        for entry in job.spec.dependencies
        if all(one.kind is DependencyKind.SINGLETON or others.is_live(int(one.job)) for one in entry.alternatives)
    )
    yield from _wait_for(job, kept, now_ms)


def waiting_parts(job: LiveJob, others: Others, task_range: TaskRange) -> list[TaskRange]:
    """Tasks that are to wait again, cut by whether they wait for a task of another array."""
    waits = job.waits
    if task_range.eligible_ms < INF or waits is None or not waits.by_task:
        return [replace(task_range, eligible_ms=0)]
    return [
        replace(task_range, first=low, count=high - low, eligible_ms=INF if how is Standing.WAITING else 0)
        for low, high, how in _standing_ranges(job, waits, others, task_range)
    ]


def _wait_for(job: LiveJob, kept: tuple[Dependency, ...], now_ms: int) -> Decisions:
    yield SetDependencies(kept)
    if job.eligible_ms >= INF and (job.waits is None or job.waits.open == 0):
        yield MakeEligible(max(job.spec.begin_at_ms, now_ms))


# ── in words ──────────────────────────────────────────────────────────────────────────────────────────────────────


def entry_standing(waits: Waits, entry: Dependency, phase: Callable[[int], Phase]) -> Standing:
    """How one entry of a job's dependencies stands, which must not go by task.

    Args:
        phase: the phase of the job of an id.
    """
    alone = Standing.MET if waits.alone else Standing.WAITING
    return any_of(
        alone if one.kind is DependencyKind.SINGLETON else standing(one.kind, phase(int(one.job)))
        for one in entry.alternatives
    )


def never_text(job: LiveJob, waits: Waits, others: Others) -> str:
    """Which of its dependencies can never be met, and why."""
    for index, entry in enumerate(job.spec.dependencies):
        if index in waits.by_task or entry_standing(waits, entry, others.phase) is not Standing.NEVER:
            continue
        if not entry.any_of:
            return f"{BY_DEPENDENCY}: it waits for {entry.kind} of {_ended_text(others, int(entry.job))}"
        shown = "; ".join(f"{one.kind} of {_ended_text(others, int(one.job))}" for one in entry.any_of[:MAX_NAMED])
        more = f"; and {len(entry.any_of) - MAX_NAMED} more" if len(entry.any_of) > MAX_NAMED else ""
        return f"{BY_DEPENDENCY}: it waits for one of ({shown}{more}), of which none can be met any more"
    return BY_DEPENDENCY


def _ended_text(others: Others, job_id: int) -> str:
    """`job 12 (fit), which failed`"""
    other = others.job_or_ended(job_id)
    title = other.name or other.spec.title if isinstance(other, LiveJob) else other.title
    return f"job {job_id} ({title}), which {_WORDS.get(other.state, f'is {other.state}')}"


_WORDS = {
    TaskState.SUCCEEDED: "succeeded",
    TaskState.FAILED: "failed",
    TaskState.TIMED_OUT: "timed out",
    TaskState.CANCELLED: "was cancelled",
}


def _task_text(job: LiveJob, tasks: TaskRange) -> str:
    assert job.waits is not None
    which = " & ".join(str(job.spec.dependencies[index]) for index in sorted(job.waits.by_task))
    what = f"task {tasks.first} waits" if tasks.count == 1 else f"tasks {tasks.first}-{tasks.end - 1} wait"
    return f"{BY_DEPENDENCY}: {what} for {which}, which cannot be met any more"
