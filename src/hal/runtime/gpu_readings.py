"""How much the GPUs of this machine are used at an instant: NVIDIA's through NVML, AMD's as the kernel says.

Blocking, some milliseconds a GPU; a broken driver may take as long as it likes, so callers bound the time. NVML is
initialised once and kept, because that takes longer than all else; after an error it is begun again.
"""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct

from hal.runtime.gpus import DRIVER

MAX_GPUS: Final = 64
TEMPERATURE_GPU: Final = 0
"""NVML's number of the sensor."""


class GpuReading(Struct, frozen=True, kw_only=True):
    """One GPU; None: it does not say."""

    uuid: str
    index: int
    utilisation: float | None = None
    """0..1: the part of the last moments in which a kernel ran."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None


class NvmlUse(Protocol):
    """The functions of the library `pynvml` that are used here."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...
    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int: ...
    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int: ...


class GpuReader:
    """Reads all GPUs of the machine."""

    def __init__(self, root: Path = Path("/"), nvml: NvmlUse | None = None) -> None:
        """
        Args:
            nvml: the library; by default pynvml, where the driver is installed.
        """
        self._root = root
        self._nvml = nvml
        self._handles: list[tuple[str, Any]] | None = None
        """Of NVIDIA's, with their uuids; None: not initialised."""

    def read(self) -> list[GpuReading]:
        """Return a reading of each GPU by index; none where there are none."""
        found = self._nvidia()
        return found + self._amd(len(found))

    def close(self) -> None:
        """Let the library go."""
        if self._handles is not None and self._nvml is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
        self._handles = None

    def _nvidia(self) -> list[GpuReading]:
        nvml = self._library()
        if nvml is None:
            return []
        try:
            if self._handles is None:
                nvml.nvmlInit()
                handles = [
                    nvml.nvmlDeviceGetHandleByIndex(one) for one in range(min(nvml.nvmlDeviceGetCount(), MAX_GPUS))
                ]
                self._handles = [(_text(nvml.nvmlDeviceGetUUID(handle)), handle) for handle in handles]
            return [_read_one(nvml, index, uuid, handle) for index, (uuid, handle) in enumerate(self._handles)]
        except nvml.NVMLError:
            self.close()
            return []

    def _library(self) -> NvmlUse | None:
        if self._nvml is None and any((self._root / file).exists() for file in DRIVER):
            with contextlib.suppress(ImportError):
                self._nvml = importlib.import_module("pynvml")
        return self._nvml

    def _amd(self, first: int) -> list[GpuReading]:
        found: list[GpuReading] = []
        for device in sorted(self._root.glob("sys/class/drm/card[0-9]*/device")):
            busy = _number(device / "gpu_busy_percent")
            if busy is None or len(found) >= MAX_GPUS:
                continue
            unique = ""
            with contextlib.suppress(OSError):
                unique = (device / "unique_id").read_text().strip()
            found.append(
                GpuReading(
                    uuid=f"GPU-{unique}" if unique else "",
                    index=first + len(found),
                    utilisation=busy / 100,
                    memory_used_bytes=_number(device / "mem_info_vram_used"),
                    memory_total_bytes=_number(device / "mem_info_vram_total"),
                )
            )
        return found


def _read_one(nvml: NvmlUse, index: int, uuid: str, handle: Any) -> GpuReading:
    """What it does not support is left out."""
    memory = _asked(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _asked(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    power = _asked(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    temperature = _asked(nvml, nvml.nvmlDeviceGetTemperature, handle, TEMPERATURE_GPU)
    return GpuReading(
        uuid=uuid,
        index=index,
        utilisation=None if rates is None else int(rates.gpu) / 100,
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        power_watts=None if power is None else int(power) / 1000,
        temperature_celsius=None if temperature is None else float(temperature),
    )


def _asked(nvml: NvmlUse, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except nvml.NVMLError as error:
        if type(error).__name__ in ("NVMLError_GpuIsLost", "NVMLError_Uninitialized", "NVMLError_Unknown"):
            raise
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
