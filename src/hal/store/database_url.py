"""Open the right database for a path or a URL. PostgreSQL's driver is imported only when needed."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from hal.store.database import Database
from hal.store.errors import StoreMissing
from hal.store.sqlite import MemoryDatabase, open_file, open_memory

HOW_TO_WRITE = "write sqlite:////path/to/file or postgresql://USER@HOST/DATABASE"


def open_database(where: str | Path | MemoryDatabase, *, create: bool, max_bytes: int | None) -> Database:
    """Open the connections to a database; it need not contain any table yet.

    Raises:
        StoreError: the URL is not understood, or the database cannot be opened.
    """
    if isinstance(where, MemoryDatabase):
        return open_memory(where)
    if isinstance(where, str) and "://" in where:
        url = parse_url(where)
        if url.get_backend_name() == "postgresql":
            from hal.store.postgres import open_postgres

            return open_postgres(url)
        if url.database in (None, "", ":memory:"):
            return open_memory(None)
        where = str(url.database)
    return open_file(Path(where).absolute(), create=create, max_bytes=max_bytes)


def parse_url(where: str) -> URL:
    """Parse the URL of a database that HAL supports.

    Raises:
        StoreMissing: HAL does not support it; the message contains no password.
    """
    try:
        url = make_url(where)
    except (ArgumentError, ValueError) as error:
        # The URL may contain a password: the message quotes only the part before it.
        scheme = where.partition("://")[0][:20]
        raise StoreMissing(f"'{scheme}://…' is not a database URL", hint=HOW_TO_WRITE) from error
    if url.drivername == "postgres":
        url = url.set(drivername="postgresql")
    if url.drivername not in ("sqlite", "postgresql", "postgresql+psycopg"):
        raise StoreMissing(f"'{url.drivername}' databases are not supported by HAL", hint=HOW_TO_WRITE)
    return url
