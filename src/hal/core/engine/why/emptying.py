"""Which nodes could be emptied by moving the work there, what that would lose, and whether it pays: to give them back.

Pure; the question of the search for work to move (`core/kernels/preemption`), without a gang that gets the nodes. A
search that is cut into slices begins anew after it, a bounded number of times, and finds the same.
O(attempts on the node x nodes) for each.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple

import numpy as np

from hal.core.engine.events import INF
from hal.core.engine.state import State
from hal.core.kernels.preemption.moving import MOST_WAIT_MS
from hal.core.kernels.preemption.node_prices import WEIGHT_OF_A_NODE
from hal.core.kernels.structures import layout as L
from hal.core.model.advice import KeySpace

PRICE: Final = "price"
"""The kind of advice that says what nodes cost; nodes that have a price are rented."""
MAX_EMPTIED: Final = 100
"""Rented nodes that are looked at, the dearest."""
THOUSANDTHS: Final = 1_000


class Emptied(NamedTuple):
    """What it takes to empty a node."""

    node: str
    price: float
    """As advised; NaN: none."""
    tasks: int
    """Running tasks that would be moved."""
    lost_ms: int
    """What they lose: milliseconds of a whole node."""
    empty_ms: int
    """When it is empty by itself, by planned ends; INF: nobody knows."""
    pays: bool
    """Whether the time that the node is given back sooner is at least `compaction` times what is lost."""


def emptied(state: State, node: str, now_ms: int, price: float = float("nan")) -> Emptied | None:
    """What it takes to empty a node now; None where work on it may not be moved or has no room elsewhere, or where the
    configuration moves nothing."""
    if not state.meta[L.M_MOVING] or node not in state.nodes.names:
        return None
    tasks = state.calls["empty"](state.at, now_ms, state.nodes.names.index(node))
    state.check_bounds()
    found = state.search_record
    lost, empty_ms = int(found[L.SEEK_LOST]), int(found[L.SEEK_ALONE])
    found[L.SEEK_ENTRY] = NO_SEARCH
    if tasks < 0:
        return None
    gain = WEIGHT_OF_A_NODE * min(empty_ms - now_ms, MOST_WAIT_MS)
    pays = THOUSANDTHS * gain >= int(state.meta[L.M_MOVING]) * lost
    return Emptied(node, price, tasks, lost // WEIGHT_OF_A_NODE, min(empty_ms, INF), pays)


def releasable(state: State, now_ms: int) -> Generator[None, None, list[Emptied]]:
    """Of the rented nodes those that could be emptied now, each by itself; the dearest first, a slice for each."""
    kind = state.advice.kinds.get(PRICE)
    if kind is None or kind.space is not KeySpace.NODES or not state.meta[L.M_MOVING]:
        return []
    names = [name for name in state.nodes.names if name]
    yield
    prices = state.advice.values_at(PRICE, KeySpace.NODES, state.advice.names[KeySpace.NODES].find(names))
    rented = np.flatnonzero(~np.isnan(prices))
    dearest = rented[np.argsort(-prices[rented], kind="stable")][:MAX_EMPTIED].tolist()
    out: list[Emptied] = []
    for place in dearest:
        yield
        one = emptied(state, names[place], now_ms, float(prices[place]))
        if one is not None:
            out.append(one)
    return out


NO_SEARCH: Final = -1
"""In the search record: a search that goes on begins anew."""
