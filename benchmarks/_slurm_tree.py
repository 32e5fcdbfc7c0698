"""Which nodes Slurm's topology/tree would choose, re-implemented from its description and from reading it, not copied.

The rules, for jobs of whole nodes that are all alike (Slurm 24.05, `src/plugins/topology/tree`):

- Leaf switches are taken one after the other, each with all of its free nodes in node order, until the job has enough.
- A leaf is compared with the best one so far from the leaves upwards, until a switch around one of them has room for
  all that is left, or they hang on the same switch. Of two that have room the one with fewer free nodes is better; of
  two that have none, the one with more. So the tightest switch with room is taken, at the lowest level that has one.
- The distance of a leaf is the sum of its distances to all leaves that were taken. A nearer leaf is better if a switch
  around it, where the comparison ended, has room; at the same distance the comparison decides.
- Nodes that were taken are free no more, on their leaf and on the switches around it.

Compiled, for Python would take minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]

NO_SWITCH: Final = -1


class SlurmTree:
    """A tree of switches over alike nodes, and which nodes are free."""

    def __init__(self, paths: Sequence[Sequence[str]]) -> None:
        """Of nodes in Slurm's order: the switches around each, widest first; all of the same depth, below one root."""
        depth = len(paths[0])
        names: dict[tuple[int, str], int] = {}
        parents: list[int] = []
        levels: list[int] = []
        leaf_of = np.zeros(len(paths), np.int64)
        for node, path in enumerate(paths):
            around = NO_SWITCH
            for at, name in enumerate(path):
                known = names.setdefault((at, name), len(names))
                if known == len(parents):
                    parents.append(around)
                    levels.append(depth - 1 - at)
                around = known
            leaf_of[node] = around
        self.leaf_of: Ints = leaf_of
        self._parent = np.array(parents, np.int64)
        self._level = np.array(levels, np.int64)
        self._leaves = np.flatnonzero(self._level == 0)
        self._distance = _distances(self._parent)
        self._order = np.argsort(leaf_of, kind="stable")
        """Nodes leaf by leaf, in node order."""
        self._begins = np.searchsorted(leaf_of[self._order], np.arange(len(parents) + 1))
        self.free = np.ones(len(paths), np.bool_)
        self._counts = np.zeros(len(parents), np.int64)
        _add(self._counts, self._parent, leaf_of, 1)

    def take(self, nodes: int) -> Ints | None:
        """Choose so many nodes and take them; None: too few are free."""
        chosen = np.zeros(nodes, np.int64)
        counts = self._counts.copy()
        found = _choose(
            chosen,
            counts,
            self.free,
            self._order,
            self._begins,
            self._leaves,
            self._parent,
            self._level,
            self._distance,
        )
        if found < nodes:
            return None
        self.free[chosen] = False
        _add(self._counts, self._parent, self.leaf_of[chosen], -1)
        return chosen

    def give_back(self, nodes: Ints) -> None:
        """They are free again."""
        self.free[nodes] = True
        _add(self._counts, self._parent, self.leaf_of[nodes], 1)


@njit(nogil=True)
def _add(counts: Ints, parent: Ints, leaves: Ints, by: int) -> None:
    """Count a node more or less on each of these leaves and on the switches around it."""
    for leaf in leaves:
        at = leaf
        while at != NO_SWITCH:
            counts[at] += by
            at = parent[at]


@njit(nogil=True)
def _distances(parent: Ints) -> Ints:
    """Hops between any two switches of a tree with one root."""
    count = parent.shape[0]
    found = np.zeros((count, count), np.int64)
    for one in range(count):
        for other in range(count):
            a, up = one, 0
            while a != NO_SWITCH:
                b, down = other, 0
                while b != NO_SWITCH and b != a:
                    b, down = parent[b], down + 1
                if b == a:
                    found[one, other] = up + down
                    break
                a, up = parent[a], up + 1
    return found


@njit(nogil=True)
def _compared(i: int, j: int, wanted: int, counts: Ints, parent: Ints, level: Ints) -> tuple[int, bool]:
    """1: i is better, -1: j is, 0: neither; and whether what the comparison ended at has room around i."""
    while True:
        room_i, room_j = counts[i] >= wanted, counts[j] >= wanted
        if room_i and room_j:
            if counts[i] != counts[j]:
                return (1 if counts[i] < counts[j] else -1), room_i
            break
        if room_i or room_j:
            return (1 if room_i else -1), room_i
        if parent[i] == parent[j] or parent[i] == NO_SWITCH or parent[j] == NO_SWITCH:
            break
        i, j = parent[i], parent[j]
    if counts[i] != counts[j]:
        return (1 if counts[i] > counts[j] else -1), room_i
    if level[i] != level[j]:
        return (1 if level[i] < level[j] else -1), room_i
    return 0, room_i


@njit(nogil=True)
def _choose(
    chosen: Ints,
    counts: Ints,
    free: NDArray[np.bool_],
    order: Ints,
    begins: Ints,
    leaves: Ints,
    parent: Ints,
    level: Ints,
    distance: Ints,
) -> int:
    """Write the chosen nodes, leaf by leaf; returns how many. Changes `counts`, which are a copy."""
    far = np.zeros(counts.shape[0], np.int64)
    found, wanted = 0, chosen.shape[0]
    while found < wanted:
        best = NO_SWITCH
        for leaf in leaves:
            if counts[leaf] == 0:
                continue
            if best == NO_SWITCH:
                best = leaf
                continue
            better, room = _compared(leaf, best, wanted - found, counts, parent, level)
            if (far[leaf] < far[best] and room) or (far[leaf] == far[best] and better > 0):
                best = leaf
        if best == NO_SWITCH:
            return found
        far += distance[best]
        for node in order[begins[best] : begins[best + 1]]:
            if free[node] and found < wanted:
                chosen[found] = node
                found += 1
        taken, at = counts[best], best
        while at != NO_SWITCH:
            counts[at] -= taken
            at = parent[at]
    return found
