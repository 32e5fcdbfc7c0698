"""One slot: the cgroups of one step, their settings, members and removal.

A slot's settings are read back before it is reused: a step that may write to cgroup files (every step of a root keeper,
or of one whose cgroup was delegated) could have changed anything in it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from hal.daemons.agent.keeper.device_program import attached_programs
from hal.daemons.agent.keeper.devices import DeviceRules
from hal.daemons.agent.keeper.meters import Meters

READ_BYTES: Final = 1 << 12
"""Bytes read at once of a list of pids."""
SETTING_BYTES: Final = 64
"""Bytes read of a settings file."""
MAX_NESTED: Final = 4_096
"""Cgroups created by a step in its own, of which any are read or removed at a time."""
FREEZER: Final = "/sys/fs/cgroup/freezer"
EMPTY_LINKS: Final = 2
"""Links of a directory without subdirectories."""
SETTINGS: Final = {
    "memory": (
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "memory.soft_limit_in_bytes",
        "memory.swappiness",
        "memory.oom_control",
        "memory.max",
        "memory.high",
        "memory.low",
        "memory.min",
        "memory.swap.max",
        "memory.swap.high",
        "memory.zswap.max",
        "memory.oom.group",
    ),
    "cpu": (
        "cpu.cfs_quota_us",
        "cpu.cfs_period_us",
        "cpu.cfs_burst_us",
        "cpu.shares",
        "cpu.max",
        "cpu.max.burst",
        "cpu.weight",
        "cpu.idle",
    ),
    "pids": ("pids.max",),
    "devices": ("devices.list",),
}
"""By controller: the settings files of both versions of cgroups."""
COMMON: Final = (
    "notify_on_release",
    "cgroup.freeze",
    "cgroup.subtree_control",
    "cgroup.max.depth",
    "cgroup.max.descendants",
    "cgroup.type",
)
"""Settings files of any cgroup."""

COUNTING: Final = "memory.oom_control"
"""Its first line is a setting; in the others the kernel counts."""
COUNTING_BYTES: Final = len("oom_kill_disable 0\n")
DEVICES: Final = "devices.list"
DEVICES_BYTES: Final = 1 << 13
"""Bytes read of it: a line for each device."""
SIZES: Final = {COUNTING: COUNTING_BYTES, DEVICES: DEVICES_BYTES}

Settings = tuple[bytes, ...]
"""The content of each settings file."""


class Slot:
    """The cgroups of one step at a time: one directory (v2), or one per controller (v1)."""

    __slots__ = (
        "_count",
        "_files",
        "_programs",
        "asks",
        "confined",
        "cpu_milli",
        "devices",
        "directories",
        "max_processes",
        "memory_bytes",
        "meters",
        "name",
        "places",
        "seen_kills",
        "settings",
    )

    def __init__(
        self,
        name: str,
        directories: dict[str, Path],
        cpu_milli: int,
        memory_bytes: int,
        max_processes: int,
        devices: DeviceRules = (),
    ) -> None:
        self.name = name
        self.directories = directories
        """By controller."""
        self.places = tuple(dict.fromkeys(map(str, directories.values())))
        self.cpu_milli = cpu_milli
        self.memory_bytes = memory_bytes
        self.max_processes = max_processes
        self.devices = devices
        """That its processes may use; (): all."""
        self.asks = (cpu_milli, memory_bytes, max_processes, devices)
        """Slots of equal limits are interchangeable."""
        self.confined = False
        """Its cgroup was told which CPUs its processes may use; it is not reused."""
        self.seen_kills = 0
        """Processes that its memory limit had killed before this step began."""
        self.meters: Meters | None = None
        """None: nothing of it is counted, or the counters at its step's start are not known."""
        self.settings: Settings | None = None
        """Its original settings; None: unknown, so it is not reused."""
        self._files: list[tuple[int, int]] = []
        """Open settings files, each with how much of it is read: a sixth of the cost of opening it again."""
        self._count = -1
        """An open file that counts its members and those below it; -1: none."""
        self._programs = -1
        """Its open directory, if a program says which devices may be used; -1: none does."""

    def add(self, controller: str, directory: Path) -> None:
        """Add a cgroup of a further controller."""
        self.directories[controller] = directory
        self.places = tuple(dict.fromkeys(map(str, self.directories.values())))

    @property
    def tag(self) -> str:
        """Its name in a helper's journal; `Cgroups.known` is the inverse."""
        return f"{self.name}:{self.seen_kills}"

    # ── what is set ───────────────────────────────────────────────────────────────────────────────────────────────

    def read_settings(self) -> Settings:
        """Read its current settings.

        Raises:
            OSError: a cgroup of it is gone.
        """
        if not self._files:
            self._open()
        found = tuple([os.pread(fd, size, 0) for fd, size in self._files])
        return found if self._programs < 0 else (*found, attached_programs(self._programs))

    @property
    def open_files(self) -> int:
        """The number of descriptors that it holds."""
        own = len(self._files) + (self._count >= 0) + (self._programs >= 0)
        return own + (self.meters.open_files if self.meters is not None else 0)

    def close(self) -> None:
        """Close its descriptors; they are opened again when needed."""
        for fd, _ in self._files:
            os.close(fd)
        self._files.clear()
        if self.meters is not None:
            self.meters.close()
        for fd in (self._count, self._programs):
            if fd >= 0:
                os.close(fd)
        self._count = self._programs = -1

    def _open(self) -> None:
        common = set(self.places)
        for controller, directory in self.directories.items():
            place = str(directory)
            names = (*SETTINGS[controller], *COMMON) if place in common else SETTINGS[controller]
            common.discard(place)
            for name in names:
                with contextlib.suppress(FileNotFoundError, PermissionError, IsADirectoryError):
                    fd = os.open(f"{place}/{name}", os.O_RDONLY | os.O_CLOEXEC)
                    self._files.append((fd, SIZES.get(name, SETTING_BYTES)))
        if self.devices and not os.path.exists(f"{self.directories['devices']}/{DEVICES}"):
            self._programs = os.open(self.directories["devices"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if "pids" in self.directories:
            self._count = os.open(f"{self.directories['pids']}/pids.current", os.O_RDONLY | os.O_CLOEXEC)

    # ── who is in it ──────────────────────────────────────────────────────────────────────────────────────────────

    def is_empty(self) -> bool:
        """Whether no process is in it."""
        try:
            if self._count >= 0:
                return os.pread(self._count, SETTING_BYTES, 0) == b"0\n"
        except OSError:
            return False
        return not self.pids()

    def is_plain(self) -> bool:
        """Whether no cgroup was created in it."""
        try:
            return all(os.stat(place).st_nlink == EMPTY_LINKS for place in self.places)
        except OSError:
            return False

    def is_inhabited(self) -> bool:
        """Whether a process is certainly in it, or below it, even one whose pid never lasts long enough to be read."""
        place = self.directories.get("pids")
        if place is None:
            return bool(self.pids())
        try:
            return int((place / "pids.current").read_bytes()) > 0
        except OSError:
            return False  # its step has removed it

    def pids(self) -> tuple[int, ...]:
        """Return the processes in it, and in cgroups created in it."""
        found: dict[int, None] = {}
        for place in self.places:
            found.update(dict.fromkeys(_members(place)))
            with contextlib.suppress(OSError):
                if os.stat(place).st_nlink > EMPTY_LINKS:
                    for nested in nested_places(place):
                        found.update(dict.fromkeys(_members(nested)))
        return tuple(found)

    def kill(self, spare: Collection[int]) -> None:
        """Prevent forks in it from now on; if the kernel supports it, kill everything in it at once.

        Args:
            spare: HAL's own processes: one of them may be passing through.
        """
        place = self.directories.get("pids")
        if place is not None:
            for path in (str(place), *nested_places(str(place))):
                _write_if_there(f"{path}/pids.max", b"0")
        for path in self.places:
            if os.path.exists(f"{path}/cgroup.kill") and not set(self.pids()) & set(spare):
                _write_if_there(f"{path}/cgroup.kill", b"1")

    def remove(self) -> bool:
        """Remove it with the cgroups created in it; returns whether nothing of it is left."""
        self.close()
        for place in self.places:
            for path in (*reversed(nested_places(place)), place):
                with contextlib.suppress(OSError):
                    os.rmdir(path)
        return not any(os.path.exists(place) for place in self.places)


def thaw(pid: int) -> None:
    """Thaw a process that was frozen in a version 1 cgroup that is not ours: SIGKILL would not end it."""
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        _, names, path = line.split(b":", 2)
        if names == b"freezer" and line not in _read("/proc/self/cgroup").splitlines():
            _write_if_there(f"{FREEZER}{os.fsdecode(path)}/freezer.state", b"THAWED")


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        return file.read(READ_BYTES)
    return b""


def nested_places(place: str) -> list[str]:
    """Return the cgroups below that one, outer ones first; at most `MAX_NESTED`."""
    found: list[str] = []
    level = [place]
    while level and len(found) < MAX_NESTED:
        inner: list[str] = []
        for path in level:
            with contextlib.suppress(OSError), os.scandir(path) as entries:
                inner += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        found += inner
        level = inner
    return found[:MAX_NESTED]


def _members(place: str) -> list[int]:
    # Called at the end of each step: only the three necessary system calls. Version 1 keeps the list for as long as the
    # file is open, so it is opened each time.
    try:
        fd = os.open(f"{place}/cgroup.procs", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        text = b""
        while data := os.read(fd, READ_BYTES):
            text += data
        return [int(pid) for pid in text.split()]
    except OSError:
        return []
    finally:
        os.close(fd)


def _write_if_there(path: str, value: bytes) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, value)
        finally:
            os.close(fd)
