"""On how many domains of each level of the topology the jobs of several nodes were.

Pure. Every start counts, also one after a preemption. A node that is in no domain of a level counts as one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.plan import Plan
from hal.daemons.twin.machine import Machine

IntArray = NDArray[np.int64]


class GangFigures(NamedTuple):
    """What was counted."""

    starts: int
    """Of jobs of several nodes."""
    domains: Mapping[str, float]
    """By level: the mean number of domains that such a start has nodes in; 0 without one."""

    def as_dict(self) -> dict[str, object]:
        """Ready for JSON."""
        return {"starts": self.starts, "mean_domains": dict(self.domains)}


class GangDomains:
    """Counts the domains of starts; nothing without a topology."""

    def __init__(self, machine: Machine, is_group: Callable[[int, int], bool] | None = None) -> None:
        """Of a machine whose nodes the engine knows in the order of `node_names`.

        Args:
            is_group: whether a start, by job and task, is of another group of nodes of the job before; None: none is.
        """
        self._is_group = is_group
        topology = machine.topology
        self.levels = () if topology is None else topology.levels
        self._domains: IntArray = np.zeros((len(self.levels), machine.nodes), np.int64)
        """Shape (levels, nodes): the number of each node's domain."""
        if topology is not None:
            paths = machine.node_domains
            for level in range(len(self.levels)):
                names = [path[level] or f"\0{node}" for node, path in enumerate(paths)]
                self._domains[level] = np.unique(names, return_inverse=True)[1]
        self._sums = [0] * len(self.levels)
        self._starts = 0

    def count(self, plan: Plan) -> None:
        """Count the starts of a plan."""
        if not self.levels:
            return
        for first, width in self._gangs(plan):
            if width > 1:
                self._starts += 1
                found = self._domains[:, plan.rows[first : first + width]]
                for level, numbers in enumerate(found):
                    self._sums[level] += len(set(numbers.tolist()))

    def _gangs(self, plan: Plan) -> list[tuple[int, int]]:
        """Where the nodes of each start are, and how many; those of the groups of one job are one start."""
        if self._is_group is None:
            found: list[tuple[int, int]] = plan.starts[["row_offset", "row_count"]].tolist()
            return found
        found = []
        for number, task, first, width in plan.starts[["job", "task", "row_offset", "row_count"]].tolist():
            if self._is_group(number, task):
                found[-1] = found[-1][0], found[-1][1] + width
            else:
                found.append((first, width))
        return found

    def figures(self) -> GangFigures | None:
        """What was counted so far; None without a topology."""
        if not self.levels:
            return None
        starts = max(self._starts, 1)
        return GangFigures(
            self._starts, {level: total / starts for level, total in zip(self.levels, self._sums, strict=True)}
        )
