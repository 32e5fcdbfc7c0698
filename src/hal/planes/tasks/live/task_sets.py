"""Sets of task numbers as ranges: what a million tasks of an array have in common costs one pair of numbers.

Pure. A `TaskSet` is immutable, so keeping the old one is all that a rollback needs. O(log ranges) to find, O(ranges) to
change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

TaskSet = tuple[tuple[int, int], ...]
"""(first, one past the last), disjoint, ascending, none touching the next."""


def added(task_set: TaskSet, first: int, end: int) -> TaskSet:
    """With [first, end) in it."""
    if task_set and task_set[-1][1] == first:  # tasks of an array mostly end in order
        return (*task_set[:-1], (task_set[-1][0], end))
    low = bisect_right(task_set, first, key=_end_before)
    high = bisect_right(task_set, end, key=_first)
    if low < high:
        first, end = min(first, task_set[low][0]), max(end, task_set[high - 1][1])
    return (*task_set[:low], (first, end), *task_set[high:])


def removed(task_set: TaskSet, first: int, end: int) -> TaskSet:
    """Without [first, end)."""
    low, high = bisect_right(task_set, first, key=_end), bisect_right(task_set, end - 1, key=_first)
    if low >= high:
        return task_set
    left = ((task_set[low][0], first),) if task_set[low][0] < first else ()
    right = ((end, task_set[high - 1][1]),) if task_set[high - 1][1] > end else ()
    return (*task_set[:low], *left, *right, *task_set[high:])


def within(task_set: TaskSet, first: int, end: int) -> list[tuple[int, int]]:
    """The part of it in [first, end)."""
    at = bisect_right(task_set, first, key=_end)
    found = []
    while at < len(task_set) and task_set[at][0] < end:
        found.append((max(task_set[at][0], first), min(task_set[at][1], end)))
        at += 1
    return found


def merged(parts_within: Iterable[tuple[int, int]]) -> TaskSet:
    """All of these, which may overlap and stand in any order."""
    out: list[tuple[int, int]] = []
    for first, end in sorted(parts_within):
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((first, end))
    return tuple(out)


def complement(task_set: TaskSet, count: int) -> TaskSet:
    """Of [0, count), what is not in it."""
    edges = [0, *(edge for pair in task_set for edge in pair), count]
    return tuple((a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b)


def _first(pair: tuple[int, int]) -> int:
    return pair[0]


def _end(pair: tuple[int, int]) -> int:
    return pair[1]


def _end_before(pair: tuple[int, int]) -> int:
    """So that a range that ends where another begins counts as touching it."""
    return pair[1] + 1
