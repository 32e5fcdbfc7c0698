"""Remove what retention does not keep beside jobs: events, commit ids, idempotency keys, versions of the policy.

Inside the caller's transaction; bounded, so that a commit that waits for it does not wait long.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, delete, func, select

from hal.store import schema
from hal.store.readers import ReaderFloor, first_since, reader_floor
from hal.store.views import Retention, Trimmed

TRIMMED_AT_ONCE: Final = 2_000
"""Rows of each kind that one call removes; bounds how long it blocks commits."""


def trim(connection: Connection, now_ms: int, keys_before_ms: int, retention: Retention) -> Trimmed:
    """Remove at most `TRIMMED_AT_ONCE` of each kind."""
    floor = reader_floor(connection, now_ms, retention.readers)
    removed = (
        _trim_events(connection, now_ms, retention, floor),
        _trim_commits(connection, retention),
        _trim_keys(connection, keys_before_ms, retention),
        _trim_policies(connection, retention),
    )
    return Trimmed(*removed, more=TRIMMED_AT_ONCE in removed)


def _trim_events(connection: Connection, now_ms: int, retention: Retention, floor: ReaderFloor) -> int:
    e = schema.events.c
    oldest, newest = connection.execute(select(func.min(e.seq), func.max(e.seq))).one()
    if oldest is None:
        return 0
    first_young = first_since(connection, e.seq, e.at_ms, now_ms - retention.events_ms, oldest - 1, newest)
    keep_from = max(first_young, newest + 1 - retention.events_count)
    keep_from = min(keep_from, floor.events + 1, oldest + TRIMMED_AT_ONCE)
    return connection.execute(delete(schema.events).where(e.seq < keep_from)).rowcount


def _trim_commits(connection: Connection, retention: Retention) -> int:
    c = schema.commits.c
    oldest, newest = connection.execute(select(func.min(c.number), func.max(c.number))).one()
    if oldest is None:
        return 0
    keep_from = min(newest + 1 - max(retention.commits_count, 1), oldest + TRIMMED_AT_ONCE)
    return connection.execute(delete(schema.commits).where(c.number < keep_from)).rowcount


def _trim_policies(connection: Connection, retention: Retention) -> int:
    p = schema.policies.c
    newest = connection.execute(select(func.max(p.version))).scalar()
    if newest is None:
        return 0
    keep_from = newest + 1 - max(retention.policies_count, 1)
    old = select(p.version).where(p.version < keep_from).order_by(p.version).limit(TRIMMED_AT_ONCE)
    return connection.execute(delete(schema.policies).where(p.version.in_(old))).rowcount


def _trim_keys(connection: Connection, before_ms: int, retention: Retention) -> int:
    k = schema.idempotency.c
    count: int = connection.execute(select(func.count()).select_from(schema.idempotency)).scalar_one()
    if count > retention.idempotency_count:
        oldest_kept = select(k.at_ms).order_by(k.at_ms.desc()).offset(retention.idempotency_count - 1).limit(1)
        before_ms = max(before_ms, connection.execute(oldest_kept).scalar_one())
    old = select(k.key).where(k.at_ms < before_ms).limit(TRIMMED_AT_ONCE)
    return connection.execute(delete(schema.idempotency).where(k.key.in_(old))).rowcount
