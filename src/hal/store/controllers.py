"""The controllers that share a store: each tells of itself, leader and followers, and nobody decides by it.

What they tell is for people, and for the leader, who takes requests that a follower passes on: the follower shows a
secret of which the hash lies here. Heard by the database's own clock.
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
"""A controller tells so often that it is there."""
SILENT_MS: Final = 15_000
"""One that has told nothing for so long is not there."""
FORGOTTEN_MS: Final = 600_000
"""So long it is still listed then."""
MAX_SHOWN: Final = 32


class ControllerRow(Struct, frozen=True, kw_only=True):
    """One controller."""

    id: str
    """Its host and HAL_HOME: the same after a restart."""
    version: str = ""
    rest: str = ""
    """Where people reach it: `unix:PATH` and URLs, separated by spaces."""
    wire: str = ""
    """Where agents of other machines dial; '' where nowhere."""
    pid: int = 0
    epoch: int = 0
    """Under which it leads; 0: it follows."""
    since_ms: int = 0
    """Since when it does that."""
    secret_hash: str = ""
    """SHA-256, in hex, of what it shows with requests that it passes on."""
    silent_ms: int = 0
    """How long ago it told so; not kept."""


_C: Final = schema.controllers.c
_KEPT: Final = tuple(name for name in ControllerRow.__struct_fields__ if name != "silent_ms")


def tell(connection: Connection, database: Database, row: ControllerRow) -> None:
    """Insert or replace it, and forget those that have been silent for `FORGOTTEN_MS`."""
    now = database.now_ms()
    old = _C.heard_ms < now - literal(FORGOTTEN_MS, _C.heard_ms.type)
    connection.execute(delete(schema.controllers).where((_C.id == row.id) | old))
    values = {name: value for name, value in asdict(row).items() if name in _KEPT}
    connection.execute(insert(schema.controllers).values(**values, heard_ms=now))


def forget(connection: Connection, controller: str) -> None:
    """It is not listed any more."""
    connection.execute(delete(schema.controllers).where(_C.id == controller))


def read(connection: Connection, database: Database) -> list[ControllerRow]:
    """All, by id."""
    columns = [_C[name] for name in _KEPT]
    query = select(*columns, database.now_ms() - _C.heard_ms).order_by(_C.id).limit(MAX_SHOWN)
    return [
        ControllerRow(**dict(zip(_KEPT, row[:-1], strict=True)), silent_ms=max(0, row[-1]))
        for row in connection.execute(query)
    ]


def claim_fact(connection: Connection, key: str, value: str) -> str:
    """What the fact is: `value`, unless another was said before, or at the same time by who came first."""
    add = postgresql.insert if connection.dialect.name == POSTGRESQL else sqlite.insert
    connection.execute(add(schema.meta).values(key=key, value=value).on_conflict_do_nothing())
    return str(connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == key)).scalar_one())
