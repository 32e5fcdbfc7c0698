"""Record ended attempts: their rows, what they add to the sums, and how far was read, in one transaction.

A crash at any point leaves all of a page or nothing of it; the cursor in the same file says which. What is at or before
the cursor is left out, so a page that comes twice counts once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from hal.planes.observability.history.costing import Costing, KnownNode
from hal.planes.observability.history.facts import NOT_SAMPLED, Measured, Sampled, measure
from hal.planes.observability.history.feed_rows import AskedRow, FeedPage, FeedRow
from hal.planes.observability.history.levels import LENGTH_MS, Level
from hal.planes.observability.history.tables import (
    ATTEMPT_COLUMNS,
    DETAIL_COLUMNS,
    MEASURES,
    SUM_TABLES,
    SumsTable,
    added_sums,
    summed_attempts,
)

MOST_NAMES_IN_MEMORY: Final = 20_000
"""Of each kind, names whose numbers are remembered."""
MOST_LOST: Final = 1_000
"""Ranges of lost attempts that are listed; further ones widen the last."""
MAX_MESSAGE: Final = 300
NO_SAMPLES: Final[Mapping[int, Sampled]] = {}

K = TypeVar("K")


class Recorded(NamedTuple):
    """What came of a page."""

    cursor: int
    fresh: int
    """Attempts that were not in here before."""
    lost: int
    """Attempts that the controller no longer had."""
    recorded_ms: int
    """When the newest that is in here was committed by the controller."""


class Recorder:
    """Writes pages; one for each database, used on its writing thread alone."""

    def __init__(self, costing: Costing) -> None:
        self._costing = costing
        self._owners: dict[tuple[str, str, str], int] = {}
        self._names: dict[str, int] = {}
        self._places: dict[tuple[str, ...], int] = {}

    def forget(self) -> None:
        """Forget the numbers of names: the database may have others."""
        self._owners.clear()
        self._names.clear()
        self._places.clear()

    def record(
        self,
        page: FeedPage,
        nodes: Mapping[str, KnownNode],
        connection: sqlite3.Connection,
        samples: Mapping[int, Sampled] = NO_SAMPLES,
    ) -> Recorded:
        """Record a page behind the cursor.

        Args:
            nodes: those that are known, by name.
            samples: what was sampled of its attempts, by sequence number.
        """
        cursor, recorded_ms = connection.execute("SELECT cursor, recorded_ms FROM progress").fetchone()
        fresh = [row for row in page.attempts if row.sequence > cursor]
        ranges = [(max(first, cursor + 1), last) for first, last in page.lost if last > cursor]
        try:
            self._insert(fresh, nodes, samples, connection)
        except BaseException:
            self.forget()  # what was numbered in this transaction is taken back
            raise
        _note_lost(connection, ranges, fresh, recorded_ms)
        recorded_ms = fresh[-1].recorded_ms if fresh else recorded_ms
        cursor = max(cursor, int(page.cursor))
        connection.execute("UPDATE progress SET cursor = ?, recorded_ms = ?", (cursor, recorded_ms))
        return Recorded(cursor, len(fresh), sum(last - first + 1 for first, last in ranges), recorded_ms)

    def _insert(
        self,
        rows: Sequence[FeedRow],
        nodes: Mapping[str, KnownNode],
        samples: Mapping[int, Sampled],
        connection: sqlite3.Connection,
    ) -> None:
        if not rows:
            return
        (last,) = connection.execute("SELECT COALESCE(MAX(id), 0) FROM attempts").fetchone()
        ended: dict[tuple[int, int, int], int] = {}
        attempts, details = [], []
        for number, row in enumerate(rows, last + 1):
            job = int(row.job)
            before_ms = None
            if row.attempt > 1:
                before = (job, row.task, row.attempt - 1)
                before_ms = ended[before] if before in ended else _ended_ms(connection, before)
            ended[job, row.task, row.attempt] = row.end_ms
            sampled = samples.get(row.sequence, NOT_SAMPLED)
            measured = measure(row, self._costing, nodes.get, ended_before_ms=before_ms, sampled=sampled)
            attempts.append((number, *self._attempt(row, job, measured, connection)))
            details.append((number, *_details(row)))
        connection.executemany(_INSERT_ATTEMPT, attempts)
        connection.executemany(_INSERT_DETAIL, details)
        kept = read_kept(connection)
        for table, add in _ADDED:
            connection.execute(add, (last, kept[table.level]))

    def _attempt(
        self, row: FeedRow, job: int, measured: Measured, connection: sqlite3.Connection
    ) -> tuple[int | None, ...]:
        """In the order of `ATTEMPT_COLUMNS`."""
        number = partial(_number, connection)
        owner = (row.account, row.user, row.queue)
        if (owner_id := self._owners.get(owner)) is None:
            owner_id = number(self._owners, owner, _FIND_OWNER, _ADD_OWNER, owner)
        if (name_id := self._names.get(row.name)) is None:
            name_id = number(self._names, row.name, _FIND_NAME, _ADD_NAME, (row.name,))
        if (place_id := self._places.get(row.nodes)) is None:
            text = msgspec.json.encode(row.nodes).decode()
            place_id = number(self._places, row.nodes, _FIND_PLACE, _ADD_PLACE, (text,))
        state, wait_ms, *amounts = msgspec.structs.astuple(measured)
        head = (row.end_ms, owner_id, name_id, place_id, state, job, row.task, row.attempt, row.start_ms, wait_ms)
        return (*head, *amounts)


def read_kept(connection: sqlite3.Connection) -> dict[Level, int]:
    """From when on each level is kept."""
    return {Level(level): from_ms for level, from_ms in connection.execute("SELECT level, from_ms FROM kept")}


def rewind(connection: sqlite3.Connection, cursor: int) -> None:
    """Go back to a cursor: the controller's store was replaced by a backup, and numbers behind it come again."""
    connection.execute("UPDATE progress SET cursor = ?", (cursor,))


def _number(
    connection: sqlite3.Connection,
    known: dict[K, int],
    key: K,
    find: str,
    add: str,
    values: tuple[str, ...],
) -> int:
    """The number of a name: as it was remembered, as it stands, or a new one."""
    if len(known) >= MOST_NAMES_IN_MEMORY:
        known.clear()
    found = connection.execute(find, values).fetchone() or connection.execute(add, values).fetchone()
    known[key] = int(found[0])
    return known[key]


def _ended_ms(connection: sqlite3.Connection, attempt: tuple[int, int, int]) -> int | None:
    found = connection.execute(_FIND_END, attempt).fetchone()
    return None if found is None else int(found[0])


def _details(row: FeedRow) -> tuple[int | str | None, ...]:
    """In the order of `DETAIL_COLUMNS`."""
    asked = row.asked
    return (
        row.sequence,
        row.allocated_ms,
        row.recorded_ms,
        None if asked is None else asked.submit_ms,
        None if asked is None else asked.eligible_ms,
        row.retries,
        row.exit_code,
        row.signal,
        None if asked is None else msgspec.json.encode(_asked(asked)).decode(),
        msgspec.json.encode(row.usage).decode() if row.usage else None,
        row.cause,
        row.trace_id,
        row.message[:MAX_MESSAGE],
    )


def _asked(asked: AskedRow) -> list[object]:
    """In the order in which `reading.AskedText` has it."""
    if not (asked.span or asked.jobs or asked.gated):
        return [asked.walltime_ms, asked.nodes]
    return [asked.walltime_ms, asked.nodes, asked.span, asked.jobs, asked.gated]


def _note_lost(
    connection: sqlite3.Connection, ranges: Sequence[tuple[int, int]], fresh: Sequence[FeedRow], before_ms: int
) -> None:
    for first, last in ranges:
        since_ms = max((row.recorded_ms for row in fresh if row.sequence < first), default=before_ms)
        until_ms = min((row.recorded_ms for row in fresh if row.sequence > last), default=0)
        count, newest = connection.execute("SELECT COUNT(*), MAX(first) FROM lost").fetchone()
        if count >= MOST_LOST:
            connection.execute("UPDATE lost SET last = ?, until_ms = ? WHERE first = ?", (last, until_ms, newest))
        else:
            connection.execute("INSERT INTO lost VALUES (?, ?, ?, ?)", (first, last, since_ms, until_ms))
    if fresh:  # a range at the end of a page ends where the next attempt came
        connection.execute("UPDATE lost SET until_ms = ? WHERE until_ms = 0", (fresh[0].recorded_ms,))


def _inserted(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} (id, {', '.join(columns)}) VALUES ({', '.join('?' * (len(columns) + 1))})"


_INSERT_ATTEMPT: Final = _inserted("attempts", ATTEMPT_COLUMNS)
_INSERT_DETAIL: Final = _inserted("details", DETAIL_COLUMNS)
_FIND_OWNER: Final = "SELECT id FROM owners WHERE account = ? AND user = ? AND queue = ?"
_ADD_OWNER: Final = "INSERT INTO owners (account, user, queue) VALUES (?, ?, ?) RETURNING id"
_FIND_NAME: Final = "SELECT id FROM names WHERE name = ?"
_ADD_NAME: Final = "INSERT INTO names (name) VALUES (?) RETURNING id"
_FIND_PLACE: Final = "SELECT id FROM places WHERE nodes = ?"
_ADD_PLACE: Final = "INSERT INTO places (nodes) VALUES (?) RETURNING id"
_FIND_END: Final = "SELECT end_ms FROM attempts WHERE job = ? AND task = ? AND attempt = ? ORDER BY id DESC LIMIT 1"


def _add(table: SumsTable) -> str:
    length, keys = LENGTH_MS[table.level], ", ".join(table.keys)
    return (
        f"INSERT INTO {table.name} (at_ms, {keys}, {', '.join(MEASURES)}) "
        f"SELECT end_ms / {length} * {length} AS at, {keys}, {summed_attempts()} "
        f"FROM attempts WHERE id > ? GROUP BY at, {keys} HAVING at >= ? "
        f"ON CONFLICT (at_ms, {keys}) DO UPDATE SET {added_sums()}"
    )


_ADDED: Final = tuple((table, _add(table)) for table in SUM_TABLES)
"""Adds what came last to the sums of a table, unless its time is no longer kept there."""
