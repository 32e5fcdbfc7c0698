"""Nodes that people close: what starts there, when one is empty, what survives, what may be forgotten."""

from __future__ import annotations

import pytest

from hal.core.engine.events import Health, NodesChanged
from hal.core.model import ConflictError, NodeState, NotFoundError, SpecError, StepId
from hal.planes.tasks import Arrival, Change, Submitter, reason_of
from hal.store import AppendEvents, DropNodes, PutNodes
from hal.wire.frames.agent_keeper import StopReason
from hal.wire.frames.controller_agent import FailingCheck
from hal.wire.frames.hello import HeldStep
from tests.planes.tasks.small_plane import BY, SmallPlane

CAPACITY = {"cpu": 64_000}


def state(plane: SmallPlane, name: str = "n1") -> NodeState:
    return plane.plane._table.nodes[name].state


def reason(plane: SmallPlane, name: str = "n1") -> str:
    return reason_of(plane.plane._table.nodes[name])


def health(change: Change, name: str = "n1") -> Health:
    """What the engine was told last of that node."""
    told = [node for event in change.engine if isinstance(event, NodesChanged) for node in event.nodes]
    return [node.health for node in told if node.name == name][-1]


def events(change: Change) -> list[tuple[str, dict[str, object]]]:
    return [
        (event.cause, event.payload)
        for operation in change.operations
        if isinstance(operation, AppendEvents)
        for event in operation.events
        if event.kind == "node-changed"
    ]


def returns(plane: SmallPlane, boot_id: str = "b1", held: tuple[HeldStep, ...] = ()) -> None:
    plane.plane.record_arrival(Arrival(name="n1", capacity=CAPACITY, boot_id=boot_id, held=held), plane.now_ms)


def test_a_second_drain_without_a_reason_keeps_the_first() -> None:
    """And who gave it; one with a reason replaces it."""
    plane = SmallPlane()
    plane.plane.cordon("n1", "disk", BY, 1_000, drain=True)
    plane.plane.cordon("n1", "", Submitter("bob", "trace"), 2_000, drain=True)
    plane.commit()
    assert reason(plane) == "drained by alice: disk"
    plane.plane.cordon("n1", "", Submitter("bob", "trace"), 3_000)
    plane.commit()
    assert reason(plane) == "drained by alice: disk"
    plane.plane.cordon("n1", "fan", Submitter("bob", "trace"), 4_000, drain=True)
    plane.commit()
    assert reason(plane) == "drained by bob: fan"


def test_a_cordoned_node_is_closed_to_the_engine_and_tells_who_and_why() -> None:
    """Cause, state and reason are in the feed; what runs there is left alone."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    plane.plane.cordon("n1", "looks slow", BY, 1_000)
    change = plane.commit()
    assert health(change) is Health.CORDONED
    assert events(change) == [
        ("user:alice", {"node": "n1", "state": "cordoned", "reason": "cordoned by alice: looks slow"})
    ]
    assert plane.live(job).active[0].stopping == ""
    plane.plane.uncordon("n1", BY)
    assert health(plane.commit()) is Health.UP
    assert (state(plane), reason(plane)) == (NodeState.UP, "")


def test_nodes_closed_in_one_request_are_one_event_each() -> None:
    """Both names are in the feed."""
    plane = SmallPlane()
    for name in ("n1", "n2"):
        plane.plane.cordon(name, "", BY, 1_000)
    assert [payload["node"] for _, payload in events(plane.commit())] == ["n1", "n2"]


def test_a_drained_node_is_cordoned_when_its_last_task_has_ended() -> None:
    """Two tasks: after the first it drains still."""
    plane = SmallPlane()
    jobs = plane.submit({}, {})
    plane.start(*((job, 0) for job in jobs))
    plane.plane.cordon("n1", "", BY, 1_000, drain=True)
    plane.commit()
    seen = [(state(plane), plane.plane.is_draining("n1"))]
    for job in jobs:
        plane.end(job)
        seen.append((state(plane), plane.plane.is_draining("n1")))
    assert seen == [(NodeState.DRAINING, True), (NodeState.DRAINING, True), (NodeState.CORDONED, False)]


def test_an_empty_node_is_drained_at_once() -> None:
    """Nothing has to end."""
    plane = SmallPlane()
    plane.plane.cordon("n1", "", BY, 1_000, drain=True)
    plane.commit()
    assert state(plane) is NodeState.CORDONED


def test_a_gang_holds_its_nodes_until_its_last_step_has_ended() -> None:
    """Its step on n1 has ended, that on n2 goes on: n1 drains still."""
    plane = SmallPlane()
    (gang,) = plane.submit({"nodes": 2})
    plane.start((gang, 0))
    plane.plane.cordon("n1", "", BY, 1_000, drain=True)
    plane.commit()
    plane.end(gang, rank=0)
    assert state(plane) is NodeState.DRAINING
    plane.end(gang, rank=1)
    assert state(plane) is NodeState.CORDONED


def test_a_draining_node_that_is_uncordoned_takes_work_again() -> None:
    """Also while it holds some."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    plane.plane.cordon("n1", "", BY, 1_000, drain=True)
    plane.commit()
    plane.plane.uncordon("n1", BY)
    assert health(plane.commit()) is Health.UP


def test_cordoning_a_node_that_drains_leaves_it_draining() -> None:
    """Only the reason is another."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    plane.plane.cordon("n1", "first", BY, 1_000, drain=True)
    plane.plane.cordon("n1", "second", BY, 1_000)
    plane.commit()
    assert (state(plane), reason(plane)) == (NodeState.DRAINING, "drained by alice: second")


@pytest.mark.parametrize("boot_id", ["b1", "b2"])
@pytest.mark.parametrize("drain", [False, True])
def test_what_a_person_closed_stays_closed_when_the_node_returns(drain: bool, boot_id: str) -> None:
    """It falls silent with a task and returns, rebooted or not: still cordoned, or draining while the task goes on."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    plane.plane.cordon("n1", "new disk", BY, 1_000, drain=drain)
    plane.commit()
    plane.plane.record_silence("n1", "not heard", 2_000, 1_000)
    plane.commit()
    assert reason(plane).startswith("not heard; ")
    returns(plane, boot_id, (HeldStep(StepId(job, 0, 1, 0), running=True, pid=7, started_ms=900),))
    plane.commit()
    wanted = NodeState.DRAINING if drain and boot_id == "b1" else NodeState.CORDONED
    assert (state(plane), reason(plane).endswith("by alice: new disk")) == (wanted, True)


def test_a_node_that_is_not_heard_can_be_closed_and_opened() -> None:
    """It stays unreachable meanwhile and returns to what people said last."""
    plane = SmallPlane()
    plane.plane.record_silence("n1", "not heard", 1_000, 900)
    plane.plane.cordon("n1", "", BY, 1_000)
    plane.commit()
    assert (state(plane), reason(plane)) == (NodeState.UNREACHABLE, "not heard; cordoned by alice")
    plane.plane.record_return("n1", 1_000)
    plane.commit()
    assert (state(plane), reason(plane)) == (NodeState.CORDONED, "cordoned by alice")


def test_a_fenced_node_that_was_drained_returns_cordoned() -> None:
    """Its attempts were lost, so it holds nothing."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    plane.plane.cordon("n1", "", BY, 1_000, drain=True)
    plane.plane.record_silence("n1", "not heard", 1_000, 900)
    plane.plane.fence_node("n1", BY, 1_000)
    plane.commit()
    returns(plane, "b2")
    plane.commit()
    assert state(plane) is NodeState.CORDONED


def test_what_was_closed_and_not_committed_never_was() -> None:
    """The commit fails: the node is up, and does not drain."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    plane.plane.cordon("n1", "", BY, 1_000, drain=True)
    plane.plane.seal(1_000)
    plane.plane.undo()
    assert (state(plane), plane.plane._table.draining) == (NodeState.UP, {})


def test_tasks_on_credit_are_recalled_from_a_node_that_is_closed() -> None:
    """They would begin there as places come free."""
    plane = SmallPlane(nodes=1)
    plane.plane.record_arrival(Arrival(name="n1", capacity=CAPACITY, boot_id="b1", credit=True), plane.now_ms)
    (job,) = plane.submit({"array": 40})
    for task in (0, 1):
        plane.start((job, task))
        plane.end(job, task)
    plane.start((job, 2), credit=True)
    waiting = [attempt for attempt in plane.live(job).active.values() if attempt.credit]
    assert waiting
    plane.plane.cordon("n1", "", BY, 1_000)
    assert len(plane.commit().orders["n1"].recalls) == len(waiting)


@pytest.mark.parametrize("drain", [False, True])
def test_a_node_that_stopped_in_good_order_returns_to_what_it_was(drain: bool) -> None:
    """Silence afterwards, as after a restart of the controller, does not make it unreachable."""
    plane = SmallPlane()
    if drain:
        plane.plane.cordon("n1", "", BY, 1_000)
    plane.plane.record_silence("n1", "stopped in good order", 1_000, 900, stopped=True)
    plane.plane.record_silence("n1", "not heard", 2_000, 900)
    plane.commit()
    assert (state(plane), "stopped in good order" in reason(plane)) == (NodeState.STOPPED, True)
    returns(plane)
    plane.commit()
    assert state(plane) is (NodeState.CORDONED if drain else NodeState.UP)


@pytest.mark.parametrize("gone", ["cordoned", "unreachable", "stopped", "down"])
def test_a_node_that_holds_nothing_is_forgotten(gone: str) -> None:
    """Its row goes, the engine hears it once; one of that name that dials again is new and up."""
    plane = SmallPlane()
    if gone == "cordoned":
        plane.plane.cordon("n1", "", BY, 1_000)
    else:
        plane.plane.record_silence("n1", "not heard", 1_000, 900, stopped=gone == "stopped")
    if gone == "down":
        plane.plane.fence_node("n1", BY, 1_000)
    plane.commit()
    plane.plane.remove_node("n1", BY)
    change = plane.commit()
    dropped = [operation.names for operation in change.operations if isinstance(operation, DropNodes)]
    assert (dropped, "n1" in plane.plane._table.nodes) == ([["n1"]], False)
    assert not any(isinstance(operation, PutNodes) for operation in change.operations)
    assert events(change) == [("user:alice", {"node": "n1", "state": "removed", "reason": "removed by alice"})]
    returns(plane)
    plane.commit()
    assert state(plane) is NodeState.UP


def test_a_node_that_may_start_work_or_holds_some_is_not_forgotten() -> None:
    """The error names its state, what it holds, and what to do first."""
    plane = SmallPlane()
    with pytest.raises(ConflictError, match="node 'n1' is up: it was not removed"):
        plane.plane.remove_node("n1", BY)
    (job,) = plane.submit({})
    plane.start((job, 0))
    plane.plane.cordon("n1", "", BY, 1_000, drain=True)
    plane.commit()
    with pytest.raises(ConflictError, match="node 'n1' is draining and holds 1 task"):
        plane.plane.remove_node("n1", BY)
    with pytest.raises(NotFoundError, match="there is no node 'n9'"):
        plane.plane.remove_node("n9", BY)


def test_a_reason_is_one_short_line() -> None:
    """It is shown in tables."""
    plane = SmallPlane()
    for text in ("x" * 501, "two\nlines"):
        with pytest.raises(SpecError, match="reason: one line of at most 500 characters"):
            plane.plane.cordon("n1", text, BY, 1_000)


def test_why_names_the_nodes_that_would_do_and_are_closed_with_their_reasons() -> None:
    """n2 is too small for what is asked and is not named."""
    plane = SmallPlane()
    plane.plane.record_arrival(Arrival(name="n2", capacity={"cpu": 1_000}, boot_id="b1"), plane.now_ms)
    for name in ("n1", "n2"):
        plane.plane.cordon(name, "new disk", BY, 1_000)
    plane.commit()
    (job,) = plane.submit({"request": {"cpu": 2}})
    verdict = plane.plane.why(plane.live(job), 1_000)
    assert verdict.message == "waits for resources. n1 is cordoned (cordoned by alice: new disk)"


def failing(*names: str) -> list[FailingCheck]:
    return [FailingCheck(name, f"{name} is bad", 900) for name in names]


def test_a_failing_check_closes_the_node_until_it_passes() -> None:
    """What runs goes on; the same told again changes nothing."""
    plane = SmallPlane()
    plane.plane.record_checks("n1", failing("disk"), 10)
    assert health(plane.commit()) is Health.CORDONED
    assert reason(plane) == "check disk: disk is bad"
    plane.plane.record_checks("n1", failing("disk"), 10)
    assert plane.commit().operations == []
    plane.plane.record_checks("n1", [], 10)
    assert health(plane.commit()) is Health.UP


def test_checks_and_people_close_a_node_each_for_themselves() -> None:
    """A check that passes does not lift a person's cordon, nor a person's uncordon a failing check."""
    plane = SmallPlane()
    plane.plane.cordon("n1", "mine", BY, 1_000)
    plane.plane.record_checks("n1", failing("disk", "clock"), 10)
    plane.plane.record_checks("n1", [], 10)
    plane.commit()
    assert (state(plane), reason(plane)) == (NodeState.CORDONED, "cordoned by alice: mine")
    plane.plane.record_checks("n1", failing("disk"), 10)
    plane.plane.uncordon("n1", BY)
    plane.commit()
    assert (state(plane), reason(plane)) == (NodeState.CORDONED, "check disk: disk is bad")


def test_a_person_who_uncordons_while_it_drains_and_a_check_fails_leaves_it_cordoned() -> None:
    """It holds a task still and does not drain any more."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    plane.plane.cordon("n1", "", BY, 1_000, drain=True)
    plane.plane.record_checks("n1", failing("disk"), 10)
    plane.plane.uncordon("n1", BY)
    plane.commit()
    assert (state(plane), plane.plane.is_draining("n1")) == (NodeState.CORDONED, False)


@pytest.mark.parametrize(("checked", "wanted"), [(True, NodeState.CORDONED), (False, NodeState.UP)])
def test_a_node_that_returns_is_as_its_checks_said_last_until_they_speak(checked: bool, wanted: NodeState) -> None:
    """An agent that has no checks any more will never say that they pass."""
    plane = SmallPlane()
    plane.plane.record_checks("n1", failing("disk"), 10)
    plane.plane.record_silence("n1", "not heard", 1_000, 900)
    plane.plane.record_arrival(Arrival(name="n1", capacity=CAPACITY, boot_id="b1", checked=checked), plane.now_ms)
    plane.commit()
    assert state(plane) is wanted
    plane.plane.record_arrival(Arrival(name="n1", capacity=CAPACITY, boot_id="b1"), plane.now_ms)
    plane.commit()
    assert state(plane) is NodeState.UP


def test_the_engine_hears_of_a_node_only_what_is_new() -> None:
    """An agent that dials again, a further reason why a node is closed: to the engine it is what it was."""
    plane = SmallPlane()
    returns(plane)
    again = plane.commit().engine
    plane.plane.cordon("n1", "looks slow", BY, 1_000)
    assert health(plane.commit()) is Health.CORDONED
    plane.plane.cordon("n1", "looks very slow", BY, 1_000)
    assert (again, plane.commit().engine) == ([], [])


def test_what_checks_may_say_is_bounded() -> None:
    """A thousand checks with endless reasons: 64 of 500 characters are kept."""
    plane = SmallPlane()
    plane.plane.record_checks("n1", [FailingCheck(f"{n:099}"[::-1], "x" * 9_999, 1) for n in range(1_000)], 10)
    plane.commit()
    closures = plane.plane._table.nodes["n1"].about.closures
    assert (len(closures), max(len(one.reason) for one in closures)) == (64, 500)
    plane.plane.record_checks("n9", failing("disk"), 10)
    assert plane.commit().operations == []


@pytest.mark.parametrize("fenced", [False, True])
def test_what_is_given_away_is_withdrawn_at_its_node_in_the_same_change(fenced: bool) -> None:
    """A start of it may still wait for the node's next stamp."""
    plane = SmallPlane(nodes=1)
    (job,) = plane.submit({"on_node_lost": "requeue"})
    plane.start((job, 0))
    if fenced:
        plane.plane.record_silence("n1", "not heard", 1_000, 900)
        plane.commit()
        plane.plane.fence_node("n1", BY, 1_000)
    else:
        plane.plane.end_node_lease("n1", 90_000, 1_000)
    assert plane.commit().orders["n1"].lost == [StepId(job, 0, 1, 0)]


@pytest.mark.parametrize("before", ["up", "cordoned", "draining", "unreachable", "stopped", "down"])
def test_a_node_whose_machine_is_gone_is_fenced_in_any_state(before: str) -> None:
    """Its task waits again at once, without a retry, and no start of it may leave any more."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    if before in ("cordoned", "draining"):
        plane.plane.cordon("n1", "", BY, 1_000, drain=before == "draining")
    if before in ("unreachable", "stopped", "down"):
        plane.plane.record_silence("n1", "not heard", 1_000, 900, stopped=before == "stopped")
    if before == "down":
        plane.plane.fence_node("n1", BY, 1_000)
    plane.commit()
    plane.plane.fence_node("n1", BY, 1_000, machine_gone=True, reason="deleted")
    change = plane.commit()
    (waiting,) = plane.live(job).ranges
    assert (state(plane), waiting.attempt, waiting.retries) == (NodeState.DOWN, 2, 0)
    assert reason(plane).startswith("declared gone by alice: deleted; ")
    assert "fenced: closed until its machine has started again" in reason(plane)
    lost = [StepId(job, 0, 1, 0)] if before != "down" else None
    assert (change.orders["n1"].lost if "n1" in change.orders else None) == lost


def test_a_fenced_machine_gets_no_work_until_it_has_started_again() -> None:
    """Its agent dials with the same boot: what it holds is stopped, and nobody opens it. With another boot it is up."""
    plane = SmallPlane()
    (job,) = plane.submit({})
    plane.start((job, 0))
    step = StepId(job, 0, 1, 0)
    plane.plane.fence_node("n1", BY, 1_000, machine_gone=True)
    plane.commit()
    returns(plane, held=(HeldStep(step, True, 7, 1_000),))
    assert plane.commit().orders["n1"].stops == {StopReason.UNKNOWN: [step]}
    plane.plane.uncordon("n1", BY)
    plane.commit()
    assert (state(plane), "fenced" in reason(plane)) == (NodeState.CORDONED, True)
    returns(plane, "b2")
    plane.commit()
    assert (state(plane), reason(plane)) == (NodeState.UP, "")


def test_a_machine_may_be_declared_gone_twice() -> None:
    """A request whose answer was lost is sent again: it changes nothing."""
    plane = SmallPlane()
    plane.plane.fence_node("n1", BY, 1_000, machine_gone=True, reason="deleted")
    plane.commit()
    plane.plane.fence_node("n1", BY, 2_000, machine_gone=True, reason="deleted")
    assert plane.commit().operations == []


def test_a_node_that_is_heard_is_not_gone_unless_its_machine_is() -> None:
    """Its processes may well run."""
    plane = SmallPlane()
    with pytest.raises(ConflictError, match="node 'n1' is up"):
        plane.plane.fence_node("n1", BY, 1_000)


def test_a_gang_loses_the_node_that_is_gone_and_is_stopped_on_the_other() -> None:
    """One attempt, two nodes."""
    plane = SmallPlane()
    (gang,) = plane.submit({"nodes": 2})
    plane.start((gang, 0))
    plane.plane.fence_node("n1", BY, 1_000, machine_gone=True)
    orders = plane.commit().orders
    assert orders["n1"].lost == [StepId(gang, 0, 1, 0)]
    assert orders["n2"].stops == {StopReason.SIBLING: [StepId(gang, 0, 1, 1)]}
