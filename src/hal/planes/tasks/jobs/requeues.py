"""Running jobs and tasks again, as people ask for it.

Pure. In slices: an array may be in very many ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.lifecycle import TASK, TaskEvent, transition
from hal.core.model import (
    AttemptState,
    ConflictError,
    EventKind,
    TaskState,
)
from hal.planes.tasks.attempts.stops import stop_attempt
from hal.planes.tasks.dependencies.decisions import (
    is_decided,
    wait_again,
    waiting_parts,
)
from hal.planes.tasks.jobs.selection import active_attempts, state_now, task_numbers
from hal.planes.tasks.live.attempt import REQUEUED
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.task_ranges import TaskRange, parts_within, put, slices, summed, take
from hal.planes.tasks.live.task_sets import removed
from hal.planes.tasks.slices import A_SLICE, Pace, Work
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.pending_limits import Ask, owner_of_live
from hal.planes.tasks.table.propagation import apply_decisions, settle, settling
from hal.planes.tasks.table.table import JobTable


class EndedTask(Struct, frozen=True):
    """A task that ended through an attempt, as its rows say."""

    task: int
    attempt: int
    state: TaskState
    exit_code: int | None = None


class EndedTasks:
    """Tasks of one job that ended through an attempt; one of them is found in O(1)."""

    def __init__(self, tasks: Iterable[EndedTask] = ()) -> None:
        self._by_task = {one.task: one for one in tasks}

    def __len__(self) -> int:
        return len(self._by_task)

    def __iter__(self) -> Iterator[EndedTask]:
        return iter(self._by_task.values())

    def of(self, task: int) -> tuple[EndedTask, ...]:
        """That task, if it is one of them."""
        found = self._by_task.get(task)
        return () if found is None else (found,)


def requeue(
    table: JobTable, job_id: int, task: int | None, ended: EndedTasks, by: Submitter, now_ms: int
) -> Work[TaskState]:
    """Run a job or task again: what runs is stopped and waits again, what ended waits again, a back-off is cut short.

    A whole job: all its tasks that did not succeed; all tasks when every one did. Retries are counted from 0 again.

    Args:
        ended: of the tasks named, those that ended through an attempt.
    Raises:
        NotFoundError: no live job of this id (see `revive`), or no such task.
    """
    job = table.touch(job_id)
    first, count = task_numbers(job, task)
    reason = f"requeued by {by.user}"
    inside = ended if task is None else ended.of(task)
    again = [e for e in inside if job.task_state(e.task) is None]
    everything = task is not None or job.counts.succeeded == job.spec.tasks
    again = [e for e in again if everything or e.state is not TaskState.SUCCEEDED]
    _check_waiting(table, job, len(again), task)
    yield from apply_decisions(table, job, wait_again(job, table, now_ms))
    done = yield from _restart_ended(table, job, again, reason)
    for low, tasks in slices(job.ranges, first, count, A_SLICE):
        done += _restart_waiting(table, job, parts_within(job.ranges, low, tasks), now_ms, reason)
        yield
    for attempt in active_attempts(job, task):
        if not attempt.stopping:
            stop_attempt(table, job, attempt, REQUEUED)
            done += 1
    if task is None:
        left = [e.exit_code for e in ended if job.task_state(e.task) is None and e.exit_code is not None]
        job.exit_code = max(left, default=None)
        job.reason = ""
    if job.waits is not None and is_decided(job):
        table.stop_waiting(job)
    table.draft.note(EventKind.JOBS_REQUEUED, by.cause, by.trace_id, job.id, tasks=done, reason=reason)
    settle(table, job, now_ms, by.cause)
    yield from settling(table)
    return state_now(job, task)


def _check_waiting(table: JobTable, job: LiveJob, ended: int, task: int | None) -> None:
    """Refuse what would wait again beyond a limit: what has ended, and what runs now."""
    ranges = summed(job.ranges if task is None else tuple(parts_within(job.ranges, task, 1))).ended
    running = sum(not a.stopping and a.state is not AttemptState.ALLOCATED for a in active_attempts(job, task))
    try:
        table.pending_limits.refuse([Ask(owner_of_live(job), ended + ranges + running)], table.jobs.get)
    except ConflictError:
        if job.state.ended:
            table.drop_revived(job.id)
        raise


def _restart_ended(table: JobTable, job: LiveJob, again: Sequence[EndedTask], reason: str) -> Work[int]:
    ranges, pace = [], Pace()
    for one in again:
        after = _waiting_again(one.state, job)
        job.counts.move(one.state, after)
        job.succeeded = removed(job.succeeded, one.task, one.task + 1)
        table.note_tasks(job, one.task, 1, one.state, after)
        ranges.append(TaskRange(one.task, 1, after, one.attempt + 1, reason=reason))
        if pace.over():
            yield
    job.ranges = put(job.ranges, sorted(ranges, key=_first_task))
    job.restarts += len(ranges)
    for task_range in ranges:
        table.enter(job, task_range)
        if pace.over():
            yield
    return len(ranges)


def _restart_waiting(table: JobTable, job: LiveJob, those: Sequence[TaskRange], now_ms: int, reason: str) -> int:
    done = 0
    for task_range in those:
        backing_off = now_ms < task_range.eligible_ms < INF
        if task_range.state is TaskState.HELD or (task_range.state is TaskState.PENDING and not backing_off):
            continue
        table.leave(job, task_range)
        after = task_range.state if task_range.state is TaskState.PENDING else _waiting_again(task_range.state, job)
        job.counts.move(task_range.state, after, task_range.count)
        table.note_tasks(job, task_range.first, task_range.count, task_range.state, after)
        moved = [replace(part, state=after, retries=0, reason=reason) for part in waiting_parts(job, table, task_range)]
        job.ranges = put(take(job.ranges, task_range.first, task_range.count), moved)
        for part in moved:
            table.enter(job, part)
        done += task_range.count
    return done


def _waiting_again(state: TaskState, job: LiveJob) -> TaskState:
    after = transition(TASK, state, TaskEvent.REQUEUE)
    return transition(TASK, after, TaskEvent.HOLD) if job.hold else after


def _first_task(task_range: TaskRange) -> int:
    return task_range.first
