"""A topology: levels from the widest to the narrowest, and the domain of each level that a node is in.

Pure values. Domains of one level have no node in common, and each lies within one of the next wider level, or within
none. Levels may be skipped: a node may be in a switch and in no rack. What the levels mean is the site's affair; what
lies within a node (sockets, GPU links) is in its facts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from hal.core.model.errors import SpecError, shown

MAX_LEVELS: Final = 16
MAX_TREE_DOMAINS: Final = 50_000
"""Domains of all levels."""
MAX_TREE_NODES: Final = 100_000
"""Nodes that are named."""
OUTSIDE: Final = -1
"""Stands for no domain."""

_LEVEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?\Z")
_NODES_THEMSELVES: Final = frozenset({"node", "nodes"})


class Domain(Struct, frozen=True, gc=False):
    """A set of nodes that are near each other: a rack, what hangs on one switch."""

    name: str
    """No other domain of its level has it. Where names are paths (`dc1/rack3`), those of the domains around it come
    first."""
    level: int
    """Index of its level."""
    parent: int
    """Index of the narrowest wider domain around it, which comes before it; `OUTSIDE`: none."""


class Topology(Struct, frozen=True, kw_only=True):
    """Where nodes are. A node that it does not name is in no domain; one that it names need not exist."""

    levels: tuple[str, ...]
    """Names, widest first."""
    domains: tuple[Domain, ...] = ()
    """Those that are declared, wider ones before those within them; none where labels say where nodes are."""
    places: Mapping[str, int] = {}
    """By node: index of the narrowest domain that it is in."""
    labels: tuple[str, ...] = ()
    """Where nodes say themselves where they are: by level, the label that has its domain."""

    def domains_of(self, node: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Names of the domains that a node is in, one for each level; '' where it is in none. O(levels).

        Args:
            labels: of the node, with those that HAL makes.
        """
        if self.labels:
            return path_names([labels.get(key, "") for key in self.labels])
        found = [""] * len(self.levels)
        at = self.places.get(node, OUTSIDE)
        while at != OUTSIDE:
            domain = self.domains[at]
            found[domain.level] = domain.name
            at = domain.parent
        return tuple(found)

    def level_index(self, name: str) -> int:
        """Index of a level.

        Raises:
            SpecError: there is none of that name.
        """
        if name not in self.levels:
            hint = f"levels are {', '.join(self.levels)}" if self.levels else "no topology is declared"
            raise SpecError(f"there is no level '{shown(name)}'", hint=hint)
        return self.levels.index(name)


def path_names(parts: Sequence[str]) -> tuple[str, ...]:
    """Names of domains from what each level calls its own: (`dc1`, `rack3`) is (`dc1`, `dc1/rack3`).

    A part that has the whole path already stays as it is. A part that is empty has no domain; its place in the path of
    narrower domains stays, so that `/rack3` is not the rack3 of any zone.
    """
    found, path = [], ""
    for depth, part in enumerate(parts):
        whole = part if depth and path and part.startswith(f"{path}/") else f"{path}/{part}" if depth else part
        found.append(whole if part else "")
        path = whole
    return tuple(found)


def check_levels(levels: Sequence[str], field: str) -> tuple[str, ...]:
    """Return names of levels.

    Raises:
        SpecError: too many, one that is no name, or one twice; names `field`.
    """
    if len(levels) > MAX_LEVELS:
        raise SpecError(f"{field}: {len(levels)} levels", hint=f"at most {MAX_LEVELS}")
    for position, name in enumerate(levels):
        check_level_name(name, field)
        if name in _NODES_THEMSELVES:
            raise SpecError(f"{field}: '{name}' is what all nodes are", hint="name only what is wider than a node")
        if name in levels[:position]:
            raise SpecError(f"{field}: '{name}' is there twice", hint="give each level a name of its own")
    return tuple(levels)


def check_level_name(name: object, field: str) -> None:
    """Check that it could be the name of a level.

    Raises:
        SpecError: it could not; names `field`.
    """
    if not isinstance(name, str) or not _LEVEL.match(name):
        raise SpecError(f"{field}: '{shown(name)}' is not a name", hint="letters, digits, '.', '_', '-', '/'")


def renamed(topology: Topology, levels: Sequence[str], field: str) -> Topology:
    """The same with other names of its levels.

    Raises:
        SpecError: not as many as it has, or as `check_levels`.
    """
    if len(levels) != len(topology.levels):
        there = ", ".join(topology.levels)
        raise SpecError(
            f"{field}: {len(levels)} names for {len(topology.levels)} levels ({there})",
            hint="name every level of the file, widest first, or leave them out",
        )
    return Topology(
        levels=check_levels(levels, field), domains=topology.domains, places=topology.places, labels=topology.labels
    )


def topology_of_labels(labels: Sequence[str], field: str) -> Topology:
    """That of nodes which say by their labels where they are; each level has the name of its label.

    Raises:
        SpecError: as `check_levels`.
    """
    levels = check_levels(labels, field)
    return Topology(levels=levels, labels=levels)
