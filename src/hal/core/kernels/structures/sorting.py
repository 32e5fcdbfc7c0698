"""Sorting two columns together, and selecting from one, where nothing may be allocated.

Pure. Heapsort: O(n log n) whatever the order, and the heap alone keeps the least n of many. For very many there is
quicksort that ends as heapsort where its pivots are bad (introsort), in three fifths of the time; source: Musser,
Software: Practice and Experience 27, 1997. Its stack is handed in: numba does not find a function that calls itself in
its cache again.
"""

from __future__ import annotations

from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.jit import inner


@inner
def select(values: Ints, count: int, k: int) -> int:
    """The k-th smallest (from 0) of the first `count` values, which it reorders. O(count).

    Each round leaves out at least one value; within it i and j stop at the pivot, then at what they have swapped.
    """
    low = 0
    high = count - 1
    while low < high:
        middle = (low + high) // 2
        a = values[low]
        b = values[middle]
        c = values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i = low
        j = high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return int(values[k])


@inner
def sort_pairs(first: Ints, second: Ints, size: int) -> None:
    """Sort two columns together by (first, second), ascending."""
    heap_pairs(first, second, size)
    for last in range(size - 1, 0, -1):
        first[0], first[last] = first[last], first[0]
        second[0], second[last] = second[last], second[0]
        sink_pair(first, second, last, 0)


FEW = 16
"""So many pairs are sorted by insertion."""


@inner
def sort_many(first: Ints, second: Ints, size: int, stack: Ints) -> None:
    """Sort many pairs by (first, second), ascending; `stack` is scratch of 3 x 64 words."""
    rounds = 0
    while size >> rounds > 0:
        rounds += 1
    stack[0] = 0
    stack[1] = size
    stack[2] = 2 * rounds
    depth = 3
    while depth > 0:
        depth -= 3
        begin = stack[depth]
        end = stack[depth + 1]
        rounds = stack[depth + 2]
        while end - begin > FEW and rounds > 0:
            rounds -= 1
            low, high = _divide(first, second, begin, end)
            # The larger part waits: the stack is never deeper than log2(size).
            smaller = high - begin < end - low
            stack[depth] = low if smaller else begin
            stack[depth + 1] = end if smaller else high
            stack[depth + 2] = rounds
            depth += 3
            begin = begin if smaller else low
            end = high if smaller else end
        if end - begin > FEW:
            sort_pairs(first[begin:end], second[begin:end], end - begin)
        else:
            _insert_all(first, second, begin, end)


@inner
def _divide(first: Ints, second: Ints, begin: int, end: int) -> tuple[int, int]:
    """Divide pairs [begin, end) at the middle one of three: (low, high), none before high after any from low on."""
    middle = (begin + end) >> 1
    _order(first, second, begin, middle)
    _order(first, second, middle, end - 1)
    _order(first, second, begin, middle)
    pivot = first[middle]
    tie = second[middle]
    low = begin
    high = end - 1
    while low <= high:
        while first[low] < pivot or (first[low] == pivot and second[low] < tie):
            low += 1
        while first[high] > pivot or (first[high] == pivot and second[high] > tie):
            high -= 1
        if low <= high:
            first[low], first[high] = first[high], first[low]
            second[low], second[high] = second[high], second[low]
            low += 1
            high -= 1
    return low, high + 1


@inner
def _order(first: Ints, second: Ints, one: int, other: int) -> None:
    """Let the lesser of two pairs stand at `one`."""
    if first[one] > first[other] or (first[one] == first[other] and second[one] > second[other]):
        first[one], first[other] = first[other], first[one]
        second[one], second[other] = second[other], second[one]


@inner
def _insert_all(first: Ints, second: Ints, begin: int, end: int) -> None:
    """Sort a few pairs."""
    for k in range(begin + 1, end):
        one = first[k]
        other = second[k]
        at = k
        while at > begin and (first[at - 1] > one or (first[at - 1] == one and second[at - 1] > other)):
            first[at] = first[at - 1]
            second[at] = second[at - 1]
            at -= 1
        first[at] = one
        second[at] = other


@inner
def heap_pairs(first: Ints, second: Ints, size: int) -> None:
    """Make a heap of pairs with the greatest at the top."""
    for begin in range(size // 2 - 1, -1, -1):
        sink_pair(first, second, size, begin)


@inner
def sink_pair(first: Ints, second: Ints, size: int, at: int) -> None:
    """Let a pair of a heap sink to its place: log2(size) rounds, each goes one level down."""
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
