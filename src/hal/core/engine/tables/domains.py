"""Domains of the topology: their numbers, which nodes are neighbours, and lines for shapes that ask for one.

Pure. A domain is named by the names of its own level and of all wider ones, so domains always form a tree. Nodes are
listed in topological order: those of any domain are neighbours, and domains come as people count their names. A node
that moves is taken out of the order and put in again: columns are shifted, the more the farther it moves. One that has
left keeps its place until it moves or the whole order is written again, as nobody can use it there: most return where
they were. What has no node any more gives its number back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints, Mask
from hal.core.kernels.structures.declaration import Room
from hal.core.kernels.structures.declared import DOMAINS, WITHIN_SHAPES, DomainTables
from hal.core.model.topology.node_lists import natural_key

Path = tuple[str, ...]
"""Names of the domains that a node is in, one for each level, '' where it is in none."""
_NameKey = tuple[tuple[int, int, str], ...]
_PathKey = tuple[tuple[_NameKey, ...], int]
"""What orders paths, and the number of the path."""
SPARE_DOMAINS: Final = 16
"""Room for more domains than there are, beside half as many again."""
MOVED_APART: Final = 4
"""So many nodes that move are moved one after the other; for more the whole order is written again."""
NOWHERE: Final = -1
"""The number of no level, and of the path of a node that has left."""


class Domains(DomainTables):
    """The part of a `State` that knows the topology. It is empty where the configuration names no levels."""

    def __init__(self) -> None:
        self.line_free: list[int] = []
        """Lines of `within` to be used again."""
        self._begin(())

    def _begin(self, levels: Path) -> None:
        """Nothing is known of any node."""
        self.levels = levels
        """Names, widest first."""
        self.names: list[Path] = []
        """By domain: its name behind those of wider levels; () = the number is free."""
        self._ids: dict[Path, int] = {}
        self._refs: list[int] = []
        """By domain: paths through it that nodes have."""
        self._free: list[int] = []
        self._path_ids: dict[Path, int] = {}
        self._path_names: list[Path] = []
        """By path."""
        self._path_nodes: list[int] = []
        """By path: nodes that have it."""
        self._path_free: list[int] = []
        self._domains_of_path = np.full((4, len(levels)), NOWHERE, np.int64)
        """By path: its domain of each level, NOWHERE where it has none."""
        self._sorted: list[_PathKey] = []
        """Paths that nodes have, in topological order."""
        self._path_of: Ints = np.full(4, NOWHERE, np.int64)
        """By node: its path; NOWHERE of one that has left."""
        self.moved = True
        """Whether domains may have come or gone since the order of nodes was last written."""
        self._moves: list[int] = []
        """Nodes that have moved since then between domains that there were before and are still."""
        self._stands: Ints = np.full(4, NOWHERE, np.int64)
        """By node: the path at which it stands in the order; of one that has left, the one that it had."""
        self._rank = np.zeros(1, np.int64)
        """By path: its place among the paths that nodes had then, from 1 on; 0 of NOWHERE."""
        self._known_names: NDArray[np.str_] | None = None
        """Whole names in the order of `listed`, once somebody has asked."""
        self._listed_nodes = 0
        """Nodes in the order as it was last written."""

    def level_of(self, name: str) -> int:
        """The number of a level, NOWHERE where there is none of that name."""
        return self.levels.index(name) if name in self.levels else NOWHERE

    def are_in(self, level: str, nodes: Ints) -> Mask:
        """Whether nodes are in a domain of a level; none is where there is no such level."""
        at = self.level_of(level)
        return self.domain_of[at, nodes] > 0 if at >= 0 else np.zeros(nodes.shape, np.bool_)

    def path_of(self, node: int) -> Path:
        """The domains of a node, by level."""
        path = int(self._path_of[node]) if node < self._path_of.shape[0] else NOWHERE
        return self._path_names[path] if path >= 0 else ("",) * len(self.levels)

    def all_paths(self, nodes: int) -> list[Path | None]:
        """The domains of the first `nodes` nodes; None of those that have left."""
        known = self._path_of[:nodes].tolist()
        return [self._path_names[path] if path >= 0 else None for path in known] + [None] * (nodes - len(known))

    def rooms_for(self, paths: list[Path]) -> dict[Room, int]:
        """Rooms for the domains that these paths name, where there is not room for as many."""
        fresh = {
            path[: level + 1]
            for path in paths
            if path not in self._path_ids
            for level, name in enumerate(path)
            if name and path[: level + 1] not in self._ids
        }
        need = len(self.names) - len(self._free) + len(fresh)
        return {DOMAINS: need + need // 2 + SPARE_DOMAINS} if need > self.domains.shape[0] else {}

    def whole(self, domains: Path) -> Path:
        """What a node says, with one name for each level."""
        return (*domains[: len(self.levels)], *("",) * (len(self.levels) - len(domains)))

    def put(self, node: int, path: Path | None) -> None:
        """A node is in these domains (all levels; room was made), or has left (None)."""
        if node >= self._path_of.shape[0]:
            more = np.full(node + 1, NOWHERE, np.int64)
            self._path_of = np.concatenate([self._path_of, more])
            self._stands = np.concatenate([self._stands, more])
        before = int(self._path_of[node])
        after = NOWHERE if path is None else self._path_id(path)
        if before == after:
            return
        fresh = path is not None and self._path_nodes[after] == 0
        self._path_of[node] = after
        if path is not None:
            self._path_nodes[after] += 1
        if fresh or (before >= 0 and self._path_nodes[before] == 1):
            self.moved = True  # domains may come or go
        elif path is not None and (node >= self._listed_nodes or self._stands[node] != after):
            self._moves.append(node)
        if before >= 0:
            self._path_nodes[before] -= 1
            if self._path_nodes[before] == 0:
                self._forget_path(before)
        self.domain_of[: len(self.levels), node] = self._domains_of_path[after] + 1 if after >= 0 else 0

    def use_levels(self, levels: Path, nodes: int) -> list[Path | None]:
        """Name the levels, and forget where nodes are. Returns where the first `nodes` nodes are by the new levels, for
        `put`: in the domains of levels that were there before; None of those that have left."""
        places = [self.levels.index(name) if name in self.levels else NOWHERE for name in levels]
        paths = [
            None if path is None else tuple(path[at] if at >= 0 else "" for at in places)
            for path in self.all_paths(nodes)
        ]
        self._begin(levels)
        return paths

    def _path_id(self, path: Path) -> int:
        there = self._path_ids.get(path)
        if there is not None:
            return there
        if self._path_free:
            number = self._path_free.pop()
            self._path_names[number] = path
        else:
            number = len(self._path_names)
            self._path_names.append(path)
            self._path_nodes.append(0)
        self._path_ids[path] = number
        insort(self._sorted, (_key(path), number))
        if number >= self._domains_of_path.shape[0]:
            more = np.full((number + 1, len(self.levels)), NOWHERE, np.int64)
            self._domains_of_path = np.concatenate([self._domains_of_path, more])
        self._domains_of_path[number] = NOWHERE
        for level, name in enumerate(path):
            if name:
                domain = self._domain_id(path[: level + 1])
                self._refs[domain] += 1
                self._domains_of_path[number, level] = domain
        return number

    def _domain_id(self, name: Path) -> int:
        there = self._ids.get(name)
        if there is not None:
            return there
        if self._free:
            domain = self._free.pop()
            self.names[domain] = name
        else:
            domain = len(self.names)
            self.names.append(name)
            self._refs.append(0)
        self._ids[name] = domain
        self.domains[domain, L.DOMAIN_LEVEL] = len(name) - 1
        return domain

    def _forget_path(self, number: int) -> None:
        path = self._path_names[number]
        del self._path_ids[path]
        del self._sorted[bisect_left(self._sorted, (_key(path), number))]
        self._path_free.append(number)
        for level, name in enumerate(path):
            if name:
                domain = self._ids[path[: level + 1]]
                self._refs[domain] -= 1
                if self._refs[domain] == 0:
                    del self._ids[path[: level + 1]]
                    self.names[domain] = ()
                    self._free.append(domain)

    @property
    def is_listed(self) -> bool:
        """Whether the order of nodes is up to date."""
        return not (self.moved or self._moves)

    def write_order(self, meta: Ints, rows: Ints) -> None:
        """Write the order of nodes, where their domains are in it, and which domains each level has."""
        nodes = int(meta[L.M_NODES])
        moves, self._moves = self._moves, []
        if not self.moved and len(moves) <= MOVED_APART:
            for node in moves:
                self._move(rows, node)
            return
        self.moved, self._listed_nodes, self._known_names = False, nodes, None
        paths = np.array([number for _path, number in self._sorted], np.int64)
        rank = self._rank = np.zeros(len(self._path_names) + 1, np.int64)  # NOWHERE is the last one
        rank[paths] = np.arange(1, paths.shape[0] + 1)
        known = min(nodes, self._path_of.shape[0])
        self._stands[:] = self._path_of
        of = np.zeros(nodes, np.int64)
        of[:known] = rank[self._path_of[:known]]
        order = np.argsort(of, kind="stable")
        self.node_order[:nodes] = order
        rows[order, L.N_PLACE] = np.arange(nodes)
        # Places are worked out path by path: paths are far fewer than nodes.
        edges = np.cumsum(np.bincount(of, minlength=paths.shape[0] + 1))
        firsts, lasts = edges[:-1], edges[1:]
        inside = self._domains_of_path[paths]
        self.domains[:, [L.DOMAIN_FIRST, L.DOMAIN_LAST, L.DOMAIN_PARENT]] = 0
        listed = 0
        for level in range(len(self.levels)):
            here = inside[:, level]
            begins = np.flatnonzero(np.append(True, here[1:] != here[:-1])) if paths.size else paths
            ends = np.append(begins[1:], paths.shape[0]) - 1 if paths.size else paths
            there = here[begins] >= 0
            begins, ends = begins[there], ends[there]
            found = here[begins]
            self.domains[found, L.DOMAIN_FIRST] = firsts[begins]
            self.domains[found, L.DOMAIN_LAST] = lasts[ends]
            for wider in range(level):
                around = inside[begins, wider] + 1
                self.domains[found, L.DOMAIN_PARENT] = np.where(
                    around > 0, around, self.domains[found, L.DOMAIN_PARENT]
                )
            self.level_domains[level] = (listed, listed + found.shape[0])
            self.listed[listed : listed + found.shape[0]] = found
            listed += found.shape[0]

    def _key_of(self, node: int) -> tuple[int, int]:
        """What orders nodes, as long as there are the same paths."""
        return int(self._rank[self._stands[node]]), int(node)

    def _move(self, rows: Ints, node: int) -> None:
        """Take a node out of the order of nodes, if it is in it, and put it where it belongs."""
        last = self._listed_nodes
        order, first_of, last_of = self.node_order, self.domains[:, L.DOMAIN_FIRST], self.domains[:, L.DOMAIN_LAST]
        old = int(rows[node, L.N_PLACE]) if node < last else last
        if node < last:
            order[old : last - 1] = order[old + 1 : last]
            first_of[first_of > old] -= 1
            last_of[last_of > old] -= 1
            last -= 1
        after = self._stands[node] = int(self._path_of[node])
        new = bisect_left(order, self._key_of(node), 0, last, key=self._key_of)
        order[new + 1 : last + 1] = order[new:last]
        order[new] = node
        mine = np.zeros(self.domains.shape[0], np.bool_)
        if after >= 0:
            inside = self._domains_of_path[after]
            mine[inside[inside >= 0]] = True
        first_of[(first_of >= new) & ~mine & (last_of > first_of)] += 1
        last_of[(last_of > new) | mine] += 1
        self._listed_nodes = last + 1
        low, high = min(old, new), min(max(old, new) + 1, last + 1)
        rows[order[low:high], L.N_PLACE] = np.arange(low, high)

    def listed_names(self) -> NDArray[np.str_]:
        """The whole name of each domain that is listed, as \"east/r1\"."""
        if self._known_names is None:
            last = self.level_domains[len(self.levels) - 1, L.LISTED_LAST] if self.levels else 0
            self._known_names = np.array(["/".join(self.names[at]) for at in self.listed[:last].tolist()], np.str_)
        return self._known_names

    def any(self) -> bool:
        """Whether some node is in a domain."""
        return bool(self._ids)

    # --- shapes whose nodes must be in one domain ------------------------------------------------------------------

    def line_rooms(self, meta: Ints) -> dict[Room, int]:
        """Room for one more line, where there is none."""
        if self.line_free or meta[L.M_WITHIN] < self.within.shape[0]:
            return {}
        return {WITHIN_SHAPES: 2 * self.within.shape[0]}

    def give_line(self, meta: Ints, shape: int, level: str) -> int:
        """A line for a shape; `line_rooms` made room. Nothing is counted yet."""
        if self.line_free:
            line = self.line_free.pop()
        else:
            line = int(meta[L.M_WITHIN])
            meta[L.M_WITHIN] = line + 1
        self.within[line] = 0
        self.within[line, L.WITHIN_SHAPE] = shape + 1
        self.within[line, L.WITHIN_LEVEL] = self.level_of(level)
        return line

    def take_line(self, meta: Ints, line: int) -> None:
        """The shape of a line is forgotten."""
        self.within[line, L.WITHIN_SHAPE] = 0
        self.line_free.append(line)
        if len(self.line_free) == meta[L.M_WITHIN]:
            self.line_free = []
            meta[L.M_WITHIN] = 0


def _key(path: Path) -> tuple[_NameKey, ...]:
    """Paths in topological order: what is in no domain of a level comes before what is in one."""
    return tuple(natural_key(name) if name else () for name in path)
