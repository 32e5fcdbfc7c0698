"""PostgreSQL through psycopg 3: its connections, its errors in our words.

A commit is durable when COMMIT has returned (`synchronous_commit` as the server has it, so a synchronous standby
counts), and `flush` has nothing to do. Nobody's lock lasts: a writer that stands still inside a transaction is put out
by the server, so that a stopped leader keeps no other from taking its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import psycopg
from sqlalchemy import ColumnElement, Connection, Engine, create_engine, event, literal_column
from sqlalchemy.engine import URL
from sqlalchemy.types import BigInteger

from hal.store.database import READER_WAIT_S, READERS, Database
from hal.store.errors import (
    GroupRefused,
    NotAStore,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreMissing,
    StoreReadOnly,
    StoreUnreachable,
)
from hal.store.replication import Replication, read_replication

CONNECT_TIMEOUT_S: Final = 5
LOST_AFTER_MS: Final = 5_000
"""A server that acknowledges nothing for so long is gone (TCP)."""
STANDSTILL_MS: Final = 2_000
"""A transaction whose client says nothing for so long is ended by the server: less than a leader's lease."""
LOCK_WAIT_MS: Final = 5_000
"""How long a statement waits for another connection's lock."""
READ_STANDSTILL_MS: Final = 60_000
_CONNECT: Final[dict[str, str | int]] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "application_name": "hal",
    "client_encoding": "utf8",
    "tcp_user_timeout": LOST_AFTER_MS,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}
"""For libpq, where the URL does not say otherwise."""
LEASE_STATEMENT_MS: Final = 1_500
"""A renewal that takes longer is given up: the next one is due."""

_BY_KEY: Final = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
"""Every row that is written is found by its key. A plan that was made while a table was small would read all of it."""

_MIGRATION_LOCK: Final = 0x48414C
"""Of two controllers that find an old schema, one brings it up to date."""

_NOW_MS: Final[ColumnElement[int]] = literal_column(
    "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)", BigInteger()
)


class PostgresDatabase(Database):
    """A database of a PostgreSQL server."""

    driver_errors = (psycopg.Error,)

    def __init__(self, writer: Engine, reader: Engine, lease: Engine, place: str, secret: str) -> None:
        super().__init__(writer, reader, lease, place)
        self.leased = True
        self._secret = secret

    def now_ms(self) -> ColumnElement[int]:
        """See `Database`."""
        return _NOW_MS

    def flush(self) -> None:
        """COMMIT has done it."""

    def lock(self, holder: str) -> None:
        """The lease decides, not a lock of this host."""

    def alone(self, connection: Connection) -> None:
        """See `Database`."""
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")

    def error_of(self, error: BaseException | None, doing: str) -> StoreError:
        """See `Database`."""
        return postgres_error(error, doing, self.place, self._secret)

    def nothing_written(self, error: BaseException | None) -> bool:
        """An error that the server gave to COMMIT; not one that came because it or the connection ended."""
        state = getattr(error, "sqlstate", None)
        return state is not None and not state.startswith(("08", "57"))

    def replication(self, connection: Connection) -> Replication:
        """See `Database`."""
        return read_replication(connection)

    def close(self) -> None:
        """Close all connections."""
        for engine in (self.reader, self.writer, self.lease):
            engine.dispose()


def open_postgres(url: URL) -> PostgresDatabase:
    """The connections to a database of a server, made when they are first used.

    Raises:
        StoreMissing: the URL names no database.
    """
    place = place_of(url)
    if not url.database:
        raise StoreMissing(f"{place}: the URL names no database", hint="write postgresql://USER@HOST/DATABASE")
    driven = url.set(drivername="postgresql+psycopg")
    writer = _engine(driven, 1, f"{_settings(STANDSTILL_MS, lock_timeout=LOCK_WAIT_MS)}; {_BY_KEY}")
    lease = _engine(
        driven, 1, _settings(STANDSTILL_MS, lock_timeout=LEASE_STATEMENT_MS, statement_timeout=LEASE_STATEMENT_MS)
    )
    reader = _engine(
        driven,
        READERS,
        _settings(READ_STANDSTILL_MS),
        isolation_level="REPEATABLE READ",
        execution_options={"postgresql_readonly": True},
    )
    return PostgresDatabase(writer, reader, lease, place, str(url.password or ""))


def place_of(url: URL) -> str:
    """The URL without its password and its parameters, which may hold one."""
    return url.set(drivername="postgresql", password=None, query={}).render_as_string(hide_password=True)


def _settings(standstill_ms: int, **timeouts: int) -> str:
    # HAL's statements are small: compiling one costs more than all of them.
    values = {"idle_in_transaction_session_timeout": standstill_ms, "jit": "off", **timeouts}
    return "; ".join(f"SET {name} = {value}" for name, value in values.items())


def _engine(url: URL, connections: int, settings: str, **options: Any) -> Engine:
    engine = create_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=READER_WAIT_S,
        pool_pre_ping=True,
        connect_args={name: value for name, value in _CONNECT.items() if name not in url.query},
        **options,
    )
    event.listen(engine, "connect", _prepared_with(settings))
    return engine


def _prepared_with(settings: str) -> Callable[[psycopg.Connection[Any], object], None]:
    def connected(connection: psycopg.Connection[Any], _record: object) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise psycopg.NotSupportedError(f"the database's encoding is {encoding}, HAL needs UTF8")
        before, connection.autocommit = connection.autocommit, True
        connection.execute(settings)
        connection.autocommit = before

    return connected


_BY_STATE: Final[tuple[tuple[str, type[StoreError], str, str], ...]] = (
    ("53100", StoreFull, "no space left", "free some space on its server; nothing of this was written"),
    ("53", StoreBusy, "the server is short of something", "see max_connections and memory of the server"),
    ("23", GroupRefused, "contradicts what is stored", ""),
    ("22", GroupRefused, "a value cannot be stored", ""),
    ("25006", StoreReadOnly, "it cannot be written", "is it a standby? name the primary in store.url"),
    ("25P03", StoreUnreachable, "the server ended a transaction that stood still", "was this process stopped?"),
    ("42501", StoreReadOnly, "its user may not do that", "make that user the owner of the database"),
    (
        "28",
        StoreReadOnly,
        "the server refuses this user",
        "user and password of store.url, and pg_hba.conf",
    ),
    ("3D000", StoreMissing, "there is no such database", "make it: createdb -E UTF8 NAME"),
    (
        "55P03",
        StoreBusy,
        f"locked by another connection for {LOCK_WAIT_MS // 1000} s",
        "who else uses it?",
    ),
    ("57014", StoreBusy, "the server took too long", "is it overloaded?"),
    ("57", StoreUnreachable, "the server is stopping or starting", "commits go on when it is back"),
    ("08", StoreUnreachable, "the connection was lost", "commits go on when the server answers again"),
    ("XX00", NotAStore, "it is damaged", "restore it from a backup"),
)
"""By the beginning of the SQLSTATE; the first that fits."""


def postgres_error(error: BaseException | None, doing: str, place: str, secret: str = "") -> StoreError:
    """The `StoreError` for what the driver said while `doing`."""
    text = " ".join(str(error).split())
    if secret:
        text = text.replace(secret, "…")
    state = getattr(error, "sqlstate", None)
    if state is None and isinstance(error, psycopg.OperationalError):
        return StoreUnreachable(
            f"{doing}: the store {place} does not answer ({text})", hint="does its server run, and is store.url right?"
        )
    if state is None and isinstance(error, psycopg.DataError):
        return GroupRefused(f"{doing}: a value cannot be stored ({text})")
    if state is None and isinstance(error, psycopg.NotSupportedError):
        return NotAStore(f"{doing}: {place}: {text}", hint="make the database with: createdb -E UTF8 -T template0 NAME")
    for begins, kind, what, hint in _BY_STATE:
        if state is not None and state.startswith(begins):
            return kind(f"{doing}: the store {place}: {what} ({text})", hint=hint)
    return StoreError(f"{doing}: the store {place} failed ({state or type(error).__name__}: {text})")
