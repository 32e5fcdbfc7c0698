"""The connections to one database, whichever it is: transactions to write and to read in, clear errors.

`sqlite` and `postgres` say what differs: settings, how a second controller is kept out, what an error of the driver
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
    """What the driver raises where SQLAlchemy is not between."""

    def __init__(self, writer: Engine, reader: Engine, lease: Engine, place: str) -> None:
        self.writer = writer
        self.reader = reader
        self.lease = lease
        """Renews the lease, beside the writer."""
        self.place = place
        """What to call it in errors; never with a password."""
        self.leased = False
        """Who leads holds a lease that runs out (see `leadership`); else the host's own lock decides."""

    @abstractmethod
    def now_ms(self) -> ColumnElement[int]:
        """The database's own clock, milliseconds since 1970, as an expression."""

    @abstractmethod
    def flush(self) -> None:
        """What was committed before this call survives a power failure when it returns. May run beside the writer.

        Raises:
            FlushFailed: the disk refused; what it holds now nobody knows.
        """

    @abstractmethod
    def lock(self, holder: str) -> None:
        """Keep every other process of this host from leading, until `close` or until this process is gone.

        Raises:
            StoreBusy: another one holds it; names it.
        """

    @abstractmethod
    def alone(self, connection: Connection) -> None:
        """Wait, in a transaction that writes, until no other one changes the tables."""

    @abstractmethod
    def error_of(self, error: BaseException | None, doing: str) -> StoreError:
        """The `StoreError` for what the driver said while `doing`."""

    @abstractmethod
    def nothing_written(self, error: BaseException | None) -> bool:
        """Whether this error of COMMIT itself leaves no doubt that nothing became durable."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections and let go of the lock."""

    def replication(self, connection: Connection) -> Replication:
        """Who copies this database, as far as its server says; nobody, where there is no server."""
        return Replication()

    @contextmanager
    def writing(self, doing: str) -> Iterator[Connection]:
        """A transaction of the one who writes; it is committed at the end, rolled back on any error.

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
                    f"{known.message}; whether it is durable is not known", hint="look the commit id up"
                ) from error

    @contextmanager
    def renewing(self, doing: str) -> Iterator[Connection]:
        """A short transaction that never waits for the writer."""
        with self.translated(doing), self.lease.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def reading(self, doing: str) -> Iterator[Connection]:
        """One consistent view of what is committed."""
        with self.translated(doing), self.reader.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def translated(self, doing: str) -> Iterator[None]:
        """Turns the driver's errors into `StoreError`s that say what was being done and what to do next."""
        try:
            yield
        except DBAPIError as error:
            raise self.error_of(error.orig, doing) from error
        except SQLAlchemyError as error:
            raise StoreError(f"{doing}: the store {self.place} failed ({type(error).__name__}: {error})") from error
        except self.driver_errors as error:
            raise self.error_of(error, doing) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise GroupRefused(f"{doing}: a value cannot be stored ({error})") from error
