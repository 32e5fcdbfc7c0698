"""Which nodes a gang gets where there is a topology, by the definition: every domain is listed and counted anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

from hal.core.engine.classes import ClassSpec
from hal.core.model.topology.node_lists import natural_key

Path = tuple[str, ...]
"""A domain: its name behind those of the wider levels."""
Taste = Callable[[Path], int]


def domain(domains: Sequence[str], level: int) -> Path | None:
    """The domain of a level that a node with these names is in."""
    whole = (*domains, *("",) * (level + 1 - len(domains)))
    return tuple(whole[: level + 1]) if level >= 0 and whole[level] else None


def in_order(node: Any, levels: int) -> tuple[Any, ...]:
    """What orders nodes: domain by domain, as people count their names; outside comes first."""
    names = (*node.domains, *("",) * (levels - len(node.domains)))[:levels]
    return (*(natural_key(name) if name else () for name in names), node.row)


class Choice:
    """A gang, and the nodes that it may use."""

    def __init__(self, levels: Sequence[str], nodes: Sequence[Any], taste: Taste | None = None) -> None:
        self.levels = list(levels)
        self.taste = taste
        """How good a domain is; None: the smallest is the best."""
        self.nodes = sorted(nodes, key=lambda node: in_order(node, len(self.levels)))
        """In topological order."""
        self.place = {node.row: place for place, node in enumerate(self.nodes)}

    def level(self, kind: ClassSpec) -> int:
        """The level in one domain of which a gang must be; -1 = it need not."""
        return self.levels.index(kind.within) if kind.within in self.levels and kind.nodes > 1 else -1

    def members(self, rows: Sequence[int], level: int) -> dict[Path, list[int]]:
        """These rows by domain of a level, domains in topological order."""
        found: dict[Path, list[int]] = defaultdict(list)
        for node in self.nodes:
            path = domain(node.domains, level)
            if path is not None:
                found[path] += [node.row] if node.row in rows else []
        return dict(found)

    def most(self, kind: ClassSpec, rows: Sequence[int]) -> int:
        """How many of these rows may be used together."""
        if not kind.within:
            return len(rows)
        if kind.within not in self.levels:
            return 0
        return max(map(len, self.members(rows, self.levels.index(kind.within)).values()), default=0)

    def smallest(
        self, rows: Sequence[int], level: int, count: int, among: Collection[Path] | None = None
    ) -> Path | None:
        """The domain of a level with the fewest of these rows that are enough; of equals the one in smaller domains."""
        best: Path | None = None
        for path, mine in self.members(rows, level).items():
            if len(mine) < count or (among is not None and path not in among):
                continue
            if (
                best is None
                or len(mine) < len(self.members(rows, level)[best])
                or (len(mine) == len(self.members(rows, level)[best]) and self.is_in_smaller(rows, path, best))
            ):
                best = path
        return best

    def is_in_smaller(self, rows: Sequence[int], one: Path, other: Path) -> bool:
        while True:
            around, beside = parent(one), parent(other)
            if around is None or beside is None or around == beside:
                return False
            here = len(self.members(rows, len(around) - 1)[around])
            there = len(self.members(rows, len(beside) - 1)[beside])
            if here != there:
                return here < there
            one, other = around, beside

    def compact(self, kind: ClassSpec, ranks: dict[int, Any]) -> list[int]:
        """The rows for a start, in the order of its ranks; fewer than it needs where there are not enough together."""
        rows, level = list(ranks), self.level(kind)
        whole: list[int] = rows if level < 0 else []
        for narrow in range(len(self.levels) - 1, max(level, 0) - 1, -1):
            best = self.smallest(rows, narrow, kind.nodes)
            if best is not None:
                whole = self.members(rows, narrow)[best]
                break
        if self.taste is not None:
            whole = self.tastiest(rows, max(level, 0), kind.nodes) or whole
        if len(whole) < kind.nodes:
            return []
        leaves = [mine for mine in self.members(whole, len(self.levels) - 1).values() if mine]
        chosen: list[int] = []
        while leaves and len(chosen) < kind.nodes:
            left = kind.nodes - len(chosen)
            enough = [mine for mine in leaves if len(mine) >= left]
            leaf = min(enough, key=len) if enough else max(leaves, key=len)
            chosen += self.least(leaf, ranks, left)
            leaves.remove(leaf)
        rest = [row for row in whole if row not in chosen]
        chosen += self.least(rest, ranks, kind.nodes - len(chosen))
        return sorted(chosen, key=self.place.__getitem__)

    def tastiest(self, rows: Sequence[int], widest: int, count: int) -> list[int]:
        """Of the domains with so many of these rows the one of the best taste; of equals the narrowest and smallest."""
        assert self.taste is not None
        there = [
            (path, mine)
            for level in range(widest, len(self.levels))
            for path, mine in self.members(rows, level).items()
            if len(mine) >= count
        ]
        if not there:
            return []
        most = max(self.taste(path) for path, _mine in there)
        narrow = max(len(path) for path, _mine in there if self.taste(path) == most)
        alike = {path for path, _mine in there if self.taste(path) == most and len(path) == narrow}
        best = self.smallest(rows, narrow - 1, count, alike)
        assert best is not None
        return self.members(rows, narrow - 1)[best]

    def least(self, rows: Sequence[int], ranks: dict[int, Any], count: int) -> list[int]:
        return sorted(rows, key=lambda row: (ranks[row], self.place[row]))[:count]

    def ranked(self, kind: ClassSpec, ranks: dict[int, Any]) -> list[int]:
        """The rows for a reservation of a gang that must be together: of the smallest domain, by rank; ties go to the
        last ones."""
        level = self.level(kind)
        best = self.smallest(list(ranks), level, kind.nodes)
        if best is None:
            return []
        rows = self.members(list(ranks), level)[best]
        chosen = sorted(rows, key=lambda row: (ranks[row], -self.place[row]))[: kind.nodes]
        return sorted(chosen, key=self.place.__getitem__)


def parent(path: Path) -> Path | None:
    """The narrowest wider domain."""
    for level in range(len(path) - 1, 0, -1):
        if path[level - 1]:
            return path[:level]
    return None
