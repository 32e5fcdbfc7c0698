"""Leadership: one row with an epoch and a lease, judged by the database's own clock.

A controller that takes leadership increments the epoch in one transaction, and only when the lease has expired. A
commit holds the row (`FOR KEY SHARE`), so a taker, which locks it `FOR UPDATE`, waits for the commit; a renewal, which
changes no key, waits for neither (docs/decisions/0021).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, literal, literal_column, select, update

from hal.store import schema
from hal.store.bulk import first_row
from hal.store.database import Database
from hal.store.errors import StaleEpoch, StoreLed

LEASE_MS: Final = 3_000
"""E: how long a renewal is valid."""
RENEW_EVERY_MS: Final = 1_000
MAX_HOLDER_BYTES: Final = 500


class Claim(Struct, frozen=True):
    """Who takes leadership, and where the new leader can be reached."""

    holder: str
    """For people: `controller, process 4711 on host`."""
    rest: str = ""
    wire: str = ""


class Leader(Struct, frozen=True):
    """The leader's row, at the time of the query."""

    epoch: int
    """0: there has never been a leader."""
    holder: str
    taken_ms: int
    left_ms: int
    """Remaining time of the lease; 0 or less: it has expired, or there is none (SQLite: a lock decides)."""
    rest: str
    wire: str


_L: Final = schema.leader.c
_ONE: Final[ColumnElement[int]] = literal_column("1")
_EPOCH: Final = select(_L.epoch, _L.holder).where(_L.id == _ONE).with_for_update(read=True, key_share=True)


def check_epoch(connection: Connection, epoch: int) -> None:
    """Hold the row until the transaction ends.

    Raises:
        StaleEpoch: the row has another epoch.
    """
    row = first_row(connection, _EPOCH)
    if row is None or row[0] != epoch:
        raise _stale_epoch(epoch, row[0] if row else 0, row[1] if row else "")


def _stale_epoch(epoch: int, now: int, holder: str) -> StaleEpoch:
    return StaleEpoch(
        f"epoch {epoch} has ended: the store has epoch {now}, held by {holder or 'nobody'}; nothing was written",
        hint="this controller must step down",
    )


def take_leadership(
    connection: Connection, database: Database, claim: Claim, now_ms: int, own: int, past: int = 0
) -> int:
    """Give the claimer the next epoch.

    Args:
        own: the epoch that the claimer holds now; 0: none. Its own lease does not keep it out.
        past: the next epoch must be greater than this one.
    Returns: the next epoch.
    Raises:
        StoreLed: the lease of another leader is current.
        StaleEpoch: there has been another leader since `own`.
    """
    query = select(_L.epoch, _L.holder, _L.expires_ms - database.now_ms()).where(_L.id == 1).with_for_update()
    epoch, holder, left_ms = connection.execute(query).one()
    if own and epoch != own:
        raise _stale_epoch(own, epoch, holder)
    if database.leased and left_ms > 0 and not own:
        raise StoreLed(
            f"the store {database.location} is led by {holder} (epoch {epoch}); its lease is valid for another "
            f"{left_ms} ms",
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


def end_leadership(connection: Connection, database: Database) -> None:
    """End all leadership before the tables change: a former leader knows only the former tables, so its commits are
    refused from now on.

    Raises:
        StoreLed: the lease of another leader is current.
    """
    if database.leased:
        take_leadership(connection, database, Claim("a change of the schema"), 0, 0)
        connection.execute(update(schema.leader).values(expires_ms=0))


def renew_lease(connection: Connection, database: Database, epoch: int, lasts_ms: int = LEASE_MS) -> None:
    """Extend the lease of that epoch to `lasts_ms` from now; 0 ends it.

    Raises:
        StaleEpoch: another controller has become leader.
    """
    until = database.now_ms() + literal(lasts_ms, _L.expires_ms.type)
    mine = update(schema.leader).where(_L.id == 1, _L.epoch == epoch).values(expires_ms=until)
    if connection.execute(mine).rowcount != 1:
        row = connection.execute(select(_L.epoch, _L.holder).where(_L.id == 1)).one()
        raise _stale_epoch(epoch, row[0], row[1])


def read_leader(connection: Connection, database: Database) -> Leader:
    """Read who leads now."""
    left = (_L.expires_ms - database.now_ms()) if database.leased else _L.expires_ms * 0
    row = connection.execute(select(_L.epoch, _L.holder, _L.taken_ms, left, _L.rest, _L.wire).where(_L.id == 1)).one()
    return Leader(*row)
