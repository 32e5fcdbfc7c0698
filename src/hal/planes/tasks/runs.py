"""Sets of task numbers as runs: what a million tasks of an array have in common costs one pair of numbers.

Pure. `Runs` are immutable, so keeping the old one is all that a rollback needs. O(log runs) to find, O(runs) to change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Runs = tuple[tuple[int, int], ...]
"""(first, one past the last), disjoint, ascending, none touching the next."""


def added(runs: Runs, first: int, end: int) -> Runs:
    """With [first, end) in it."""
    if runs and runs[-1][1] == first:  # tasks of an array mostly end in order
        return (*runs[:-1], (runs[-1][0], end))
    low = bisect_right(runs, first, key=_end_before)
    high = bisect_right(runs, end, key=_first)
    if low < high:
        first, end = min(first, runs[low][0]), max(end, runs[high - 1][1])
    return (*runs[:low], (first, end), *runs[high:])


def removed(runs: Runs, first: int, end: int) -> Runs:
    """Without [first, end)."""
    low, high = bisect_right(runs, first, key=_end), bisect_right(runs, end - 1, key=_first)
    if low >= high:
        return runs
    left = ((runs[low][0], first),) if runs[low][0] < first else ()
    right = ((end, runs[high - 1][1]),) if runs[high - 1][1] > end else ()
    return (*runs[:low], *left, *right, *runs[high:])


def within(runs: Runs, first: int, end: int) -> list[tuple[int, int]]:
    """What of it lies in [first, end), cut to it."""
    at = bisect_right(runs, first, key=_end)
    found = []
    while at < len(runs) and runs[at][0] < end:
        found.append((max(runs[at][0], first), min(runs[at][1], end)))
        at += 1
    return found


def merged(pieces: Iterable[tuple[int, int]]) -> Runs:
    """All of these, which may overlap and stand in any order."""
    out: list[tuple[int, int]] = []
    for first, end in sorted(pieces):
        if out and first <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((first, end))
    return tuple(out)


def complement(runs: Runs, count: int) -> Runs:
    """Of [0, count), what is not in it."""
    edges = [0, *(edge for run in runs for edge in run), count]
    return tuple((a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b)


def _first(run: tuple[int, int]) -> int:
    return run[0]


def _end(run: tuple[int, int]) -> int:
    return run[1]


def _end_before(run: tuple[int, int]) -> int:
    """So that a run that ends where another begins counts as touching it."""
    return run[1] + 1
