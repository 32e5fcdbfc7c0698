"""Which tasks of an ended job are removed when several selections of them are, one after the other.

Pure. O(pieces log ranges + ranges) for each selection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hal.core.model import TaskState
from hal.planes.tasks.live.task_sets import TaskSet, merged, removed, within


class TakenTasks:
    """Tasks that are removed of one job: those of before, and what is taken now."""

    def __init__(self, gone: Sequence[tuple[int, int]], ends: Mapping[TaskState, Sequence[tuple[int, int]]]) -> None:
        """
        Args:
            gone: removed before, as ranges [first, end).
            ends: how the others ended, likewise.
        """
        self._gone = list(gone)
        self.counts: Counter[TaskState] = Counter()
        """How many that were in each state are taken now."""
        self._left = {state: merged(ranges) for state, ranges in ends.items()}

    def gone(self) -> TaskSet:
        """All that are removed then."""
        return merged(self._gone)

    def take(self, pieces: TaskSet, states: Sequence[TaskState]) -> int:
        """Take those of these tasks that are left and ended in one of the states (none: in any); returns how many."""
        count = 0
        for state in states or tuple(self._left):
            left = self._left.get(state, ())
            taken = [part for first, end in pieces for part in within(left, first, end)]
            for first, end in pieces:
                left = removed(left, first, end)
            self._left[state] = left
            self._gone += taken
            self.counts[state] += _size(taken)
            count += _size(taken)
        return count


def _size(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(end - first for first, end in ranges)
