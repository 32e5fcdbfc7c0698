"""Whether what HAL answered survives the loss of the database's server: real standbys, asynchronous and synchronous."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from typing import Final

import pytest

from hal.store import Store
from tests.postgres_server import PostgresServer, database_of

pytestmark = pytest.mark.slow

LIMIT_S: Final = 60.0


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server whose settings these tests change."""
    server = PostgresServer()
    yield server
    server.remove()


def until_warned(store: Store, words: str) -> None:
    """Until the only warning has these words; '': until there is none."""
    end_s = time.monotonic() + LIMIT_S
    while True:
        told = store.replication().warnings()
        if (words in told[0] if told else False) if words else not told:
            assert len(told) <= 1
            return
        assert time.monotonic() < end_s, f"never '{words}'; last: {told}"
        select.select([], [], [], 0.02)


def test_a_standby_that_nobody_waits_for_is_warned_of(own_server: PostgresServer) -> None:
    """Without standbys nothing is said; of an asynchronous one, that it loses what was answered last; of what HAL's
    user may not see, how to let it; a synchronous one is all right, as long as commits wait for it."""
    url = own_server.fresh()
    name = database_of(url)
    with own_server.admin(name) as admin, own_server.standby("s1"):
        admin.execute("CREATE ROLE hal LOGIN")
        admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO hal")
        owner, user = Store.open(url), Store.open(url.replace("postgres@", "hal@"))
        try:
            until_warned(owner, "no standby of the database is synchronous (s1)")
            until_warned(user, "GRANT pg_read_all_stats")
            admin.execute("GRANT pg_read_all_stats TO hal")
            until_warned(user, "no standby of the database is synchronous (s1)")
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            admin.execute("SELECT pg_reload_conf()")
            until_warned(owner, "")
            assert [one.synchronous for one in owner.replication().standbys] == [True]
            admin.execute("ALTER SYSTEM SET synchronous_commit = 'local'")
            admin.execute("SELECT pg_reload_conf()")
            until_warned(owner, "do not wait for the synchronous standby")
        finally:
            owner.close()
            user.close()
    alone = Store.open(own_server.fresh())
    until_warned(alone, "")
    alone.close()
