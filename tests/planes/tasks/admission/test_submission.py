"""Submitting: dependencies by name and id, what is refused, and that what failed leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hal.core.model import ConflictError, Duration, SpecError, TaskState, spec_from_plain
from hal.core.model.policy import Account, Policy, Queue
from hal.planes.tasks import EndedJob, UnknownJobs
from hal.store import InsertJobs
from tests.planes.tasks.small_plane import BY, SmallPlane


def refused(plane: SmallPlane, *jobs: dict[str, Any]) -> SpecError | ConflictError:
    """The error of a submission; nothing of it was staged."""
    with pytest.raises((SpecError, ConflictError)) as caught:
        plane.submit(*jobs)
    assert plane.commit().empty
    assert plane.plane._table.next_id == 1
    return caught.value


def test_an_array_of_a_million_tasks_is_one_span_and_one_row_for_the_engine() -> None:
    """Memory and events follow what differs, not how many tasks there are."""
    plane = SmallPlane()
    plane.plane.submit([spec_from_plain({"command": ["true"], "array": 1_000_000})], BY, 1_000)
    change = plane.plane.seal(1_000)
    assert len(plane.live(1).ranges) == 1
    assert [len(event.rows) for event in change.engine] == [1]  # type: ignore[union-attr]


def test_a_cycle_is_named_and_nothing_is_submitted() -> None:
    """a → c → b → a."""
    error = refused(
        SmallPlane(),
        {"name": "a", "dependencies": ["c"]},
        {"name": "b", "dependencies": ["a"]},
        {"name": "c", "dependencies": ["b"]},
    )
    assert "a → c → b → a" in error.message


@pytest.mark.parametrize(
    ("jobs", "says"),
    [
        ([{"dependencies": ["nobody"]}], "neither a job id nor the name"),
        ([{"dependencies": ["7"]}], "there is no job 7"),
        ([{"name": "a", "dependencies": ["a"]}], "wait for itself"),
        ([{"name": "a"}, {"name": "a"}, {"dependencies": ["a"]}], "names 2 jobs"),
        ([{"request": {"cpu": 65}}], "the largest node has 64"),
        ([{"queue": "defaultt"}], "did you mean 'default'?"),
    ],
)
def test_what_cannot_be_accepted_says_why(jobs: list[dict[str, Any]], says: str) -> None:
    """One clear error, and nothing stored."""
    assert says in refused(SmallPlane(), *jobs).message


def test_of_several_jobs_the_wrong_one_is_named_by_its_place() -> None:
    """The second of three."""
    assert refused(SmallPlane(), {}, {"queue": "no"}, {}).message.startswith("job 2 of 3: ")


def test_a_dependency_on_a_job_that_is_not_live_is_asked_for() -> None:
    """The caller looks it up; with the answer the submission goes through, or fails its job at once."""
    plane = SmallPlane()
    (first,) = plane.submit({"name": "first"})
    plane.start((first, 0))
    plane.end(first, code=3)
    with pytest.raises(UnknownJobs) as asked:
        plane.submit({"dependencies": [str(first)]})
    assert asked.value.jobs == (first,)
    ended = {first: EndedJob(first, "first", TaskState.FAILED)}
    (ok,) = plane.submit({"dependencies": [f"afternotok:{first}"]}, ended=ended)
    assert plane.live(ok).waits is None
    plane.plane.submit([spec_from_plain({"command": ["x"], "dependencies": [str(first)]})], BY, 1_000, ended=ended)
    (gone,) = plane.commit().ended
    assert (gone.state, gone.reason) == (
        TaskState.CANCELLED,
        f"dependency: it waits for afterok of job {first} (first), which failed",
    )


@pytest.mark.parametrize(
    ("kind", "code", "started", "runs"),
    [
        ("after", 0, False, True),
        ("afterany", 1, True, True),
        ("afterok", 0, True, True),
        ("afterok", 1, True, False),
        ("afternotok", 1, True, True),
        ("afternotok", 0, True, False),
    ],
)
def test_each_kind_of_dependency_is_met_when_it_says(kind: str, code: int, started: bool, runs: bool) -> None:
    """`after` at the start, the others at the end; one that can never be met fails the job."""
    from hal.core.model import StepId
    from hal.wire.frames.agent_keeper import StepStarted

    plane = SmallPlane()
    first, second = plane.submit({"name": "a"}, {"dependencies": [f"{kind}:a"]})
    assert (second, 0) not in plane.engine.pending
    plane.start((first, 0))
    if started:
        plane.end(first, code=code)
    else:
        plane.plane.record_starts("n1", [StepStarted(StepId(first, 0, 1, 0), 7, 1_000)], 1_000)
        plane.commit()
    assert ((second, 0) in plane.engine.pending) is runs
    assert (second in plane.plane._table.jobs) is runs


def test_queue_limits_and_declared_names_hold() -> None:
    """The queue's default walltime is given, longer ones and undeclared accounts are refused, its own users only."""
    short = Queue(name="short", default_walltime=Duration(60_000), max_walltime=Duration(120_000), users=("bob",))
    shut = Queue(name="shut", open=False)
    policy = Policy(queues={"short": short, "shut": shut}, accounts={"physics": Account()})
    plane = SmallPlane(policy)
    assert "at most 2m" in refused(plane, {"queue": "short", "user": "bob", "walltime": "1h"}).hint
    assert "queue 'short'" in refused(plane, {"queue": "short"}).message
    assert "physics" in refused(plane, {"account": "chemistry"}).hint
    assert isinstance(refused(plane, {"queue": "shut"}), ConflictError)
    (job,) = plane.submit({"queue": "short", "user": "bob", "account": "physics"})
    assert plane.live(job).walltime_ms == 60_000


@pytest.mark.parametrize(
    ("job", "queue", "says"),
    [
        ({}, Queue(), "there is no walltime"),
        ({}, Queue(default_walltime=Duration(60_000)), "before the job starts: its walltime is 1m"),
        ({"walltime": "6m"}, Queue(), ""),
        ({}, Queue(max_walltime=Duration(600_000)), ""),
    ],
)
def test_a_signal_needs_a_walltime_that_it_comes_before(job: dict[str, Any], queue: Queue, says: str) -> None:
    """Five minutes before the end, with what the queue gives to a job that names no walltime."""
    plane = SmallPlane(Policy(queues={"default": replace(queue, name="default")}))
    wanted = {"signal": {"name": "USR1", "before": "5m"}, **job}
    if says:
        assert says in refused(plane, wanted).message
    else:
        assert plane.submit(wanted) == [1]


def test_undo_takes_back_ids_jobs_and_nodes() -> None:
    """After a commit that failed everything is as it was, and the next submission gets the same id."""
    plane = SmallPlane()
    plane.plane.submit([spec_from_plain({"command": ["true"]})], BY, 1_000)
    assert any(isinstance(o, InsertJobs) for o in plane.plane.seal(1_000).operations)
    plane.plane.undo()
    assert len(plane.plane._table.jobs) == 0
    assert plane.submit({}) == [1]
