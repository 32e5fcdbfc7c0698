"""Tasks that were removed of ended jobs that stay: which they are, and the deletion of their attempts.

A group of the controller records them (`RemoveTasks`); from then on nobody sees them but readers of ended attempts.
Their attempts are deleted afterwards, a bounded number at a time; ranges of tasks stay until their job goes. Inside the
caller's transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from typing import Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    delete,
    exists,
    false,
    func,
    literal_column,
    select,
    true,
    update,
)

from hal.core.lifecycle import TASK_STATE_OF
from hal.core.model import TaskState
from hal.store import schema
from hal.store.bulk import Params, insert_rows, open_cursor, try_rows
from hal.store.operations import RemoveTasks
from hal.store.queries import read_ranges, without
from hal.store.readers import reader_floor
from hal.store.removal import delete_attempts
from hal.store.views import OldAttempt, Retention

MAX_TASK_RUNS: Final = 100_000
"""Runs of neighbouring tasks in the same state that a removal looks at in one job."""
RANGES_AT_ONCE: Final = 100
"""Ranges of removed tasks whose attempts are looked for at a time."""
ATTEMPTS_AT_ONCE: Final = 500
"""Attempts of them that are found at a time."""

_J: Final = schema.jobs.c
_A: Final = schema.attempts.c
_R: Final = schema.removed_tasks.c
_NAMES: Final = msgspec.json.Decoder(tuple[str, ...])
_COUNTS: Final = ("succeeded", "failed", "timed_out", "cancelled")
_SUBTRACT: Final = (
    update(schema.jobs)
    .where(_J.id == bindparam("the_id"), _J.end_ms == bindparam("the_end_ms"))
    .values(
        {name: _J[name] - bindparam(f"less_{name}", type_=_J[name].type) for name in _COUNTS}
        | {"version": _J.version + literal_column("1")}
    )
)
_FORGET: Final = delete(schema.removed_tasks).where(_R.job_id == bindparam("the_job_id"))
_RANGES: Final = select(_R.first, _R.count).where(_R.job_id == bindparam("job")).order_by(_R.first)
_GOING: Final = (
    select(_R.job_id, _R.first, _R.count).where(_R.going == true()).order_by(_R.job_id, _R.first).limit(RANGES_AT_ONCE)
)
_GONE: Final = (
    update(schema.removed_tasks)
    .where(_R.job_id == bindparam("the_job_id"), _R.first == bindparam("the_first"), _R.count == bindparam("the_count"))
    .values(going=false())
)
_ENDS: Final = {attempt.value: state for attempt, state in TASK_STATE_OF.items() if state.ended}


def remove_tasks(connection: Connection, operation: RemoveTasks) -> None:
    """Record these tasks as removed, and count them no longer."""
    less: Params = {f"less_{name}": getattr(operation, name) for name in _COUNTS}
    if not try_rows(connection, _SUBTRACT, [{"the_id": operation.job, "the_end_ms": operation.end_ms, **less}]):
        return
    try_rows(connection, _FORGET, [{"the_job_id": operation.job}])
    rows: list[Params] = [
        {"job_id": operation.job, "first": first, "count": end - first, "going": True}
        for first, end in operation.ranges
    ]
    insert_rows(connection, schema.removed_tasks, rows)


def read_removed(connection: Connection, job_id: int) -> list[tuple[int, int]]:
    """Read the tasks that were removed of a job, as ranges [first, end), ascending."""
    with closing(open_cursor(connection, _RANGES, {"job": job_id})) as rows:
        return [(first, first + count) for first, count in rows.fetchall()]


def read_task_runs(
    connection: Connection, job_id: int, first: int, end: int
) -> dict[TaskState, list[tuple[int, int]]] | None:
    """Read in which state the tasks in [first, end) of an ended job ended, without those that were removed.

    Returns: for each state ranges [first, end), ascending; None: they are in more than `MAX_TASK_RUNS`.
    """
    removed = read_removed(connection, job_id)
    ranges = [one for one in read_ranges(connection, job_id, first, MAX_TASK_RUNS + 1) if one.first < end]
    hidden = [(one.first, one.first + one.count) for one in ranges]
    runs: dict[TaskState, list[tuple[int, int]]] = defaultdict(list)
    later = schema.attempts.alias("later").c
    superseded = exists().where(later.job_id == _A.job_id, later.task == _A.task, later.attempt > _A.attempt)
    run = (_A.task - func.row_number().over(partition_by=_A.state, order_by=_A.task)).label("run")
    inner = select(_A.state, _A.task, run).where(_A.job_id == job_id, _A.task >= first, _A.task < end, ~superseded)
    found = inner.where(_A.state.in_(_ENDS)).subquery().c
    least = func.min(found.task)
    query = select(found.state, least, func.max(found.task)).group_by(found.state, found.run).order_by(least)
    rows = connection.execute(query.limit(MAX_TASK_RUNS + 1)).all()
    if len(rows) > MAX_TASK_RUNS or len(ranges) > MAX_TASK_RUNS:
        return None
    for state, low, high in rows:
        runs[_ENDS[state]].append((low, high + 1))
    runs = {state: list(without(shown, hidden)) for state, shown in runs.items()}
    for one in ranges:
        piece = (max(one.first, first), min(one.first + one.count, end))
        runs.setdefault(one.state, []).append(piece)
    return {state: list(without(sorted(shown), removed)) for state, shown in runs.items()}


def read_going(connection: Connection, now_ms: int, retention: Retention) -> list[OldAttempt] | None:
    """Read attempts of removed tasks that no registered reader needs, at most `ATTEMPTS_AT_ONCE`.

    Returns: None where there is nothing left of any removed task.
    """
    ranges = connection.execute(_GOING).all()
    if not ranges:
        return None
    floor = reader_floor(connection, now_ms, retention.readers).attempts
    found: list[OldAttempt] = []
    for job, first, count in ranges:
        query = select(_A.task, _A.attempt, _A.nodes).where(*_of(job, first, count), _A.ended_seq <= floor)
        query = query.order_by(_A.task, _A.attempt).limit(ATTEMPTS_AT_ONCE - len(found))
        found += (
            OldAttempt(job, task, number, _NAMES.decode(nodes)) for task, number, nodes in connection.execute(query)
        )
        if len(found) >= ATTEMPTS_AT_ONCE:
            break
    return found


def delete_going(connection: Connection, attempts: Sequence[OldAttempt]) -> bool:
    """Delete these attempts of `read_going`, of gangs in several calls, and note which ranges have none left.

    Returns: whether there is more to delete.
    """
    if delete_attempts(connection, attempts):
        return True
    emptied: list[Params] = []
    for job, first, count in connection.execute(_GOING).all():
        if connection.execute(select(_A.task).where(*_of(job, first, count)).limit(1)).first() is None:
            emptied.append({"the_job_id": job, "the_first": first, "the_count": count})
    try_rows(connection, _GONE, emptied)
    return False


def _of(job: int, first: int, count: int) -> tuple[ColumnElement[bool], ...]:
    """The attempts of a range of tasks."""
    return _A.job_id == job, _A.task >= first, _A.task < first + count
