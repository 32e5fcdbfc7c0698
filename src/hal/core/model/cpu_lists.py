"""Sets of CPUs as the kernel and people write them (`0-3,8`), as bit masks (bit N is CPU N), and by core and NUMA node.

Pure. Source: the kernel's Documentation/core-api/kernel-api, "bitmap_parselist".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

MAX_CPUS: Final = 1 << 13
"""The most that a Linux kernel is built for; numbers are below it."""


def parse_cpus(text: str) -> tuple[int, ...]:
    """Parse a list of CPUs; '' is none.

    Raises:
        ValueError: it is no such list.
    """
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < MAX_CPUS:
            raise ValueError(f"'{part}' is no range of CPUs")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def format_cpus(cpus: Iterable[int]) -> str:
    """Format CPUs as the shortest such list."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def cpus_of(mask: int) -> tuple[int, ...]:
    """The CPUs of a mask, in ascending order."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)


def mask_of(cpus: Iterable[int]) -> int:
    """The inverse of `cpus_of`."""
    mask = 0
    for cpu in cpus:
        mask |= 1 << cpu
    return mask


class CpuTopology(NamedTuple):
    """Where CPUs are, as masks."""

    cores: tuple[int, ...]
    """Each core: the CPUs that share it."""
    nodes: tuple[int, ...]
    """Each NUMA node."""
