"""The connections to one database of either kind: transactions for writing and for reading, and readable errors.

`sqlite` and `postgres` implement what differs: settings, how a second controller is kept out, and what a driver's error
means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

from sqlalchemy import ColumnElement, Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from hal.store.errors import CommitUnknown, GroupRefused, StoreError
from hal.store.replication import Replication

READERS: Final = 4
"""Connections for reading; a further reader waits for one of them."""
READER_WAIT_S: Final = 30


class Database(ABC):
    """The connections to one database."""

    driver_errors: ClassVar[tuple[type[Exception], ...]]
    """The errors that the driver raises where SQLAlchemy is not in between."""

    def __init__(self, writer: Engine, reader: Engine, lease: Engine, location: str) -> None:
        self.writer = writer
        self.reader = reader
        self.lease = lease
        """Renews the lease, beside the writer."""
        self.location = location
        """Its name in error messages; never contains a password."""
        self.leased = False
        """True: a leader holds a lease that expires (see `leadership`). False: a lock of the host decides who leads."""

    @abstractmethod
    def now_ms(self) -> ColumnElement[int]:
        """The database's own clock, milliseconds since 1970, as an expression."""

    @abstractmethod
    def flush(self) -> None:
        """Return once everything committed before this call survives a power failure. May run beside the writer.

        Raises:
            FlushFailed: the disk refused; its contents are unknown.
        """

    @abstractmethod
    def lock(self, holder: str) -> None:
        """Keep every other process of this host from leading, until `close` or until this process ends.

        Raises:
            StoreBusy: another process holds the lock; the message names it.
        """

    @abstractmethod
    def lock_schema(self, connection: Connection) -> None:
        """Wait, in a writing transaction, until no other connection changes the tables."""

    @abstractmethod
    def error_of(self, error: BaseException | None, doing: str) -> StoreError:
        """The `StoreError` for an error that the driver raised while `doing`."""

    @abstractmethod
    def nothing_written(self, error: BaseException | None) -> bool:
        """Whether this error of COMMIT proves that nothing became durable."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections and release the lock."""

    def shrink(self, connection: Connection) -> int:
        """Return some unused space to the file system; returns how many pages. A server does this by itself."""
        return 0

    @abstractmethod
    def size_bytes(self, connection: Connection) -> int:
        """What it takes of the disk, with the log that is not yet in it."""

    def replication(self, connection: Connection) -> Replication:
        """The standbys that copy this database, as far as its server shows them; none where there is no server."""
        return Replication()

    @contextmanager
    def writing(self, doing: str) -> Iterator[Connection]:
        """Open the writer's transaction; it is committed at the end, and rolled back on any error.

        Raises:
            CommitUnknown: COMMIT failed in a way that leaves open whether it is durable.
            StoreError: nothing was written.
        """
        with self.translated(doing), self.writer.connect() as connection, connection.begin() as transaction:
            yield connection
            try:
                transaction.commit()
            except DBAPIError as error:
                known = self.error_of(error.orig, doing)
                if self.nothing_written(error.orig):
                    raise known from error
                raise CommitUnknown(
                    f"{known.message}; it is not known whether the commit is durable", hint="look up the commit id"
                ) from error

    @contextmanager
    def renewing(self, doing: str) -> Iterator[Connection]:
        """Open a short transaction that never waits for the writer."""
        with self.translated(doing), self.lease.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def reading(self, doing: str) -> Iterator[Connection]:
        """Open a consistent view of what is committed."""
        with self.translated(doing), self.reader.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Turn the driver's errors into `StoreError`s that name the operation and the next step for the person."""
        try:
            yield
        except DBAPIError as error:
            raise self.error_of(error.orig, doing) from error
        except SQLAlchemyError as error:
            raise StoreError(f"{doing}: the store {self.location} failed ({type(error).__name__}: {error})") from error
        except self.driver_errors as error:
            raise self.error_of(error, doing) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise GroupRefused(f"{doing}: a value cannot be stored ({error})") from error
