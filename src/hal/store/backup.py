"""A copy of everything in one file, made while a controller writes, and a store made anew from such a file.

A backup is a SQLite store of its own, whatever it was taken from: so it also moves a store from SQLite to PostgreSQL.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, LargeBinary, Table, delete, func, insert, select, update

from hal.core.model import ConflictError
from hal.store import schema
from hal.store.bulk import insert_rows
from hal.store.database import Database
from hal.store.errors import StoreReadOnly, StoreTooNew
from hal.store.migrate import HEAD, migrate, revision_of
from hal.store.opening import open_database
from hal.store.read import nodes

ROWS_AT_ONCE: Final = 5_000
_EMPTY: Final = (schema.commits, schema.jobs, schema.events, schema.nodes, schema.policies, schema.meta)
"""A store without rows in these was never used."""


def back_up(where: str | Path, file: Path) -> int:
    """Write a consistent copy of a store into a new file; it appears whole or not at all. How many rows it has.

    Raises:
        ConflictError: the file is there already.
        StoreError: the store cannot be read, or the file not written.
    """
    if os.path.lexists(file):
        raise ConflictError(f"{file} exists already", hint="name a file that does not")
    partial = file.with_name(f".{file.name}.partial")
    _remove(partial)
    source = open_database(where, create=False, max_bytes=None)
    try:
        _private(partial)
        target = open_database(partial, create=True, max_bytes=None)
        try:
            with source.reading("backing up") as reading, target.writing("writing the backup") as writing:
                _same_schema(reading, source)
                migrate(writing)
                rows = _copy(reading, writing)
            target.flush()
        finally:
            target.close()
        _name(partial, file)
        return rows
    finally:
        source.close()
        _remove(partial)


def _name(partial: Path, file: Path) -> None:
    """Give it its name; what was put there meanwhile stays."""
    try:
        os.link(partial, file)
    except FileExistsError:
        raise ConflictError(f"{file} exists already", hint="name a file that does not") from None
    except OSError:  # a file system without hard links
        partial.rename(file)


def restore(file: Path, to: str | Path) -> int:
    """Fill a store that was never used, or make it, with what a backup holds. How many rows that are.

    The epoch goes on where the backup left it: agents that have heard a later one make the controller pass it.

    Raises:
        ConflictError: something is in that store already.
        StoreError: the file is not a backup, or the store cannot be written; nothing of it is there then.
    """
    source = open_database(file, create=False, max_bytes=None)
    try:
        target = open_database(to, create=True, max_bytes=None)
        try:
            target.lock("hal restore")
            with source.reading("reading the backup") as reading, target.writing("restoring") as writing:
                _same_schema(reading, source)
                target.alone(writing)
                migrate(writing)
                _refuse_used(writing, target)
                rows = _copy(reading, writing)
                writing.execute(update(schema.leader).values(expires_ms=0, rest="", wire=""))
                writing.execute(delete(schema.controllers))
                _forget_node_ids(writing)
            target.flush()
            return rows
        finally:
            target.close()
    finally:
        source.close()


def _same_schema(connection: Connection, source: Database) -> None:
    found = revision_of(connection)
    if found != HEAD:
        raise StoreTooNew(
            f"{source.place} has schema {found or 'none'}, this HAL reads schema {HEAD}",
            hint="use the HAL that wrote it, or start this HAL on it once",
        )


def _refuse_used(connection: Connection, target: Database) -> None:
    query = select(schema.leader.c.epoch).with_for_update()
    used = [table.name for table in _EMPTY if connection.execute(select(func.count()).select_from(table)).scalar()]
    if connection.execute(query).scalar() or used:
        raise ConflictError(
            f"the store {target.place} was used already; nothing was changed",
            hint="restore into an empty database, or another HAL_HOME",
        )


def _copy(reading: Connection, writing: Connection) -> int:
    writing.execute(delete(schema.leader))
    rows = 0
    for table in schema.metadata.sorted_tables:
        found = reading.execution_options(yield_per=ROWS_AT_ONCE).execute(select(table))
        for some in found.mappings().partitions():
            _insert(writing, table, [dict(row) for row in some])
            rows += len(some)
    return rows


def _forget_node_ids(writing: Connection) -> None:
    """HAL was stopped, a person says: whoever comes first under a node's name is that node from now on."""
    for row in nodes(writing):
        about = replace(row.about, facts=replace(row.about.facts, node_id=""))
        text = msgspec.json.encode(about).decode()
        writing.execute(update(schema.nodes).where(schema.nodes.c.name == row.name).values(about=text))


def _insert(writing: Connection, table: Table, rows: list[dict[str, object]]) -> None:
    if any(isinstance(column.type, LargeBinary) for column in table.c):
        writing.execute(insert(table), rows)  # bytes go in no JSON
    else:
        insert_rows(writing, table, rows)


def _private(file: Path) -> None:
    """An empty file that only this user reads: all tokens' hashes go there.

    Raises:
        StoreReadOnly: it cannot be made.
    """
    try:
        file.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        raise StoreReadOnly(f"{file.parent} cannot be written: {error.strerror}", hint="name another place") from error


def _remove(partial: Path) -> None:
    for end in ("", "-wal", "-shm", ".lock"):
        partial.with_name(partial.name + end).unlink(missing_ok=True)
