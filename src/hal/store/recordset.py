"""One statement for many rows on PostgreSQL: the rows are passed as one JSON text, which the statement reads as a
table.

A statement per row costs the server 30 µs and the driver as much; a set costs a few µs per row, one parameter and one
round trip. `set_based` converts a statement written for a single row: each of its parameters becomes a column of the
table of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Delete,
    Dialect,
    Insert,
    Select,
    Table,
    Update,
    bindparam,
    cast,
    column,
    func,
    insert,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.visitors import replacement_traverse
from sqlalchemy.types import Text, TypeEngine

from hal.store import schema

ROWS: Final = "the_rows"
"""The only parameter of a statement of `set_based` or `insert_set`."""

_JSON: Final = msgspec.json.Encoder()
_NUL: Final = b"\\u0000"


def rows_text(rows: list[dict[str, Any]]) -> str:
    """Encode these rows as the parameter. PostgreSQL's text cannot contain NUL, which is stored as U+FFFD."""
    encoded = _JSON.encode(rows)
    if _NUL in encoded:
        encoded = _JSON.encode([{name: without_nul(value) for name, value in row.items()} for row in rows])
    return encoded.decode()


def without_nul(value: Any) -> Any:
    """Replace NUL in text by U+FFFD; other values are returned unchanged."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def insert_set(table: Table) -> Insert:
    """The statement that inserts whole rows."""
    return insert(table).from_select([c.name for c in table.c], _records(table))


def overwrite_set(table: Table) -> Insert:
    """The statement that inserts whole rows, replacing those with the same keys."""
    statement = postgresql.insert(table).from_select([c.name for c in table.c], _records(table))
    return statement.on_conflict_do_update(**replacement(table, statement.excluded))


def replacement(table: Table, excluded: Any) -> dict[str, Any]:
    """The rows that an insert replaces, and by what: arguments of `on_conflict_do_update`."""
    key = [c.name for c in table.primary_key]
    rest = {c.name: excluded[c.name] for c in table.c if c.name not in key}
    # Of two ranges of files that begin with the same task the longer one names all: a node that was away may not have
    # deleted the first when the second is stored, as when retention takes single attempts of a job whose outputs went.
    longer = excluded["count"] > table.c["count"] if table is schema.forgets else None
    return {"index_elements": key, "set_": rest, "where": longer}


def _records(table: Table) -> Select[Any]:
    record = _record({c.name: c.type for c in table.c})
    return select(*record.c)


def _record(types: Mapping[str, TypeEngine[Any]]) -> Any:
    rows = cast(bindparam(ROWS, type_=Text()), postgresql.JSON)
    table = func.json_to_recordset(rows).table_valued(*(column(name, kind) for name, kind in types.items()), name="r")
    return table.render_derived(name="r", with_types=True)


def set_based(statement: Update | Delete, dialect: Dialect) -> Update | Delete:
    """Convert a statement to one for all rows; it counts the rows that it matched. A row named twice counts once."""
    # When compiled, each parameter has the type of its column.
    compiled = statement.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)
    wanted = {name: bind.type for name, bind in compiled.binds.items() if bind.required}
    record = _record(wanted)

    def replaced(element: Any, **_: Any) -> ColumnElement[Any] | None:
        if isinstance(element, BindParameter) and element.key in wanted:
            found: ColumnElement[Any] = record.c[element.key]
            return found
        return None

    made = replacement_traverse(statement, {}, replaced)
    assert isinstance(made, Update | Delete)
    return made
