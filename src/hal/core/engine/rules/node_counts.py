"""On how many nodes each shape fits, after some nodes changed: only what these nodes contribute is counted again.

Pure. O(shapes) a node that changed. Counting everything again is O(shapes x nodes): that is left for changes of many
nodes, and of what any node admits (filters, bookings) or has (a resource that nobody had).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hal.core.engine.state import State
from hal.core.kernels.nodes.rows import count_node
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints

WHOLE_FROM: Final = 16
"""More than one in so many nodes changed: everything is counted again, which is faster then."""
FIT_NOW: Final = 0
FIT_EVER: Final = 1


def counts_apart(state: State, changed: int) -> bool:
    """Whether so many nodes may be counted apart from the others."""
    few = changed <= max(len(state.nodes.names) // WHOLE_FROM, 1)
    return few and not state.plugins.filters and not state.bookings.all


def contribution(state: State, rows: Sequence[int]) -> Ints:
    """What these nodes contribute to the counts of the shapes: shape (2, shapes), rows FIT_NOW and FIT_EVER."""
    shapes, resources = int(state.meta[L.M_SHAPES]), int(state.meta[L.M_RESOURCES])
    nodes = state.nodes
    asked = state.catalogue.request[:resources, :shapes]
    sets = state.catalogue.shapes[:shapes, L.S_CSET]
    counts = np.zeros((2, shapes), np.int64)
    for row in rows:
        allowed = nodes.allowed[sets, row] != 0
        counts[FIT_EVER] += allowed & (asked <= nodes.capacity[row, :resources, None]).all(axis=0)
        is_open = allowed & (nodes.open_now[sets, row] != 0)
        counts[FIT_NOW] += is_open & (asked <= nodes.free[row, :resources, None]).all(axis=0)
    return counts


def discount(state: State, rows: Sequence[int]) -> None:
    """Before these nodes change: they count no more for shapes whose nodes must be in one domain. `count_apart` counts
    them again (part of `apply`)."""
    for row in rows if state.meta[L.M_WITHIN] else ():
        count_node(state.at, row, -1)


def count_apart(state: State, before: Ints, rows: Sequence[int]) -> None:
    """Set the counts as they are now (part of `apply`).

    Args:
        before: contribution of those of these nodes that were there before they changed.
    """
    now = contribution(state, rows)
    shapes = state.catalogue.shapes[: now.shape[1]]
    plain = shapes[:, L.S_WITHIN] == 0
    shapes[plain, L.S_FIT] += (now[FIT_NOW] - before[FIT_NOW])[plain]
    shapes[plain, L.S_EVER] += (now[FIT_EVER] - before[FIT_EVER])[plain]
    for row in rows if state.meta[L.M_WITHIN] else ():
        count_node(state.at, row, 1)
    if state.catalogue.shape_free:
        shapes[state.catalogue.shape_free, L.S_FIT] = 0
        shapes[state.catalogue.shape_free, L.S_EVER] = 0
    # No node before S_FROM fits: it goes back to where one of these does, and else may stay.
    fits = now[FIT_NOW] > 0
    shapes[fits, L.S_FROM] = np.minimum(shapes[fits, L.S_FROM], min(rows, default=L.INF))
    shapes[shapes[:, L.S_FIT] == 0, L.S_FROM] = state.meta[L.M_NODES]
    shapes[:, L.S_FOLLOWED] = -1
    state.scratch.ready_of[:, L.READY_SHAPE] = 0
    state.note_new_nodes()
