"""From a path or a URL to the connections of the right database. PostgreSQL's driver is imported only when needed."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from hal.store.database import Database
from hal.store.errors import StoreMissing
from hal.store.sqlite import MemoryDatabase, open_file, open_memory

HOW_TO_WRITE = "write sqlite:////path/to/file or postgresql://USER@HOST/DATABASE"


def open_database(where: str | Path | MemoryDatabase, *, create: bool, max_bytes: int | None) -> Database:
    """The connections to a database that need not have any table yet.

    Raises:
        StoreError: the URL is not understood, or the database cannot be opened.
    """
    if isinstance(where, MemoryDatabase):
        return open_memory(where)
    if isinstance(where, str) and "://" in where:
        url = parsed(where)
        if url.get_backend_name() == "postgresql":
            from hal.store.postgres import open_postgres

            return open_postgres(url)
        if url.database in (None, "", ":memory:"):
            return open_memory(None)
        where = str(url.database)
    return open_file(Path(where).absolute(), create=create, max_bytes=max_bytes)


def parsed(where: str) -> URL:
    """The URL, which names a database that HAL knows.

    Raises:
        StoreMissing: it does not; the message has no password in it.
    """
    try:
        url = make_url(where)
    except (ArgumentError, ValueError) as error:
        # What was written may hold a password: only what comes before it is told.
        scheme = where.partition("://")[0][:20]
        raise StoreMissing(f"'{scheme}://…' is not the URL of a database", hint=HOW_TO_WRITE) from error
    if url.drivername == "postgres":
        url = url.set(drivername="postgresql")
    if url.drivername not in ("sqlite", "postgresql", "postgresql+psycopg"):
        raise StoreMissing(f"'{url.drivername}' databases are not supported by HAL", hint=HOW_TO_WRITE)
    return url
