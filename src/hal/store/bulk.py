"""Many rows with one statement (executemany), each of which must be found where it is to be changed.

Statements are compiled once and given to the driver with the rows as they are: SQLAlchemy would copy every row, which
costs more than SQLite's own work. This is right because no column of the schema needs a conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Delete, Select, Table, Update, insert, literal, select

from hal.store import schema
from hal.store.errors import GroupRefused

Params = dict[str, Any]
"""One row: a value by column or by parameter of the statement."""

_JSON: Final = msgspec.json.Encoder()


def json_text(value: Any) -> str:
    """Compact JSON of plain data."""
    return _JSON.encode(value).decode()


def insert_rows(connection: Connection, table: Table, rows: list[Params]) -> None:
    """Insert whole rows; none is fine."""
    if rows:
        many(connection, _INSERTS[table.name], rows)


_INSERTS: Final = {table.name: insert(table) for table in schema.metadata.sorted_tables}

_SQL: Final[dict[tuple[str, Any], str]] = {}
"""Compiled statements, by dialect; as many as there are constants that are given to `many` and `first`."""


def many(connection: Connection, statement: Any, rows: list[Params]) -> int:
    """Carry out a statement, which must be a constant of its module, for each row; returns how many rows it found."""
    found: int = _cursor(connection).executemany(_compiled(connection, statement), rows).rowcount
    return found


def first(connection: Connection, statement: Any, params: Params | None = None) -> Sequence[Any] | None:
    """The first row that a query gives, which must be a constant of its module."""
    row: Sequence[Any] | None = _cursor(connection).execute(_compiled(connection, statement), params or {}).fetchone()
    return row


def rows_of(connection: Connection, query: Select[Any], params: Mapping[str, Any]) -> Any:
    """The driver's cursor over the rows of a query, which must be a constant of its module; to be closed."""
    cursor = _cursor(connection)
    cursor.execute(_compiled(connection, query), params)
    return cursor


def _cursor(connection: Connection) -> Any:
    """The driver's own cursor in the connection's transaction; its errors are the driver's (see `Database.translated`).

    Half of a small group's time was SQLAlchemy making a result object for each of its dozen statements.
    """
    return connection.connection.cursor()


def _compiled(connection: Connection, statement: Any) -> str:
    key = (connection.dialect.name, statement)
    sql = _SQL.get(key)
    if sql is None:
        sql = _SQL[key] = str(statement.compile(dialect=connection.dialect))
    return sql


def change_rows(
    connection: Connection,
    statement: Update | Delete,
    rows: list[Params],
    name: Callable[[Params], str],
    key: tuple[str, ...],
    *,
    lasting: bool = True,
) -> None:
    """Carry out an update or delete for each row, each of which must find exactly one.

    Args:
        name: what to call a row in an error.
        key: the parameters that say which row is meant.
        lasting: the statement is a constant of its module.
    """
    if not rows:
        return
    found = many(connection, statement, rows) if lasting else connection.execute(statement, rows).rowcount
    if found == len(rows):
        return
    if isinstance(statement, Update):
        rows = [row for row in rows if not _is_there(connection, statement, {k: row[k] for k in key})]
    names = ", ".join(name(row) for row in rows[:5])
    raise GroupRefused(f"{len(rows)} rows to change are not there, have ended, or are named twice: {names}")


def _is_there(connection: Connection, statement: Update, key: Params) -> bool:
    where = statement.whereclause
    assert where is not None
    query = select(literal(1)).select_from(statement.table).where(where)
    return connection.execute(query, key).first() is not None
