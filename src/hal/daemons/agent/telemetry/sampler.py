"""Values of the node, its GPUs and its running steps, as series, at one instant after another.

Reads block, on threads of their own: GPUs on another one than the rest, because a broken driver may not answer. Steps
that end before they were looked at cost nothing; of the others, at most so many are measured, the oldest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hal.core.model import StepId
from hal.runtime.gpu_readings import GpuReader, GpuReading
from hal.runtime.node_readings import NodeReader, Values
from hal.runtime.step_readings import StepReader, StepReading
from hal.runtime.telemetry_sender import SeriesKey
from hal.wire.frames.agent_keeper import Sample
from hal.wire.frames.telemetry import SeriesKind

GAUGE, COUNTER = SeriesKind.GAUGE, SeriesKind.COUNTER
IDLE: Final = 0.01
"""A GPU of which a step holds a part, and that is used less, is held idle."""


class _Measured:
    """A step that was looked at."""

    __slots__ = ("cpu_base_us", "cpu_us", "io_base", "reader")

    def __init__(self, reader: StepReader) -> None:
        self.reader = reader
        self.cpu_base_us: int | None = None
        """What the slot had used when this step began; None: not known yet."""
        self.cpu_us = 0
        self.io_base: tuple[int, int] | None = None


class StepSampler:
    """Steps of one node. Called on a thread, by one caller at a time."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._measured: dict[StepId, _Measured] = {}

    def read(self, running: Mapping[StepId, int], samples: Mapping[StepId, Sample]) -> Values:
        """Return the values of these steps.

        Args:
            running: their first processes.
            samples: what the keeper has seen of them last.
        """
        for step in self._measured.keys() - running.keys():
            del self._measured[step]
        found: Values = {}
        for step, pid in running.items():
            one = self._measured.get(step)
            if one is None:
                one = self._measured[step] = _Measured(StepReader(pid, self._root))
            self._add(found, step, one, one.reader.read(), samples.get(step))
        return found

    def holders(self) -> dict[str, list[StepId]]:
        """By index or uuid of a GPU: the measured steps that hold it or a part of it."""
        held: dict[str, list[StepId]] = {}
        for step, one in self._measured.items():
            for name in one.reader.gpus:
                held.setdefault(name, []).append(step)
        return held

    def _add(self, found: Values, step: StepId, one: _Measured, now: StepReading, sample: Sample | None) -> None:
        labels = (("attempt", str(step)),)
        sampled_us = None if sample is None else sample.cpu_ms * 1000
        if now.cpu_us is not None and one.cpu_base_us is None and sampled_us is not None:
            one.cpu_base_us = max(0, now.cpu_us - sampled_us)
        if now.cpu_us is not None and one.cpu_base_us is not None:
            one.cpu_us = max(one.cpu_us, now.cpu_us - one.cpu_base_us)
        elif sampled_us is not None:
            one.cpu_us = max(one.cpu_us, sampled_us)
        if one.cpu_us or sample is not None:
            found[SeriesKey("hal_attempt_cpu_seconds_total", COUNTER, labels)] = one.cpu_us / 1e6
        memory = now.memory_bytes if now.memory_bytes is not None else (None if sample is None else sample.rss_bytes)
        if memory is not None:
            found[SeriesKey("hal_attempt_memory_bytes", GAUGE, labels)] = memory
        if now.peak_bytes is not None:
            found[SeriesKey("hal_attempt_memory_peak_bytes", GAUGE, labels)] = now.peak_bytes
        if now.processes is not None:
            found[SeriesKey("hal_attempt_processes", GAUGE, labels)] = now.processes
        if now.read_bytes is not None and now.written_bytes is not None:
            if one.io_base is None:
                one.io_base = now.read_bytes, now.written_bytes
            read, written = one.io_base
            found[SeriesKey("hal_attempt_read_bytes_total", COUNTER, labels)] = max(0, now.read_bytes - read)
            found[SeriesKey("hal_attempt_written_bytes_total", COUNTER, labels)] = max(0, now.written_bytes - written)


class _OfGpus:
    """What a step's GPUs did, since this agent first saw that it holds them."""

    __slots__ = ("joules", "measured_s", "used_s")

    def __init__(self) -> None:
        self.measured_s = 0.0
        """The time for which they were measured."""
        self.used_s = 0.0
        """The part of it in which they worked, on average of them."""
        self.joules: float | None = 0.0
        """Its part of the energy that they took; None: one of them does not say."""


class GpuSampler:
    """GPUs of one machine: which of them are held but idle, and what those of each step did."""

    def __init__(self) -> None:
        self._idle_s: dict[int, float] = {}
        """By index: for how long it was held and not used, since this agent began."""
        self._of_steps: dict[StepId, _OfGpus] = {}

    def values(
        self, readings: Sequence[GpuReading], holders: Mapping[str, Sequence[StepId]], elapsed_s: float
    ) -> Values:
        """Return the values of all GPUs.

        Args:
            holders: by index or uuid: the steps that hold it.
            elapsed_s: since the sample before.
        """
        found: Values = {}
        used: dict[StepId, list[tuple[float, float | None]]] = {}
        """By step: how much each of its GPUs is used, and its part of the power."""
        for gpu in readings:
            labels = (("gpu", str(gpu.index)),)
            steps = {*holders.get(str(gpu.index), ()), *(holders.get(gpu.uuid, ()) if gpu.uuid else ())}
            for name, value in (
                ("hal_node_gpu_utilisation_ratio", gpu.utilisation),
                ("hal_node_gpu_memory_used_bytes", gpu.memory_used_bytes),
                ("hal_node_gpu_memory_total_bytes", gpu.memory_total_bytes),
                ("hal_node_gpu_power_watts", gpu.power_watts),
                ("hal_node_gpu_temperature_celsius", gpu.temperature_celsius),
                ("hal_node_gpu_held", float(bool(steps))),
            ):
                if value is not None:
                    found[SeriesKey(name, GAUGE, labels)] = value
            if gpu.utilisation is None:
                continue
            idle_s = self._idle_s.get(gpu.index, 0.0)
            if steps and gpu.utilisation < IDLE:
                idle_s += elapsed_s
            self._idle_s[gpu.index] = idle_s
            found[SeriesKey("hal_node_gpu_held_idle_seconds_total", COUNTER, labels)] = idle_s
            watts = None if gpu.power_watts is None else gpu.power_watts / max(len(steps), 1)
            for step in steps:
                used.setdefault(step, []).append((gpu.utilisation, watts))
        held = {step for steps_of_one in holders.values() for step in steps_of_one}
        for step in self._of_steps.keys() - held:
            del self._of_steps[step]
        for step, parts in used.items():
            self._add_step(found, step, parts, elapsed_s)
        return found

    def _add_step(
        self, found: Values, step: StepId, parts: Sequence[tuple[float, float | None]], elapsed_s: float
    ) -> None:
        labels = (("attempt", str(step)),)
        ratio = sum(part for part, _ in parts) / len(parts)
        found[SeriesKey("hal_attempt_gpu_utilisation_ratio", GAUGE, labels)] = ratio
        of_step = self._of_steps.setdefault(step, _OfGpus())
        of_step.measured_s += elapsed_s
        of_step.used_s += ratio * elapsed_s
        found[SeriesKey("hal_attempt_gpu_measured_seconds_total", COUNTER, labels)] = of_step.measured_s
        found[SeriesKey("hal_attempt_gpu_used_seconds_total", COUNTER, labels)] = of_step.used_s
        known = [watts for _, watts in parts if watts is not None]
        if len(known) < len(parts):
            of_step.joules = None
        if of_step.joules is not None:
            of_step.joules += sum(known) * elapsed_s
            found[SeriesKey("hal_attempt_gpu_energy_joules_total", COUNTER, labels)] = of_step.joules


class Readers:
    """All that is read on a node, for `NodeTelemetry`; simulations give others."""

    def __init__(self, home: Path, root: Path = Path("/")) -> None:
        self._node = NodeReader(home, root)
        self._gpu_reader = GpuReader(root)
        self._gpus = GpuSampler()
        self.steps = StepSampler(root)

    def node(self) -> Values:
        """Blocking: the node itself."""
        return self._node.read()

    def read_gpus(self) -> list[GpuReading]:
        """Blocking: its GPUs; may take long."""
        return self._gpu_reader.read()

    def gpus(self, readings: Sequence[GpuReading], elapsed_s: float) -> Values:
        """Their values, with who holds them."""
        return self._gpus.values(readings, self.steps.holders(), elapsed_s) if readings else {}
