"""The shape of treaps: it follows from what is inside, and links that lead round are found out instead of followed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.treap import (
    tree_before,
    tree_build,
    tree_descend,
    tree_first,
    tree_insert,
    tree_least,
    tree_node,
    tree_remove,
    tree_seek,
)
from tests.examples import examples

SLOTS = 16
Ints = NDArray[np.int64]
LINKS = [L.T_LEFT, L.T_RIGHT, L.T_MIN]


def filled() -> tuple[Ints, Ints]:
    """A table in which slot n has key n // 3 and walltime 20 - n, and a path."""
    tree = np.zeros((SLOTS, L.TREE_SIZE), np.int64)
    for slot in range(SLOTS):
        tree_node(tree, slot, slot // 3, slot % 2, slot, 20 - slot)
    return tree, np.zeros(L.PATH, np.int64)


def inserted(slots: list[int]) -> tuple[Ints, int]:
    """A tree into which these were inserted one by one, and its root."""
    tree, path = filled()
    root = -1
    for slot in slots:
        root = tree_insert(tree, root, slot, path)
    assert path[L.FAULT] == 0
    return tree, root


def in_order(tree: Ints, root: int) -> list[int]:
    """Its slots by the links alone."""
    if root < 0:
        return []
    return [*in_order(tree, tree[root, L.T_LEFT]), root, *in_order(tree, tree[root, L.T_RIGHT])]


@given(slots=st.permutations(range(SLOTS)))
@settings(max_examples=examples(40))
def test_nodes_built_in_any_order_make_the_tree_of_inserting_them(slots: list[int]) -> None:
    """Those out of order are inserted afterwards."""
    tree, path = filled()
    root = tree_build(tree, np.array(slots, np.int64), SLOTS, path)
    expected, expected_root = inserted(list(range(SLOTS)))
    assert (root, tree.tolist()) == (expected_root, expected.tolist())


@given(slots=st.permutations(range(SLOTS)), gone=st.integers(1, SLOTS))
@settings(max_examples=examples(60))
def test_what_is_left_after_removals_is_the_tree_of_what_is_left(slots: list[int], gone: int) -> None:
    """Heap order and least walltimes are kept on both sides of the gap."""
    tree, root = inserted(slots)
    path = np.zeros(L.PATH, np.int64)
    for slot in slots[:gone]:
        root = tree_remove(tree, root, slot, path)
    left = slots[gone:]
    expected, expected_root = inserted(left)
    assert (root, tree[left][:, LINKS].tolist()) == (expected_root, expected[left][:, LINKS].tolist())


@given(slots=st.permutations(range(SLOTS)))
@settings(max_examples=examples(40))
def test_a_tree_is_in_order_and_a_heap(slots: list[int]) -> None:
    """Left before right; no child's random number is above its parent's."""
    tree, root = inserted(slots)
    ordered = sorted(range(SLOTS), key=lambda slot: (slot // 3, slot % 2, slot))
    assert in_order(tree, root) == ordered
    for slot in range(SLOTS):
        for child in (tree[slot, L.T_LEFT], tree[slot, L.T_RIGHT]):
            assert child < 0 or tree[child, L.T_RANDOM] <= tree[slot, L.T_RANDOM]


def test_nodes_with_equal_random_numbers_are_in_order_all_the_same() -> None:
    """31 bits collide in a tree of many."""
    tree, path = filled()
    tree[:, L.T_RANDOM] = 7
    root = -1
    for slot in (5, 3, 9, 4, 8, 6):
        root = tree_insert(tree, root, slot, path)
    root = tree_remove(tree, root, 5, path)
    assert in_order(tree, root) == [4, 3, 6, 8, 9]


@given(slots=st.permutations(range(SLOTS)))
@settings(max_examples=examples(20))
def test_a_left_spine_is_where_a_walk_in_order_begins(slots: list[int]) -> None:
    """The last of it is the first node; each stands left of the one before."""
    tree, root = inserted(slots)
    path = np.full(L.PATH, -7, np.int64)
    depth = tree_descend(tree, root, path, 2)
    spine = path[2:depth].tolist()
    assert (spine[0], spine[-1]) == (root, tree_first(tree, root))
    assert [int(tree[slot, L.T_LEFT]) for slot in spine] == [*spine[1:], -1]


def test_the_least_walltime_of_nothing_is_endless() -> None:
    """Nothing waits."""
    assert tree_least(filled()[0], -1) == L.INF


@pytest.mark.parametrize("column", [L.T_KEY, L.T_SEQ, L.T_TIE])
def test_the_first_column_that_differs_decides(column: int) -> None:
    """Key, then sequence, then tie; equal nodes are not before each other."""
    tree = np.zeros((3, L.TREE_SIZE), np.int64)
    tree[1, column] = 1
    tree[1, [c for c in (L.T_KEY, L.T_SEQ, L.T_TIE) if c > column]] = -1
    assert [bool(tree_before(tree, a, b)) for a, b in ((0, 1), (1, 0), (0, 2))] == [True, False, False]


def lead_round(tree: Ints) -> None:
    """Slot 0 is its own child on both sides, with a random number above and a walltime below every other."""
    tree[0, [L.T_LEFT, L.T_RIGHT]] = 0
    tree[0, L.T_RANDOM] = 1 << 31
    tree[0, L.T_MIN] = 0


def split_round(tree: Ints) -> None:
    """The same, below every other."""
    lead_round(tree)
    tree[0, L.T_RANDOM] = -1


@pytest.mark.parametrize(
    ("break_links", "use"),
    [
        (lead_round, lambda tree, path: tree_insert(tree, 0, 4, path)),
        (split_round, lambda tree, path: tree_insert(tree, 0, 4, path)),
        (lead_round, lambda tree, path: tree_remove(tree, 0, 4, path)),
        (lead_round, lambda tree, path: tree_remove(tree, -1, 4, path)),
        (lead_round, lambda tree, path: tree_seek(tree, 0, 0, 0, 0, 5, path)),
        (lead_round, lambda tree, path: tree_seek(tree, 0, 9, 0, 0, 5, path)),
        (lead_round, lambda tree, path: tree_descend(tree, 0, path, 0)),
    ],
)
def test_links_that_lead_round_are_a_fault(
    break_links: Callable[[Ints], None], use: Callable[[Ints, Ints], int]
) -> None:
    """Each loop ends at its bound, and says so behind the path."""
    tree, path = filled()
    break_links(tree)
    use(tree, path)
    assert path[L.FAULT] == L.FAULT_TREE


def test_a_short_walltime_that_is_not_there_is_a_fault() -> None:
    """A subtree claims a shorter walltime than any of its nodes has."""
    tree, path = filled()
    tree[0, L.T_RIGHT], tree[0, L.T_MIN], tree[3, L.T_MIN] = 3, 1, 1
    assert tree_seek(tree, 0, 0, 0, 0, 2, path) == -1
    assert path[L.FAULT] == L.FAULT_TREE


def test_a_node_with_the_number_nought_can_be_found_and_removed() -> None:
    """0 is a slot like any other, also as a child."""
    tree, root = inserted([0, 1, 2])
    path = np.zeros(L.PATH, np.int64)
    root = tree_remove(tree, root, 1, path)
    assert [tree_seek(tree, root, 0, 0, 0, longest, path) for longest in (20, 19)] == [0, 2]


def test_the_longest_walltime_that_is_asked_for_is_found() -> None:
    """Exactly as long as allowed."""
    tree, root = inserted(list(range(SLOTS)))
    path = np.zeros(L.PATH, np.int64)
    assert [tree_seek(tree, root, 0, 0, 0, longest, path) for longest in (20, 5, 4)] == [0, 15, -1]


def test_a_search_that_leads_round_finds_nothing() -> None:
    """Besides the fault."""
    tree, path = filled()
    lead_round(tree)
    assert tree_seek(tree, 0, 0, 0, 0, 5, path) == -1


def test_the_only_short_one_is_found_at_the_end_of_a_right_spine() -> None:
    """Slot 1 has 2 on its right, which has 0 on its right: 4, then 5, then 6 by key; only slot 0 is short."""
    tree, path = filled()
    for slot, key, wall, right in ((1, 4, 9, 2), (2, 5, 9, 0), (0, 6, 1, -1)):
        tree[slot, [L.T_KEY, L.T_WALL, L.T_MIN, L.T_RIGHT]] = key, wall, 1, right
    assert tree_seek(tree, 1, 0, 0, 0, 5, path) == 0
