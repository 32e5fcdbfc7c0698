"""Rows of periodic jobs, their histories, and what was told of jobs: kept as written, bounded, no due time twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hal.core.model import JobSpec, StoreError, TaskState
from hal.core.model.periodic import Overlap, PeriodicSpec, RunOutcome
from hal.store import InsertJobs, NoticeRow, PeriodicRow, PeriodicRun, PutNotices, PutPeriodic, Store
from tests.postgres_server import PostgresServer
from tests.store.rows import Leader, job

ROW = PeriodicRow(
    id=1,
    user="ann",
    name="poll",
    spec=PeriodicSpec(
        schedule="@daily", overlap=Overlap.QUEUE, keep=3, job=JobSpec(command=("true",), labels={"a": "b"})
    ),
    created_ms=5,
    created_by="root",
    changed_ms=6,
    on_system=True,
    next_ms=7,
)


def run(number: int, **fields: object) -> PeriodicRun:
    """An entry of its history."""
    made = PeriodicRun(periodic=1, number=number, due_ms=number, at_ms=9, outcome=RunOutcome.SUBMITTED, job=number)
    return replace(made, **fields)


@pytest.fixture(params=["file", pytest.param("postgresql", marks=pytest.mark.slow)])
def leader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Leader]:
    if request.param == "file":
        store = Store.open(tmp_path / "hal.sqlite")
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        store = Store.open(server.fresh())
    yield Leader(store)
    store.close()


def test_a_periodic_job_is_read_as_it_was_written(leader: Leader) -> None:
    leader.commit(PutPeriodic((ROW,)))
    changed = replace(ROW, held_by="ann", next_ms=None, live=(3, 4), runs=2)
    assert leader.store.periodic() == [ROW]
    leader.commit(PutPeriodic((changed,)))
    assert leader.store.periodic() == [changed]


def test_its_history_is_as_long_as_it_says(leader: Leader) -> None:
    for number in range(1, 6):
        leader.commit(PutPeriodic((replace(ROW, runs=number),), runs=(run(number),)))
    assert [one.number for one in leader.store.periodic_runs(1)] == [5, 4, 3]
    assert [one.number for one in leader.store.periodic_runs(1, before=5, limit=1)] == [4]
    assert leader.store.last_runs([1, 2]) == {1: run(5)}


def test_a_due_time_that_was_submitted_is_not_submitted_again(leader: Leader) -> None:
    """The group that tries it writes nothing of its job either."""
    leader.commit(PutPeriodic((replace(ROW, runs=1),), runs=(run(1),)))
    with pytest.raises(StoreError):
        leader.commit(InsertJobs([job(1)]), PutPeriodic((replace(ROW, runs=2),), runs=(run(2, due_ms=1),)))
    assert (leader.store.job(1), leader.store.periodic_runs(1)) == (None, [run(1)])


def test_by_hand_it_is_submitted_at_the_instant_of_a_due_time_too(leader: Leader) -> None:
    leader.commit(PutPeriodic((replace(ROW, runs=2),), runs=(run(1), run(2, due_ms=1, manual=True))))
    assert len(leader.store.periodic_runs(1)) == 2


def test_one_that_is_removed_takes_its_history_along(leader: Leader) -> None:
    leader.commit(PutPeriodic((replace(ROW, runs=1),), runs=(run(1),)))
    leader.commit(PutPeriodic(forget=(1,)))
    assert (leader.store.periodic(), leader.store.periodic_runs(1)) == ([], [])


def test_a_job_that_it_submitted_stays(leader: Leader) -> None:
    leader.commit(InsertJobs([job(1)]), PutPeriodic((replace(ROW, runs=1),), runs=(run(1),)))
    leader.commit(PutPeriodic(forget=(1,)))
    found = leader.store.job(1)
    assert found is not None
    assert found.state is TaskState.PENDING


def test_what_was_told_of_a_job_is_kept_while_the_job_is(leader: Leader) -> None:
    """Jobs that do not exist any more are left out."""
    leader.commit(InsertJobs([job(1), job(2)]), PutNotices((NoticeRow(1), NoticeRow(2)), new=True))
    told = NoticeRow(1, open=False, start_ms=3, end_ms=4, restarts=1, ended_seq=7)
    leader.commit(PutNotices((told, NoticeRow(9))))
    assert (leader.store.notice(1), leader.store.notice(9)) == (told, None)
    assert leader.store.noticed(only_open=False) == [1, 2]
    assert leader.store.noticed(1, only_open=True) == [2]
