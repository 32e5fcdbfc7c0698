"""Sorting many pairs stays within its scratch, and gives bad pivots up after as many divisions as it allows itself."""

from __future__ import annotations

import numpy as np
import pytest

from hal.core.kernels.structures.sorting import FEW, heap_pairs, sort_many
from tests.core.kernels.structures.test_sorting import BAD_PIVOTS

WAITING = 3
"""Words of the scratch for each part that waits: begin, end, divisions left."""
UNTOUCHED = -7


def sorted_with(first: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The scratch after these were sorted."""
    stack = np.full(192, UNTOUCHED, np.int64)
    keys = np.array(first, np.int64)
    sort_many(keys, np.arange(len(first)), len(first), stack)
    assert keys.tolist() == sorted(first)
    return stack


@pytest.mark.parametrize(
    "first",
    [
        [*range(1_024)],
        [*range(1_024)][::-1],
        [*range(0, 1_024, 2), *range(1_023, 0, -2)],
        [(389 * n) % 1_024 for n in range(1_024)],
        [n % 3 for n in range(1_024)],
        BAD_PIVOTS,
    ],
    ids=["rising", "falling", "there and back", "mixed", "three values", "bad pivots"],
)
def test_no_more_parts_wait_than_the_logarithm_of_their_number(first: list[int]) -> None:
    """The larger part waits, so the one that is divided next is at most half: 10 for 1,024."""
    touched = int((sorted_with(first) != UNTOUCHED).sum())
    assert touched <= WAITING * (len(first) - 1).bit_length()


def test_bad_pivots_use_up_their_divisions() -> None:
    """Two for each bit of their number, then the rest is sorted as a heap."""
    assert sorted_with(BAD_PIVOTS)[2] == 0


@pytest.mark.parametrize("size", [FEW - 1, FEW, FEW + 1, FEW + 2])
def test_as_many_as_are_few_are_sorted_and_no_more(size: int) -> None:
    """On both sides of the bound; the pair behind stays."""
    first = np.array([*reversed(range(size)), -1], np.int64)
    second = np.arange(size + 1)
    sort_many(first, second, size, np.zeros(192, np.int64))
    assert first.tolist() == [*range(size), -1]
    assert second.tolist() == [*reversed(range(size)), size]


@pytest.mark.parametrize("size", range(1, 9))
def test_the_greatest_pair_is_at_the_top_of_a_heap(size: int) -> None:
    """By the first column, then by the second; the greatest stands last before."""
    first = np.array([2] * size, np.int64)
    second = np.arange(size)
    heap_pairs(first, second, size)
    assert second[0] == size - 1
    for at in range(1, size):
        assert second[(at - 1) // 2] > second[at]
