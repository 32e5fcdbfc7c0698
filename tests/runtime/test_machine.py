"""What a machine is made of, read from recorded trees of /proc and /sys, from this machine, and from NVML's answers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hal.core.model.facts import (
    MAX_PARTS,
    MAX_TEXT,
    CacheFacts,
    CpuFacts,
    Facts,
    GpuFacts,
    NumaFacts,
    SliceFacts,
    SocketFacts,
    bound_facts,
)
from hal.runtime.gpus import read_gpus
from hal.runtime.machine import read_machine


def recorded(root: Path, files: dict[str, str]) -> Path:
    """A tree with these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def processor(number: int, socket: int, core: int, model: str = "AMD EPYC 9654  96-Core Processor") -> str:
    return (
        f"processor\t: {number}\nvendor_id\t: AuthenticAMD\nmodel name\t: {model}\n"
        f"physical id\t: {socket}\ncore id\t\t: {core}\nflags\t\t: fpu vme de\n"
    )


TWO_SOCKETS = {
    "proc/cpuinfo": "\n".join(processor(n, socket=n % 2, core=n // 4) for n in range(8)),
    "proc/meminfo": "MemTotal:       65536000 kB\nMemFree:        1234 kB\n",
    "proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
    "proc/sys/kernel/hostname": "blade7\n",
    "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n# a comment\n',
    "sys/devices/system/node/node0/cpulist": "0-3\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       32768000 kB\nNode 0 MemFree: 1 kB\n",
    "sys/devices/system/node/node10/cpulist": "4-7\n",
    "sys/devices/system/node/node10/meminfo": "Node 10 MemTotal:       32768000 kB\n",
    "sys/devices/system/node/possible": "0-10\n",
    "sys/devices/system/cpu/online": "0-7\n",
    **{
        f"sys/devices/system/cpu/cpu{n}/{name}": text
        for n in range(8)
        for name, text in {
            "topology/core_cpus_list": f"{n % 4},{n % 4 + 4}\n",
            "topology/physical_package_id": f"{n % 2}\n",
            "topology/package_cpus_list": f"{n % 2},{n % 2 + 2},{n % 2 + 4},{n % 2 + 6}\n",
            "cache/index3/level": "3\n",
            "cache/index3/size": "32768K\n",
            "cache/index3/shared_cpu_list": f"{n % 2},{n % 2 + 2},{n % 2 + 4},{n % 2 + 6}\n",
        }.items()
    },
}


def test_a_machine_of_two_sockets_is_read(tmp_path: Path) -> None:
    """8 threads on 4 cores of 2 sockets; NUMA nodes by number; names without odd blanks."""
    facts = read_machine(tmp_path, recorded(tmp_path / "root", TWO_SOCKETS))
    assert facts.cpu == CpuFacts(model="AMD EPYC 9654 96-Core Processor", sockets=2, cores=4, threads=8)
    assert facts.memory_bytes == 65_536_000 << 10
    assert facts.numa == (
        NumaFacts(id=0, cpus="0-3", memory_bytes=32_768_000 << 10),
        NumaFacts(id=10, cpus="4-7", memory_bytes=32_768_000 << 10),
    )
    assert facts.sockets == (
        SocketFacts(id=0, cpus="0,2,4,6", cores=2),
        SocketFacts(id=1, cpus="1,3,5,7", cores=2),
    )
    assert facts.caches == (
        CacheFacts(level=3, size_bytes=32 << 20, cpus="0,2,4,6"),
        CacheFacts(level=3, size_bytes=32 << 20, cpus="1,3,5,7"),
    )
    assert (facts.system, facts.system_id, facts.kernel, facts.host) == (
        "Debian GNU/Linux 12 (bookworm)",
        "debian",
        "6.1.0-18-amd64",
        "blade7",
    )


def test_a_machine_that_says_nothing_has_no_such_facts(tmp_path: Path) -> None:
    """An empty tree, as in a bare container: no error."""
    facts = read_machine(tmp_path, tmp_path)
    assert (facts.sockets, facts.caches) == ((), ())
    assert (facts.cpu, facts.memory_bytes, facts.numa, facts.disks, facts.gpus) == (CpuFacts(), 0, (), (), ())


def test_a_machine_that_lies_stays_within_bounds(tmp_path: Path) -> None:
    """Endless names are cut, control characters left out, endless lists end."""
    files = {
        "proc/cpuinfo": processor(0, 0, 0, "x" * 10_000),
        "proc/meminfo": "MemTotal: many\n",
        "proc/sys/kernel/hostname": "bad\x1b[31mname\n",
        **{f"sys/devices/system/node/node{n}/cpulist": str(n) for n in range(200)},
    }
    facts = read_machine(tmp_path, recorded(tmp_path / "root", files))
    assert (len(facts.cpu.model), len(facts.numa), facts.memory_bytes) == (MAX_TEXT, MAX_PARTS, 0)
    assert facts.host == "bad[31mname"


def test_this_machine_is_read(tmp_path: Path) -> None:
    """At least its processors, its memory, and the file system around HAL_HOME are known."""
    facts = read_machine(tmp_path)
    assert facts.cpu.threads > 0
    assert facts.memory_bytes > 1 << 20
    assert any(tmp_path.is_relative_to(disk.path) and disk.size_bytes >= disk.free_bytes > 0 for disk in facts.disks)
    assert len({disk.path for disk in facts.disks}) == len(facts.disks)


class Answers:
    """NVML's answers as they were recorded; this library is HAL's neighbour, and its hardware is not here."""

    class NVMLError(Exception):
        """As the library's."""

    def __init__(self, *gpus: dict[str, Any], broken: bool = False) -> None:
        self.gpus = gpus
        self.broken = broken
        self.open = 0

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self.gpus[index]

    def nvmlDeviceGetName(self, handle: Any) -> str | bytes:
        name: str | bytes = handle["name"]
        return name

    def nvmlDeviceGetMigMode(self, handle: Any) -> Any:
        if "slices" not in handle:
            raise self.NVMLError("Not Supported")
        return [1, 1]

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:
        if index not in handle["slices"]:
            raise self.NVMLError("Not Found")
        return handle["slices"][index]

    def nvmlDeviceGetAttributes(self, handle: Any) -> Any:
        of_gpu, compute, memory = handle["has"]
        return SimpleNamespace(gpuInstanceSliceCount=of_gpu, computeInstanceSliceCount=compute, memorySizeMB=memory)

    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int:
        number: int = handle["gi"]
        return number

    def nvmlDeviceGetComputeInstanceId(self, handle: Any) -> int:
        return 0

    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes:
        if "uuid" not in handle:
            raise self.NVMLError("GPU is lost")
        uuid: str | bytes = handle["uuid"]
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        if "total" not in handle:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(total=handle["total"], free=1, used=1)

    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any:
        return SimpleNamespace(busId=handle["bus"])

    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int:
        if "minor" not in handle:
            raise self.NVMLError("Not Supported")
        number: int = handle["minor"]
        return number

    def nvmlDeviceGetTopologyCommonAncestor(self, handle: Any, other: Any) -> int:
        if "behind" not in handle:
            raise self.NVMLError("Not Supported")
        level: int = handle["behind"]
        return level

    def nvmlDeviceGetP2PStatus(self, handle: Any, other: Any, index: int) -> int:
        return 0 if index == 2 and handle.get("switched") and other.get("switched") else 5

    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> int:
        if link >= len(handle.get("nvlinks", ())):
            raise self.NVMLError("Invalid Argument")
        return int(bool(handle["nvlinks"][link]))

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Any, link: int) -> Any:
        return SimpleNamespace(busId=handle["nvlinks"][link])


H200 = {"name": "NVIDIA H200", "uuid": "GPU-5b1e", "total": 150_754_820_096, "bus": "00000000:19:00.0", "minor": 3}
SHARED = {"name": b"NVIDIA GB10", "uuid": b"GPU-7", "bus": b"0000000F:01:00.0"}


def test_gpus_are_told_with_memory_and_the_numa_node_they_are_near_to(tmp_path: Path) -> None:
    """The kernel writes a device's domain with four digits; a GPU without memory of its own has 0; bytes are text."""
    place = "sys/bus/pci/devices/0000:19:00.0"
    recorded(tmp_path, {f"{place}/numa_node": "1\n", f"{place}/local_cpulist": "32-63,96-127\n"})
    recorded(tmp_path, {f"{place}/drm/renderD129/dev": "226:129\n"})
    nvml = Answers(H200, SHARED)
    assert read_gpus(tmp_path, nvml) == (
        GpuFacts(
            index=0,
            vendor="nvidia",
            model="NVIDIA H200",
            memory_bytes=150_754_820_096,
            uuid="GPU-5b1e",
            numa=1,
            pci="0000:19:00.0",
            cpus="32-63,96-127",
            links=("", ""),
            files=("/dev/nvidia3", "/dev/dri/renderD129"),
        ),
        GpuFacts(
            index=1, vendor="nvidia", model="NVIDIA GB10", uuid="GPU-7", numa=-1, pci="000f:01:00.0", links=("", "")
        ),
    )
    assert nvml.open == 0


def gpu(number: int, **more: Any) -> dict[str, Any]:
    """One of several of a machine, by its bus."""
    return {**H200, "uuid": f"GPU-{number}", "bus": f"00000000:{number:02x}:00.0", **more}


def links(*gpus: dict[str, Any]) -> list[tuple[str, ...]]:
    return [one.links for one in read_gpus(Path("/nowhere"), Answers(*gpus))]


def test_gpus_on_one_switch_are_linked_by_as_many_nvlinks_as_each_has_to_it() -> None:
    """Eighteen and sixteen active ones: sixteen between both. The far end of each is a switch, which is no GPU."""
    switch = "00000000:F0:00.0"
    all_on, two_off = [switch] * 18, [switch] * 16 + ["", ""]
    found = links(gpu(1, switched=True, nvlinks=all_on), gpu(2, switched=True, nvlinks=two_off))
    assert found == [("", "NV16"), ("NV16", "")]


def test_gpus_with_nvlinks_to_each_other_are_linked_without_a_switch() -> None:
    """Two links from the first to the second, one to the third, which are behind different host bridges."""
    one, two, three = (f"00000000:{number:02X}:00.0" for number in (1, 2, 3))
    found = links(
        gpu(1, nvlinks=[two, two, three], behind=50),
        gpu(2, nvlinks=[one, one], behind=50),
        gpu(3, nvlinks=[one], behind=50),
    )
    assert found == [("", "NV2", "NV1"), ("NV2", "", "SYS"), ("NV1", "SYS", "")]


@pytest.mark.parametrize(
    ("number", "word"), [(10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS"), (7, "")]
)
def test_gpus_without_nvlinks_are_told_by_what_both_are_behind(number: int, word: str) -> None:
    """In the words of nvidia-smi."""
    assert links(gpu(1, behind=number), gpu(2, behind=number)) == [("", word), (word, "")]


def test_a_gpu_alone_has_no_links() -> None:
    """Nor is anything asked about them."""
    assert links(gpu(1)) == [()]


A100 = {"name": "NVIDIA A100-SXM4-40GB", "uuid": "GPU-a", "bus": "00000000:1B:00.0", "minor": 2, "total": 40960 << 20}
IN_MIG_MODE = {
    **A100,
    "slices": {
        0: {"name": "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "uuid": "MIG-0", "has": (3, 3, 19_968), "gi": 2},
        2: {"name": "NVIDIA A100-SXM4-40GB", "uuid": "MIG-2", "has": (1, 1, 4_864), "gi": 9},
        3: {"name": "NVIDIA A100-SXM4-40GB", "uuid": "MIG-3", "has": (3, 1, 19_968), "gi": 3},
        4: {"name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb+me", "uuid": "MIG-4", "has": (1, 1, 4_864), "gi": 4},
    },
}


def test_a_gpu_in_mig_mode_is_told_with_its_slices(tmp_path: Path) -> None:
    """By the profile in their names, or else by their attributes: 4,864 of 40,960 MiB are an eighth of 40 GB. The files
    of the first are known."""
    caps = "proc/driver/nvidia/capabilities/gpu2/mig/gi2"
    text = "DeviceFileMinor: {}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
    recorded(tmp_path, {f"{caps}/access": text.format(21), f"{caps}/ci0/access": text.format(22)})
    (found,) = read_gpus(tmp_path, Answers(IN_MIG_MODE))
    assert (found.mig, found.files) == (True, ("/dev/nvidia2",))
    assert found.slices == (
        SliceFacts(
            type="3g.20gb", uuid="MIG-0", memory_bytes=19_968 << 20,
            files=("/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"),
        ),
        SliceFacts(type="1g.5gb", uuid="MIG-2", memory_bytes=4_864 << 20),
        SliceFacts(type="1c.3g.20gb", uuid="MIG-3", memory_bytes=19_968 << 20),
        SliceFacts(type="1g.5gb.me", uuid="MIG-4", memory_bytes=4_864 << 20),
    )  # fmt: skip


def test_a_gpu_that_is_not_in_mig_mode_has_no_slices() -> None:
    """Nor one that knows no such mode."""
    (found,) = read_gpus(Path("/nowhere"), Answers(A100))
    assert (found.mig, found.slices) == (False, ())


def test_links_that_a_node_reports_have_bounds() -> None:
    """A hostile node may send long words, and too many."""
    sent = Facts(gpus=(GpuFacts(index=0, links=("x" * 100,) * 1_000),), sockets=(SocketFacts(id=1),) * 1_000)
    kept = bound_facts(sent)
    assert (len(kept.gpus[0].links), len(kept.gpus[0].links[0]), len(kept.sockets)) == (MAX_PARTS, 8, MAX_PARTS)


@pytest.mark.parametrize("nvml", [Answers(broken=True), Answers({"name": "lost", "bus": "", "total": 1})])
def test_a_driver_that_does_not_answer_is_no_gpu(nvml: Answers, tmp_path: Path) -> None:
    """Nor an error: the node works without."""
    assert (read_gpus(tmp_path, nvml), nvml.open) == ((), 0)


def test_without_a_driver_the_library_is_not_even_imported(tmp_path: Path) -> None:
    """Nothing lies where the driver's files would."""
    assert read_gpus(tmp_path) == ()


def test_the_library_has_what_is_used_of_it() -> None:
    """A newer nvidia-ml-py without one of these names would show no GPU."""
    nvml = pytest.importorskip("pynvml")
    assert [name for name in dir(Answers) if "vml" in name.lower() and not hasattr(nvml, name)] == []
