"""The migrations make exactly the tables that the code expects, once, and cost nothing afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from hal.core.model import AttemptState, TaskState
from hal.store import EndAttempts, EndFilter, InsertJobs, MarkRemoved, Removed, Retention, Store, Swept, TaskRangeRow
from hal.store.database_url import open_database
from hal.store.migrate import HEAD, MIGRATIONS, migrate, revision_of
from hal.store.operations import AttemptEnd
from hal.store.schema import metadata
from tests.store.rows import Leader, job, submitted


def test_the_migrations_make_the_tables_of_the_schema(tmp_path: Path) -> None:
    """Alembic finds no difference between a migrated database and `schema`; indices have the same conditions."""
    path = tmp_path / "hal.sqlite"
    Store.open(path).close()
    database = open_database(path, create=False, max_bytes=None)
    with database.reading("comparing") as connection:
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
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "0004")
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


def test_ends_of_an_older_store_are_numbered_by_their_instants(tmp_path: Path) -> None:
    """Revision 0008, a job running: 1.1 ended at 20, the gang 1.0 at 10. They are 1 and 2; the next end is 3."""
    path = tmp_path / "hal.sqlite"
    database = open_database(path, create=True, max_bytes=None)
    with database.writing("as before") as connection:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "0008")
        for text in _AS_0008_WROTE:
            connection.exec_driver_sql(text)
    database.close()
    store = Store.open(path)
    page = store.ended(last=store.last_end())
    assert [(row.sequence, row.task, row.recorded_ms, row.user) for row in page.rows] == [
        (1, 0, 10, "u"),
        (2, 1, 20, "u"),
    ]
    assert [row.task for row in store.ended(0, EndFilter(node="n2"), last=2).rows] == [0]
    running = EndAttempts([AttemptEnd(1, 2, 1, AttemptState.SUCCEEDED, 30, "exited", 0)])
    assert Leader(store).commit(running).last_end == 3
    assert [row.task for row in store.ended(0, EndFilter(node="n3"), last=3).rows] == [2]
    store.close()


def test_an_older_store_is_retained_like_a_new_one(tmp_path: Path) -> None:
    """Schema 0008 with a job that runs and one that has ended: the one goes on, the other can be found and removed."""
    path = tmp_path / "hal.sqlite"
    database = open_database(path, create=True, max_bytes=None)
    with database.writing("an older HAL") as connection:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "0008")
        for text in (*_AS_0008_WROTE, _JOB.format(id=2, state="failed", pending=0, active=0), _END_0008):
            connection.exec_driver_sql(text)
    database.close()
    store = Store.open(path)
    assert [(row.id, row.state) for row in store.load().jobs] == [(1, "running")]
    assert [one.id for one in store.oldest_ended("default", Removed.OUTPUTS, limit=9)] == [2]
    leader = Leader(store)
    leader.commit(InsertJobs([job(3)]), MarkRemoved([1, 2], Removed.JOB))
    assert store.sweep(30, Retention(), epoch=leader.epoch) == Swept(jobs=1, attempts=0, more=False)
    assert [row.id for row in store.jobs()] == [3, 1]
    store.close()


def test_join_tokens_of_an_older_hal_stay_what_they_were(tmp_path: Path) -> None:
    """As revision 0008 had them: one that was used is used up, one that was not is for one machine; no labels."""
    path = tmp_path / "hal.sqlite"
    database = open_database(path, create=True, max_bytes=None)
    with database.writing("as before") as connection:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "0008")
        connection.exec_driver_sql("INSERT INTO join_tokens VALUES ('a', 'h', '', 'u', 1, 99, 5, 'n1', NULL)")
        connection.exec_driver_sql("INSERT INTO join_tokens VALUES ('b', 'h', 'n2', 'u', 2, 99, NULL, '', NULL)")
        connection.exec_driver_sql("INSERT INTO certificates VALUES ('aa', 'n1', 5, 99, NULL)")
    database.close()
    store = Store.open(path)
    joining = store.joining()
    assert [(one.id, one.uses, one.used, one.labels) for one in joining.tokens] == [("a", 1, 1, {}), ("b", 1, 0, {})]
    assert [(one.serial, one.token, one.labels) for one in joining.certificates] == [("aa", "", {})]
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
_ATTEMPT_0008: Final = (
    "INSERT INTO attempts VALUES (1, {task}, 1, '{state}', '{nodes}', 'token', 6, 0, 7, {ended_ms}, '', NULL, NULL,"
    " NULL, '', '[]', 0, NULL)"
)
_AS_0008_WROTE: Final = (
    """INSERT INTO specs VALUES (1, '{"command":["true"]}')""",
    _JOB.format(id=1, state="running", pending=0, active=1),
    _ATTEMPT_0008.format(task=0, state="failed", nodes='["n1","n2"]', ended_ms=10),
    _ATTEMPT_0008.format(task=1, state="succeeded", nodes='["n1"]', ended_ms=20),
    _ATTEMPT_0008.format(task=2, state="running", nodes='["n3"]', ended_ms="NULL"),
    "INSERT INTO commits VALUES (1, 'c', 20, 1, 0)",
)
_END_0008: Final = "UPDATE jobs SET end_ms = 9 WHERE id = 2"
