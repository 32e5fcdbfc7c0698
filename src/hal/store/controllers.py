"""The controllers that share a store. Each of them, leader and followers, announces itself; no decision depends on
it.

The rows are for people, and for the leader, which accepts requests forwarded by a follower: the follower presents a
secret whose hash is stored here. Ages are measured by the database's own clock.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import Connection, delete, insert, literal, select
from sqlalchemy.dialects import postgresql, sqlite

from hal.store import schema
from hal.store.bulk import POSTGRESQL
from hal.store.database import Database

HEARD_EVERY_MS: Final = 5_000
"""How often a controller announces itself."""
SILENT_MS: Final = 15_000
"""A controller that has announced nothing for this long is considered gone."""
FORGOTTEN_MS: Final = 600_000
"""How long a silent controller is still listed."""
MAX_SHOWN: Final = 32


class ControllerRow(Struct, frozen=True, kw_only=True):
    """One controller."""

    id: str
    """Derived from its host and HAL_HOME: the same after a restart."""
    version: str = ""
    rest: str = ""
    """Where clients reach it: `unix:PATH` and URLs, separated by spaces."""
    wire: str = ""
    """Where agents of other machines connect; '' if they cannot."""
    pid: int = 0
    epoch: int = 0
    """The epoch of its leadership; 0: it is a follower."""
    since_ms: int = 0
    """When it became leader or follower."""
    secret_hash: str = ""
    """SHA-256, in hex, of the secret that it presents with requests that it forwards."""
    silent_ms: int = 0
    """Time since its last announcement; computed when read, not stored."""


_C: Final = schema.controllers.c
_KEPT: Final = tuple(name for name in ControllerRow.__struct_fields__ if name != "silent_ms")


def announce(connection: Connection, database: Database, row: ControllerRow) -> None:
    """Insert or replace the controller's row, and delete those that have been silent for `FORGOTTEN_MS`."""
    now = database.now_ms()
    old = _C.heard_ms < now - literal(FORGOTTEN_MS, _C.heard_ms.type)
    connection.execute(delete(schema.controllers).where((_C.id == row.id) | old))
    values = {name: value for name, value in asdict(row).items() if name in _KEPT}
    connection.execute(insert(schema.controllers).values(**values, heard_ms=now))


def forget_controller(connection: Connection, controller: str) -> None:
    """Delete the row of a controller."""
    connection.execute(delete(schema.controllers).where(_C.id == controller))


def read_controllers(connection: Connection, database: Database) -> list[ControllerRow]:
    """Read all rows, by id."""
    columns = [_C[name] for name in _KEPT]
    query = select(*columns, database.now_ms() - _C.heard_ms).order_by(_C.id).limit(MAX_SHOWN)
    return [
        ControllerRow(**dict(zip(_KEPT, row[:-1], strict=True)), silent_ms=max(0, row[-1]))
        for row in connection.execute(query)
    ]


def claim_fact(connection: Connection, key: str, value: str) -> str:
    """Store a fact unless it is already stored; returns the stored value, which is that of the first writer."""
    add = postgresql.insert if connection.dialect.name == POSTGRESQL else sqlite.insert
    connection.execute(add(schema.meta).values(key=key, value=value).on_conflict_do_nothing())
    return str(connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == key)).scalar_one())
