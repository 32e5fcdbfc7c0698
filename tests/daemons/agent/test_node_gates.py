"""Prolog and epilog of a node under virtual time: a real agent and keeper core, and the test as their controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import pytest
from msgspec.structs import replace

from hal.core.model import StepId
from hal.core.model.node_config import NodeSection
from hal.core.model.units import Duration
from hal.daemons.agent.agent import Agent, AgentSettings
from hal.daemons.agent.keeper.ports import KeeperConfig
from hal.daemons.agent.node_gates import CONFIRM_MS
from hal.daemons.agent.step_files import FilePlaces
from hal.daemons.agent.step_service import StreamPlaces
from hal.runtime.interface import Connection, Runtime, UnixAddress
from hal.runtime.line_budget import LINES
from hal.runtime.script_end import ScriptEnd
from hal.runtime.virtual_process import VirtualProcess
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.agree import CREDIT, FEATURES, GATES, agree
from hal.wire.frames.agent_keeper import (
    Checkpoint,
    ExitCause,
    Exits,
    ExitsAck,
    Heartbeat,
    HeartbeatAck,
    LogChunk,
    ReadLog,
    Recall,
    Refused,
    Start,
    Started,
    StepStart,
    StepTemplate,
    Stop,
    StopReason,
    Stream,
    TemplateGate,
    TemplateService,
)
from hal.wire.frames.controller_agent import Gates
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Hello, Welcome
from hal.wire.roles import Role
from tests.simulation.keeper_process import keeper_main
from tests.simulation.machine import Machine, Work
from tests.simulation.scripts import DiskNotes

KEEPER, AGENT = "hal.daemons.agent.keeper", "hal.daemons.agent"
ONE, TWO = StepId(7, 3, 2, 0), StepId(8, 0, 1, 0)
LEASE_MS = 1_500
LIMIT_MS = 60_000
T = TypeVar("T")


class Node:
    """A node with scripts, and its controller; scripts take so long, and end with that code, as the test says."""

    def __init__(
        self,
        world: VirtualWorld,
        section: NodeSection | None = None,
        features: tuple[str, ...] = FEATURES,
        streams: StreamPlaces | None = None,
        files: FilePlaces | None = None,
    ):
        self.world = world
        self.host = world.host("n1")
        self.machine = Machine(self.host)
        self.takes_ms = {"prolog": 100, "epilog": 50}
        self.codes = {"prolog": 0, "epilog": 0}
        self.story: list[tuple[str, str]] = []
        """What the controller was told of gates and ends, in order."""
        self.begun: list[str] = []
        """Scripts, in the order in which they began."""
        self.envs: list[Mapping[str, str]] = []
        self.frames: list[Frame] = []
        self.epoch = 5
        self.acknowledges = True
        """Heartbeats are answered."""
        self.notes = DiskNotes(self.host)
        self._features = features
        self._section = section or NodeSection(
            prolog=("/prolog",), epilog=("/epilog",), prolog_timeout=Duration(60_000), epilog_timeout=Duration(60_000)
        )
        self._agent: Connection | None = None
        self._stamp = 0
        self.host.scripts["/prolog"] = self.host.scripts["/epilog"] = self._script
        config = KeeperConfig(node="n1", home=str(self.host.home.root), capacity={"cpu": 4_000}, lease_ms=LEASE_MS)

        async def keeper(runtime: Runtime) -> None:
            await keeper_main(runtime, self.machine, config, 0.0, [AGENT])

        async def agent(runtime: Runtime) -> int:
            paths = runtime.paths
            wire, socket = UnixAddress(paths.wire_socket()), UnixAddress(paths.keeper_socket("n1"))
            settings = AgentSettings("n1", wire, socket, [KEEPER], section=self._section, gate_notes=self.notes)
            settings = settings._replace(streams=streams, files=files)
            return await Agent(runtime, settings).run()

        self.host.programs[KEEPER] = lambda argv: ("keeper-n1", keeper)
        self.host.programs[AGENT] = lambda argv: ("agent-n1", agent)

    def _script(self, env: Mapping[str, str]) -> tuple[int, ScriptEnd]:
        gate = env["HAL_SCRIPT"]
        self.envs.append(env)
        self.begun.append(gate)
        code = self.codes[gate]
        return self.takes_ms[gate], ScriptEnd(code, "working\nno scratch" if code else "")

    # ── the controller ────────────────────────────────────────────────────────────────────────────────────────────

    async def serve(self, runtime: Runtime) -> None:
        await runtime.listen(UnixAddress(runtime.paths.wire_socket()), self._serve)
        await runtime.stopping.wait()

    async def _serve(self, agent: Connection) -> None:
        hello = await agent.receive()
        assert isinstance(hello, Hello)
        self.frames.append(hello)
        _, features = agree(hello)
        both = tuple(name for name in features if name in self._features)
        agent.send_nowait(Welcome(role=Role.CONTROLLER, version=1, features=both, epoch=self.epoch, heartbeat_ms=200))
        self._agent, self._stamp = agent, 0
        while (frame := await agent.receive()) is not None:
            self._take(agent, frame)

    def _take(self, agent: Connection, frame: Frame) -> None:
        self.frames.append(frame)
        match frame:
            case Heartbeat():
                if self.acknowledges:
                    self._stamp = frame.stamp_boot_ms
                    ack = HeartbeatAck(stamp_boot_ms=frame.stamp_boot_ms, epoch=self.epoch, lease_ms=LEASE_MS)
                    agent.send_nowait(ack)
                else:
                    agent.send_nowait(Recall(epoch=self.epoch, steps=()))  # the connection stays
            case Exits():
                self.story.extend(("exit", str(one.cause)) for one in frame.exits)
                agent.send_nowait(ExitsAck(steps=tuple(one.step for one in frame.exits)))
            case Refused():
                self.story.extend(("refused", one.code) for one in frame.steps)
            case Gates():
                self.story.extend((one.gate, one.reason or str(one.state)) for one in frame.gates)
            case _:
                pass

    def send(self, frame: Frame) -> None:
        assert self._agent is not None
        self._agent.send_nowait(frame)

    def drop(self) -> None:
        """The connection ends."""
        assert self._agent is not None
        self._agent.abort()
        self._agent = None

    def start(
        self,
        *steps: StepId,
        work: Work | None = None,
        gates: tuple[TemplateGate, ...] = (),
        credit_ms: int = 0,
        service: TemplateService | None = None,
    ) -> None:
        env = {"HAL_JOB_NAME": "train", "HAL_QUEUE": "short", "HAL_CPUS": "2", "PATH": "/evil", "SECRET": "1"}
        command = tuple((work or Work(100)).command())
        template = StepTemplate(command=command, env=env, cpu_milli=2_000, user="ann", gates=gates)
        template = replace(template, service=service)
        starts = tuple(StepStart(step, 0, "token", ("n1", "n2"), 30, 100, 0, credit_ms) for step in steps)
        self.send(Start(epoch=self.epoch, stamp_boot_ms=self._stamp, templates=(template,), steps=starts))

    # ── the test ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, story: Callable[[Node], object]) -> None:
        """Start everything, then what the test says."""

        async def drive() -> None:
            controller = self.world.start(self.host, "controller", self.serve)
            self.host.start_program([KEEPER])
            await self.until(lambda: self._stamp, "a stamp")
            await controller.ask(lambda: story(self))  # type: ignore[arg-type]

        self.world.run(drive())

    async def until(self, found: Callable[[], T], what: str) -> T:
        await self.world.until(lambda: bool(found()), limit_ms=LIMIT_MS, what=what)
        return found()

    async def told(self, *what: str) -> None:
        """Until the newest of the story is that."""
        await self.until(lambda: self.story[-1:] == [what], f"{what} after {self.story}")

    async def began(self, gate: str) -> None:
        """Until that script has begun last."""
        await self.until(lambda: self.begun[-1:] == [gate], f"{gate} after {self.begun}")

    async def quiet(self, ms: int) -> None:
        """So long, of virtual time."""
        await asyncio.sleep(ms / 1000)

    def process(self, name: str) -> VirtualProcess:
        return next(one for one in self.host.processes.values() if one.name == name)

    def of(self, kind: type[T]) -> list[T]:
        return [frame for frame in self.frames if isinstance(frame, kind)]


@pytest.fixture
def world() -> Iterator[VirtualWorld]:
    with VirtualWorld(seed=3) as made:
        yield made


ENTERS, LEAVES = ("prolog", "waiting"), ("epilog", "waiting")


def test_a_step_begins_after_its_prolog_and_is_over_after_its_epilog(world: VirtualWorld) -> None:
    """The controller hears of each; the exit says when the process ended, not the epilog."""
    node = Node(world)

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.told("exit", "exited")

    node.run(story)
    assert node.story == [ENTERS, LEAVES, ("exit", "exited")]
    assert node.of(Started)[0].steps[0].step == ONE
    (exit_,) = node.of(Exits)[0].exits
    assert exit_.ended_ms - exit_.started_ms < 150
    assert node.notes.notes == {}
    hello = node.of(Hello)[0]
    assert (GATES in hello.features, CREDIT in hello.features) == (True, False)


def test_scripts_see_the_steps_variables_and_nothing_of_the_job(world: VirtualWorld) -> None:
    """By the names that the step knows them by; no token, by which its processes are found."""
    node = Node(world)

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.told("exit", "exited")

    node.run(story)
    prolog, epilog = node.envs
    assert prolog == {
        "HAL_SCRIPT": "prolog", "HAL_NODE": "n1", "HAL_HOME": str(node.host.home.root), "HAL_JOB_ID": "7",
        "HAL_JOB_NAME": "train", "HAL_QUEUE": "short", "HAL_CPUS": "2", "HAL_TASK": "3", "HAL_ATTEMPT": "2",
        "HAL_RESTART": "1", "HAL_NODE_RANK": "0", "HAL_ARRAY_INDEX": "30", "HAL_ARRAY_COUNT": "100",
        "HAL_NODES": "n1,n2", "HAL_NODE_COUNT": "2",
    }  # fmt: skip
    assert epilog == {**prolog, "HAL_SCRIPT": "epilog"}


def test_a_failed_prolog_is_told_with_its_last_line_and_nothing_begins(world: VirtualWorld) -> None:
    """Told at once, so that nothing more starts there; then the epilog; then the refusal. A repeated start changes it
    no more."""
    node = Node(world)
    node.codes["prolog"] = 3
    why = "/prolog: no scratch (exit code 3)"

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.told("refused", "prolog-failed")
        node.codes["prolog"] = 0
        node.start(ONE)
        await node.told("refused", "not-held")

    node.run(story)
    assert node.story[:4] == [ENTERS, ("prolog", why), LEAVES, ("refused", "prolog-failed")]
    assert node.of(Refused)[0].steps[0].message == why
    assert node.machine.runs == []


def test_steps_whose_prologs_fail_drown_no_other_line_of_the_agents_log(world: VirtualWorld) -> None:
    """(L8) Who submits them causes a line for each; what the agent says of its controller stays to be read."""
    node = Node(world)
    node.codes["prolog"] = 3
    lines: list[str] = []
    note = world.note

    def noted(process: str, level: str, text: str) -> None:
        lines.append(text)
        note(process, level, text)

    world.note = noted  # type: ignore[method-assign]

    async def story(node: Node) -> None:
        for number in range(3 * LINES):
            node.start(StepId(100 + number, 0, 1, 0))
        await node.until(lambda: node.story.count(("refused", "prolog-failed")) == 3 * LINES, "all refused")
        node.drop()
        await node.until(lambda: any("the controller is gone" in line for line in lines), "a line")

    node.run(story)
    assert sum("a script of the site failed" in line for line in lines) <= 2 * LINES


@pytest.mark.parametrize(("section", "why"), [
    (NodeSection(prolog=("/prolog",), prolog_timeout=Duration(2_000)), "/prolog took longer than 2s"),
    (NodeSection(prolog=("/gone",)), "/gone cannot be started: there is no such program on n1"),
])  # fmt: skip
def test_a_prolog_that_takes_too_long_or_is_not_there_has_failed(
    world: VirtualWorld, section: NodeSection, why: str
) -> None:
    """Without an epilog the refusal follows at once."""
    node = Node(world, section)
    node.takes_ms["prolog"] = 10**7

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.told("refused", "prolog-failed")

    node.run(story)
    assert ("prolog", why) in node.story


def test_a_failed_epilog_is_told_and_the_exit_is_what_it_was(world: VirtualWorld) -> None:
    """First why the node is to be closed, then the exit."""
    node = Node(world)
    node.codes["epilog"] = 1

    async def story(node: Node) -> None:
        node.start(ONE, work=Work(100, (4,)))
        await node.told("exit", "exited")

    node.run(story)
    assert node.story[-2:] == [("epilog", "/epilog: no scratch (exit code 1)"), ("exit", "exited")]
    assert node.of(Exits)[0].exits[0].code == 4


@pytest.mark.parametrize("frame", [
    Stop(epoch=5, steps=(ONE,), reason=StopReason.CANCELLED), Checkpoint(epoch=5, steps=(ONE,)),
])  # fmt: skip
def test_what_is_stopped_in_its_prolog_never_begins_and_has_its_epilog(world: VirtualWorld, frame: Frame) -> None:
    """The script is killed: its hour is not waited for."""
    node = Node(world)
    node.takes_ms["prolog"] = 50_000
    took_s = 0.0

    async def story(node: Node) -> None:
        nonlocal took_s
        node.start(ONE)
        await node.began("prolog")
        before_s = world.loop.time()
        node.send(frame)
        await node.told("refused", "not-held")
        took_s = world.loop.time() - before_s

    node.run(story)
    assert node.story == [ENTERS, LEAVES, ("refused", "not-held")]
    assert "while it was at a gate of the node" in node.of(Refused)[0].steps[0].message
    assert (node.machine.runs, node.notes.notes) == ([], {})
    assert took_s < 1.0


def test_a_prolog_longer_than_the_lease_is_no_reason_to_refuse(world: VirtualWorld) -> None:
    """Five leases long; the node was heard all the time."""
    node = Node(world)
    node.takes_ms["prolog"] = 5 * LEASE_MS

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.told("exit", "exited")

    node.run(story)
    assert len(node.machine.runs) == 1


def test_safety_a_lease_that_lapsed_during_the_prolog_keeps_the_step_from_beginning(world: VirtualWorld) -> None:
    """The controller does not answer for longer than the lease, and then again, before the prolog has ended."""
    node = Node(world)
    node.takes_ms["prolog"] = 4 * LEASE_MS

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.began("prolog")
        node.acknowledges = False
        await node.quiet(2 * LEASE_MS)
        node.acknowledges = True
        await node.told("refused", "no-lease")

    node.run(story)
    assert node.machine.runs == []


def test_safety_a_lease_that_lapsed_during_an_epilog_keeps_what_is_asked_for_again_from_beginning(
    world: VirtualWorld,
) -> None:
    """The prolog fails while nobody is heard; the next controller asks again while the epilog of that runs."""
    node = Node(world)
    node.takes_ms |= {"prolog": 1_000, "epilog": 6 * LEASE_MS}
    node.codes["prolog"] = 3

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.began("prolog")
        node.drop()
        await node.began("epilog")
        await node.until(lambda: node._agent is not None and node._stamp, "a new connection")
        node.start(ONE)
        await node.quiet(LEASE_MS)
        node.acknowledges = False
        await node.quiet(2 * LEASE_MS)
        node.acknowledges = True
        await node.told("refused", "no-lease")

    node.run(story)
    assert node.machine.runs == []
    assert node.begun == ["prolog", "epilog"]


def test_safety_a_start_is_judged_by_its_own_stamp(world: VirtualWorld) -> None:
    """It comes when its stamp is older than the lease: refused, though the lease has been renewed since."""
    node = Node(world)

    async def story(node: Node) -> None:
        old = node._stamp
        await node.quiet(2 * LEASE_MS)
        node._stamp = old
        node.start(ONE)
        await node.told("refused", "no-lease")

    node.run(story)
    assert node.begun == []


def test_safety_a_start_of_a_leader_that_was_replaced_is_refused(world: VirtualWorld) -> None:
    """It comes again over the connection of the next, its stamp is fresh; only what that one asks for begins."""
    node = Node(world)

    async def story(node: Node) -> None:
        old = node._stamp
        node.epoch = 6
        node.drop()
        await node.until(lambda: node._stamp not in (0, old), "a new connection")
        node.epoch = 5
        node.start(ONE)
        node.epoch = 6
        node.start(TWO)
        await node.told("exit", "exited")

    node.run(story)
    assert [run.step for run in node.machine.runs] == [TWO]
    assert [one.step for frame in node.of(Refused) for one in frame.steps] == [ONE]


def test_a_prolog_outlives_the_connection_and_the_next_controller_confirms_the_start(world: VirtualWorld) -> None:
    """The step begins when it is asked for again, by a higher epoch, without a second prolog."""
    node = Node(world)
    node.takes_ms["prolog"] = 1_000

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.began("prolog")
        node.epoch = 6
        node.drop()
        await node.until(lambda: node._agent is not None and node._stamp, "a new connection")
        await node.quiet(5_000)
        assert node.machine.running() == []
        node.start(ONE)
        await node.told("exit", "exited")

    node.run(story)
    assert node.begun == ["prolog", "epilog"]


def test_safety_what_no_controller_asks_for_again_does_not_begin(world: VirtualWorld) -> None:
    """Its epilog runs, and what is noted of it goes."""
    node = Node(world)

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.began("prolog")
        node.drop()
        await node.until(lambda: node._agent, "a new connection")
        await node.quiet(CONFIRM_MS + 1_000)

    node.run(story)
    assert node.begun == ["prolog", "epilog"]
    assert (node.machine.runs, node.notes.notes) == ([], {})


def test_an_agent_killed_in_the_prolog_leaves_it_to_the_next(world: VirtualWorld) -> None:
    """The next one runs the epilog, since nobody knows how far the prolog came; asked again, it runs both anew."""
    node = Node(world)
    node.takes_ms["prolog"] = 2_000

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.began("prolog")
        node._agent, node._stamp = None, 0
        node.process("agent-n1").kill()
        await node.until(lambda: node._stamp, "the next agent")
        node.start(ONE)
        await node.told("exit", "exited")

    node.run(story)
    assert node.begun == ["prolog", "epilog", "prolog", "epilog"]
    assert len(node.machine.runs) == 1


def test_an_agent_killed_in_the_epilog_lets_the_next_run_it_again(world: VirtualWorld) -> None:
    """With what the prolog saw; the exit is told once it has ended."""
    node = Node(world)
    node.takes_ms["epilog"] = 2_000

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.began("epilog")
        node.process("agent-n1").kill()
        await node.told("exit", "exited")

    node.run(story)
    assert node.begun == ["prolog", "epilog", "epilog"]
    assert node.envs[-1] == node.envs[1]


def test_an_epilog_goes_on_without_a_controller_and_is_not_run_again(world: VirtualWorld) -> None:
    """The exit is told to the next connection, with why the epilog failed."""
    node = Node(world)
    node.takes_ms["epilog"], node.codes["epilog"] = 5_000, 1

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.began("epilog")
        agent = node._agent
        node.drop()
        await node.until(lambda: node._agent not in (None, agent), "a new connection")
        await node.told("exit", "exited")

    node.run(story)
    assert node.begun == ["prolog", "epilog"]
    assert node.story[-2:] == [("epilog", "/epilog: no scratch (exit code 1)"), ("exit", "exited")]


def test_while_its_prolog_runs_a_step_has_written_nothing_and_has_not_ended(world: VirtualWorld) -> None:
    """Whoever follows its output goes on following."""
    node = Node(world)
    node.takes_ms["prolog"] = 1_000

    async def story(node: Node) -> None:
        node.start(ONE)
        await node.began("prolog")
        node.send(ReadLog(request=4, step=ONE, stream=Stream.STDOUT, offset=0))
        await node.until(lambda: node.of(LogChunk), "an answer")

    node.run(story)
    (chunk,) = node.of(LogChunk)
    assert (chunk.request, chunk.data, chunk.ended, chunk.error) == (4, b"", False, "")


def test_a_controller_that_knows_no_gates_hears_only_what_it_knows(world: VirtualWorld) -> None:
    """Scripts run all the same."""
    node = Node(world, features=())

    async def story(node: Node) -> None:
        node.start(ONE, TWO)
        await node.until(lambda: node.story.count(("exit", "exited")) == 2, "both ends")

    node.run(story)
    assert node.of(Gates) == []
    assert {one.cause for frame in node.of(Exits) for one in frame.exits} == {ExitCause.EXITED}
    assert sorted(node.begun) == ["epilog", "epilog", "prolog", "prolog"]
