"""The inside of a node as a tree: sockets, NUMA nodes, caches, GPUs and the links between them. Pure.

What the node did not report is left out, and what is within it is drawn one level higher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hal.cli.kit.trees import Branch, drawn
from hal.core.model import plural, readable_amount
from hal.core.model.cpu_lists import mask_of, parse_cpus
from hal.core.model.devices import link_islands

if TYPE_CHECKING:
    from hal.core.model.facts import CacheFacts, Facts, GpuFacts, NumaFacts, SliceFacts


def device_lines(name: str, facts: Facts) -> list[str]:
    """The lines of the tree, and below it those about links between GPUs."""
    cpu = facts.cpu
    counts = [(cpu.sockets, "socket"), (cpu.cores, "core"), (cpu.threads, "thread"), (len(facts.gpus), "GPU")]
    title = ", ".join(plural(count, noun) for count, noun in counts if count)
    return [f"{name}: {title or 'nothing is known of its devices'}", *drawn(_machine(facts)), *_links(facts.gpus)]


def _machine(facts: Facts) -> list[Branch]:
    gpus, numa, caches = list(facts.gpus), list(facts.numa), list(facts.caches)
    branches = []
    for socket in facts.sockets:
        cpus = _mask(socket.cpus)
        inside = [one for one in numa if _mask(one.cpus) & cpus]
        own = [one for one in caches if _mask(one.cpus) & cpus]
        numa = [one for one in numa if one not in inside]
        caches = [one for one in caches if one not in own]
        cores = f", {plural(socket.cores, 'core')}" if socket.cores else ""
        branches.append(Branch(f"socket {socket.id}: cpus {socket.cpus}{cores}", branches=_nodes(inside, own, gpus)))
    return [*branches, *_nodes(numa, caches, gpus), *map(_gpu, gpus)]


def _nodes(numa: list[NumaFacts], caches: list[CacheFacts], gpus: list[GpuFacts]) -> tuple[Branch, ...]:
    """NUMA nodes with their caches and GPUs, which are taken from the list; caches of none of them."""
    found = []
    for one in numa:
        cpus = _mask(one.cpus)
        own = [cache for cache in caches if cpus and not _mask(cache.cpus) & ~cpus]
        caches = [cache for cache in caches if cache not in own]
        near = [gpu for gpu in gpus if gpu.numa == one.id]
        gpus[:] = [gpu for gpu in gpus if gpu.numa != one.id]
        memory = f", {readable_amount('memory', one.memory_bytes)}" if one.memory_bytes else ""
        text = f"NUMA {one.id}: cpus {one.cpus or 'none'}{memory}"
        found.append(Branch(text, branches=(*map(_cache, own), *map(_gpu, near))))
    return (*map(_cache, caches), *found)


def _cache(one: CacheFacts) -> Branch:
    return Branch(f"L{one.level}: {readable_amount('memory', one.size_bytes)}, cpus {one.cpus}")


def _gpu(one: GpuFacts) -> Branch:
    parts = (one.model, readable_amount("memory", one.memory_bytes) if one.memory_bytes else "", one.pci, one.uuid)
    slices = tuple(map(_slice, one.slices))
    mode = " (MIG)" if one.mig else ""
    return Branch(f"GPU {one.index}{mode}: {', '.join(filter(None, parts))}", branches=slices)


def _slice(one: SliceFacts) -> Branch:
    memory = f", {readable_amount('memory', one.memory_bytes)}" if one.memory_bytes else ""
    return Branch(f"{one.type}: {one.uuid}{memory}")


def _links(gpus: Sequence[GpuFacts]) -> list[str]:
    """A line for each island, and one for each other kind of link."""
    lines = []
    words = {gpu.index: " and ".join(sorted({_maker(link) for link in gpu.links} - {""})) for gpu in gpus}
    for island in link_islands(gpus):
        if len(island) > 1:
            lines.append(f"linked by {words[island[0]]}: {_listed(island)}")
    kinds: dict[str, list[str]] = {}
    for place, gpu in enumerate(gpus):
        for other, link in list(zip(gpus, gpu.links, strict=False))[place + 1 :]:
            if link:
                kinds.setdefault(link, []).append(f"{gpu.index}-{other.index}")
    lines += [f"{kind}: {' '.join(pairs)}" for kind, pairs in sorted(kinds.items())]
    return lines


def _maker(link: str) -> str:
    return next((name for word, name in (("NV", "NVLink"), ("XGMI", "XGMI")) if link.startswith(word)), "")


def _listed(indexes: Sequence[int]) -> str:
    return ", ".join(f"GPU {index}" for index in indexes)


def _mask(cpus: str) -> int:
    """0 for what is no list, which only a node says that is not HAL's."""
    try:
        return mask_of(parse_cpus(cpus))
    except ValueError:
        return 0
