"""Jobs that wait, loaded in columns: everything about them is as if each were an object."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hal.core.engine.events import JobsSubmitted
from hal.core.model import ConflictError, TaskState, spec_from_plain
from hal.core.model.job import Constraint
from hal.core.model.policy import Limit, Policy, Queue
from hal.planes.tasks import Submitter, TaskPlane, check_table
from hal.planes.tasks.slices import finished
from hal.planes.tasks.table.pending_jobs import PendingJobs
from hal.planes.tasks.table.pending_limits import owner_of_live
from hal.planes.tasks.table.singletons import SLACK, Singletons
from hal.store import Group, MemoryDatabase, Store, pending_columns
from hal.store.views import JobFilter
from tests.planes.tasks.pending_model import PendingModel
from tests.planes.tasks.small_plane import SmallPlane

BY = Submitter("alice", "trace")
POLICY = Policy(queues={"default": Queue(name="default"), "long": Queue(name="long")})
JOBS = [
    {"name": "fit", "walltime": "1m"},
    {"name": "fit", "walltime": "2m", "account": "ml"},
    {"queue": "long", "labels": {"team": "x"}},
    {"queue": "long", "labels": {"team": "y"}, "priority": 5, "deadline_ms": 9_000},
    {"name": "held", "hold": True},
    {"name": "array", "array": 3},
    {"name": "after", "dependencies": ["fit2"]},
    {"name": "fit2", "request": {"cpu": 2}, "nodes": 2, "constraints": ["gpu=a100"]},
    {"name": "fit", "user": "bob"},
]
"""The third, fourth and ninth and the two `fit` only wait; one that is named by another does so, too."""


def stored() -> Store:
    """A store in which these jobs were submitted."""
    disk = MemoryDatabase()
    store = Store.open(disk)
    epoch = store.take_leadership("test", 1_000)
    plane = TaskPlane(POLICY, PendingModel())
    plane.load(store.load(), POLICY)
    specs = [spec_from_plain({"command": ["true"], **job}) for job in JOBS]
    plane.submit(specs, BY, 1_000)
    store.commit(Group("g", 1_000, plane.seal(1_000).operations), epoch=epoch)
    return store


def loaded(store: Store, *, in_columns: bool) -> tuple[TaskPlane, list[JobsSubmitted]]:
    """A plane that starts from it, and what it tells the engine of waiting jobs."""
    plane = TaskPlane(POLICY, PendingModel())
    events = plane.load(store.load(in_columns=in_columns), POLICY)
    return plane, [event for event in events if isinstance(event, JobsSubmitted)]


def told(events: list[JobsSubmitted]) -> list[tuple[object, ...]]:
    """Each row with its class and owner instead of their indices."""
    return [
        (*row.tolist()[:4], event.classes[row["class_index"]], event.owners[row["owner_index"]], *row.tolist()[6:])
        for event in events
        for row in event.rows
    ]


def test_the_engine_is_told_the_same_from_columns_as_from_rows() -> None:
    """In the same order, with equal classes, owners, limits, deadlines."""
    store = stored()
    in_columns, from_columns = loaded(store, in_columns=True)
    plain, from_rows = loaded(store, in_columns=False)
    assert (in_columns._table.jobs.count_in_columns, plain._table.jobs.count_in_columns) == (6, 0)
    assert told(from_columns) == told(from_rows)
    assert all(np.all(np.diff(event.rows["job"]) > 0) for event in from_columns)
    assert dict(in_columns._table.jobs.items()) == dict(plain._table.jobs.items())
    check_table(in_columns._table)


@pytest.mark.parametrize(
    "wanted",
    [
        JobFilter(),
        JobFilter(states=(TaskState.PENDING,)),
        JobFilter(states=(TaskState.HELD, TaskState.RUNNING)),
        JobFilter(user="alice"),
        JobFilter(user="bob", name="fit"),
        JobFilter(queue="long"),
        JobFilter(account="ml"),
        JobFilter(name="fit"),
        JobFilter(name="f*"),
        JobFilter(name="true"),
        JobFilter(name="t*e", user="alice"),
        JobFilter(labels={"team": "x"}),
        JobFilter(labels={"team": ""}),
        JobFilter(labels={"other": ""}),
    ],
    ids=str,
)
def test_jobs_in_columns_are_found_as_others(wanted: JobFilter) -> None:
    """By every field of a filter, and none becomes an object for it."""
    store = stored()
    in_columns, _ = loaded(store, in_columns=True)
    plain, _ = loaded(store, in_columns=False)
    assert finished(in_columns.matching(wanted)) == finished(plain.matching(wanted))
    assert in_columns._table.jobs.count_in_columns == 6


def test_reading_leaves_a_job_in_its_columns_and_touching_takes_it_out() -> None:
    """Neither changes how many jobs live."""
    plane, _ = loaded(stored(), in_columns=True)
    jobs, count = plane._table.jobs, len(plane._table.jobs)
    assert plane.job(1) == plane.job(1)
    assert jobs.count_in_columns == 6
    plane.hold(1, None, BY, 2_000)
    assert (len(jobs), jobs.count_in_columns, jobs[1].state) == (count, 5, TaskState.HELD)
    before = plane.job(1)
    assert before is not None
    assert before.state is TaskState.PENDING
    plane.undo()
    assert (len(jobs), jobs[1].state) == (count, TaskState.PENDING)
    check_table(plane._table)


def test_another_pool_of_a_queue_reaches_jobs_in_columns() -> None:
    """What waits in that queue asks for its nodes from now on."""
    plane, _ = loaded(stored(), in_columns=True)
    ssd = Queue(name="long", nodes=(Constraint("ssd", values=("yes",)),))
    plane.change_policy(Policy(queues={**POLICY.queues, "long": ssd}), None, 2_000)
    assert [len(plane._table.jobs[job].request.constraints) for job in (3, 4)] == [1, 1]
    assert plane._table.jobs.count_in_columns == 4


def test_a_policy_that_was_not_committed_leaves_no_trace_in_jobs_in_columns() -> None:
    """After the undo the engine is told the same from columns as from rows: neither asks for the pool any more."""
    store = stored()
    gpu = Queue(name="long", nodes=(Constraint("gpu", values=("a100",)),))
    after = []
    for in_columns in (True, False):
        plane, _ = loaded(store, in_columns=in_columns)
        plane.change_policy(Policy(queues={**POLICY.queues, "long": gpu}), None, 2_000)
        plane.seal(2_000)
        plane.undo()
        events = [event for event in plane.engine_events() if isinstance(event, JobsSubmitted)]
        after.append((sorted(told(events), key=lambda row: row[0]), dict(plane._table.jobs.items())))
        check_table(plane._table)
    assert after[0] == after[1]
    assert [after[0][1][job].request.constraints for job in (3, 4)] == [(), ()]


def test_a_limit_counts_jobs_in_columns_and_goes_on_counting_when_one_leaves() -> None:
    """Alice has three in the queue `default` that are in columns, and five tasks that are not."""
    plane, _ = loaded(stored(), in_columns=True)
    limit = Limit(name="few", user="alice", queue="default", pending=9)
    plane.change_policy(Policy(queues=POLICY.queues, limits={"few": limit}), None, 2_000)
    plane.seal(2_000)
    plane.keep()
    more = [spec_from_plain({"command": ["true"]})] * 2
    with pytest.raises(ConflictError, match="8 wait already"):
        plane.submit(more, BY, 2_000)
    plane.cancel(1, None, BY, 2_000)
    assert len(plane.submit(more, BY, 2_000)) == 2


def test_where_many_live_those_that_only_wait_become_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the commit that made them; who leaves makes room, and all is as in a plane that keeps objects."""
    monkeypatch.setattr(pending_columns, "MAX_TOGETHER", 40)
    crowded, roomy = SmallPlane(), SmallPlane()
    crowded.plane._table.jobs.max_objects = 0
    alike = [{"name": f"n{n % 3}", "walltime": f"{n}s"} for n in range(1, 31)]
    for one in (crowded, roomy):
        for _ in range(4):
            one.submit(*alike, {"array": 2}, {"hold": True})
    jobs = crowded.plane._table.jobs
    assert jobs.count_in_columns == 120
    assert not crowded.plane.crowded
    assert len(jobs.in_columns) == 2
    for one in (crowded, roomy):
        for job in range(1, 60):
            one.plane.cancel(job, None, BY, 2_000)
            one.commit()
    assert jobs.count_in_columns == 63
    assert min(len(one.columns) for one in jobs.in_columns) < 10, "columns that most have left are made anew"
    assert dict(jobs.items()) == dict(roomy.plane._table.jobs.items())


def test_what_is_called_array_and_is_none_becomes_columns_and_stays_live() -> None:
    """An env variable, a label: such jobs are found, counted and cancelled, and so are those that came later."""
    crowded, roomy = SmallPlane(), SmallPlane()
    crowded.plane._table.jobs.max_objects = 0
    for one in (crowded, roomy):
        one.submit({"env": {"array": "1"}})
        one.submit({"labels": {"array": "x"}}, {"name": "later"})
    jobs = crowded.plane._table.jobs
    assert jobs.count_in_columns == 3
    assert [jobs.peek(job) for job in (1, 2, 3)] == [roomy.plane._table.jobs.peek(job) for job in (1, 2, 3)]
    assert jobs.owners_in_columns() == [(owner_of_live(roomy.plane._table.jobs[1]), 3)]
    for job in (1, 2, 3):
        assert crowded.plane.cancel(job, None, BY, 2_000) is TaskState.CANCELLED
        crowded.commit()
    assert len(jobs) == 0


def test_columns_count_only_what_they_take_in() -> None:
    """An array is refused by its id, wherever it comes; the others are found at their indices."""
    plain, array = '{"command":["true"]}', '{"command":["true"],"array":{"count":2}}'
    columns = PendingJobs(pending_columns.PendingColumns())
    rows = [(n, "", "default", "", "alice", 0, -1, 1, 1, "", array if n in (1, 3) else plain) for n in range(1, 6)]
    assert columns.extend(rows) == [1, 3]
    assert (len(columns), list(columns)) == (3, [2, 4, 5])
    assert [count for _, count in columns.owners()] == [3]


def test_columns_shrink_in_portions_while_jobs_come_and_go() -> None:
    """No call copies more than its portion; who leaves meanwhile, copied or not, has left, and who comes is there."""
    columns = PendingJobs(pending_columns.PendingColumns())
    text = '{"command":["true"]}'

    def extend(ids: range) -> None:
        columns.extend([(n, f"n{n}", "default", "", "alice", n, -1, 1, 1, "", text) for n in ids])

    extend(range(1, 3_501))
    for job in range(1, 2_801):
        columns.take(columns.index(job))
    assert columns.sparse
    columns.shrink()
    assert (columns.sparse, len(columns.columns)) == (True, 3_500), "256 of 700 are copied, nothing has changed yet"
    for job in (2_802, 3_400):
        columns.take(columns.index(job))
    extend(range(3_501, 3_503))
    calls = 1
    while columns.sparse:
        columns.shrink()
        calls += 1
    expected = [job for job in range(2_801, 3_503) if job not in (2_802, 3_400)]
    assert calls == 3, "701 are copied: 2,801 to 3,502 without 3,400"
    assert (list(columns), len(columns), len(columns.columns)) == (expected, 700, 701)
    assert [columns.columns.row(columns.index(job))[:2] for job in expected] == [(n, f"n{n}") for n in expected]
    assert columns.index(2_802) == columns.index(3_400) == -1


@pytest.mark.parametrize("add", [Singletons.add_all, lambda n, k, jobs: [n.add(k, job) for job in jobs]])
def test_the_first_of_a_name_is_known_however_its_ids_came(add: Callable[..., object]) -> None:
    """All at once or one by one; after many have gone, and when one that had gone comes back."""
    names, key = Singletons(), ("alice", "fit")
    count = 4 * SLACK
    add(names, key, range(1, count + 1))
    names.wait(key, count)
    for job in range(1, count):
        assert names.first(key) == job
        names.remove(key, job)
    assert names.is_first(key, count)
    names.add(key, 3)
    assert (names.first(key), names.is_first(key, count)) == (3, False)
    names.leave(key, count)
    assert names.first(key) is None
    assert names.is_first(key, 3)
