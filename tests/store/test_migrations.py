"""The migrations make exactly the tables that the code expects, once, and cost nothing afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, insert, inspect, select

from hal.core.model import AttemptState, TaskState
from hal.store import EndAttempts, EndFilter, Store, TaskRangeRow
from hal.store.database_url import open_database
from hal.store.migrate import HEAD, MIGRATIONS, migrate, revision_of
from hal.store.operations import AttemptEnd
from hal.store.schema import metadata
from tests.postgres_server import PostgresServer
from tests.store.rows import Leader, job, submitted


def run_migrations(connection: Connection, revision: str) -> None:
    """Bring an empty or older database to a revision."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def contents(connection: Connection) -> dict[str, Any]:
    """All that a database holds: columns, keys and indices of each table, and its rows."""
    found: dict[str, Any] = {}
    seen = inspect(connection)
    known = MetaData()
    known.reflect(connection)
    for name, table in known.tables.items():
        columns = sorted(str((one["name"], str(one["type"]), one["nullable"])) for one in seen.get_columns(name))
        keys = [seen.get_pk_constraint(name), *seen.get_foreign_keys(name), *seen.get_unique_constraints(name)]
        indices = sorted(
            str(
                (
                    one["name"],
                    one["column_names"],
                    one["unique"],
                    [f"{key} {value}" for key, value in one["dialect_options"].items()],
                )
            )
            for one in seen.get_indexes(name)
        )
        rows = [row._asdict() for row in connection.execute(select(table))]
        found[name] = (columns, sorted(str(key) for key in keys), indices, rows)
    return found


@pytest.mark.parametrize("kind", ["file", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_a_new_store_is_what_all_migrations_make(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Its tables are made at once; whoever adds a migration that adds rows adds them there, too."""
    made = []
    for name, revision in (("migrated", HEAD), ("new", "")):
        where = tmp_path / name if kind == "file" else _empty_server(request)
        database = open_database(where, create=True, max_bytes=None)
        with database.writing("making it") as connection:
            if revision:
                run_migrations(connection, revision)
            else:
                migrate(connection)
            made.append(contents(connection))
        database.close()
    assert made[0] == made[1]
    assert [row["epoch"] for row in made[1]["leader"][3]] == [0]


def test_the_migrations_make_the_tables_of_the_schema(tmp_path: Path) -> None:
    """Alembic finds no difference between a migrated database and `schema`; indices have the same conditions."""
    database = open_database(tmp_path / "hal.sqlite", create=True, max_bytes=None)
    with database.writing("comparing") as connection:
        run_migrations(connection, HEAD)
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
        found = {row[0]: row[1] for row in connection.exec_driver_sql("SELECT name, sql FROM sqlite_master")}
        assert set(inspect(connection).get_table_names()) == {*metadata.tables, "alembic_version"}
    database.close()
    assert "WHERE end_ms IS NULL" in found["jobs_live"]
    assert "WHERE ended_ms IS NULL" in found["attempts_active"]
    for table in ("attempts", "task_spans", "job_labels"):
        assert "WITHOUT ROWID" in found[table]


def test_the_newest_migration_is_the_head_that_the_code_names() -> None:
    """One line of revisions, four digits each, ascending: that is how a newer store is recognised."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert revisions[0] == HEAD
    assert revisions == sorted(revisions, reverse=True)
    assert all(len(revision) == 4 and revision.isdigit() for revision in revisions)


def test_opening_a_current_store_does_not_import_alembic(tmp_path: Path) -> None:
    """The usual start pays for one query only."""
    path = tmp_path / "hal.sqlite"
    Store.open(path).close()
    program = (
        "import sys; from hal.store import Store; Store.open(sys.argv[1]).close(); print('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_migration_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """It runs in one transaction; the next start does it again."""
    path = tmp_path / "hal.sqlite"
    database = open_database(path, create=True, max_bytes=None)
    connection = database.writer.connect()
    transaction = connection.begin()
    assert migrate(connection)
    transaction.rollback()
    assert revision_of(connection) == ""
    connection.close()
    database.close()
    store = Store.open(path)
    Leader(store).commit(*submitted(job(1)))
    store.close()


def test_opening_twice_migrates_once(tmp_path: Path) -> None:
    """The second time there is nothing to do, and what was stored stays."""
    path = tmp_path / "hal.sqlite"
    store = Store.open(path)
    Leader(store).commit(*submitted(job(1)))
    store.close()
    again = Store.open(path)
    assert [row.id for row in again.load().jobs] == [1]
    again.close()


def test_a_store_of_an_older_hal_with_running_jobs_is_upgraded_and_they_run_on(tmp_path: Path) -> None:
    """Tables and rows as revision 0004 had them: one job waits, one runs; what is new has its default."""
    path = tmp_path / "hal.sqlite"
    database = open_database(path, create=True, max_bytes=None)
    with database.writing("as before") as connection:
        run_migrations(connection, "0004")
        for text in _AS_0004_WROTE:
            connection.exec_driver_sql(text)
    database.close()
    store = Store.open(path)
    loaded = store.load()
    assert [(row.id, row.state) for row in loaded.jobs] == [(1, "running"), (2, "pending")]
    assert [(row.token, row.state, row.ended_ms) for row in loaded.attempts[1]] == [("token", "running", None)]
    assert loaded.ranges[2] == [TaskRangeRow(2, 0, 1, TaskState.PENDING)]
    leader = Leader(store)
    assert leader.epoch == 8
    leader.commit(EndAttempts([AttemptEnd(1, 0, 1, AttemptState.SUCCEEDED, 9, "exited", 0)]))
    assert store.attempts(1)[0].state is AttemptState.SUCCEEDED
    store.close()


@pytest.mark.parametrize("kind", ["file", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_ends_of_an_older_store_are_numbered_by_their_instants(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Revision 0008, a job running: 1.1 ended at 20, the gang 1.0 at 10. They are 1 and 2; the next end is 3."""
    where = tmp_path / "hal.sqlite" if kind == "file" else _empty_server(request)
    database = open_database(where, create=True, max_bytes=None)
    with database.writing("as before") as connection:
        run_migrations(connection, "0008")
        known = MetaData()
        known.reflect(connection)
        for table, rows in _AS_0008_WROTE.items():
            connection.execute(insert(known.tables[table]), rows)
    database.close()
    store = Store.open(where)
    page = store.ended(last=store.last_end())
    found = [(row.sequence, row.task, row.recorded_ms, row.user) for row in page.rows]
    assert found == [(1, 0, 10, "u"), (2, 1, 20, "u")]
    assert [row.task for row in store.ended(0, EndFilter(node="n2"), last=2).rows] == [0]
    running = EndAttempts([AttemptEnd(1, 2, 1, AttemptState.SUCCEEDED, 30, "exited", 0)])
    assert Leader(store).commit(running).last_end == 3
    assert [row.task for row in store.ended(0, EndFilter(node="n3"), last=3).rows] == [2]
    store.close()


_JOB: Final = (
    "INSERT INTO jobs VALUES ({id}, 1, 'n', 'default', 'a', 'u', 0, '{state}', 1, 1, NULL, 5, 5, NULL, NULL, 0, '', '',"
    " {pending}, 0, {active}, {active}, 0, 0, 0, 0, NULL, 0, 1)"
)
_AS_0004_WROTE: Final = (
    """INSERT INTO specs VALUES (1, '{"command":["true"]}')""",
    _JOB.format(id=1, state="running", pending=0, active=1),
    _JOB.format(id=2, state="pending", pending=1, active=0),
    "INSERT INTO task_spans VALUES (2, 0, 1, 'pending', 1, 0, 0, '')",
    "INSERT INTO attempts VALUES (1, 0, 1, 'running', '[\"n1\"]', 'token', 6, 0, 7, NULL, '', NULL, NULL, NULL, '',"
    " '[]', 0, NULL)",
    "INSERT INTO commits VALUES (1, 'c', 7, 1, 0)",
    "INSERT INTO leader VALUES (1, 7, 'an older controller', 3)",
)


def _attempt_0008(task: int, state: str, nodes: str, ended_ms: int | None) -> dict[str, Any]:
    return {
        "job_id": 1, "task": task, "attempt": 1, "state": state, "nodes": nodes, "token": "token", "allocated_ms": 6,
        "retries": 0, "started_ms": 7, "ended_ms": ended_ms, "cause": "", "message": "", "steps": "[]", "credit": False,
    }  # fmt: skip


_COUNTS: Final = ("pending", "held", "succeeded", "failed", "timed_out", "cancelled", "restarts", "priority")
_AS_0008_WROTE: Final[dict[str, list[dict[str, Any]]]] = {
    "specs": [{"id": 1, "body": '{"command":["true"]}'}],
    "jobs": [
        {
            "id": 1, "spec_id": 1, "name": "n", "queue": "default", "account": "a", "user": "u", "state": "running",
            "tasks": 3, "nodes": 1, "submit_ms": 5, "eligible_ms": 5, "hold": False, "trace_id": "", "reason": "",
            "active": 1, "running": 1, "version": 1, **dict.fromkeys(_COUNTS, 0),
        }
    ],
    "attempts": [
        _attempt_0008(0, "failed", '["n1","n2"]', 10),
        _attempt_0008(1, "succeeded", '["n1"]', 20),
        _attempt_0008(2, "running", '["n3"]', None),
    ],
    "commits": [{"number": 1, "id": "c", "at_ms": 20, "first_seq": 1, "last_seq": 0}],
}  # fmt: skip


def _empty_server(request: pytest.FixtureRequest) -> str:
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(server.empty())
