"""The hardware of this machine, read from /proc and /sys; GPUs are in `gpus`.

What cannot be read is left out: facts are for people and labels, nothing depends on them. Reads some dozens of small
files, each time an agent connects.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from hal.core.model.cpu_lists import cpus_of, format_cpus
from hal.core.model.facts import (
    MAX_PARTS,
    MAX_TEXT,
    MAX_TOLD,
    CacheFacts,
    CpuFacts,
    DiskFacts,
    Facts,
    GpuFacts,
    NumaFacts,
    SocketFacts,
)
from hal.runtime.cpu_topology import online_cpus, read_last_caches, read_sockets, read_topology
from hal.runtime.gpus import machine_gpus

SYSTEM: Final = "sys/devices/system"
MAX_FILE_BYTES: Final = 4 << 20
"""Largest file that is read: /proc/cpuinfo of a large machine has about 1 MiB."""
NO_DISKS: Final = frozenset({"squashfs", "iso9660", "fuse.snapfuse"})
"""File systems on devices that are not disks to write to."""

_NODE: Final = re.compile(r"node([0-9]+)\Z")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def read_machine(home: Path, root: Path = Path("/"), declared: tuple[GpuFacts, ...] = ()) -> Facts:
    """Read all facts except the domain.

    Args:
        home: its file system is included, whatever its type.
        root: the directory that contains /proc, /sys and /etc; tests pass recorded ones.
        declared: GPUs that the site declares; without them they are looked for.
    """
    release, told = _release(root), os.uname()
    memory = _fields(_text(root / "proc/meminfo")).get("MemTotal", "")
    return Facts(
        system=_bounded(release.get("PRETTY_NAME", "")),
        system_id=_bounded(release.get("ID", "")),
        kernel=_bounded(_text(root / "proc/sys/kernel/osrelease").strip() or told.release),
        architecture=told.machine,
        host=_bounded(_text(root / "proc/sys/kernel/hostname").strip() or told.nodename),
        cpu=_cpu(root),
        memory_bytes=_kib(memory),
        sockets=_sockets(root / SYSTEM),
        numa=tuple(_numa(root)),
        caches=_caches(root / SYSTEM),
        disks=tuple(_disks(root, home)),
        gpus=machine_gpus(declared, root),
    )


def host_name() -> str:
    """The host name of this machine."""
    return os.uname().nodename


def _text(path: Path) -> str:
    """The file's text; '' when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _bounded(text: str, most: int = MAX_TEXT) -> str:
    return "".join(sign for sign in text[:most] if sign.isprintable())


def _fields(text: str) -> dict[str, str]:
    """Parse `name: value` lines."""
    found = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip()] = value.strip()
    return found


def _kib(text: str) -> int:
    """Convert `16384 kB` to bytes; 0 if the text has another form."""
    number = text.partition(" ")[0]
    return int(number) << 10 if number.isascii() and number.isdigit() else 0


def _release(root: Path) -> dict[str, str]:
    found = {}
    for line in (_text(root / "etc/os-release") or _text(root / "usr/lib/os-release")).splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found[name.strip()] = value.strip().strip("\"'")
    return found


def _cpu(root: Path) -> CpuFacts:
    threads, sockets, cores, model = 0, set[str](), set[tuple[str, str]](), ""
    for block in _text(root / "proc/cpuinfo").split("\n\n"):
        fields = _fields(block)
        if "processor" not in fields:
            continue
        threads += 1
        model = model or fields.get("model name", "") or fields.get("cpu model", "") or fields.get("Processor", "")
        if "physical id" in fields:
            sockets.add(fields["physical id"])
            cores.add((fields["physical id"], fields.get("core id", "")))
    return CpuFacts(model=_bounded(" ".join(model.split())), sockets=len(sockets), cores=len(cores), threads=threads)


def _numa(root: Path) -> Iterator[NumaFacts]:
    places = root / "sys/devices/system/node"
    try:
        numbers = sorted(int(found[1]) for entry in os.listdir(places) if (found := _NODE.match(entry)))
    except OSError:
        return
    for number in numbers[:MAX_PARTS]:
        memory = _fields(_text(places / f"node{number}/meminfo")).get(f"Node {number} MemTotal", "")
        cpus = _text(places / f"node{number}/cpulist").strip()
        yield NumaFacts(id=number, cpus=_bounded(cpus, MAX_TOLD), memory_bytes=_kib(memory))


def _sockets(system: Path) -> tuple[SocketFacts, ...]:
    found = sorted(read_sockets(online_cpus(system), system))[:MAX_PARTS]
    cores = read_topology(cpus_of(sum(cpus for _, cpus in found)), system).cores
    return tuple(
        SocketFacts(id=number, cpus=_listed(cpus), cores=sum(bool(core & cpus) for core in cores))
        for number, cpus in found
    )


def _caches(system: Path) -> tuple[CacheFacts, ...]:
    found = list(islice(read_last_caches(online_cpus(system), system), MAX_PARTS))
    return tuple(CacheFacts(level=one.level, size_bytes=one.size_bytes, cpus=_listed(one.cpus)) for one in found)


def _listed(cpus: int) -> str:
    """A mask of CPUs as a list."""
    return _bounded(format_cpus(cpus_of(cpus)), MAX_TOLD)


def _disks(root: Path, home: Path) -> Iterator[DiskFacts]:
    """One entry per mounted device, at its first mount point; and the device of HAL_HOME."""
    seen: set[int] = set()
    holding = ""
    mounts = [line.split(" ") for line in _text(root / "proc/self/mounts").splitlines()]
    mounts = [mount for mount in mounts if len(mount) >= 3]
    for mount in mounts:
        path = _unescaped(mount[1])
        if (home == Path(path) or Path(path) in home.parents) and len(path) >= len(holding):
            holding = path
    for device, place, kind, *_ in mounts:
        path = _unescaped(place)
        if path != holding and (not device.startswith("/dev/") or kind in NO_DISKS):
            continue
        try:
            number = os.stat(path).st_dev
            space = os.statvfs(path)
        except OSError:
            continue
        if number in seen or not os.path.isdir(path):
            continue
        seen.add(number)
        yield DiskFacts(
            path=_bounded(path),
            device=_bounded(_unescaped(device)),
            file_system=_bounded(kind),
            kind=_kind(root, number),
            size_bytes=space.f_blocks * space.f_frsize,
            free_bytes=space.f_bavail * space.f_frsize,
        )
        if len(seen) == MAX_PARTS:
            return


def _unescaped(text: str) -> str:
    """Decode a path of /proc/self/mounts, in which blanks are octal."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _kind(root: Path, number: int) -> str:
    """The kind of a device by its number; for a partition, that of its disk."""
    try:
        place = (root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve(strict=True)
    except OSError:
        return ""
    for disk in (place, place.parent):
        rotates = _text(disk / "queue/rotational").strip()
        if rotates:
            return "nvme" if disk.name.startswith("nvme") else "hdd" if rotates == "1" else "ssd"
    return ""


class Space(NamedTuple):
    """The free space of the file system of a directory."""

    free_bytes: int
    """For a process that is not root."""
    read_only: bool


def space_at(path: Path) -> Space | None:
    """Read the free space of the file system of a path; None if it does not answer."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return Space(found.f_bavail * found.f_frsize, bool(found.f_flag & os.ST_RDONLY))


def memory_available_bytes(root: Path = Path("/")) -> int | None:
    """How much memory programs can still allocate; None if the kernel does not report it."""
    fields = _fields(_text(root / "proc/meminfo"))
    return _kib(fields["MemAvailable"]) if "MemAvailable" in fields else None
