"""Gates that jobs name, as nodes tell of them: who may name which, and what an attempt is while and after it waits."""

from __future__ import annotations

from typing import Any

import pytest

from hal.core.engine.classes import Match, Requirement
from hal.core.engine.events import JobsSubmitted
from hal.core.lifecycle import GateState
from hal.core.model import AttemptState, Duration, JobSpec, SpecError, StepId, TaskState
from hal.core.model.gate import GatePhase
from hal.core.model.job import MAX_EXCLUDED
from hal.core.model.policy import GateRule, Policy
from hal.planes.tasks import Change, JobPatch
from hal.planes.tasks.attempts.credit import CREDIT_MS
from hal.store import EditJobs
from hal.store.operations import EndAttempts
from hal.wire.frames.agent_keeper import ExitCause, Refusal, StepStarted, TemplateGate
from hal.wire.frames.controller_agent import StepGate
from tests.planes.tasks.attempts.test_credit import after_two, started
from tests.planes.tasks.attempts.test_gates import gated
from tests.planes.tasks.small_plane import BY, SmallPlane

STAGE = {"gates": ["stage,argument=genome"]}
ELSEWHERE = {"gates": ["stage,policy=elsewhere"]}
FULL = "gate 'stage': the disk is full"


def plane_with(rule: GateRule | None = None, nodes: int = 2, *, credit: bool = False) -> SmallPlane:
    """A plane whose policy declares the gate `stage`."""
    plane = SmallPlane(Policy(gates={"stage": rule or GateRule()}), nodes)
    if credit:
        plane.plane._table.credit_nodes.update(plane.names)
    return plane


def told(plane: SmallPlane, step: StepId, state: GateState, why: str = "", phase: GatePhase | None = None) -> Change:
    """What its node says of the gate `stage`."""
    node = plane.live(step.job).active[step.task].nodes[step.rank]
    report = StepGate(step, "stage", state, why, phase or GatePhase.PREPARING)
    plane.plane.record_gates(node, [report], plane.now_ms)
    return plane.commit()


def refused(plane: SmallPlane, job: int, code: str, *, task: int = 0, rank: int = 0, why: str = FULL) -> Change:
    """Its node does not begin that step."""
    attempt = plane.live(job).active[task]
    plane.plane.record_refusals(attempt.nodes[rank], [Refusal(attempt.step(job, rank), code, why)], plane.now_ms)
    return plane.commit()


def waiting_reason(plane: SmallPlane, job: int) -> str:
    return plane.live(job).ranges[0].reason


# ── who may name which ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("rule", "gates", "complaint"), [
    (GateRule(), ["stge"], "gates: 'stge' is not a gate; did you mean 'stage'"),
    (GateRule(users=("bob",)), ["stage"], "user: 'alice' is not known to gate 'stage'"),
    (GateRule(accounts=("physics",)), ["stage"], "account: gate 'stage' requires one"),
    (GateRule(max_deadline=Duration(60_000)), ["stage,deadline=2m"], "gates.stage: a deadline of 2m; at most 1m"),
])  # fmt: skip
def test_only_declared_gates_may_be_named_by_whom_and_for_how_long_the_site_says(
    rule: GateRule, gates: list[str], complaint: str
) -> None:
    """Refused when it is submitted, not when a node finds nobody at the socket."""
    plane = plane_with(rule)
    with pytest.raises(SpecError, match=complaint):
        plane.submit({"gates": gates})


def test_a_start_carries_the_gates_of_its_job() -> None:
    """In the template, once for all of its tasks."""
    plane = plane_with()
    (job,) = plane.submit(STAGE)
    template = plane.start((job, 0)).orders["n1"].templates[job]
    assert template.gates == (
        TemplateGate("stage", GatePhase.PREPARING, 300_000, plane.live(job).spec.gates[0].policy, "genome"),
    )


# ── while it waits ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_task_is_preparing_while_its_gate_waits_and_whoever_asks_is_told_which() -> None:
    """With the reason that the service gave; forgotten when the processes have begun."""
    plane = plane_with()
    (job,) = plane.submit(STAGE)
    plane.start((job, 0))
    step = StepId(job, 0, 1, 0)
    told(plane, step, GateState.WAITING, "12 of 40 GiB")
    assert plane.live(job).state is TaskState.PREPARING
    assert plane.plane.gates_text(job, 0, 1) == "gate 'stage' does not let it begin yet on n1: 12 of 40 GiB"
    assert "gate 'stage' does not let it begin yet on n1: 12 of 40 GiB" in plane.plane.why(plane.live(job), 0).message
    plane.plane.record_starts("n1", [StepStarted(step, 7, plane.now_ms)], plane.now_ms)
    plane.commit()
    assert plane.plane.gates_text(job, 0, 1) == ""


def test_safety_what_a_group_that_failed_said_of_a_gate_counts_when_it_is_said_again() -> None:
    """A full disk: the group is undone, and the node's report staged once more."""
    plane = plane_with()
    (job,) = plane.submit(STAGE)
    plane.start((job, 0))
    report = StepGate(StepId(job, 0, 1, 0), "stage", GateState.WAITING, "12 of 40 GiB", GatePhase.PREPARING)
    plane.plane.record_gates("n1", [report], plane.now_ms)
    plane.plane.undo()
    plane.plane.record_gates("n1", [report], plane.now_ms)
    assert [item["state"] for item in gated([plane.commit()])] == ["waiting"]  # type: ignore[index]
    assert plane.live(job).state is TaskState.PREPARING


def test_safety_an_end_that_was_not_committed_leaves_the_gate_that_is_waited_for() -> None:
    """Neither the end nor the start of its processes is true before it is committed."""
    plane = plane_with()
    (job,) = plane.submit(STAGE)
    plane.start((job, 0))
    step = StepId(job, 0, 1, 0)
    told(plane, step, GateState.WAITING, "12 of 40 GiB")
    plane.plane.record_starts("n1", [StepStarted(step, 7, plane.now_ms)], plane.now_ms)
    plane.plane.record_refusals("n1", [Refusal(step, "gate-failed", FULL)], plane.now_ms)
    plane.plane.undo()
    assert plane.plane.gates_text(job, 0, 1) == "gate 'stage' does not let it begin yet on n1: 12 of 40 GiB"


def test_a_task_is_finalising_while_its_finalising_gate_waits() -> None:
    """And no longer waits for it when the gate has passed."""
    plane = plane_with()
    (job,) = plane.submit({"gates": ["stage,phase=finalising"]})
    plane.start((job, 0))
    step = StepId(job, 0, 1, 0)
    plane.plane.record_starts("n1", [StepStarted(step, 7, plane.now_ms)], plane.now_ms)
    told(plane, step, GateState.WAITING, phase=GatePhase.FINALISING)
    assert plane.live(job).state is TaskState.FINALISING
    assert plane.plane.gates_text(job, 0, 1) == "it has ended; gate 'stage' is not satisfied yet on n1"
    told(plane, step, GateState.PASSED, phase=GatePhase.FINALISING)
    assert plane.plane.gates_text(job, 0, 1) == ""


def test_safety_a_node_cannot_invent_gates() -> None:
    """Neither a name that the job does not have, nor the other phase: nothing is noted, nothing is kept."""
    plane = plane_with()
    (job,) = plane.submit(STAGE)
    plane.start((job, 0))
    reports = [
        StepGate(StepId(job, 0, 1, 0), "other", GateState.WAITING, "", GatePhase.PREPARING),
        StepGate(StepId(job, 0, 1, 0), "stage", GateState.WAITING, "", GatePhase.FINALISING),
    ]
    plane.plane.record_gates("n1", reports, plane.now_ms)
    assert gated([plane.commit()]) == []
    assert len(plane.plane._table.gates) == 0


# ── when it fails ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_gate_that_sends_a_task_elsewhere_excludes_its_node_and_counts_no_retry() -> None:
    """At once, for all that waits of the job; durable, and told to the engine."""
    plane = plane_with()
    (job,) = plane.submit({**ELSEWHERE, "array": 5, "retries": 0})
    plane.start((job, 0))
    change = refused(plane, job, "gate-elsewhere")
    assert plane.live(job).spec.exclude == ("n1",)
    (edit,) = [row for operation in change.operations if isinstance(operation, EditJobs) for row in operation.rows]
    assert isinstance(edit.spec, JobSpec)
    assert edit.spec.exclude == ("n1",)
    submitted = [event for event in change.engine if isinstance(event, JobsSubmitted)][-1]
    rules = [submitted.classes[int(row["class_index"])].constraints for row in submitted.rows]
    assert rules == [(Requirement("hal.node", Match.NOT_IN, ("n1",)),)] * len(rules)
    assert {task for _, task in plane.engine.pending} == set(range(5))
    first = plane.live(job).ranges[0]
    assert (first.state, first.attempt, first.retries, first.eligible_ms) == (TaskState.PENDING, 2, 0, 0)
    assert waiting_reason(plane, job) == f"a gate of n1 sent attempt 1 elsewhere: {FULL}"
    assert FULL in plane.plane.why(plane.live(job), plane.now_ms).message


def test_a_gate_that_fails_a_task_fails_it_with_the_reason() -> None:
    """No node is closed or excluded; no exit code of any process explains it."""
    plane = plane_with()
    (job,) = plane.submit(STAGE)
    plane.start((job, 0))
    (ended,) = refused(plane, job, "gate-failed").ended
    assert (ended.state, ended.exit_code) == (TaskState.FAILED, None)
    assert ended.reason == f"attempt 1 failed (gate-failed: {FULL})"


def test_a_task_that_a_gate_failed_is_retried_like_any_other() -> None:
    """As after an exit code."""
    plane = plane_with()
    (job,) = plane.submit({**STAGE, "retries": 1})
    plane.start((job, 0))
    refused(plane, job, "gate-failed")
    first = plane.live(job).ranges[0]
    assert (first.state, first.retries) == (TaskState.PENDING, 1)


def test_a_task_whose_finalising_gate_failed_has_failed() -> None:
    """Its process had succeeded: the reason says what did not."""
    plane = plane_with()
    (job,) = plane.submit({"gates": ["stage,phase=finalising"]})
    plane.start((job, 0))
    (ended,) = plane.end(job, cause=ExitCause.GATE_FAILED, message=FULL).ended
    assert (ended.state, ended.exit_code) == (TaskState.FAILED, None)
    assert ended.reason == f"attempt 1 failed ({FULL})"


@pytest.mark.parametrize(("code", "state"), [
    ("gate-elsewhere", AttemptState.REFUSED), ("gate-failed", AttemptState.FAILED),
    ("prolog-failed", AttemptState.REFUSED),
])  # fmt: skip
def test_a_gang_whose_gate_fails_on_one_node_says_so(code: str, state: AttemptState) -> None:
    """Rank 0 runs, rank 1 is refused: the attempt ends as that, with the node, however rank 0 ends."""
    plane = plane_with()
    (job,) = plane.submit({"nodes": 2, **ELSEWHERE})
    plane.start((job, 0))
    plane.plane.record_starts("n1", [StepStarted(StepId(job, 0, 1, 0), 7, plane.now_ms)], plane.now_ms)
    refused(plane, job, code, rank=1)
    change = plane.end(job, code=143, cause=ExitCause.SIGNALLED)
    (row,) = [row for operation in change.operations if isinstance(operation, EndAttempts) for row in operation.rows]
    assert (row.state, row.exit_code, row.message) == (state, None, f"{code}: {FULL} (on n2)")
    reasons = [job.reason for job in change.ended]
    assert reasons == [f"attempt 1 failed ({code}: {FULL} (on n2))"] * (state is AttemptState.FAILED)


def test_a_rank_that_fails_by_itself_decides_though_another_was_stopped_at_its_gate() -> None:
    """The refusal of rank 1 follows from the exit of rank 0."""
    plane = plane_with()
    (job,) = plane.submit({"nodes": 2, **STAGE})
    plane.start((job, 0))
    told(plane, StepId(job, 0, 1, 1), GateState.WAITING)
    plane.end(job, code=3)
    refused(plane, job, "not-held", rank=1, why="it was ended")
    with pytest.raises(KeyError):
        plane.live(job)


def test_safety_a_job_that_gates_send_away_again_and_again_is_held() -> None:
    """It does not go through all nodes of a cluster; released, it excludes what its user says."""
    plane = plane_with(nodes=3)
    full = [f"x{number}" for number in range(MAX_EXCLUDED)]
    (job,) = plane.submit({**ELSEWHERE, "exclude": full})
    plane.start((job, 0))
    refused(plane, job, "gate-elsewhere")
    live = plane.live(job)
    assert (live.hold, live.state) == (True, TaskState.HELD)
    assert "on n1: " + FULL in plane.plane.why(live, 0).message
    plane.plane.release(job, None, BY, plane.now_ms)
    plane.commit()
    assert (plane.live(job).state, plane.live(job).reason) == (TaskState.PENDING, "")


@pytest.mark.parametrize("spec", [{}, {"gates": ["stage"]}])
def test_safety_a_node_gives_nothing_back_at_once_that_has_no_such_gate(spec: dict[str, Any]) -> None:
    """`gate-elsewhere` for a job without gates is a refusal like any other, with a delay."""
    plane = plane_with()
    (job,) = plane.submit(spec)
    plane.start((job, 0))
    refused(plane, job, "gate-elsewhere")
    assert (plane.live(job).ranges[0].eligible_ms > 0) is (not spec)
    assert plane.live(job).spec.exclude == (("n1",) if spec else ())


# ── credit ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("phase", "ahead"), [("preparing", 7), ("finalising", 0)])
def test_credit_is_lost_by_the_job_that_has_a_finalising_gate(phase: str, ahead: int) -> None:
    """Nobody else on the node loses it, nor does a job whose gates only prepare."""
    plane = plane_with(credit=True)
    job = after_two(plane, 10, gates=[f"stage,phase={phase}"])
    credits = started(plane.start((job, 2), credit=True))
    assert list(credits.values()) == [0] + [CREDIT_MS] * ahead


def test_a_person_lets_a_job_use_a_node_again_that_its_gate_excluded() -> None:
    """The engine hears of it for what waits."""
    plane = plane_with()
    (job,) = plane.submit(ELSEWHERE)
    plane.start((job, 0))
    refused(plane, job, "gate-elsewhere")
    plane.plane.update(job, JobPatch(exclude=()), BY, plane.now_ms)
    submitted = [event for event in plane.commit().engine if isinstance(event, JobsSubmitted)][-1]
    assert [submitted.classes[int(row["class_index"])].constraints for row in submitted.rows] == [()]


def test_many_nodes_at_one_gate_are_counted_and_three_are_named() -> None:
    """Of a gang of five."""
    plane = plane_with(nodes=5)
    (job,) = plane.submit({"nodes": 5, **STAGE})
    plane.start((job, 0))
    for rank in range(5):
        told(plane, StepId(job, 0, 1, rank), GateState.WAITING)
    assert plane.plane.gates_text(job, 0, 1).endswith("does not let it begin yet on n1, n2, n3 and 2 more")
