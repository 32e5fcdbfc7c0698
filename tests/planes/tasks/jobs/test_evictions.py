"""What people evict: by job, by task, by node, at once or when a node that is drained has waited long enough."""

from __future__ import annotations

import pytest

from hal.core.engine.events import INF
from hal.core.model import ConflictError, EventKind, NodeState, SpecError, StepId, TaskState
from hal.core.model.eviction import Evict, EvictMode
from hal.planes.tasks import Change, Drain, Submitter, TaskPlane
from hal.planes.tasks.nodes.arrivals import Arrival
from hal.planes.tasks.slices import finished
from hal.planes.tasks.table.orders import Eviction
from hal.planes.tasks.table.rows import attempt_row, job_row
from hal.store.operations import AppendEvents, EndAttempts, MarkAttempts
from hal.store.views import Loaded
from hal.wire.frames.agent_keeper import ExitCause
from hal.wire.frames.hello import HeldStep
from tests.planes.tasks.attempts.test_preemption import POLICY, begun, moves
from tests.planes.tasks.small_plane import BY, SmallPlane

BOB = Submitter("bob", "request")
REQUEUE = Evict(reason="new disk", grace_ms=5_000)
CANCEL = Evict(mode=EvictMode.CANCEL, reason="new disk", grace_ms=5_000)


def one(**spec: object) -> tuple[SmallPlane, int]:
    """A job that runs on n1."""
    plane = SmallPlane()
    (job,) = plane.submit(spec)
    plane.start((job, 0))
    begun(plane, job)
    return plane, job


def leave(plane: SmallPlane, job: int, task: int = 0) -> Change:
    """Its node reports that it has ended as it was told."""
    return plane.end(job, task, code=143, cause=ExitCause.PREEMPTED, message="preempted")


def drained(within_ms: int = 10_000, mode: EvictMode = EvictMode.REQUEUE) -> tuple[SmallPlane, int]:
    """A job that runs on n1, which is drained and evicts what is left after that time."""
    plane, job = one()
    eviction = Drain(mode=mode, within_ms=within_ms, grace_ms=5_000)
    plane.plane.cordon("n1", "new disk", BOB, plane.now_ms, drain=True, evict=eviction)
    plane.commit()
    return plane, job


def overdue(plane: SmallPlane, after_ms: int) -> Change:
    plane.now_ms += after_ms
    finished(plane.plane.carrying_out_due(plane.now_ms))
    return plane.commit()


def test_an_evicted_task_waits_again_without_a_retry() -> None:
    """Its node is told to end it within the grace; the next attempt knows who evicted the one before, and why."""
    plane, job = one()
    plane.plane.evict(job, None, REQUEUE, BOB, plane.now_ms)
    assert plane.commit().orders["n1"].evictions == {Eviction(grace_ms=5_000): [StepId(job, 0, 1, 0)]}
    leave(plane, job)
    (waiting,) = plane.live(job).ranges
    assert (waiting.state, waiting.attempt, waiting.retries) == (TaskState.PENDING, 2, 0)
    assert waiting.reason == "evicted by bob: new disk"


def test_a_task_that_is_evicted_by_cancelling_it_ends_with_the_reason() -> None:
    """The mode cancel."""
    plane, job = one()
    plane.plane.evict(job, None, CANCEL, BOB, plane.now_ms)
    plane.commit()
    (ended,) = leave(plane, job).ended
    assert (ended.state, ended.reason) == (TaskState.CANCELLED, "evicted by bob: new disk")


@pytest.mark.parametrize(
    ("grace_ms", "save_ms", "last_ms"),
    [(40_000, 30_000, 10_000), (20_000, 10_000, 10_000), (5_000, 2_500, 2_500), (1, 1, 0), (0, 0, 0)],
)
def test_a_checkpoint_and_its_last_grace_fit_into_the_time(grace_ms: int, save_ms: int, last_ms: int) -> None:
    """USR2, then SIGTERM ten seconds before the time is over, or half-way where it is short."""
    plane, job = one()
    plane.plane.evict(job, None, Evict(mode=EvictMode.CHECKPOINT, grace_ms=grace_ms), BOB, plane.now_ms)
    assert list(plane.commit().orders["n1"].evictions) == [Eviction("USR2", save_ms, last_ms)]


@pytest.mark.parametrize(
    ("mode", "away_ms", "expected"),
    [
        (EvictMode.REQUEUE, 12_000, Eviction(grace_ms=18_000)),
        (EvictMode.CHECKPOINT, 12_000, Eviction("USR2", 9_000, 9_000)),
        (EvictMode.CHECKPOINT, 60_000, Eviction("USR2", 0, 0)),
    ],
)
def test_a_node_that_was_away_has_what_is_left_of_the_time(mode: EvictMode, away_ms: int, expected: Eviction) -> None:
    """Evicted within 30 s while its node is silent: the deadline is that of the request."""
    plane, job = one()
    plane.plane.evict(job, None, Evict(mode=mode, grace_ms=30_000), BOB, plane.now_ms)
    plane.commit()
    plane.now_ms += away_ms
    held = HeldStep(StepId(job, 0, 1, 0), True, 7, plane.now_ms)
    arrival = Arrival(name="n1", capacity={"cpu": 64_000}, boot_id="b1", held=(held,))
    plane.plane.record_arrival(arrival, plane.now_ms)
    assert list(plane.commit().orders["n1"].evictions) == [expected]


@pytest.mark.parametrize(("within_ms", "orders"), [(2_000, [Eviction(grace_ms=2_000)]), (9_000, [])])
def test_a_second_eviction_can_only_hasten_the_first(within_ms: int, orders: list[Eviction]) -> None:
    """5 s by bob, then less or more by somebody else: the shorter time counts, and bob's reason stays."""
    plane, job = one()
    plane.plane.evict(job, None, REQUEUE, BOB, plane.now_ms)
    plane.commit()
    plane.plane.evict(job, None, Evict(reason="spot", grace_ms=within_ms), BY, plane.now_ms)
    change = plane.commit()
    assert [how for one in change.orders.values() for how in one.evictions] == orders
    evicted = plane.live(job).active[0].preemption
    assert evicted is not None
    assert (evicted.reason, evicted.due_ms) == ("new disk", plane.now_ms + min(within_ms, 5_000))


def test_an_eviction_hastens_what_the_engine_preempts() -> None:
    """An hour to save its work for urgent work, of which its operator leaves it 12 s; it ends as preempted."""
    plane = SmallPlane(POLICY)
    job, urgent = plane.submit({"qos": "low"}, {"qos": "urgent"})
    plane.start((job, 0))
    begun(plane, job)
    plane.plane.preempt(moves(job, mode="checkpoint", grace_ms=3_600_000, for_job=urgent), plane.now_ms)
    plane.commit()
    plane.plane.evict(job, None, Evict(reason="spot", grace_ms=12_000), BOB, plane.now_ms)
    assert list(plane.commit().orders["n1"].evictions) == [Eviction("USR2", 2_000, 10_000)]
    leave(plane, job)
    (waiting,) = plane.live(job).ranges
    assert waiting.reason == f"preempted by job {urgent} (QOS urgent)"


@pytest.mark.parametrize(("within_ms", "orders"), [(2_000, [Eviction(grace_ms=2_000)]), (30_000, [])])
def test_an_eviction_hastens_what_is_being_cancelled(within_ms: int, orders: list[Eviction]) -> None:
    """Its 10 s are cut to 2 s; 30 s change nothing."""
    plane, job = one()
    plane.plane.cancel(job, None, BY, plane.now_ms)
    plane.commit()
    plane.plane.evict(job, None, Evict(grace_ms=within_ms), BOB, plane.now_ms)
    assert [how for one in plane.commit().orders.values() for how in one.evictions] == orders


@pytest.mark.parametrize(
    ("message", "more"), [("preempted", ""), ("preempted; its output was cut", "; preempted; its output was cut")]
)
def test_an_evicted_attempt_ends_with_who_evicted_it(message: str, more: str) -> None:
    """Its keeper knows only that it was preempted; what else it says is kept."""
    plane, job = one()
    plane.plane.evict(job, None, REQUEUE, BOB, plane.now_ms)
    plane.commit()
    change = plane.end(job, code=143, cause=ExitCause.PREEMPTED, message=message)
    (ends,) = [operation for operation in change.operations if isinstance(operation, EndAttempts)]
    assert [end.message for end in ends.rows] == [f"evicted by bob: new disk{more}"]


def test_an_attempt_that_ends_with_its_eviction_is_stored_with_who_evicted_it() -> None:
    """Both in one commit: first the mark, then the end."""
    plane, job = one()
    plane.plane.evict(job, None, REQUEUE, BOB, plane.now_ms)
    operations = leave(plane, job).operations
    (marks, ends) = [one for one in operations if isinstance(one, MarkAttempts | EndAttempts)]
    assert isinstance(marks, MarkAttempts)
    assert isinstance(ends, EndAttempts)
    assert [(mark.preemption.by, mark.preemption.reason) for mark in marks.rows if mark.preemption] == [
        ("bob", "new disk")
    ]


def test_the_feed_tells_who_evicted_what_and_why() -> None:
    """One event, caused by the person."""
    plane, job = one()
    plane.plane.evict(job, None, REQUEUE, BOB, plane.now_ms)
    (events,) = [operation for operation in plane.commit().operations if isinstance(operation, AppendEvents)]
    (event,) = [event for event in events.events if event.kind is EventKind.ATTEMPTS_PREEMPTED]
    item = {"id": f"{job}.0.1", "mode": "requeue", "by": "bob", "reason": "new disk"}
    assert (event.cause, event.payload) == ("user:bob", {"attempts": [item]})


def test_one_task_of_an_array_is_evicted_alone() -> None:
    """Task 1 of two."""
    plane = SmallPlane()
    (job,) = plane.submit({"array": 2})
    plane.start((job, 0), (job, 1))
    plane.plane.evict(job, 1, REQUEUE, BOB, plane.now_ms)
    plane.commit()
    assert [plane.live(job).active[task].stopping for task in (0, 1)] == ["", "preempted"]


def test_what_does_not_run_cannot_be_evicted() -> None:
    """A job that waits; nothing of it is changed."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    with pytest.raises(ConflictError, match=f"job {job} is pending: nothing of it runs"):
        plane.plane.evict(job, None, REQUEUE, BOB, plane.now_ms)
    assert plane.commit().operations == []


def test_what_is_being_cancelled_stays_cancelled() -> None:
    """An eviction of a task that its user cancels does not bring it back."""
    plane, job = one()
    plane.plane.cancel(job, None, BY, plane.now_ms)
    plane.commit()
    plane.plane.evict(job, None, REQUEUE, BOB, plane.now_ms)
    plane.commit()
    (ended,) = plane.end(job, code=143, cause=ExitCause.CANCELLED).ended
    assert ended.state is TaskState.CANCELLED


def test_what_is_being_cancelled_stays_cancelled_when_the_engine_preempts_it() -> None:
    """The engine does not know that its user cancels it, and chooses it as a victim."""
    plane = SmallPlane(POLICY)
    job, urgent = plane.submit({"qos": "low"}, {"qos": "urgent"})
    plane.start((job, 0))
    plane.plane.cancel(job, None, BY, plane.now_ms)
    plane.commit()
    plane.plane.preempt(moves(job, for_job=urgent), plane.now_ms)
    plane.commit()
    (ended,) = plane.end(job, code=143, cause=ExitCause.CANCELLED).ended
    assert ended.state is TaskState.CANCELLED


def test_all_that_runs_on_a_node_is_evicted_and_nothing_else() -> None:
    """A gang that has a part there leaves from its other node, too."""
    plane = SmallPlane(nodes=3)
    here, gang, there = plane.submit({}, {"nodes": 2}, {})
    plane.start((here, 0))
    plane.start((gang, 0))
    on = {job: plane.live(job).active[0].nodes for job in (here, gang)}
    assert on == {here: ("n1",), gang: ("n1", "n2")}
    left = finished(plane.plane.evicting_from(["n1", "n3"], REQUEUE, BOB, plane.now_ms))
    change = plane.commit()
    assert left == {"n1": 2, "n3": 0}
    assert {name for name, orders in change.orders.items() if orders.evictions} == {"n1", "n2"}
    assert plane.live(there).state is TaskState.PENDING


def test_a_drained_node_evicts_what_is_left_when_its_time_is_over() -> None:
    """Not a millisecond before; the node shows that it has."""
    plane, job = drained(within_ms=10_000)
    assert (overdue(plane, 9_999).orders, plane.plane.next_due_ms) == ({}, 11_000)
    change = overdue(plane, 1)
    assert change.orders["n1"].evictions == {Eviction(grace_ms=5_000): [StepId(job, 0, 1, 0)]}
    (closure,) = plane.plane.nodes["n1"].about.closures
    assert (closure.evicted, plane.plane.next_due_ms) == (True, INF)


def test_a_drained_node_whose_work_ends_in_time_evicts_nothing() -> None:
    """It is cordoned, and waits for nothing any more."""
    plane, job = drained()
    plane.end(job)
    assert (plane.plane.nodes["n1"].state, plane.plane.next_due_ms) == (NodeState.CORDONED, INF)


def test_an_eviction_that_was_planned_is_known_after_a_restart() -> None:
    """A plane that begins from the rows evicts at the same instant."""
    plane, job = drained(within_ms=10_000)
    live = plane.live(job)
    again = TaskPlane(plane.plane.policy, plane.engine)
    again.load(
        Loaded(
            jobs=[job_row(live)],
            ranges={},
            epoch=1,
            last_seq=0,
            ended_dependencies={},
            policy=None,
            meta={},
            attempts={job: [attempt_row(job, attempt) for attempt in live.active.values()]},
            nodes=list(plane.plane.nodes.values()),
            last_job_id=job,
            now_ms=plane.now_ms,
        )
    )
    assert again.next_due_ms == 11_000
    finished(again.carrying_out_due(11_000))
    assert again.seal(11_000).orders["n1"].evictions == {Eviction(grace_ms=5_000): [StepId(job, 0, 1, 0)]}


def test_opening_a_node_again_takes_its_eviction_back() -> None:
    """What runs there stays."""
    plane, _ = drained()
    plane.plane.uncordon("n1", BOB)
    plane.commit()
    assert plane.plane.next_due_ms == INF


def test_draining_a_node_again_for_another_reason_keeps_its_eviction() -> None:
    """Only another eviction replaces it."""
    plane, _ = drained(within_ms=10_000)
    plane.plane.cordon("n1", "new fan", BOB, plane.now_ms, drain=True)
    plane.commit()
    assert plane.plane.next_due_ms == 11_000


def test_an_eviction_that_was_not_committed_has_not_happened() -> None:
    """The commit fails: the node's time is over still, and it is tried again."""
    plane, job = drained(within_ms=10_000)
    finished(plane.plane.carrying_out_due(11_000))
    plane.plane.seal(11_000)
    plane.plane.undo()
    assert (plane.plane.next_due_ms, plane.live(job).active[0].stopping) == (11_000, "")


def test_times_of_a_drain_are_bounded() -> None:
    """Nothing is closed where one is too long."""
    plane = SmallPlane()
    with pytest.raises(SpecError, match="within: 31d is out of range"):
        plane.plane.cordon(
            "n1", "", BOB, 1_000, drain=True, evict=Drain(mode=EvictMode.REQUEUE, within_ms=31 * 86_400_000)
        )
    assert plane.plane.nodes["n1"].state is NodeState.UP
