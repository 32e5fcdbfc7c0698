"""What is preempted: attempts leave or stand still, their tasks wait again or are cancelled; it is told for whom."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hal.core.engine.events import AllocationsAdopted
from hal.core.engine.plan import MOVE, MOVED
from hal.core.kernels.structures.layout import INF, RUN_GOING, RUN_ON, RUN_SUSPENDED
from hal.core.model import AttemptState, EventKind, StepId, TaskState
from hal.core.model.policy import Policy, PreemptMode, Qos
from hal.planes.tasks import Arrival, TaskPlane
from hal.planes.tasks.attempts.preemption import Moves
from hal.planes.tasks.table.orders import Eviction
from hal.planes.tasks.table.rows import attempt_row, job_row
from hal.store.operations import AppendEvents, EndAttempts, TaskRangeRow
from hal.store.views import Loaded
from hal.wire.frames.agent_keeper import ExitCause, Refusal, StepStarted
from hal.wire.frames.hello import HeldStep
from tests.planes.tasks.small_plane import SmallPlane

POLICY = Policy(
    qos={"urgent": Qos(name="urgent", preempts=("low",)), "low": Qos(name="low", preempt_mode=PreemptMode.REQUEUE)}
)
MODES = {"requeue": 1, "suspend": 2, "checkpoint": 3, "cancel": 4}


def moves(*jobs: int, mode: str = "requeue", grace_ms: int = 5_000, for_job: int = 0, attempt: int = 1) -> Moves:
    """First attempts of these jobs' first tasks."""
    block = np.zeros(len(jobs), MOVE)
    block["job"], block["attempt"], block["mode"] = jobs, attempt, MODES[mode]
    block["grace_ms"], block["for_job"] = grace_ms, for_job
    return block


def two(**low: object) -> tuple[SmallPlane, int, int]:
    """A running job of QOS low, and an urgent one that waits."""
    plane = SmallPlane(POLICY)
    job, urgent = plane.submit({"qos": "low", **low}, {"qos": "urgent"})
    plane.start((job, 0))
    begun(plane, job)
    return plane, job, urgent


def begun(plane: SmallPlane, job: int) -> None:
    attempt = plane.live(job).active[0]
    plane.plane.record_starts(
        attempt.nodes[0], [StepStarted(StepId(job, 0, attempt.attempt, 0), 7, plane.now_ms)], plane.now_ms
    )
    plane.commit()


def test_requeued_work_waits_again_without_a_retry() -> None:
    """The node is told to end it within the grace of its QOS; the next attempt knows why."""
    plane, job, urgent = two()
    plane.plane.preempt(moves(job, for_job=urgent), plane.now_ms)
    change = plane.commit()
    assert change.orders["n1"].evictions == {Eviction(grace_ms=5_000): [StepId(job, 0, 1, 0)]}
    assert plane.live(job).state is TaskState.FINALISING
    plane.end(job, code=143, cause=ExitCause.PREEMPTED)
    (task_range,) = plane.live(job).ranges
    assert (task_range.attempt, task_range.retries, task_range.state) == (2, 0, TaskState.PENDING)
    assert task_range.reason == f"preempted by job {urgent} (QOS urgent)"
    assert plane.engine.pending[(job, 0)] == (2, 0)


def test_work_that_had_borrowed_is_told_who_gets_it_back() -> None:
    """In the reason why it waits, in what its attempt ended with, and in the feed."""
    plane, job, lender = two()
    block = moves(job, for_job=lender)
    block["lent"] = 1
    plane.plane.preempt(block, plane.now_ms)
    change = plane.commit()
    user = plane.live(lender).owner.user
    (events,) = [operation for operation in change.operations if isinstance(operation, AppendEvents)]
    (event,) = [event for event in events.events if event.kind is EventKind.ATTEMPTS_PREEMPTED]
    assert event.payload["attempts"][0]["lent_by"] == user
    plane.end(job, code=143, cause=ExitCause.PREEMPTED)
    (task_range,) = plane.live(job).ranges
    assert task_range.reason == f"preempted by job {lender}: {user} reclaims its quota"


@pytest.mark.parametrize(("alone_ms", "waited"), [(3 * 3_600_000, " 3h"), (INF, "")])
def test_work_that_is_moved_is_told_how_long_the_gang_would_have_waited(alone_ms: int, waited: str) -> None:
    """In the reason why it waits, and in the feed; where nobody knows how long, without a time."""
    plane = SmallPlane()
    job, gang = plane.submit({"movable": True}, {"nodes": 2})
    plane.start((job, 0))
    begun(plane, job)
    block = moves(job, for_job=gang)
    block["lent"] = MOVED
    block["at_ms"] = min(plane.now_ms + alone_ms, INF)
    plane.plane.preempt(block, plane.now_ms)
    change = plane.commit()
    (events,) = [operation for operation in change.operations if isinstance(operation, AppendEvents)]
    (event,) = [event for event in events.events if event.kind is EventKind.ATTEMPTS_PREEMPTED]
    assert event.payload["attempts"][0]["moved"] is True
    plane.end(job, code=143, cause=ExitCause.PREEMPTED)
    (task_range,) = plane.live(job).ranges
    assert task_range.reason == f"moved to make room for job {gang} (its 2 nodes would have waited{waited})"


@pytest.mark.parametrize(
    ("message", "more"),
    [
        ("", ""),
        ("preempted", ""),
        ("preempted before its process was started", " before its process was started"),
        ("preempted; its output was cut", "; its output was cut"),
        ("could not read its exit code", "; could not read its exit code"),
    ],
)
def test_an_attempt_that_was_taken_back_ends_with_for_whom(message: str, more: str) -> None:
    """Its keeper knows only that it was; what else it says is kept."""
    plane, job, urgent = two()
    plane.plane.preempt(moves(job, for_job=urgent), plane.now_ms)
    plane.commit()
    change = plane.end(job, code=143, cause=ExitCause.PREEMPTED, message=message)
    (ends,) = [operation for operation in change.operations if isinstance(operation, EndAttempts)]
    assert [end.message for end in ends.rows] == [f"preempted by job {urgent} (QOS urgent){more}"]


def test_cancelled_work_ends_and_says_for_whom() -> None:
    """The mode cancel."""
    plane, job, urgent = two()
    plane.plane.preempt(moves(job, mode="cancel", for_job=urgent), plane.now_ms)
    plane.commit()
    change = plane.end(job, code=143, cause=ExitCause.PREEMPTED)
    (ended,) = change.ended
    assert ended.state is TaskState.CANCELLED
    assert ended.reason == f"preempted by job {urgent} (QOS urgent)"


def test_work_that_succeeds_before_the_node_hears_of_it_has_succeeded() -> None:
    """Its exit was on the way."""
    plane, job, urgent = two()
    plane.plane.preempt(moves(job, for_job=urgent), plane.now_ms)
    plane.commit()
    (ended,) = plane.end(job).ended
    assert ended.state is TaskState.SUCCEEDED


def test_a_checkpoint_is_asked_for_by_the_signal_of_the_job() -> None:
    """USR2 where it names none; what has not begun has nothing to save."""
    for spec, name in (({}, "USR2"), ({"signal": {"before": "1m", "name": "TERM"}, "walltime": "1h"}, "TERM")):
        plane, job, urgent = two(**spec)
        plane.plane.preempt(moves(job, mode="checkpoint", grace_ms=40_000, for_job=urgent), plane.now_ms)
        assert list(plane.commit().orders["n1"].evictions) == [Eviction(name, 30_000, 10_000)]
    plane = SmallPlane(POLICY)
    job, urgent = plane.submit({"qos": "low"}, {"qos": "urgent"})
    plane.start((job, 0))
    plane.plane.preempt(moves(job, mode="checkpoint", grace_ms=40_000, for_job=urgent), plane.now_ms)
    assert list(plane.commit().orders["n1"].evictions) == [Eviction(grace_ms=40_000)]


def test_suspended_work_keeps_its_attempt_and_goes_on() -> None:
    """States of task and attempt, orders, and how long it stood still."""
    plane, job, urgent = two()
    plane.plane.preempt(moves(job, mode="suspend", for_job=urgent), plane.now_ms)
    assert plane.commit().orders["n1"].suspends == [StepId(job, 0, 1, 0)]
    assert plane.live(job).state is TaskState.SUSPENDED
    assert "preempted by job 2 (QOS urgent); it resumes when" in plane.plane.why(plane.live(job), plane.now_ms).message
    plane.now_ms += 30_000
    plane.plane.resume(moves(job), plane.now_ms)
    assert plane.commit().orders["n1"].resumes == [StepId(job, 0, 1, 0)]
    attempt = plane.live(job).active[0]
    assert attempt.state is AttemptState.RUNNING
    assert attempt.preemption is not None
    assert (attempt.preemption.paused_ms, attempt.preemption.times) == (30_000, 1)


def test_work_that_had_not_begun_is_suspended_as_it_begins() -> None:
    """The node could not suspend what it did not run yet: it is asked again when the start is told."""
    plane = SmallPlane(POLICY)
    job, urgent = plane.submit({"qos": "low"}, {"qos": "urgent"})
    plane.start((job, 0))
    plane.plane.preempt(moves(job, mode="suspend", for_job=urgent), plane.now_ms)
    plane.commit()
    assert plane.live(job).state is TaskState.ALLOCATED
    plane.plane.record_starts("n1", [StepStarted(StepId(job, 0, 1, 0), 7, plane.now_ms)], plane.now_ms)
    assert plane.commit().orders["n1"].suspends == [StepId(job, 0, 1, 0)]
    assert plane.live(job).state is TaskState.SUSPENDED


def test_a_node_that_returns_is_told_again_what_was_taken_back() -> None:
    """With the whole grace: a repeated stop never hurries; suspended and resumed steps are told how they are."""
    plane = SmallPlane(POLICY)
    leaves, stands, went_on, urgent = plane.submit({"qos": "low"}, {"qos": "low"}, {"qos": "low"}, {"qos": "urgent"})
    plane.start((leaves, 0), (stands, 0), (went_on, 0))
    for job in (leaves, stands, went_on):
        begun(plane, job)
    plane.plane.preempt(moves(leaves, for_job=urgent), plane.now_ms)
    plane.plane.preempt(moves(stands, went_on, mode="suspend", for_job=urgent), plane.now_ms)
    plane.plane.resume(moves(went_on), plane.now_ms)
    plane.commit()
    held = tuple(HeldStep(StepId(job, 0, 1, 0), True, 7, plane.now_ms) for job in (leaves, stands, went_on))
    plane.plane.record_arrival(Arrival(name="n1", capacity={"cpu": 64_000}, boot_id="b1", held=held), plane.now_ms)
    orders = plane.commit().orders["n1"]
    assert orders.evictions == {Eviction(grace_ms=5_000): [StepId(leaves, 0, 1, 0)]}
    assert orders.suspends == [StepId(stands, 0, 1, 0)]
    assert orders.resumes == [StepId(went_on, 0, 1, 0)]
    assert not orders.stops


def test_what_leaves_and_never_arrived_is_stopped_and_not_asked_to_save() -> None:
    """A gang one of whose starts was lost with its controller: its node says that it holds nothing. To save is asked of
    what runs; a plain stop of what is not held is refused, and that ends the step here."""
    plane = SmallPlane(POLICY)
    leaves, urgent = plane.submit({"qos": "low", "nodes": 2}, {"qos": "urgent"})
    plane.start((leaves, 0))
    begun(plane, leaves)
    plane.plane.preempt(moves(leaves, mode="checkpoint", for_job=urgent), plane.now_ms)
    plane.commit()
    plane.plane.record_arrival(Arrival(name="n2", capacity={"cpu": 64_000}, boot_id="b1"), plane.now_ms)
    (how,) = plane.commit().orders["n2"].evictions
    assert how.signal == ""
    refusal = Refusal(StepId(leaves, 0, 1, 1), "not-held", "this keeper does not hold it")
    plane.plane.record_refusals("n2", [refusal], plane.now_ms)
    plane.commit()
    assert [step for _, step in plane.live(leaves).active[0].steps_left(leaves)] == [StepId(leaves, 0, 1, 0)]


def test_a_controller_that_starts_again_knows_who_leaves_and_who_stands_still() -> None:
    """From the rows: the engine is told as what its allocations are adopted, with the time that they stood still."""
    plane = SmallPlane(POLICY)
    jobs = plane.submit({"qos": "low"}, {"qos": "low"}, {"qos": "low"}, {"qos": "urgent"})
    leaves, stands, went_on, urgent = jobs
    plane.start((leaves, 0), (stands, 0), (went_on, 0))
    for job in (leaves, stands, went_on):
        begun(plane, job)
    plane.plane.preempt(moves(leaves, for_job=urgent), plane.now_ms)
    plane.plane.preempt(moves(stands, went_on, mode="suspend", for_job=urgent), plane.now_ms)
    plane.now_ms += 7_000
    plane.plane.resume(moves(went_on), plane.now_ms)
    plane.commit()
    live = [plane.live(job) for job in jobs]
    loaded = Loaded(
        jobs=[job_row(job) for job in live],
        ranges={
            job.id: [
                TaskRangeRow(job.id, s.first, s.count, s.state, s.attempt, s.retries, s.eligible_ms, s.reason)
                for s in job.ranges
            ]
            for job in live
        },
        attempts={job.id: [attempt_row(job.id, a) for a in job.active.values()] for job in live if job.active},
        nodes=list(plane.plane._table.nodes.values()),
        epoch=1,
        last_seq=0,
        ended_dependencies={},
        policy=None,
        meta={},
        last_job_id=urgent,
        now_ms=plane.now_ms,
    )
    again = TaskPlane(POLICY, plane.engine)
    events = again.load(loaded)
    (adopted,) = [event for event in events if isinstance(event, AllocationsAdopted)]
    told = {int(row["job"]): (int(row["state"]), int(row["due_ms"]), int(row["start_ms"])) for row in adopted.rows}
    assert told == {
        leaves: (RUN_GOING, 6_000, 1_000),
        stands: (RUN_SUSPENDED, 1_000, 1_000),
        went_on: (RUN_ON, 0, 8_000),
    }
    assert again.job(leaves) == plane.plane.job(leaves)


@pytest.mark.parametrize("mode", ["requeue", "suspend"])
def test_the_feed_tells_who_was_taken_back_for_whom(mode: str) -> None:
    """One event, caused by the engine."""
    plane, job, urgent = two()
    plane.plane.preempt(moves(job, mode=mode, for_job=urgent), plane.now_ms)
    change = plane.commit()
    (events,) = [operation for operation in change.operations if isinstance(operation, AppendEvents)]
    (event,) = [event for event in events.events if event.kind is EventKind.ATTEMPTS_PREEMPTED]
    assert event.payload == {"attempts": [{"id": f"{job}.0.1", "mode": mode, "for": str(urgent), "qos": "urgent"}]}
    assert msgspec.json.encode(event.payload)
