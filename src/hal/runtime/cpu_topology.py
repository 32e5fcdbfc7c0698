"""Where the CPUs of this machine are: cores, NUMA nodes, sockets, shared caches, as /sys has them.

What /sys does not say is taken as one NUMA node of cores with one CPU each, without sockets and caches. Source: the
kernel's Documentation/ABI/stable/sysfs-devices-system-cpu and -node, and testing/sysfs-devices-system-cpu (caches).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hal.core.model.cpu_lists import CpuTopology, mask_of, parse_cpus

SYSTEM: Final = Path("/sys/devices/system")
MAX_TEXT: Final = 1 << 14
"""Characters read of a list of CPUs."""
MAX_CACHES: Final = 16
"""Caches of one CPU that are looked at."""
_NODE: Final = re.compile(r"node[0-9]+")
_SIZE: Final = re.compile(r"([0-9]{1,9})([KMG]?)")


class Cache(NamedTuple):
    """A cache that several CPUs share."""

    level: int
    size_bytes: int
    cpus: int
    """As a mask."""


def read_topology(cpus: Iterable[int], system: Path = SYSTEM) -> CpuTopology:
    """Read which cores and NUMA nodes these CPUs are of.

    Args:
        system: /sys/devices/system; tests pass recorded ones.
    """
    left = all_ = mask_of(set(cpus))
    cores = []
    while left:
        cpu = _first(left)
        place = system / f"cpu/cpu{cpu}/topology"
        core = _mask(place / "core_cpus_list") or _mask(place / "thread_siblings_list")
        core = core & left | 1 << cpu
        cores.append(core)
        left &= ~core
    names = [entry.name for entry in _entries(system / "node") if _NODE.fullmatch(entry.name)]
    nodes = [
        mask
        for name in sorted(names, key=lambda one: int(one[4:]))
        if (mask := _mask(system / f"node/{name}/cpulist") & all_)
    ]
    rest = all_ & ~sum(nodes)
    return CpuTopology(tuple(cores), (*nodes, rest) if rest else tuple(nodes))


def online_cpus(system: Path = SYSTEM) -> int:
    """The CPUs that are switched on, as a mask; 0: not known."""
    return _mask(system / "cpu/online")


def read_sockets(cpus: int, system: Path = SYSTEM) -> Iterator[tuple[int, int]]:
    """Yield number and CPUs of each socket that these CPUs are of; none where that is not known.

    Args:
        cpus: as a mask; so are the answers.
    """
    left = cpus
    while left:
        cpu = _first(left)
        place = system / f"cpu/cpu{cpu}/topology"
        socket = _mask(place / "package_cpus_list") or _mask(place / "core_siblings_list")
        number = _text(place / "physical_package_id")
        if socket and number.isdecimal():
            yield int(number), socket & cpus
        left &= ~(socket | 1 << cpu)


def read_last_caches(cpus: int, system: Path = SYSTEM) -> Iterator[Cache]:
    """Yield the cache of the highest level of each of these CPUs, once; CPUs of which none is known have none."""
    left = cpus
    while left:
        cpu = _first(left)
        places = sorted(_entries(system / f"cpu/cpu{cpu}/cache"))[:MAX_CACHES]
        found = [cache for place in places if (cache := _cache(place)) is not None]
        last = max(found, default=None)
        if last is not None:
            yield last._replace(cpus=last.cpus & cpus)
        left &= ~((last.cpus if last is not None else 0) | 1 << cpu)


def _cache(place: Path) -> Cache | None:
    level, size, cpus = _text(place / "level"), _SIZE.fullmatch(_text(place / "size")), _mask(place / "shared_cpu_list")
    if not level.isdecimal() or not cpus:
        return None
    shift = {"": 0, "K": 10, "M": 20, "G": 30}
    return Cache(int(level), int(size[1]) << shift[size[2]] if size else 0, cpus)


def _first(mask: int) -> int:
    """The lowest CPU of a mask."""
    return (mask & -mask).bit_length() - 1


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    """The file's text; '' if it cannot be read."""
    try:
        with path.open() as file:
            return file.read(MAX_TEXT).strip()
    except (OSError, ValueError):
        return ""


def _mask(path: Path) -> int:
    """The CPUs of a list; 0 if it cannot be read."""
    try:
        return mask_of(parse_cpus(_text(path)))
    except ValueError:
        return 0
