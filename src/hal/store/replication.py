"""Who copies a PostgreSQL database, and whether what HAL promised survives the loss of its server.

HAL's promises are those of COMMIT: where a standby takes over, only what a synchronous one has acknowledged is kept.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from sqlalchemy import Connection, text

SYNCHRONOUS: Final = frozenset({"sync", "quorum"})
"""What `pg_stat_replication.sync_state` says of a standby that commits wait for."""
NOT_WAITING: Final = frozenset({"off", "local"})
"""Values of `synchronous_commit` under which commits wait for no standby."""
MAX_STANDBYS: Final = 32

# A base backup under way is no standby, and who reads changes logically is none either.
_STANDBYS: Final = text(
    "SELECT r.application_name, r.state, r.sync_state FROM pg_stat_replication r "
    "LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid "
    "WHERE coalesce(r.state, '') <> 'backup' AND coalesce(s.slot_type, 'physical') = 'physical' "
    f"ORDER BY r.application_name, r.pid LIMIT {MAX_STANDBYS}"
)
_COMMITS: Final = text("SELECT current_setting('synchronous_commit')")
_MAY_SEE: Final = text("SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')")


class Standby(Struct, frozen=True):
    """One server that copies this one."""

    name: str
    state: str
    """`streaming` when it keeps up."""
    synchronous: bool
    """Commits wait for it."""


class Replication(Struct, frozen=True, kw_only=True):
    """All of them."""

    standbys: tuple[Standby, ...] = ()
    hidden: int = 0
    """Standbys of which this user may see nothing but that they are there."""
    waits: bool = True
    """Commits wait for the synchronous ones."""

    def warnings(self) -> list[str]:
        """What people should know, one sentence each."""
        if self.hidden:
            return [
                f"{self.hidden} standby(s) copy the database; whether one is synchronous cannot be seen by HAL's user: "
                "GRANT pg_read_all_stats TO it"
            ]
        names = ", ".join(one.name or "(no name)" for one in self.standbys)
        if self.standbys and not any(one.synchronous for one in self.standbys):
            return [
                f"no standby of the database is synchronous ({names}): what was answered last is lost when its server "
                "is; set synchronous_standby_names"
            ]
        if self.standbys and not self.waits:
            return [
                f"commits do not wait for the synchronous standby of the database ({names}): "
                "set synchronous_commit = on"
            ]
        return []


def read_replication(connection: Connection) -> Replication:
    """What the server of this connection says."""
    rows = connection.execute(_STANDBYS).all()
    waits = connection.execute(_COMMITS).scalar() not in NOT_WAITING
    if rows and not connection.execute(_MAY_SEE).scalar():
        return Replication(hidden=len(rows), waits=waits)
    standbys = tuple(Standby(name or "", state or "", sync in SYNCHRONOUS) for name, state, sync in rows)
    return Replication(standbys=standbys, waits=waits)
