"""What agents send is declared with its kind and labels, so that the reference page is complete."""

from __future__ import annotations

import os
from pathlib import Path

from hal.daemons.agent.telemetry.sampler import GpuSampler, StepSampler
from hal.planes.observability.samples.declared import NODE, OF_ATTEMPTS, OF_NODES
from hal.runtime.gpu_readings import GpuReading
from hal.runtime.metrics.declaration import Metric
from hal.runtime.node_readings import NodeReader, Values
from hal.wire.frames.agent_keeper import Sample
from tests.daemons.agent.telemetry.test_sampler import MACHINE, STEP, put


def disagreements(values: Values, metrics: tuple[Metric, ...]) -> set[str]:
    """Series that are not declared, or otherwise."""
    declared = {one.name: (str(one.kind), {label.name for label in one.labels} - {NODE.name}) for one in metrics}
    return {key.name for key in values if declared.get(key.name) != (str(key.kind), {name for name, _ in key.labels})}


def test_what_a_node_and_its_gpus_send_is_declared_and_nothing_else(tmp_path: Path) -> None:
    values = NodeReader(tmp_path, put(tmp_path, MACHINE)).read()
    gpu = GpuReading(
        uuid="u", index=0, utilisation=0.0, memory_used_bytes=1, memory_total_bytes=2, power_watts=3.0,
        temperature_celsius=4.0,
    )  # fmt: skip
    values |= GpuSampler().values([gpu], {}, 1.0)
    assert disagreements(values, OF_NODES) == set()
    assert {key.name for key in values} == {metric.name for metric in OF_NODES}


def test_what_is_sent_of_an_attempt_is_declared() -> None:
    """This process stands for a step's; on its GPU nothing runs."""
    sampler = StepSampler()
    values = sampler.read({STEP: os.getpid()}, {STEP: Sample(STEP, 1_000, 1 << 20)})
    gpu = GpuReading(uuid="u", index=0, utilisation=0.0, power_watts=3.0)
    values |= {key: one for key, one in GpuSampler().values([gpu], {"0": [STEP]}, 1.0).items() if "attempt" in key.name}
    assert disagreements(values, OF_ATTEMPTS) == set()
    assert {"hal_attempt_cpu_seconds_total", "hal_attempt_gpu_energy_joules_total"} <= {key.name for key in values}
