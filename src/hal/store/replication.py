"""The standbys of a PostgreSQL database, and whether HAL's guarantees survive the loss of its server.

HAL's guarantees are those of COMMIT: when a standby takes over, only what a synchronous standby has acknowledged is
kept.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from sqlalchemy import Connection, text

SYNCHRONOUS: Final = frozenset({"sync", "quorum"})
"""Values of `pg_stat_replication.sync_state` for a standby that commits wait for."""
NOT_WAITING: Final = frozenset({"off", "local"})
"""Values of `synchronous_commit` under which commits wait for no standby."""
MAX_STANDBYS: Final = 32

# Neither a base backup in progress nor a logical subscriber is a standby.
_STANDBYS: Final = text(
    "SELECT r.application_name, r.state, r.sync_state FROM pg_stat_replication r "
    "LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid "
    "WHERE coalesce(r.state, '') <> 'backup' AND coalesce(s.slot_type, 'physical') = 'physical' "
    f"ORDER BY r.application_name, r.pid LIMIT {MAX_STANDBYS}"
)
_COMMITS: Final = text("SELECT current_setting('synchronous_commit')")
_MAY_SEE: Final = text("SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')")


class Standby(Struct, frozen=True):
    """One server that copies this database."""

    name: str
    state: str
    """`streaming` when it keeps up."""
    synchronous: bool
    """Commits wait for it."""


class Replication(Struct, frozen=True, kw_only=True):
    """All standbys of a database."""

    standbys: tuple[Standby, ...] = ()
    hidden: int = 0
    """Standbys whose details this user may not see."""
    waits: bool = True
    """Commits wait for the synchronous standbys."""

    def warnings(self) -> list[str]:
        """Warnings for people, one sentence each."""
        if self.hidden:
            return [
                f"{self.hidden} standby(s) copy the database; HAL's user cannot see whether one is synchronous: "
                "GRANT pg_read_all_stats TO it"
            ]
        names = ", ".join(one.name or "(no name)" for one in self.standbys)
        if self.standbys and not any(one.synchronous for one in self.standbys):
            return [
                f"no standby of the database is synchronous ({names}): the last answered requests are lost "
                "if its server is; set synchronous_standby_names"
            ]
        if self.standbys and not self.waits:
            return [
                f"commits do not wait for the synchronous standby of the database ({names}): "
                "set synchronous_commit = on"
            ]
        return []


def read_replication(connection: Connection) -> Replication:
    """Read the standbys from the server of this connection."""
    rows = connection.execute(_STANDBYS).all()
    waits = connection.execute(_COMMITS).scalar() not in NOT_WAITING
    if rows and not connection.execute(_MAY_SEE).scalar():
        return Replication(hidden=len(rows), waits=waits)
    standbys = tuple(Standby(name or "", state or "", sync in SYNCHRONOUS) for name, state, sync in rows)
    return Replication(standbys=standbys, waits=waits)
