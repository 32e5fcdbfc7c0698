"""Times and amounts as tables show them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from hal.core.model import format_duration, readable_amount

NOTHING = "-"


def span(ms: int | None) -> str:
    """`1d 2h`, `3:05:07`, `2:09`, `0.4s`: short, for a column."""
    if ms is None or ms < 0:
        return NOTHING
    if ms < 10_000:
        return f"{ms / 1000:.1f}s"
    seconds = ms // 1000
    if seconds >= 172_800:
        return f"{seconds // 86_400}d{seconds % 86_400 // 3600}h"
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"


def instant(ms: int | None) -> str:
    """Local time to the second."""
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z") if ms else ""


def limit(ms: int | None) -> str:
    """A walltime."""
    return format_duration(ms) if ms else "none"


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
