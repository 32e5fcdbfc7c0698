"""Sorting two columns together where nothing may be allocated.

Pure. Heapsort: O(n log n) whatever the order, and the heap alone keeps the least n of many.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.jit import inner

Ints = NDArray[np.int64]


@inner
def sort_pairs(first: Ints, second: Ints, size: int) -> None:
    """Sort two columns together by (first, second), ascending."""
    heap_pairs(first, second, size)
    for last in range(size - 1, 0, -1):
        first[0], first[last] = first[last], first[0]
        second[0], second[last] = second[last], second[0]
        sink_pair(first, second, last, 0)


@inner
def heap_pairs(first: Ints, second: Ints, size: int) -> None:
    """Make a heap of pairs with the greatest at the top."""
    for begin in range(size // 2 - 1, -1, -1):
        sink_pair(first, second, size, begin)


@inner
def sink_pair(first: Ints, second: Ints, size: int, at: int) -> None:
    """Let a pair of a heap sink to its place."""
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and (
            first[child + 1] > first[child] or (first[child + 1] == first[child] and second[child + 1] > second[child])
        ):
            child += 1
        if first[at] > first[child] or (first[at] == first[child] and second[at] >= second[child]):
            return
        first[at], first[child] = first[child], first[at]
        second[at], second[child] = second[child], second[at]
        at = child
