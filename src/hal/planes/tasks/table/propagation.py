"""What follows from a change of a job: its own state, its end, and the jobs that wait for it, one after the other.

Pure. Decisions about jobs that wait come as values (`dependencies.decisions`) and are applied here. What follows is
kept in the worklist of the table: a slice of it is applied at once, the rest by `settling`. O(1) for each job that is
reached, O(log jobs of that name) where a singleton is.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from hal.core.lifecycle import TaskEvent
from hal.core.model import EventKind, TaskState
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
from hal.planes.tasks.dependencies.decisions import (
    BY_DEPENDENCY,
    Decisions,
    changed_standings,
    decide_job,
    decide_tasks,
    is_decided,
)
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.standings import SINGLETON, Phase, Waits
from hal.planes.tasks.live.task_sets import merged
from hal.planes.tasks.slices import Pace, Work, finished
from hal.planes.tasks.table.extensions import follow_base
from hal.planes.tasks.table.table import JobTable
from hal.planes.tasks.table.worklist import Consequence, JobChanged, PhaseChanged, TasksChanged

NO_WORK_LEFT: Final = "another worker found no work left"
"""Reason of workers that were cancelled for that."""
STEPS_A_SLICE: Final = 64
"""Jobs and ranges of tasks that are decided again in one slice: 50 to 130 µs each."""


def settle(table: JobTable, job: LiveJob, now_ms: int, cause: str) -> None:
    """Call after every change of a job: its state follows from its tasks, and more from that.

    If that is much, the rest is left to `settling`, which must be done before anything else is staged.
    """
    table.now_ms = now_ms
    table.worklist.add(JobChanged(job.id, now_ms, cause))
    _apply_some(table)


def record_start(table: JobTable, job: LiveJob, at_ms: int, now_ms: int) -> None:
    """Record that its first process runs, if none ran before: jobs that wait for its start are decided again."""
    if job.start_ms is None:
        job.start_ms = at_ms
        if job.id in table.dependants:
            table.worklist.add(PhaseChanged(job.id, Phase.WAITS, Phase.STARTED, now_ms))
            _apply_some(table)


def settling(table: JobTable) -> Work[None]:
    """What is left in the worklist, in slices."""
    while table.worklist:
        _apply_some(table)
        yield


def _apply_some(table: JobTable) -> None:
    table.worklist.apply_some(partial(_apply_consequence, table), STEPS_A_SLICE)


def _apply_consequence(table: JobTable, consequence: Consequence) -> Work[None]:
    if isinstance(consequence, JobChanged):
        return _apply_job_change(table, consequence)
    if isinstance(consequence, PhaseChanged):
        return _apply_phase_change(table, consequence)
    return _apply_task_changes(table, consequence)


# ── one consequence ───────────────────────────────────────────────────────────────────────────────────────────────


def _apply_job_change(table: JobTable, changed: JobChanged) -> Work[None]:
    job = table.jobs.get(changed.job)
    if job is None:
        return  # it has ended
    if changed.job in table.draft.reclassed:
        table.draft.reclassed.discard(changed.job)
        yield from _enter_again(table, job)
    if job.spec.has_base:
        follow_base(table, job, changed.now_ms)
    elif job.spec.workers and job.succeeded and (job.counts.pending or job.counts.held):
        yield from table.applying_event(job, 0, job.spec.tasks, TaskEvent.CANCEL, NO_WORK_LEFT)
    job.state = job.state_by_tasks()
    if job.active:
        table.busy.add(job.id)
    else:
        table.busy.discard(job.id)
    if job.window:
        table.draft.refills.add(job.id)
    if job.waits is not None and is_decided(job):
        table.stop_waiting(job)
    if job.state.ended:
        yield from _end_job(table, job, changed.now_ms, changed.cause)
    elif job.id in table.ended:
        before = table.ended[job.id].phase
        table.remember(job.id, None)
        yield from _apply_phase_change(table, PhaseChanged(job.id, before, job.phase, changed.now_ms))
    if job.id in table.draft.ends:
        tasks = merged(table.draft.ends.pop(job.id))
        yield from _apply_task_changes(table, TasksChanged(job.id, tasks, changed.now_ms))


def _enter_again(table: JobTable, job: LiveJob) -> Work[None]:
    """What waits of the job asks for what its spec says now."""
    pace = Pace()
    waiting = job.ranges
    for task_range in waiting:
        table.leave(job, task_range)
        if pace.over():
            yield
    job.request = table.class_of(job.spec, job.queue)
    for task_range in waiting:
        table.enter(job, task_range)
        if pace.over():
            yield


def _end_job(table: JobTable, job: LiveJob, now_ms: int, cause: str) -> Work[None]:
    before = Phase.WAITS if job.start_ms is None else Phase.STARTED
    job.end_ms = now_ms
    table.take_out(job)
    table.draft.note(EventKind.JOBS_ENDED, cause, job.trace_id, job.id, [job.id, job.state.value, job.exit_code])
    if job.waits is not None:
        table.stop_waiting(job)
    _drop_name(table, job, now_ms)
    if job.id in table.dependants:
        table.remember(job.id, job.past())
        yield from _apply_phase_change(table, PhaseChanged(job.id, before, job.phase, now_ms))


def _apply_phase_change(table: JobTable, changed: PhaseChanged) -> Work[None]:
    for job_id in sorted(table.dependants.get(changed.job, ())):
        job = table.jobs.get(job_id)
        if job is None or job.waits is None or changed.job not in job.waits.mentions:
            continue
        standings = changed_standings(job, changed.job, changed.before, changed.after)
        if standings is not None:
            yield from _decide_again(table, job, standings, changed.now_ms)
            table.worklist.add(JobChanged(job_id, changed.now_ms, BY_DEPENDENCY))
        yield


def _decide_again(table: JobTable, job: LiveJob, standings: Waits, now_ms: int) -> Work[None]:
    """Its dependencies stand otherwise now: it must be settled afterwards."""
    table.touch(job.id)
    job.waits = standings
    yield from apply_decisions(table, job, decide_job(job, table, now_ms))


def _apply_task_changes(table: JobTable, changed: TasksChanged) -> Work[None]:
    for job_id in sorted(table.followers.get(changed.job, ())):
        if job_id not in table.jobs:
            continue
        job = table.touch(job_id)
        for first, end in changed.tasks:
            yield from apply_decisions(table, job, decide_tasks(job, table, first, end - first))
            yield
        table.worklist.add(JobChanged(job_id, changed.now_ms, BY_DEPENDENCY))


# ── decisions about jobs that wait ────────────────────────────────────────────────────────────────────────────────


def apply_decisions(table: JobTable, job: LiveJob, decisions: Decisions) -> Work[int]:
    """Apply each change while they are read, in slices; `settle` must follow.

    Returns: of how many tasks the range was replaced.
    """
    replaced = 0
    for change in decisions:
        if change is None:
            yield
        elif isinstance(change, ReplaceRange):
            table.replace_range(job, change.before, change.after)
            replaced += change.after.count
        else:
            yield from _apply_change(table, job, change)
    return replaced


def _apply_change(table: JobTable, job: LiveJob, change: Change) -> Work[None]:
    match change:
        case SetReason(reason):
            job.reason = reason
        case ApplyEvent(event, reason):
            yield from table.applying_event(job, 0, job.spec.tasks, event, reason)
        case ReleaseHeld():
            yield from _release_held(table, job)
        case MakeEligible(eligible_ms):
            job.eligible_ms = eligible_ms
            if job.waits is not None:
                job.waits = job.waits.settled()
            yield from table.entering(job, job.ranges)
        case SetDependencies(dependencies):
            table.set_dependencies(job, dependencies)
        case StopWaiting():
            table.stop_waiting(job)


def _release_held(table: JobTable, job: LiveJob) -> Work[None]:
    if job.hold:
        return
    pace = Pace()
    for tasks in job.ranges:
        if tasks.state is TaskState.HELD and tasks.reason == BY_DEPENDENCY:
            table.apply_event(job, tasks.first, tasks.count, TaskEvent.RELEASE)
        if pace.over():
            yield


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def rename(table: JobTable, job: LiveJob, name: str, now_ms: int) -> None:
    """Give it another name; singletons of both names are decided again."""
    if name == job.name:
        return
    waits = job.waits is not None and SINGLETON in job.waits.mentions
    if waits:
        table.singletons.leave(job.key, job.id)
    _drop_name(table, job, now_ms)
    job.name = name
    add_name(table, job, now_ms)
    if waits:
        table.singletons.wait(job.key, job.id)
        _decide_singleton(table, job, alone=table.is_first(job.key, job.id), now_ms=now_ms)


def add_name(table: JobTable, job: LiveJob, now_ms: int) -> None:
    """It has its name from now on: a later singleton of this name has to wait."""
    if job.name:
        before = table.singletons.first(job.key)
        table.singletons.add(job.key, job.id)
        _decide_first(table, job.key, before, now_ms)


def _drop_name(table: JobTable, job: LiveJob, now_ms: int) -> None:
    if job.name:
        before = table.singletons.first(job.key)
        table.singletons.remove(job.key, job.id)
        _decide_first(table, job.key, before, now_ms)


def _decide_first(table: JobTable, key: tuple[str, str], before: int | None, now_ms: int) -> None:
    after = table.singletons.first(key)
    if before != after:
        for job_id in (before, after):
            if job_id is not None and job_id in table.jobs and table.singletons.waits(key, job_id):
                _decide_singleton(table, table.jobs[job_id], alone=job_id == after, now_ms=now_ms)


def _decide_singleton(table: JobTable, job: LiveJob, *, alone: bool, now_ms: int) -> None:
    """A singleton is now, or is no longer, the first of its name."""
    if job.waits is None or job.waits.alone == alone:
        return
    before, after = (Phase.WAITS, Phase.SUCCEEDED) if alone else (Phase.SUCCEEDED, Phase.WAITS)
    standings = changed_standings(job, SINGLETON, before, after, alone=alone)
    if standings is not None:
        finished(_decide_again(table, job, standings, now_ms))
        settle(table, job, now_ms, BY_DEPENDENCY)
