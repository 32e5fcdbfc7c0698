"""Sums over a range of time: by account, user, queue, node or job name, in periods. Only reads, and one state."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model import SpecError
from hal.planes.observability.history.levels import Level, Segment, rounds, segments
from hal.planes.observability.history.recording import read_kept
from hal.planes.observability.history.tables import (
    COUNTED_STATES,
    MEASURES,
    NAMED,
    OWNER,
    PEAKS,
    PLACE,
    PLACED,
    SUM_TABLES,
    SUMS,
    summed_attempts,
    summed_sums,
)

MAX_GROUPS: Final = 100_000
"""Rows of one answer."""
MAX_PERIODS: Final = 1_500


class By(StrEnum):
    """What attempts are summed by."""

    ACCOUNT = "account"
    USER = "user"
    QUEUE = "queue"
    NODE = "node"
    JOB_NAME = "job-name"


class Wanted(Struct, frozen=True, kw_only=True):
    """Which attempts to sum; an empty field does not restrict."""

    account: str = ""
    within: frozenset[str] = frozenset()
    """Any of these accounts."""
    user: str = ""
    queue: str = ""
    name: str = ""
    node: str = ""
    seen_by: str = ""
    """Only those of this user, and of `accounts`; empty: all."""
    accounts: frozenset[str] = frozenset()


class Sums(Struct, frozen=True, kw_only=True):
    """The measures of some attempts, by the names of `tables.MEASURES`."""

    key: str
    """The account, user, ... that they have in common."""
    period: int
    """Number of the period."""
    values: tuple[int, ...]
    """In the order of `MEASURES`."""

    def __getitem__(self, measure: str) -> int:
        return self.values[_AT[measure]]


class Found(Struct, frozen=True, kw_only=True):
    """An answer."""

    sums: list[Sums]
    """By period, then by the cores that they had, the most first."""
    rounded: Level | None
    """To buckets of this level an end of the range was rounded, as nothing finer is kept."""


_AT: Final = {name: number for number, name in enumerate(MEASURES)}
_PEAKS_AT: Final = len(SUMS)
_FIELD: Final = {By.ACCOUNT: 0, By.USER: 1, By.QUEUE: 2}
_NEVER: Final = 1 << 62
_WHOLE_ON_EACH_NODE: Final = frozenset(
    {
        *("attempts", "tasks", "jobs", "ran", *COUNTED_STATES.values(), "waited", "wait_ms", "ran_ms"),
        *("partly_counted", "walltime_ms", "limited_ms", "priced", *PEAKS),
    }
)
"""Measures that are of each node of an attempt; the others are of all of its nodes together."""
_SHARED_AT: Final = [number for number, name in enumerate(MEASURES) if name not in _WHOLE_ON_EACH_NODE]


def read_usage(connection: sqlite3.Connection, wanted: Wanted, by: By, periods: Sequence[int]) -> Found:
    """Sum attempts that ended in each period.

    Args:
        periods: their edges, ascending: one more than there are periods.
    Raises:
        SpecError: more groups or periods than an answer may have.
    """
    if len(periods) - 1 > MAX_PERIODS:
        raise SpecError(
            f"{len(periods) - 1:,} periods; at most {MAX_PERIODS:,} are allowed", hint="ask for longer ones"
        )
    tables = _tables(wanted, by)
    kept = {level: from_ms if level in tables else _NEVER for level, from_ms in read_kept(connection).items()}
    keys = _Keys(connection, by)
    conditions, values = conditions_of(connection, wanted)
    groups: dict[tuple[int, str], list[int]] = {}
    for number, (since_ms, until_ms) in enumerate(pairwise(periods)):
        for segment in segments(since_ms, until_ms, kept):
            query = _query(segment, tables[segment.level], keys.column, conditions)
            for found in connection.execute(query, (segment.since_ms, segment.until_ms, *values)):
                for key, sums in keys.of(found[0], found[1:]):
                    if by is By.NODE and wanted.node and key != wanted.node:
                        continue  # a gang's other nodes
                    _add(groups, (number, key), sums)
    rows = [Sums(key=key, period=period, values=tuple(values)) for (period, key), values in groups.items()]
    rows.sort(key=lambda one: (one.period, -one["core_ms"], one.key))
    return Found(sums=rows, rounded=rounds(periods[0], periods[-1], kept))


def _tables(wanted: Wanted, by: By) -> dict[Level, str]:
    """Which tables can answer, by level."""
    keys: tuple[str, ...] = OWNER
    if by is By.NODE or wanted.node:
        keys = PLACED if by in _FIELD or _of_some_owners(wanted) else PLACE
    if by is By.JOB_NAME or wanted.name:
        keys = NAMED if by is not By.NODE and not wanted.node else ()
    return {Level.ATTEMPTS: "attempts"} | {table.level: table.name for table in SUM_TABLES if table.keys == keys}


def conditions_of(connection: sqlite3.Connection, wanted: Wanted) -> tuple[str, list[str]]:
    """Beside that of the instant, and the values for it."""
    conditions, values = "", []
    if _of_some_owners(wanted):
        conditions += " AND owner IN (SELECT value FROM json_each(?))"
        values.append(msgspec.json.encode(_owners(connection, wanted)).decode())
    if wanted.name:
        conditions += " AND name = (SELECT id FROM names WHERE name = ?)"
        values.append(wanted.name)
    if wanted.node:
        conditions += " AND place IN (SELECT id FROM places WHERE instr(nodes, ?))"
        values.append(msgspec.json.encode(wanted.node).decode())
    return conditions, values


def _of_some_owners(wanted: Wanted) -> bool:
    return bool(wanted.account or wanted.within or wanted.user or wanted.queue or wanted.seen_by)


def _owners(connection: sqlite3.Connection, wanted: Wanted) -> list[int]:
    """Numbers of those that match."""
    return [
        number
        for number, account, user, queue in connection.execute("SELECT id, account, user, queue FROM owners")
        if (not wanted.account or account == wanted.account)
        and (not wanted.within or account in wanted.within)
        and (not wanted.user or user == wanted.user)
        and (not wanted.queue or queue == wanted.queue)
        and (not wanted.seen_by or user == wanted.seen_by or account in wanted.accounts)
    ]


def _query(segment: Segment, table: str, column: str, conditions: str) -> str:
    of_attempts = segment.level is Level.ATTEMPTS
    measures = summed_attempts() if of_attempts else summed_sums()
    instant = "end_ms" if of_attempts else "at_ms"
    return (
        f"SELECT {column}, {measures} FROM {table} WHERE {instant} >= ? AND {instant} < ?{conditions} GROUP BY {column}"
    )


class _Keys:
    """What numbers of a column stand for."""

    def __init__(self, connection: sqlite3.Connection, by: By) -> None:
        self._connection, self._by = connection, by
        self.column = {By.NODE: "place", By.JOB_NAME: "name"}.get(by, "owner")
        self._known: dict[int, tuple[str, ...]] = {}

    def of(self, number: int, sums: Sequence[int]) -> Iterable[tuple[str, Sequence[int]]]:
        """The groups to which sums belong: those of a place to each of its nodes."""
        names = self._known.get(number)
        if names is None:
            names = self._known[number] = self._names(number)
        if len(names) == 1:
            return ((names[0], sums),)
        return zip(names, _spread(sums, len(names)), strict=True)

    def _names(self, number: int) -> tuple[str, ...]:
        if self._by is By.JOB_NAME:
            return tuple(self._connection.execute("SELECT name FROM names WHERE id = ?", (number,)).fetchone() or ("",))
        if self._by is By.NODE:
            found = self._connection.execute("SELECT nodes FROM places WHERE id = ?", (number,)).fetchone()
            return tuple(msgspec.json.decode(found[0])) if found else ()
        query = "SELECT account, user, queue FROM owners WHERE id = ?"
        return (self._connection.execute(query, (number,)).fetchone()[_FIELD[self._by]],)


def _spread(sums: Sequence[int], nodes: int) -> Iterable[list[int]]:
    """The same on each of several nodes: what they have together in equal parts, which add up to it."""
    for rank in range(nodes):
        part = list(sums)
        for at in _SHARED_AT:
            part[at] = sums[at] // nodes + (1 if rank < sums[at] % nodes else 0)
        yield part


def _add(groups: dict[tuple[int, str], list[int]], key: tuple[int, str], sums: Sequence[int]) -> None:
    group = groups.get(key)
    if group is None:
        if len(groups) == MAX_GROUPS:
            raise SpecError(
                f"more than {MAX_GROUPS:,} rows match", hint="ask for less: a shorter time, one account, longer periods"
            )
        groups[key] = list(sums)
        return
    for at, value in enumerate(sums):
        group[at] = group[at] + value if at < _PEAKS_AT else max(group[at], value)
