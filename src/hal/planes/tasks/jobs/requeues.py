"""Running jobs and tasks again, as people ask for it.

Pure. In slices: an array may be in very many ranges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hal.core.engine.events import INF
from hal.core.lifecycle import TASK, TaskEvent, transition
from hal.core.model import (
    AttemptState,
    ConflictError,
    EventKind,
    HALError,
    TaskState,
    plural,
)
from hal.planes.tasks.dependencies.decisions import (
    is_decided,
    wait_again,
    waiting_parts,
)
from hal.planes.tasks.jobs.selection import (
    Chosen,
    Done,
    Named,
    active_attempts,
    choose,
    done,
    nothing_to_do,
    waiting_pieces,
)
from hal.planes.tasks.live.attempt import REQUEUED, Attempt
from hal.planes.tasks.live.job import LiveJob
from hal.planes.tasks.live.task_ranges import TaskRange, parts_within, put, slices, summed, take
from hal.planes.tasks.live.task_sets import removed
from hal.planes.tasks.slices import A_SLICE, Pace, Work
from hal.planes.tasks.submitter import Submitter
from hal.planes.tasks.table.pending_limits import Ask, owner_of_live
from hal.planes.tasks.table.propagation import apply_decisions, settle, settling
from hal.planes.tasks.table.stops import stop_attempt
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


def requeue(table: JobTable, job_id: int, named: Named, ended: EndedTasks, by: Submitter, now_ms: int) -> Work[Done]:
    """Run a job or tasks again: what runs is stopped and waits again, what ended waits again, a back-off is cut short.

    A whole job: all its tasks that did not succeed; all tasks when every one did. Retries are counted from 0 again.

    Args:
        ended: of the tasks named, those that ended through an attempt.
    Raises:
        NotFoundError: no live job of this id (see `revive`), or no such task.
        ConflictError: of the tasks named none is in the states that were asked for; a limit would be exceeded.
    """
    job = table.touch(job_id)
    try:
        chosen = yield from choose(job, named)
    except HALError:
        _forget_revived(table, job)
        raise
    reason = f"requeued by {by.user}"
    # The base is what a job with extensions is for: it runs again though others were cancelled when it had ended. So do
    # workers of which one has said that no work is left.
    shared = job.spec.has_base or job.spec.workers
    everything = not chosen.whole or shared or job.counts.succeeded == job.spec.tasks
    inside = ended if chosen.single is None else ended.of(chosen.single)
    again = [
        one
        for one in inside
        if job.task_state(one.task) is None
        and (everything or one.state is not TaskState.SUCCEEDED)
        and chosen.takes(one.task, one.state)
    ]
    pieces = yield from waiting_pieces(job, chosen)
    attempts = [attempt for attempt in active_attempts(job, chosen) if not attempt.stopping]
    yield from _check(table, job, chosen, len(again), pieces, attempts, now_ms)
    yield from apply_decisions(table, job, wait_again(job, table, now_ms))
    restarted = Counter(one.state for one in again)
    yield from _restart_ended(table, job, again, reason)
    for first, count in pieces:
        for low, part in slices(job.ranges, first, count, A_SLICE):
            restarted += _restart_waiting(table, job, parts_within(job.ranges, low, part), now_ms, reason)
            yield
    for attempt in attempts:
        stop_attempt(table, job, attempt, REQUEUED, now_ms)
    tasks = restarted.total() + len(attempts)
    left = [e.exit_code for e in ended if job.task_state(e.task) is None and e.exit_code is not None]
    if chosen.single is None:
        job.exit_code = max(left, default=None)
        job.reason = ""
    if job.waits is not None and is_decided(job):
        table.stop_waiting(job)
    table.draft.note(EventKind.JOBS_REQUEUED, by.cause, by.trace_id, job.id, tasks=tasks, reason=reason)
    settle(table, job, now_ms, by.cause)
    yield from settling(table)
    return done(job, chosen, tasks, *_in_words(restarted, len(attempts)))


def _in_words(restarted: Counter[TaskState], stopped: int) -> Iterator[str]:
    """`2 failed tasks run again, 1 running task is stopped first`."""
    for state in (TaskState.FAILED, TaskState.TIMED_OUT, TaskState.CANCELLED, TaskState.SUCCEEDED):
        if count := restarted[state]:
            yield f"{plural(count, f'{state} task')} {'runs' if count == 1 else 'run'} again"
    if count := restarted[TaskState.PENDING]:
        yield f"{plural(count, 'task')} {'waits' if count == 1 else 'wait'} no longer before a retry"
    if stopped:
        yield f"{plural(stopped, 'running task')} {'is' if stopped == 1 else 'are'} stopped, to run again"
    if not restarted.total() and not stopped:
        yield "none of its tasks has ended or runs"


def _check(
    table: JobTable,
    job: LiveJob,
    chosen: Chosen,
    ended: int,
    pieces: Sequence[tuple[int, int]],
    attempts: Sequence[Attempt],
    now_ms: int,
) -> Work[None]:
    """Refuse what would wait again beyond a limit (what has ended, and what runs now), and what changes nothing."""
    delayed = 0
    if chosen.whole:
        ended += summed(job.ranges).ended
    else:
        for first, count in pieces:
            for low, tasks in slices(job.ranges, first, count, A_SLICE):
                parts = parts_within(job.ranges, low, tasks)
                ended += sum(part.count for part in parts if part.state.ended)
                delayed += sum(part.count for part in parts if _backs_off(part, now_ms))
                yield
    running = sum(attempt.state is not AttemptState.ALLOCATED for attempt in attempts)
    try:
        if not (ended or delayed or attempts or chosen.whole or chosen.single is not None):
            raise nothing_to_do(chosen, "run again")
        table.pending_limits.refuse([Ask(owner_of_live(job), ended + running)], table.jobs.get)
    except ConflictError:
        _forget_revived(table, job)
        raise


def _forget_revived(table: JobTable, job: LiveJob) -> None:
    if job.state.ended:
        table.drop_revived(job.id)


def _backs_off(task_range: TaskRange, now_ms: int) -> bool:
    """Whether its tasks wait for their next try only because of the time."""
    return task_range.state is TaskState.PENDING and now_ms < task_range.eligible_ms < INF


def _restart_ended(table: JobTable, job: LiveJob, again: Sequence[EndedTask], reason: str) -> Work[None]:
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


def _restart_waiting(
    table: JobTable, job: LiveJob, those: Sequence[TaskRange], now_ms: int, reason: str
) -> Counter[TaskState]:
    restarted: Counter[TaskState] = Counter()
    for task_range in those:
        if task_range.state is TaskState.HELD or (
            task_range.state is TaskState.PENDING and not _backs_off(task_range, now_ms)
        ):
            continue
        table.leave(job, task_range)
        after = task_range.state if task_range.state is TaskState.PENDING else _waiting_again(task_range.state, job)
        job.counts.move(task_range.state, after, task_range.count)
        table.note_tasks(job, task_range.first, task_range.count, task_range.state, after)
        moved = [replace(part, state=after, retries=0, reason=reason) for part in waiting_parts(job, table, task_range)]
        job.ranges = put(take(job.ranges, task_range.first, task_range.count), moved)
        for part in moved:
            table.enter(job, part)
        restarted[task_range.state] += task_range.count
    return restarted


def _waiting_again(state: TaskState, job: LiveJob) -> TaskState:
    after = transition(TASK, state, TaskEvent.REQUEUE)
    return transition(TASK, after, TaskEvent.HOLD) if job.hold else after


def _first_task(task_range: TaskRange) -> int:
    return task_range.first
