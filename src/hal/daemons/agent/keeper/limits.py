"""Memory, CPU, process and device limits of steps by cgroup, version 1 or 2, if this user may create cgroups; otherwise
a note.

A step gets a cgroup of its own, a *slot*: its helper moves itself in, spawns, and moves back (5 to 30 µs per move).
Slots are created under the keeper's own cgroup and reused by later steps with equal limits, unless any setting in them
has changed: what a step changed, left behind or created in its slot ends with the slot. CPU is a quota: 1500 millicores
is at most 150 ms of CPU time in 100 ms, however idle the node; and a proportional weight. Processes are limited for
every step, even one that requests nothing. Source: the kernel's Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hal.core.model.cpu_lists import format_cpus
from hal.daemons.agent.arguments import MAX_PROCESSES
from hal.daemons.agent.keeper.device_program import DevicePrograms
from hal.daemons.agent.keeper.devices import STANDARD, DeviceRules
from hal.daemons.agent.keeper.meters import Meters
from hal.daemons.agent.keeper.slot import Settings, Slot, nested_places
from hal.wire.frames.agent_keeper import Usage

QUOTA_PERIOD_US: Final = 100_000
MIN_QUOTA_US: Final = 1_000
"""The kernel's own minimum quota."""
MIN_MEMORY_BYTES: Final = 6 << 20
"""The smallest memory limit that is set: below about 1 MiB the kernel kills the helper before it has spawned the
step."""
MAX_FREE_SLOTS: Final = 64
"""Empty slots that are kept for later steps."""
MAX_REST_PART: Final = 16
"""A slot in which more than a 16th of its limit is still in use (files in /dev/shm, cached ones) is not reused."""
SHARES_PER_CORE: Final = 1_024
WEIGHT_PER_CORE: Final = 100
MIN_PROCESSES: Final = 8
"""The smallest such limit: the helper that spawns the step counts for a moment, too."""
MAX_OPEN_FILES: Final = 640
"""Descriptors kept for reading slots' settings again."""
MAX_BUSY_SLOTS: Final = 64
"""Slots that could not be removed yet and are retried; the next keeper removes any beyond this."""
TAG: Final = re.compile(r"(s[0-9]{1,18}):([0-9]{1,18})")
"""The form of a slot's name in a helper's journal, which steps can write to as well: no path is built from anything
else."""
MAX_NAMES: Final = 10_000
"""Names of slots that are tried: a step may have created cgroups with that many names beforehand."""
JOIN_PASSES: Final = 8
"""Passes over the processes of a step that joins a cgroup: each fork is seen by the next pass, or is born there."""
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
CONTROLLERS: Final = ("pids", "memory", "cpu")
"""A helper asks the first one which processes are left of a step."""
CPUSET: Final = "cpuset"
"""The controller that keeps the processes of a step on its CPUs; set for steps that run for long (`cpu_binding`)."""
DEVICES: Final = "devices"
"""A controller of version 1; in version 2 a program that is attached to a cgroup (`device_program`). Used only where
the site restricts devices."""
UNITS: Final = {"pids": "process", "memory": "memory", "cpu": "cpu", DEVICES: "device"}
"""By controller: what it limits, for messages."""


def cgroup_name(home: str, node: str) -> str:
    """Return the name of a keeper's directory: the same for each keeper of a node of a HAL_HOME."""
    return f"hal-{zlib.crc32(home.encode()):08x}-{node}"


class Cgroups:
    """The slots of one keeper."""

    def __init__(
        self,
        name: str,
        *,
        max_processes: int = MAX_PROCESSES,
        devices: bool = False,
        binds: bool = False,
        root: Path = Path("/sys/fs/cgroup"),
        own: str | None = None,
    ) -> None:
        """Detect what can be limited; creates the keeper's own directories.

        Args:
            name: of the directory created under the keeper's cgroup; the same for each keeper of a node of a HAL_HOME.
            max_processes: of each step; 0: the kernel's limit.
            devices: steps may be kept from devices.
            binds: steps have CPUs of their own.
            root: where cgroup file systems are mounted.
            own: text of /proc/self/cgroup; read if None.
        """
        self.notes: list[str] = []
        self.version = 0
        self._bases: dict[str, Path] = {}
        """By controller: the directory in which slots are created."""
        self._homes: dict[str, Path] = {}
        """By controller: where helpers are while they spawn nothing."""
        self._cpuset: Path | None = None
        """The directory in which CPUs of slots are set; version 2: that of all slots."""
        self._max_processes = max(MIN_PROCESSES, max_processes) if max_processes else 0
        self._free: list[Slot] = []
        self._busy: list[Slot] = []
        """Slots that are not reused and could not be removed yet."""
        self._open_files = 0
        self._count = 0
        self._restricts_devices = devices
        self._binds = binds
        self._programs = DevicePrograms()
        self._detect(name, root, Path("/proc/self/cgroup").read_text() if own is None else own)

    def moves(self, slot: Slot) -> list[tuple[str, str]]:
        """Return for each of the slot's cgroups: the file to write to in order to move in, and the one to move back
        out."""
        pairs = {path: self._homes[controller] for controller, path in slot.directories.items()}
        return [(f"{path}/cgroup.procs", f"{home}/cgroup.procs") for path, home in pairs.items()]

    def ways_back(self) -> tuple[str, ...]:
        """Return the files by which helpers move back out of the cgroups of their steps."""
        homes = (home for controller, home in self._homes.items() if controller != CPUSET)
        return tuple(dict.fromkeys(f"{home}/cgroup.procs" for home in homes))

    def can_limit(self, controller: str) -> bool:
        return controller in self._bases

    @property
    def can_confine(self) -> bool:
        """Whether steps can be kept from other CPUs than theirs."""
        return self._cpuset is not None

    # ── slots ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def acquire(self, cpu_milli: int, memory_bytes: int, devices: DeviceRules = ()) -> Slot | None:
        """Return an empty slot with these limits (0, (): none); None if nothing requested can be limited here.

        Raises:
            OSError: the kernel refused.
        """
        cpu_milli = cpu_milli if self.can_limit("cpu") else 0
        memory_bytes = memory_bytes if self.can_limit("memory") else 0
        max_processes = self._max_processes if self.can_limit("pids") else 0
        devices = devices if self.can_limit(DEVICES) else ()
        if not cpu_milli and not memory_bytes and not max_processes and not devices:
            return None
        asked = (cpu_milli, memory_bytes, max_processes, devices)
        slot = self._take_free(asked) or self._make(*asked)
        if memory_bytes:
            slot.seen_kills = self._kills(slot)
        return slot

    def release(self, slot: Slot) -> None:
        """Release the slot of an ended step; a slot with processes in it is removed when they have gone.

        A slot is also removed if the step left memory in use, which would count against the next one.
        """
        left = self._in_use(slot) * MAX_REST_PART > max(MIN_MEMORY_BYTES, slot.memory_bytes)
        if left or slot.settings is None or not slot.is_empty() or not slot.is_plain():
            self._remove(slot)
            return
        if len(self._free) >= MAX_FREE_SLOTS:
            self._remove(self._free.pop(0))
        self._free.append(slot)

    def _take_free(self, asked: tuple[int, int, int, DeviceRules]) -> Slot | None:
        """Return a used slot that still has its original settings; others are removed."""
        position = 0
        while position < len(self._free):
            if self._free[position].asks != asked:
                position += 1
                continue
            slot = self._free.pop(position)
            if slot.is_empty() and self._settings_of(slot) == slot.settings:
                return slot
            self._remove(slot)
        return None

    def _settings_of(self, slot: Slot) -> Settings | None:
        """Read its settings; None if they cannot be read."""
        held = slot.open_files
        try:
            found = slot.read_settings()
        except OSError:
            found = None
        self._open_files += slot.open_files - held
        for idle in (*self._free, slot) if self._open_files > MAX_OPEN_FILES else ():
            if self._open_files > MAX_OPEN_FILES:
                self._close(idle)
        return found

    def _close(self, slot: Slot) -> None:
        self._open_files -= slot.open_files
        slot.close()

    def _remove(self, slot: Slot) -> None:
        self._close(slot)
        if not slot.remove():
            self._busy.append(slot)
            del self._busy[:-MAX_BUSY_SLOTS]

    def known(self, tag: str) -> Slot | None:
        """Return the slot that a helper's journal names, if it still exists."""
        match = TAG.fullmatch(tag)
        if match is None:
            return None
        name, kills = match.groups()
        directories = {c: base / name for c, base in self._bases.items() if (base / name).is_dir()}
        if not directories:
            return None
        if self.version == 1 and self._cpuset is not None and (self._cpuset / name).is_dir():
            directories[CPUSET] = self._cpuset / name
        slot = Slot(name, directories, 0, 0, 0)
        slot.seen_kills = int(kills)
        slot.confined = CPUSET in directories
        return slot

    def out_of_memory(self, slot: Slot) -> bool:
        """Whether its memory limit has killed a process since the slot was acquired."""
        return "memory" in slot.directories and self._kills(slot) > slot.seen_kills

    def resize(self, slot: Slot, cpu_milli: int, memory_bytes: int) -> str:
        """Change limits (0 leaves one unchanged); returns '' or why it failed."""
        slot.settings = None
        try:
            self._limit(slot, cpu_milli, memory_bytes)
            self._check_taken(slot, cpu_milli, memory_bytes)
        except OSError as error:
            return f"{slot.name}: {error.strerror}"
        return ""

    def confine(self, slot: Slot, cpus: Sequence[int]) -> bool:
        """Keep all processes of a slot on these CPUs from now on; returns whether that was done.

        Version 1 has a hierarchy of its own for it, which what runs in the slot joins now; whatever that forks is born
        there.
        """
        base = self._cpuset
        if base is None:
            return False
        slot.confined, slot.settings = True, None
        try:
            if self.version == 2:
                _write(Path(slot.places[0]) / "cpuset.cpus", format_cpus(cpus))
                return True
            place = base / slot.name
            place.mkdir(exist_ok=True)
            _write(place / "cpuset.mems", (base / "cpuset.mems").read_text().strip())
            _write(place / "cpuset.cpus", format_cpus(cpus))
            slot.add(CPUSET, place)
            inside: set[int] = set()
            for _ in range(JOIN_PASSES):
                fresh = set(slot.pids()) - inside
                if not fresh:
                    break
                for pid in fresh:
                    with contextlib.suppress(ProcessLookupError):
                        _write(place / "cgroup.procs", pid)
                inside |= fresh
        except (
            OSError
        ):  # the CPUs are not there any more, or a step has removed its cgroup: it stays where it was begun
            return False
        return True

    def sweep(self, keep: set[str]) -> None:
        """Remove slots that an earlier keeper left behind, except those in `keep` and those in use."""
        for base in self._all_bases():
            for entry in _entries(base):
                if entry.is_dir() and entry.name.startswith("s") and entry.name not in keep:
                    _remove_tree(entry)
                    self._count = max(self._count, int(entry.name[1:] or 0) if entry.name[1:].isdigit() else 0)

    def close(self) -> None:
        """Remove what is empty; a slot whose step still runs stays for the next keeper."""
        for slot in self._free:
            self._close(slot)
        self._free.clear()
        self._programs.close()
        for base in self._all_bases():
            for entry in _entries(base):
                if entry.is_dir() and entry.name.startswith("s"):
                    _remove_tree(entry)
            with contextlib.suppress(OSError):
                base.rmdir()

    def _all_bases(self) -> set[Path]:
        return {*self._bases.values(), *([self._cpuset] if self._cpuset is not None else ())}

    def _make(self, cpu_milli: int, memory_bytes: int, max_processes: int, devices: DeviceRules) -> Slot:
        self._busy = [slot for slot in self._busy if not slot.remove()]
        wanted = {"cpu": cpu_milli, "memory": memory_bytes, "pids": max_processes, DEVICES: devices}
        for _ in range(MAX_NAMES):
            self._count += 1
            name = f"s{self._count}"
            directories = {c: base / name for c, base in self._bases.items() if wanted[c] or self.version == 2}
            slot = Slot(name, directories, cpu_milli, memory_bytes, max_processes, devices)
            try:
                self._make_directories(slot)
            except FileExistsError:
                continue  # of a step that an earlier keeper began
            except FileNotFoundError:  # a step has removed the directory of slots
                self._make_bases()
                self._make_directories(slot)
            try:
                self._limit(slot, cpu_milli, memory_bytes)
                self._check_taken(slot, cpu_milli, memory_bytes)
                self._restrict_devices(slot)
                slot.settings = self._settings_of(slot)
                slot.meters = self._meters_of(slot)
            except OSError:
                self._remove(slot)
                raise
            return slot
        raise OSError(errno.EEXIST, f"there are {MAX_NAMES} cgroups that this keeper has not created")

    def _meters_of(self, slot: Slot) -> Meters | None:
        """The counters of what it limits: a step that asks for no limit costs nothing here."""
        limited = {"cpu": slot.cpu_milli, "memory": slot.memory_bytes}
        counted = {name: at for name, at in slot.directories.items() if limited.get(name)}
        if self.version == 2 and counted:
            counted["io"] = next(iter(counted.values()))
        meters = Meters(counted)
        return meters if meters.available else None

    def measure(self, slot: Slot, usage: Usage, *, over: bool) -> Usage:
        """See `Meters.measure`; `usage` itself where nothing is counted."""
        if slot.meters is None:
            return usage
        held = slot.open_files
        measured = slot.meters.measure(usage, over=over)
        self._open_files += slot.open_files - held
        return measured

    def _make_bases(self) -> None:
        """Raises:
        OSError: they cannot be created.
        """
        for controller, base in self._bases.items():
            base.mkdir(exist_ok=True)
            if self.version == 2:
                if controller != DEVICES:
                    _write(base / "cgroup.subtree_control", f"+{controller}")
                _write_if_there(base / "cgroup.subtree_control", "+io")
            elif controller == "memory":
                _write_if_there(base / "memory.use_hierarchy", 1)

    def _make_directories(self, slot: Slot) -> None:
        """Raises:
        OSError: one of them cannot be created, or already exists; none was created then.
        """
        made: list[Path] = []
        try:
            for path in set(slot.directories.values()):
                path.mkdir()
                made.append(path)
        except OSError:
            for path in made:
                with contextlib.suppress(OSError):
                    path.rmdir()
            raise

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
        if "pids" in slot.directories and slot.max_processes:
            _write(slot.directories["pids"] / "pids.max", slot.max_processes)

    def _check_taken(self, slot: Slot, cpu_milli: int, memory_bytes: int) -> None:
        """Read back what was just set.

        Raises:
            OSError: it is not what was written.
        """
        one = self.version == 1
        if memory_bytes and "memory" in slot.directories:
            wanted = max(MIN_MEMORY_BYTES, memory_bytes)
            path = slot.directories["memory"] / ("memory.limit_in_bytes" if one else "memory.max")
            if not wanted - PAGE_BYTES < int(path.read_text().replace("max", "-1")) <= wanted:
                raise OSError(errno.EIO, f"a limit of {wanted} bytes was not accepted", str(path))
        if cpu_milli and "cpu" in slot.directories:
            quota = max(MIN_QUOTA_US, cpu_milli * QUOTA_PERIOD_US // 1000)
            path = slot.directories["cpu"] / ("cpu.cfs_quota_us" if one else "cpu.max")
            if path.read_text().split()[0] != str(quota):
                raise OSError(errno.EIO, f"a quota of {quota} us was not accepted", str(path))
        if slot.max_processes and "pids" in slot.directories:
            path = slot.directories["pids"] / "pids.max"
            if path.read_text().strip() != str(slot.max_processes):
                raise OSError(errno.EIO, f"a limit of {slot.max_processes} processes was not accepted", str(path))

    def _restrict_devices(self, slot: Slot) -> None:
        """Raises:
        OSError: some device would be open to it that it may not use.
        """
        if not slot.devices:
            return
        place = slot.directories[DEVICES]
        if self.version == 2:
            self._programs.attach(slot.devices, place)
            return
        _write(place / "devices.deny", "a")
        for rule in slot.devices:
            _write(place / "devices.allow", rule)
        if sorted((place / "devices.list").read_text().splitlines()) != sorted(map(str, slot.devices)):
            raise OSError(errno.EIO, "the devices that may be used are not those that were written", str(place))

    def _in_use(self, slot: Slot) -> int:
        """Return the bytes that its memory limit counts; 0 for a slot without one."""
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
            for controller in (*CONTROLLERS, DEVICES) if self._restricts_devices else CONTROLLERS:
                self._detect_v1(controller, name, root, places.get(controller))
            if self._binds and "pids" in self._bases and CPUSET in places:
                with contextlib.suppress(OSError):  # steps are bound without it
                    self._detect_cpuset(name, root / CPUSET, places[CPUSET])
        elif (root / "cgroup.controllers").exists():
            self.version = 2
            self._detect_v2(name, root / unified.strip("/"))
        else:
            self.notes.append(f"{self._all_units} limits are not enforced: no cgroup file system is mounted")

    def _detect_v1(self, controller: str, name: str, root: Path, place: str | None) -> None:
        if place is None:
            self.notes.append(
                f"{UNITS[controller]} limits are not enforced: this kernel has no {controller} cgroup controller"
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
            try:
                if controller == DEVICES:
                    _write(probe / "devices.deny", "a")
            finally:
                probe.rmdir()
        except OSError as error:
            text = f"{UNITS[controller]} limits are not enforced: {base} cannot be made: {error.strerror}"
            self.notes.append(text)
            return
        self._homes[controller], self._bases[controller] = home, base
        self._make_bases()

    def _detect_cpuset(self, name: str, mount: Path, place: str) -> None:
        """Detect the cpuset controller of version 1: a cgroup that says no CPUs or memory nodes takes no process.

        Raises:
            OSError: none can be made.
        """
        home = mount / place.strip("/")
        if not home.is_dir():
            home = mount
        base = home / name
        base.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            _write(base / setting, (home / setting).read_text().strip())
        self._homes[CPUSET], self._cpuset = home, base

    def _detect_v2(self, name: str, home: Path) -> None:
        """Detect version 2. Slots need delegated controllers; a cgroup that delegates may not contain processes, so
        we move aside."""
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
            if "io" in offered:
                for place in (home, base):
                    _write_if_there(place / "cgroup.subtree_control", "+io")
            if self._binds and CPUSET in offered:
                with contextlib.suppress(OSError):  # steps are bound without it
                    for place in (home, base):
                        _write(place / "cgroup.subtree_control", f"+{CPUSET}")
                    self._cpuset = base
        except OSError as error:
            where = f"{error.filename or home}: {error.strerror}"
            self.notes.append(
                f"{self._all_units} limits are not enforced: no cgroup was delegated to this user ({where})"
            )
            return
        for controller in CONTROLLERS:
            if controller in usable:
                self._bases[controller], self._homes[controller] = base, home_now
            else:
                text = f"{UNITS[controller]} limits are not enforced: the controller is not offered in {home}"
                self.notes.append(text)
        if self._restricts_devices:
            try:
                self._programs.load(STANDARD)
            except OSError as error:
                self.notes.append(f"{UNITS[DEVICES]} limits are not enforced: {error.strerror}")
            else:
                self._bases[DEVICES], self._homes[DEVICES] = base, home_now

    @property
    def _all_units(self) -> str:
        return "memory, cpu, process and device" if self._restricts_devices else "memory, cpu and process"


def _entries(base: Path) -> list[Path]:
    try:
        return list(base.iterdir())
    except FileNotFoundError:  # a step has removed it
        return []


def _remove_tree(place: Path) -> None:
    """Remove an empty cgroup, and those created inside it."""
    for path in (*reversed(nested_places(str(place))), str(place)):
        with contextlib.suppress(OSError):
            os.rmdir(path)


def _write(path: Path, value: object) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)


def _write_if_there(path: Path, value: object) -> None:
    """Write a setting that some kernels lack, and that some refuse once set."""
    with contextlib.suppress(OSError):
        _write(path, value)


def _write_both_ways(limit: Path, with_swap: Path, value: int) -> None:
    """Set memory and memory+swap, which must not be below memory: the order depends on whether the limit grows."""
    _write_if_there(with_swap, value)
    _write(limit, value)
    _write_if_there(with_swap, value)
