"""Probes of services under virtual time: a real agent and keeper core; the test is stream service and controller."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hal.core.model import StepId
from hal.core.model.node_config import NodeSection
from hal.core.model.service import ProbeKind
from hal.daemons.agent.step_probes import MAX_PROBES, REPEATED_MS
from hal.daemons.agent.step_service import StreamPlaces
from hal.runtime.started_service import StartedService
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.agree import FEATURES, SERVICES
from hal.wire.frames.agent_keeper import Exits, Started, Stop, StopReason, TemplateProbe, TemplateService
from hal.wire.frames.controller_agent import Readiness, StepReadiness
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Hello
from tests.daemons.agent.test_node_gates import ONE, TWO, Node, world
from tests.simulation.machine import Work

__all__ = ["world"]

LONG: Final = Work(3_600_000)
PROBE: Final = TemplateProbe(ProbeKind.HTTP, 2_000, 500, 1, 3, "/ok", 0)
WEB: Final = TemplateService((("http", 0), ("admin", 9_000)), PROBE)
SERVICE: Final = StartedService(name="streams", socket=Path("streams.sock"), argv=["streams"], output=None)
PLACES: Final = StreamPlaces(service=SERVICE, directory=lambda: "/virtual", shared=False)
Answer = Callable[[dict[str, Any]], tuple[int, bytes]]
READY: Final = (5, b'{"ready":true,"reason":""}\n')


def not_ready(reason: str = "status 503") -> tuple[int, bytes]:
    return 5, json.dumps({"ready": False, "reason": reason}).encode() + b"\n"


class Served(Node):
    """A node whose stream service answers probes as the test says."""

    def __init__(self, world: VirtualWorld, features: tuple[str, ...] = FEATURES) -> None:
        super().__init__(world, NodeSection(), features, PLACES)
        self.orders: list[dict[str, Any]] = []
        self.answer: Answer = lambda order: READY
        self.going = self.most = 0
        """Probes under way; the most at once."""
        self.host.services["streams.sock"] = self._probe

    def _probe(self, line: bytes) -> tuple[int, bytes]:
        order = json.loads(line)
        self.orders.append(order)
        takes_ms, answer = self.answer(order)
        self.going += 1
        self.most = max(self.most, self.going)
        self.world.loop.call_later(takes_ms / 1000, self._over)
        return takes_ms, answer

    def _over(self) -> None:
        self.going -= 1

    @property
    def standings(self) -> list[StepReadiness]:
        """What the controller was told, oldest first."""
        return [one for frame in self.of(Readiness) for one in frame.steps]

    async def told_ready(self, ready: bool, step: StepId = ONE) -> StepReadiness:
        """Until the newest that was told of the step is that."""

        def newest() -> StepReadiness | None:
            of_step = [one for one in self.standings if one.step == step]
            return of_step[-1] if of_step and of_step[-1].ready is ready else None

        found = await self.until(newest, f"{step} ready: {ready} after {self.standings}")
        assert found is not None
        return found


def kinds(node: Served) -> list[type[Frame]]:
    return [type(frame) for frame in node.frames if isinstance(frame, Started | Readiness)]


def test_a_step_is_ready_when_its_probe_says_so(world: VirtualWorld) -> None:
    """With the ports that the keeper chose; reported after the step has begun."""
    node = Served(world)

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(ONE, work=LONG, service=WEB)
        found = await node.told_ready(True)
        assert len(found.ports) == 2
        assert found.ports[1] == 9_000
        assert kinds(node) == [Started, Readiness]
        order = node.orders[0]
        assert (order["kind"], order["probe"], order["path"], order["port"]) == ("probe", "http", "/ok", found.ports[0])

    node.run(story)


def test_a_service_without_a_probe_is_ready_when_it_runs(world: VirtualWorld) -> None:
    node = Served(world)

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(ONE, work=LONG, service=TemplateService((("http", 0),)))
        await node.told_ready(True)
        assert not node.orders

    node.run(story)


def test_only_the_first_of_a_gang_is_probed_and_has_ports(world: VirtualWorld) -> None:
    node = Served(world)
    second = StepId(9, 0, 1, 1)

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(second, ONE, work=LONG, service=WEB)
        await node.told_ready(True)
        assert {one.step for one in node.standings} == {ONE}

    node.run(story)


def test_what_is_no_service_is_not_asked_about(world: VirtualWorld) -> None:
    node = Served(world)

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(ONE, work=Work(5_000))
        await node.until(lambda: node.of(Exits), "its end")
        assert not node.orders
        assert not node.of(Readiness)

    node.run(story)


def test_a_step_that_fails_three_probes_is_not_ready_and_one_that_answers_again_is(world: VirtualWorld) -> None:
    """Each change is told once."""
    node = Served(world)

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(ONE, work=LONG, service=WEB)
        await node.told_ready(True)
        node.answer = lambda order: not_ready()
        assert (await node.told_ready(False)).reason == "status 503"
        node.answer = lambda order: READY
        await node.told_ready(True)
        await node.quiet(10_000)
        assert [one.ready for one in node.standings] == [True, False, True]

    node.run(story)


def test_a_probe_that_is_never_answered_does_not_hold_up_others(world: VirtualWorld) -> None:
    """It is given up after its timeout and a little more."""
    node = Served(world)

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.answer = lambda order: (10**9, b"") if order["step"] == str(TWO) else READY
        node.start(TWO, work=LONG, service=WEB)
        node.start(ONE, work=LONG, service=WEB)
        await node.told_ready(True)
        assert "could not be asked" in (await node.told_ready(False, TWO)).reason

    node.run(story)


def test_a_node_that_cannot_probe_for_a_while_leaves_ready_steps_ready(world: VirtualWorld) -> None:
    node = Served(world)

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(ONE, work=LONG, service=WEB)
        await node.told_ready(True)
        node.answer = lambda order: (1, b'{"code":"too-many","error":"64 probes"}\n')
        await node.quiet(30_000)
        assert {one.ready for one in node.standings} == {True}

    node.run(story)


def test_what_has_not_changed_is_reported_again_and_is_ready_since_the_same_instant(world: VirtualWorld) -> None:
    """An earlier report that the controller gets twice would otherwise be the last that it hears."""
    node = Served(world)

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(ONE, work=LONG, service=WEB)
        await node.told_ready(True)
        await node.quiet(3 * REPEATED_MS)
        assert len(node.standings) in (3, 4)
        assert len(set(node.standings)) == 1

    node.run(story)


def test_hundreds_of_services_are_asked_a_few_at_a_time(world: VirtualWorld) -> None:
    """And all of them within their interval."""
    node = Served(world)
    steps = [StepId(50, task, 1, 0) for task in range(200)]

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(*steps, work=LONG, service=WEB)
        await node.until(lambda: len({one.step for one in node.standings}) == len(steps), "all are ready")
        assert node.most <= MAX_PROBES

    node.run(story)


def test_a_step_that_has_ended_is_not_asked_any_more(world: VirtualWorld) -> None:
    node = Served(world)

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(ONE, work=LONG, service=WEB)
        await node.told_ready(True)
        node.send(Stop(epoch=node.epoch, steps=(ONE,), reason=StopReason.CANCELLED))
        await node.until(lambda: node.of(Exits), "its end")
        asked = len(node.orders)
        await node.quiet(20_000)
        assert len(node.orders) <= asked + 1

    node.run(story)


def test_a_new_controller_is_told_everything_that_is_known(world: VirtualWorld) -> None:
    """With the same instant."""
    node = Served(world)

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(ONE, work=LONG, service=WEB)
        before = await node.told_ready(True)
        node.frames.clear()
        node.drop()
        assert await node.told_ready(True) == before

    node.run(story)


def test_a_new_agent_asks_what_the_keeper_holds(world: VirtualWorld) -> None:
    """The keeper names its services and their ports; nothing else remembers them."""
    node = Served(world)

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(ONE, work=LONG, service=WEB)
        before = await node.told_ready(True)
        node.frames.clear()
        node.process("agent-n1").kill()
        assert (await node.told_ready(True)).ports == before.ports

    node.run(story)


def test_a_new_keeper_knows_the_ports_that_the_former_one_chose(world: VirtualWorld) -> None:
    """They are in its journal; a step that begins later gets others."""
    node = Served(world)

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(ONE, work=LONG, service=WEB)
        before = await node.told_ready(True)
        node.process("keeper-n1").kill()
        node.process("agent-n1").kill()
        node.frames.clear()
        node.host.start_program(["hal.daemons.agent.keeper"])
        assert (await node.told_ready(True)).ports == before.ports
        node.start(TWO, work=LONG, service=WEB)
        assert (await node.told_ready(True, TWO)).ports[0] != before.ports[0]

    node.run(story)


def test_a_controller_that_knows_no_services_is_told_nothing_of_them(world: VirtualWorld) -> None:
    node = Served(world, tuple(name for name in FEATURES if name != SERVICES))

    async def story(node: Node) -> None:
        assert isinstance(node, Served)
        node.start(ONE, work=Work(5_000), service=WEB)
        await node.until(lambda: node.of(Exits), "its end")
        assert not node.of(Readiness)

    node.run(story)


def test_a_node_that_cannot_reach_into_steps_offers_no_services(world: VirtualWorld) -> None:
    """It says so in its hello, and is sent none."""
    node = Node(world, NodeSection())

    async def story(node: Node) -> None:
        assert SERVICES not in node.of(Hello)[-1].features

    node.run(story)
