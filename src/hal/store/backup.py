"""Back up a store to one file while a controller writes, and restore a store from such a file.

A backup is a SQLite store of its own, whatever database it was taken from, so it also moves a store from SQLite to
PostgreSQL.
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
from hal.store.database_url import open_database
from hal.store.errors import StoreReadOnly, StoreTooNew
from hal.store.migrate import HEAD, migrate, revision_of
from hal.store.queries import read_nodes

ROWS_AT_ONCE: Final = 5_000
_EMPTY: Final = (schema.commits, schema.jobs, schema.events, schema.nodes, schema.policies, schema.meta)
"""A store without rows in these tables has never been used."""


def back_up(where: str | Path, file: Path) -> int:
    """Write a consistent copy of a store to a new file, which appears as a whole or not at all.

    Returns: the number of rows copied.
    Raises:
        ConflictError: the file already exists.
        StoreError: the store cannot be read, or the file cannot be written.
    """
    if os.path.lexists(file):
        raise ConflictError(f"{file} exists already", hint="name a file that does not exist")
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
    """Rename the partial file to its final name; a file that was created there in the meantime is kept."""
    try:
        os.link(partial, file)
    except FileExistsError:
        raise ConflictError(f"{file} exists already", hint="name a file that does not exist") from None
    except OSError:  # The file system has no hard links.
        partial.rename(file)


def restore(file: Path, to: str | Path) -> int:
    """Fill a new or never used store with the contents of a backup.

    The epoch continues where the backup left it: agents that have heard a later one make the controller exceed it.

    Returns: the number of rows restored.
    Raises:
        ConflictError: the store already holds something.
        StoreError: the file is not a backup, or the store cannot be written; none of the backup is stored then.
    """
    source = open_database(file, create=False, max_bytes=None)
    try:
        target = open_database(to, create=True, max_bytes=None)
        try:
            target.lock("hal restore")
            with source.reading("reading the backup") as reading, target.writing("restoring") as writing:
                _same_schema(reading, source)
                target.lock_schema(writing)
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
            f"{source.location} has schema {found or 'none'}, this HAL reads schema {HEAD}",
            hint="use the HAL that wrote it, or start this HAL on it once",
        )


def _refuse_used(connection: Connection, target: Database) -> None:
    query = select(schema.leader.c.epoch).with_for_update()
    used = [table.name for table in _EMPTY if connection.execute(select(func.count()).select_from(table)).scalar()]
    if connection.execute(query).scalar() or used:
        raise ConflictError(
            f"the store {target.location} has already been used; nothing was changed",
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
    """The person who restores asserts that HAL was stopped: the first agent that connects under a node's name
    becomes that node."""
    for row in read_nodes(writing):
        about = replace(row.about, facts=replace(row.about.facts, node_id=""))
        text = msgspec.json.encode(about).decode()
        writing.execute(update(schema.nodes).where(schema.nodes.c.name == row.name).values(about=text))


def _insert(writing: Connection, table: Table, rows: list[dict[str, object]]) -> None:
    if any(isinstance(column.type, LargeBinary) for column in table.c):
        writing.execute(insert(table), rows)  # JSON cannot hold bytes.
    else:
        insert_rows(writing, table, rows)


def _private(file: Path) -> None:
    """Create an empty file that only this user can read, because it will hold the hashes of all tokens.

    Raises:
        StoreReadOnly: it cannot be created.
    """
    try:
        file.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        raise StoreReadOnly(
            f"{file.parent} cannot be written: {error.strerror}", hint="choose another directory"
        ) from error


def _remove(partial: Path) -> None:
    for end in ("", "-wal", "-shm", ".lock"):
        partial.with_name(partial.name + end).unlink(missing_ok=True)
