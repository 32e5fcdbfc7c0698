"""One SQLite file of one part: opened, migrated, written and read beside the loop.

Writes are transactions on a thread of their own, reads run on another with a connection that cannot write, so a long
search never holds up what arrives. A commit survives the death of the process; the newest may be lost with the power
of the machine (`synchronous=NORMAL`): parts keep the cursor of what they follow in the same transaction, and read on
from there.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from hal.core.model import StoreError
from hal.runtime.interface import Runtime

T = TypeVar("T")

BUSY_TIMEOUT_S: Final = 5.0
"""How long a connection waits for another process's lock."""
WAL_KEPT_BYTES: Final = 64 << 20
"""The size to which the write-ahead log is truncated after a checkpoint."""
CACHE_KIB: Final = 8 << 10


class Database:
    """One file. It is opened by the first call that needs it, and again by the next after one has failed."""

    def __init__(self, runtime: Runtime, path: Path, migrations: Sequence[str]) -> None:
        """
        Args:
            path: the file, whose directory exists; its stem names the threads.
            migrations: scripts of SQL, in order; a file keeps how many of them it has had. Never change one that was
                released: append another.
        """
        self._runtime, self.path, self._migrations = runtime, path, tuple(migrations)
        self._lane = path.stem
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None

    async def write(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Run a call in one transaction, which is undone if it raises.

        Raises:
            StoreError: the database cannot be opened or written; nothing was.
            OverloadedError: too many calls wait already.
        """
        return await self._runtime.run_blocking(partial(self._write, call), self._lane)

    async def read(self, call: Callable[[sqlite3.Connection], T]) -> T:
        """Run a call on the connection of readers, which sees one state of the database.

        Raises:
            StoreError: the database cannot be opened or read.
            OverloadedError: too many calls wait already.
        """
        if self._reader is None:
            # Whoever writes makes the file and brings it to this version: two who did it at once would meet.
            await self._runtime.run_blocking(self._prepare, self._lane)
        return await self._runtime.run_blocking(partial(self._read, call), f"{self._lane}-reads")

    async def close(self) -> None:
        """Close both connections once the calls before have ended; a later call opens it again."""
        await self._runtime.run_blocking(self._drop_writer, self._lane)
        await self._runtime.run_blocking(self._drop_reader, f"{self._lane}-reads")

    def size_bytes(self) -> int:
        """Of the file and its write-ahead log."""
        return sum(_size(self.path.with_name(self.path.name + end)) for end in ("", "-wal"))

    # ── on the threads ────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, call: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._writer is None:
                self._writer = self._open_writer()
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                found = call(self._writer)
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
            return found
        except sqlite3.Error as error:
            self._drop_writer()
            raise self._failed(error, "written") from error

    def _read(self, call: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._reader is None:
                self._reader = self._open_reader()
            self._reader.execute("BEGIN")
            try:
                return call(self._reader)
            finally:
                if self._reader.in_transaction:
                    self._reader.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._drop_reader()
            raise self._failed(error, "read") from error

    def _prepare(self) -> None:
        if self._writer is not None and not self.path.exists():
            self._drop_writer()  # somebody has moved the file away
        try:
            if self._writer is None:
                self._writer = self._open_writer()
        except sqlite3.Error as error:
            raise self._failed(error, "opened") from error

    def _open_writer(self) -> sqlite3.Connection:
        if not self.path.exists():
            os.close(os.open(self.path, os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_WRONLY, 0o600))
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # of a new file: counts until its first table is there
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(f"PRAGMA journal_size_limit={WAL_KEPT_BYTES}")
            connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_reader(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode=ro",
            uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False,
        )  # fmt: skip
        connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        (had,) = connection.execute("PRAGMA user_version").fetchone()
        if had > len(self._migrations):
            raise StoreError(
                f"{self.path} was written by a newer HAL",
                hint="install that version again, or move the file away: the collector then begins anew",
            )
        for number, script in enumerate(self._migrations[had:], had + 1):
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}\n;PRAGMA user_version={number};COMMIT;")

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _failed(self, error: sqlite3.Error, what: str) -> StoreError:
        return StoreError(
            f"{self.path} cannot be {what}: {error}",
            hint="if the disk is full, make room; if the file is damaged, move it away: a new one is begun",
        )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
