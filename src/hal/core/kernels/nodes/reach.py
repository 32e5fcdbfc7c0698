"""Which nodes a shape could ever use, as bits, and whether two shapes compete for one: then their jobs do.

Pure scratch, made again for a shape when nodes changed (COUNT_REACH). A shape's words are followed by the first and the
last of them that are not zero, so that pools of neighbouring nodes are told apart at once. O(nodes / 64) a question.
"""

from __future__ import annotations

from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.nodes.wants import share_licences
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    COUNT_REACH,
    M_NODES,
    M_RESOURCES,
    S_BOOKING,
    S_CSET,
    S_REACH,
    WORD,
)
from hal.core.kernels.structures.memory import Tables


@inner
def reaches(t: Tables, shape: int, node: int) -> bool:
    """Whether a node is up, admits the shape, and could hold it when empty."""
    _renew(t, shape)
    return bool((t.reach[shape, node // WORD] >> (node % WORD)) & 1)


@inner
def competes(t: Tables, one: int, other: int) -> bool:
    """Whether some node could hold either shape."""
    if one == other:
        return True
    if t.shapes[one, S_BOOKING] != t.shapes[other, S_BOOKING]:
        return False
    if share_licences(t, one, other):
        return True
    _renew(t, one)
    _renew(t, other)
    words = t.reach.shape[1] - 2
    first = max(t.reach[one, words], t.reach[other, words])
    last = min(t.reach[one, words + 1], t.reach[other, words + 1])
    for word in range(first, last + 1):  # noqa: SIM110 - numba
        if t.reach[one, word] & t.reach[other, word]:
            return True
    return False


@inner
def _renew(t: Tables, shape: int) -> None:
    if t.shapes[shape, S_REACH] == t.counts[COUNT_REACH]:
        return
    t.shapes[shape, S_REACH] = t.counts[COUNT_REACH]
    words = t.reach.shape[1] - 2
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    for word in range(words):
        t.reach[shape, word] = 0
    t.reach[shape, words] = words
    t.reach[shape, words + 1] = -1
    for node in range(t.meta[M_NODES]):
        if t.allowed[cset, node] != 0 and fits(t, t.capacity, node, shape, resources):
            word = node // WORD
            t.reach[shape, word] |= 1 << (node % WORD)
            t.reach[shape, words] = min(t.reach[shape, words], word)
            t.reach[shape, words + 1] = word
