"""The treap agrees with a sorted list: order, seeks with a longest walltime, least walltimes, after any edits."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.treap import (
    mix,
    tree_build,
    tree_first,
    tree_insert,
    tree_least,
    tree_node,
    tree_remove,
    tree_seek,
)
from tests.examples import examples

SLOTS = 24

edits = st.lists(
    st.tuples(st.integers(0, SLOTS - 1), st.integers(-3, 3), st.integers(0, 3), st.integers(0, 9)), max_size=60
)
seeks = st.lists(
    st.tuples(st.integers(-4, 4), st.integers(0, 4), st.integers(0, SLOTS), st.integers(-1, 10)), max_size=10
)


@given(edits=edits, seeks=seeks)
@settings(max_examples=examples(150), deadline=None)
def test_a_treap_is_a_sorted_list(
    edits: list[tuple[int, int, int, int]], seeks: list[tuple[int, int, int, int]]
) -> None:
    """An edit of a slot inserts it, or removes it when it is there; every seek finds what a scan of the list finds."""
    tree = np.zeros((SLOTS, L.TREE_SIZE), np.int64)
    path = np.zeros(L.PATH, np.int64)
    there: dict[int, tuple[int, int, int, int]] = {}
    root = -1
    order: list[int] = []
    for slot, key, seq, wall in edits:
        if slot in there:
            root = tree_remove(tree, root, slot, path)
            del there[slot]
        else:
            tree_node(tree, slot, key, seq, slot, wall)
            root = tree_insert(tree, root, slot, path)
            there[slot] = (key, seq, slot, wall)
        order = sorted(there, key=lambda s: there[s][:3])
        assert tree_first(tree, root) == (order[0] if order else -1)
        assert tree_least(tree, root) == min((there[s][3] for s in order), default=L.INF)
    for key, seq, tie, longest in seeks:
        found = next((s for s in order if there[s][:3] >= (key, seq, tie) and there[s][3] <= longest), -1)
        assert tree_seek(tree, root, key, seq, tie, longest, path) == found


def test_equal_contents_make_equal_trees() -> None:
    """The heap order depends on what is inside, not on the history: insertion backwards gives the same links, and so
    does building at once from what is in order, or nearly."""
    links = []
    in_order = sorted(range(SLOTS), key=lambda slot: (slot % 5, slot))
    nearly = in_order[1:] + in_order[:1]
    for slots, at_once in ((range(SLOTS), False), (range(SLOTS)[::-1], False), (in_order, True), (nearly, True)):
        tree = np.zeros((SLOTS, L.TREE_SIZE), np.int64)
        path = np.zeros(L.PATH, np.int64)
        root = -1
        for slot in slots:
            tree_node(tree, slot, slot % 5, slot, 0, slot)
            if not at_once:
                root = tree_insert(tree, root, slot, path)
        if at_once:
            root = tree_build(tree, np.array(slots, np.int64), SLOTS, path)
        links.append((root, tree.tolist()))
    assert links == [links[0]] * len(links)


def test_nothing_is_built_of_nothing() -> None:
    """An empty tree has no root."""
    assert tree_build(np.zeros((1, L.TREE_SIZE), np.int64), np.zeros(1, np.int64), 0, np.zeros(4, np.int64)) == -1


@given(a=st.integers(0, 1 << 60), b=st.integers(0, 1 << 40))
@settings(max_examples=examples(200), deadline=None)
def test_mix_is_31_bits_of_the_same_arithmetic(a: int, b: int) -> None:
    """The compiled mix equals Python's unbounded integers: nothing overflows."""
    x = (a ^ (a >> 31) ^ ((b & 0xFFFFFFF) * 40503)) & 0x7FFFFFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0x7FFFFFFF
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & 0x7FFFFFFF
    assert mix(a, b) == x ^ (x >> 16)
