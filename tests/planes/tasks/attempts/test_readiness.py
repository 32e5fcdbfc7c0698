"""Services, as nodes tell of them: what a start carries, which tasks are ready, and what a restart does to a task."""

from __future__ import annotations

from typing import Any

import pytest

from hal.core.lifecycle.outcome import NODE_TOO_OLD
from hal.core.model import StepId, TaskState
from hal.core.model.service import ProbeKind
from hal.planes.tasks import Change
from hal.wire.frames.agent_keeper import Refusal, StepStarted, TemplateProbe
from hal.wire.frames.controller_agent import StepReadiness
from tests.planes.tasks.small_plane import BY, SmallPlane

WEB: dict[str, Any] = {"service": {"ports": ["http", "admin=9000"], "readiness": "http:http/ok"}}
PORTS = (9_000, 20_001)


def running(plane: SmallPlane, **fields: Any) -> int:
    """A service whose tasks run."""
    (job,) = plane.submit({**WEB, **fields})
    tasks = range(plane.live(job).spec.tasks)
    plane.start(*((job, task) for task in tasks))
    for task in tasks:
        attempt = plane.live(job).active[task]
        plane.plane.record_starts(attempt.nodes[0], [StepStarted(attempt.step(job, 0), 7, plane.now_ms)], plane.now_ms)
    plane.commit()
    return job


def told(
    plane: SmallPlane,
    job: int,
    *,
    task: int = 0,
    ready: bool = True,
    reason: str = "",
    ports: tuple[int, ...] = PORTS,
    rank: int = 0,
    node: str = "",
) -> Change:
    attempt = plane.live(job).active[task]
    report = StepReadiness(attempt.step(job, rank), ready, plane.now_ms, reason, ports)
    plane.plane.record_readiness(node or attempt.nodes[0], [report], plane.now_ms)
    return plane.commit()


def probed(change: Change) -> list[Any]:
    """What the feed says of readiness."""
    events = [one for operation in change.operations for one in getattr(operation, "events", ())]
    return [item for one in events if one.kind == "attempts-probed" for item in one.payload["attempts"]]


def test_a_start_carries_the_ports_and_the_probe_of_its_service() -> None:
    """In the template, once for all of its tasks."""
    plane = SmallPlane()
    (job,) = plane.submit(WEB)
    service = plane.start((job, 0)).orders["n1"].templates[job].service
    assert service is not None
    assert service.ports == (("admin", 9_000), ("http", 0))
    assert service.probe == TemplateProbe(ProbeKind.HTTP, 10_000, 2_000, 1, 3, "/ok", 1)


def test_a_job_that_is_no_service_carries_nothing_of_it() -> None:
    plane = SmallPlane()
    (job,) = plane.submit({})
    assert plane.start((job, 0)).orders["n1"].templates[job].service is None


def test_a_running_task_is_starting_until_its_node_says_that_it_is_ready() -> None:
    plane = SmallPlane()
    job = running(plane, array=2)
    assert plane.plane.ready_count(job) == 0
    assert "0 of 2 ready; task 0 on n1 is starting" in plane.plane.why(plane.live(job), 0).message
    told(plane, job)
    assert plane.plane.ready_count(job) == 1


def test_what_is_not_ready_says_why() -> None:
    plane = SmallPlane()
    job = running(plane)
    told(plane, job, ready=False, reason="GET /ok: status 503")
    assert "0 of 1 ready; task 0 on n1 is not ready: GET /ok: status 503" in plane.plane.why(plane.live(job), 0).message


def test_the_feed_tells_when_a_task_becomes_ready_and_when_it_is_so_no_longer() -> None:
    """Not that one is not ready yet, and not what is only repeated, as after each hello."""
    plane = SmallPlane()
    job = running(plane)
    changes = [told(plane, job, ready=ready, reason="" if ready else "down") for ready in (False, True, True, False)]
    told_of = [[item["ready"] for item in probed(change)] for change in changes]
    assert told_of == [[], [True], [], [False]]


def test_an_attempt_that_is_being_ended_is_not_ready() -> None:
    """Nobody should be sent there any more."""
    plane = SmallPlane()
    job = running(plane)
    told(plane, job)
    plane.plane.cancel(job, None, BY, plane.now_ms)
    plane.commit()
    assert plane.plane.ready_count(job) == 0


@pytest.mark.parametrize("lie", [
    {"node": "n2"},
    {"ports": (1,)},
    {"rank": 1},
])  # fmt: skip
def test_safety_a_node_makes_only_its_own_steps_ready_at_as_many_ports_as_there_are(lie: dict[str, Any]) -> None:
    plane = SmallPlane()
    job = running(plane)
    told(plane, job, **lie)
    assert plane.plane.ready_count(job) == 0


def test_safety_nothing_makes_a_job_ready_that_is_no_service() -> None:
    plane = SmallPlane()
    job = running(plane, service=None)
    told(plane, job, ports=())
    assert plane.plane.ready_count(job) is None


def test_safety_what_a_group_that_failed_said_counts_when_it_is_said_again() -> None:
    plane = SmallPlane()
    job = running(plane)
    report = StepReadiness(StepId(job, 0, 1, 0), True, plane.now_ms, "", PORTS)
    plane.plane.record_readiness("n1", [report], plane.now_ms)
    plane.plane.undo()
    assert plane.plane.ready_count(job) == 0
    plane.plane.record_readiness("n1", [report], plane.now_ms)
    assert len(probed(plane.commit())) == 1


def test_safety_readers_see_no_readiness_that_is_not_committed() -> None:
    """Neither is one gone before its end is."""
    plane = SmallPlane()
    job = running(plane)
    report = StepReadiness(StepId(job, 0, 1, 0), True, plane.now_ms, "", PORTS)
    plane.plane.record_readiness("n1", [report], plane.now_ms)
    assert plane.plane.readiness(job, 0) is None
    plane.commit()
    assert plane.plane.readiness(job, 0) is not None


def test_a_restarted_task_is_not_ready_before_its_new_attempt_says_so() -> None:
    plane = SmallPlane()
    job = running(plane)
    told(plane, job)
    plane.end(job, code=0)
    assert plane.plane.ready_count(job) == 0
    assert plane.live(job).ranges[0].reason == "attempt 1 ended; restart 1 of 5 within 10m"
    assert plane.live(job).state is TaskState.PENDING


def test_a_task_that_ended_well_too_often_has_failed() -> None:
    """Its attempt succeeded; the task, restarted as often as it may be, did not."""
    plane = SmallPlane()
    job = running(plane, retries=1)
    plane.end(job)
    plane.now_ms += 60_000
    plane.start((job, 0))
    change = plane.end(job)
    (ended,) = change.ended
    assert (ended.state, ended.reason) == (TaskState.FAILED, "attempt 2 ended, after 1 restart within 10m")


def test_a_node_that_knows_no_services_sends_the_task_elsewhere() -> None:
    """No retry is counted, and the node is not used again."""
    plane = SmallPlane()
    (job,) = plane.submit(WEB)
    plane.start((job, 0))
    step = StepId(job, 0, 1, 0)
    plane.plane.record_refusals("n1", [Refusal(step, NODE_TOO_OLD, "too old")], plane.now_ms)
    plane.commit()
    assert plane.live(job).spec.exclude == ("n1",)
    assert plane.live(job).ranges[0].reason == "an older HAL runs on n1 (attempt 1): too old"
    assert plane.live(job).ranges[0].retries == 0
