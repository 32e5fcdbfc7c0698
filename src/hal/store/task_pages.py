"""The tasks of a job, computed page by page from its ranges and attempts; a million tasks are never expanded.

Ranges and the latest attempts are both sorted by task, and are merged as they are read. A range hides earlier attempts
of its tasks: a task in a range is pending, or has ended without another attempt. Tasks that were removed are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from sqlalchemy import Connection, exists, select

from hal.core.lifecycle import TASK_STATE_OF
from hal.core.model import TaskState
from hal.core.model.units import MAX_AMOUNT
from hal.store import schema
from hal.store.operations import AttemptRow, TaskRangeRow
from hal.store.queries import attempt_columns, page_length, parse_attempt, read_ranges, without
from hal.store.removed_tasks import read_removed
from hal.store.views import TaskRow

ATTEMPTS_AT_ONCE: Final = 500
"""Rows of one query for latest attempts, at most."""
RANGES_AT_ONCE: Final = 500
"""Rows of one query for ranges."""
TaskSet = Sequence[tuple[int, int]]
"""Ranges [first, end), disjoint and ascending."""
Run = tuple[TaskState | None, int]
"""A state, and how many tasks in a row are in it; None: they were removed."""
_STATES: Final[tuple[TaskState | None, ...]] = (*TaskState, None)
_CODES: Final = {state: code for code, state in enumerate(TaskState)}
_GONE: Final = len(_CODES)
_CODE_OF_ATTEMPT: Final = {attempt.value: _CODES[state] for attempt, state in TASK_STATE_OF.items()}


def tasks(
    connection: Connection, job_id: int, states: tuple[TaskState, ...], after: int | None, limit: int
) -> list[TaskRow]:
    """Compute a page of tasks in ascending order, in one of `states` (empty: any)."""
    limit = page_length(limit)
    start = 0 if after is None else after + 1
    waiting = _ranges(connection, job_id, start)
    latest = _Latest(connection, job_id, states, start, min(limit, ATTEMPTS_AT_ONCE))
    removed = read_removed(connection, job_id)
    found: list[TaskRow] = []
    task_range = next(waiting, None)
    while len(found) < limit:
        attempt = latest.head()
        if task_range is not None and (attempt is None or task_range.first <= attempt.task):
            end = task_range.first + task_range.count
            for low, high in _shown(task_range, start, removed) if not states or task_range.state in states else ():
                stop = min(high, low + limit - len(found))
                found.extend(_waiting(task_range, task) for task in range(low, stop))
            latest.skip_to(end)
            task_range = next(waiting, None)
        elif attempt is not None and (gone := _end_of_removed(removed, attempt.task)):
            latest.skip_to(gone)
        elif attempt is not None:
            found.append(_attempted(attempt))
            latest.skip_to(attempt.task + 1)
        else:
            break
    return found


def state_runs(connection: Connection, job_id: int, start: int, end: int, most_attempts: int) -> tuple[list[Run], int]:
    """In which state the tasks of a job are, from `start` on: runs of equal states without a gap, and the task behind
    them. It is before `end` where more attempts than `most_attempts` would be read.

    Args:
        end: number of the job's tasks.
    """
    a = schema.attempts.c
    query = select(a.task, a.state).where(a.job_id == job_id, a.task >= start).order_by(a.task, a.attempt)
    rows = [(int(task), str(state)) for task, state in connection.execute(query.limit(most_attempts))]
    if len(rows) == most_attempts:
        # Of the last task there may be more; a task alone has not so many.
        end = min(end, max(rows[-1][0], start + 1))
    codes = bytearray([_GONE]) * (end - start)
    for number, state in rows:
        if number < end and (code := _CODE_OF_ATTEMPT.get(state)) is not None:
            codes[number - start] = code
    for task_range in _ranges(connection, job_id, start):
        low, high = max(task_range.first, start), min(task_range.first + task_range.count, end)
        if low >= high:
            break
        codes[low - start : high - start] = bytes([_CODES[task_range.state]]) * (high - low)
    for first, stop in read_removed(connection, job_id):
        low, high = max(first, start), min(stop, end)
        if low < high:
            codes[low - start : high - start] = bytes([_GONE]) * (high - low)
    return [(_STATES[code], len(list(equal))) for code, equal in groupby(codes)], end


def task(connection: Connection, job_id: int, number: int) -> TaskRow | None:
    """Compute one task of a job; None when the job has no such task."""
    rows = tasks(connection, job_id, (), number - 1 if number else None, 1)
    return rows[0] if rows and rows[0].task == number else None


def _shown(task_range: TaskRangeRow, start: int, removed: TaskSet) -> Iterable[tuple[int, int]]:
    """Which tasks of a range are shown, from `start` on."""
    whole = [(max(task_range.first, start), task_range.first + task_range.count)]
    return without(whole, removed) if removed else whole


def _end_of_removed(removed: TaskSet, task: int) -> int:
    """Where the range of removed tasks ends that this one is in; 0: it is in none."""
    at = bisect_right(removed, (task, MAX_AMOUNT)) - 1
    return removed[at][1] if at >= 0 and task < removed[at][1] else 0


def _ranges(connection: Connection, job_id: int, start: int) -> Iterator[TaskRangeRow]:
    """Read the ranges that reach beyond `start` - 1, in pages: an array may have many."""
    while True:
        found = read_ranges(connection, job_id, start, RANGES_AT_ONCE)
        yield from found
        if len(found) < RANGES_AT_ONCE:
            return
        start = found[-1].first + found[-1].count


class _Latest:
    """The latest attempt of each task from a given task on, read in pages."""

    def __init__(
        self, connection: Connection, job_id: int, states: tuple[TaskState, ...], start: int, at_once: int
    ) -> None:
        """
        Args:
            at_once: rows of the first query; no more than are wanted, as each is decoded. Each further query, of
                tasks behind those that are hidden, reads twice as many.
        """
        self._connection = connection
        self._at_once = at_once
        a = schema.attempts.c
        later = schema.attempts.alias("later").c
        superseded = exists().where(later.job_id == a.job_id, later.task == a.task, later.attempt > a.attempt)
        # Refused, lost and preempted attempts do not determine a task's state: a range does.
        names = [attempt.value for attempt, state in TASK_STATE_OF.items() if not states or state in states]
        self._query = (
            select(*attempt_columns()).where(a.job_id == job_id, a.state.in_(names), ~superseded).order_by(a.task)
        )
        self._rows: list[AttemptRow] = []
        self._next = start
        """First task that has not been read yet."""
        self._exhausted = not names

    def head(self) -> AttemptRow | None:
        """The next attempt, without removing it."""
        if not self._rows and not self._exhausted:
            query = self._query.where(schema.attempts.c.task >= self._next).limit(self._at_once)
            rows = [parse_attempt(row) for row in self._connection.execute(query)]
            self._exhausted = len(rows) < self._at_once
            self._at_once = min(2 * self._at_once, ATTEMPTS_AT_ONCE)
            if rows:
                self._next = rows[-1].task + 1
            self._rows = rows[::-1]
        return self._rows[-1] if self._rows else None

    def skip_to(self, task_number: int) -> None:
        """Discard attempts of earlier tasks."""
        while self._rows and self._rows[-1].task < task_number:
            self._rows.pop()
        self._next = max(self._next, task_number)


def _waiting(task_range: TaskRangeRow, number: int) -> TaskRow:
    return TaskRow(
        task_range.job,
        number,
        task_range.state,
        task_range.attempt - 1,
        retries=task_range.retries,
        eligible_ms=task_range.eligible_ms,
        reason=task_range.reason,
    )


def _attempted(row: AttemptRow) -> TaskRow:
    return TaskRow(
        row.job,
        row.task,
        TASK_STATE_OF[row.state],
        row.attempt,
        retries=row.retries,
        nodes=row.nodes,
        allocated_ms=row.allocated_ms,
        start_ms=row.started_ms,
        end_ms=row.ended_ms,
        cause=row.cause,
        exit_code=row.exit_code,
        signal=row.signal,
        usage=row.usage,
        message=row.message,
    )
