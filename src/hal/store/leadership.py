"""Who leads: one row, its epoch and its lease, judged by the database's own clock.

A taker bumps the epoch in one transaction, and only when the lease is over. A commit holds the row (`FOR KEY SHARE`),
so a taker, who locks it `FOR UPDATE`, waits for it; a renewal, which changes no key, waits for neither
(docs/decisions/0021).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, literal, literal_column, select, update

from hal.store import schema
from hal.store.bulk import first
from hal.store.database import Database
from hal.store.errors import StaleEpoch, StoreLed

LEASE_MS: Final = 3_000
"""E: for so long a renewal holds."""
RENEW_EVERY_MS: Final = 1_000
MAX_HOLDER_BYTES: Final = 500


class Claim(Struct, frozen=True):
    """Who takes the office, and where it is reached then."""

    holder: str
    """For people: `controller, process 4711 on host`."""
    rest: str = ""
    wire: str = ""


class Leader(Struct, frozen=True):
    """The row, as of now."""

    epoch: int
    """0: nobody ever led."""
    holder: str
    taken_ms: int
    left_ms: int
    """How long the lease still holds; 0 or less: it is over, or there is none (SQLite: a lock decides)."""
    rest: str
    wire: str


_L: Final = schema.leader.c
_ONE: Final[ColumnElement[int]] = literal_column("1")
_EPOCH: Final = select(_L.epoch, _L.holder).where(_L.id == _ONE).with_for_update(read=True, key_share=True)


def check_epoch(connection: Connection, epoch: int) -> None:
    """Hold the row until the transaction ends.

    Raises:
        StaleEpoch: it has another epoch.
    """
    row = first(connection, _EPOCH)
    if row is None or row[0] != epoch:
        raise _over(epoch, row[0] if row else 0, row[1] if row else "")


def _over(epoch: int, now: int, holder: str) -> StaleEpoch:
    return StaleEpoch(
        f"epoch {epoch} is over: the store has epoch {now}, held by {holder or 'nobody'}; nothing was written",
        hint="this controller must step down",
    )


def take(connection: Connection, database: Database, claim: Claim, now_ms: int, own: int, past: int = 0) -> int:
    """The next epoch, for who claims it.

    Args:
        own: the epoch that the claimer holds now; 0: none. Its own lease does not keep it out.
        past: an epoch that the next one is to be above.
    Raises:
        StoreLed: another's lease holds.
        StaleEpoch: another has led since `own`.
    """
    query = select(_L.epoch, _L.holder, _L.expires_ms - database.now_ms()).where(_L.id == 1).with_for_update()
    epoch, holder, left_ms = connection.execute(query).one()
    if own and epoch != own:
        raise _over(own, epoch, holder)
    if database.leased and left_ms > 0 and not own:
        raise StoreLed(
            f"the store {database.place} is led by {holder} (epoch {epoch}); its lease holds for another {left_ms} ms",
            hint="a second controller waits as a follower; `hal status` shows who leads",
        )
    following = max(int(epoch), past) + 1
    values = {
        "epoch": following,
        "holder": claim.holder[:MAX_HOLDER_BYTES],
        "taken_ms": now_ms,
        "expires_ms": database.now_ms() + literal(LEASE_MS, _L.expires_ms.type),
        "rest": claim.rest,
        "wire": claim.wire,
    }
    connection.execute(update(schema.leader).where(_L.id == 1).values(values))
    return following


def put_out(connection: Connection, database: Database) -> None:
    """Before the tables change: nobody leads, and who did is refused from now on, for it knows the former tables only.

    Raises:
        StoreLed: another's lease holds.
    """
    if database.leased:
        take(connection, database, Claim("a change of the schema"), 0, 0)
        connection.execute(update(schema.leader).values(expires_ms=0))


def renew(connection: Connection, database: Database, epoch: int, lasts_ms: int = LEASE_MS) -> None:
    """The lease of that epoch holds for `lasts_ms` from now; 0 gives it up.

    Raises:
        StaleEpoch: another has taken over.
    """
    until = database.now_ms() + literal(lasts_ms, _L.expires_ms.type)
    mine = update(schema.leader).where(_L.id == 1, _L.epoch == epoch).values(expires_ms=until)
    if connection.execute(mine).rowcount != 1:
        row = connection.execute(select(_L.epoch, _L.holder).where(_L.id == 1)).one()
        raise _over(epoch, row[0], row[1])


def look(connection: Connection, database: Database) -> Leader:
    """Who leads now."""
    left = (_L.expires_ms - database.now_ms()) if database.leased else _L.expires_ms * 0
    row = connection.execute(select(_L.epoch, _L.holder, _L.taken_ms, left, _L.rest, _L.wire).where(_L.id == 1)).one()
    return Leader(*row)
