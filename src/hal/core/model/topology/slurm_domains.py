"""Slurm's switches and blocks as domains, however they were written.

Pure. A leaf switch is Slurm's level 0 and of the level `switch` here; wider ones are `switch-1`, `switch-2` after
Slurm's numbers. A block is of the level `block`; those that Slurm makes of neighbouring blocks, of `block-SIZE`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from hal.core.model.errors import shown
from hal.core.model.topology.drafts import Declared, Draft, Place, names_at
from hal.core.model.topology.node_lists import fold_names
from hal.core.model.topology.tree import MAX_LEVELS, MAX_TREE_DOMAINS, Topology

SWITCH: Final = "switch"
BLOCK: Final = "block"
MAX_BLOCK_SIZE: Final = 1 << 20
MAX_FOLDED: Final = 100
"""Longest list of blocks that is the name of a wider one."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?\Z")


class Switch(NamedTuple):
    """One switch: nodes or switches hang on it."""

    name: str
    nodes: object
    """A list of names; None: not given."""
    switches: object
    place: Place


class Block(NamedTuple):
    """One block of nodes."""

    name: str
    nodes: object
    place: Place


def check_name(name: object, kind: str, place: Place) -> str:
    """Return the name of a switch or block.

    Raises:
        SpecError: it is none.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise place.error(f"'{shown(name)}' is not the name of a {kind}", "at most 64 of letters, digits, . _ - inside")
    return name


def tree_topology(switches: Sequence[Switch], place: Place) -> Topology:
    """The topology of a tree of switches.

    Raises:
        SpecError: a switch twice, unknown, under two others, or around itself; a node on two; names file and line.
    """
    if len(switches) > MAX_TREE_DOMAINS:
        raise place.error(f"more than {MAX_TREE_DOMAINS:,} switches")
    by_name: dict[str, Switch] = {}
    for one in switches:
        if one.name in by_name:
            line = by_name[one.name].place.line
            raise one.place.error(f"switch '{one.name}' is declared twice", f"first on line {line}")
        by_name[one.name] = one
        if (one.nodes is None) == (one.switches is None):
            what = "has neither nodes nor switches" if one.nodes is None else "has nodes and switches"
            raise one.place.error(f"switch '{one.name}' {what}", "a switch has either nodes or other switches")
    parents: dict[str, Switch] = {}
    children: dict[str, list[str]] = {}
    for one in switches:
        if one.switches is None:
            continue
        children[one.name] = names_at(one.switches, one.place, f"switches of '{one.name}'", MAX_TREE_DOMAINS)
        for name in children[one.name]:
            if name not in by_name:
                raise one.place.error(f"switch '{name}' under '{one.name}' is not declared", "declare every switch")
            if name in parents:
                other = parents[name]
                raise one.place.error(
                    f"switch '{name}' is under '{one.name}' and under '{other.name}' (line {other.place.line})",
                    "a switch is under one other: a topology is a tree",
                )
            parents[name] = one
    heights = _heights(by_name, children, parents)
    top = max(heights.values(), default=0)
    if top >= MAX_LEVELS:
        raise place.error(f"{top + 1} levels of switches", f"at most {MAX_LEVELS}")
    draft = Draft([f"{SWITCH}-{height}" if height else SWITCH for height in range(top, -1, -1)], place)
    for one in switches:
        above = parents.get(one.name)
        draft.declare(Declared(one.name, top - heights[one.name], above.name if above else "", one.place))
        if one.nodes is not None:
            draft.put(names_at(one.nodes, one.place, f"nodes of '{one.name}'"), one.name, one.place)
    return draft.finished()


def _heights(by_name: dict[str, Switch], children: dict[str, list[str]], parents: dict[str, Switch]) -> dict[str, int]:
    """How many levels of switches are below each; from the leaves up, each once.

    Raises:
        SpecError: a switch is below itself.
    """
    heights = {name: 0 for name in by_name if name not in children}
    left = {name: len(below) for name, below in children.items()}
    ready = list(heights)
    while ready:
        name = ready.pop()
        above = parents.get(name)
        if above is None:
            continue
        heights[above.name] = max(heights.get(above.name, 0), heights[name] + 1)
        left[above.name] -= 1
        if not left[above.name]:
            ready.append(above.name)
    around = [name for name, count in left.items() if count]
    if around:
        one = by_name[around[0]]
        names = ", ".join(around[:5])
        raise one.place.error(f"switches are below themselves: {names}", "a topology is a tree")
    return heights


def block_topology(blocks: Sequence[Block], sizes: Sequence[int], place: Place, sizes_place: Place) -> Topology:
    """The topology of blocks, in the order in which they are declared.

    Args:
        sizes: the base size and those of the wider blocks that Slurm makes of neighbours; () is none of either.
    Raises:
        SpecError: a block twice, a node in two, sizes that do not follow one another; names file and line.
    """
    if len(blocks) > MAX_TREE_DOMAINS:
        raise place.error(f"more than {MAX_TREE_DOMAINS:,} blocks")
    _check_sizes(sizes, sizes_place)
    base, wider = (sizes[0], sizes[1:]) if sizes else (0, ())
    levels = [f"{BLOCK}-{size}" for size in reversed(wider)] + [BLOCK]
    draft = Draft(levels, place)
    around = [""] * len(blocks)
    for level, size in enumerate(reversed(wider)):
        count = size // base
        for first in range(0, len(blocks), count):
            some = blocks[first : first + count]
            name = fold_names(one.name for one in some)
            if len(name) > MAX_FOLDED:
                name = f"{some[0].name}..{some[-1].name}"
            name = name if name not in (around[first], some[0].name) else f"{name}-{size}"
            draft.declare(Declared(name, level, around[first], some[0].place))
            around[first : first + count] = [name] * len(some)
    seen: dict[str, Place] = {}
    for one, parent in zip(blocks, around, strict=True):
        if one.name in seen:
            raise one.place.error(f"block '{one.name}' is declared twice", f"first on line {seen[one.name].line}")
        seen[one.name] = one.place
        if one.nodes is None:
            raise one.place.error(f"block '{one.name}' has no nodes", "name them: Nodes=n[001-018]")
        nodes = names_at(one.nodes, one.place, f"nodes of '{one.name}'")
        if len(nodes) < base:
            raise one.place.error(
                f"block '{one.name}' has {len(nodes)} nodes, fewer than the base size {base}",
                "Slurm refuses that, too: name more nodes, or make the first of the sizes smaller",
            )
        draft.declare(Declared(one.name, len(levels) - 1, parent, one.place))
        draft.put(nodes, one.name, one.place)
    return draft.finished()


def _check_sizes(sizes: Sequence[int], place: Place) -> None:
    """
    Raises:
        SpecError: one is no size, or not a power of two times the first and larger than the one before.
    """
    if len(sizes) >= MAX_LEVELS:
        raise place.error(f"{len(sizes)} block sizes", f"at most {MAX_LEVELS - 1}")
    for before, size in zip((0, *sizes), sizes, strict=False):
        if not 0 < size <= MAX_BLOCK_SIZE:
            raise place.error(f"block size {size} is out of range", f"from 1 to {MAX_BLOCK_SIZE}")
        times, rest = divmod(size, sizes[0])
        if size <= before or rest or times & (times - 1):
            raise place.error(
                f"block size {size} does not follow from {sizes[0]}", "each is 2, 4, 8, ... times the first"
            )
