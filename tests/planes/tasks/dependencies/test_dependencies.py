"""Dependencies: expressions, alternatives, task by task, singletons, and what follows when one can never be met."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import ConflictError, Failed, Reason, SpecError, TaskState, spec_from_plain
from hal.core.model.policy import Policy, Queue
from hal.planes.tasks import JobPatch
from hal.planes.tasks.live.task_ranges import take
from hal.planes.tasks.live.task_sets import TaskSet, added, complement, merged, removed, within
from hal.planes.tasks.slices import finished
from hal.planes.tasks.table.worklist import TasksChanged
from tests.examples import examples
from tests.planes.tasks.small_plane import BY, SmallPlane


def ran(plane: SmallPlane, job: int, code: int = 0) -> None:
    """The job's single task runs and ends with that exit code."""
    plane.start((job, 0))
    plane.end(job, code=code)


def waits(plane: SmallPlane, job: int) -> bool:
    """Whether the job lives and the engine knows none of its tasks."""
    return job in plane.plane._table.jobs and not any(of == job for of, _ in plane.engine.pending)


def test_one_alternative_that_fails_leaves_the_other() -> None:
    """(a | b): a fails, b may still come; b succeeds, and the job goes."""
    plane = SmallPlane()
    a, b, job = plane.submit({"name": "a"}, {"name": "b"}, {"dependencies": "a | b"})
    ran(plane, a, code=1)
    assert waits(plane, job)
    ran(plane, b)
    assert (job, 0) in plane.engine.pending


def test_a_choice_is_out_of_reach_only_when_no_alternative_is_left() -> None:
    """(a | b): both fail, the job is cancelled and says why."""
    plane = SmallPlane()
    a, b, _ = plane.submit({"name": "a"}, {"name": "b"}, {"dependencies": "a | b"})
    ran(plane, a, code=1)
    plane.start((b, 0))
    gone = plane.end(b, code=1).ended[-1]
    assert gone.state is TaskState.CANCELLED
    assert gone.reason == (
        f"dependency: it waits for one of (afterok of job {a} (a), which failed; afterok of job {b} (b), which "
        "failed), of which none can be met any more"
    )


def test_all_groups_of_an_expression_must_be_met() -> None:
    """a & (b | c): b alone is not enough, a alone neither."""
    plane = SmallPlane()
    a, b, c, job = plane.submit({"name": "a"}, {"name": "b"}, {"name": "c"}, {"dependencies": "a & (b | c)"})
    ran(plane, b)
    assert waits(plane, job)
    ran(plane, a)
    assert not waits(plane, job)
    assert c in plane.plane._table.jobs


@pytest.mark.parametrize(
    ("rule", "queue", "state"),
    [
        (None, "default", TaskState.CANCELLED),
        ("hold", "default", TaskState.HELD),
        ("run", "default", TaskState.PENDING),
        (None, "patient", TaskState.HELD),
        ("cancel", "patient", TaskState.CANCELLED),
    ],
)
def test_the_jobs_own_rule_decides_else_its_queues(rule: str | None, queue: str, state: TaskState) -> None:
    """afterok of a job that fails; the queue `patient` holds."""
    patient = Queue(name="patient", on_dependency_failed=Failed.HOLD)
    plane = SmallPlane(Policy(queues={"default": Queue(), "patient": patient}))
    a, job = plane.submit(
        {"name": "a"}, {"dependencies": ["a"], "queue": queue, **({"on_dependency_failed": rule} if rule else {})}
    )
    ran(plane, a, code=1)
    table = plane.plane._table
    assert (table.jobs[job].state if job in table.jobs else TaskState.CANCELLED) is state
    assert ((job, 0) in plane.engine.pending) is (state is TaskState.PENDING)


@pytest.mark.parametrize("how", ["failed", "cancelled", "timed-out"])
def test_every_bad_end_counts_as_failed(how: str) -> None:
    """Whoever waits for success is cancelled, whoever waits for failure runs."""
    from hal.wire.frames.agent_keeper import ExitCause

    plane = SmallPlane()
    a, ok, rescue = plane.submit({"name": "a"}, {"dependencies": ["a"]}, {"dependencies": ["afternotok:a"]})
    if how == "cancelled":
        plane.plane.cancel(a, None, BY, 1_000)
        plane.commit()
    else:
        plane.start((a, 0))
        plane.end(a, code=143, cause=ExitCause.TIMED_OUT if how == "timed-out" else ExitCause.EXITED)
    assert ok not in plane.plane._table.jobs
    assert (rescue, 0) in plane.engine.pending


def requeue(plane: SmallPlane, job: int, row: Any) -> None:
    """An ended job of one task runs again."""
    from hal.planes.tasks import EndedTask

    plane.plane.revive(row, [])
    plane.plane.requeue(job, None, [EndedTask(0, 1, row.state, 1)], BY, plane.now_ms)
    plane.commit()


def failed_row(plane: SmallPlane, job: int) -> Any:
    """It fails; its row."""
    from hal.planes.tasks import job_row

    plane.start((job, 0))
    return job_row(plane.end(job, code=1).ended[0])


def test_a_held_dependant_waits_again_when_its_predecessor_runs_again() -> None:
    """Held when `a` failed; pending once `a` is requeued; runs when `a` succeeds; nobody had to release it."""
    plane = SmallPlane()
    a, job = plane.submit({"name": "a"}, {"dependencies": ["a"], "on_dependency_failed": "hold"})
    row = failed_row(plane, a)
    assert plane.live(job).state is TaskState.HELD
    requeue(plane, a, row)
    assert plane.live(job).state is TaskState.PENDING
    assert waits(plane, job)
    plane.start((a, 0))
    plane.end(a)
    assert (job, 0) in plane.engine.pending


def test_a_release_waives_what_can_never_be_met_and_nothing_else() -> None:
    """Held because `a` failed; released it still waits for `b`."""
    plane = SmallPlane()
    a, b, job = plane.submit({"name": "a"}, {"name": "b"}, {"dependencies": "a & b", "on_dependency_failed": "hold"})
    ran(plane, a, code=1)
    verdict = plane.plane.why(plane.live(job), 1_000)
    assert verdict.reason is Reason.HELD
    assert f"afterok of job {a} (a), which failed" in verdict.message
    assert verdict.helps == (f"hal release {job}", f"hal requeue {a}")
    plane.plane.release(job, None, BY, 1_000)
    plane.commit()
    assert waits(plane, job)
    ran(plane, b)
    assert (job, 0) in plane.engine.pending


def test_a_person_who_holds_a_job_does_not_waive_its_dependency_by_releasing_it() -> None:
    """Held by alice, then its dependency fails: the first release takes her hold away, the rule's stays."""
    plane = SmallPlane()
    a, job = plane.submit({"name": "a"}, {"dependencies": ["a"], "on_dependency_failed": "hold", "hold": True})
    ran(plane, a, code=1)
    plane.plane.release(job, None, BY, 1_000)
    plane.commit()
    assert plane.live(job).state is TaskState.HELD
    plane.plane.release(job, None, BY, 1_000)
    plane.commit()
    assert (job, 0) in plane.engine.pending


def test_a_new_rule_holds_from_the_moment_it_is_given() -> None:
    """Held by its rule, updated to `run`: it runs."""
    plane = SmallPlane()
    a, job = plane.submit({"name": "a"}, {"dependencies": ["a"], "on_dependency_failed": "hold"})
    ran(plane, a, code=1)
    plane.plane.update(job, JobPatch(on_dependency_failed=Failed.RUN), BY, 1_000)
    plane.commit()
    assert (job, 0) in plane.engine.pending


def test_why_names_the_jobs_their_states_and_the_rule() -> None:
    """What it waits for, how far that is, and what follows when it fails."""
    plane = SmallPlane()
    a, b, job = plane.submit({"name": "a"}, {"name": "b", "hold": True}, {"dependencies": "a & (afterany:b | after:a)"})
    verdict = plane.plane.why(plane.live(job), 1_000)
    assert verdict.reason is Reason.DEPENDENCY
    assert verdict.message == (
        f"waits for afterok of job {a} (a), which is pending; one of (afterany of job {b} (b), which is held | "
        f"after of job {a} (a), which is pending). If that can never be met, this job is cancelled"
    )
    assert verdict.helps == (f"hal release {b}",)


# ── singleton ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_singletons_of_one_name_run_one_after_the_other() -> None:
    """Three of alice's `backup`: the second when the first has ended, however; another name does not care."""
    plane = SmallPlane()
    one = {"name": "backup", "dependencies": ["singleton"]}
    first, second, third, other = plane.submit(one, one, one, {**one, "name": "other"})
    assert {job for job, _ in plane.engine.pending} == {first, other}
    ran(plane, first, code=1)
    assert {job for job, _ in plane.engine.pending} == {second, other}
    plane.plane.cancel(second, None, BY, 1_000)
    plane.commit()
    assert {job for job, _ in plane.engine.pending} == {third, other}


def test_a_singleton_waits_for_jobs_of_its_name_that_are_none_themselves() -> None:
    """And not for what was submitted after it; a new name frees those behind."""
    plane = SmallPlane()
    first, second, third = plane.submit(
        {"name": "x"}, {"name": "x", "dependencies": ["singleton"]}, {"name": "x", "array": 2}
    )
    assert {job for job, _ in plane.engine.pending} == {first, third}
    plane.plane.update(first, JobPatch(name="y"), BY, 1_000)
    plane.commit()
    assert (second, 0) in plane.engine.pending


# ── task by task ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_task_follows_the_same_task_of_the_other_array() -> None:
    """Task 2 of three succeeds first: task 2 of the follower may start, the others wait."""
    plane = SmallPlane()
    a, b = plane.submit({"name": "a", "array": 3}, {"array": 3, "dependencies": ["aftercorr:a"]})
    plane.start((a, 0), (a, 1), (a, 2))
    plane.end(a, 2)
    assert [task for job, task in plane.engine.pending if job == b] == [2]
    plane.end(a, 0, code=1)
    assert plane.live(b).task_state(0) is TaskState.CANCELLED
    plane.end(a, 1)
    assert sorted(task for job, task in plane.engine.pending if job == b) == [1, 2]
    assert plane.live(b).waits is None


def test_a_million_tasks_that_follow_a_million_stay_a_few_values() -> None:
    """Before anything ends one range; after the first thousand have ended two."""
    plane = SmallPlane()
    size = 1_000_000
    specs = [
        spec_from_plain({"command": ["x"], "name": "a", "array": size, "hold": True}),
        spec_from_plain({"command": ["x"], "array": size, "hold": True, "dependencies": ["aftercorr:a"]}),
    ]
    a, b = plane.plane.submit(specs, BY, 1_000)
    plane.plane.seal(1_000)
    plane.plane.keep()
    assert len(b.ranges) == 1
    a.succeeded = added(a.succeeded, 0, 1_000)
    a.ranges = take(a.ranges, 0, 1_000)
    plane.plane._table.worklist.add(TasksChanged(a.id, ((0, 1_000),), 1_000))
    finished(plane.plane.settling())
    assert [(task_range.first, task_range.count, task_range.eligible_ms == 0) for task_range in b.ranges] == [
        (0, 1_000, True),
        (1_000, size - 1_000, False),
    ]


def test_arrays_of_different_length_cannot_follow_task_by_task() -> None:
    """Refused by name, in one submission and across two; nothing is stored."""
    plane = SmallPlane()
    with pytest.raises(SpecError, match="has 4 tasks, 'a' 3"):
        plane.submit({"name": "a", "array": 3}, {"name": "b", "array": 4, "dependencies": ["aftercorr:a"]})
    (a,) = plane.submit({"name": "a", "array": 3})
    with pytest.raises(SpecError, match="has 2 tasks, 'a' 3"):
        plane.submit({"array": 2, "dependencies": [f"aftercorr:{a}"]})


def test_a_task_held_because_of_its_like_is_released_alone() -> None:
    """Rule hold: task 1 of the first array fails, task 1 of the second is held, and released."""
    plane = SmallPlane()
    a, b = plane.submit(
        {"name": "a", "array": 2}, {"array": 2, "dependencies": ["aftercorr:a"], "on_dependency_failed": "hold"}
    )
    plane.start((a, 0), (a, 1))
    plane.end(a, 1, code=1)
    assert plane.live(b).task_state(1) is TaskState.HELD
    plane.plane.release(b, 1, BY, 1_000)
    plane.commit()
    assert [task for job, task in plane.engine.pending if job == b] == [1]
    with pytest.raises(ConflictError):
        plane.plane.cancel(a, 1, BY, 1_000)


# ── max_running ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_engine_never_knows_more_tasks_than_may_run() -> None:
    """Ten tasks, three at once: as one starts none is added, as one ends the next is."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": "0-9%3"})
    assert sorted(plane.engine.pending) == [(job, 0), (job, 1), (job, 2)]
    plane.start((job, 0), (job, 2))
    assert sorted(plane.engine.pending) == [(job, 1)]
    plane.end(job, 2)
    assert sorted(plane.engine.pending) == [(job, 1), (job, 3)]


def test_the_limit_of_a_running_array_can_be_changed() -> None:
    """3 → 1: nothing more starts before two have ended; → no limit: all may."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": "0-9%3"})
    plane.start((job, 0), (job, 1))
    plane.plane.update(job, JobPatch(max_running=1), BY, 1_000)
    plane.commit()
    assert plane.engine.pending == {}
    verdict = plane.plane.why(plane.live(job), 1_000)
    assert (verdict.reason, verdict.message) == (
        Reason.MAX_RUNNING,
        "2 tasks of it run, and its max_running is 1: 8 tasks wait for one of them to end",
    )
    plane.end(job, 0)
    assert plane.engine.pending == {}
    plane.end(job, 1)
    assert sorted(plane.engine.pending) == [(job, 2)]
    plane.plane.update(job, JobPatch(max_running=0), BY, 1_000)
    plane.commit()
    assert len(plane.engine.pending) == 8


def test_a_task_that_backs_off_keeps_no_place_from_one_that_could_start() -> None:
    """Two at once; task 0 fails and waits 1 s: tasks 1 and 2 are let through, then it comes before task 3."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": "0-9%2", "retries": {"max": 1, "backoff": "1s"}})
    plane.start((job, 0))
    plane.end(job, 0, code=1)
    assert sorted(plane.engine.pending) == [(job, 1), (job, 2)]
    plane.now_ms = 2_000
    plane.start((job, 1), (job, 2))
    plane.end(job, 1)
    assert sorted(plane.engine.pending) == [(job, 0)]


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────

SIZE = 14
ranges = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(lambda p: (p[0], min(p[0] + p[1], SIZE)))


def _members(task_set: TaskSet) -> set[int]:
    return {task for first, end in task_set for task in range(first, end)}


@given(st.lists(st.tuples(st.booleans(), ranges), max_size=12), ranges)
@settings(max_examples=examples(300))
def test_runs_agree_with_sets(steps: list[tuple[bool, tuple[int, int]]], window: tuple[int, int]) -> None:
    """Any order of adding and removing gives what a set gives, in one form."""
    task_set: TaskSet = ()
    reference: set[int] = set()
    for adds, (first, end) in steps:
        change = set(range(first, end))
        task_set = added(task_set, first, end) if adds else removed(task_set, first, end)
        reference = reference | change if adds else reference - change
        assert _members(task_set) == reference
        assert task_set == merged([(task, task + 1) for task in reference])
        assert _members(complement(task_set, SIZE)) == set(range(SIZE)) - reference
        assert _members(tuple(within(task_set, *window))) == reference & set(range(*window))
