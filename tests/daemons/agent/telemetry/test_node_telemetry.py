"""An agent's telemetry under virtual time: nothing without a collector; samples while one is there, whatever fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hal.core.model import StepId
from hal.core.model.node_config import TelemetrySection
from hal.core.model.units import Duration
from hal.daemons.agent.telemetry.node_telemetry import NodeTelemetry
from hal.daemons.agent.telemetry.sampler import Readers
from hal.runtime.gpu_readings import GpuReading
from hal.runtime.interface import Runtime
from hal.runtime.node_readings import Values
from hal.runtime.telemetry_sender import SeriesKey
from hal.runtime.virtual_world import VirtualWorld
from hal.wire.frames.agent_keeper import ExitCause, Exits, Started, StepExit, StepStarted, Usage
from hal.wire.frames.controller_agent import AnnouncedPlane, Planes
from hal.wire.frames.telemetry import SeriesKind
from tests.planes.observability.test_telemetry import SOCKET, Taken

LOAD = SeriesKey("hal_node_load", SeriesKind.GAUGE)
STEP = StepId(1, 0, 1, 0)


class CountingReaders(Readers):
    """Of a machine without GPUs that always has the same load."""

    def __init__(self) -> None:
        super().__init__(Path("/"), Path("/nowhere"))
        self.read = 0
        self.fails = False

    def node(self) -> Values:
        self.read += 1
        if self.fails:
            raise ValueError("the kernel says it otherwise")
        return {LOAD: 0.5}

    def read_gpus(self) -> list[GpuReading]:
        return []

    def gpus(self, readings: Sequence[GpuReading], elapsed_s: float) -> Values:
        return {}


class Agent:
    """As much of one as telemetry sees."""

    def __init__(self, readers: Readers, every_ms: int = 10_000) -> None:
        self.readers, self.every_ms = readers, every_ms
        self.telemetry: NodeTelemetry | None = None
        self.wire = ""

    async def run(self, runtime: Runtime) -> None:
        self.wire = f"unix:{runtime.paths.socket_dir() / SOCKET}"
        section = TelemetrySection(every=Duration(self.every_ms))
        self.telemetry = NodeTelemetry(runtime, "n1", section, self.readers)
        await self.telemetry.run()

    def hears(self, *, there: bool, settled: bool = True) -> None:
        """The controller says whether a collector is there."""
        assert self.telemetry is not None
        planes = (AnnouncedPlane("observability", (self.wire,)),) if there else ()
        self.telemetry.hear_planes(Planes(planes=planes, settled=settled))


def test_nothing_is_read_until_a_collector_is_there_nor_after_it_has_gone() -> None:
    """A sample every 10 s, from a random instant of the first 10 s on; a controller that began lately is not believed
    to have forgotten it."""
    taken, readers = Taken(), CountingReaders()
    agent = Agent(readers)
    with VirtualWorld(1) as world:
        host = world.host("n1")
        world.start(host, "observability", taken.collect)
        world.start(host, "agent", agent.run)
        world.run_for(60_000)
        assert readers.read == 0
        agent.hears(there=True)
        world.run_for(60_000)
        assert 5 <= readers.read <= 7
        assert len(taken.values) == readers.read
        agent.hears(there=False, settled=False)
        world.run_for(60_000)
        assert 11 <= readers.read <= 13
        agent.hears(there=False)
        before = readers.read
        world.run_for(60_000)
        assert readers.read <= before + 1


def test_a_machine_that_cannot_be_read_is_tried_again() -> None:
    taken, readers = Taken(), CountingReaders()
    agent = Agent(readers)
    readers.fails = True
    with VirtualWorld(1) as world:
        host = world.host("n1")
        world.start(host, "observability", taken.collect)
        world.start(host, "agent", agent.run)
        world.run_for(100)
        agent.hears(there=True)
        world.run_for(60_000)
        assert taken.values == []
        readers.fails = False
        world.run_for(60_000)
        assert len(taken.values) >= 5


def test_only_running_steps_are_measured() -> None:
    taken = Taken()
    agent = Agent(CountingReaders())
    with VirtualWorld(1) as world:
        world.start(world.host("n1"), "agent", agent.run)
        world.run_for(100)
        telemetry = agent.telemetry
        assert telemetry is not None
        telemetry.hear(Started(steps=(StepStarted(STEP, 77, 1),)))
        assert telemetry.running == {STEP: 77}
        ended = StepExit(STEP, ExitCause.EXITED, 0, 0, 1, 2, Usage(1, 1, 1, 0, 0), "")
        telemetry.hear(Exits(exits=(ended,)))
        assert telemetry.running == {}
        assert taken.values == []


def test_with_an_interval_of_0_nothing_is_measured_and_lines_can_be_sent() -> None:
    taken, readers = Taken(), CountingReaders()
    agent = Agent(readers, every_ms=0)
    with VirtualWorld(1) as world:
        host = world.host("n1")
        world.start(host, "observability", taken.collect)
        world.start(host, "agent", agent.run)
        world.run_for(100)
        agent.hears(there=True)
        assert agent.telemetry is not None
        agent.telemetry.sender.values(1, {LOAD: 1.0})
        world.run_for(60_000)
        assert (readers.read, len(taken.values)) == (0, 1)
