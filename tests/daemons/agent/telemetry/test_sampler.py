"""What an agent measures: series of a recorded machine, of steps in cgroups of both versions, of GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hal.core.model import StepId
from hal.daemons.agent.telemetry.sampler import GpuSampler, StepSampler
from hal.runtime.gpu_readings import GpuReader, GpuReading
from hal.runtime.node_readings import NodeReader, Values
from hal.runtime.step_readings import StepReader
from hal.wire.frames.agent_keeper import Sample

STEP, OTHER = StepId(42, 7, 1, 0), StepId(43, 0, 1, 0)
SLOT = "hal.slice/hal-0a1b2c3d-n1/s3"


def put(root: Path, files: dict[str, str]) -> Path:
    """Files of a recorded machine."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def short(values: Values) -> dict[str, float]:
    """By name and labels, as text."""
    return {"".join((key.name, *(f" {name}={value}" for name, value in key.labels))): x for key, x in values.items()}


MACHINE = {
    "proc/stat": "cpu  100 20 300 4000 50 0 6 7 0 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nintr 5\n",
    "proc/loadavg": "0.50 1.25 2.00 1/200 3000\n",
    "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n",
    "proc/pressure/io": "some avg10=0.00 total=2500000\nfull avg10=0 total=500000\n",
    "proc/diskstats": "259 0 nvme0n1 10 0 8 0 20 0 16 0 0 1500 0\n259 1 nvme0n1p1 10 0 8 0 20 0 16 0 0 9 0\n"
    "7 0 loop0 1 0 1 0 0 0 0 0 0 0 0\n",
    "sys/block/nvme0n1/size": "1\n",
    "proc/net/dev": "Inter-|  Receive\n face |bytes\n  lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n"
    "eth0: 1000 9 1 2 0 0 0 0 2000 9 3 0 0 0 0 0\n eth1: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
}


def test_a_machine_is_read_as_the_kernel_says_it(tmp_path: Path) -> None:
    """100 ticks of user time are a second; a sector is 512 bytes; partitions, loop devices and idle links are left
    out."""
    found = short(NodeReader(tmp_path, put(tmp_path, MACHINE)).read())
    assert found["hal_node_cpu_seconds_total mode=user"] == 1.0
    assert found["hal_node_cpu_seconds_total mode=steal"] == 0.07
    assert found["hal_node_cpus"] == 2
    assert found["hal_node_load window=5m"] == 1.25
    assert found["hal_node_memory_used_bytes"] == 600 << 10
    assert found["hal_node_swap_used_bytes"] == 6 << 10
    assert found["hal_node_pressure_seconds_total resource=io stalled=some"] == 2.5
    assert found["hal_node_disk_read_bytes_total device=nvme0n1"] == 8 * 512
    assert found["hal_node_disk_busy_seconds_total device=nvme0n1"] == 1.5
    assert found["hal_node_network_sent_bytes_total device=eth0"] == 2000
    assert found["hal_node_network_errors_total device=eth0"] == 6
    assert found["hal_node_home_size_bytes"] > 0
    assert {name.split("device=")[1] for name in found if "device=" in name} == {"nvme0n1", "eth0"}


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """A kernel without pressure, a file in another form: the rest is there."""
    root = put(tmp_path, {"proc/loadavg": "0.50 1.25 2.00 1/200 3000\n", "proc/stat": "cpu what is this\n"})
    found = short(NodeReader(tmp_path, root).read())
    assert found["hal_node_load window=1m"] == 0.5
    assert not any("cpu" in name or "pressure" in name for name in found)


UNIFIED = {
    "proc/77/cgroup": f"0::/{SLOT}/made-by-the-step\n",
    "proc/77/environ": "A=1\0HAL_DEVICES=0,1\0",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory",
    f"sys/fs/cgroup/{SLOT}/cpu.stat": "usage_usec 9000000\nuser_usec 8000000\n",
    f"sys/fs/cgroup/{SLOT}/memory.current": "5000\n",
    f"sys/fs/cgroup/{SLOT}/memory.stat": "anon 1\ninactive_file 1500\n",
    f"sys/fs/cgroup/{SLOT}/memory.peak": "8000\n",
    f"sys/fs/cgroup/{SLOT}/io.stat": "259:0 rbytes=100 wbytes=200 rios=1\n8:0 rbytes=1 wbytes=2\n",
    f"sys/fs/cgroup/{SLOT}/pids.current": "3\n",
}


def test_a_step_in_a_slot_is_measured_from_its_own_beginning(tmp_path: Path) -> None:
    """Steps before it used 7 s of CPU in the same slot and 100 bytes of reading: they are not its own."""
    root = put(tmp_path, UNIFIED)
    sampler = StepSampler(root)
    seen = {STEP: Sample(STEP, 10, 2_000)}
    first = short(sampler.read({STEP: 77}, seen))
    assert first["hal_attempt_cpu_seconds_total attempt=42.7.1.0"] == 2.0
    assert first["hal_attempt_memory_bytes attempt=42.7.1.0"] == 3500
    assert first["hal_attempt_memory_peak_bytes attempt=42.7.1.0"] == 8000
    assert first["hal_attempt_processes attempt=42.7.1.0"] == 3
    assert first["hal_attempt_read_bytes_total attempt=42.7.1.0"] == 0
    put(
        root,
        {
            f"sys/fs/cgroup/{SLOT}/cpu.stat": "usage_usec 9500000\n",
            f"sys/fs/cgroup/{SLOT}/io.stat": "8:0 rbytes=151 wbytes=202\n",
        },
    )
    later = short(sampler.read({STEP: 77}, seen))
    assert later["hal_attempt_cpu_seconds_total attempt=42.7.1.0"] == 2.5
    assert later["hal_attempt_read_bytes_total attempt=42.7.1.0"] == 50
    assert sampler.holders() == {"0": [STEP], "1": [STEP]}
    assert sampler.read({}, {}) == {}
    assert sampler.holders() == {}


def test_version_1_has_a_directory_for_each_controller(tmp_path: Path) -> None:
    """Where cpuacct has no slot, CPU time is what the keeper has seen."""
    root = put(
        tmp_path,
        {
            "proc/77/cgroup": f"8:pids:/{SLOT}\n4:memory:/{SLOT}\n2:cpuacct:/\n",
            f"sys/fs/cgroup/memory/{SLOT}/memory.usage_in_bytes": "5000\n",
            f"sys/fs/cgroup/memory/{SLOT}/memory.stat": "total_inactive_file 1000\n",
            f"sys/fs/cgroup/memory/{SLOT}/memory.max_usage_in_bytes": "9000\n",
            f"sys/fs/cgroup/pids/{SLOT}/pids.current": "2\n",
        },
    )
    found = short(StepSampler(root).read({STEP: 77}, {STEP: Sample(STEP, 10, 1_500)}))
    assert found == {
        "hal_attempt_cpu_seconds_total attempt=42.7.1.0": 1.5,
        "hal_attempt_memory_bytes attempt=42.7.1.0": 4000,
        "hal_attempt_memory_peak_bytes attempt=42.7.1.0": 9000,
        "hal_attempt_processes attempt=42.7.1.0": 2,
    }


@pytest.mark.parametrize("cgroup", ["0::/\n", "0::/user.slice/session-1.scope\n", "", "nonsense"])
def test_a_cgroup_that_is_no_slot_is_not_taken_for_the_steps_own(tmp_path: Path, cgroup: str) -> None:
    """What the keeper has seen counts instead."""
    root = put(tmp_path, {"proc/77/cgroup": cgroup, "sys/fs/cgroup/memory.current": "1\n"})
    found = short(StepSampler(root).read({STEP: 77}, {STEP: Sample(STEP, 10, 1_500)}))
    assert found == {
        "hal_attempt_cpu_seconds_total attempt=42.7.1.0": 1.5,
        "hal_attempt_memory_bytes attempt=42.7.1.0": 10,
    }
    assert StepReader(78, root).gpus == ()


def test_a_gpu_that_is_held_and_not_used_is_seen_as_held_idle() -> None:
    """GPU 0 is held by index and idle, GPU 1 is held by uuid and works, GPU 2 is idle and nobody's."""
    sampler = GpuSampler()
    readings = [
        GpuReading(uuid="GPU-a", index=0, utilisation=0.0, memory_used_bytes=5, power_watts=60.5),
        GpuReading(uuid="GPU-b", index=1, utilisation=0.5),
        GpuReading(uuid="GPU-c", index=2, utilisation=0.0),
    ]
    holders = {"0": [STEP], "GPU-b": [STEP, OTHER]}
    sampler.values(readings, holders, 10.0)
    found = short(sampler.values(readings, holders, 10.0))
    assert [found[f"hal_node_gpu_held gpu={gpu}"] for gpu in range(3)] == [1, 1, 0]
    assert [found[f"hal_node_gpu_held_idle_seconds_total gpu={gpu}"] for gpu in range(3)] == [20, 0, 0]
    assert found["hal_node_gpu_power_watts gpu=0"] == 60.5
    assert found["hal_attempt_gpu_utilisation_ratio attempt=42.7.1.0"] == 0.25
    assert found["hal_attempt_gpu_utilisation_ratio attempt=43.0.1.0"] == 0.5


def test_what_the_gpus_of_a_step_did_is_added_up_while_it_holds_them() -> None:
    """20 s at a half of 100 W and a quarter of 60 W: 7.5 s of work, 3.2 kJ. A GPU without a sensor says no energy, a
    shared one gives each its part, and what a step left behind is forgotten."""
    sampler = GpuSampler()
    both = [
        GpuReading(uuid="GPU-a", index=0, utilisation=0.5, power_watts=100.0),
        GpuReading(uuid="GPU-b", index=1, utilisation=0.25, power_watts=60.0),
    ]
    for _ in range(2):
        found = short(sampler.values(both, {"0": [STEP], "1": [STEP]}, 10.0))
    assert found["hal_attempt_gpu_measured_seconds_total attempt=42.7.1.0"] == 20
    assert found["hal_attempt_gpu_used_seconds_total attempt=42.7.1.0"] == 7.5
    assert found["hal_attempt_gpu_energy_joules_total attempt=42.7.1.0"] == 3_200
    found = short(sampler.values(both, {"0": [STEP, OTHER]}, 10.0))
    assert found["hal_attempt_gpu_energy_joules_total attempt=43.0.1.0"] == 500
    silent = [GpuReading(uuid="GPU-a", index=0, utilisation=0.5)]
    found = short(sampler.values(silent, {"0": [OTHER]}, 10.0))
    assert "hal_attempt_gpu_energy_joules_total attempt=43.0.1.0" not in found
    found = short(sampler.values(both, {"0": [STEP]}, 10.0))
    assert found["hal_attempt_gpu_measured_seconds_total attempt=42.7.1.0"] == 10


class NotSupportedError(Exception):
    """What NVML raises."""


class Library:
    """NVML of a machine with two GPUs, of which the second says little."""

    NVMLError = NotSupportedError

    def __init__(self) -> None:
        self.begun = 0
        self.broken = False

    def nvmlInit(self) -> None:
        self.begun += 1

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        if self.broken:
            raise NotSupportedError
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        if handle:
            raise NotSupportedError
        return type("Rates", (), {"gpu": 37})

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return type("Memory", (), {"used": 1 << 30, "total": 1 << 33})

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 61_500

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 40


def test_gpus_are_read_through_a_library_that_is_initialised_once(tmp_path: Path) -> None:
    """What one does not say is left out."""
    library = Library()
    reader = GpuReader(tmp_path, library)
    reader.read()
    first, second = reader.read()
    assert library.begun == 1
    assert (first.uuid, first.utilisation, first.power_watts) == ("GPU-0", 0.37, 61.5)
    assert (second.utilisation, second.memory_used_bytes, second.temperature_celsius) == (None, 1 << 30, 40.0)


def test_a_driver_that_fails_gives_no_readings_and_is_begun_again(tmp_path: Path) -> None:
    library = Library()
    library.broken = True
    reader = GpuReader(tmp_path, library)
    assert reader.read() == []
    library.broken = False
    assert len(reader.read()) == 2


def test_amds_gpus_are_read_from_the_kernel(tmp_path: Path) -> None:
    device = "sys/class/drm/card1/device"
    root = put(tmp_path, {f"{device}/gpu_busy_percent": "12\n", f"{device}/mem_info_vram_used": "77\n"})
    (gpu,) = GpuReader(root).read()
    assert (gpu.index, gpu.utilisation, gpu.memory_used_bytes) == (0, 0.12, 77)


def test_the_manual_names_every_series_that_a_node_sends(tmp_path: Path) -> None:
    """docs/observability.md has its name, and all of its labels in the same row."""
    root = put(tmp_path, {**MACHINE, **UNIFIED})
    values = NodeReader(tmp_path, root).read()
    values.update(StepSampler(root).read({STEP: 77}, {STEP: Sample(STEP, 10, 1)}))
    full = GpuReading(
        uuid="GPU-a",
        index=0,
        utilisation=0.0,
        memory_used_bytes=1,
        memory_total_bytes=2,
        power_watts=3,
        temperature_celsius=4,
    )
    values.update(GpuSampler().values([full], {"0": [STEP]}, 1.0))
    page = (Path(__file__).parents[4] / "docs" / "observability.md").read_text()
    rows = {name: line for line in page.splitlines() if line.startswith("| `hal_") for name in line.split("`")[1::2]}
    for key in values:
        assert key.name in rows, f"{key.name} is not described"
        assert all(f"`{label}`" in rows[key.name] for label, _ in key.labels), key
    described = {name for name in rows if name.startswith("hal_")}
    assert described == {key.name for key in values}
