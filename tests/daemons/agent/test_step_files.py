"""Directories of steps under virtual time: a real agent and keeper core; the test is file service and controller.

What the service itself does, and what programs find in their directories, is in tests/e2e/test_files.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from hal.core.model import StepId
from hal.core.model.bundle import FILES_GATE, FilesOrder
from hal.core.model.codec import to_json
from hal.core.model.gate import GatePhase, GatePolicy
from hal.core.model.gate_protocol import GateAsk, GateVerdictWord
from hal.core.model.node_config import NodeSection
from hal.daemons.agent.file_orders import FilesAsk, FilesRequest, decode_request
from hal.daemons.agent.keeper.file_service.places import gone_name, private_directory, ready_name
from hal.daemons.agent.step_files import TELL_MS, FilePlaces, StepFiles
from hal.runtime.interface import Runtime
from hal.runtime.started_service import StartedService
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.frames.agent_keeper import (
    ExitCause,
    Exits,
    Refusal,
    Refused,
    Started,
    StepExit,
    Stop,
    StopReason,
    TemplateGate,
    Usage,
)
from hal.wire.frames.hello import Hello
from tests.daemons.agent.test_node_gates import ONE, TWO, Node, world
from tests.simulation.machine import Work

__all__ = ["world"]

LONG: Final = Work(3_600_000)
BUNDLE: Final = "sha256:" + 64 * "a"
READY: Final = b'{"state":"ready"}\n'
WAITING: Final = b'{"state":"waiting","again_ms":200}\n'
SERVICE: Final = StartedService(name="files", socket=Path("files.sock"), argv=["files"], output=None)


def gates(collect: tuple[str, ...] = ()) -> tuple[TemplateGate, ...]:
    """As the controller names them."""
    argument = to_json(FilesOrder(ship=BUNDLE, collect=collect)).decode()
    return tuple(TemplateGate(FILES_GATE, phase, 60_000, GatePolicy.WAIT, argument) for phase in GatePhase)


class Shipping(Node):
    """A node whose file service does what the test says; directories are real."""

    def __init__(self, world: VirtualWorld, where: Path) -> None:
        self.base = where / "work"
        self.base.mkdir()
        self.private = private_directory(self.base)
        self.private.mkdir()
        self.ready = self.private / ready_name("ann", BUNDLE)
        places = FilePlaces(service=SERVICE, kept=where, directories=lambda: self.base)
        super().__init__(world, NodeSection(), files=places)
        self.asked: list[FilesRequest] = []
        self.answer: Callable[[FilesRequest], bytes] = self.stage
        self.host.services["files.sock"] = self._serve_files

    def _serve_files(self, line: bytes) -> tuple[int, bytes]:
        request = decode_request(line)
        self.asked.append(request)
        return 5, self.answer(request)

    def stage(self, request: FilesRequest) -> bytes:
        """As the service: a directory for the step, and a copy for the next one."""
        if request.ask is FilesAsk.STAGE:
            self.make(self.directory(request.step))
        if request.ask in (FilesAsk.STAGE, FilesAsk.TAKEN) and not self.ready.exists():
            self.make(self.ready)
        return READY

    def make(self, path: Path) -> None:
        path.mkdir()
        (path / "from").write_text(path.name)

    def directory(self, step: StepId | None) -> Path:
        return self.base / str(step)

    @property
    def running(self) -> list[StepId]:
        """Steps that have begun."""
        return [one.step for frame in self.of(Started) for one in frame.steps]

    @property
    def questions(self) -> list[str]:
        return [f"{one.ask} {one.step or ' '.join(one.names)}" for one in self.asked]


def test_a_copy_that_is_ready_is_taken_and_the_service_hears_of_it_later(world: VirtualWorld, tmp_path: Path) -> None:
    """The first step waits for the service, the second for nobody; then a third one finds a copy again."""
    node = Shipping(world, tmp_path)

    async def story(node: Node) -> None:
        assert isinstance(node, Shipping)
        node.start(ONE, work=LONG, gates=gates())
        await node.until(lambda: node.running == [ONE], "the first begins")
        node.start(TWO, work=LONG, gates=gates())
        await node.until(lambda: node.running == [ONE, TWO], "the second begins")
        assert node.questions == [f"stage {ONE}"]
        assert (node.directory(TWO) / "from").read_text() == node.ready.name
        await node.quiet(2 * TELL_MS)
        assert node.questions == [f"stage {ONE}", f"taken {TWO}"]
        assert node.ready.exists()

    node.run(story)


def test_safety_what_no_service_of_this_agent_has_made_is_not_taken(world: VirtualWorld, tmp_path: Path) -> None:
    """It may be of an earlier boot, and half on the disk."""
    node = Shipping(world, tmp_path)
    node.make(node.ready)

    async def story(node: Node) -> None:
        assert isinstance(node, Shipping)
        node.start(ONE, work=LONG, gates=gates())
        await node.until(lambda: node.running, "it begins")
        assert node.questions == [f"stage {ONE}"]
        assert (node.directory(ONE) / "from").read_text() == str(ONE)

    node.run(story)


def test_safety_a_step_for_which_the_service_works_is_given_no_other_copy(world: VirtualWorld, tmp_path: Path) -> None:
    """It begins in the one that the service makes, also if one is ready meanwhile."""
    node = Shipping(world, tmp_path)

    def slow(request: FilesRequest) -> bytes:
        if request.step == TWO and node.questions.count(f"stage {TWO}") < 3:
            return WAITING
        return node.stage(request)

    async def story(node: Node) -> None:
        assert isinstance(node, Shipping)
        node.start(ONE, work=LONG, gates=gates())
        await node.until(lambda: node.ready.exists(), "a copy is ready")
        node.ready.rename(tmp_path / "elsewhere")
        node.answer = slow
        node.start(TWO, work=LONG, gates=gates())
        await node.until(lambda: f"stage {TWO}" in node.questions, "the service is asked")
        (tmp_path / "elsewhere").rename(node.ready)
        await node.until(lambda: node.running == [ONE, TWO], "it begins")
        assert node.questions.count(f"stage {TWO}") == 3
        assert (node.directory(TWO) / "from").read_text() == str(TWO)

    node.run(story)


def test_the_directory_of_a_step_is_gone_when_its_end_is_reported(world: VirtualWorld, tmp_path: Path) -> None:
    """Nobody is asked before that; the service removes it afterwards."""
    node = Shipping(world, tmp_path)

    async def story(node: Node) -> None:
        assert isinstance(node, Shipping)
        node.start(ONE, gates=gates())
        await node.until(lambda: node.of(Exits), "its end")
        assert not node.directory(ONE).exists()
        assert (node.private / gone_name(ONE)).exists()
        assert node.questions == [f"stage {ONE}"]
        await node.quiet(2 * TELL_MS)
        assert node.questions == [f"stage {ONE}", f"drop {ONE}"]

    node.run(story)


def test_a_step_of_which_something_is_collected_keeps_its_directory_for_that(
    world: VirtualWorld, tmp_path: Path
) -> None:
    node = Shipping(world, tmp_path)

    async def story(node: Node) -> None:
        assert isinstance(node, Shipping)
        node.start(ONE, gates=gates(collect=("*.csv",)))
        await node.until(lambda: node.of(Exits), "its end")
        await node.quiet(2 * TELL_MS)
        assert node.questions == [f"stage {ONE}", f"collect {ONE}"]
        assert node.directory(ONE).exists()  # the service removes it when it was delivered

    node.run(story)


def test_a_step_that_is_stopped_at_the_gate_leaves_nothing(world: VirtualWorld, tmp_path: Path) -> None:
    node = Shipping(world, tmp_path)
    node.answer = lambda request: WAITING

    async def story(node: Node) -> None:
        assert isinstance(node, Shipping)
        node.start(ONE, gates=gates())
        await node.until(lambda: node.asked, "the service is asked")
        node.answer = lambda request: READY
        node.send(Stop(epoch=5, steps=(ONE,), reason=StopReason.CANCELLED, grace_ms=0))
        await node.until(lambda: node.of(Refused), "its refusal")
        assert f"drop {ONE}" in node.questions

    node.run(story)


def test_safety_the_successor_of_a_dead_agent_removes_what_its_steps_had(world: VirtualWorld, tmp_path: Path) -> None:
    """A step that goes on keeps its directory until it ends; what was over is removed."""
    node = Shipping(world, tmp_path)
    over = StepId(6, 0, 1, 0)

    async def story(node: Node) -> None:
        assert isinstance(node, Shipping)
        node.start(ONE, work=LONG, gates=gates())
        await node.until(lambda: node.running, "it begins")
        node.make(node.private / gone_name(over))
        node.process("agent-n1").kill()
        before = len(node.asked)
        await node.until(lambda: len(node.asked) > before, "the successor asks")
        assert node.questions[before:] == [f"drop {over}"]
        await node.until(lambda: len(node.of(Hello)) == 2, "it joins")
        await node.quiet(500)
        assert node.directory(ONE).exists()
        node.send(Stop(epoch=5, steps=(ONE,), reason=StopReason.CANCELLED, grace_ms=0))
        await node.until(lambda: node.of(Exits), "its end")
        assert not node.directory(ONE).exists()

    node.run(story)


def exits(step: StepId) -> Exits:
    return Exits(exits=(StepExit(step, ExitCause.EXITED, 0, 0, 1, 2, Usage(), ""),))


@pytest.mark.parametrize("ended", ["exit", "refusal", "sweep", "sweep of a node that keeps nothing yet"])
def test_a_step_that_is_over_is_not_remembered_as_waiting_for_the_service(
    world: VirtualWorld, tmp_path: Path, ended: str
) -> None:
    """While one is remembered so it is not given the copy that is ready, as for the third question."""
    base = tmp_path / "work"
    base.mkdir()
    private_directory(base).mkdir()
    ready = private_directory(base) / ready_name("ann", BUNDLE)
    kept = tmp_path / "missing" if ended.endswith("yet") else tmp_path
    host = world.host("n1")
    answers = {"files.sock": READY}
    host.services["files.sock"] = lambda line: (5, answers["files.sock"])
    order = to_json(FilesOrder(ship=BUNDLE, collect=("*.csv",))).decode()

    async def agent(runtime: Runtime) -> None:
        files = StepFiles(runtime, FilePlaces(service=SERVICE, kept=kept, directories=lambda: base))

        async def entered(step: StepId) -> GateVerdictWord:
            asked = files.ask(
                step, "ann", order, GatePhase.PREPARING, GateAsk.ENTER, succeeded=False, timeout_ms=10_000
            )
            return (await asked).state

        assert await entered(ONE) is GateVerdictWord.READY  # the service is known to make copies ready
        answers["files.sock"] = WAITING
        assert await entered(TWO) is GateVerdictWord.WAITING
        ready.mkdir()
        assert await entered(TWO) is GateVerdictWord.WAITING
        match ended:
            case "exit":
                files.record_ends(exits(TWO))
            case "refusal":
                files.record_ends(Refused(steps=(Refusal(TWO, "x", "y"),)))
            case _:
                files.sweep((ONE,), ())
        assert await entered(TWO) is GateVerdictWord.READY
        assert (base / str(TWO)).exists()

    async def drive() -> int:
        return await world.start(host, "agent", agent).wait(60_000)

    assert world.run(drive()) == 0
