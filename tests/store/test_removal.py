"""Removing jobs from a store in a file: no query looks at more than it must, and the file becomes smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from hal.core.model import AttemptState, EventKind, JobSpec, TaskState, check_spec
from hal.store import (
    AppendEvents,
    InsertAttempts,
    InsertJobs,
    JobRow,
    MarkRemoved,
    NewEvent,
    Removed,
    Retention,
    Store,
    removal,
    sqlite,
)
from hal.store.database_url import open_database
from tests.store.rows import Leader, attempt, job

MANY = 1_000


def filled(path: Path) -> Leader:
    """A store of many ended jobs, each with a spec and an attempt of its own; and long events."""
    leader = Leader(Store.open(path))
    ids = range(1, MANY + 1)
    leader.commit(
        InsertJobs([_ended(number) for number in ids]),
        InsertAttempts([attempt(n, state=AttemptState.SUCCEEDED, ended_ms=n) for n in ids]),
        AppendEvents([NewEvent(at_ms=1, kind=EventKind.JOBS_HELD, payload={"x": "y" * 3_000}) for _ in ids]),
    )
    return leader


def _ended(number: int) -> JobRow:
    spec = check_spec(JobSpec(command=("true", f"{number:0500}")))
    return job(number, spec=spec, state=TaskState.SUCCEEDED, pending=0, succeeded=1, end_ms=number)


def test_a_file_becomes_smaller_when_what_it_held_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs and events go; the unused space is returned a piece at a time, but for what is kept for new rows."""
    monkeypatch.setattr(sqlite, "UNUSED_KEPT_PAGES", 64)
    path = tmp_path / "hal.sqlite"
    leader = filled(path)
    store, full = leader.store, _pages(path)
    leader.commit(MarkRemoved(list(range(1, MANY + 1)), Removed.JOB))
    while store.sweep(50, Retention(), epoch=leader.epoch).more:
        pass
    while store.trim(10, Retention(events_count=0), epoch=leader.epoch).more:
        pass
    pieces = []
    while freed := store.shrink(epoch=leader.epoch):
        pieces.append(freed)
    store.close()
    assert set(pieces) == {sqlite.SHRUNK_AT_ONCE}
    assert _pages(path) < full // 2


def _pages(path: Path) -> int:
    database = open_database(path, create=False, max_bytes=None)
    with database.reading("counting pages") as connection:
        pages: int = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    database.close()
    return pages


def test_looking_for_old_jobs_reads_only_the_index(tmp_path: Path) -> None:
    """The planner says so; an index that does not serve a query would make it read a million jobs."""
    filled(tmp_path / "hal.sqlite").store.close()
    database = open_database(tmp_path / "hal.sqlite", create=False, max_bytes=None)
    asked: list[tuple[str, Any]] = []
    event.listen(database.reader, "before_cursor_execute", lambda *args: asked.append((args[2], args[3])))
    with database.reading("looking") as connection:
        removal.read_queues(connection)
        removal.weigh(connection, "default", Removed.JOB)
        removal.read_oldest(connection, "default", Removed.JOB, (-1, 0), 10)
        plans = [
            row[3]
            for text, values in list(asked)
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)
        ]
    database.close()
    assert len(plans) >= 3 * len(range(Removed.JOB))
    assert [line for line in plans if "SEARCH jobs USING COVERING INDEX jobs_ended" not in line] == []


def test_what_a_reader_needs_is_not_looked_at_by_each_deletion(tmp_path: Path) -> None:
    """A million jobs that wait for a slow reader would keep each commit waiting: the index ends at what is needed."""
    leader = filled(tmp_path / "hal.sqlite")
    leader.commit(MarkRemoved(list(range(1, MANY + 1)), Removed.JOB))
    leader.store.close()
    database = open_database(tmp_path / "hal.sqlite", create=False, max_bytes=None)
    asked: list[tuple[str, Any]] = []
    event.listen(database.reader, "before_cursor_execute", lambda *args: asked.append((args[2], args[3])))
    with database.reading("looking") as connection:
        assert removal._marked(connection, Removed.JOB, 3) == [1, 2]
        plans = [
            row[3]
            for text, values in list(asked)
            if "end_ms < " in text
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)
        ]
    database.close()
    assert ["AND end_ms<?" in line for line in plans] == [True]


def test_deleting_a_spec_looks_for_other_jobs_by_index(tmp_path: Path) -> None:
    """The database checks the reference, too: without the index it would read all jobs for each spec."""
    filled(tmp_path / "hal.sqlite").store.close()
    database = open_database(tmp_path / "hal.sqlite", create=False, max_bytes=None)
    with database.reading("looking") as connection:
        plan = connection.exec_driver_sql("EXPLAIN QUERY PLAN SELECT 1 FROM jobs WHERE spec_id = 7").all()
    database.close()
    assert "jobs_by_spec" in plan[0][3]


def test_looking_for_old_attempts_reads_only_tasks_with_many(tmp_path: Path) -> None:
    """Their index is small; without it every attempt would be read."""
    filled(tmp_path / "hal.sqlite").store.close()
    database = open_database(tmp_path / "hal.sqlite", create=False, max_bytes=None)
    asked: list[tuple[str, Any]] = []
    event.listen(database.reader, "before_cursor_execute", lambda *args: asked.append((args[2], args[3])))
    with database.reading("looking") as connection:
        removal.read_old_attempts(connection, 10, Retention(), (0, 0), 10)
        text, values = asked[-1]
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)]
    database.close()
    assert [line for line in plan if "USING COVERING INDEX attempts_many" not in line] == []
