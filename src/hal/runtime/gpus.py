"""NVIDIA GPUs of this machine, through NVML if its driver is installed; otherwise none.

The library (nvidia-ml-py) is imported only on machines with the driver.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final, Protocol

from hal.core.model.facts import MAX_PARTS, MAX_TEXT, GpuFacts

DRIVER: Final = ("dev/nvidiactl", "proc/driver/nvidia/version")
"""One of these exists where the driver is installed."""


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


def read_gpus(root: Path = Path("/"), nvml: Nvml | None = None) -> tuple[GpuFacts, ...]:
    """Read all GPUs by index; () where there is no driver, or it does not answer.

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
        return tuple(_gpu(nvml, index, root) for index in range(min(nvml.nvmlDeviceGetCount(), MAX_PARTS)))
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
    return GpuFacts(
        index=index,
        model=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=memory,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        numa=_numa(_text(nvml.nvmlDeviceGetPciInfo(handle).busId), root),
    )


def _text(value: str | bytes) -> str:
    """Decode: older versions of the library return bytes."""
    return (value.decode(errors="replace") if isinstance(value, bytes) else value)[:MAX_TEXT]


def _numa(bus_id: str, root: Path) -> int:
    """The NUMA node of a PCI device; NVML writes its domain with eight digits, the kernel with four."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        return int((root / f"sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node").read_text())
    except (OSError, ValueError):
        return -1
