"""Blocks of samples in SQLite: written, read by source and time, reduced to minutes and hours, trimmed.

Three levels: values as they came, a value a minute, a value an hour. A block of a level is one row; blocks of a coarser
level are made of whole hours (days) of the finer one, some time after these are over, and how far that has come is read
from the blocks themselves: after a pause of any length it goes on where it was. An attempt of which only one hour of a
day has values is not kept by the hour: a node may run some 100,000 of these a day. Runs on a database's threads.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from hal.planes.observability.samples.blocks import Block, join, key_of, pack, reduce, select, unpack
from hal.planes.observability.samples.columns import Key
from hal.planes.observability.samples.exposition import ATTEMPT
from hal.wire.frames.telemetry import Series

MIGRATIONS: Final = (
    """
    CREATE TABLE block (
        level INTEGER NOT NULL,
        source TEXT NOT NULL,
        start_ms INTEGER NOT NULL,
        end_ms INTEGER NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (level, source, start_ms)
    ) WITHOUT ROWID;
    CREATE INDEX block_by_end ON block (level, end_ms);
    """,
)
FINE, MINUTES, HOURS = 0, 1, 2
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
LATE_MS: Final = 420_000
"""A block of a finer level is complete so long after its time."""
STEPS: Final = {FINE: (MINUTES, MINUTE_MS, HOUR_MS), MINUTES: (HOURS, HOUR_MS, DAY_MS)}
"""By level: the coarser one, its step, and the time of one of its blocks."""
MAX_READ_BLOCKS: Final = 20_000
"""That one question reads."""
TRIMMED_ROWS: Final = 2_000
"""In one transaction."""
FREED_ROWS: Final = 20
"""Deleted at a time to make room."""


class Written(NamedTuple):
    """A block to write."""

    source: str
    block: Block


def write(connection: sqlite3.Connection, blocks: Sequence[Written], level: int = FINE) -> None:
    """Write blocks; one of the same source and beginning is replaced."""
    connection.executemany(
        "INSERT OR REPLACE INTO block VALUES (?, ?, ?, ?, ?)",
        [
            (level, one.source, int(one.block.at_ms[0]), int(one.block.at_ms[-1]), pack(one.block))
            for one in blocks
            if len(one.block.at_ms)
        ],
    )


def read(
    connection: sqlite3.Connection,
    level: int,
    source: str,
    since_ms: int,
    until_ms: int,
    wanted: Callable[[Series], bool] = lambda _series: True,
) -> Iterator[Block]:
    """Yield the blocks of a source that have values of this time, in order, with the series that are wanted; one that
    is damaged, or has none of these, is left out."""
    # No block is longer than a day of a level's steps, so the key bounds what is looked at.
    longest_ms = {FINE: HOUR_MS, MINUTES: 2 * HOUR_MS, HOURS: 2 * DAY_MS}[level]
    rows = connection.execute(
        "SELECT data FROM block WHERE level = ? AND source = ? AND start_ms BETWEEN ? AND ? AND end_ms >= ? "
        "ORDER BY start_ms LIMIT ?",
        (level, source, since_ms - longest_ms, until_ms, since_ms, MAX_READ_BLOCKS),
    )
    for (data,) in rows:
        try:
            block = select(unpack(data), wanted)
        except ValueError:
            continue
        if block.series:
            yield block


def reduced_until(connection: sqlite3.Connection, level: int, source: str) -> int:
    """Until when a coarser level has a source's values; 0: it has none."""
    (found,) = connection.execute(
        "SELECT max(end_ms) FROM block WHERE level = ? AND source = ? "
        "AND start_ms = (SELECT max(start_ms) FROM block WHERE level = ? AND source = ?)",
        (level, source, level, source),
    ).fetchone()
    return int(found or 0)


def sources(connection: sqlite3.Connection, level: int) -> list[str]:
    """All that have blocks of a level."""
    # One look-up a source: a plain DISTINCT would read every block.
    found: list[str] = []
    row = connection.execute("SELECT min(source) FROM block WHERE level = ?", (level,)).fetchone()
    while row[0] is not None:
        found.append(row[0])
        row = connection.execute(
            "SELECT min(source) FROM block WHERE level = ? AND source > ?", (level, row[0])
        ).fetchone()
    return found


def roll_up(connection: sqlite3.Connection, level: int, names: Sequence[str], now_ms: int) -> int:
    """Reduce what is complete of a level for some sources; returns how many blocks it has made."""
    coarser, _, span_ms = STEPS[level]
    made = 0
    for name in names:
        since_ms = reduced_until(connection, coarser, name)
        row = connection.execute(
            "SELECT min(start_ms), max(end_ms) FROM block WHERE level = ? AND source = ? AND start_ms >= ?",
            (level, name, max(0, since_ms - 1)),
        ).fetchone()
        if row[0] is None:
            continue
        at_ms = int(row[0]) // span_ms * span_ms
        while at_ms + span_ms + LATE_MS <= now_ms and at_ms <= int(row[1]):
            part = _reduced(read(connection, level, name, at_ms, at_ms + span_ms), at_ms, span_ms, level)
            if len(part.at_ms):
                write(connection, [Written(name, part)], coarser)
                made += 1
            at_ms += span_ms
    return made


def _reduced(blocks: Iterator[Block], at_ms: int, span_ms: int, level: int) -> Block:
    """The values of a span at the next level."""
    step_ms = STEPS[level][1]
    if level == MINUTES:  # each block has whole steps, and all series of a day by the minute would be gigabytes
        return _without_short_attempts([_within(reduce(one, step_ms), at_ms, span_ms) for one in blocks])
    return reduce(_within(join(list(blocks)), at_ms, span_ms), step_ms)


def _within(block: Block, at_ms: int, span_ms: int) -> Block:
    inside = (block.at_ms > at_ms) & (block.at_ms <= at_ms + span_ms)
    return Block(block.series, block.at_ms[inside], block.values[:, inside])


def _without_short_attempts(blocks: Sequence[Block]) -> Block:
    """Blocks behind one another, without attempts that are in one of them alone."""
    found: Counter[Key] = Counter(key_of(one) for block in blocks if len(block.at_ms) for one in block.series)

    def is_kept(series: Series) -> bool:
        return ATTEMPT not in series.labels or found[key_of(series)] > 1

    return join([select(one, is_kept) for one in blocks])


def trim(connection: sqlite3.Connection, level: int, before_ms: int) -> int:
    """Delete blocks that end before an instant, a bounded number; returns how many."""
    return connection.execute(
        "DELETE FROM block WHERE (level, source, start_ms) IN "
        "(SELECT level, source, start_ms FROM block WHERE level = ? AND end_ms < ? ORDER BY end_ms LIMIT ?)",
        (level, before_ms, TRIMMED_ROWS),
    ).rowcount


def trim_oldest(connection: sqlite3.Connection, rows: int) -> int:
    """Delete the oldest blocks, the finest level first; returns how many."""
    for level in (FINE, MINUTES, HOURS):
        gone = connection.execute(
            "DELETE FROM block WHERE (level, source, start_ms) IN "
            "(SELECT level, source, start_ms FROM block WHERE level = ? ORDER BY end_ms LIMIT ?)",
            (level, rows),
        ).rowcount
        if gone:
            return gone
    return 0


def used_bytes(connection: sqlite3.Connection) -> int:
    """Of the file, without pages that are free."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int((pages - free) * size)


def vacuum(connection: sqlite3.Connection) -> None:
    """Give some free pages back to the disk."""
    connection.execute("PRAGMA incremental_vacuum(2000)")
