"""Rows of what was told to the people whom a job notifies: written inside the caller's transaction, and read.

A row goes with its job.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, delete, select

from hal.store import schema
from hal.store.bulk import execute_rows, insert_rows
from hal.store.operations import NoticeRow, PutNotices

_N: Final = schema.notices.c
_DELETE: Final = delete(schema.notices).where(_N.job_id == bindparam("the_id"))
LISTED_AT_ONCE: Final = 10_000
"""Jobs that one query lists."""


def put_notices(connection: Connection, operation: PutNotices) -> None:
    """Insert or replace; rows of jobs that were removed meanwhile are left out."""
    rows = {row.job: row for row in operation.rows}
    if not operation.new:
        there = set(connection.scalars(select(schema.jobs.c.id).where(schema.jobs.c.id.in_(list(rows)))))
        rows = {job: row for job, row in rows.items() if job in there}
    if not rows:
        return
    if not operation.new:
        execute_rows(connection, _DELETE, [{"the_id": job} for job in rows])
    insert_rows(
        connection,
        schema.notices,
        [
            {
                "job_id": row.job,
                "open": row.open,
                "start_ms": row.start_ms,
                "end_ms": row.end_ms,
                "restarts": row.restarts,
                "ended_seq": row.ended_seq,
            }
            for row in rows.values()
        ],
    )


def read_notice(connection: Connection, job: int) -> NoticeRow | None:
    """Read that of one job; None: it notifies nobody, or was removed."""
    row = connection.execute(select(schema.notices).where(_N.job_id == job)).first()
    if row is None:
        return None
    return NoticeRow(row.job_id, row.open, row.start_ms, row.end_ms, row.restarts, row.ended_seq)


def read_noticed(connection: Connection, after: int, *, only_open: bool) -> list[int]:
    """Read a page of the jobs that notify somebody, ascending; `only_open`: those of which there is more to tell."""
    query = select(_N.job_id).where(_N.job_id > after).order_by(_N.job_id).limit(LISTED_AT_ONCE)
    return list(connection.scalars(query.where(_N.open) if only_open else query))
