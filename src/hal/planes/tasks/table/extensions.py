"""Extensions beside a base: they wait and run only as long as their job's base runs, and end with it.

Pure. The base is the job's first task, a gang; each further task is an extension on one more node; extensions of an
array have no base. As long as the base does not run, extensions are held, which costs the engine nothing; held and
waiting ranges and attempts are rows, so a controller that starts again finds them as they were. O(ranges of the job +
its active attempts) for each change of it.
"""

from __future__ import annotations

from typing import Final

from hal.core.lifecycle import TaskEvent
from hal.core.model import AttemptState, TaskState
from hal.planes.tasks.live.attempt import CANCELLED, REQUEUED
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.task_ranges import TaskRange, parts_within
from hal.planes.tasks.table.stops import stop_attempt
from hal.planes.tasks.table.table import JobTable

BASE: Final = 0
"""The task that is the base."""
BY_BASE: Final = "until its base runs"
"""Reason of extensions that are held because the base does not run."""
BASE_ENDED: Final = "its base has ended"
"""Reason of extensions that were cancelled for that."""


def base_runs(job: LiveJob) -> bool:
    """Whether the base runs, and is neither suspended nor being ended."""
    base = job.active.get(BASE)
    return base is not None and base.state is AttemptState.RUNNING and not base.stopping


def waits_for_base(job: LiveJob) -> bool:
    """Whether all that is held of it is held because its base does not run."""
    held = [part for part in _waiting(job) if part.state is TaskState.HELD]
    return bool(held) and all(part.reason == BY_BASE for part in held)


def follow_base(table: JobTable, job: LiveJob, now_ms: int) -> None:
    """Let extensions wait, hold them, or end them, as the base is now. To be called whenever the job has changed."""
    base = job.task_state(BASE)
    if base is None or base.ended:
        _end(table, job, now_ms)
    elif base_runs(job):
        _let_wait(table, job)
    else:
        _send_away(table, job, now_ms)


def leave_to_people(table: JobTable, job: LiveJob, first: int, count: int) -> None:
    """Of these tasks no longer hold those that wait for their base: somebody is about to hold them."""
    for part in parts_within(job.ranges, first, count) if job.spec.has_base else ():
        if part.state is TaskState.HELD and part.reason == BY_BASE:
            table.apply_event(job, part.first, part.count, TaskEvent.RELEASE)


def _let_wait(table: JobTable, job: LiveJob) -> None:
    if job.hold:
        return
    for part in _waiting(job):
        if part.state is TaskState.HELD and part.reason == BY_BASE:
            table.apply_event(job, part.first, part.count, TaskEvent.RELEASE)


def _send_away(table: JobTable, job: LiveJob, now_ms: int) -> None:
    for part in _waiting(job):
        table.apply_event(job, part.first, part.count, TaskEvent.HOLD, BY_BASE)
    _stop_all(table, job, REQUEUED, now_ms)


def _end(table: JobTable, job: LiveJob, now_ms: int) -> None:
    for part in _waiting(job):
        table.apply_event(job, part.first, part.count, TaskEvent.CANCEL, BASE_ENDED)
    _stop_all(table, job, CANCELLED, now_ms)


def _waiting(job: LiveJob) -> list[TaskRange]:
    return parts_within(job.ranges, 1, job.spec.extensions)


def _stop_all(table: JobTable, job: LiveJob, why: str, now_ms: int) -> None:
    for attempt in list(job.active.values()):
        if attempt.task != BASE and not attempt.stopping:
            stop_attempt(table, job, attempt, why, now_ms)
