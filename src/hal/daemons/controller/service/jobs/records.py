"""What commands need to know of jobs that are not live: read from the store, a bounded number at a time.

All functions but `batched` block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from hal.core.model import SpecError, TaskState
from hal.planes.tasks import EndedJob, EndedTask, EndedTasks
from hal.store import MAX_PAGE, JobFilter, JobRow, Removed, Store, TaskRangeRow, TaskRow

MAX_IDS = 10_000
"""Jobs or tasks named in one request."""
PART_COST = 4
"""What a range of tasks in an id costs to read, in ids without one."""
ROWS_AT_ONCE = 200
"""Jobs that one call reads from the store."""
MAX_REQUEUED_TASKS = 100_000
"""Ended tasks of one job that one request may run again."""
_ENDS = tuple(state for state in TaskState if state.ended)


class History(Struct, frozen=True):
    """What rows say of a job that is to be run again."""

    row: JobRow
    ranges: list[TaskRangeRow]
    ended: EndedTasks
    succeeded: tuple[tuple[int, int], ...]
    """Runs of tasks."""


def batched(jobs: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield them in batches, one for each call to the store: others have their turn in between."""
    return (jobs[at : at + ROWS_AT_ONCE] for at in range(0, len(jobs), ROWS_AT_ONCE))


def rows_of(store: Store, jobs: Sequence[int]) -> list[JobRow | None]:
    """The row of each."""
    return [store.job(job) for job in jobs]


def ended_jobs(store: Store, ids: Sequence[int], going: Collection[int]) -> dict[int, EndedJob]:
    """What jobs that are to wait for these ask about them.

    Args:
        going: those of them that are being removed.
    Raises:
        SpecError: there is no such job, or not enough is left of it.
    """
    found = {}
    for job in ids:
        row = None if job in going else store.job(job)
        if row is None:
            raise SpecError(f"dependencies: there is no job {job}", hint="`hal jobs --all` lists the jobs there are")
        some = row.succeeded > 0 or row.removed_tasks > 0
        in_part = row.spec.several and row.state is not TaskState.SUCCEEDED and some
        if in_part and (row.removed >= Removed.ATTEMPTS_GOING or row.removed_tasks):
            what = "some were" if row.removed_tasks else "its attempts were"
            raise SpecError(
                f"dependencies: which tasks of job {job} succeeded is no longer known: {what} removed",
                hint="depend on a job that is whole" if row.removed_tasks else "see [retention] in docs/config.md",
            )
        succeeded = store.succeeded(job) if in_part else ()
        found[job] = EndedJob(row.id, row.name or row.spec.title, row.state, row.spec.tasks, succeeded)
    return found


def tasks_within(
    store: Store,
    job: int,
    pieces: Sequence[tuple[int, int]],
    states: tuple[TaskState, ...],
    after: int | None,
    limit: int,
) -> list[TaskRow]:
    """A page of the tasks that are in one of these pieces, [first, end)."""
    found: list[TaskRow] = []
    begin = 0 if after is None else after + 1
    for first, end in pieces:
        first = max(first, begin)
        if first >= end or len(found) >= limit:
            continue
        page = store.tasks(job, states, after=first - 1 if first else None, limit=min(limit - len(found), end - first))
        found.extend(task for task in page if task.task < end)
    return found


def matching_jobs(store: Store, wanted: JobFilter) -> list[int]:
    """The oldest `MAX_IDS` jobs that match."""
    found: list[int] = []
    while len(found) < MAX_IDS:
        rows = store.jobs(wanted, after=found[-1] if found else None, limit=MAX_PAGE, newest_first=False)
        found.extend(row.id for row in rows)
        if len(rows) < MAX_PAGE:
            break
    return found[:MAX_IDS]


def read_histories(store: Store, jobs: Sequence[int], going: Collection[int]) -> dict[int, History]:
    """What rows say of these jobs, but for those that are being removed (`going`)."""
    found = {}
    for job in dict.fromkeys(jobs):
        row = None if job in going else store.job(job)
        if row is None:
            continue
        ended: list[EndedTask] = []
        after: int | None = None
        ranges = store.ranges(job)
        firsts = [one.first for one in ranges]
        while len(ended) <= MAX_REQUEUED_TASKS:
            page = store.tasks(job, _ENDS, after=after, limit=MAX_PAGE)
            ended.extend(
                EndedTask(t.task, t.attempt, t.state, t.exit_code) for t in page if not _within(ranges, firsts, t.task)
            )
            if len(page) < MAX_PAGE:
                break
            after = page[-1].task
        succeeded = store.succeeded(job) if row.spec.several else ()
        found[job] = History(row, ranges, EndedTasks(ended), succeeded)
    return found


def _within(ranges: list[TaskRangeRow], firsts: list[int], task: int) -> bool:
    at = bisect_right(firsts, task) - 1
    return at >= 0 and task < ranges[at].first + ranges[at].count
