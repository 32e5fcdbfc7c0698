"""Which GPUs of a node go to a step: those that reach one another best, and such that large steps find good ones later.

Pure. A *link island* is a set of GPUs that reach one another over links of their own (NVLink, XGMI); GPUs of one NUMA
node share memory and cores that are near. O(GPUs squared) for a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model.facts import Facts, GpuFacts

GPU: Final = "gpu"
"""The resource."""
WHOLE: Final = 1_000
"""Base units of one GPU."""
GPU_WHOLE: Final = "gpu-whole"
"""What the engine counts beside `gpu` where GPUs may be shared: of those that nobody has a part of; base units as of
`gpu`. Whole GPUs are asked of it."""
GPU_PART: Final = "gpu-part"
"""The same: the most that is left of one GPU. Parts of GPUs are asked of it."""
GPU_ISLAND: Final = "gpu-island"
"""Whole GPUs that are of one link island, each counted as one. A job that asks for GPUs of one island asks for as many
of these; a node has as many as are free of one of its islands."""
BESIDE_GPUS: Final = {"cpu": "cpu-beside-gpus", "memory": "memory-beside-gpus"}
"""What the engine counts beside these where work without GPUs must leave some of them to GPUs (`gpu_reserve`): what
such work may use of a node. Only such work asks for it."""
SHOWN_AS: Final = {
    GPU_WHOLE: GPU,
    GPU_PART: GPU,
    GPU_ISLAND: GPU,
    **{beside: name for name, beside in BESIDE_GPUS.items()},
}
"""Of what is only counted beside a resource: which one it is to people."""
AT: Final = "-at-"
"""Between the name of an amount beside GPUs and what a queue leaves to each of them, where that is not the site's:
`cpu-beside-gpus-at-2`."""
LINKS: Final = ("NV", "XGMI")
"""How the words for links begin that make an island."""


def counted_as(name: str) -> str:
    """Return the resource that people know, of one that is only counted beside it; of others the same."""
    return SHOWN_AS.get(name.partition(AT)[0], name)


def is_counted_beside(name: str) -> bool:
    """Whether it is not charged, and not listed among the resources of nodes."""
    return counted_as(name) != name


def link_islands(gpus: Sequence[GpuFacts]) -> list[list[int]]:
    """Indexes of GPUs that reach each other over links of their own, directly or through others; each GPU once."""
    left = {gpu.index: gpu for gpu in gpus}
    found = []
    while left:
        first = next(iter(left))
        island, todo = [], [left.pop(first)]
        while todo:
            gpu = todo.pop()
            island.append(gpu.index)
            for other, link in zip(gpus, gpu.links, strict=False):
                if link.startswith(LINKS) and other.index in left:
                    todo.append(left.pop(other.index))
        found.append(sorted(island))
    return found


def bound_gpus(facts: Facts, capacity: int) -> tuple[GpuFacts, ...]:
    """Return the GPUs of a node of which each step is given some; () where they are only counted. Their links are those
    among them. GPUs in MIG mode are not among them.

    Args:
        capacity: of `gpu`, thousandths. A node that offers another number than it binds is not believed.
    """
    wanted = set(facts.bound_gpus)
    places = [place for place, gpu in enumerate(facts.gpus) if gpu.index in wanted and not gpu.mig]
    found = tuple(
        replace(facts.gpus[place], links=tuple(facts.gpus[place].links[at] for at in places))
        if len(facts.gpus[place].links) == len(facts.gpus)
        else replace(facts.gpus[place], links=())
        for place in places
    )
    if (
        len(found) * WHOLE != capacity
        or len({gpu.id for gpu in found}) != len(found)
        or len({gpu.index for gpu in found}) != len(found)
    ):
        return ()
    return found


def indexes_to_bind(gpus: Sequence[GpuFacts], capacity: int, given: Collection[int] | None) -> tuple[int, ...]:
    """Return the indexes of the GPUs that a node binds; () where it only counts them. Of those in MIG mode it binds the
    slices, if it offers these (see `hal.core.model.gpu_slices`).

    Args:
        gpus: of the machine.
        capacity: that the node offers of whole ones, thousandths.
        given: those of its share of the machine; None: it is the whole machine if it offers all of them.
    """
    there = [gpu for gpu in gpus if given is None or gpu.index in given]
    binds = sum(not gpu.mig for gpu in there) * WHOLE == capacity
    return tuple(gpu.index for gpu in there if gpu.mig or binds)


def choose_gpus(gpus: Sequence[GpuFacts], free: Collection[int], count: int) -> tuple[int, ...]:
    """Choose `count` of the free GPUs; () where fewer are free.

    All of one link island and one NUMA node if some have so many free, else of one island, else of one NUMA node; of
    several that do, one with the fewest free. Otherwise from as few islands as possible. The first of equals.

    Args:
        gpus: all of the node.
        free: indexes.
    Returns: indexes, ascending.
    """
    left = [gpu for gpu in gpus if gpu.index in free]
    if not 0 < count <= len(left):
        return ()
    island_of = {index: number for number, island in enumerate(link_islands(gpus)) for index in island}
    numa_of = {gpu.index: gpu.numa for gpu in gpus}
    indexes = sorted(gpu.index for gpu in left)
    levels: tuple[Callable[[int], object], ...] = (
        lambda index: (island_of[index], numa_of[index]),
        island_of.__getitem__,
        numa_of.__getitem__,
    )
    for level in levels:
        fitting = [group for group in _groups(indexes, level) if len(group) >= count]
        if fitting:
            group = min(fitting, key=lambda group: (len(group), group[0]))
            return tuple(sorted(take_from_few(_groups(group, levels[0]), count)))
    return tuple(sorted(take_from_few(_groups(indexes, island_of.__getitem__), count)))


def _groups(indexes: Iterable[int], level: Callable[[int], object]) -> list[list[int]]:
    found: dict[object, list[int]] = {}
    for index in indexes:
        found.setdefault(level(index), []).append(index)
    return list(found.values())


def take_from_few(groups: list[list[int]], count: int) -> list[int]:
    """Take `count` from as few groups as possible: all of the largest ones, the rest from the smallest that has it."""
    chosen: list[int] = []
    left = sorted(groups, key=lambda group: (-len(group), group[0]))
    while len(chosen) < count:
        missing = count - len(chosen)
        fitting = [group for group in left if len(group) >= missing]
        group = min(fitting, key=lambda group: (len(group), group[0])) if fitting else left[0]
        left.remove(group)
        chosen += group[:missing]
    return chosen


class HeldGpu(Struct, frozen=True, array_like=True, gc=False):
    """A GPU, or a part of it, that an attempt holds on one of its nodes."""

    id: str
    """Of the GPU, as `GpuFacts.id`."""
    milli: int = WHOLE
    """Thousandths of its compute and memory."""
    kind: str = ""
    """`gpu-island`: it was asked for as one of an island. Another word: the type of the slice that it is."""

    def __str__(self) -> str:
        """`GPU-5b1e`, or `GPU-5b1e:0.5`."""
        return self.id if self.milli == WHOLE else f"{self.id}:{self.milli / WHOLE:g}"


HeldGpus = tuple[HeldGpu, ...]
"""Of one node, by index of the GPU; (): its node does not bind GPUs, or it asked for none."""


def bind_gpus(
    gpus: Sequence[GpuFacts], held: Mapping[str, int], milli: int, *, one_island: bool = False
) -> HeldGpus | None:
    """Choose what of a node's GPUs an attempt holds; None: they cannot hold it as things stand.

    Whole GPUs are free ones, by `choose_gpus`. A part comes of one GPU: of those in part held already the one with the
    least that is free, and only if none of them has room, of a free one.

    Args:
        gpus: that the node binds.
        held: of each GPU, by its id, the thousandths that others hold.
        milli: wanted, thousandths.
        one_island: only whole ones of one link island will do.
    """
    whole, part = divmod(milli, WHOLE)
    free = {gpu.index for gpu in gpus if not held.get(gpu.id)}
    if one_island and free_of_one_island(gpus, free) < whole:
        return None
    chosen = choose_gpus(gpus, free, whole) if whole else ()
    if len(chosen) < whole:
        return None
    kind = GPU_ISLAND if one_island else ""
    found = [HeldGpu(gpu.id, WHOLE, kind) for gpu in gpus if gpu.index in chosen]
    if part:
        shared = _part_of(gpus, held, part, free.difference(chosen))
        if shared is None:
            return None
        found.append(HeldGpu(shared, part))
    return tuple(found)


def free_of_one_island(gpus: Sequence[GpuFacts], free: Collection[int]) -> int:
    """How many of the free GPUs one link island has at most."""
    return max((sum(index in free for index in island) for island in link_islands(gpus)), default=0)


def _part_of(gpus: Sequence[GpuFacts], held: Mapping[str, int], part: int, free: Collection[int]) -> str | None:
    room = [(WHOLE - held[gpu.id], gpu.index, gpu.id) for gpu in gpus if 0 < held.get(gpu.id, 0) <= WHOLE - part]
    if room:
        return min(room)[2]
    unused = choose_gpus(gpus, free, 1)
    return next((gpu.id for gpu in gpus if gpu.index in unused), None)


def beside(milli: int) -> dict[str, int]:
    """What a request for GPUs asks for beside `gpu` where they may be shared."""
    whole, part = divmod(milli, WHOLE)
    return {name: amount for name, amount in ((GPU_WHOLE, whole * WHOLE), (GPU_PART, part)) if amount}


def withheld_beside(gpus: Sequence[GpuFacts], held: Iterable[HeldGpu]) -> dict[str, int]:
    """What of these is withheld on a node, so that what is left of them is what its GPUs can hold; {} where none is
    shared.

    Args:
        gpus: that the node binds.
        held: by all that runs there.
    """
    used = {gpu.id: 0 for gpu in gpus}
    whole = part = 0
    gone = False
    for one in held:
        if one.kind not in ("", GPU_ISLAND):
            continue  # slices add up
        if one.milli == WHOLE:
            whole += WHOLE
        else:
            part += one.milli
        if one.id in used:
            used[one.id] += one.milli
        else:
            gone = True
    if not part and not gone:
        return {}
    unused = sum(not milli for milli in used.values())
    left = {
        GPU_WHOLE: len(gpus) * WHOLE - whole - unused * WHOLE,
        GPU_PART: WHOLE - part - max((WHOLE - milli for milli in used.values()), default=0),
    }
    return {name: amount for name, amount in left.items() if amount}


def withheld_of_island(gpus: Sequence[GpuFacts], held: Iterable[HeldGpu]) -> dict[str, int]:
    """What of `gpu-island` is withheld on a node, so that what is left of it is what one of its islands has free; {}
    for nothing.

    Args:
        gpus: that the node binds.
        held: by all that runs there.
    """
    asked, used = 0, set[str]()
    for one in held:
        asked += one.kind == GPU_ISLAND
        used.add(one.id)
    every = {gpu.index for gpu in gpus}
    free = {gpu.index for gpu in gpus if gpu.id not in used}
    left = free_of_one_island(gpus, every) - asked - free_of_one_island(gpus, free)
    return {GPU_ISLAND: left} if left else {}
