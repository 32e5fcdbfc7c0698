"""What is known of the GPUs of attempts that have ended: from memory, from the disk, and within a bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hal.core.model import StepId
from hal.daemons.agent.telemetry.sampler import GpuSampler
from hal.planes.observability.history.facts import GpuSample, Sampled
from hal.planes.observability.samples import attempt_gpus
from hal.planes.observability.samples.attempt_gpus import AttemptGpus
from hal.planes.observability.samples.part import Samples
from hal.planes.observability.telemetry import ReceivedValues, Sender, SenderTable
from hal.runtime.gpu_readings import GpuReading
from hal.runtime.interface import Runtime
from hal.wire.frames.telemetry import Series
from hal.wire.roles import Role
from tests.planes.observability.history.streams import row
from tests.planes.observability.samples.test_samples import play

STEP = StepId(7, 0, 1, 0)
HALF_USED = Sampled(gpus={0: GpuSample(measured_ms=60_000, used_ms=30_000, energy_mj=12_000_000)})
"""Of six samples 10 s apart: 200 W for a minute are 12 kJ."""


def send(runtime: Runtime, samples: Samples, sampler: GpuSampler, step: StepId = STEP, node: str = "n1") -> None:
    """One sample of a GPU of which a step holds all, as the agent of a node sends it."""
    reading = GpuReading(uuid="GPU-a", index=0, utilisation=0.5, power_watts=200.0)
    values = sampler.values([reading], {"0": [step]}, 10.0)
    table = SenderTable()
    table.define(0, [Series(key.name, key.kind, dict(key.labels)) for key in values])
    numbers = np.arange(len(values), dtype=np.uint32)
    sender = Sender(Role.AGENT, node, "boot:1")
    now_ms = runtime.now_ms()
    samples.take(ReceivedValues(sender, now_ms, now_ms, table, numbers, np.array(list(values.values()), float)))


async def run_step(runtime: Runtime, samples: Samples) -> None:
    """A minute of it."""
    sampler = GpuSampler()
    for _ in range(6):
        send(runtime, samples, sampler)
        await runtime.sleep(10_000)


def test_an_attempt_that_has_just_ended_is_in_memory(tmp_path: Path) -> None:
    """Attempts that asked for no GPU, were not measured or never began are not known of."""

    async def main(runtime: Runtime, samples: Samples) -> None:
        await run_step(runtime, samples)
        end_ms = runtime.now_ms()
        rows = [
            row(1, end_ms=end_ms, job=7, gpu=1_000),
            row(2, end_ms=end_ms, job=7, gpu=0),
            row(3, end_ms=end_ms, job=8, gpu=1_000),
            row(4, end_ms=end_ms, job=7, gpu=1_000, ran_ms=None),
            row(5, end_ms=end_ms, job=7, gpu=1_000, nodes=("n2",)),
        ]
        assert await AttemptGpus(runtime, samples).of(rows) == {1: HALF_USED}
        await samples.close()

    play(tmp_path, main)


def test_an_attempt_that_ended_while_the_collector_was_away_is_looked_up(tmp_path: Path) -> None:
    """It reads what the process before it has written."""
    ended: list[int] = []

    async def first(runtime: Runtime, samples: Samples) -> None:
        await run_step(runtime, samples)
        ended.append(runtime.now_ms())
        await samples.close()

    async def second(runtime: Runtime, samples: Samples) -> None:
        asked = [row(1, end_ms=ended[0], job=7, gpu=1_000)]
        assert await AttemptGpus(runtime, samples).of(asked) == {1: HALF_USED}
        await samples.close()

    play(tmp_path, first, second)


@pytest.mark.slow
def test_an_attempt_is_looked_up_where_values_are_kept_by_the_minute(tmp_path: Path) -> None:
    """A day after it has ended; values as they came are kept for six hours."""

    async def main(runtime: Runtime, samples: Samples) -> None:
        await run_step(runtime, samples)
        asked = [row(1, end_ms=runtime.now_ms(), job=7, gpu=1_000)]
        running = runtime.spawn_task(samples.run(), "samples")
        await runtime.sleep(24 * 3_600_000)
        running.cancel()
        assert samples.source("n1") is None
        assert await AttemptGpus(runtime, samples).of(asked) == {1: HALF_USED}
        await samples.close()

    play(tmp_path, main)


def test_what_is_looked_up_for_a_page_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one look-up the attempt on n1 is known, and that on n2, which sent the same, is not."""
    monkeypatch.setattr(attempt_gpus, "MAX_LOOKED_UP", 1)
    ended: list[int] = []

    async def first(runtime: Runtime, samples: Samples) -> None:
        sampler = GpuSampler()
        for node in ("n1", "n2"):
            send(runtime, samples, sampler, node=node)
        ended.append(runtime.now_ms())
        await samples.close()

    async def second(runtime: Runtime, samples: Samples) -> None:
        rows = [row(at, end_ms=ended[0], job=7, gpu=1_000, nodes=(f"n{at}",)) for at in (1, 2)]
        assert list(await AttemptGpus(runtime, samples).of(rows)) == [1]
        await samples.close()

    play(tmp_path, first, second)
