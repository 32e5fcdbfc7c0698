"""What one running step uses, as the kernel counts it in the step's cgroup, version 1 or 2.

The cgroup is found through the step's first process, and only a slot of HAL's is believed: what a step has created
below it, and what it shares with others, is not taken for its own. Blocking, about 15 µs a file. Source: the kernel's
Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from msgspec import Struct

READ_BYTES: Final = 1 << 13
ENVIRONMENT_BYTES: Final = 1 << 18
MAX_GPUS: Final = 64
"""Of one step."""
_SLOT: Final = re.compile(r"(?:/[^/]+)*/hal-[0-9a-f]{8}-[^/]+/s[0-9]{1,18}(?=/|\Z)")


class StepReading(Struct, frozen=True, kw_only=True):
    """Counters and levels at one instant; None: not counted here."""

    cpu_us: int | None = None
    """Of the slot, which steps before may have used."""
    memory_bytes: int | None = None
    """In use, without file pages that the kernel would drop first."""
    peak_bytes: int | None = None
    read_bytes: int | None = None
    """Of the slot, as `cpu_us`."""
    written_bytes: int | None = None
    processes: int | None = None


NOTHING: Final = StepReading()


class StepReader:
    """Of one step."""

    def __init__(self, pid: int, root: Path = Path("/")) -> None:
        """
        Args:
            pid: of its first process.
            root: the directory that contains /proc and /sys.
        """
        self._root = root
        self._places = _places(pid, root)
        self.gpus = _gpus(pid, root)
        """Indexes and uuids of those that it was given; empty: none, or it does not say."""

    def read(self) -> StepReading:
        """Return what its slot says now; nothing where it has none, or is over."""
        unified = self._places.get("")
        if unified is not None and not self._places.keys() - {""}:
            return self._read_unified(unified)
        memory, pids = self._places.get("memory"), self._places.get("pids")
        cpu = self._places.get("cpuacct")
        used = None if memory is None else _number(memory / "memory.usage_in_bytes")
        if memory is not None and used is not None:
            used -= min(used, _field(memory / "memory.stat", b"total_inactive_file "))
        nanoseconds = None if cpu is None else _number(cpu / "cpuacct.usage")
        return StepReading(
            cpu_us=None if nanoseconds is None else nanoseconds // 1000,
            memory_bytes=used,
            peak_bytes=None if memory is None else _number(memory / "memory.max_usage_in_bytes"),
            processes=None if pids is None else _number(pids / "pids.current"),
        )

    def _read_unified(self, place: Path) -> StepReading:
        used = _number(place / "memory.current")
        if used is not None:
            used -= min(used, _field(place / "memory.stat", b"inactive_file "))
        read, written = _io(place / "io.stat")
        return StepReading(
            cpu_us=_field(place / "cpu.stat", b"usage_usec ") or None,
            memory_bytes=used,
            peak_bytes=_number(place / "memory.peak"),
            read_bytes=read,
            written_bytes=written,
            processes=_number(place / "pids.current"),
        )


def _places(pid: int, root: Path) -> dict[str, Path]:
    """The directories of its slot by controller; that of version 2 by ''."""
    found: dict[str, Path] = {}
    mounts = root / "sys/fs/cgroup"
    for line in _bytes(root / f"proc/{pid}/cgroup").decode(errors="replace").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        slot = _SLOT.match(path)
        if slot is None:
            continue
        below = slot[0].lstrip("/")
        if not controllers:
            base = mounts if (mounts / "cgroup.controllers").exists() else mounts / "unified"
            found[""] = base / below
            continue
        for controller in controllers.split(","):
            for name in (controllers, controller):
                if (mounts / name / below).is_dir():
                    found[controller] = mounts / name / below
                    break
    return found


def _gpus(pid: int, root: Path) -> tuple[str, ...]:
    names: list[str] = []
    for variable in _bytes(root / f"proc/{pid}/environ", ENVIRONMENT_BYTES).split(b"\0"):
        name, _, value = variable.partition(b"=")
        if name in (b"HAL_DEVICES", b"HAL_DEVICE_UUIDS"):
            names += [one for one in value.decode(errors="replace").split(",") if one]
    return tuple(names[: 2 * MAX_GPUS])


def _bytes(path: Path, most: int = READ_BYTES) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(fd, most)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _number(path: Path) -> int | None:
    text = _bytes(path).strip()
    return int(text) if text.isdigit() else None


def _field(path: Path, name: bytes) -> int:
    """The number behind a name at the beginning of a line; 0 if it is not there."""
    for line in _bytes(path).splitlines():
        if line.startswith(name):
            text = line[len(name) :].strip()
            return int(text) if text.isdigit() else 0
    return 0


def _io(path: Path) -> tuple[int | None, int | None]:
    text = _bytes(path)
    if not text:
        return None, None
    sums = {b"rbytes": 0, b"wbytes": 0}
    for word in text.split():
        name, _, value = word.partition(b"=")
        if name in sums and value.isdigit():
            sums[name] += int(value)
    return sums[b"rbytes"], sums[b"wbytes"]
