"""The store on a real PostgreSQL: its tables, what goes wrong with a server, and no error that tells a password."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from hal.core.model import JobSpec, check_spec
from hal.store import (
    CommitUnknown,
    InsertJobs,
    JobFilter,
    NotAStore,
    StaleEpoch,
    Store,
    StoreBusy,
    StoreMissing,
    StoreUnreachable,
    leadership,
)
from hal.store.database_url import open_database
from hal.store.schema import metadata
from tests.postgres_server import PostgresServer, database_of
from tests.store.cutting_proxy import Cut, CuttingProxy
from tests.store.rows import Leader, job, submitted

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that these tests may stop."""
    server = PostgresServer()
    yield server
    server.remove()


def test_the_migrations_make_the_tables_of_the_schema(postgres: PostgresServer) -> None:
    """Alembic finds no difference on PostgreSQL either."""
    url = postgres.fresh()
    database = open_database(url, create=False, max_bytes=None)
    with database.reading("comparing") as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
    database.close()


def test_controllers_that_find_an_empty_database_at_once_make_its_tables_once(postgres: PostgresServer) -> None:
    """Each waits for the other's migration and finds it done."""
    url = postgres.url(postgres.empty())
    stores: list[Store] = []
    threads = [threading.Thread(target=lambda: stores.append(Store.open(url))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(stores) == 3
    for store in stores:
        assert store.leader().epoch == 0
        store.close()


def test_tables_are_not_changed_under_a_leader_of_an_older_hal(postgres: PostgresServer) -> None:
    """A newer controller waits until the lease is over; whoever led before is refused after the change."""
    url = postgres.fresh()
    older = Store.open(url)
    leader = Leader(older)
    database = open_database(url, create=False, max_bytes=None)
    with pytest.raises(StoreBusy, match="is led by a test"), database.writing("upgrading") as connection:
        leadership.end_leadership(connection, database)
    older.resign(leader.epoch)
    with database.writing("upgrading") as connection:
        leadership.end_leadership(connection, database)
    with pytest.raises(StaleEpoch):
        leader.commit(*submitted(job(1)))
    database.close()
    older.close()


def test_those_who_only_look_make_no_tables(postgres: PostgresServer) -> None:
    """An empty database holds no store."""
    with pytest.raises(StoreMissing, match="there is no store in"):
        Store.open(postgres.url(postgres.empty()), create=False)


def test_a_database_that_is_not_there_is_named(postgres: PostgresServer) -> None:
    """With what it is called, never with the password."""
    url = postgres.url("nosuch").replace("postgres@", "postgres:hunter2@")
    with pytest.raises(StoreUnreachable, match="nosuch") as refused:
        Store.open(url)
    assert "hunter2" not in f"{refused.value} {refused.value.hint}"


def test_a_database_of_another_encoding_is_refused(postgres: PostgresServer) -> None:
    """Text that cannot be stored would be found out too late."""
    with postgres.admin() as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'SQL_ASCII' TEMPLATE template0")
    with pytest.raises(NotAStore, match="encoding is SQL_ASCII"):
        Store.open(postgres.url("latin"))


def test_a_server_that_does_not_run_is_told_without_the_password(own_server: PostgresServer) -> None:
    """Of a store that is open, too; and when the server is back, the same store goes on."""
    store = Store.open(own_server.fresh().replace("postgres@", "postgres:hunter2@"))
    leader = Leader(store)
    leader.commit(*submitted(job(1)))
    own_server.stop(signal.SIGINT)
    for call in (lambda: leader.commit(*submitted(job(2))), store.load, lambda: store.renew(leader.epoch)):
        with pytest.raises(StoreUnreachable) as refused:
            call()
        assert "hunter2" not in f"{refused.value} {refused.value.hint}"
    own_server.start()
    leader.commit(*submitted(job(2)))
    store.renew(leader.epoch)
    assert [row.id for row in store.load().jobs] == [1, 2]
    store.close()


def test_a_server_that_crashed_has_every_group_that_was_committed(own_server: PostgresServer) -> None:
    """SIGQUIT: no shutdown, it recovers from its log."""
    store = Store.open(own_server.fresh())
    leader = Leader(store)
    for number in range(1, 6):
        leader.commit(*submitted(job(number)))
    own_server.stop(signal.SIGQUIT)
    own_server.start()
    assert [row.id for row in store.load().jobs] == [1, 2, 3, 4, 5]
    assert leader.commit(*submitted(job(6))).first_seq == 6
    store.close()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_connection_lost_in_commit_leaves_the_outcome_open_and_the_commit_id_tells(
    postgres: PostgresServer, cut: Cut
) -> None:
    """The same error whether the server saw COMMIT or not; sent again under the next epoch, the group is there once."""
    url = postgres.fresh()
    with CuttingProxy(postgres.root) as proxy:
        store = Store.open(postgres.behind(proxy.directory, url))
        leader = Leader(store)
        leader.commit(*submitted(job(1)))
        group = leader.group(*submitted(job(2)))
        proxy.cut = cut
        with pytest.raises(CommitUnknown, match="it is not known whether the commit is durable"):
            store.commit(group, epoch=leader.epoch)
        assert proxy.cuts == 1
        # Whoever takes the row waits for a transaction that is still under way: then the look-up is final.
        leader.epoch = store.take_leadership("a test", 2, own=leader.epoch)
        assert store.commit_known(group.commit_id) == (cut == "after")
        assert store.commit(group, epoch=leader.epoch).first_seq == 2
        assert [row.id for row in store.load().jobs] == [1, 2]
        store.close()


def test_safety_a_writer_that_stands_still_keeps_nobody_out(postgres: PostgresServer) -> None:
    """Stopped inside its transaction, it holds the leader's row; the server ends it, and the taker goes on."""
    url = postgres.fresh()
    stopped, taker = Store.open(url), Store.open(url)
    former = Leader(stopped)
    database = stopped._database
    with postgres.admin(database_of(url)) as raw:
        raw.execute("UPDATE leader SET expires_ms = 0")
    with ExitStack() as open_transaction:
        leadership.check_epoch(open_transaction.enter_context(database.writing("standing still")), former.epoch)
        assert taker.take_leadership("the next", 2) == former.epoch + 1
        with pytest.raises(StoreUnreachable, match=r"ended an idle transaction|does not answer"):
            open_transaction.close()
    with pytest.raises(StaleEpoch):
        former.commit(*submitted(job(1)))
    stopped.close()
    taker.close()


def test_jobs_are_found_by_the_name_that_is_shown_as_in_sqlite(postgres: PostgresServer) -> None:
    """The name, or the program of a job without one; `*` and `?` alone stand for anything."""
    leader = Leader(Store.open(postgres.fresh()))
    words = {2: ("/bin/sh", "-c", "true"), 3: ("/opt/x/100%[a]_b",)}
    nameless = [job(number, spec=check_spec(JobSpec(command=words[number]))) for number in (2, 3)]
    leader.commit(InsertJobs([job(1, name="fit"), *nameless]))
    found = {
        pattern: [row.id for row in leader.store.jobs(JobFilter(name=pattern))]
        for pattern in ("fi*", "sh", "?h", "100%[a]_*", "100_[a]%*", "*")
    }
    assert found == {"fi*": [1], "sh": [2], "?h": [2], "100%[a]_*": [3], "100_[a]%*": [], "*": [3, 2, 1]}
    leader.store.close()
