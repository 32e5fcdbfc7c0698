"""What simulated nodes send to a collector: the series of a real agent, with values that follow the steps they hold."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from hal.core.model.ids import StepId
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.telemetry_sender import SeriesKey, TelemetrySender
from hal.wire.frames.telemetry import SeriesKind
from hal.wire.roles import Role

if TYPE_CHECKING:
    from tests.web.simulated_cluster import SimulatedNode

EVERY_MS: Final = 5_000
GIB: Final = 1 << 30
CORES: Final = 64
IDLE_OF: Final = 9
"""One of so many nodes with GPUs holds them and leaves them idle."""
GAUGE, COUNTER = SeriesKind.GAUGE, SeriesKind.COUNTER


class MeasuredNode:
    """The sampler of one node."""

    def __init__(self, runtime: RealRuntime, node: SimulatedNode, seed: int) -> None:
        self._runtime, self._node = runtime, node
        self._chance = random.Random(seed)
        self._sender = TelemetrySender(runtime, Role.AGENT, node.name)
        self._busy_s = self._idle_s = 0.0
        self._cpu_s: dict[StepId, float] = {}
        self._lazy = seed % IDLE_OF == 0

    async def run(self) -> None:
        """Until cancelled."""
        self._sender.dial((f"unix:{self._runtime.paths.socket_dir() / 'observability-wire.sock'}",))
        sending = asyncio.ensure_future(self._sender.run())
        try:
            while True:
                self._sender.values(self._runtime.now_ms(), self._values())
                await self._runtime.sleep(EVERY_MS)
        finally:
            sending.cancel()

    def _values(self) -> dict[SeriesKey, float]:
        steps, chance = list(self._node.held), self._chance
        busy = min(CORES, sum(8 * chance.uniform(0.5, 1.0) for _ in steps)) + 0.3
        every_s = EVERY_MS / 1_000
        self._busy_s += busy * every_s
        self._idle_s += (CORES - busy) * every_s
        memory = 6 * GIB + len(steps) * chance.uniform(8, 14) * GIB
        found = {
            SeriesKey("hal_node_cpu_seconds_total", COUNTER, (("mode", "user"),)): self._busy_s,
            SeriesKey("hal_node_cpu_seconds_total", COUNTER, (("mode", "idle"),)): self._idle_s,
            SeriesKey("hal_node_cpus", GAUGE): CORES,
            SeriesKey("hal_node_load", GAUGE, (("window", "1m"),)): busy * 1.05,
            SeriesKey("hal_node_memory_used_bytes", GAUGE): memory,
            SeriesKey("hal_node_memory_total_bytes", GAUGE): 256 * GIB,
        }
        for gpu in range(self._node.gpus):
            held = gpu < 2 * len(steps)
            use = 0.0 if self._lazy or not held else chance.uniform(0.35, 0.98)
            labels = (("gpu", str(gpu)),)
            found[SeriesKey("hal_node_gpu_utilisation_ratio", GAUGE, labels)] = use
            found[SeriesKey("hal_node_gpu_held", GAUGE, labels)] = float(held)
        for step in steps:
            self._cpu_s[step] = self._cpu_s.get(step, 0.0) + chance.uniform(2.0, 6.0) * every_s
            labels = (("attempt", str(step)),)
            found[SeriesKey("hal_attempt_cpu_seconds_total", COUNTER, labels)] = self._cpu_s[step]
            found[SeriesKey("hal_attempt_memory_bytes", GAUGE, labels)] = chance.uniform(0.5, 1.8) * GIB
        self._cpu_s = {step: used for step, used in self._cpu_s.items() if step in self._node.held}
        return found
