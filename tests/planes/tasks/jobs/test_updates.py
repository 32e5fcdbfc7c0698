"""Changes of jobs that have not ended: what may change when, that all or nothing changes, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from hal.core.model import (
    ConflictError,
    DeniedError,
    Duration,
    EventKind,
    Resources,
    SpecError,
    TaskState,
    to_plain,
)
from hal.core.model.policy import Limit, Policy, Queue
from hal.planes.tasks import Submitter, patch_of
from hal.planes.tasks.live.job import LiveJob
from hal.wire.frames.agent_keeper import ExitCause
from tests.planes.tasks.small_plane import BY, SmallPlane

USER = Submitter("alice", "trace", lengthens=False)


def change(plane: SmallPlane, job: int, by: Submitter = BY, **fields: Any) -> LiveJob:
    """The job after the change, which is committed."""
    updated = plane.plane.update(job, patch_of(fields), by, plane.now_ms)
    plane.commit()
    return updated.job


def refused(plane: SmallPlane, job: int, by: Submitter = BY, **fields: Any) -> str:
    """The words of a refusal that left everything as it was."""
    before = to_plain(plane.live(job).spec)
    with pytest.raises((SpecError, ConflictError, DeniedError)) as caught:
        plane.plane.update(job, patch_of(fields), by, plane.now_ms)
    assert plane.commit().empty
    assert to_plain(plane.live(job).spec) == before
    return str(caught.value)


def test_named_resources_change_and_the_others_stay() -> None:
    """0 takes one out; the engine hears of the task as one of another class."""
    plane = SmallPlane()
    (job,) = plane.submit({"request": {"cpu": 1, "memory": "1GiB", "disk": "1GiB"}})
    assert change(plane, job, request={"cpu": 2, "disk": 0}).spec.request == Resources(
        {"cpu": 2_000, "memory": 1 << 30}
    )
    assert plane.live(job).request.request == {"cpu": 2_000, "memory": 1 << 30}
    plane.start((job, 0))


@pytest.mark.parametrize(
    ("field", "value", "then"),
    [
        ("nodes", 2, 2),
        ("labels", {"team": "red"}, {"team": "red"}),
        ("comment", "later", "later"),
        ("constraints", ["gpu=a100"], [{"label": "gpu", "values": ["a100"]}]),
        ("retries", 3, {"max": 3}),
        ("signal", {"name": "USR1", "before": "1m"}, {"name": "USR1", "before": "1m"}),
        ("wait_for_change", True, True),
    ],
)
def test_a_field_of_a_waiting_job_changes(field: str, value: Any, then: Any) -> None:
    """As people write it; the row says so after a restart, because the spec is stored again."""
    plane = SmallPlane()
    (job,) = plane.submit({"walltime": "2h", "retries": 1})
    assert to_plain(change(plane, job, **{field: value}).spec)[field] == then


def test_all_fields_change_or_none() -> None:
    """The second is refused: the first stays as it was, too."""
    plane = SmallPlane(Policy(queues={"default": Queue(), "short": Queue(name="short", max_walltime=Duration(60_000))}))
    (job,) = plane.submit({"walltime": "1h", "comment": "before"})
    assert "longer than queue 'short' allows" in refused(plane, job, comment="after", queue="short")
    assert "command: cannot be changed" in refused(plane, job, comment="after", command=["false"])


def test_what_a_submission_would_be_refused_for_is_refused() -> None:
    """A size, a limit that is too small, nodes that are too small."""
    limits = {"each": Limit(name="each", max_nodes=2, resources=Resources({"cpu": 8_000}))}
    plane = SmallPlane(Policy(limits=limits))
    (job,) = plane.submit({})
    assert "limit 'each' (everybody) allows 2" in refused(plane, job, nodes=3)
    assert "never starts, because limit 'each'" in refused(plane, job, request={"cpu": 9})
    plane = SmallPlane()
    plane.submit({})
    assert "never starts, because cpu: asks for 65; the largest node has 64" in refused(plane, 1, request={"cpu": 65})


def test_running_tasks_keep_what_they_hold() -> None:
    """While one task of the array runs its amounts stay; labels and constraints change, for what waits."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 3, "retries": 1})
    plane.start((job, 0))
    assert "request: cannot be changed while 1 task of job 1 runs" in refused(plane, job, request={"cpu": 2})
    changed = change(plane, job, labels={"a": "b"}, constraints=["!spot"])
    assert [one.label for one in changed.spec.constraints] == ["spot"]
    assert plane.engine.running == {(job, 0): 1}


def test_a_task_that_runs_while_its_job_changes_waits_again_as_what_the_job_is_now() -> None:
    """It fails and is tried again: the engine is told of its end alone, and then of a task of the new class."""
    plane = SmallPlane()
    (job,) = plane.submit({"retries": {"max": 1, "backoff": "0s"}})
    plane.start((job, 0))
    change(plane, job, constraints=["!spot"])
    submitted = [
        event for event in plane.end(job, 0, code=1, cause=ExitCause.EXITED).engine if hasattr(event, "classes")
    ]
    assert [[rule.key for rule in event.classes[-1].constraints] for event in submitted] == [["spot"]]
    assert plane.engine.pending == {(job, 0): (2, 1_000)}


def test_dependencies_are_replaced_and_taken_out() -> None:
    """A job waits for another one; then for none, and the engine may start it."""
    plane = SmallPlane()
    first, job = plane.submit({}, {})
    assert change(plane, job, dependencies=f"afterok:{first}").waits is not None
    assert (job, 0) not in plane.engine.pending
    assert change(plane, job, dependencies=[]).spec.dependencies == ()
    assert (job, 0) in plane.engine.pending


def test_a_job_may_wait_for_a_newer_one_but_not_for_itself_through_others() -> None:
    """3 waits for 2, 2 for 1: if 1 waited for 3, none would ever start."""
    plane = SmallPlane()
    for job in ({}, {"dependencies": ["1"]}, {"dependencies": ["2"]}, {}):
        plane.submit(job)
    assert "job 1 would wait for itself: 1 → 3 → 2 → 1" in refused(plane, 1, dependencies=["3"])
    assert change(plane, 1, dependencies=["4"]).waits is not None


def test_a_circle_through_a_singleton_is_found() -> None:
    """2 waits for all earlier jobs of its name, and so for 1."""
    plane = SmallPlane()
    plane.submit({"name": "y"})
    plane.submit({"name": "y", "dependencies": ["singleton"]})
    assert "job 1 would wait for itself: 1 → 2 → 1" in refused(plane, 1, dependencies=["2"])


def test_other_dependencies_let_go_of_what_the_former_ones_held() -> None:
    """What it waited for failed, and its rule held it; without that dependency it waits for resources."""
    plane = SmallPlane()
    (first,) = plane.submit({})
    (job,) = plane.submit({"dependencies": [str(first)], "on_dependency_failed": "hold"})
    plane.start((first, 0))
    plane.end(first, 0, code=1)
    assert plane.live(job).state is TaskState.HELD
    changed = change(plane, job, dependencies=[])
    assert (changed.state, changed.reason) == (TaskState.PENDING, "")


def test_task_by_task_dependencies_can_be_given_to_an_array() -> None:
    """Each of its tasks waits for the same task of the other one; another length is refused."""
    plane = SmallPlane()
    first, job, other = plane.submit({"array": 2}, {"array": 2}, {"array": 3})
    change(plane, job, dependencies=[f"aftercorr:{first}"])
    plane.start((first, 1))
    plane.end(first, 1)
    assert (job, 1) in plane.engine.pending
    assert (job, 0) not in plane.engine.pending
    assert "has 3 tasks" in refused(plane, other, dependencies=[f"aftercorr:{first}"])


def test_dependencies_of_a_job_that_has_begun_are_past() -> None:
    """The refusal says what to do instead."""
    plane = SmallPlane()
    first, job = plane.submit({}, {})
    plane.start((job, 0))
    assert "submit it as a job of its own" in refused(plane, job, dependencies=[str(first)])


def test_a_user_does_not_raise_what_an_operator_lowered() -> None:
    """Its own user may lower it further."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    change(plane, job, priority=-10)
    assert "only operators raise it" in refused(plane, job, USER, priority=-5)
    assert change(plane, job, USER, priority=-20).priority == -20


def test_the_event_says_what_changed_from_what() -> None:
    """And who changed it."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.plane.update(job, patch_of({"request": {"cpu": 2}, "comment": "more"}), BY, plane.now_ms)
    (event,) = [one for one in plane.plane._table.draft.events(plane.now_ms) if one.kind is EventKind.JOBS_CHANGED]
    assert (event.cause, event.payload["before"]) == ("user:alice", {"request": {"cpu": "1"}, "comment": ""})
    assert event.payload["fields"] == {"request": {"cpu": 2}, "comment": "more"}


@pytest.mark.parametrize(
    "fields", [{"retries": {"max": "x"}}, {"gates": ["?"]}, {"nodes": 0}, {"walltime": "0s"}, {"x": 1}]
)
def test_a_malformed_change_is_one_clear_error(fields: dict[str, Any]) -> None:
    """Nothing is changed; the field is named."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    assert next(iter(fields)) in refused(plane, job, **fields)
