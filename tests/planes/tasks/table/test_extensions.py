"""Jobs with extensions: these wait and run only beside the base, end with it, and never decide how the job ended."""

from __future__ import annotations

import pytest

from hal.core.engine.events import JobsSubmitted
from hal.core.model import AttemptState, Reason, SpecError, StepId, TaskState, spec_from_plain
from hal.core.model.index_ranges import IndexRange
from hal.core.model.policy import Policy, Queue
from hal.planes.tasks import Arrival, Change
from hal.planes.tasks.jobs.selection import Selection
from hal.planes.tasks.table.extensions import BASE_ENDED, BY_BASE
from hal.wire.frames.agent_keeper import ExitCause, StepStarted
from hal.wire.frames.hello import HeldStep
from tests.planes.tasks.attempts.test_preemption import moves
from tests.planes.tasks.small_plane import BY, SmallPlane

ELASTIC = {"nodes": 2, "extensions": 3}


def begun(plane: SmallPlane, job: int, task: int = 0) -> Change:
    """The processes of that task run."""
    attempt = plane.live(job).active[task]
    for rank, node in enumerate(attempt.nodes):
        step = StepId(job, task, attempt.attempt, rank)
        plane.plane.record_starts(node, [StepStarted(step, 7, plane.now_ms)], plane.now_ms)
    return plane.commit()


def growing(**fields: object) -> tuple[SmallPlane, int]:
    """A job of two nodes whose base runs, so that its three extensions wait."""
    plane = SmallPlane(nodes=4)
    (job,) = plane.submit({**ELASTIC, **fields})
    plane.start((job, 0))
    begun(plane, job)
    return plane, job


def grow(plane: SmallPlane, job: int, *tasks: int) -> Change:
    """These extensions start, each on one node."""
    starts, rows = plane.engine.plan([(job, task) for task in tasks], {job: 1})
    plane.engine.assume(starts)
    plane.plane.allocate(starts, rows, plane.names.__getitem__, 1, plane.now_ms)
    change = plane.commit()
    for task in tasks:
        begun(plane, job, task)
    return change


def shrink(plane: SmallPlane, job: int, task: int) -> Change:
    """This extension leaves for others; returns what was committed when it was told."""
    block = moves(job, for_job=0)
    block["task"], block["mode"], block["attempt"] = task, 5, plane.live(job).active[task].attempt
    plane.plane.preempt(block, plane.now_ms)
    change = plane.commit()
    plane.end(job, task, code=143, cause=ExitCause.PREEMPTED)
    return change


def end_base(plane: SmallPlane, job: int, *, code: int = 0) -> None:
    for rank in range(plane.live(job).spec.nodes):
        plane.end(job, 0, code=code, rank=rank)


def test_who_holds_an_extension_that_waits_for_its_base_holds_it_when_the_base_runs() -> None:
    """One, and some: only the others start."""
    plane = SmallPlane(nodes=4)
    (job,) = plane.submit({"nodes": 2, "extensions": 4})
    plane.plane.hold(job, 1, BY, plane.now_ms)
    plane.plane.hold(job, Selection((IndexRange(3, 2),)), BY, plane.now_ms)
    plane.start((job, 0))
    begun(plane, job)
    assert set(plane.engine.pending) == {(job, 2)}
    plane.plane.release(job, 3, BY, plane.now_ms)
    plane.commit()
    assert set(plane.engine.pending) == {(job, 2), (job, 3)}


def test_extensions_are_unknown_to_the_engine_until_the_base_runs() -> None:
    """An allocation of the base is not enough: its processes must have begun."""
    plane = SmallPlane(nodes=4)
    (job,) = plane.submit(ELASTIC)
    assert set(plane.engine.pending) == {(job, 0)}
    plane.start((job, 0))
    assert not plane.engine.pending
    begun(plane, job)
    assert set(plane.engine.pending) == {(job, 1), (job, 2), (job, 3)}


def test_an_extension_asks_for_one_node_of_the_shape_of_its_base() -> None:
    """And its owner is marked, so that everybody else may take from it."""
    plane = SmallPlane(nodes=4)
    (job,) = plane.submit({**ELASTIC, "request": {"cpu": 4}})
    plane.start((job, 0))
    (event,) = [event for event in begun(plane, job).engine if isinstance(event, JobsSubmitted)]
    (row,) = event.rows
    request, owner = event.classes[row["class_index"]], event.owners[row["owner_index"]]
    assert (request.request, request.nodes, owner.extension, owner.user) == ({"cpu": 4_000}, 1, True, "alice")


def test_a_job_succeeds_with_its_base_and_its_extensions_are_cancelled_with_it() -> None:
    """The one that runs is stopped first; the job has the exit code of its base."""
    plane, job = growing()
    grow(plane, job, 1)
    end_base(plane, job)
    live = plane.live(job)
    assert live.active[1].state is AttemptState.FINALISING
    assert {(r.first, r.count, r.state, r.reason) for r in live.ranges} == {(2, 2, TaskState.CANCELLED, BASE_ENDED)}
    plane.end(job, 1, code=143, cause=ExitCause.CANCELLED)
    assert live.state is TaskState.SUCCEEDED
    assert (live.exit_code, live.counts.cancelled) == (0, 3)


def test_a_job_fails_with_its_base_though_an_extension_succeeded() -> None:
    """With the exit code of the base, 3; that of the extension was 0."""
    plane, job = growing()
    grow(plane, job, 1)
    plane.end(job, 1)
    live = plane.live(job)
    end_base(plane, job, code=3)
    assert (live.state, live.exit_code, live.counts.succeeded) == (TaskState.FAILED, 3, 1)


def test_an_extension_that_fails_waits_again_and_its_job_goes_on() -> None:
    """After the back-off of its first failure, a second, though it had left for others twice before."""
    plane, job = growing()
    for _ in range(2):
        grow(plane, job, 1)
        shrink(plane, job, 1)
    grow(plane, job, 1)
    plane.end(job, 1, code=9)
    live = plane.live(job)
    again = live.ranges[0]
    assert (again.first, again.state, again.attempt, again.retries) == (1, TaskState.PENDING, 4, 1)
    assert again.eligible_ms == plane.now_ms + 1_000
    assert (live.state, live.exit_code) == (TaskState.RUNNING, None)


def test_extensions_leave_when_the_base_has_to_run_again() -> None:
    """Its task waits for a retry: those that wait are held, the one that runs is stopped and then held, too."""
    plane, job = growing(retries={"max": 1, "backoff": "1s"})
    grow(plane, job, 1)
    end_base(plane, job, code=3)
    assert set(plane.engine.pending) == {(job, 0)}
    plane.end(job, 1, code=143, cause=ExitCause.PREEMPTED)
    held = [(r.first, r.count, r.attempt) for r in plane.live(job).ranges if r.reason == BY_BASE]
    assert held in ([(1, 1, 2), (2, 2, 1)], [(1, 3, 1)])
    assert set(plane.engine.pending) == {(job, 0)}
    plane.start((job, 0))
    begun(plane, job)
    assert set(plane.engine.pending) == {(job, 1), (job, 2), (job, 3)}


def test_an_extension_that_shrinks_waits_again_without_a_retry() -> None:
    """The job's base runs on; the reason says for whom it left."""
    plane, job = growing()
    grow(plane, job, 1)
    block = moves(job, for_job=0)
    block["task"], block["mode"] = 1, 5
    plane.plane.preempt(block, plane.now_ms)
    change = plane.commit()
    (eviction,) = change.orders["n1"].evictions
    assert eviction.grace_ms == 5_000
    preemption = plane.live(job).active[1].preemption
    assert preemption is not None
    assert preemption.mode == "shrink"
    plane.end(job, 1, code=143, cause=ExitCause.PREEMPTED)
    again = plane.live(job).ranges[0]
    assert (again.first, again.state, again.attempt, again.retries) == (1, TaskState.PENDING, 2, 0)
    assert plane.live(job).state is TaskState.RUNNING


def test_a_held_job_keeps_what_runs_and_grows_no_more() -> None:
    """Nothing of a held job starts; released, it grows again."""
    plane, job = growing()
    plane.plane.hold(job, None, BY, plane.now_ms)
    plane.commit()
    assert not plane.engine.pending
    plane.plane.release(job, None, BY, plane.now_ms)
    plane.commit()
    assert set(plane.engine.pending) == {(job, 1), (job, 2), (job, 3)}


def test_releasing_a_job_before_its_base_runs_lets_no_extension_wait() -> None:
    """They are held by the base, not by a person."""
    plane = SmallPlane(nodes=4)
    (job,) = plane.submit({**ELASTIC, "hold": True})
    plane.plane.release(job, None, BY, plane.now_ms)
    plane.commit()
    assert set(plane.engine.pending) == {(job, 0)}


def test_cancelling_a_job_ends_all_of_it() -> None:
    """It ends as cancelled when the base and the extension that runs have ended."""
    plane, job = growing()
    grow(plane, job, 1)
    live = plane.live(job)
    plane.plane.cancel(job, None, BY, plane.now_ms)
    plane.commit()
    plane.end(job, 1, code=143, cause=ExitCause.CANCELLED)
    for rank in range(2):
        plane.end(job, 0, code=143, cause=ExitCause.CANCELLED, rank=rank)
    assert (live.state, live.reason) == (TaskState.CANCELLED, "cancelled by alice")


def test_an_extension_is_told_where_its_base_is() -> None:
    """Its nodes, and the port at which the base's ranks meet; the base knows how far it may grow."""
    plane, job = growing()
    base = plane.live(job).active[0]
    orders = grow(plane, job, 1).orders["n1"]
    ((_, template),) = orders.templates.items()
    assert template.env["HAL_ELASTIC"] == "extension"
    assert template.env["HAL_BASE_NODES"] == "n1,n2"
    assert (template.env["MASTER_ADDR"], template.env["MASTER_PORT"]) == ("n1", str(base.port))
    assert (template.env["HAL_MIN_NODES"], template.env["HAL_MAX_NODES"]) == ("2", "5")
    assert not template.ranks


def test_a_queue_caps_extensions() -> None:
    """Of two nodes and up to four more, a queue that allows three refuses; the hint says what would do."""
    plane = SmallPlane(Policy(queues={"default": Queue(max_extensions=3)}))
    with pytest.raises(SpecError, match="at most 3") as refused:
        plane.submit({"nodes": 2, "extensions": 4})
    assert refused.value.hint == "write 2..5"
    plane.submit({"nodes": 2, "extensions": 3})


def test_why_says_what_extensions_wait_for() -> None:
    """For the base to run as long as it starts; then for one more node, with how many there are."""
    plane = SmallPlane(nodes=4)
    (job,) = plane.submit(ELASTIC)
    plane.start((job, 0))
    starting = plane.plane.why(plane.live(job), plane.now_ms)
    assert starting.reason is Reason.NONE
    assert starting.message.endswith("its extensions wait for resources as soon as its base runs")
    begun(plane, job)
    grow(plane, job, 1)
    later = plane.plane.why(plane.live(job), plane.now_ms)
    assert later.message.startswith("Its base runs, with 1 extension of up to 3; one more waits for resources")


@pytest.mark.parametrize("field", [{"service": True}, {"movable": True}, {"interactive": "pipes"}])
def test_what_cannot_have_extensions_says_so(field: dict[str, object]) -> None:
    """Services, interactive jobs, and those that stay in one domain."""
    with pytest.raises(SpecError, match="extensions: a job with"):
        spec_from_plain({"command": ["true"], "extensions": 1, **field})


TOLD = {"nodes": 2, "extensions": 3, "on_resize": "WINCH"}


def told(change: Change) -> tuple[str, ...] | None:
    """What the base of the only job is told of its nodes by this commit, at its first node; None: nothing."""
    (now,) = [*(change.orders["n1"].resized.values() if "n1" in change.orders else ())] or [None]
    assert all(not orders.resized for node, orders in change.orders.items() if node != "n1")
    return None if now is None else now.nodes


def test_a_base_that_asks_for_it_is_told_its_nodes_as_extensions_come_and_go() -> None:
    """When their processes have begun, and as soon as they are told to leave; not of its own nodes, which it has from
    the beginning, nor of the end of one that had been told to leave."""
    plane = SmallPlane(nodes=4)
    (job,) = plane.submit(TOLD)
    started = plane.start((job, 0))
    assert told(begun(plane, job)) is None
    starts, rows = plane.engine.plan([(job, 1)], {job: 1})
    plane.engine.assume(starts)
    plane.plane.allocate(starts, rows, plane.names.__getitem__, 1, plane.now_ms)
    assert told(plane.commit()) is None
    change = begun(plane, job, 1)
    (first,) = plane.live(job).active[1].nodes
    assert told(change) == ("n1", "n2", first)
    block = moves(job, for_job=0)
    block["task"], block["mode"] = 1, 5
    plane.plane.preempt(block, plane.now_ms)
    assert told(plane.commit()) == ("n1", "n2")
    assert told(plane.end(job, 1, code=143, cause=ExitCause.PREEMPTED)) is None
    ((_, template),) = started.orders["n1"].templates.items()
    assert template.hostfile == 1


def test_a_base_that_does_not_ask_is_told_nothing() -> None:
    """And its template asks for no file."""
    plane, job = growing()
    orders = grow(plane, job, 1).orders
    assert all(not one.resized for one in orders.values())
    assert all(not template.hostfile for one in orders.values() for template in one.templates.values())


def test_an_extension_has_no_file_of_nodes_of_its_own() -> None:
    plane, job = growing(**TOLD)
    ((_, template),) = grow(plane, job, 1).orders["n1"].templates.items()
    assert (template.env["HAL_ELASTIC"], template.hostfile) == ("extension", 0)


def test_a_node_that_returns_is_told_the_nodes_again() -> None:
    """Its agent may have missed what came while it was away."""
    plane, job = growing(**TOLD)
    grow(plane, job, 1)
    (extension,) = plane.live(job).active[1].nodes
    held = tuple(
        HeldStep(StepId(job, task, 1, rank), True, 7, plane.now_ms)
        for task, attempt in plane.live(job).active.items()
        for rank, node in enumerate(attempt.nodes)
        if node == "n1"
    )
    arrival = Arrival(name="n1", capacity={"cpu": 64_000}, boot_id="b1", held=held)
    plane.plane.record_arrival(arrival, plane.now_ms)
    assert told(plane.commit()) == ("n1", "n2", extension)


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"on_resize": "KILL", "extensions": 1}, "'KILL' is not one of"), ({"on_resize": "USR1"}, "without extensions")],
)
def test_a_signal_that_makes_no_sense_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec_from_plain({"command": ["x"], **fields})
