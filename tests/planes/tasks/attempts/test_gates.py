"""Prologs and epilogs as nodes tell of them: what an attempt is meanwhile, what a failure closes, where it ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hal.core.lifecycle import GateState
from hal.core.model import AttemptState, NodeState, StepId, TaskState
from hal.planes.tasks import Change, reason_of
from hal.planes.tasks.nodes.failed_gates import MAX_CLOSED
from hal.store import AppendEvents
from hal.wire.frames.agent_keeper import Refusal, StepStarted
from hal.wire.frames.controller_agent import FailingCheck, StepGate
from tests.planes.tasks.small_plane import BY, SmallPlane

WHY = "no scratch (exit code 3)"


def start_on(plane: SmallPlane, node: int, job: int, task: int = 0) -> None:
    """Start a task of one node there; nodes count from 1."""
    starts, _ = plane.engine.plan([(job, task)], {job: 1})
    plane.engine.assume(starts)
    rows = np.array([node - 1], np.int64)
    plane.plane.allocate(starts, rows, plane.names.__getitem__, 1, plane.now_ms)
    plane.commit()


def told(plane: SmallPlane, step: StepId, gate: str, state: GateState = GateState.WAITING, why: str = "") -> Change:
    node = plane.live(step.job).active[step.task].nodes[step.rank]
    plane.plane.record_gates(node, [StepGate(step, gate, state, why)], plane.now_ms)
    return plane.commit()


def started(plane: SmallPlane, *steps: StepId) -> None:
    for step in steps:
        node = plane.live(step.job).active[step.task].nodes[step.rank]
        plane.plane.record_starts(node, [StepStarted(step, 7, plane.now_ms)], plane.now_ms)
    plane.commit()


def prolog_fails(plane: SmallPlane, job: int, task: int = 0) -> str:
    """Of the attempt that is active, as the agent tells it: the node."""
    attempt = plane.live(job).active[task]
    step = attempt.step(job, 0)
    told(plane, step, "prolog", GateState.FAILED, WHY)
    plane.plane.record_refusals(attempt.nodes[0], [Refusal(step, "prolog-failed", WHY)], plane.now_ms)
    plane.commit()
    return attempt.nodes[0]


def state_of(plane: SmallPlane, job: int, task: int = 0) -> AttemptState:
    return plane.live(job).active[task].state


def nodes_in(plane: SmallPlane, state: NodeState) -> list[str]:
    return [name for name, row in sorted(plane.plane._table.nodes.items()) if row.state is state]


def gated(changes: Sequence[Change]) -> list[object]:
    """What the feed says of gates."""
    return [
        item
        for change in changes
        for operation in change.operations
        if isinstance(operation, AppendEvents)
        for event in operation.events
        if event.kind == "attempts-gated"
        for item in event.payload["attempts"]
    ]


def test_a_task_is_preparing_while_its_prolog_runs_and_finalising_while_its_epilog_does() -> None:
    """`hal why` names the node; the end is that of its process."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    step = StepId(job, 0, 1, 0)
    changes = [told(plane, step, "prolog")]
    assert (state_of(plane, job), plane.live(job).state) == (AttemptState.PREPARING, TaskState.PREPARING)
    assert "a prolog runs on n1" in plane.plane.why(plane.live(job), 0).message
    started(plane, step)
    changes.append(told(plane, step, "epilog"))
    assert (state_of(plane, job), plane.live(job).state) == (AttemptState.FINALISING, TaskState.FINALISING)
    assert "it has ended; an epilog runs on n1" in plane.plane.why(plane.live(job), 0).message
    changes.append(told(plane, step, "epilog"))  # again: after a new hello
    assert gated(changes) == [
        {"id": f"{job}.0.1", "node": "n1", "gate": gate, "state": "waiting"} for gate in ("prolog", "epilog")
    ]
    assert plane.end(job).ended[0].state is TaskState.SUCCEEDED


def test_a_gang_is_finalising_when_all_that_is_left_of_it_are_epilogs() -> None:
    """One of two ranks at its epilog: the other still runs."""
    plane = SmallPlane()
    (job,) = plane.submit({"nodes": 2})
    plane.start((job, 0))
    first, second = StepId(job, 0, 1, 0), StepId(job, 0, 1, 1)
    told(plane, first, "prolog")
    assert state_of(plane, job) is AttemptState.PREPARING
    started(plane, first, second)
    told(plane, first, "epilog")
    assert state_of(plane, job) is AttemptState.RUNNING
    told(plane, second, "epilog")
    assert state_of(plane, job) is AttemptState.FINALISING
    plane.end(job, rank=1)
    assert plane.end(job).ended[0].state is TaskState.SUCCEEDED
    assert len(plane.plane._table.gates) == 0


def test_what_never_began_is_not_finalised() -> None:
    """Its prolog was ended by a cancel; the epilog that follows does not make it look as if it had run."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    step = StepId(job, 0, 1, 0)
    told(plane, step, "prolog")
    told(plane, step, "epilog")
    assert state_of(plane, job) is AttemptState.PREPARING


def test_a_failed_prolog_drains_the_node_and_sends_the_task_elsewhere() -> None:
    """No retry is counted, nothing is waited for; whoever asks is told why."""
    plane = SmallPlane()
    (job,) = plane.submit({"retries": 0})
    plane.start((job, 0))
    assert prolog_fails(plane, job) == "n1"
    assert nodes_in(plane, NodeState.CORDONED) == ["n1"]
    row = plane.plane._table.nodes["n1"]
    assert reason_of(row) == f"prolog: {WHY}, for job {job}"
    task_range = plane.live(job).ranges[0]
    assert (task_range.state, task_range.attempt, task_range.retries, task_range.eligible_ms) == (
        TaskState.PENDING,
        2,
        0,
        0,
    )
    assert task_range.reason == f"the prolog of n1 failed for attempt 1: {WHY}"


def test_while_others_run_there_the_node_drains() -> None:
    """They go on; it is cordoned when the last has ended."""
    plane = SmallPlane(nodes=1)
    jobs = plane.submit({}, {})
    plane.start(*((job, 0) for job in jobs))
    prolog_fails(plane, jobs[0])
    assert nodes_in(plane, NodeState.DRAINING) == ["n1"]
    plane.end(jobs[1])
    assert nodes_in(plane, NodeState.CORDONED) == ["n1"]


def test_a_failed_epilog_drains_the_node_and_leaves_the_result() -> None:
    """The job has succeeded."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    step = StepId(job, 0, 1, 0)
    started(plane, step)
    told(plane, step, "epilog", GateState.FAILED, WHY)
    assert nodes_in(plane, NodeState.DRAINING) == ["n1"]
    assert plane.end(job).ended[0].state is TaskState.SUCCEEDED
    assert nodes_in(plane, NodeState.CORDONED) == ["n1"]
    assert reason_of(plane.plane._table.nodes["n1"]) == f"epilog: {WHY}, for job {job}"


def test_an_epilog_of_what_is_long_over_closes_its_node_all_the_same() -> None:
    """Of a job that nobody knows any more, say."""
    plane = SmallPlane()
    plane.plane.record_gates("n2", [StepGate(StepId(99, 0, 1, 0), "epilog", GateState.FAILED, WHY)], plane.now_ms)
    plane.commit()
    assert nodes_in(plane, NodeState.CORDONED) == ["n2"]


def test_a_person_opens_what_a_script_closed_and_a_passing_check_does_not() -> None:
    """Nobody else can know that the node is fit again."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    prolog_fails(plane, job)
    plane.plane.record_checks("n1", [FailingCheck("disk", "full", 1)], 10)
    plane.plane.record_checks("n1", [], 10)
    plane.commit()
    assert nodes_in(plane, NodeState.CORDONED) == ["n1"]
    plane.plane.uncordon("n1", BY)
    plane.commit()
    assert nodes_in(plane, NodeState.CORDONED) == []


@pytest.mark.parametrize("array", [False, True])
def test_safety_one_job_closes_only_so_many_nodes_and_is_held(array: bool) -> None:
    """A prolog that fails for the job and not for the node: MAX_CLOSED nodes of 6, whichever tasks of it they were."""
    plane = SmallPlane(nodes=6)
    (job,) = plane.submit({"array": "0-9"} if array else {})
    closed = []
    for number in range(MAX_CLOSED):
        task = number if array else 0
        start_on(plane, number + 1, job, task)
        closed.append(prolog_fails(plane, job, task))
    assert nodes_in(plane, NodeState.CORDONED) == sorted(closed)
    assert len(set(closed)) == MAX_CLOSED
    live = plane.live(job)
    assert (live.hold, live.state, live.counts.pending) == (True, TaskState.HELD, 0)
    why = plane.plane.why(live, 0)
    assert why.message.endswith(f"(its prolog failed on n1, n2, n3; on n3: {WHY})")
    plane.plane.release(job, None, BY, plane.now_ms)
    plane.commit()
    assert (plane.live(job).state, plane.live(job).reason) == (TaskState.PENDING, "")


def test_safety_tasks_of_a_held_job_that_were_under_way_close_nothing_more() -> None:
    """Five prologs of an array fail at the same moment on five nodes."""
    plane = SmallPlane(nodes=5)
    (job,) = plane.submit({"array": "0-4"})
    for task in range(5):
        start_on(plane, task + 1, job, task)
    for task in range(5):
        prolog_fails(plane, job, task)
    assert len(nodes_in(plane, NodeState.CORDONED)) == MAX_CLOSED
    assert plane.live(job).counts.held == 5
