"""Times and amounts as tables show them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from hal.core.model import format_duration, readable_amount
from hal.core.model.units import UNLIMITED_TEXT, format_clock

NOTHING = "-"
MAX_ID_DIGITS = 18


def span(ms: int | None) -> str:
    """`12d3h`, `3:05:07`, `2:09`, `0.4s`: short, for a column."""
    return NOTHING if ms is None or ms < 0 else format_clock(ms)


def instant(ms: int | None) -> str:
    """Local time to the second."""
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z") if ms else ""


def limit(ms: int | None) -> str:
    """A walltime."""
    return format_duration(ms) if ms else UNLIMITED_TEXT


def amounts(of: Mapping[str, int]) -> str:
    """`cpu 4, memory 8GiB`"""
    return ", ".join(f"{name} {readable_amount(name, amount)}" for name, amount in of.items())


def used(node_capacity: Mapping[str, int], free: Mapping[str, int], name: str) -> str:
    """`3/4`: how much of a resource is taken, of how much."""
    if name not in node_capacity:
        return NOTHING
    total = node_capacity[name]
    taken = total - free.get(name, total)
    return f"{readable_amount(name, taken) if taken else 0}/{readable_amount(name, total)}"


def resources_of(capacities: Iterable[Mapping[str, int]]) -> list[str]:
    """Names of what somebody has beside cpu, memory and gpu."""
    return sorted({name for capacity in capacities for name in capacity} - {"cpu", "memory", "gpu"})


def id_number(text: str) -> int:
    """The number of a job's id, for sorting; 0 for what is none, which only a server says that is not HAL's."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_ID_DIGITS else 0
