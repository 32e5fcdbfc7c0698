"""SQLite: its settings, the lock that keeps out a second controller of this host, and its errors in HAL's words.

WAL mode: a commit survives the death of any process at once, and a power failure once `flush` has returned. Readers use
connections of their own and never wait for the writer.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import ColumnElement, Connection, Engine, Integer, create_engine, event, literal, literal_column
from sqlalchemy.pool import QueuePool, StaticPool

from hal.store.database import READER_WAIT_S, READERS, Database
from hal.store.errors import (
    FlushFailed,
    GroupRefused,
    NotAStore,
    StoreAbsent,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
)

_NOW_MS: Final[ColumnElement[int]] = literal_column(
    "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)", Integer()
)

BUSY_TIMEOUT_S: Final = 5
"""How long a connection waits for another process's lock."""
WAL_KEPT_BYTES: Final = 64 << 20
"""The size to which the write-ahead log is truncated after a checkpoint."""
CACHE_KIB: Final = 16 << 10
UNUSED_KEPT_PAGES: Final = 4_096
"""Unused pages (4 KiB) that the file keeps for new rows, and beside them a quarter of its size."""
SHRUNK_AT_ONCE: Final = 256
"""Unused pages that one call returns to the file system: it moves as many, so commits wait a few milliseconds."""
DAMAGED: Final = (
    "move it away; then run `hal restore FILE` with a backup, or `hal up --new-store`, which loses what it held"
)


class MemoryDatabase:
    """A database in memory that outlives the Store opened on it, like the disk of a virtual host.

    Opening a Store on it again models a process that was killed and restarted: whatever was not committed is rolled
    back. One Store at a time, one thread at a time.
    """

    _empty: bytes = b""
    """A migrated, empty database: thousands of virtual hosts are copied from it without running migrations."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        """
        Args:
            clock: the database's own clock, for one that several hosts reach, as they do a PostgreSQL server: then
                several Stores may be open, and who leads holds a lease by this clock.
        """
        self.clock = clock
        self.connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        if MemoryDatabase._empty:
            self.connection.deserialize(MemoryDatabase._empty)

    def roll_back(self) -> None:
        """Discard what was not committed."""
        if self.connection.in_transaction:
            self.connection.rollback()

    def keep_as_empty(self) -> None:
        """Keep a copy of this freshly migrated database as the origin of new ones."""
        if not MemoryDatabase._empty:
            MemoryDatabase._empty = self.connection.serialize()


class SqliteDatabase(Database):
    """A file, or a database in memory."""

    driver_errors = (sqlite3.Error,)

    def __init__(self, writer: Engine, reader: Engine, location: str, path: Path | None) -> None:
        super().__init__(writer, reader, writer, location)
        self.clock: Callable[[], int] | None = None
        """The connection that renews the lease of a database that several hosts reach."""
        self.path = path
        """Its file, if it has one."""
        self._lock: int | None = None
        self._log: int | None = None
        self._file: os.stat_result | None = None
        """The open file, once something was flushed."""

    def now_ms(self) -> ColumnElement[int]:
        """SQLite's clock, or the one of a memory database, as an SQL expression."""
        return _NOW_MS if self.clock is None else literal(self.clock())

    def flush(self) -> None:
        """Return once everything committed before this call survives a power failure. May run beside the writer.

        The write-ahead log is one file for as long as a connection is open, and recovery reads every whole commit in
        it, so flushing that file is what synchronous=FULL does at each commit.

        Raises:
            FlushFailed: the disk refused, or the files were removed or replaced; what the disk holds is unknown.
        """
        if self.path is None:
            return
        log = self.path.with_name(self.path.name + "-wal")
        try:
            if self._log is None:
                self._log = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                self._file = os.stat(self.path)
            os.fdatasync(self._log)
            replaced = not (
                self._file is not None
                and os.path.samestat(os.stat(self.path), self._file)
                and os.path.samestat(os.stat(log), os.fstat(self._log))
            )
        except FileNotFoundError:
            replaced = True
        except OSError as error:
            raise FlushFailed(
                f"flushing the store {self.location}: {error.strerror}",
                hint="the disk is failing; the controller must restart from what it holds",
            ) from error
        if replaced:
            raise FlushFailed(
                f"the store {self.location} was removed or replaced while HAL ran: further writes would be lost",
                hint="start HAL again: `hal up` shows what can be done",
            )

    def lock(self, holder: str) -> None:
        """Keep every other process from leading on this file until `close`, or until this process ends.

        Raises:
            StoreBusy: another process holds the lock; the message names it.
        """
        if self.path is None or self._lock is not None:
            return
        path = self.path.with_name(self.path.name + ".lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreReadOnly(f"the store's lock {path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.read(descriptor, 512).decode(errors="replace").strip() or "another process"
            os.close(descriptor)
            raise StoreBusy(
                f"the store {self.location} is in use by {other}",
                hint="stop that controller first (`hal down`), or use another HAL_HOME",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder.encode(), 0)
        self._lock = descriptor

    def lock_schema(self, connection: Connection) -> None:
        """Do nothing: the transaction already holds the write lock."""

    def error_of(self, error: BaseException | None, doing: str) -> StoreError:
        """The `StoreError` for an error that the driver raised while `doing`."""
        return store_error(error, doing, self.location)

    def shrink(self, connection: Connection) -> int:
        """Move pages from the end of the file into unused ones and cut it. A file that an older HAL made (before
        auto_vacuum) stays as long as it is, and reuses its pages."""
        unused: int = connection.exec_driver_sql("PRAGMA freelist_count").scalar_one()
        pages: int = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        if unused - SHRUNK_AT_ONCE < max(UNUSED_KEPT_PAGES, pages // 4):
            return 0
        for _ in range(SHRUNK_AT_ONCE):
            # One at a time: Python's driver stops after the first page, as this pragma gives rows without columns.
            connection.exec_driver_sql("PRAGMA incremental_vacuum(1)")
        return unused - int(connection.exec_driver_sql("PRAGMA freelist_count").scalar_one())

    def size_bytes(self, connection: Connection) -> int:
        """Its file and its log; in memory its pages."""
        if self.path is None:
            pages: int = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            return pages * int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return sum(os.stat(file).st_size for file in files if file.exists())

    def nothing_written(self, error: BaseException | None) -> bool:
        """Whether this error of COMMIT proves that nothing became durable."""
        name = getattr(error, "sqlite_errorname", "") or ""
        return name.startswith(("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_CONSTRAINT", "SQLITE_READONLY"))

    def close(self) -> None:
        """Close all connections and release the lock."""
        if self._log is not None:
            os.close(self._log)
            self._log = None
        if self.path is not None:
            # A connection in memory belongs to its MemoryDatabase, which outlives this object.
            self.reader.dispose()
            self.writer.dispose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def open_memory(where: MemoryDatabase | None) -> SqliteDatabase:
    """Open a database in memory; None: a new one, gone when closed."""
    kept = MemoryDatabase() if where is None else where
    kept.roll_back()
    database = _in_memory(lambda: kept.connection, "in memory")
    database.clock, database.leased = kept.clock, kept.clock is not None
    return database


def open_file(path: Path, *, create: bool, max_bytes: int | None) -> SqliteDatabase:
    """Open the connections to a file; it need not contain any table yet.

    Raises:
        StoreError: it cannot be opened.
    """
    if not path.exists() and not create:
        raise StoreAbsent(f"there is no store at {path}", hint="`hal up` creates one")
    if path.is_dir():
        raise NotAStore(f"{path} is a directory", hint="give the path of the database file")
    if not path.parent.is_dir():
        raise StoreMissing(f"the directory {path.parent} for the store does not exist")
    # SQLite would report that it cannot open the file: it needs its log and lock beside it.
    for checked in (path.parent, path):
        if checked.exists() and not os.access(checked, os.R_OK | os.W_OK, effective_ids=True):
            raise StoreReadOnly(f"the store {path} cannot be written: no permission for {checked}", hint="who owns it?")
    mode = "rwc" if create else "rw"
    uri = f"file:{quote(str(path))}?mode={mode}"

    def connect(*settings: str) -> Callable[[], sqlite3.Connection]:
        def opened() -> sqlite3.Connection:
            connection = sqlite3.connect(
                uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            try:
                for setting in settings:
                    connection.execute(f"PRAGMA {setting}").close()
            except sqlite3.Error:
                connection.close()
                raise
            return connection

        return opened

    shared = ("foreign_keys=ON", f"cache_size=-{CACHE_KIB}", "temp_store=MEMORY")
    # WAL before synchronous: the mode is a property of the file, the rest are properties of the connection. With
    # NORMAL, `flush` decides when the log reaches the disk; all else (checkpoints, the log's header) is flushed as with
    # FULL. A file is given auto_vacuum when it is made, which is before anything else is written to it.
    cut = f"journal_size_limit={WAL_KEPT_BYTES}"
    writes: tuple[str, ...] = (
        "auto_vacuum=INCREMENTAL",
        "journal_mode=WAL",
        "synchronous=NORMAL",
        cut,
        *shared,
    )
    if max_bytes is not None:
        writes = (*writes, f"max_page_count={max(max_bytes // 4096, 1)}")
    writer = _engine(connect(*writes), begin="BEGIN IMMEDIATE", pool=StaticPool)
    reader = _engine(
        connect("query_only=ON", *shared),
        begin="BEGIN",
        pool=QueuePool,
        pool_size=READERS,
        max_overflow=0,
        pool_timeout=READER_WAIT_S,
    )
    return SqliteDatabase(writer, reader, str(path), path)


def store_error(error: BaseException | None, doing: str, location: str) -> StoreError:
    """The `StoreError` for an error that the driver raised while `doing`."""
    name = getattr(error, "sqlite_errorname", "") or ""
    text = " ".join(str(error).split())
    if name == "SQLITE_FULL":
        return StoreFull(
            f"{doing}: no space left for the store {location}", hint="free some space; nothing of this was written"
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return StoreReadOnly(
            f"{doing}: the store {location} cannot be written ({text})", hint="check who owns the file"
        )
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_FORMAT")):
        return NotAStore(f"{doing}: {location} is not a database, or is damaged ({text})", hint=DAMAGED)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(
            f"{doing}: another process has locked the store {location} for more than {BUSY_TIMEOUT_S} s",
            hint="find who else has the file open",
        )
    if name.startswith("SQLITE_CANTOPEN"):
        return StoreMissing(
            f"{doing}: the store {location} cannot be opened ({text})", hint="check path and permissions"
        )
    if name.startswith("SQLITE_CONSTRAINT"):
        return GroupRefused(f"{doing}: contradicts what is stored ({text})")
    return StoreError(f"{doing}: the store {location} failed ({name or type(error).__name__}: {text})")


def _in_memory(connect: Callable[[], sqlite3.Connection], location: str) -> SqliteDatabase:
    connect().execute("PRAGMA foreign_keys=ON").close()
    engine = _engine(connect, begin="BEGIN IMMEDIATE", pool=StaticPool)
    return SqliteDatabase(engine, engine, location, None)


def _engine(connect: Callable[[], sqlite3.Connection], *, begin: str, pool: Any, **options: Any) -> Engine:
    engine = create_engine("sqlite://", creator=connect, poolclass=pool, paramstyle="named", **options)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine
