"""Jobs that only wait, loaded in columns: which they are, and that a spec comes back from what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from hal.core.model import ArrayRange, Constraint, Dependency, Duration, JobSpec, Resources, TaskState, check_spec
from hal.core.model.dependency import DependencyKind
from hal.core.model.units import MAX_AMOUNT
from hal.store import (
    EditJobs,
    InsertJobs,
    JobEdit,
    MemoryDatabase,
    ProgressJobs,
    PutTaskRanges,
    Store,
    TaskRangeRow,
    pending_columns,
    queries,
)
from tests.store.rows import Leader, in_rows, job, progress, submitted

TRICKY = 'x","walltime":"5s","y'


@pytest.fixture
def leader() -> Iterator[Leader]:
    """A new store with a leader."""
    store = Store.open(MemoryDatabase())
    yield Leader(store)
    store.close()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": "fit"},
        {"walltime": Duration(61_017)},
        {"name": "fit", "walltime": Duration(90_000), "queue": "long", "account": "ml"},
        {"request": Resources({"cpu": 2_000, "walltime": 5})},
        {"request": Resources({"cpu": 2_000, "walltime": 5}), "walltime": Duration(5_000)},
        {"env": {"A": "a", "walltime": "5s"}},
        {"env": {"A": TRICKY}, "walltime": Duration(7)},
        {"command": ("echo", TRICKY, '{"name":"fit","walltime":"1s"}'), "name": "fit"},
        {"labels": {"team": "x", "walltime": "5s"}, "constraints": (Constraint("gpu", values=("a100",)),)},
        {"script": '#!/bin/sh\necho "array": \u0001 ä€\n', "command": ()},
        {"env": {"array": "1"}, "name": "fit"},
        {"comment": TRICKY, "name": "fit", "walltime": Duration(5_000)},
        {"labels": {"array": "x"}, "walltime": Duration(5_000)},
        {"env": {"array": "1"}, "array": ArrayRange(1)},
        {"qos": "high", "deadline_ms": 77, "licences": {"matlab": 2}, "nodes": 3, "begin_at_ms": 9},
        {"array": ArrayRange(1), "name": "one"},
        {"array": ArrayRange(1, max_running=1), "walltime": Duration(1_000)},
    ],
    ids=lambda fields: ",".join(fields) or "plain",
)
def test_a_spec_comes_back_as_it_was_stored(leader: Leader, fields: dict[str, object]) -> None:
    """Whatever words are in it, beside others of the same and of another walltime."""
    spec = check_spec(JobSpec(**{"command": ("true",), **fields}))
    longer = spec if spec.walltime is None else replace(spec, walltime=Duration(spec.walltime + 1))
    other = check_spec(JobSpec(command=("true",), name="fit", walltime=Duration(3)))
    leader.commit(*submitted(*(job(n, spec=one) for n, one in enumerate((spec, other, longer, spec), 1))))
    columns = leader.store.load(in_columns=True)
    assert in_rows(columns) == in_rows(leader.store.load())
    assert sum(map(len, columns.pending_columns)) == (4 if spec.array is None else 1)


@pytest.mark.parametrize(
    "columns",
    [
        {"hold": True},
        {"state": TaskState.HELD, "pending": 0, "held": 1},
        {"reason": "requeued by alice"},
        {"restarts": 1},
        {"start_ms": 5},
        {"exit_code": 1},
        {"eligible_ms": MAX_AMOUNT + 1},
        {"succeeded": 1},
    ],
    ids=lambda columns: next(iter(columns)),
)
def test_a_job_to_which_something_happened_comes_as_a_row(leader: Leader, columns: dict[str, object]) -> None:
    """Each of its columns counts."""
    leader.commit(*submitted(job(1), job(2, **columns), job(3)))
    loaded = leader.store.load(in_columns=True)
    assert [row.id for row in loaded.jobs] == [2]
    assert in_rows(loaded) == in_rows(leader.store.load())


@pytest.mark.parametrize(
    "task_range",
    [
        TaskRangeRow(2, 0, 1, TaskState.PENDING, attempt=2),
        TaskRangeRow(2, 0, 1, TaskState.PENDING, retries=1),
        TaskRangeRow(2, 0, 1, TaskState.PENDING, eligible_ms=5),
        TaskRangeRow(2, 0, 1, TaskState.PENDING, reason="why"),
    ],
    ids=str,
)
def test_a_job_whose_task_waits_otherwise_comes_as_a_row(leader: Leader, task_range: TaskRangeRow) -> None:
    """A task that was tried before, or waits for an instant of its own."""
    leader.commit(*submitted(job(1), job(2), job(3)), PutTaskRanges(drop=[(2, 0)], put=[task_range]))
    loaded = leader.store.load(in_columns=True)
    assert [row.id for row in loaded.jobs] == [2]
    assert loaded.ranges == {2: [task_range]}
    assert in_rows(loaded) == in_rows(leader.store.load())


def test_what_was_changed_in_its_row_holds_and_its_spec_stays(leader: Leader) -> None:
    """Another walltime, name and account: the spec is that of the submission."""
    spec = check_spec(JobSpec(command=("true",), name="old", walltime=Duration(60_000)))
    leader.commit(*submitted(job(1, spec=spec), job(2, spec=spec)))
    leader.commit(EditJobs([JobEdit(id=2, name="new", account="other", walltime_ms=None, priority=7)]))
    loaded = leader.store.load(in_columns=True)
    assert in_rows(loaded) == in_rows(leader.store.load())
    assert [loaded.pending_columns[0].spec(index) for index in (0, 1)] == [spec, spec]


def test_an_ended_dependency_is_loaded_and_a_waiting_one_is_not(leader: Leader) -> None:
    """A job that waits for two others, one of which is in the columns."""
    spec = check_spec(
        JobSpec(
            command=("true",),
            dependencies=(Dependency("1", DependencyKind.AFTEROK), Dependency("2", DependencyKind.AFTEROK)),
        )
    )
    leader.commit(*submitted(job(1), job(2), job(3, spec=spec, eligible_ms=MAX_AMOUNT + 1)))
    ended = job(2, state=TaskState.FAILED, pending=0, failed=1, end_ms=9)
    leader.commit(ProgressJobs([progress(ended)]))
    loaded = leader.store.load(in_columns=True)
    assert [row.id for row in loaded.jobs] == [3]
    assert list(loaded.ended_dependencies) == [2]


def test_jobs_of_the_same_kind_share_what_the_engine_is_asked(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and walltimes do not count; beyond the bound of one set of columns another begins."""
    monkeypatch.setattr(queries, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(pending_columns, "MAX_TOGETHER", 4)
    specs = [
        check_spec(
            JobSpec(command=("run", str(n)), name=f"n{n}", walltime=Duration(n), request=Resources({"cpu": n % 2 + 1}))
        )
        for n in range(1, 21)
    ]
    leader.commit(InsertJobs([job(n, spec=spec, trace_id=f"t{n}") for n, spec in enumerate(specs, 1)]))
    leader.commit(PutTaskRanges(put=[TaskRangeRow(n, 0, 1, TaskState.PENDING) for n in range(1, 21)]))
    loaded = leader.store.load(in_columns=True)
    assert in_rows(loaded) == in_rows(leader.store.load())
    assert [len(columns) for columns in loaded.pending_columns] == [4] * 5
    assert {len(columns.asks) for columns in loaded.pending_columns} == {2}


def test_jobs_that_tolerate_other_taints_ask_for_something_else(leader: Leader) -> None:
    """What a job tolerates is known to the engine after a restart."""
    specs = [check_spec(JobSpec(command=("true",), tolerate=tolerate)) for tolerate in ((), ("spot",), ("spot",))]
    leader.commit(InsertJobs([job(n, spec=spec) for n, spec in enumerate(specs, 1)]))
    leader.commit(PutTaskRanges(put=[TaskRangeRow(n, 0, 1, TaskState.PENDING) for n in (1, 2, 3)]))
    (columns,) = leader.store.load(in_columns=True).pending_columns
    assert [columns.asks[columns.ask[shape]].tolerate for shape in columns.shape] == [(), ("spot",), ("spot",)]
