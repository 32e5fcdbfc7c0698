"""The details of one node: its hardware, why it is closed, what it cannot do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hal.core.model import format_duration, plural, readable_amount
from hal.core.model.taint import taint_text

if TYPE_CHECKING:
    from hal.client.rest.views import ClosureInfo, NodeInfo
    from hal.core.model.facts import DiskFacts, GpuFacts, NumaFacts


def details(node: NodeInfo) -> dict[str, str]:
    """Names and texts, in the order in which they are shown; '' for what is unknown."""
    facts = node.facts
    cpu = facts.cpu
    counts = [(cpu.sockets, "socket"), (cpu.cores, "core"), (cpu.threads, "thread")]
    return {
        "system": ", ".join(filter(None, (facts.system, facts.kernel, facts.architecture))),
        "host": facts.host,
        "address": facts.address,
        "domain": facts.domain,
        "topology": ", ".join(f"{level} {name}" for level, name in node.domains.items()),
        "cpu": ", ".join(filter(None, (cpu.model, *(plural(count, noun) for count, noun in counts if count)))),
        "memory": size(facts.memory_bytes) if facts.memory_bytes else "",
        "NUMA": _lines(map(_numa, facts.numa)),
        "disks": _lines(map(_disk, facts.disks)),
        "GPUs": _lines(map(_gpu, facts.gpus)),
        "labels": _lines(f"{key}={value}" for key, value in sorted(node.labels.items())),
        "taints": _lines(taint_text(key, value) for key, value in sorted(node.taints.items())),
        "closed": node.reason,
        "eviction": _lines(map(_eviction, (one for one in node.closures if one.evict))),
        "notes": _lines(node.notes),
    }


def size(amount: int) -> str:
    """`1.5TiB`"""
    return readable_amount("memory", amount)


def _eviction(closure: ClosureInfo) -> str:
    from hal.cli.kit.formats import instant

    at = instant(closure.evict_at_ms)
    if closure.evicted:
        return f"what was left at {at} was evicted ({closure.evict})"
    return f"{closure.evict} of what is left at {at}, {format_duration(closure.grace_ms)} to end"


def _lines(texts: Iterable[str]) -> str:
    return "; ".join(texts)


def _numa(one: NumaFacts) -> str:
    return f"{one.id}: cpus {one.cpus}, {size(one.memory_bytes)}"


def _disk(one: DiskFacts) -> str:
    kind = " ".join(filter(None, (one.kind, one.file_system)))
    return f"{one.path} ({kind}) {size(one.free_bytes)} free of {size(one.size_bytes)}"


def _gpu(one: GpuFacts) -> str:
    near = f", NUMA {one.numa}" if one.numa >= 0 else ""
    return f"{one.index}: {one.model}, {size(one.memory_bytes)}{near}, {one.uuid}"
