"""Slurm's `topology.yaml`: a list of topologies, of which the cluster's default is read.

Pure. Source: topology.yaml(5) of Slurm.
"""

from __future__ import annotations

from typing import Any, Final

from hal.core.model.errors import SpecError, shown
from hal.core.model.text import Path, plain_and_lines_of_yaml
from hal.core.model.topology.drafts import Place, refuse_unknown
from hal.core.model.topology.slurm_domains import Block, Switch, block_topology, check_name, tree_topology
from hal.core.model.topology.tree import Topology

_KINDS: Final = ("tree", "block", "flat", "ring", "torus3d")
"""Only the first two have domains."""
_KEYS: Final = ("topology", "cluster_default", *_KINDS)


class _File:
    """The file, and where its parts are."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        try:
            self.plain, self._lines = plain_and_lines_of_yaml(text)
        except SpecError as error:
            raise Place(file, 0).error(error.message, error.hint) from None

    def place(self, path: Path) -> Place:
        """Where a part is written, or the part around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return Place(self.file, self._lines.get(path, 0))

    def table(self, value: Any, path: Path, known: tuple[str, ...]) -> dict[str, Any]:
        """A table with these keys at most.

        Raises:
            SpecError: something else is there, or an unknown key.
        """
        if not isinstance(value, dict):
            raise self.place(path).error(f"{shown(value)} is not a table", f"with {', '.join(known)}")
        for key in value:
            if key not in known:
                refuse_unknown(str(key), known, self.place((*path, str(key))))
        return value

    def list(self, value: Any, path: Path) -> list[Any]:
        """A list with something in it.

        Raises:
            SpecError: something else is there.
        """
        if not isinstance(value, list) or not value:
            raise self.place(path).error(
                f"{path[-1] if path else 'the file'}: {shown(value)} is not a list with entries"
            )
        return value


def read_yaml(text: str, file: str) -> Topology:
    """
    Args:
        file: its name, for errors.
    Raises:
        SpecError: a mistake in it; names file and line.
    """
    found = _File(text, file)
    topologies = found.list(found.plain, ())
    chosen = -1
    for at, one in enumerate(topologies):
        table = found.table(one, (at,), _KEYS)
        kinds = [kind for kind in _KINDS if kind in table]
        if len(kinds) != 1:
            raise found.place((at,)).error(
                f"topology '{shown(table.get('topology', at))}' has {' and '.join(kinds) or 'no kind'}",
                f"exactly one of {', '.join(_KINDS)}",
            )
        if chosen < 0 and table.get("cluster_default") is True:
            chosen = at
    if chosen < 0 and len(topologies) > 1:
        raise found.place(()).error(
            f"none of {len(topologies)} topologies is the default", "say cluster_default: true at the one to read"
        )
    chosen = max(chosen, 0)
    table, place = topologies[chosen], found.place((chosen,))
    if "tree" in table:
        return _tree(found, table["tree"], (chosen, "tree"))
    if "block" in table:
        return _blocks(found, table["block"], (chosen, "block"))
    raise place.error(
        f"the topology is {next(kind for kind in _KINDS if kind in table)}: it declares no domains that HAL reads",
        "trees and blocks are read; without domains, name no file",
    )


def _tree(found: _File, value: Any, path: Path) -> Topology:
    tree = found.table(value, path, ("switches",))
    at = (*path, "switches")
    switches = []
    for number, one in enumerate(found.list(tree.get("switches"), at)):
        place = found.place((*at, number))
        switch = found.table(one, (*at, number), ("switch", "children", "nodes"))
        name = check_name(switch.get("switch"), "switch", place)
        switches.append(Switch(name, switch.get("nodes"), switch.get("children"), place))
    return tree_topology(switches, found.place(path))


def _blocks(found: _File, value: Any, path: Path) -> Topology:
    table = found.table(value, path, ("block_sizes", "blocks"))
    at = (*path, "blocks")
    blocks = []
    for number, one in enumerate(found.list(table.get("blocks"), at)):
        place = found.place((*at, number))
        block = found.table(one, (*at, number), ("block", "nodes"))
        blocks.append(Block(check_name(block.get("block"), "block", place), block.get("nodes"), place))
    sizes_path = (*path, "block_sizes")
    sizes_place = found.place(sizes_path)
    sizes = table.get("block_sizes", [])
    if not isinstance(sizes, list) or not all(type(size) is int for size in sizes):
        raise sizes_place.error(f"block_sizes: {shown(sizes)} is not a list of numbers", "like [18, 36]")
    return block_topology(blocks, sizes, found.place(path), sizes_place)
