"""What is no longer kept: each level from a day on, which is set before anything is removed, in small transactions.

So questions never see half of a day, and what arrives is held up for milliseconds. Sums outlive the attempts of which
they were made.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from hal.core.model.history_config import HistorySection
from hal.planes.observability.history.levels import DAY_MS, Level, day_of
from hal.planes.observability.history.recording import read_kept
from hal.planes.observability.history.tables import SUM_TABLES

ROWS_AT_ONCE: Final = 5_000
"""Rows that one transaction removes of a table."""
FREED_PAGES: Final = 2_000
"""Pages of the file that one transaction gives back."""


def set_kept(connection: sqlite3.Connection, section: HistorySection, now_ms: int) -> None:
    """Set from when on each level is kept; never earlier than before, unless that is after tomorrow: then the clock was
    wrong, and what was before today is gone."""
    days = {
        Level.ATTEMPTS: section.attempts_days,
        Level.MINUTES: section.minutes_days,
        Level.HOURS: section.hours_days,
        Level.DAYS: section.days_days,
    }
    kept = {level: day_of(now_ms - count * DAY_MS) for level, count in days.items()}
    kept[Level.ATTEMPTS] = max(kept[Level.ATTEMPTS], _beyond_most(connection, section.attempts_most))
    for level, from_ms in kept.items():
        connection.execute(
            "UPDATE kept SET from_ms = MAX(CASE WHEN from_ms > ? THEN ? ELSE from_ms END, ?) WHERE level = ?",
            (day_of(now_ms) + DAY_MS, day_of(now_ms), max(from_ms, 0), level),
        )


def trim_some(connection: sqlite3.Connection) -> bool:
    """Remove some of what is no longer kept; False: nothing is left to remove."""
    kept = read_kept(connection)
    removed = 0
    for table in SUM_TABLES:
        keys = ", ".join(("at_ms", *table.keys))
        removed += connection.execute(
            f"DELETE FROM {table.name} WHERE ({keys}) IN (SELECT {keys} FROM {table.name} WHERE at_ms < ? LIMIT ?)",
            (kept[table.level], ROWS_AT_ONCE),
        ).rowcount
    old = connection.execute(
        "SELECT id FROM attempts WHERE end_ms < ? LIMIT ?", (kept[Level.ATTEMPTS], ROWS_AT_ONCE)
    ).fetchall()
    for table_name in ("attempts", "details"):
        connection.executemany(f"DELETE FROM {table_name} WHERE id = ?", old)
    connection.execute(f"PRAGMA incremental_vacuum({FREED_PAGES})").fetchall()
    return removed + len(old) > 0


def drop_names(connection: sqlite3.Connection) -> None:
    """Remove names and places that nothing has any more. Whoever remembers their numbers must forget them."""
    for table, column in (("names", "name"), ("places", "place")):
        used = " UNION ".join(
            f"SELECT {column} FROM {name}"
            for name in ("attempts", *(sums.name for sums in SUM_TABLES if column in sums.keys))
        )
        connection.execute(f"DELETE FROM {table} WHERE id NOT IN ({used})")


def _beyond_most(connection: sqlite3.Connection, most: int) -> int:
    """The day behind the last attempt that is too many; 0: there are not."""
    found = connection.execute("SELECT end_ms FROM attempts ORDER BY end_ms DESC LIMIT 1 OFFSET ?", (most,)).fetchone()
    return 0 if found is None else day_of(int(found[0])) + DAY_MS
