"""Slices of GPUs in MIG mode: their types, and which ones of a node an attempt is given.

Pure. A GPU in this mode is given by slices only, and a slice as a whole. Each type is a resource of its own
(`mig-1g.10gb`), so the engine counts slices as it counts memory, and what fits by count can always be bound. Source:
NVIDIA, "Multi-Instance GPU User Guide". O(slices of the node) for a choice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hal.core.model.devices import GPU, GPU_PART, GPU_WHOLE, WHOLE, HeldGpu, HeldGpus, take_from_few
from hal.core.model.facts import Facts, GpuFacts, SliceFacts

SLICES: Final = "mig-"
"""How the names of these resources begin; the type follows."""
UUIDS: Final = "MIG-"
"""How the uuids of slices begin, by which CUDA knows them from GPUs."""
SUMS: Final = (GPU_WHOLE, GPU_PART)
SEVENTHS: Final = 7
"""Compute slices of a whole GPU."""
_TYPE: Final = re.compile(r"(?:[1-9]c\.)?([1-7])g\.[1-9][0-9]{0,3}gb(?:\.[a-z]{1,8}){0,3}")


def slice_type(text: str) -> str:
    """Return the canonical name of a type of slices (`1g.10gb+me` is `1g.10gb.me`); '' if it is none."""
    name = text.lower().replace("+", ".")
    return name if _TYPE.fullmatch(name) else ""


def slice_resource(name: str) -> str:
    """Return the resource of a type."""
    return SLICES + name


def slice_milli(resource: str) -> int:
    """How much of a GPU's compute a slice has, in thousandths; 0 if it is another resource."""
    found = _TYPE.fullmatch(resource[len(SLICES) :]) if resource.startswith(SLICES) else None
    return int(found[1]) * WHOLE // SEVENTHS if found else 0


def slices_in(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return how many slices of each type are among these amounts, by resource."""
    return {name: count for name, count in amounts.items() if count and slice_milli(name)}


def gpu_milli(amounts: Mapping[str, int]) -> int:
    """How much of GPUs these amounts are, in thousandths: whole ones, parts of them, and slices by their compute."""
    milli = amounts.get(GPU, 0)
    for name, count in amounts.items():
        if name.startswith(SLICES):
            milli += count * slice_milli(name)
    return milli


def offered_gpus(gpus: Iterable[GpuFacts]) -> dict[str, int]:
    """Return what a node with these GPUs offers: whole ones, and the slices of those in MIG mode."""
    found: Counter[str] = Counter()
    for gpu in gpus:
        if gpu.mig:
            found.update(slice_resource(one.type) for one in gpu.slices)
        else:
            found[GPU] += WHOLE
    return dict(found)


class BoundSlice(NamedTuple):
    """A slice that its node binds."""

    gpu: GpuFacts
    """In MIG mode."""
    slice: SliceFacts


BoundSlices = Mapping[str, tuple[BoundSlice, ...]]
"""By resource."""


def bound_slices(facts: Facts, capacity: Mapping[str, int]) -> BoundSlices:
    """Return the slices of a node of which each step is given some. Of a type of which it offers another number than
    there is, or of which two have one uuid, none is bound."""
    found: dict[str, list[BoundSlice]] = {}
    for gpu in facts.gpus:
        if gpu.mig and gpu.index in facts.bound_gpus:
            for one in gpu.slices:
                found.setdefault(slice_resource(one.type), []).append(BoundSlice(gpu, one))
    times = Counter(one.slice.uuid for of_type in found.values() for one in of_type)
    return {
        name: tuple(of_type)
        for name, of_type in found.items()
        if capacity.get(name, 0) == len(of_type)
        and all(one.slice.uuid and times[one.slice.uuid] == 1 for one in of_type)
    }


def withheld_of_gone(
    capacity: Mapping[str, int], bound: Mapping[str, Collection[str]], held: Iterable[HeldGpu]
) -> dict[str, int]:
    """Less than nothing of what is held of a node and is not there any more, so that what is there is free.

    Args:
        bound: by resource the ids of what the node binds. Of others it has a number, which may be less than is held.
        held: by all that runs there.
    """
    used, gone = Counter[str](), Counter[str]()
    for one in held:
        name = slice_resource(one.kind)
        if slice_milli(name):
            amounts = {name: 1}
        else:
            amounts = {GPU: one.milli, GPU_WHOLE if one.milli == WHOLE else GPU_PART: one.milli}
            name = GPU
        used.update(amounts)
        if one.id not in bound.get(name, ()):
            gone.update(amounts)
    left = {}
    for name in used:
        of = GPU if name in SUMS else name
        left[name] = -gone[name] if of in bound else min(capacity.get(of, 0) - used[name], 0)
    return {name: amount for name, amount in left.items() if amount}


def bind_slices(slices: Sequence[BoundSlice], held: Mapping[str, int], count: int) -> HeldGpus | None:
    """Choose so many slices of one type that nobody holds, of as few GPUs as possible, first of those with the fewest
    free ones, so that GPUs become free as a whole; None: too few are free.

    Args:
        slices: of that type, of one node.
        held: by uuid, what others hold.
    """
    free: dict[int, list[int]] = {}
    for at, one in enumerate(slices):
        if not held.get(one.slice.uuid):
            free.setdefault(one.gpu.index, []).append(at)
    if sum(map(len, free.values())) < count:
        return None
    chosen = sorted(take_from_few(list(free.values()), count))
    return tuple(HeldGpu(slices[at].slice.uuid, WHOLE, slices[at].slice.type) for at in chosen)
