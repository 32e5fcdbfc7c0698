"""An agent's telemetry: whether a collector is there, what runs, and a sample of all of it every few seconds.

Nothing is read, queued or sent while no collector has announced itself. Sending has a connection of its own, and
heartbeats never wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from hal.core.model import StepId
from hal.core.model.node_config import TelemetrySection
from hal.daemons.agent.telemetry.sampler import Readers
from hal.runtime.gpu_readings import GpuReading
from hal.runtime.interface import Credentials, Runtime
from hal.runtime.node_readings import Values
from hal.runtime.telemetry_sender import TelemetrySender
from hal.wire.frames.agent_keeper import Exits, Sample, Samples, Started
from hal.wire.frames.controller_agent import Planes
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import HeldStep
from hal.wire.roles import Role

COLLECTOR: Final = "observability"
"""The plane to which an agent sends."""
LANE: Final = "telemetry"
GPU_LANE: Final = "telemetry-gpus"
GPU_WAIT_MS: Final = 2_000
"""GPUs that do not answer within this are left out of a sample."""
AGAIN_MS: Final = 30_000
"""Pause after a fault."""
MAX_TRACKED: Final = 65_536
"""Running steps that are known."""


class NodeTelemetry:
    """Of one node. `sender` takes lines and spans of other parts of the agent, too."""

    def __init__(
        self,
        runtime: Runtime,
        node: str,
        section: TelemetrySection,
        readers: Readers,
        credentials: Credentials | None = None,
        *,
        local: bool = True,
    ) -> None:
        """
        Args:
            credentials: the node's, where the collector is reached over the network.
            local: the controller is on this host.
        """
        self._runtime, self._section, self._readers = runtime, section, readers
        self.sender = TelemetrySender(runtime, Role.AGENT, node, credentials, local=local)
        self.running: dict[StepId, int] = {}
        """First processes of the running steps, oldest first."""
        self._samples: dict[StepId, Sample] = {}
        """What the keeper's last report of use says."""
        self._planes: dict[str, tuple[str, ...]] = {}
        self._gpus_reading: asyncio.Future[list[GpuReading]] | None = None
        """A reading of GPUs that has not ended."""
        self._announced = asyncio.Event()

    # ── what the agent hears ──────────────────────────────────────────────────────────────────────────────────────

    def hear_planes(self, frame: Planes) -> None:
        """The controller says which planes are there."""
        named = {plane.name: plane.wire for plane in frame.planes}
        self._planes = named if frame.settled else {**self._planes, **named}
        self.sender.dial(self._planes.get(COLLECTOR, ()))
        if self.sender.active:
            self._announced.set()

    def holds(self, held: Iterable[HeldStep]) -> None:
        """The keeper says what it holds."""
        self.running = {one.step: one.pid for one in held if one.running and one.pid}
        self._samples = {}

    def hear(self, frame: Frame) -> None:
        """The keeper reports; cheap for steps that are short."""
        match frame:
            case Started():
                if len(self.running) < MAX_TRACKED:
                    self.running.update((one.step, one.pid) for one in frame.steps)
            case Exits():
                for ended in frame.exits:
                    self.running.pop(ended.step, None)
            case Samples():
                self._samples = {one.step: one for one in frame.samples}

    # ── sampling ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Sample and send until cancelled; a fault of it is logged, and ends nothing else of the agent."""
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.sender.run())
                    if self._section.every:
                        group.create_task(self._sample_always())
            except* Exception as faults:
                reason = "; ".join(f"{type(one).__name__}: {one}" for one in faults.exceptions)
                self._runtime.log.error("telemetry failed and begins again", reason=reason)
            await self._runtime.sleep(AGAIN_MS)

    async def _sample_always(self) -> None:
        every_ms = int(self._section.every)
        last_ms = 0
        # Not all nodes at the same instant: those of a HAL that has started together are spread over the interval.
        await self._runtime.sleep(self._runtime.random().randrange(every_ms))
        while True:
            if not self.sender.active:
                self._announced.clear()
                last_ms = 0
                await self._announced.wait()
            began_ms = self._runtime.monotonic_ms()
            try:
                await self._sample(began_ms - last_ms if last_ms else 0)
            except Exception as error:  # what a machine says in an unknown form harms nothing else
                self._runtime.log.warning("the node could not be sampled", error=f"{type(error).__name__}: {error}")
            last_ms = began_ms
            await self._runtime.sleep(max(100, every_ms - (self._runtime.monotonic_ms() - began_ms)))

    async def _sample(self, elapsed_ms: int) -> None:
        runtime, readers = self._runtime, self._readers
        values: Values = dict(await runtime.run_blocking(readers.node, LANE))
        chosen = list(self.running.items())[: self._section.attempts]
        values.update(await runtime.run_blocking(partial(readers.steps.read, dict(chosen), dict(self._samples)), LANE))
        values.update(readers.gpus(await self._read_gpus(), elapsed_ms / 1000))
        self.sender.values(runtime.now_ms(), values)

    async def _read_gpus(self) -> list[GpuReading]:
        if self._gpus_reading is None:
            reading = self._runtime.run_blocking(self._readers.read_gpus, GPU_LANE)
            self._gpus_reading = asyncio.ensure_future(reading)
        done, _ = await asyncio.wait((self._gpus_reading,), timeout=GPU_WAIT_MS / 1000)
        if not done:
            return []  # the driver does not answer: it is not asked again before it has
        found, self._gpus_reading = self._gpus_reading, None
        return found.result()
