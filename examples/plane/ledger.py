"""What the plane knows, in a small database of its own: how fast nodes are, who spent how much, what is rented."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from hal.client.rest.feed_calls import EndedAttemptInfo

SCHEMA = """
CREATE TABLE IF NOT EXISTS progress (one INTEGER PRIMARY KEY CHECK (one = 1), sequence INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS nodes (name TEXT PRIMARY KEY, attempts INTEGER NOT NULL, seconds REAL NOT NULL);
CREATE TABLE IF NOT EXISTS users (name TEXT PRIMARY KEY, seconds REAL NOT NULL);
CREATE TABLE IF NOT EXISTS admitted (step TEXT PRIMARY KEY, attempt TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS admitted_by_attempt ON admitted (attempt);
CREATE TABLE IF NOT EXISTS machines (name TEXT PRIMARY KEY);
INSERT OR IGNORE INTO progress VALUES (1, 0);
"""


class NodeSpeed(NamedTuple):
    """How long attempts took on a node."""

    name: str
    attempts: int
    mean_s: float


class Ledger:
    """One SQLite file. What is learned and how far was read are committed together: nothing counts twice."""

    def __init__(self, path: Path, budget_s: float) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._budget_s = budget_s
        self._closed = path.parent / "over-budget"
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")  # a power failure may lose the last few; nothing counts twice
        self._db.executescript(SCHEMA)
        self._write_closed()

    @property
    def sequence(self) -> int:
        """The last ended attempt that was counted."""
        return int(self._db.execute("SELECT sequence FROM progress").fetchone()[0])

    def count(self, ended: Sequence[EndedAttemptInfo]) -> None:
        """Learn from ended attempts; those that were counted before are left out."""
        counted = self.sequence
        fresh = [one for one in ended if one.sequence > counted]
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for one in fresh:
                seconds = max(0, one.end_ms - one.start_ms) / 1000 if one.start_ms is not None else 0.0
                for node in one.nodes:
                    self._db.execute(
                        "INSERT INTO nodes VALUES (?, 1, ?) ON CONFLICT (name) DO UPDATE "
                        "SET attempts = attempts + 1, seconds = seconds + excluded.seconds",
                        (node, seconds),
                    )
                self._db.execute(
                    "INSERT INTO users VALUES (?, ?) ON CONFLICT (name) DO UPDATE "
                    "SET seconds = seconds + excluded.seconds",
                    (one.user, seconds),
                )
                self._db.execute("DELETE FROM admitted WHERE attempt = ?", (one.id,))
            if fresh:
                self._db.execute("UPDATE progress SET sequence = ?", (fresh[-1].sequence,))
        self._write_closed()

    def speeds(self) -> list[NodeSpeed]:
        """All nodes on which something ended."""
        rows = self._db.execute("SELECT name, attempts, seconds / attempts FROM nodes ORDER BY name")
        return [NodeSpeed(*row) for row in rows]

    def spent(self) -> dict[str, float]:
        """Seconds that each user's attempts took."""
        return dict(self._db.execute("SELECT name, seconds FROM users ORDER BY name"))

    def admit(self, user: str, attempt: str, rank: int) -> bool:
        """Whether a step of the user may begin. One that was let in stays so, however often it is asked for."""
        step = f"{attempt}.{rank}"
        if self._db.execute("SELECT 1 FROM admitted WHERE step = ?", (step,)).fetchone():
            return True
        row = self._db.execute("SELECT seconds FROM users WHERE name = ?", (user,)).fetchone()
        if row is not None and row[0] >= self._budget_s:
            return False
        self._db.execute("INSERT INTO admitted VALUES (?, ?)", (step, attempt))
        return True

    def forget(self, attempt: str, rank: int) -> None:
        """The step went away before it began."""
        self._db.execute("DELETE FROM admitted WHERE step = ?", (f"{attempt}.{rank}",))

    def machines(self) -> list[str]:
        """Names of the machines that are rented."""
        return [name for (name,) in self._db.execute("SELECT name FROM machines ORDER BY name")]

    def rented(self, name: str) -> None:
        """Noted before the machine exists, so that a killed plane finds it again."""
        self._db.execute("INSERT OR IGNORE INTO machines VALUES (?)", (name,))

    def returned(self, name: str) -> None:
        self._db.execute("DELETE FROM machines WHERE name = ?", (name,))

    def close(self) -> None:
        self._db.close()

    def _write_closed(self) -> None:
        """The users who have spent their budget, a line each: for `budget.sh`, which has no database."""
        over = (user for user, seconds in self.spent().items() if seconds >= self._budget_s)
        _replace(self._closed, over)


def _replace(path: Path, lines: Iterable[str]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text("".join(f"{line}\n" for line in lines))
    os.replace(fresh, path)
