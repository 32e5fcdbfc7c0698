"""Registered readers of the feeds, and how long rows are kept for them.

Reads and decides only; inside the caller's transaction. Both feeds are numbered in commit order without gaps, and the
instants of their rows never descend, so an instant is a position, found by bisection over the numbers' index.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from sqlalchemy import Column, Connection, func, select

from hal.store import schema
from hal.store.operations import ReaderRow


class ReaderBounds(Struct, frozen=True, kw_only=True):
    """How much is kept for readers beyond what retention keeps anyway; what exceeds either bound is lost to them."""

    rows: int = 5_000_000
    """Of each feed, the newest so many."""
    age_ms: int = 30 * 86_400_000


class ReaderFloor(Struct, frozen=True):
    """Up to which sequence numbers no registered reader needs a row any more: rows behind them must not be removed."""

    attempts: int
    """Of ended attempts, `ended_seq`."""
    events: int


def reader_floor(connection: Connection, now_ms: int, bounds: ReaderBounds) -> ReaderFloor:
    """Compute the floor: where the slowest reader stands, or where the bounds are, whichever is later.

    O(readers + log rows). Without a reader that follows a feed, the number of its newest row.
    """
    c, r, a, e = schema.commits.c, schema.readers.c, schema.attempts.c, schema.events.c
    newest = connection.execute(select(c.last_end, c.last_seq).order_by(c.number.desc()).limit(1)).first() or (0, 0)
    slowest = connection.execute(select(func.min(r.attempts), func.min(r.events))).one()
    before_ms = now_ms - bounds.age_ms
    found: list[int] = []
    for head, position, columns in zip(newest, slowest, ((a.ended_seq, a.recorded_ms), (e.seq, e.at_ms)), strict=True):
        if position is None:
            found.append(head)
        else:
            old = first_since(connection, *columns, before_ms, position, head) - 1
            found.append(min(max(position, head - bounds.rows, old), head))
    return ReaderFloor(*found)


def first_since(
    connection: Connection, number: Column[Any], instant: Column[Any], since_ms: int, after: int, last: int
) -> int:
    """Find the first number in (after, last] whose row is of that instant or later; `last` + 1 where there is none.

    Args:
        number, instant: columns of one table; instants never descend with numbers. Numbers may be missing.
    """
    low, high = after + 1, last + 1
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(
            select(number, instant).where(number >= middle, number <= last).order_by(number).limit(1)
        ).first()
        if row is None or row[1] >= since_ms:
            high = middle
        else:
            low = row[0] + 1
    return low


MAX_READERS: Final = 64
"""Registered at the same time."""


def read_readers(connection: Connection) -> list[ReaderRow]:
    """Read all readers by name."""
    rows = connection.execute(select(schema.readers).order_by(schema.readers.c.name).limit(MAX_READERS))
    return [ReaderRow(**row._mapping) for row in rows]
