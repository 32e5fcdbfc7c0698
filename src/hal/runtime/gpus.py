"""GPUs of this machine: NVIDIA's through NVML if its driver is installed, AMD's as the kernel describes them.

NVML's library (nvidia-ml-py) is imported only on machines with the driver.
"""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec.structs import replace

from hal.core.model.facts import MAX_GPU_FILES, MAX_PARTS, MAX_SLICES, MAX_TEXT, MAX_TOLD, GpuFacts, SliceFacts
from hal.core.model.gpu_slices import slice_type
from hal.runtime.amd_gpus import read_amd_gpus

DRIVER: Final = ("dev/nvidiactl", "proc/driver/nvidia/version")
"""One of these exists where the driver is installed."""


MAX_NVLINKS: Final = 36
"""Of one GPU."""
P2P_NVLINK: Final = 2
P2P_OK: Final = 0
ANCESTORS: Final = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""By NVML's number: what two GPUs are behind, as `nvidia-smi topo` writes it."""
MIG_ON: Final = 1
EIGHTHS: Final = 8
"""Memory slices of a GPU."""
GIB: Final = 1 << 30
MIB: Final = 1 << 20
_PROFILE: Final = re.compile(r"\bMIG (\S+)\Z")
"""At the end of a slice's name."""
_CAP: Final = re.compile(r"^DeviceFileMinor:\s*([0-9]{1,6})$", re.MULTILINE)


class Nvml(Protocol):
    """The functions of the library `pynvml` that HAL uses."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetName(self, handle: Any) -> str | bytes: ...
    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...
    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int: ...
    def nvmlDeviceGetTopologyCommonAncestor(self, handle: Any, other: Any) -> int: ...
    def nvmlDeviceGetP2PStatus(self, handle: Any, other: Any, index: int) -> int: ...
    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> int: ...
    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Any, link: int) -> Any: ...
    def nvmlDeviceGetMigMode(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any: ...
    def nvmlDeviceGetAttributes(self, handle: Any) -> Any: ...
    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int: ...
    def nvmlDeviceGetComputeInstanceId(self, handle: Any) -> int: ...


def machine_gpus(declared: tuple[GpuFacts, ...] = (), root: Path = Path("/")) -> tuple[GpuFacts, ...]:
    """Read all GPUs by index: those that the site declares, or else NVIDIA's and then AMD's."""
    if declared:
        return declared
    found = read_gpus(root)
    others = read_amd_gpus(root, len(found))
    if found and others:  # links are by position among all
        none_before, none_behind = ("",) * len(found), ("",) * len(others)
        found = tuple(replace(gpu, links=(gpu.links or ("",)) + none_behind) for gpu in found)
        others = tuple(replace(gpu, links=none_before + (gpu.links or ("",))) for gpu in others)
    return (*found, *others)[:MAX_PARTS]


def read_gpus(root: Path = Path("/"), nvml: Nvml | None = None) -> tuple[GpuFacts, ...]:
    """Read all of NVIDIA's by index; () where there is no driver, or it does not answer.

    Args:
        root: the directory that contains /dev, /proc and /sys.
        nvml: the library; by default pynvml, if the driver is installed.
    """
    if nvml is None:
        if not any((root / file).exists() for file in DRIVER):
            return ()
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return ()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    try:
        found = [_gpu(nvml, index, root) for index in range(min(nvml.nvmlDeviceGetCount(), MAX_PARTS))]
        return _with_links(nvml, found)
    except nvml.NVMLError:
        return ()
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Nvml, index: int, root: Path) -> GpuFacts:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:
        memory = 0  # a GPU that shares the machine's memory has none of its own
    pci = _pci_address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
    mig = _in_mig_mode(nvml, handle)
    return GpuFacts(
        index=index,
        vendor="nvidia",
        model=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=memory,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        numa=_numa(pci, root),
        pci=pci,
        cpus=_near_cpus(pci, root),
        files=_files(nvml, handle, pci, root),
        mig=mig,
        slices=_slices(nvml, handle, memory, root) if mig else (),
    )


def _in_mig_mode(nvml: Nvml, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0] == MIG_ON)
    except nvml.NVMLError:
        return False  # it has no such mode


def _slices(nvml: Nvml, handle: Any, gpu_memory_bytes: int, root: Path) -> tuple[SliceFacts, ...]:
    """Its slices that have a type; there are gaps where some were removed."""
    found = []
    for index in range(MAX_SLICES):
        try:
            one = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            uuid = _text(nvml.nvmlDeviceGetUUID(one))
            memory_bytes, name = _slice_type(nvml, one, gpu_memory_bytes)
        except nvml.NVMLError:
            continue
        if name:
            files = _slice_files(nvml, handle, one, root)
            found.append(SliceFacts(type=name, uuid=uuid, memory_bytes=memory_bytes, files=files))
    return tuple(found)


def _slice_type(nvml: Nvml, one: Any, gpu_memory_bytes: int) -> tuple[int, str]:
    """The memory of a slice, and its type: the end of its name, or as NVIDIA derives it from its attributes
    (go-nvlib, `device.GetMigProfile`): memory in eighths of that of its GPU."""
    has = nvml.nvmlDeviceGetAttributes(one)
    memory_bytes = int(has.memorySizeMB) * MIB
    named = _PROFILE.search(_text(nvml.nvmlDeviceGetName(one)))
    if named and slice_type(named[1]):
        return memory_bytes, slice_type(named[1])
    if not gpu_memory_bytes:
        return memory_bytes, ""
    eighths = math.ceil(memory_bytes / gpu_memory_bytes * EIGHTHS)
    gigabytes = round(eighths / EIGHTHS * math.ceil(gpu_memory_bytes / GIB))
    of_gpu, compute = int(has.gpuInstanceSliceCount), int(has.computeInstanceSliceCount)
    part = f"{compute}c." if compute < of_gpu else ""
    return memory_bytes, slice_type(f"{part}{of_gpu}g.{gigabytes}gb")


def _slice_files(nvml: Nvml, handle: Any, one: Any, root: Path) -> tuple[str, ...]:
    """The device files that let a process use a slice, beside those of its GPU: of its GPU instance, and of its
    compute instance; () where they are not known."""
    try:
        mig = f"proc/driver/nvidia/capabilities/gpu{int(nvml.nvmlDeviceGetMinorNumber(handle))}/mig"
        instance = f"{mig}/gi{int(nvml.nvmlDeviceGetGpuInstanceId(one))}"
        compute = f"{instance}/ci{int(nvml.nvmlDeviceGetComputeInstanceId(one))}"
        texts = [(root / place / "access").read_text()[:MAX_TOLD] for place in (instance, compute)]
    except (nvml.NVMLError, OSError, ValueError):
        return ()
    minors = [_CAP.search(text) for text in texts]
    return tuple(f"/dev/nvidia-caps/nvidia-cap{minor[1]}" for minor in minors if minor) if all(minors) else ()


def _files(nvml: Nvml, handle: Any, pci: str, root: Path) -> tuple[str, ...]:
    """Its device files: the driver's own, and those of its graphics."""
    try:
        own = [f"/dev/nvidia{int(nvml.nvmlDeviceGetMinorNumber(handle))}"]
    except nvml.NVMLError:
        own = []
    try:
        graphics = sorted(entry.name for entry in (root / f"sys/bus/pci/devices/{pci}/drm").iterdir())
    except OSError:
        graphics = []
    named = [f"/dev/dri/{name}" for name in graphics if name.startswith(("card", "renderD"))]
    return tuple((own + named)[:MAX_GPU_FILES]) if own else ()


def _with_links(nvml: Nvml, gpus: list[GpuFacts]) -> tuple[GpuFacts, ...]:
    """The same with the links between them."""
    if len(gpus) < 2:
        return tuple(gpus)
    handles = [nvml.nvmlDeviceGetHandleByIndex(gpu.index) for gpu in gpus]
    ends = [_nvlink_ends(nvml, handle) for handle in handles]
    addresses = {gpu.pci for gpu in gpus}
    to_switches = [sum(end not in addresses for end in far) for far in ends]

    def link(one: int, other: int) -> str:
        if one == other:
            return ""
        direct = ends[one].count(gpus[other].pci)
        if not direct and _linked(nvml, handles[one], handles[other]):
            direct = min(to_switches[one], to_switches[other])
        return f"NV{direct}" if direct else _ancestor(nvml, handles[one], handles[other])

    numbers = range(len(gpus))
    return tuple(replace(gpus[one], links=tuple(link(one, other) for other in numbers)) for one in numbers)


def _nvlink_ends(nvml: Nvml, handle: Any) -> list[str]:
    """PCI addresses of what is at the other end of each active NVLink of a GPU: GPUs or switches."""
    found = []
    for number in range(MAX_NVLINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, number):
                found.append(_pci_address(_text(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, number).busId)))
        except nvml.NVMLError:
            break  # it has no more of them
    return found


def _linked(nvml: Nvml, handle: Any, other: Any) -> bool:
    """Whether two GPUs reach each other over NVLink, directly or through switches."""
    try:
        return nvml.nvmlDeviceGetP2PStatus(handle, other, P2P_NVLINK) == P2P_OK
    except nvml.NVMLError:
        return False


def _ancestor(nvml: Nvml, handle: Any, other: Any) -> str:
    """The narrowest thing that two GPUs are behind; '' if it is not known."""
    try:
        return ANCESTORS.get(nvml.nvmlDeviceGetTopologyCommonAncestor(handle, other), "")
    except nvml.NVMLError:
        return ""


def _text(value: str | bytes) -> str:
    """Decode: older versions of the library return bytes."""
    return (value.decode(errors="replace") if isinstance(value, bytes) else value)[:MAX_TEXT]


def _pci_address(bus_id: str) -> str:
    """As /sys has it: NVML writes the domain with eight digits, the kernel with four."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _near_cpus(pci: str, root: Path) -> str:
    try:
        return (root / f"sys/bus/pci/devices/{pci}/local_cpulist").read_text()[:MAX_TOLD].strip()
    except (OSError, ValueError):
        return ""


def _numa(pci: str, root: Path) -> int:
    try:
        return int((root / f"sys/bus/pci/devices/{pci}/numa_node").read_text())
    except (OSError, ValueError):
        return -1
