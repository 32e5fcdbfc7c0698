"""Extensions beside a base: they wait and run only as long as their job's base runs, and end with it.

Pure. The base is the job's first task, a gang; each further task is an extension on one more node; extensions of an
array have no base. As long as the base does not run, extensions are held, which costs the engine nothing; held and
waiting ranges and attempts are rows, so a controller that starts again finds them as they were. O(ranges of the job +
its active attempts) for each change of it.
"""

from __future__ import annotations

from typing import Final

from hal.core.lifecycle import TaskEvent
from hal.core.model import AttemptState, StepId, TaskState
from hal.planes.tasks.live.attempt import CANCELLED, REQUEUED
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.task_ranges import TaskRange, parts_within
from hal.planes.tasks.table.orders import NodesNow
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
        if job.spec.on_resize:
            _tell_nodes(table, job)
    else:
        _send_away(table, job, now_ms)


def present_nodes(job: LiveJob) -> tuple[str, ...]:
    """The nodes of its tasks that run and were not told to leave, the base's first; O(its active attempts)."""
    running = [task for task, one in job.active.items() if one.state is AttemptState.RUNNING and not one.stopping]
    return tuple(node for task in sorted(running) for node in job.active[task].nodes)


def order_nodes(table: JobTable, job: LiveJob) -> None:
    """Tell the base of a job that asks for it which nodes the job has. Repeating it is harmless."""
    if not job.spec.on_resize or not base_runs(job):
        return
    base = job.active[BASE]
    told = NodesNow(present_nodes(job), job.spec.ranks_of_node, job.spec.on_resize)
    table.draft.order(base.nodes[0]).resized[StepId(job.id, BASE, base.attempt, 0)] = told


def _tell_nodes(table: JobTable, job: LiveJob) -> None:
    """Tell the base which nodes the job has, if these are not those of the last commit."""
    before, base = table.draft.jobs_before.get(job.id), job.active[BASE]
    if before is None or not base_runs(before):
        return  # the nodes of a base are in its file before it begins
    orders = table.draft.orders.get(base.nodes[0])
    # Several things may have happened to the job since the last commit: what was ordered first may not hold any more.
    if present_nodes(before) != present_nodes(job) or (orders is not None and orders.resized):
        order_nodes(table, job)


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
