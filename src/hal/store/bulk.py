"""Execute one statement for many rows, and check that each row to change exists.

Statements are compiled once and passed to the driver with the rows as they are: SQLAlchemy would copy every row, which
costs more than SQLite's own work. This is correct because no column of the schema needs a conversion. SQLite executes
the statement once per row, PostgreSQL once for all rows (see `recordset`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Connection, Delete, Select, Table, Update, insert, literal, select
from sqlalchemy.dialects import sqlite

from hal.store import schema
from hal.store.errors import GroupRefused
from hal.store.recordset import ROWS, insert_set, overwrite_set, replacement, rows_text, set_based

T = TypeVar("T")
Params = dict[str, Any]
"""One row: values by column, or by parameter of the statement."""

POSTGRESQL: Final = "postgresql"
ROWS_AT_ONCE: Final = 2_000
"""Rows that one statement creates, writes and frees before the next: a list of 100,000 is freed in one call of the
interpreter, during which no other thread runs."""

_JSON: Final = msgspec.json.Encoder()


def batches(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split rows into slices of the size that one statement takes."""
    return (rows[at : at + ROWS_AT_ONCE] for at in range(0, len(rows), ROWS_AT_ONCE))


def json_text(value: Any) -> str:
    """Encode plain data as compact JSON."""
    return _JSON.encode(value).decode()


def insert_rows(connection: Connection, table: Table, rows: list[Params]) -> None:
    """Insert whole rows; the list may be empty."""
    if not rows:
        return
    if connection.dialect.name == POSTGRESQL:
        _execute_set(connection, ("insert", table.name), lambda: insert_set(table), rows)
    else:
        execute_rows(connection, _INSERTS[table.name], rows)


def overwrite_rows(connection: Connection, table: Table, rows: list[Params]) -> None:
    """Insert whole rows, replacing those with the same keys; of several rows with the same key the last wins."""
    if not rows:
        return
    if connection.dialect.name == POSTGRESQL:
        key = [c.name for c in table.primary_key]
        last = {tuple(row[name] for name in key): row for row in rows}
        _execute_set(connection, ("overwrite", table.name), lambda: overwrite_set(table), list(last.values()))
    else:
        execute_rows(connection, _OVERWRITES[table.name], rows)


_INSERTS: Final = {table.name: insert(table) for table in schema.metadata.sorted_tables}


def _overwriting(table: Table) -> sqlite.Insert:
    statement = sqlite.insert(table)
    return statement.on_conflict_do_update(**replacement(table, statement.excluded))


_OVERWRITES: Final = {
    table.name: _overwriting(table) for table in (schema.task_ranges, schema.forgets, schema.removals)
}

_SQL: Final[dict[tuple[str, Any], str]] = {}
"""Compiled statements, by dialect; as many as there are constants passed to `execute_rows` and `first_row`."""


def _execute_set(connection: Connection, key: Any, make: Callable[[], Any], rows: list[Params]) -> int:
    """Execute one statement for all rows; returns how many rows it matched."""
    sql = _SQL.get((POSTGRESQL, key))
    if sql is None:
        sql = _SQL[POSTGRESQL, key] = str(make().compile(dialect=connection.dialect))
    found: int = _cursor(connection).execute(sql, {ROWS: rows_text(rows)}).rowcount
    return found


def execute_rows(connection: Connection, statement: Any, rows: list[Params]) -> int:
    """Execute a statement, which must be a constant of its module, for each row; returns how many rows it matched."""
    cursor = _cursor(connection)
    if connection.dialect.name == POSTGRESQL:
        cursor.executemany(_compiled(connection, statement), rows)
    else:
        by_position = _by_position(statement)
        cursor.executemany(by_position.sql, map(by_position.values, rows))
    found: int = cursor.rowcount
    return found


def first_row(connection: Connection, statement: Any, params: Params | None = None) -> Sequence[Any] | None:
    """Return the first row of a query, which must be a constant of its module."""
    row: Sequence[Any] | None = _cursor(connection).execute(_compiled(connection, statement), params or {}).fetchone()
    return row


def open_cursor(
    connection: Connection, query: Select[Any], params: Mapping[str, Any], *, very_many: bool = False
) -> Any:
    """Open the driver's cursor over the rows of a query, which must be a constant of its module.

    The caller closes it.

    Args:
        very_many: do not hold all rows in memory at once.
    """
    stays_there = very_many and connection.dialect.name == POSTGRESQL
    cursor = connection.connection.cursor(_SERVER_CURSOR) if stays_there else _cursor(connection)
    cursor.execute(_compiled(connection, query), params)
    return cursor


_SERVER_CURSOR: Final = "hal_rows"


def _cursor(connection: Connection) -> Any:
    """The driver's own cursor in the connection's transaction; its errors are the driver's (see
    `Database.translated`).

    SQLAlchemy took half of a small group's time to create a result object for each of its dozen statements.
    """
    return connection.connection.cursor()


def _compiled(connection: Connection, statement: Any) -> str:
    key = (connection.dialect.name, statement)
    sql = _SQL.get(key)
    if sql is None:
        sql = _SQL[key] = str(statement.compile(dialect=connection.dialect))
    return sql


class _ByPosition(NamedTuple):
    """A statement for SQLite whose parameters are positions; `values` are those of a row, in their order.

    The driver makes a new string of each parameter's name for each row, which took a tenth to a quarter of its time.
    """

    sql: str
    values: Callable[[Params], tuple[Any, ...]]


_BY_POSITION: Final[dict[Any, _ByPosition]] = {}
_QUESTION_MARKS: Final = sqlite.dialect(paramstyle="qmark")


def _by_position(statement: Any) -> _ByPosition:
    known = _BY_POSITION.get(statement)
    if known is None:
        compiled = statement.compile(dialect=_QUESTION_MARKS)
        names = compiled.positiontup
        # Of a single name `itemgetter` gets no tuple.
        values = itemgetter(*names) if len(names) > 1 else lambda row: tuple(row[name] for name in names)
        known = _BY_POSITION[statement] = _ByPosition(str(compiled), values)
    return known


def try_rows(connection: Connection, statement: Update | Delete, rows: list[Params]) -> int:
    """Execute an update or delete, which must be a constant of its module, for each row; returns how many rows of the
    table it matched, which may be fewer."""
    if not rows:
        return 0
    if connection.dialect.name == POSTGRESQL:
        return _execute_set(connection, ("try", statement), lambda: set_based(statement, connection.dialect), rows)
    return execute_rows(connection, statement, rows)


def change_rows(
    connection: Connection,
    statement: Update | Delete,
    rows: list[Params],
    name: Callable[[Params], str],
    key: tuple[str, ...],
    *,
    lasting: bool = True,
) -> None:
    """Execute an update or delete for each row; each must match exactly one row.

    Args:
        name: formats a row for an error message.
        key: the parameters that identify a row.
        lasting: the statement is a constant of its module.
    """
    if not rows:
        return
    if not lasting:
        found = connection.execute(statement, rows).rowcount
    elif connection.dialect.name == POSTGRESQL and len({tuple(row[k] for k in key) for row in rows}) == len(rows):
        found = _execute_set(connection, ("change", statement), lambda: set_based(statement, connection.dialect), rows)
    else:
        found = execute_rows(connection, statement, rows)
    if found == len(rows):
        return
    if isinstance(statement, Update):
        rows = [row for row in rows if not _row_exists(connection, statement, {k: row[k] for k in key})]
    names = ", ".join(name(row) for row in rows[:5])
    raise GroupRefused(f"{len(rows)} rows to change do not exist, have ended, or are named twice: {names}")


def _row_exists(connection: Connection, statement: Update, key: Params) -> bool:
    where = statement.whereclause
    assert where is not None
    query = select(literal(1)).select_from(statement.table).where(where)
    return connection.execute(query, key).first() is not None
