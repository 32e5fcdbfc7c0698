"""Jobs of a replay that have several groups of nodes: to the engine each group is a task, to everybody else the first
one stands for all of them.

Pure. As the controller does it: the tasks of all groups are submitted, end and are refused together. Nothing where no
job has groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.classes import ClassSpec
from hal.core.engine.plan import Plan

Table = NDArray[np.void]


class GroupedJobs:
    """Of one replay."""

    def __init__(self, others: Mapping[int, Sequence[int]], classes: Sequence[ClassSpec]) -> None:
        """Args:
        others: by the class of a job's first group, those of its others: indexes of `classes`.
        """
        self._others = others
        self._classes = classes

    def submits(self, rows: Table) -> Table:
        """Submit rows of jobs, with those of all their groups."""
        if not self._others:
            return rows
        found: list[np.void] = []
        for row in rows:
            found.append(row)
            for group, class_index in enumerate(self._others.get(int(row["class_index"]), ()), 1):
                other = row.copy()
                other["first_task"], other["class_index"] = group, class_index
                found.append(other)
        return np.array(found, rows.dtype)

    def ends(self, rows: Table, class_of: Sequence[int]) -> Table:
        """Rows of ended attempts, with those of all groups. class_of: by row, the class of the job's first group."""
        if not self._others:
            return rows
        found: list[np.void] = []
        for row, class_index in zip(rows, class_of, strict=True):
            found.append(row)
            for group in range(1, 1 + len(self._others.get(class_index, ()))):
                other = row.copy()
                other["task"] = group
                found.append(other)
        return np.array(found, rows.dtype)

    def has(self, class_index: int) -> bool:
        """Whether jobs whose first group is of this class have others."""
        return class_index in self._others

    def starts(self, plan: Plan, place: int, class_index: int) -> Table:
        """The starts of all groups of the job whose first one is at `place` of a plan, which has them in order."""
        return plan.starts[place : place + 1 + len(self._others.get(class_index, ()))]

    def requests(self, class_index: int) -> tuple[Mapping[str, int], ...]:
        """What a start holds of each of its nodes, in rank order."""
        parts = [self._classes[index] for index in (class_index, *self._others.get(class_index, ()))]
        return tuple(part.request for part in parts for _ in range(part.nodes))
