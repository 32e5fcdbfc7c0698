"""A node that does not run steps of a job's user: the job goes elsewhere, and people are told why."""

from __future__ import annotations

import pytest

from hal.core.model import TaskState
from hal.wire.frames.agent_keeper import Refusal
from tests.planes.tasks.small_plane import SmallPlane

WHY = "this node has no account of user 'alice'"


@pytest.mark.parametrize("code", ["no-account", "foreign-user"])
def test_a_task_goes_to_another_node_at_once(code: str) -> None:
    """It did not fail: no retry is counted, and its job does not come back to that node."""
    plane = SmallPlane(nodes=2)
    (job,) = plane.submit({"retries": 0})
    plane.start((job, 0))
    attempt = plane.live(job).active[0]
    plane.plane.record_refusals(attempt.nodes[0], [Refusal(attempt.step(job, 0), code, WHY)], plane.now_ms)
    plane.commit()
    first = plane.live(job).ranges[0]
    assert (first.state, first.attempt, first.retries, first.eligible_ms) == (TaskState.PENDING, 2, 0, 0)
    assert plane.live(job).spec.exclude == (attempt.nodes[0],)
    assert first.reason == f"its user cannot run on n1 (attempt 1): {WHY}"
    assert WHY in plane.plane.why(plane.live(job), plane.now_ms).message
