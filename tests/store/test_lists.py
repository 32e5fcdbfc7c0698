"""Lists: pages of jobs, tasks and attempts that neither skip nor repeat a row, however large the array."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from hal.core.model import AttemptState, Dependency, JobSpec, TaskState, check_spec
from hal.store import (
    MAX_PAGE,
    AttemptEnd,
    EndAttempts,
    InsertAttempts,
    InsertJobs,
    JobFilter,
    JobProgress,
    ProgressJobs,
    PutTaskRanges,
    Store,
    TaskRangeRow,
    TaskRow,
)
from hal.store.database_url import open_database
from hal.store.schema import metadata
from tests.store.rows import Leader, attempt, job, progress, submitted

MILLION = 1_000_000


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    """A new store in a file, with a leader."""
    store = Store.open(tmp_path / "hal.sqlite")
    yield Leader(store)
    store.close()


def rows_in(path: Path) -> int:
    """All rows of all tables."""
    database = open_database(path, create=False, max_bytes=None)
    with database.reading("counting") as connection:
        total = sum(
            connection.execute(select(func.count()).select_from(table)).scalar_one() for table in metadata.sorted_tables
        )
    database.close()
    return total


def ended(job_id: int, task: int, number: int, state: AttemptState, code: int = 0) -> AttemptEnd:
    """An attempt that has ended."""
    return AttemptEnd(job_id, task, number, state, 9_000, "exited", code)


def test_an_array_of_a_million_tasks_is_a_handful_of_rows(leader: Leader, tmp_path: Path) -> None:
    """One spec, one job, one range, one event, one commit, one leader: six."""
    leader.commit(*submitted(job(1, tasks=MILLION)))
    assert rows_in(tmp_path / "hal.sqlite") == 6


def test_starting_ten_of_a_million_tasks_adds_ten_rows(leader: Leader, tmp_path: Path) -> None:
    """The range shrinks; only tasks that were tried have rows of their own."""
    leader.commit(*submitted(job(1, tasks=MILLION)))
    leader.commit(
        PutTaskRanges(drop=[(1, 0)], put=[TaskRangeRow(1, 10, MILLION - 10, TaskState.PENDING)]),
        InsertAttempts([attempt(1, task) for task in range(10)]),
    )
    assert rows_in(tmp_path / "hal.sqlite") == 6 + 10 + 1  # ten attempts, one more commit
    loaded = leader.store.load()
    assert loaded.ranges == {1: [TaskRangeRow(1, 10, MILLION - 10, TaskState.PENDING)]}
    assert len(loaded.attempts[1]) == 10


def test_equal_jobs_of_one_submission_share_their_spec(leader: Leader, tmp_path: Path) -> None:
    """A thousand jobs, one spec; in memory it is one object again."""
    specs = [check_spec(JobSpec(command=("true",), name="same")) for _ in range(1_000)]
    leader.commit(InsertJobs([job(number, spec=spec) for number, spec in enumerate(specs, 1)]))
    assert rows_in(tmp_path / "hal.sqlite") == 1_000 + 1 + 1 + 1  # jobs, spec, commit, leader
    assert len({id(row.spec) for row in leader.store.load().jobs}) == 1


def test_tasks_of_a_mixed_array_are_computed(leader: Leader) -> None:
    """Waiting, running, ended, waiting for a retry, cancelled: each from its range or its latest attempt."""
    leader.commit(*submitted(job(1, tasks=MILLION)))
    leader.commit(
        PutTaskRanges(
            drop=[(1, 0)],
            put=[
                TaskRangeRow(1, 2, 1, TaskState.PENDING, attempt=2, retries=1, eligible_ms=77, reason="back-off"),
                TaskRangeRow(1, 4, MILLION - 6, TaskState.PENDING),
                TaskRangeRow(1, MILLION - 2, 2, TaskState.CANCELLED, reason="by alice"),
            ],
        ),
        InsertAttempts([*(attempt(1, task) for task in range(4)), attempt(1, 1, 2, retries=1)]),
        EndAttempts(
            [
                ended(1, 0, 1, AttemptState.SUCCEEDED),
                ended(1, 1, 1, AttemptState.FAILED, 3),
                ended(1, 2, 1, AttemptState.FAILED, 3),
                ended(1, 3, 1, AttemptState.OUT_OF_MEMORY, 137),
            ]
        ),
    )
    first = leader.store.tasks(1, limit=6)
    assert [(row.task, row.state, row.attempt) for row in first] == [
        (0, TaskState.SUCCEEDED, 1),
        (1, TaskState.ALLOCATED, 2),
        (2, TaskState.PENDING, 1),
        (3, TaskState.FAILED, 1),
        (4, TaskState.PENDING, 0),
        (5, TaskState.PENDING, 0),
    ]
    assert first[2] == TaskRow(1, 2, TaskState.PENDING, 1, retries=1, eligible_ms=77, reason="back-off")
    assert (first[3].exit_code, first[3].end_ms, first[3].nodes) == (137, 9_000, ("n1",))
    assert [row.task for row in leader.store.tasks(1, [TaskState.FAILED])] == [3]
    assert [row.task for row in leader.store.tasks(1, [TaskState.CANCELLED])] == [MILLION - 2, MILLION - 1]
    assert [row.task for row in leader.store.tasks(1, [TaskState.SUCCEEDED, TaskState.ALLOCATED])] == [0, 1]
    assert [row.task for row in leader.store.tasks(1, after=MILLION - 4)] == [MILLION - 3, MILLION - 2, MILLION - 1]
    assert leader.store.tasks(1, after=MILLION - 1) == []
    assert leader.store.tasks(2) == []
    assert leader.store.task(1, 1) == first[1]
    assert leader.store.task(1, 500_000) == TaskRow(1, 500_000, TaskState.PENDING, 0)
    assert leader.store.task(1, MILLION) is None
    assert leader.store.task(2, 0) is None


def test_the_spans_of_an_ended_job_can_be_read(leader: Leader) -> None:
    """A requeue of an ended job begins with them."""
    leader.commit(*submitted(job(1, tasks=5)))
    end = progress(job(1), state=TaskState.CANCELLED, end_ms=5, pending=0, cancelled=5)
    put = [TaskRangeRow(1, 3, 2, TaskState.CANCELLED), TaskRangeRow(1, 0, 3, TaskState.CANCELLED)]
    leader.commit(ProgressJobs([end]), PutTaskRanges(drop=[(1, 0)], put=put))
    assert leader.store.load().ranges == {}
    assert leader.store.ranges(1) == [put[1], put[0]]
    assert leader.store.ranges(2) == []


def test_pages_of_tasks_join_without_gap_or_repeat(leader: Leader) -> None:
    """Every second task waits in a range of its own, the others have ended: 1,000 tasks in pages of 37."""
    leader.commit(InsertJobs([job(1, tasks=1_000)]))
    leader.commit(
        PutTaskRanges(put=[TaskRangeRow(1, task, 1, TaskState.PENDING) for task in range(0, 1_000, 2)]),
        InsertAttempts([attempt(1, task) for task in range(1, 1_000, 2)]),
        EndAttempts([ended(1, task, 1, AttemptState.SUCCEEDED) for task in range(1, 1_000, 2)]),
    )
    for states, expected in (((), range(1_000)), ((TaskState.SUCCEEDED,), range(1, 1_000, 2))):
        seen: list[int] = []
        while page := leader.store.tasks(1, states, after=seen[-1] if seen else None, limit=37):
            assert len(page) <= 37
            seen.extend(row.task for row in page)
        assert seen == list(expected)


def test_a_task_that_was_tried_often_is_one_task(leader: Leader) -> None:
    """Seven hundred attempts at each of three tasks: the latest counts."""
    leader.commit(InsertJobs([job(1, tasks=3)]))
    tries = [attempt(1, task, number) for task in range(3) for number in range(1, 701)]
    leader.commit(
        InsertAttempts(tries),
        EndAttempts([ended(1, row.task, row.attempt, AttemptState.FAILED) for row in tries]),
    )
    assert [(row.task, row.attempt) for row in leader.store.tasks(1)] == [(0, 700), (1, 700), (2, 700)]


def test_attempts_are_listed_in_pages(leader: Leader) -> None:
    """By task and number; one task's, one state's, and on from a cursor."""
    leader.commit(InsertJobs([job(1, tasks=5), job(2)]))
    leader.commit(InsertAttempts([attempt(1, task, number) for task in range(5) for number in (1, 2)] + [attempt(2)]))
    leader.commit(EndAttempts([ended(1, task, 1, AttemptState.FAILED) for task in range(5)]))
    every = leader.store.attempts(1)
    assert [(row.task, row.attempt) for row in every] == [(task, number) for task in range(5) for number in (1, 2)]
    assert leader.store.attempts(1, task=3) == every[6:8]
    assert leader.store.attempts(1, states=[AttemptState.FAILED]) == every[::2]
    assert leader.store.attempts(1, after=(1, 2), limit=3) == every[4:7]
    assert leader.store.attempts(1, limit=0) == every[:1]


def test_jobs_are_filtered_and_paged(leader: Leader) -> None:
    """Each filter alone and all together; newest first unless asked otherwise; cursors do not repeat a job."""
    labelled = check_spec(JobSpec(command=("true",), labels={"team": "red", "run": "7"}))
    leader.commit(
        InsertJobs(
            [
                job(1, user="bob", queue="fast"),
                job(2, name="x", account="physics"),
                job(3, spec=labelled, user="bob", queue="fast", name="x", account="physics"),
                job(4, state=TaskState.SUCCEEDED, end_ms=9),
                job(5, state=TaskState.FAILED, end_ms=9),
            ]
        )
    )

    def ids(
        wanted: JobFilter | None = None, *, after: int | None = None, limit: int = 100, newest_first: bool = True
    ) -> list[int]:
        return [row.id for row in leader.store.jobs(wanted, after=after, limit=limit, newest_first=newest_first)]

    assert ids() == [5, 4, 3, 2, 1]
    assert ids(newest_first=False) == [1, 2, 3, 4, 5]
    assert ids(limit=2) == [5, 4]
    assert ids(limit=2, after=4) == [3, 2]
    assert ids(limit=2, after=2, newest_first=False) == [3, 4]
    assert ids(JobFilter(states=(TaskState.SUCCEEDED, TaskState.FAILED))) == [5, 4]
    assert ids(JobFilter(user="bob")) == [3, 1]
    assert ids(JobFilter(queue="fast")) == [3, 1]
    assert ids(JobFilter(name="x")) == [3, 2]
    assert ids(JobFilter(account="physics")) == [3, 2]
    assert ids(JobFilter(labels={"team": "red"})) == [3]
    assert ids(JobFilter(labels={"team": "", "run": "7"})) == [3]
    assert ids(JobFilter(labels={"team": "blue"})) == []
    assert ids(JobFilter(states=(TaskState.PENDING,), user="bob", queue="fast", name="x", account="physics")) == [3]
    assert ids(JobFilter(user="nobody' OR 1=1 --")) == []
    assert leader.store.counts() == {TaskState.PENDING: 3, TaskState.SUCCEEDED: 1, TaskState.FAILED: 1}


def test_what_depended_on_a_job_is_found_after_it_has_ended(leader: Leader) -> None:
    """By its dependencies, not because the text stands elsewhere in a spec; of the same user only."""
    before = Dependency(job="1")
    waits = check_spec(JobSpec(command=("true",), dependencies=(before,)))
    either = check_spec(JobSpec(command=("true",), dependencies=(Dependency(any_of=(Dependency(job="11"), before)),)))
    other = check_spec(JobSpec(command=("true",), dependencies=(Dependency(job="11"),)))
    named = check_spec(JobSpec(command=("true",), env={"job": "1"}))
    plain = check_spec(JobSpec(command=("true",)))
    rows = [
        job(number, spec=spec, user=user)
        for number, spec, user in (
            (1, plain, "ada"), (2, waits, "ada"), (3, either, "ada"), (4, other, "ada"), (5, named, "ada"),
            (6, waits, "bob"),
        )
    ]  # fmt: skip
    leader.commit(InsertJobs(rows))
    assert leader.store.dependants(1, "ada", most=10) == [2, 3]
    assert leader.store.dependants(1, "ada", most=1) == [2]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("fit", [1]),
        ("fi*", [1, 4]),
        ("*", [1, 2, 3, 4, 5]),
        ("sh", [2]),
        ("s?", [2]),
        ("?it*", [1, 4]),
        ("script", [3]),
        ("true", []),
        ("bin*", []),
        ("100%[a]_*", [5]),
        ("100_[a]%*", []),
    ],
)
def test_jobs_are_found_by_the_name_that_is_shown(pattern: str, found: list[int], leader: Leader) -> None:
    """The name, or else the program without its directory; only `*` and `?` stand for anything else."""
    commands = {2: ("/bin/sh", "-c", "true"), 4: ("./fits.sh",), 5: ("/opt/x/100%[a]_b",)}
    specs = {number: check_spec(JobSpec(command=words)) for number, words in commands.items()}
    specs[3] = check_spec(JobSpec(script="#!/bin/sh\ntrue\n"))
    named = job(1, name="fit")
    leader.commit(InsertJobs([named, *(job(number, spec=spec) for number, spec in sorted(specs.items()))]))
    assert [row.id for row in leader.store.jobs(JobFilter(name=pattern), newest_first=False)] == found


def test_a_page_is_never_longer_than_the_bound(leader: Leader) -> None:
    """Whatever is asked for."""
    leader.commit(InsertJobs([job(1, tasks=MILLION)]), PutTaskRanges(put=[TaskRangeRow(1, 0, MILLION, TaskState.HELD)]))
    assert len(leader.store.tasks(1, limit=10**9)) == MAX_PAGE


def test_ended_jobs_are_loaded_only_where_live_jobs_depend_on_them(leader: Leader) -> None:
    """Job 3 lives and names job 1, which has ended; job 2 has ended too and is named by nobody."""
    spec = check_spec(JobSpec(command=("true",), dependencies=(Dependency("1"), Dependency("4"), Dependency("later"))))
    rows = [job(1), job(2), job(3, spec=spec), job(4)]
    leader.commit(*submitted(*rows))
    done: list[JobProgress] = [progress(row, state=TaskState.SUCCEEDED, end_ms=5, pending=0) for row in rows[:2]]
    leader.commit(ProgressJobs(done), PutTaskRanges(drop=[(1, 0), (2, 0)]))
    loaded = leader.store.load()
    assert [row.id for row in loaded.jobs] == [3, 4]
    assert {number: row.state for number, row in loaded.ended_dependencies.items()} == {1: TaskState.SUCCEEDED}
    assert set(loaded.ranges) == {3, 4}


def test_reading_does_not_wait_for_the_writer(leader: Leader, tmp_path: Path) -> None:
    """While a transaction is open, readers see what was committed before it."""
    leader.commit(*submitted(job(1)))
    other = open_database(tmp_path / "hal.sqlite", create=False, max_bytes=None)
    with other.writing("holding the write lock") as connection:
        connection.exec_driver_sql("DELETE FROM task_spans")
        assert leader.store.task(1, 0) is not None
        assert len(leader.store.load().ranges[1]) == 1
        connection.exec_driver_sql("INSERT INTO task_spans VALUES (1, 0, 1, 'pending', 1, 0, 0, '')")
    other.close()
