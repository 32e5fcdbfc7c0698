"""PostgreSQL through psycopg 3: its connections, and its errors in HAL's words.

A commit is durable when COMMIT has returned (with the server's `synchronous_commit`, so a synchronous standby counts),
and `flush` does nothing. No lock lasts: the server ends the transaction of a writer that stands still, so a stopped
leader cannot keep others from taking over.
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
"""A server that acknowledges nothing for this long is considered gone (TCP)."""
STANDSTILL_MS: Final = 2_000
"""The server ends a transaction whose client has been idle for this long; less than a leader's lease."""
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
"""For libpq, unless the URL sets them."""
LEASE_STATEMENT_MS: Final = 1_500
"""A renewal that takes longer is abandoned, because the next one is due."""

_BY_KEY: Final = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off"
"""Every row that is written is found by its key. A plan made while a table was small would read the whole table."""

_MIGRATION_LOCK: Final = 0x48414C
"""When two controllers find an old schema, one of them migrates it."""

_NOW_MS: Final[ColumnElement[int]] = literal_column(
    "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)", BigInteger()
)


class PostgresDatabase(Database):
    """A database of a PostgreSQL server."""

    driver_errors = (psycopg.Error,)

    def __init__(self, writer: Engine, reader: Engine, lease: Engine, location: str, secret: str) -> None:
        super().__init__(writer, reader, lease, location)
        self.leased = True
        self._secret = secret

    def now_ms(self) -> ColumnElement[int]:
        """The server's clock, as an SQL expression."""
        return _NOW_MS

    def flush(self) -> None:
        """Do nothing: COMMIT has already flushed."""

    def lock(self, holder: str) -> None:
        """Do nothing: the lease decides, not a lock of this host."""

    def lock_schema(self, connection: Connection) -> None:
        """Take the advisory lock for migrations, until the transaction ends."""
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")

    def error_of(self, error: BaseException | None, doing: str) -> StoreError:
        """The `StoreError` for an error that the driver raised while `doing`."""
        return postgres_error(error, doing, self.location, self._secret)

    def nothing_written(self, error: BaseException | None) -> bool:
        """Whether the server itself refused COMMIT, as opposed to an error because the server or the connection
        ended."""
        state = getattr(error, "sqlstate", None)
        return state is not None and not state.startswith(("08", "57"))

    def size_bytes(self, connection: Connection) -> int:
        """As its server says."""
        return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())

    def replication(self, connection: Connection) -> Replication:
        """The standbys in `pg_stat_replication`."""
        return read_replication(connection)

    def close(self) -> None:
        """Close all connections."""
        for engine in (self.reader, self.writer, self.lease):
            engine.dispose()


def open_postgres(url: URL) -> PostgresDatabase:
    """Prepare the connections to a server's database; each is opened when first used.

    Raises:
        StoreMissing: the URL names no database.
    """
    location = location_of(url)
    if not url.database:
        raise StoreMissing(f"{location}: the URL names no database", hint="write postgresql://USER@HOST/DATABASE")
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
    return PostgresDatabase(writer, reader, lease, location, str(url.password or ""))


def location_of(url: URL) -> str:
    """The URL without its password and its parameters, which may contain one."""
    return url.set(drivername="postgresql", password=None, query={}).render_as_string(hide_password=True)


def _settings(standstill_ms: int, **timeouts: int) -> str:
    # HAL's statements are small: compiling one costs more than executing all of them.
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
    ("53", StoreBusy, "the server lacks a resource", "see max_connections and memory of the server"),
    ("23", GroupRefused, "contradicts what is stored", ""),
    ("22", GroupRefused, "a value cannot be stored", ""),
    ("25006", StoreReadOnly, "it is read-only", "is it a standby? name the primary in store.url"),
    ("25P03", StoreUnreachable, "the server ended an idle transaction", "was this process suspended?"),
    ("42501", StoreReadOnly, "its user lacks the permission", "make that user the owner of the database"),
    (
        "28",
        StoreReadOnly,
        "the server refused this user",
        "check user and password in store.url, and pg_hba.conf",
    ),
    ("3D000", StoreMissing, "the database does not exist", "create it: createdb -E UTF8 NAME"),
    (
        "55P03",
        StoreBusy,
        f"locked by another connection for {LOCK_WAIT_MS // 1000} s",
        "find out who else uses it",
    ),
    ("57014", StoreBusy, "the server took too long", "is it overloaded?"),
    ("57", StoreUnreachable, "the server is stopping or starting", "commits continue when it is back"),
    ("08", StoreUnreachable, "the connection was lost", "commits continue when the server answers again"),
    ("XX00", NotAStore, "it is damaged", "restore it from a backup"),
)
"""By the beginning of the SQLSTATE; the first match applies."""


def postgres_error(error: BaseException | None, doing: str, location: str, secret: str = "") -> StoreError:
    """The `StoreError` for an error that the driver raised while `doing`."""
    text = " ".join(str(error).split())
    if secret:
        text = text.replace(secret, "…")
    state = getattr(error, "sqlstate", None)
    if state is None and isinstance(error, psycopg.OperationalError):
        return StoreUnreachable(
            f"{doing}: the store {location} does not answer ({text})",
            hint="check that its server runs and that store.url is right",
        )
    if state is None and isinstance(error, psycopg.DataError):
        return GroupRefused(f"{doing}: a value cannot be stored ({text})")
    if state is None and isinstance(error, psycopg.NotSupportedError):
        return NotAStore(
            f"{doing}: {location}: {text}", hint="create the database with: createdb -E UTF8 -T template0 NAME"
        )
    for begins, kind, what, hint in _BY_STATE:
        if state is not None and state.startswith(begins):
            return kind(f"{doing}: the store {location}: {what} ({text})", hint=hint)
    return StoreError(f"{doing}: the store {location} failed ({state or type(error).__name__}: {text})")
