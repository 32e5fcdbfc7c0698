"""Choosing nodes for one attempt: first-fit or best score, never on what is reserved to a job ahead.

Pure. A node that is reserved from t on may be used until t (short work uses such nodes first), and by longer work only
out of what is left beyond the reservation. Free amounts only shrink inside a cycle, so first-fit goes on where the
shape's last search began to fit, past groups of nodes of which none has enough: O(nodes) a shape and cycle. Scored:
each shape keeps the best node of each block of nodes and follows the nodes that were touched since it last looked:
O(nodes / BLOCK + touched blocks x BLOCK) a decision. Source of the reservation rule: Lifka, JSSPP 1995 (EASY).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hal.core.kernels.nodes.rows import (
    HIDDEN,
    ONE,
    build_mirror,
    fits,
    reserve_node,
)
from hal.core.kernels.passes.node_scores import node_score
from hal.core.kernels.rules.booked import may_start
from hal.core.kernels.structures.jit import inlined, inner
from hal.core.kernels.structures.layout import (
    BLOCK,
    BLOCK_BITS,
    COUNT_RESERVED,
    INF,
    KIND_RESERVED,
    M_BOOKED_NODES,
    M_BOOKINGS,
    M_NODES,
    M_PLACEMENT,
    M_RESOURCES,
    N_BOOKED,
    N_RESERVED,
    PASS_FIRST_NODE,
    PASS_NODES,
    PASS_STAMP,
    PASS_STARTS,
    PASS_WORK,
    PLACE_BEST,
    PLACE_FIRST,
    Q_EXTRA,
    Q_NODE,
    Q_RESERVATION,
    ROOM_BITS,
    S_CSET,
    S_FOLLOWED,
    S_FROM,
    S_FROM_NOW,
    S_FROM_STAMP,
    SCRATCH_RANKS,
    TICK_MIRROR,
    TICK_TOUCHED,
    TOUCHED,
    V_KIND,
    V_START,
)
from hal.core.kernels.structures.memory import Tables

TIER_SHORT: Final = 0
TIER_FREE: Final = 1
TIER_EXTRA: Final = 2
NODE_BITS: Final = 32
LAST_NODE: Final = (1 << NODE_BITS) - 1
ONE_BY_ONE: Final = 64
"""So many touched nodes are looked at one by one; beyond that a pass over their blocks is cheaper."""
ERROR: Final = 8
"""How far `spare` less a request may be from the exact share, in parts of ONE: roundings to 24 bits of both, of the
inverse and of their product are 5."""
MARGIN: Final = 64
"""Nodes within this of the least are looked at exactly: two errors of each, and 17 for a millionth."""
MOST_ASKED: Final = np.float32(8 * ONE)
CHOSEN: Final = 1 << 40
"""In N_RESERVED while a gang's nodes are chosen: this one is."""
assert TOUCHED >= ONE_BY_ONE


@inner
def has_extra(t: Tables, place: int, shape: int, resources: int) -> bool:
    """Whether a shape fits beside the reservation on a reserved node."""
    for r in range(resources):  # noqa: SIM110 - numba
        if t.planned_nodes[place, Q_EXTRA + r] < t.request[r, shape]:
            return False
    return True


@inlined
def _has_room(t: Tables, group: int, shape: int, resources: int) -> bool:
    """Whether each amount that a shape asks for is free on some node of a group, not necessarily on one."""
    for r in range(resources):  # noqa: SIM110 - numba
        if t.room[group, 1 + r] < t.request[r, shape]:
            return False
    return True


@inner
def _note_room(t: Tables, group: int, last: int, stamp: int, resources: int) -> None:
    """Note the most that a node of a group has free. It stays an upper bound in a slice: free amounts only shrink."""
    t.room[group, 0] = stamp
    for r in range(resources):
        t.room[group, 1 + r] = 0
        for node in range(group << ROOM_BITS, last):
            t.room[group, 1 + r] = max(t.room[group, 1 + r], t.free[node, r])


@inner
def _first_fit(t: Tables, shape: int, nodes: int, end: int, offset: int) -> int:
    """Nodes that are reserved from `end` on only, then unreserved ones from the lowest, then beside reservations."""
    found = _first_reserved(t, shape, nodes, end, offset, 0, True)
    if found < nodes:
        found = _first_free(t, shape, nodes, offset, found)
    if found < nodes:
        found = _first_reserved(t, shape, nodes, end, offset, found, False)
    return found


@inner
def _first_reserved(t: Tables, shape: int, nodes: int, end: int, offset: int, found: int, short: bool) -> int:
    """Add reserved nodes: those that are reserved from `end` on only (`short`), or with room beside; how many now."""
    cset = t.shapes[shape, S_CSET]
    resources = t.meta[M_RESOURCES]
    for place in range(t.counts[COUNT_RESERVED]):
        mine = t.planned_nodes[place, Q_RESERVATION]
        if (t.planned[mine, V_KIND] == KIND_RESERVED and end <= t.planned[mine, V_START]) != short:
            continue
        node = t.planned_nodes[place, Q_NODE]
        if (
            t.open_now[cset, node] != 0
            and fits(t, t.free, node, shape, resources)
            and (short or has_extra(t, place, shape, resources))
            and may_start(t, node, shape)
        ):
            t.start_nodes[offset + found] = node
            found += 1
            if found == nodes:
                break
    return found


@inner
def _first_free(t: Tables, shape: int, nodes: int, offset: int, found: int) -> int:
    """Add the lowest nodes that are not reserved, past groups of nodes without room; how many now."""
    stamp = t.pass_record[PASS_STAMP]
    out = t.start_nodes
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    first = t.shapes[shape, S_FROM_NOW] if t.shapes[shape, S_FROM_STAMP] == stamp else t.shapes[shape, S_FROM]
    start = -1
    node = first
    while node < t.meta[M_NODES] and found < nodes:
        group = node >> ROOM_BITS
        last = min((group + 1) << ROOM_BITS, t.meta[M_NODES])
        if t.room[group, 0] == stamp and not _has_room(t, group, shape, resources):
            node = last
            continue
        none_fits = True
        while node < last:
            if t.open_now[cset, node] != 0 and fits(t, t.free, node, shape, resources):
                none_fits = False
                if start < 0:
                    start = node
                if t.rows[node, N_RESERVED] < 0 and may_start(t, node, shape):
                    out[offset + found] = node
                    found += 1
                    if found == nodes:
                        break
            node += 1
        if none_fits:
            _note_room(t, group, last, stamp, resources)
    if start < 0:
        start = node
    t.shapes[shape, S_FROM_NOW] = start
    t.shapes[shape, S_FROM_STAMP] = stamp
    if t.pass_record[PASS_STARTS] == 0:
        t.shapes[shape, S_FROM] = start
    return found


@inner
def _rank(t: Tables, node: int, shape: int, resources: int) -> int:
    """Score and node as one number, higher is better; -1 where the request does not fit; reserved and booked nodes are
    looked at apart."""
    if (
        t.open_now[t.shapes[shape, S_CSET], node] == 0
        or t.rows[node, N_RESERVED] >= 0
        or t.rows[node, N_BOOKED] != 0
        or not fits(t, t.free, node, shape, resources)
    ):
        return -1
    return (node_score(t, node, shape, resources) << NODE_BITS) + LAST_NODE - node


@inner
def _spare_of_block(t: Tables, shape: int, first: int, count: int, resources: int) -> int:
    """Fill `value` with about what would be left of each node's tightest wanted resource, in parts of ONE; below -ERROR
    it cannot fit. Returns the least of those that may fit. One branch-free pass over float32 columns for each resource.
    """
    value = t.value[:count]
    admitted = t.open_now[t.shapes[shape, S_CSET], first : first + count]
    for k in range(count):
        value[k] = ONE if admitted[k] != 0 else HIDDEN
    for r in range(resources):
        asked = np.float32(t.request[r, shape])
        if t.request[r, shape] > 0:
            spare = t.spare[r, first : first + count]
            per_unit = t.per_unit[r, first : first + count]
            for k in range(count):
                left = np.int32(spare[k] - min(asked * per_unit[k], MOST_ASKED))
                value[k] = min(value[k], left)
    least = np.int32(2 * ONE)
    for k in range(count):
        least = min(least, value[k] if value[k] >= -ERROR else np.int32(2 * ONE))
    return int(least)


@inner
def _best_of_block(t: Tables, shape: int, block: int) -> int:
    """The best rank of a block's nodes, -1 when none fits.

    Best-fit looks exactly only at nodes that float32 cannot tell from the best one; where the best by float32 does not
    fit exactly, at all of them. A plugin's scores are given for each node.
    """
    resources = t.meta[M_RESOURCES]
    first = block << BLOCK_BITS
    count = min(BLOCK, t.meta[M_NODES] - first)
    best = -1
    if t.meta[M_PLACEMENT] == PLACE_BEST:
        least = _spare_of_block(t, shape, first, count, resources)
        if least > ONE:
            return -1
        sure = False
        alike = -1
        for k in range(count):
            if t.value[k] > least + MARGIN or t.value[k] < -ERROR:
                continue
            node = first + k
            # An empty cluster is full of equals, and the first of them is the better one.
            same = alike >= 0
            for r in range(resources):
                same = same and t.free[node, r] == t.free[alike, r] and t.capacity[node, r] == t.capacity[alike, r]
            if same:
                continue
            rank = _rank(t, node, shape, resources)
            if rank >= 0:
                alike = node
                sure = sure or t.value[k] <= least + 2 * ERROR
                best = max(best, rank)
        if sure:
            return best
    for node in range(first, first + count):
        best = max(best, _rank(t, node, shape, resources))
    return best


@inner
def _follow(t: Tables, shape: int) -> None:
    """Bring a shape's best nodes up to date: after few touched nodes by looking at each, else block by block."""
    place = t.ticks[TICK_TOUCHED]
    seen = t.shapes[shape, S_FOLLOWED]
    if seen == place:
        return
    t.shapes[shape, S_FOLLOWED] = place
    resources = t.meta[M_RESOURCES]
    if seen < 0 or place - seen > ONE_BY_ONE:
        for block in range((t.meta[M_NODES] + BLOCK - 1) >> BLOCK_BITS):
            if seen < 0 or t.block_touched[block] >= seen:
                t.best[shape, block] = _best_of_block(t, shape, block)
        return
    for k in range(seen, place):
        node = t.touched[k & (TOUCHED - 1)]
        block = node >> BLOCK_BITS
        rank = _rank(t, node, shape, resources)
        there = t.best[shape, block]
        if rank > there:
            t.best[shape, block] = rank
        elif rank < there and LAST_NODE - (there & LAST_NODE) == node:
            t.best[shape, block] = _best_of_block(t, shape, block)


@inner
def _free_scored(t: Tables, shape: int, nodes: int, offset: int, found: int) -> int:
    """Add the best nodes that are reserved to nobody: each the best of the blocks' best, then its block without it."""
    _follow(t, shape)
    out = t.start_nodes
    begin = found
    while found < nodes:
        best = -1
        for block in range((t.meta[M_NODES] + BLOCK - 1) >> BLOCK_BITS):
            best = max(best, t.best[shape, block])
        if best < 0:
            break
        node = LAST_NODE - (best & LAST_NODE)
        out[offset + found] = node
        found += 1
        if found < nodes:
            reserve_node(t, node, CHOSEN)
            t.best[shape, node >> BLOCK_BITS] = _best_of_block(t, shape, node >> BLOCK_BITS)
    for i in range(offset + begin, offset + found):
        if t.rows[out[i], N_RESERVED] == CHOSEN:
            reserve_node(t, out[i], -1)
    return found


@inner
def _reserved_scored(t: Tables, shape: int, nodes: int, end: int, offset: int, found: int, short: bool) -> int:
    """Add reserved nodes, best first: those that are reserved from `end` on only (`short`), or with room beside."""
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    begin = found
    for place in range(t.counts[COUNT_RESERVED]):
        reservation = t.planned_nodes[place, Q_RESERVATION]
        if (t.planned[reservation, V_KIND] == KIND_RESERVED and end <= t.planned[reservation, V_START]) != short:
            continue
        node = t.planned_nodes[place, Q_NODE]
        if (
            t.open_now[cset, node] == 0
            or not fits(t, t.free, node, shape, resources)
            or not (short or has_extra(t, place, shape, resources))
            or not may_start(t, node, shape)
        ):
            continue
        found = _insert(t, node, shape, nodes, offset, begin, found)
    return found


@inner
def _booked_scored(t: Tables, shape: int, nodes: int, offset: int, found: int) -> int:
    """Add booked nodes that bookings leave it now and that are reserved to nobody, best first."""
    resources = t.meta[M_RESOURCES]
    begin = found
    for i in range(t.meta[M_BOOKED_NODES]):
        node = t.booked_rows[i]
        if (
            t.open_now[t.shapes[shape, S_CSET], node] != 0
            and t.rows[node, N_RESERVED] < 0
            and fits(t, t.free, node, shape, resources)
            and may_start(t, node, shape)
        ):
            found = _insert(t, node, shape, nodes, offset, begin, found)
    return found


@inner
def _insert(t: Tables, node: int, shape: int, nodes: int, offset: int, begin: int, found: int) -> int:
    """Put a node among those found since `begin`, the best first and at most `nodes` in all; how many there are now."""
    ranks = t.scratch[SCRATCH_RANKS]
    out = t.start_nodes
    rank = (node_score(t, node, shape, t.meta[M_RESOURCES]) << NODE_BITS) + LAST_NODE - node
    to = found
    if found == nodes:
        if rank <= ranks[nodes - 1]:
            return found
        to = nodes - 1
    else:
        found += 1
    while to > begin and ranks[to - 1] < rank:
        ranks[to] = ranks[to - 1]
        out[offset + to] = out[offset + to - 1]
        to -= 1
    ranks[to] = rank
    out[offset + to] = node
    return found


@inner
def _best_scored(t: Tables, shape: int, nodes: int, end: int, offset: int) -> int:
    """The best nodes: those reserved from `end` on only, then booked ones that it would leave in time, then
    the ones reserved to nobody, then the rest."""
    t.pass_record[PASS_WORK] += (t.meta[M_NODES] + BLOCK - 1) >> BLOCK_BITS
    if t.ticks[TICK_MIRROR] == 0:
        build_mirror(t)
    found = 0
    if t.counts[COUNT_RESERVED] > 0:
        found = _reserved_scored(t, shape, nodes, end, offset, 0, True)
    if found < nodes and t.meta[M_BOOKINGS] > 0:
        found = _booked_scored(t, shape, nodes, offset, found)
    if found < nodes:
        found = _free_scored(t, shape, nodes, offset, found)
    if found < nodes and t.counts[COUNT_RESERVED] > 0:
        found = _reserved_scored(t, shape, nodes, end, offset, found, False)
    return found


@inner
def choose_anywhere(t: Tables, shape: int, nodes: int, end: int) -> int:
    """Write up to `nodes` distinct nodes for the next start; the attempt can start when the result equals `nodes`.

    `end` is its planned end.
    """
    offset = t.pass_record[PASS_FIRST_NODE] + t.pass_record[PASS_NODES]
    if t.meta[M_PLACEMENT] == PLACE_FIRST:
        return _first_fit(t, shape, nodes, min(end, INF), offset)
    return _best_scored(t, shape, nodes, min(end, INF), offset)
