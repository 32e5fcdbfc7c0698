"""The heaps and sorts inside a cycle agree with Python's."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.kernels.passes.candidates import order_candidates, sink_candidate
from hal.core.kernels.structures.sorting import sort_many, sort_pairs
from tests.examples import examples

pairs = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=40)


@given(pairs=pairs)
@settings(max_examples=examples(150), deadline=None)
def test_pairs_are_sorted_as_python_sorts_them(pairs: list[tuple[int, int]]) -> None:
    """Both columns move together."""
    first = np.array([a for a, _b in pairs] + [9], np.int64)
    second = np.array([b for _a, b in pairs] + [9], np.int64)
    sort_pairs(first, second, len(pairs))
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [*sorted(pairs), (9, 9)]


@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), min_size=15, max_size=400),
    shape=st.sampled_from(["mixed", "rising", "falling", "there and back"]),
)
@settings(max_examples=examples(60), deadline=None)
def test_many_pairs_are_sorted_as_python_sorts_them(pairs: list[tuple[int, int]], shape: str) -> None:
    """Also what is in order already, or against it, which is bad for pivots."""
    if shape != "mixed":
        pairs = sorted(pairs, reverse=shape == "falling")
    if shape == "there and back":
        pairs = pairs[::2] + pairs[1::2][::-1]
    first = np.array([a for a, _b in pairs] + [9], np.int64)
    second = np.array([b for _a, b in pairs] + [9], np.int64)
    sort_many(first, second, len(pairs), np.zeros(192, np.int64))
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [*sorted(pairs), (9, 9)]


BAD_PIVOTS = [
    0, 78, 2, 75, 4, 76, 6, 73, 8, 74, 10, 71, 12, 72, 14, 69, 16, 70, 18, 67, 20, 68, 22, 65, 24, 66, 26, 63, 99,
    97, 98, 95, 96, 93, 94, 91, 92, 89, 90, 87, 88, 85, 86, 83, 84, 81, 82, 79, 80, 77, 1, 3, 5, 7, 9, 11, 13, 15,
    17, 19, 21, 23, 25, 27, 64, 61, 62, 59, 60, 57, 58, 55, 56, 53, 54, 51, 52, 49, 50, 47, 48, 45, 46, 43, 44,
    41, 42, 39, 40, 37, 38, 35, 36, 33, 34, 31, 32, 29, 30, 28,
]  # fmt: skip
"""Against the middle of three: made by an adversary that decides only when asked which pair is the lesser one (McIlroy,
Software: Practice and Experience 29, 1999); 14 divisions leave more than FEW pairs, which a heap then sorts."""


def test_bad_pivots_end_in_a_heap() -> None:
    """A sequence that is made against the choice of pivots is sorted all the same."""
    first, second = np.array(BAD_PIVOTS, np.int64), np.arange(len(BAD_PIVOTS))
    sort_many(first, second, len(BAD_PIVOTS), np.zeros(192, np.int64))
    assert first.tolist() == list(range(len(BAD_PIVOTS)))
    assert [BAD_PIVOTS[place] for place in second.tolist()] == first.tolist()


@given(items=st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3), st.integers(0, 9)), min_size=1, max_size=40))
@settings(max_examples=examples(150), deadline=None)
def test_a_heap_hands_out_lane_then_key_then_job(items: list[tuple[int, int, int]]) -> None:
    """Popping everything gives the sorted order."""
    heap = np.array([[*item, k] for k, item in enumerate(items)], np.int64)
    size = len(items)
    order_candidates(heap, size)
    popped = []
    while size:
        popped.append(tuple(heap[0, :3].tolist()))
        size -= 1
        heap[0] = heap[size]
        sink_candidate(heap, size, 0)
    assert popped == sorted(items)
