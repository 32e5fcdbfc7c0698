"""Gates that jobs name, under virtual time: a real agent and keeper core; the test is service and controller."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hal.core.model.gate import GatePhase, GatePolicy
from hal.core.model.gate_protocol import ANSWER_MS, GateAsk, GateRequest, decode_request
from hal.core.model.node_config import NodeSection
from hal.core.model.units import Duration
from hal.daemons.agent.gate_services import MAX_REQUESTS
from hal.daemons.agent.keeper.credit import CREDIT_OVER, RECALLED
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.agree import CREDIT, JOB_GATES
from hal.wire.frames.agent_keeper import ExitCause, Exits, Recall, Refused, Started, Stop, StopReason, TemplateGate
from hal.wire.frames.controller_agent import Gates
from hal.wire.frames.hello import Hello
from tests.daemons.agent.test_node_gates import ONE, TWO, Node, world
from tests.simulation.machine import Work

__all__ = ["world"]

READY = (1, b'{"state":"ready"}\n')
WAITING = (1, b'{"state":"waiting","reason":"12 of 40 GiB","again_ms":200}\n')
REFUSED = (1, b'{"state":"refused","reason":"no space"}\n')
Answer = Callable[[GateRequest], tuple[int, bytes]]


class Service:
    """A gate's service: answers what the test says, and remembers what it was asked."""

    def __init__(self, node: Node, name: str = "stage") -> None:
        self.asked: list[GateRequest] = []
        self.answer: Answer = lambda request: READY
        node.host.services[f"{name}.sock"] = self._serve

    def _serve(self, line: bytes) -> tuple[int, bytes]:
        request = decode_request(line)
        self.asked.append(request)
        return self.answer(request)

    @property
    def story(self) -> list[str]:
        """What was asked, and for which phase."""
        return [f"{one.ask} {one.phase}" for one in self.asked]


def bare_node(world: VirtualWorld) -> Node:
    """A node without scripts."""
    return Node(world, NodeSection())


def gate(
    policy: GatePolicy = GatePolicy.WAIT,
    phase: GatePhase = GatePhase.PREPARING,
    deadline_ms: int = 60_000,
    name: str = "stage",
) -> TemplateGate:
    return TemplateGate(name, phase, deadline_ms, policy, "genome")


FINALISING = gate(phase=GatePhase.FINALISING)


def runs(node: Node) -> int:
    return len(node.machine.runs)


def reasons(node: Node) -> list[str]:
    """What was told of gates, with the reasons."""
    return [f"{one.gate} {one.state} {one.reason}".strip() for frame in node.of(Gates) for one in frame.gates]


def message(node: Node) -> str:
    """Of the refusal."""
    return node.of(Refused)[-1].steps[-1].message


# ── satisfied ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_satisfied_gate_is_asked_once_and_leaves_no_trace(world: VirtualWorld) -> None:
    """No report, no note, and the node keeps its credit: nothing but the question."""
    node = bare_node(world)
    service = Service(node)

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(),))
        await node.told("exit", "exited")

    node.run(story)
    (asked,) = service.asked
    assert asked == GateRequest(
        ask=GateAsk.ENTER, gate="stage", phase=GatePhase.PREPARING, job=7, task=3, attempt=2, rank=0, node="n1",
        user="ann", deadline_ms=60_000, argument="genome",
    )  # fmt: skip
    assert (node.story, node.notes.notes) == ([("exit", "exited")], {})
    hello = node.of(Hello)[0]
    assert {CREDIT, JOB_GATES} <= set(hello.features)


def test_steps_without_gates_pass_beside_one_that_waits(world: VirtualWorld) -> None:
    """One of two in the same frame begins at once."""
    node = bare_node(world)
    Service(node).answer = lambda request: WAITING

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(),))
        node.start(TWO)
        await node.told("exit", "exited")

    node.run(story)
    assert [run.step for run in node.machine.runs] == [TWO]


def test_all_gates_of_a_phase_are_asked_at_the_same_time_and_all_must_be_satisfied(world: VirtualWorld) -> None:
    """One takes two seconds, the other is satisfied when it is asked again."""
    node = bare_node(world)
    slow, again = Service(node, "slow"), Service(node, "again")
    slow.answer = lambda request: (2_000, READY[1])
    again.answer = lambda request: READY if len(again.asked) > 1 else WAITING

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(name="slow"), gate(name="again")))
        await node.until(lambda: len(again.asked) == 2, "asked again")
        assert runs(node) == 0
        await node.told("exit", "exited")

    node.run(story)
    assert (runs(node), len(slow.asked)) == (1, 1)


def test_a_gate_that_is_not_satisfied_at_once_is_told_with_its_reason_and_told_again_when_it_is(
    world: VirtualWorld,
) -> None:
    """Also to the next controller, while it waits."""
    node = bare_node(world)
    service = Service(node)
    service.answer = lambda request: WAITING

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(),))
        await node.told("stage", "12 of 40 GiB")
        node.drop()
        await node.until(lambda: node.story.count(("stage", "12 of 40 GiB")) == 2, "told again")
        service.answer = lambda request: READY
        node.start(ONE, gates=(gate(),))
        await node.told("exit", "exited")

    node.run(story)
    assert node.story[-2:] == [("stage", "passed"), ("exit", "exited")]
    assert node.notes.notes == {}


def test_a_gate_comes_after_the_prolog_and_a_finalising_one_before_the_epilog(world: VirtualWorld) -> None:
    """The site's scripts enclose what jobs name."""
    node = Node(world)
    order: list[str] = []
    service = Service(node)
    node.host.scripts["/prolog"] = lambda env: (order.append("prolog"), node._script(env))[1]
    node.host.scripts["/epilog"] = lambda env: (order.append("epilog"), node._script(env))[1]
    service.answer = lambda request: (order.append(str(request.phase)), READY)[1]

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(), FINALISING))
        await node.told("exit", "exited")

    node.run(story)
    assert order == ["prolog", "preparing", "finalising", "epilog"]


# ── absent, slow, dead, refusing ──────────────────────────────────────────────────────────────────────────────────


def _absent(node: Node) -> None:
    """No socket."""


def _slow(node: Node) -> None:
    Service(node).answer = lambda request: (10**7, b"")


def _dead(node: Node) -> None:
    Service(node).answer = lambda request: (1, b"")


def _babbling(node: Node) -> None:
    Service(node).answer = lambda request: (1, b"OK\n")


def _endless(node: Node) -> None:
    Service(node).answer = lambda request: (1, b"x" * 100_000)


@pytest.mark.parametrize("fault", [_absent, _slow, _dead, _babbling, _endless])
@pytest.mark.parametrize(("policy", "code"), [
    (GatePolicy.ELSEWHERE, "gate-elsewhere"), (GatePolicy.FAIL, "gate-failed"),
])  # fmt: skip
def test_a_gate_that_cannot_be_asked_does_what_its_policy_says(
    world: VirtualWorld, fault: Callable[[Node], None], policy: GatePolicy, code: str
) -> None:
    """Told by name and with the reason; nothing begins."""
    node = bare_node(world)
    fault(node)

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(policy),))
        await node.told("refused", code)

    node.run(story)
    assert message(node).startswith("gate 'stage': ")
    assert reasons(node)[-1].startswith("stage failed ")
    assert runs(node) == 0


@pytest.mark.parametrize("fault", [_absent, _slow, _dead])
def test_a_gate_that_cannot_be_asked_is_waited_for_if_its_policy_is_wait(
    world: VirtualWorld, fault: Callable[[Node], None]
) -> None:
    """The service comes (back) after half a minute."""
    node = bare_node(world)
    fault(node)

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(),))
        await node.quiet(30_000)
        Service(node)
        await node.told("exit", "exited")

    node.run(story)
    assert runs(node) == 1


def test_a_gate_that_is_waited_for_in_vain_fails_at_its_deadline_with_what_was_missing(world: VirtualWorld) -> None:
    """Two seconds, in which nobody served it."""
    node = bare_node(world)

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(deadline_ms=2_000),))
        await node.told("refused", "gate-failed")

    node.run(story)
    assert "not satisfied within 2s: nobody serves " in message(node)


@pytest.mark.parametrize(("policy", "end"), [
    (GatePolicy.WAIT, ("refused", "gate-failed")), (GatePolicy.FAIL, ("refused", "gate-failed")),
    (GatePolicy.ELSEWHERE, ("refused", "gate-elsewhere")), (GatePolicy.IGNORE, ("exit", "exited")),
])  # fmt: skip
def test_a_refusal_is_final(world: VirtualWorld, policy: GatePolicy, end: tuple[str, str]) -> None:
    """With the reason of the service; `ignore` lets it begin."""
    node = bare_node(world)
    service = Service(node)
    service.answer = lambda request: REFUSED

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(policy),))
        await node.told(*end)

    node.run(story)
    assert "stage failed no space" in reasons(node)
    assert service.story.count("enter preparing") == 1


def test_a_service_is_asked_by_so_many_at_once_and_the_others_wait(world: VirtualWorld) -> None:
    """One more than that: it is asked when another has been answered."""
    node = bare_node(world)
    busy, most = 0, 0
    service = Service(node)

    def answer(request: GateRequest) -> tuple[int, bytes]:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        world.loop.call_later(0.999, ended)
        return 1_000, READY[1]

    def ended() -> None:
        nonlocal busy
        busy -= 1

    service.answer = answer

    async def story(node: Node) -> None:
        from hal.core.model import StepId

        node.start(*(StepId(7, task, 1, 0) for task in range(MAX_REQUESTS + 1)), gates=(gate(),))
        await node.until(lambda: len(service.asked) == MAX_REQUESTS + 1, "all asked")

    node.run(story)
    assert most == MAX_REQUESTS


# ── finalising ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_exit_is_told_when_the_finalising_gate_is_satisfied(world: VirtualWorld) -> None:
    """It says when the process ended; that it began is told before."""
    node = bare_node(world)
    service = Service(node)
    service.answer = lambda request: READY if len(service.asked) > 5 else WAITING

    async def story(node: Node) -> None:
        node.start(ONE, gates=(FINALISING,))
        await node.told("exit", "exited")
        await node.until(lambda: not node.notes.notes, "the note is gone")

    node.run(story)
    (exit_,) = node.of(Exits)[-1].exits
    assert exit_.ended_ms - exit_.started_ms < 150
    assert node.of(Started)[0].steps[0].step == ONE


@pytest.mark.parametrize(("policy", "codes", "cause", "why"), [
    (GatePolicy.FAIL, (0,), ExitCause.GATE_FAILED, "gate 'stage': no space"),
    (GatePolicy.IGNORE, (0,), ExitCause.EXITED, ""),
    (GatePolicy.FAIL, (4,), ExitCause.EXITED, ""),
])  # fmt: skip
def test_a_failed_finalising_gate_fails_what_had_succeeded(
    world: VirtualWorld, policy: GatePolicy, codes: tuple[int, ...], cause: ExitCause, why: str
) -> None:
    """What had failed by itself stays as it was."""
    node = bare_node(world)
    Service(node).answer = lambda request: REFUSED

    async def story(node: Node) -> None:
        node.start(ONE, work=Work(100, codes), gates=(gate(policy, GatePhase.FINALISING),))
        await node.until(lambda: node.of(Exits), "an exit")

    node.run(story)
    (exit_,) = node.of(Exits)[-1].exits
    assert (exit_.cause, exit_.code, exit_.message) == (cause, codes[0], why)


def test_safety_a_successor_of_a_dead_agent_asks_the_finalising_gate_again(world: VirtualWorld) -> None:
    """The first was killed while the gate waited; the exit that the keeper repeats says nothing of it."""
    node = bare_node(world)
    service = Service(node)
    service.answer = lambda request: WAITING

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(GatePolicy.FAIL, GatePhase.FINALISING),))
        await node.told("stage", "12 of 40 GiB")
        node.process("agent-n1").kill()
        service.answer = lambda request: REFUSED
        await node.until(lambda: node.of(Exits), "an exit")

    node.run(story)
    (exit_,) = node.of(Exits)[-1].exits
    assert exit_.cause is ExitCause.GATE_FAILED


def test_a_cancel_abandons_a_finalising_gate(world: VirtualWorld) -> None:
    """A person need not wait for a day; the attempt ends as cancelled, for it was not satisfied."""
    node = bare_node(world)
    Service(node).answer = lambda request: WAITING

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(phase=GatePhase.FINALISING, deadline_ms=10**7),))
        await node.told("stage", "12 of 40 GiB")
        node.send(Stop(epoch=5, steps=(ONE,), reason=StopReason.CANCELLED))
        await node.told("exit", "cancelled")

    node.run(story)
    assert node.of(Exits)[-1].exits[0].message == "cancelled while gate 'stage' was not satisfied"


# ── going away ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_stopped_at_its_gate_never_begins_and_its_service_is_told(world: VirtualWorld) -> None:
    """The cancel comes before the controller hears of the end: the resources are held until then."""
    node = bare_node(world)
    service = Service(node)
    service.answer = lambda request: WAITING

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(),))
        await node.told("stage", "12 of 40 GiB")
        node.send(Stop(epoch=5, steps=(ONE,), reason=StopReason.CANCELLED))
        await node.told("refused", "not-held")

    node.run(story)
    assert service.story[-1] == "cancel preparing"
    assert (runs(node), node.notes.notes) == (0, {})


def test_a_service_that_does_not_answer_a_cancel_holds_nobody_up(world: VirtualWorld) -> None:
    """Two seconds, not its hour."""
    node = bare_node(world)
    service = Service(node)
    service.answer = lambda request: (10**7, b"") if request.ask is GateAsk.CANCEL else WAITING
    took_s = 0.0

    async def story(node: Node) -> None:
        nonlocal took_s
        node.start(ONE, gates=(gate(),))
        await node.told("stage", "12 of 40 GiB")
        before_s = world.loop.time()
        node.send(Stop(epoch=5, steps=(ONE,), reason=StopReason.CANCELLED))
        await node.told("refused", "not-held")
        took_s = world.loop.time() - before_s

    node.run(story)
    assert took_s < 3.0


def test_a_service_that_let_it_begin_is_told_if_another_gate_did_not(world: VirtualWorld) -> None:
    """What it did for the attempt may be undone."""
    node = bare_node(world)
    good, bad = Service(node, "good"), Service(node, "bad")
    bad.answer = lambda request: REFUSED

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(name="good"), gate(GatePolicy.FAIL, name="bad")))
        await node.told("refused", "gate-failed")

    node.run(story)
    assert good.story == ["enter preparing", "cancel preparing"]


def test_safety_the_successor_of_a_dead_agent_tells_services_what_went_away(world: VirtualWorld) -> None:
    """Cancelled while no agent was there: the note says whom to tell."""
    node = bare_node(world)
    service = Service(node)
    service.answer = lambda request: WAITING

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(),))
        await node.until(lambda: node.notes.notes, "a note")
        node.process("agent-n1").kill()
        await node.until(lambda: "cancel preparing" in service.story, "told")
        await node.until(lambda: not node.notes.notes, "the note is gone")

    node.run(story)
    assert runs(node) == 0


def test_safety_a_lease_that_lapsed_at_the_gate_keeps_the_step_from_beginning(world: VirtualWorld) -> None:
    """As with a prolog: the controller may have given the task away."""
    node = bare_node(world)
    service = Service(node)
    service.answer = lambda request: WAITING

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(),))
        await node.told("stage", "12 of 40 GiB")
        node.acknowledges = False
        await node.quiet(3_000)
        node.acknowledges = True
        service.answer = lambda request: READY
        await node.told("refused", "no-lease")

    node.run(story)
    assert runs(node) == 0


# ── credit ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_step_on_credit_whose_gate_is_satisfied_stays_on_credit(world: VirtualWorld) -> None:
    """It takes the slot of the one before it, without another word from the controller."""
    node = bare_node(world)
    Service(node)

    async def story(node: Node) -> None:
        from hal.core.model import StepId

        node.start(StepId(7, 0, 1, 0), gates=(gate(),))
        node.start(StepId(7, 1, 1, 0), gates=(gate(),), credit_ms=10_000)
        await node.until(lambda: node.story.count(("exit", "exited")) == 2, "both ends")

    node.run(story)
    first = node.of(Exits)[0].exits[0]
    assert first.next is not None
    assert first.next.task == 1


def test_a_step_on_credit_whose_gate_waits_is_given_back_when_its_credit_ends(world: VirtualWorld) -> None:
    """It gets a slot of its own later; the service is told."""
    node = bare_node(world)
    service = Service(node)
    service.answer = lambda request: WAITING

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(),), credit_ms=250)
        await node.told("refused", CREDIT_OVER)

    node.run(story)
    assert service.story[-1] == "cancel preparing"


def test_a_step_on_credit_is_given_back_from_its_gate_when_it_is_recalled(world: VirtualWorld) -> None:
    """At once."""
    node = bare_node(world)
    Service(node).answer = lambda request: WAITING

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(),), credit_ms=60_000)
        await node.told("stage", "12 of 40 GiB")
        node.send(Recall(epoch=5, steps=(ONE,)))
        await node.told("refused", RECALLED)

    node.run(story)
    assert runs(node) == 0


def test_the_prolog_counts_against_no_deadline_of_a_gate(world: VirtualWorld) -> None:
    """The gate's time begins when it is asked."""
    node = Node(world, NodeSection(prolog=("/prolog",), prolog_timeout=Duration(60_000)))
    node.takes_ms["prolog"] = 3 * ANSWER_MS
    Service(node)

    async def story(node: Node) -> None:
        node.start(ONE, gates=(gate(deadline_ms=1_000),))
        await node.told("exit", "exited")

    node.run(story)
    assert runs(node) == 1
