"""Which ended jobs are the oldest, what nodes must delete of them, and the deletion of their rows.

Removing a job has two parts. A group of the controller marks it (`MarkRemoved`) together with what its nodes must
delete (`PutForgets`); from then on nobody sees it. `sweep` deletes the rows of marked jobs between groups, a bounded
number at a time. Inside the caller's transaction.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    select,
    tuple_,
    update,
)

from hal.store import schema
from hal.store.bulk import try_rows
from hal.store.operations import EACH_NODE, ForgetRow, Removed
from hal.store.readers import reader_floor
from hal.store.views import OldAttempt, OldJob, Removal, Retention, Swept

SWEPT_JOBS: Final = 100
"""Jobs that one call of `sweep` looks at."""
SWEPT_AT_ONCE: Final = 500
"""Attempts, task ranges, and nodes of gangs that it deletes; so commits wait a few milliseconds for it."""
TASKS_AT_ONCE: Final = 100
"""Tasks with many attempts that are looked at at a time."""
LEAST_ATTEMPTS: Final = 10
"""Kept of each task at least; the index `attempts_many` begins behind them."""
NEVER: Final = 1 << 62
MAX_FORGETS_A_JOB: Final = 1_000
"""Pieces in which the outputs of one job are named to its nodes."""
OLD_NODES_AT_ONCE: Final = 10_000
"""Nodes of old attempts that are read at a time, or those of one attempt."""

_J: Final = schema.jobs.c
_A: Final = schema.attempts.c
_G: Final = schema.gang_nodes.c
_NAMES: Final = msgspec.json.Decoder(tuple[str, ...])
_LEVELS: Final = tuple(Removed)


def _ended(removed: Removed) -> ColumnElement[bool]:
    """A literal, so that the planner sees that the index `jobs_ended` serves it."""
    return and_(_J.removed == literal_column(str(int(removed))), _J.end_ms.is_not(None))


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────────


def read_queues(connection: Connection) -> list[str]:
    """List the queues of which ended jobs are kept."""
    return sorted({queue for removed in _LEVELS[: Removed.JOB] for queue in _queues(connection, removed)})


def _queues(connection: Connection, removed: Removed) -> Iterator[str]:
    """Queues with ended jobs of which that much is removed: one step in the index for each."""
    last = ""
    while True:
        query = select(func.min(_J.queue)).where(_ended(removed), _J.queue > last)
        last = connection.execute(query).scalar() or ""
        if not last:
            return
        yield last


def weigh(connection: Connection, queue: str, below: Removed) -> tuple[int, int]:
    """Count ended jobs and their tasks; reads only the index."""
    jobs, tasks = 0, 0
    for removed in _LEVELS[:below]:
        query = select(func.count(), func.coalesce(func.sum(_J.tasks), 0)).where(_ended(removed), _J.queue == queue)
        row = connection.execute(query).one()
        jobs, tasks = jobs + int(row[0]), tasks + int(row[1])
    return jobs, tasks


def read_oldest(connection: Connection, queue: str, below: Removed, after: tuple[int, int], limit: int) -> list[OldJob]:
    """Read those that ended first, in order; each level is in order already."""
    levels = []
    for removed in _LEVELS[:below]:
        query = select(_J.end_ms, _J.id, _J.tasks).where(_ended(removed), _J.queue == queue)
        query = query.where(tuple_(_J.end_ms, _J.id) > tuple_(*after))
        levels.append(connection.execute(query.order_by(_J.end_ms, _J.id).limit(limit)).all())
    return [OldJob(row[1], row[0], row[2]) for row in heapq.merge(*levels)][:limit]


def read_old_attempts(
    connection: Connection, now_ms: int, retention: Retention, after: tuple[int, int], limit: int
) -> tuple[list[OldAttempt], tuple[int, int] | None]:
    """Read ended attempts beyond the newest that are kept of each task, and that no registered reader needs.

    Args:
        after: job and task at which to continue.
    Returns: those found, and where to continue when they are deleted; None: there are no more.
    """
    keep, floor = retention.attempts_per_task, reader_floor(connection, now_ms, retention.readers).attempts
    newest, nodes = func.max(_A.attempt), 0
    tasks = select(_A.job_id, _A.task, newest).where(_A.attempt > literal_column(str(LEAST_ATTEMPTS)))
    tasks = tasks.where(tuple_(_A.job_id, _A.task) >= tuple_(*after)).group_by(_A.job_id, _A.task)
    tasks = tasks.having(newest > keep).order_by(_A.job_id, _A.task).limit(TASKS_AT_ONCE)
    found: list[OldAttempt] = []
    job, task = after
    rows = connection.execute(tasks).all()
    for job, task, last in rows:
        query = select(_A.attempt, _A.nodes).where(_A.job_id == job, _A.task == task, _A.attempt <= last - keep)
        query = query.where(_A.ended_seq <= floor).order_by(_A.attempt).limit(limit - len(found))
        for number, names in connection.execute(query):
            found.append(OldAttempt(job, task, number, _NAMES.decode(names)))
            nodes += len(found[-1].nodes)
            if len(found) >= limit or nodes >= OLD_NODES_AT_ONCE:
                return found, (job, task)
    return found, (job, task + 1) if len(rows) == TASKS_AT_ONCE else None


def delete_attempts(connection: Connection, attempts: Sequence[OldAttempt]) -> bool:
    """Delete these rows, as far as they are there: the nodes of gangs first, at most `SWEPT_AT_ONCE` of them.

    Returns: whether there is more to delete.
    """
    gangs = [(one.job, one.task, one.attempt) for one in attempts if len(one.nodes) > 1]
    if gangs and _delete_first(connection, schema.gang_nodes, tuple_(_G.job_id, _G.task, _G.attempt).in_(gangs))[1]:
        return True
    rows = [{"the_job_id": one.job, "the_task": one.task, "the_attempt": one.attempt} for one in attempts]
    try_rows(connection, _DELETE[schema.attempts.name], rows)
    return False


def read_removal(connection: Connection, job: int) -> Removal | None:
    """Read when attempts or outputs of a job were removed last."""
    r = schema.removals.c
    row = connection.execute(select(r.at_ms, r.rule).where(r.job_id == job)).first()
    return None if row is None else Removal(row[0], row[1])


def read_forgets(connection: Connection, jobs: Sequence[int], whole: bool, most: int | None) -> list[ForgetRow]:
    """Compute what nodes must delete of these jobs.

    Args:
        most: with `whole`, of one job; None: no matter how much.
    """
    used = select(_A.job_id, _A.nodes).where(_A.job_id.in_(jobs)).distinct().order_by(_A.job_id)
    nodes: dict[int, list[str]] = defaultdict(list)
    for job, rows in groupby(connection.execute(used), key=lambda row: int(row[0])):
        nodes[job] = sorted({name for row in rows for name in _NAMES.decode(row[1])})[: most if whole else None]
    if whole:
        return [ForgetRow(node, job) for job in jobs for node in nodes[job]]
    pieces: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for row in connection.execute(_pieces(jobs)):
        pieces[row[0]].append((row[1], row[2], row[3]))
    # Attempts that ran on other nodes are named too: there is nothing of them, and there are far fewer pieces.
    return [
        ForgetRow(node, job, *piece)
        for job in jobs
        if len(pieces[job]) * len(nodes[job]) <= MAX_FORGETS_A_JOB
        for node in nodes[job]
        for piece in pieces[job]
    ]


def _pieces(jobs: Sequence[int]) -> Any:
    """Attempts as (job, attempt number, first task, count)."""
    order = func.row_number().over(partition_by=(_A.job_id, _A.attempt), order_by=_A.task)
    inner = select(_A.job_id, _A.attempt, _A.task, (_A.task - order).label("run")).where(_A.job_id.in_(jobs)).subquery()
    i = inner.c
    return select(i.job_id, i.attempt, func.min(i.task), func.count()).group_by(i.job_id, i.attempt, i.run)


def read_node_forgets(connection: Connection, node: str, limit: int) -> list[ForgetRow]:
    """Read what that node must still delete."""
    f = schema.forgets.c
    query = select(f.node, f.job_id, f.attempt, f.first, f.count).where(f.node == node)
    return [ForgetRow(*row) for row in connection.execute(query.order_by(f.job_id, f.attempt, f.first).limit(limit))]


def read_forgets_left(connection: Connection) -> list[int]:
    """Read the removed jobs of which nodes are still to be named."""
    f = schema.forgets.c
    return list(connection.execute(select(f.job_id).where(f.node == EACH_NODE).order_by(f.job_id)).scalars())


def count_forgets(connection: Connection) -> dict[str, int]:
    """Count what nodes must still delete."""
    node = schema.forgets.c.node
    query = select(node, func.count()).where(node != EACH_NODE).group_by(node)
    return {row[0]: row[1] for row in connection.execute(query)}


# ── deleting ──────────────────────────────────────────────────────────────────────────────────────────────────────


def needed_since(connection: Connection, now_ms: int, retention: Retention) -> int:
    """Compute the instant from which on registered readers have not read all ended attempts: the rows of jobs that
    ended then or later must stay. `NEVER` without such a reader."""
    floor = reader_floor(connection, now_ms, retention.readers)
    unread = select(_A.recorded_ms).where(_A.ended_seq > floor.attempts).order_by(_A.ended_seq).limit(1)
    found: int | None = connection.execute(unread).scalar()
    return NEVER if found is None else found


def sweep(connection: Connection, now_ms: int, retention: Retention) -> Swept:
    """Delete rows of removed jobs: attempts and task ranges first, a job with the last of them.

    The newest job's own row stays until there is a newer one: job ids continue from it. Those of which nodes are still
    to be named stay whole.
    """
    needed_ms = needed_since(connection, now_ms, retention)
    newest: int = connection.execute(select(func.coalesce(func.max(_J.id), 0))).scalar_one()
    unnamed = read_forgets_left(connection)
    whole = _marked(connection, Removed.JOB, needed_ms, newest, unnamed)
    of_attempts = []
    if len(whole) < SWEPT_JOBS:
        of_attempts = _marked(connection, Removed.ATTEMPTS_GOING, needed_ms, unnamed=unnamed)
    jobs = [*whole, *of_attempts]
    if not jobs:
        return Swept(0, 0, more=False)
    # Nodes of gangs would go with their attempts, any number of them.
    _, left = _delete_some(connection, schema.gang_nodes, jobs)
    attempts, also_left = _delete_some(connection, schema.attempts, [job for job in jobs if job not in left])
    left |= also_left
    _, ranges_left = _delete_some(connection, schema.task_ranges, whole)
    ranges_left |= _delete_some(connection, schema.removed_tasks, whole)[1]
    emptied = [job for job in of_attempts if job not in left]
    try_rows(connection, _ATTEMPTS_GONE, [{"the_id": job} for job in emptied])
    gone = [job for job in whole if job not in left and job not in ranges_left]
    if gone:
        specs = list(connection.execute(select(_J.spec_id).where(_J.id.in_(gone)).distinct()).scalars())
        for statement in (_DELETE_LABELS, _DELETE_REMOVAL):
            try_rows(connection, statement, [{"the_job_id": job} for job in gone])
        try_rows(connection, _DELETE_JOB, [{"the_id": job} for job in gone])
        try_rows(connection, _DELETE_SPEC, [{"the_id": spec} for spec in specs])
    return Swept(len(gone), attempts, more=bool(left or ranges_left) or len(jobs) >= SWEPT_JOBS)


def _marked(
    connection: Connection,
    removed: Removed,
    before_ms: int,
    newest: int | None = None,
    unnamed: Sequence[int] = (),
) -> list[int]:
    """Jobs of which that much is to be removed, queue by queue: those that a reader still needs are not looked at."""
    found: list[int] = []
    for queue in _queues(connection, removed):
        query = select(_J.id).where(_ended(removed), _J.queue == queue, _J.end_ms < before_ms)
        if newest is not None:
            query = query.where(_J.id < newest)
        if unnamed:
            query = query.where(_J.id.not_in(unnamed))
        found += connection.execute(query.limit(SWEPT_JOBS - len(found))).scalars()
        if len(found) >= SWEPT_JOBS:
            break
    return found


def _delete_some(connection: Connection, table: Table, jobs: Sequence[int]) -> tuple[int, frozenset[int]]:
    """Delete at most `SWEPT_AT_ONCE` rows of these jobs; returns how many, and jobs that may have more."""
    if not jobs:
        return 0, frozenset()
    deleted, last = _delete_first(connection, table, table.c.job_id.in_(jobs))
    return deleted, frozenset(job for job in jobs if last is not None and job >= last[0])


def _delete_first(
    connection: Connection, table: Table, wanted: ColumnElement[bool]
) -> tuple[int, Sequence[Any] | None]:
    """Delete the first `SWEPT_AT_ONCE` of these rows; returns how many, and the last one's key if there may be more."""
    key = list(table.primary_key)
    rows = connection.execute(select(*key).where(wanted).order_by(*key).limit(SWEPT_AT_ONCE)).all()
    params = [{f"the_{c.name}": v for c, v in zip(key, row, strict=True)} for row in rows]
    try_rows(connection, _DELETE[table.name], params)
    return len(rows), rows[-1] if len(rows) == SWEPT_AT_ONCE else None


def _by_primary_key(table: Table) -> Delete:
    return delete(table).where(*(column == bindparam(f"the_{column.name}") for column in table.primary_key))


_DELETE: Final = {
    table.name: _by_primary_key(table)
    for table in (schema.attempts, schema.task_ranges, schema.removed_tasks, schema.gang_nodes)
}
_DELETE_LABELS: Final = delete(schema.job_labels).where(schema.job_labels.c.job_id == bindparam("the_job_id"))
_DELETE_REMOVAL: Final = _by_primary_key(schema.removals)
_DELETE_JOB: Final = _by_primary_key(schema.jobs)
_DELETE_SPEC: Final = delete(schema.specs).where(
    schema.specs.c.id == bindparam("the_id"), ~exists().where(_J.spec_id == schema.specs.c.id)
)
_ATTEMPTS_GONE: Final = (
    update(schema.jobs)
    .where(_J.id == bindparam("the_id"))
    .values(removed=literal_column(str(int(Removed.ATTEMPTS))), version=_J.version + literal_column("1"))
)
