"""The heaps and sorts inside a cycle agree with Python's."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.kernels.easy import heap_down, heap_order, sort_pairs

pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=40)


@given(pairs=pairs)
@settings(max_examples=150, deadline=None)
def test_pairs_are_sorted_as_python_sorts_them(pairs: list[tuple[int, int]]) -> None:
    """Both columns move together."""
    first = np.array([a for a, _b in pairs] + [9], np.int64)
    second = np.array([b for _a, b in pairs] + [9], np.int64)
    sort_pairs(first, second, len(pairs))
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [*sorted(pairs), (9, 9)]


@given(items=st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3), st.integers(0, 9)), min_size=1, max_size=40))
@settings(max_examples=150, deadline=None)
def test_a_heap_hands_out_lane_then_key_then_job(items: list[tuple[int, int, int]]) -> None:
    """Popping everything gives the sorted order."""
    heap = np.array([[*item, k] for k, item in enumerate(items)], np.int64)
    size = len(items)
    heap_order(heap, size)
    popped = []
    while size:
        popped.append(tuple(heap[0, :3].tolist()))
        size -= 1
        heap[0] = heap[size]
        heap_down(heap, size, 0)
    assert popped == sorted(items)
