"""Ordered indexes over slots: treaps by (key, sequence, tie), augmented with the least walltime of each subtree.

Pure. Insert, remove, first and 'next from here on no longer than T' are O(log n). A node is the row of a TREE_SIZE-wide
int64 table with the same index as its slot; several trees may share one table when no slot is in two of them. The
heap order is by a mix of (sequence, tie), so equal contents give equal trees whatever the history.
Source: Seidel and Aragon, Algorithmica 16, 1996.
"""

from __future__ import annotations

from hal.core.kernels.structures.arrays import Ints, Table
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    FAULT,
    FAULT_TREE,
    INF,
    MAX_DEPTH,
    T_KEY,
    T_LEFT,
    T_MIN,
    T_RANDOM,
    T_RIGHT,
    T_SEQ,
    T_TIE,
    T_WALL,
)


@inner
def mix(a: int, b: int) -> int:
    """31 well mixed bits of two non-negative numbers; no product leaves 62 bits, so NumPy agrees with numba."""
    x = (a ^ (a >> 31) ^ ((b & 0xFFFFFFF) * 40503)) & 0x7FFFFFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0x7FFFFFFF
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & 0x7FFFFFFF
    return x ^ (x >> 16)


@inner
def tree_node(tree: Table, slot: int, key: int, seq: int, tie: int, wall: int) -> None:
    """Fill a slot's node before it is inserted."""
    tree[slot, T_KEY] = key
    tree[slot, T_SEQ] = seq
    tree[slot, T_TIE] = tie
    tree[slot, T_WALL] = wall
    tree[slot, T_MIN] = wall
    tree[slot, T_LEFT] = -1
    tree[slot, T_RIGHT] = -1
    tree[slot, T_RANDOM] = mix(seq, tie)


@inner
def tree_before(tree: Table, a: int, b: int) -> bool:
    """Whether node a comes before node b."""
    if tree[a, T_KEY] != tree[b, T_KEY]:
        return bool(tree[a, T_KEY] < tree[b, T_KEY])
    if tree[a, T_SEQ] != tree[b, T_SEQ]:
        return bool(tree[a, T_SEQ] < tree[b, T_SEQ])
    return bool(tree[a, T_TIE] < tree[b, T_TIE])


@inner
def _renew(tree: Table, node: int) -> None:
    least = tree[node, T_WALL]
    if least == 0:  # nothing is less: a tree without walltimes need not look at the children
        tree[node, T_MIN] = 0
        return
    child = tree[node, T_LEFT]
    if child >= 0 and tree[child, T_MIN] < least:
        least = tree[child, T_MIN]
    child = tree[node, T_RIGHT]
    if child >= 0 and tree[child, T_MIN] < least:
        least = tree[child, T_MIN]
    tree[node, T_MIN] = least


@inner
def tree_insert(tree: Table, root: int, node: int, path: Ints) -> int:
    """Insert a filled node; `path` is scratch of MAX_DEPTH. Returns the new root."""
    wall = tree[node, T_WALL]
    random = tree[node, T_RANDOM]
    parent = -1
    right = False
    at = root
    deep = 0
    while at >= 0 and tree[at, T_RANDOM] >= random and deep < MAX_DEPTH:
        deep += 1
        if wall < tree[at, T_MIN]:
            tree[at, T_MIN] = wall
        parent = at
        right = tree_before(tree, at, node)
        at = tree[at, T_RIGHT] if right else tree[at, T_LEFT]
    # Split what is below into the nodes before and after; the visited nodes are renewed from the bottom.
    depth = 0
    low = node  # where the next smaller node hangs: first as node's left, then as the right of the last smaller one
    high = node
    if deep == MAX_DEPTH:
        path[FAULT] = FAULT_TREE
    while at >= 0:
        if depth == MAX_DEPTH:
            path[FAULT] = FAULT_TREE
            break
        path[depth] = at
        depth += 1
        if tree_before(tree, at, node):
            if low == node:
                tree[node, T_LEFT] = at
            else:
                tree[low, T_RIGHT] = at
            low = at
            at = tree[at, T_RIGHT]
        else:
            if high == node:
                tree[node, T_RIGHT] = at
            else:
                tree[high, T_LEFT] = at
            high = at
            at = tree[at, T_LEFT]
    if low != node:
        tree[low, T_RIGHT] = -1
    if high != node:
        tree[high, T_LEFT] = -1
    while depth > 0:
        depth -= 1
        _renew(tree, path[depth])
    _renew(tree, node)
    if parent < 0:
        return node
    if right:
        tree[parent, T_RIGHT] = node
    else:
        tree[parent, T_LEFT] = node
    return root


@inner
def tree_build(tree: Table, nodes: Ints, count: int, path: Ints) -> int:
    """A tree of filled nodes that are in order, but for a few: those are inserted afterwards. Overwrites `nodes`.

    Returns the root. O(n) where all are in order; `path` is scratch of MAX_DEPTH, and here the right edge of the tree.
    """
    depth = 0
    late = 0
    for k in range(count):
        node = nodes[k]
        if depth > 0 and (depth == MAX_DEPTH or tree_before(tree, node, path[depth - 1])):
            nodes[late] = node
            late += 1
            continue
        below = -1
        while depth > 0 and tree[path[depth - 1], T_RANDOM] < tree[node, T_RANDOM]:
            depth -= 1
            below = path[depth]
            _renew(tree, below)
        tree[node, T_LEFT] = below
        if depth > 0:
            tree[path[depth - 1], T_RIGHT] = node
        path[depth] = node
        depth += 1
    root = path[0] if depth > 0 else -1
    while depth > 0:
        depth -= 1
        _renew(tree, path[depth])
    for k in range(late):
        root = tree_insert(tree, root, nodes[k], path)
    return int(root)


@inner
def tree_remove(tree: Table, root: int, node: int, path: Ints) -> int:
    """Take a node out of the tree that it is in; `path` is scratch of MAX_DEPTH. Returns the new root."""
    depth = 0
    at = root
    while at != node:
        if at < 0 or depth == MAX_DEPTH:
            path[FAULT] = FAULT_TREE
            return root
        path[depth] = at
        depth += 1
        at = tree[at, T_RIGHT] if tree_before(tree, at, node) else tree[at, T_LEFT]
    above = depth
    hang = path[depth - 1] if depth > 0 else -1
    on_right = hang >= 0 and tree[hang, T_RIGHT] == node
    low = tree[node, T_LEFT]
    high = tree[node, T_RIGHT]
    while True:
        if low < 0:
            top = high
        elif high < 0 or tree[low, T_RANDOM] >= tree[high, T_RANDOM]:
            top = low
        else:
            top = high
        if hang < 0:
            root = top
        elif on_right:
            tree[hang, T_RIGHT] = top
        else:
            tree[hang, T_LEFT] = top
        if low < 0 or high < 0:
            break
        if depth == MAX_DEPTH:
            path[FAULT] = FAULT_TREE
            break
        path[depth] = top
        depth += 1
        hang = top
        if top == low:
            on_right = True
            low = tree[top, T_RIGHT]
        else:
            on_right = False
            high = tree[top, T_LEFT]
    gone = tree[node, T_MIN]
    while depth > above:
        depth -= 1
        _renew(tree, path[depth])
    while depth > 0:
        depth -= 1
        if tree[path[depth], T_MIN] < gone:
            break  # its least comes from elsewhere, and so do those above
        _renew(tree, path[depth])
    return root


@inner
def tree_first(tree: Table, root: int) -> int:
    """The first node in order, -1 when empty."""
    if root < 0:
        return -1
    for _ in range(MAX_DEPTH):
        if tree[root, T_LEFT] < 0:
            break
        root = tree[root, T_LEFT]
    return root


@inner
def tree_seek(tree: Table, root: int, key: int, seq: int, tie: int, longest: int, path: Ints) -> int:
    """The first node at or after (key, seq, tie) whose walltime is at most `longest`; -1 when there is none."""
    depth = 0
    deep = 0
    at = root
    while at >= 0 and tree[at, T_MIN] <= longest:
        if deep == MAX_DEPTH:
            path[FAULT] = FAULT_TREE
            return -1
        deep += 1
        if tree[at, T_KEY] != key:
            before = tree[at, T_KEY] < key
        elif tree[at, T_SEQ] != seq:
            before = tree[at, T_SEQ] < seq
        else:
            before = tree[at, T_TIE] < tie
        if before:
            at = tree[at, T_RIGHT]
        else:
            path[depth] = at
            depth += 1
            at = tree[at, T_LEFT]
    while depth > 0:
        depth -= 1
        at = path[depth]
        if tree[at, T_WALL] <= longest:
            return int(at)
        at = tree[at, T_RIGHT]
        if at >= 0 and tree[at, T_MIN] <= longest:
            for _ in range(MAX_DEPTH):
                left = tree[at, T_LEFT]
                if left >= 0 and tree[left, T_MIN] <= longest:
                    at = left
                elif tree[at, T_WALL] <= longest:
                    return int(at)
                else:
                    at = tree[at, T_RIGHT]
                    if at < 0:
                        break
            path[FAULT] = FAULT_TREE  # who says that a short one is below is wrong, or it leads round
            return -1
    return -1


@inner
def tree_descend(tree: Table, at: int, path: Ints, depth: int) -> int:
    """Push a node and its left spine: the start of an in-order walk. Returns the new depth."""
    while at >= 0:
        if depth == MAX_DEPTH:
            path[FAULT] = FAULT_TREE
            break
        path[depth] = at
        depth += 1
        at = tree[at, T_LEFT]
    return depth


@inner
def tree_least(tree: Table, root: int) -> int:
    """The shortest walltime in the tree, INF when empty."""
    return int(tree[root, T_MIN]) if root >= 0 else INF
