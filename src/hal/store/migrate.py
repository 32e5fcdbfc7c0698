"""Migrate a database to the schema of this HAL, by running Alembic's migrations from the program.

A current database is recognised by one query, without importing Alembic. An empty one gets the tables of `schema` at
once: what all migrations together make of it. Any other is migrated inside the caller's transaction, so a crash leaves
the former schema intact.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, text

from hal.store.errors import NotAStore, StoreTooNew
from hal.store.schema import leader, metadata

HEAD: Final = "0019"
"""Revision of `schema`; revisions are four digits and ascend."""

FIRST_WITH_LEASE: Final = "0006"
"""From this revision on, the leader's row has a lease."""

VERSION_TABLE: Final = "alembic_version"
MIGRATIONS: Final = Path(__file__).parent / "migrations"


def revision_of(connection: Connection) -> str:
    """Read the revision of a database; '' when it is empty.

    Raises:
        NotAStore: it holds tables, but not HAL's.
    """
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in tables:
        if tables:
            raise NotAStore(
                f"the database holds tables that are not HAL's ({', '.join(sorted(tables)[:5])})",
                hint="choose another file, or move this one away",
            )
        return ""
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return str(found or "")


def migrate(connection: Connection) -> bool:
    """Migrate the database to `HEAD` in the connection's open transaction.

    Returns: whether anything was done.
    Raises:
        NotAStore: it holds tables of another program.
        StoreTooNew: a newer HAL wrote it.
    """
    found = revision_of(connection)
    if found == HEAD:
        return False
    if found > HEAD:
        raise StoreTooNew(
            f"the store has schema {found}, this HAL knows schemas up to {HEAD}",
            hint="a newer HAL wrote it: start that version, or use another HAL_HOME",
        )
    if not found:
        _create(connection)
        return True
    # Imported only here: a current database, the usual case, must not pay for it.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)
    return True


def _create(connection: Connection) -> None:
    """Make the tables of this HAL in an empty database, and the rows that migrations make."""
    version = Table(
        VERSION_TABLE,
        MetaData(),
        Column("version_num", String(32), nullable=False),
        PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
    )
    metadata.create_all(connection, checkfirst=False)
    version.create(connection, checkfirst=False)
    connection.execute(insert(version).values(version_num=HEAD))
    connection.execute(insert(leader).values(id=1, epoch=0, holder="", taken_ms=0))
