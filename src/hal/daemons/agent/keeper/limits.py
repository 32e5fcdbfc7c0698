"""Memory and CPU limits of steps by cgroup, version 1 or 2, where this user may make cgroups; words where not.

A step that asks for a limit gets a cgroup of its own, a *slot*: its helper moves itself in, spawns, and moves back
(about 30 µs a move). Slots are made under the keeper's own cgroup and used again by later steps of equal limits. CPU is
a quota: 1500 millicores is at most 150 ms of CPU time in 100 ms, however idle the node; and a weight in proportion.
Source: the kernel's Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path
from typing import Final

QUOTA_PERIOD_US: Final = 100_000
MIN_QUOTA_US: Final = 1_000
"""The kernel's own least quota."""
MIN_MEMORY_BYTES: Final = 6 << 20
"""The least memory limit that is set: below about 1 MiB the kernel ends the helper before it has spawned the step."""
MAX_FREE_SLOTS: Final = 64
"""Empty slots that are kept for later steps."""
MAX_REST_PART: Final = 16
"""A slot in which more than a 16th of its limit is still in use (files in /dev/shm, cached ones) is not used again."""
SHARES_PER_CORE: Final = 1_024
WEIGHT_PER_CORE: Final = 100
MEMBERS_BYTES: Final = 1 << 12
"""Read at once of a list of pids."""
CONTROLLERS: Final = ("memory", "cpu")


def cgroup_name(home: str, node: str) -> str:
    """Name of a keeper's directory: the same for each keeper of a node of a HAL_HOME."""
    return f"hal-{zlib.crc32(home.encode()):08x}-{node}"


class Slot:
    """The cgroups of one step at a time: one directory (v2), or one a controller (v1)."""

    __slots__ = ("_members", "cpu_milli", "directories", "memory_bytes", "name", "seen_kills")

    def __init__(self, name: str, directories: dict[str, Path], cpu_milli: int, memory_bytes: int) -> None:
        self.name = name
        self.directories = directories
        """By controller."""
        self._members = tuple(f"{path}/cgroup.procs" for path in set(directories.values()))
        self.cpu_milli = cpu_milli
        self.memory_bytes = memory_bytes
        self.seen_kills = 0
        """Processes that its memory limit had ended before this step began."""

    @property
    def tag(self) -> str:
        """How a helper's journal names it; `Cgroups.known` is the inverse."""
        return f"{self.name}:{self.seen_kills}"

    def pids(self) -> tuple[int, ...]:
        """Who is in it."""
        found: dict[int, None] = {}
        for path in self._members:
            # Asked at the end of each step: no more than the three calls that it takes.
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    text = b""
                    while data := os.read(fd, MEMBERS_BYTES):
                        text += data
                finally:
                    os.close(fd)
                found.update((int(pid), None) for pid in text.split())
        return tuple(found)


class Cgroups:
    """The slots of one keeper."""

    def __init__(self, name: str, *, root: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> None:
        """Find out what can be limited; makes the keeper's own directories.

        Args:
            name: of the directory made under the keeper's cgroup; the same for each keeper of a node of a HAL_HOME.
            root: where cgroup file systems are mounted.
            own: text of /proc/self/cgroup; read when None.
        """
        self.notes: list[str] = []
        self.version = 0
        self._bases: dict[str, Path] = {}
        """By controller: the directory under which slots are made."""
        self._homes: dict[str, Path] = {}
        """By controller: where helpers belong when they spawn nothing."""
        self._free: list[Slot] = []
        self._count = 0
        self._detect(name, root, Path("/proc/self/cgroup").read_text() if own is None else own)

    def moves(self, slot: Slot) -> list[tuple[str, str]]:
        """For each of the slot's cgroups: the file to write to in order to move in, and the one to move back out."""
        pairs = {path: self._homes[controller] for controller, path in slot.directories.items()}
        return [(f"{path}/cgroup.procs", f"{home}/cgroup.procs") for path, home in pairs.items()]

    def can_limit(self, controller: str) -> bool:
        return controller in self._bases

    # ── slots ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def acquire(self, cpu_milli: int, memory_bytes: int) -> Slot | None:
        """An empty slot with these limits (0: none); None when nothing asked for can be limited here.

        Raises:
            OSError: the kernel refused.
        """
        cpu_milli = cpu_milli if self.can_limit("cpu") else 0
        memory_bytes = memory_bytes if self.can_limit("memory") else 0
        if not cpu_milli and not memory_bytes:
            return None
        for position, slot in enumerate(self._free):
            if (slot.cpu_milli, slot.memory_bytes) == (cpu_milli, memory_bytes):
                del self._free[position]
                break
        else:
            slot = self._make(cpu_milli, memory_bytes)
        if memory_bytes:
            slot.seen_kills = self._kills(slot)
        return slot

    def release(self, slot: Slot) -> None:
        """The slot's step is over; a slot in which somebody still is, is left alone until `sweep`.

        What the step left in memory would count against the next one: such a slot is removed.
        """
        left = self._in_use(slot) * MAX_REST_PART > max(MIN_MEMORY_BYTES, slot.memory_bytes)
        if left or slot.pids() or len(self._free) >= MAX_FREE_SLOTS:
            _remove(slot)
        else:
            self._free.append(slot)

    def known(self, tag: str) -> Slot | None:
        """The slot that a helper's journal names, if it still exists."""
        name, _, kills = tag.partition(":")
        directories = {c: base / name for c, base in self._bases.items() if (base / name).is_dir()}
        if not name.startswith("s") or not directories:
            return None
        slot = Slot(name, directories, 0, 0)
        slot.seen_kills = int(kills or 0)
        return slot

    def out_of_memory(self, slot: Slot) -> bool:
        """Its memory limit has ended a process since the slot was acquired."""
        return "memory" in slot.directories and self._kills(slot) > slot.seen_kills

    def resize(self, slot: Slot, cpu_milli: int, memory_bytes: int) -> str:
        """Change limits (0 leaves one as it is); '' or why it could not."""
        try:
            self._limit(slot, cpu_milli, memory_bytes)
        except OSError as error:
            return f"{slot.name}: {error.strerror}"
        return ""

    def sweep(self, keep: set[str]) -> None:
        """Remove slots that an earlier keeper left behind, those named in `keep` excepted, and those in use."""
        for base in set(self._bases.values()):
            for entry in base.iterdir():
                if entry.is_dir() and entry.name.startswith("s") and entry.name not in keep:
                    with contextlib.suppress(OSError):
                        entry.rmdir()
                    self._count = max(self._count, int(entry.name[1:] or 0) if entry.name[1:].isdigit() else 0)

    def close(self) -> None:
        """Remove what is empty; a slot whose step goes on stays for the next keeper."""
        for base in set(self._bases.values()):
            for entry in base.iterdir():
                if entry.is_dir() and entry.name.startswith("s"):
                    with contextlib.suppress(OSError):
                        entry.rmdir()
            with contextlib.suppress(OSError):
                base.rmdir()

    def _make(self, cpu_milli: int, memory_bytes: int) -> Slot:
        wanted = {"cpu": cpu_milli, "memory": memory_bytes}
        while True:
            self._count += 1
            name = f"s{self._count}"
            directories = {c: base / name for c, base in self._bases.items() if wanted[c] or self.version == 2}
            try:
                for path in set(directories.values()):
                    path.mkdir()
            except FileExistsError:
                continue  # of a step that an earlier keeper began
            slot = Slot(name, directories, cpu_milli, memory_bytes)
            try:
                self._limit(slot, cpu_milli, memory_bytes)
            except OSError:
                _remove(slot)
                raise
            return slot

    def _limit(self, slot: Slot, cpu_milli: int, memory_bytes: int) -> None:
        memory, cpu = slot.directories.get("memory"), slot.directories.get("cpu")
        if memory_bytes and memory is not None:
            memory_bytes = max(MIN_MEMORY_BYTES, memory_bytes)
            if self.version == 2:
                _write(memory / "memory.max", memory_bytes)
                _write_if_there(memory / "memory.swap.max", 0)
                _write_if_there(memory / "memory.oom.group", 0)
            else:
                _write_both_ways(memory / "memory.limit_in_bytes", memory / "memory.memsw.limit_in_bytes", memory_bytes)
        if cpu_milli and cpu is not None:
            quota = max(MIN_QUOTA_US, cpu_milli * QUOTA_PERIOD_US // 1000)
            if self.version == 2:
                _write(cpu / "cpu.max", f"{quota} {QUOTA_PERIOD_US}")
                _write_if_there(cpu / "cpu.weight", min(10_000, max(1, cpu_milli * WEIGHT_PER_CORE // 1000)))
            else:
                _write(cpu / "cpu.cfs_period_us", QUOTA_PERIOD_US)
                _write(cpu / "cpu.cfs_quota_us", quota)
                _write_if_there(cpu / "cpu.shares", max(2, cpu_milli * SHARES_PER_CORE // 1000))

    def _in_use(self, slot: Slot) -> int:
        """Bytes that its memory limit counts; 0 for a slot without one."""
        if not slot.memory_bytes:
            return 0
        file = "memory.current" if self.version == 2 else "memory.usage_in_bytes"
        with contextlib.suppress(OSError):
            return int((slot.directories["memory"] / file).read_text())
        return 0

    def _kills(self, slot: Slot) -> int:
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        with contextlib.suppress(OSError):
            for line in (slot.directories["memory"] / file).read_text().splitlines():
                word, _, count = line.partition(" ")
                if word == "oom_kill":
                    return int(count)
        return 0

    # ── finding out ───────────────────────────────────────────────────────────────────────────────────────────────

    def _detect(self, name: str, root: Path, own: str) -> None:
        places: dict[str, str] = {}
        unified = ""
        for line in own.splitlines():
            _, names, path = line.split(":", 2)
            places.update((controller, path) for controller in names.split(",") if names)
            if not names:
                unified = path
        if any(controller in places for controller in CONTROLLERS):
            self.version = 1
            for controller in CONTROLLERS:
                self._detect_v1(controller, name, root, places.get(controller))
        elif (root / "cgroup.controllers").exists():
            self.version = 2
            self._detect_v2(name, root / unified.strip("/"))
        else:
            self.notes.append("memory and cpu limits are not enforced: no cgroup file system is mounted")

    def _detect_v1(self, controller: str, name: str, root: Path, place: str | None) -> None:
        if place is None:
            self.notes.append(
                f"{controller} limits are not enforced: this kernel has no {controller} cgroup controller"
            )
            return
        mount = next((root / entry for entry in (controller, f"{controller},cpuacct") if (root / entry).is_dir()), root)
        home = mount / place.strip("/")
        if not home.is_dir():
            home = mount  # a container sees only its own part of the tree
        base = home / name
        try:
            base.mkdir(exist_ok=True)
            probe = base / "probe"
            probe.mkdir(exist_ok=True)
            probe.rmdir()
        except OSError as error:
            text = f"{controller} limits are not enforced: {base} cannot be made: {error.strerror}"
            self.notes.append(text)
            return
        if controller == "memory":
            _write_if_there(base / "memory.use_hierarchy", 1)
        self._homes[controller], self._bases[controller] = home, base

    def _detect_v2(self, name: str, home: Path) -> None:
        """Slots need `+memory +cpu` handed down; a cgroup that hands down may hold no processes, so we move aside."""
        try:
            offered = (home / "cgroup.controllers").read_text().split()
            usable = [controller for controller in CONTROLLERS if controller in offered]
            base = home / name
            base.mkdir(exist_ok=True)
            aside = home / f"{name}-daemons"
            handed = (home / "cgroup.subtree_control").read_text().split()
            if not set(usable) <= set(handed):
                aside.mkdir(exist_ok=True)
                _write(aside / "cgroup.procs", os.getpid())
                home_now = aside
                try:
                    _write(home / "cgroup.subtree_control", " ".join(f"+{c}" for c in usable))
                except OSError:
                    _write(home / "cgroup.procs", os.getpid())
                    aside.rmdir()
                    raise
            else:
                home_now = home
            _write(base / "cgroup.subtree_control", " ".join(f"+{c}" for c in usable))
        except OSError as error:
            where = f"{error.filename or home}: {error.strerror}"
            self.notes.append(f"memory and cpu limits are not enforced: no cgroup was delegated to this user ({where})")
            return
        for controller in CONTROLLERS:
            if controller in usable:
                self._bases[controller], self._homes[controller] = base, home_now
            else:
                self.notes.append(f"{controller} limits are not enforced: the controller is not offered in {home}")


def _remove(slot: Slot) -> None:
    for path in set(slot.directories.values()):
        with contextlib.suppress(OSError):
            path.rmdir()


def _write(path: Path, value: object) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)


def _write_if_there(path: Path, value: object) -> None:
    """Settings that some kernels lack, and that some refuse once set."""
    with contextlib.suppress(OSError):
        _write(path, value)


def _write_both_ways(limit: Path, with_swap: Path, value: int) -> None:
    """memory+swap may not be below memory: which goes first depends on whether the limit grows."""
    _write_if_there(with_swap, value)
    _write(limit, value)
    _write_if_there(with_swap, value)
