"""What each node will have free, and when: kept from cycle to cycle, built again only for nodes that something touched.

A node's timeline is a chain of points (a time, and the amounts free from then on): free now, plus what running attempts
give back at their planned ends, less what waiting jobs are reserved. The first point lies before all times, so a chain
depends on `now` only where an attempt outlives its plan (its release is now + 1 then, and its nodes are built in each
cycle). All of it is scratch: which nodes are `stale` decides what is built, never what is planned. With more than
EXACT_NODES nodes a chain has at most MAX_POINTS points after it was built: later ones are merged to the least of their
amounts, so a node may be said to be busier than it is, never freer; the last point stays, so nothing that fits an empty
node is put off for ever. With few nodes (a pool is one, with hundreds of attempts) chains are exact.
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.nodes.ends import ends_root
from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.nodes.touching import make_stale
from hal.core.kernels.rules.booked import booked_start
from hal.core.kernels.structures.bounds import goes_on, leads_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_CLASS,
    C_SHAPE,
    COUNT_COLD,
    COUNT_LATE,
    COUNT_LINE,
    COUNT_LINES,
    COUNT_LOG,
    COUNT_POINTS,
    COUNT_RESERVATIONS,
    COUNT_RESERVED,
    COUNT_SPARE,
    COUNT_SPARES,
    COUNT_STALE,
    E_WALL,
    INF,
    KIND_CLAIM,
    KIND_NEVER,
    LOWEST,
    M_BOOKINGS,
    M_NODES,
    M_RESOURCES,
    N_ATTEMPTS,
    N_LATE,
    N_MERGED,
    N_RESERVED,
    N_STALE,
    P_NEXT,
    P_NODE,
    P_ON_ROW,
    P_RUN,
    POINT_NEXT,
    POINT_SIZE,
    POINT_TIME,
    Q_CHAIN,
    Q_NODE,
    Q_RESERVATION,
    R_BUCKET,
    R_END,
    R_PIECE,
    S_CSET,
    S_LINE,
    T_KEY,
    T_RIGHT,
    V_CLASS,
    V_ENTRY,
    V_FIRST,
    V_HELD,
    V_KIND,
    V_NODES,
    V_PLANNED,
    V_START,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import sort_pairs
from hal.core.kernels.structures.treap import tree_descend
from hal.core.kernels.timelines.points import add_point, are_alike, change_interval, drop_point, log_node

MAX_POINTS: Final = 64
EXACT_NODES: Final = 64
NEAR_POINTS: Final = 32
"""Of a chain that is merged, so many first points stay as they are."""
GIVEN_BACK: Final = 1 << 40
"""Added to a shape: what a reservation gives back at its end."""


@inner
def warm_up(t: Tables) -> None:
    """Forget all chains and lines when the tables are new; then every node is stale."""
    if t.counts[COUNT_COLD] == 0:
        return
    t.counts[COUNT_COLD] = 0
    t.counts[COUNT_POINTS] = t.rows.shape[0]
    t.counts[COUNT_SPARE] = -1
    t.counts[COUNT_SPARES] = 0
    t.counts[COUNT_STALE] = 0
    t.counts[COUNT_LATE] = 0
    t.counts[COUNT_LOG] = 0
    t.counts[COUNT_LINES] = 0
    t.counts[COUNT_LINE] = 0
    for shape in range(t.shapes.shape[0]):
        t.shapes[shape, S_LINE] = 0
    for node in range(t.rows.shape[0]):
        t.profile[node, POINT_NEXT] = -1
        t.rows[node, N_STALE] = 0
        t.rows[node, N_LATE] = 0
        make_stale(t, node)


@inner
def mark_late(t: Tables, now: int) -> None:
    """Nodes of attempts that outlive their plan, now or when their chain was built, are stale."""
    for k in range(t.counts[COUNT_LATE]):
        node = t.late[k]
        t.rows[node, N_LATE] = 0
        make_stale(t, node)
    t.counts[COUNT_LATE] = 0
    depth = tree_descend(t.ends, ends_root(t), t.path, 0)
    seen = 0
    while goes_on(t, depth > 0, seen, t.ends.shape[0]):
        seen += 1
        run = t.path[depth - 1]
        if t.ends[run, T_KEY] > now:
            break
        depth = tree_descend(t.ends, t.ends[run, T_RIGHT], t.path, depth - 1)
        piece = t.runs[run, R_PIECE]
        walked = 0
        while leads_on(t, piece, walked, t.pieces.shape[0]):
            walked += 1
            make_stale(t, t.pieces[piece, P_NODE])
            piece = t.pieces[piece, P_NEXT]


@inner
def build_node(t: Tables, node: int, now: int) -> bool:
    """Build the chain of a cleared node. Returns whether a reservation there cannot be kept: it is lost, or busy."""
    resources = t.meta[M_RESOURCES]
    size = _list_ends(t, node, now)
    size, broken, claims = _list_reserved(t, node, now, size)
    _sort_events(t, size)
    t.profile[node, POINT_TIME] = LOWEST
    for r in range(resources):
        t.profile[node, POINT_SIZE + r] = t.free[node, r]
    points, overlaps = _draw(t, node, now, size)
    if claims:
        _take_claims(t, node, resources)
    t.rows[node, N_MERGED] = 0
    if points > MAX_POINTS and t.meta[M_NODES] > EXACT_NODES:
        _merge(t, node, points, resources)
    log_node(t, node)
    return broken or overlaps


@inner
def _list_ends(t: Tables, node: int, now: int) -> int:
    """List when running attempts give back what they hold of a node; how many. One that is late: now + 1."""
    size = 0
    late = False
    piece = t.rows[node, N_ATTEMPTS] - 1
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        run = t.pieces[piece, P_RUN]
        end = t.runs[run, R_END]
        if end < INF:
            if end <= now:
                end = now + 1
                late = True
            t.events[0, size] = end
            t.events[1, size] = t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE]
            size += 1
        piece = t.pieces[piece, P_ON_ROW] - 1
    if late and t.rows[node, N_LATE] == 0:
        t.rows[node, N_LATE] = 1
        t.late[t.counts[COUNT_LATE]] = node
        t.counts[COUNT_LATE] += 1
    return size


@inner
def _list_reserved(t: Tables, node: int, now: int, size: int) -> tuple[int, bool, bool]:
    """List when reservations of a node begin and end, behind `size` events: (events, some is broken, some claims)."""
    broken = False
    claims = False
    place = t.rows[node, N_RESERVED]
    passed = 0
    while leads_on(t, place, passed, t.counts[COUNT_RESERVED]):
        passed += 1
        reservation = t.planned_nodes[place, Q_RESERVATION]
        shape = t.classes[t.planned[reservation, V_CLASS], C_SHAPE]
        if t.allowed[t.shapes[shape, S_CSET], node] == 0 or not fits(t, t.capacity, node, shape, t.meta[M_RESOURCES]):
            broken = True
        if t.planned[reservation, V_KIND] == KIND_CLAIM:
            claims = True
        else:
            begin = t.planned[reservation, V_START]
            wall = t.entries[t.planned[reservation, V_ENTRY], E_WALL]
            if t.meta[M_BOOKINGS] > 0 and begin > now and booked_start(t, node, shape, begin, wall) != begin:
                broken = True
            t.events[0, size] = begin
            t.events[1, size] = -shape - 1
            size += 1
            if begin + t.planned[reservation, V_PLANNED] < INF:
                t.events[0, size] = begin + t.planned[reservation, V_PLANNED]
                t.events[1, size] = shape + GIVEN_BACK
                size += 1
        place = t.planned_nodes[place, Q_CHAIN]
    return size, broken, claims


@inner
def _draw(t: Tables, node: int, now: int, size: int) -> tuple[int, bool]:
    """Draw the chain of a node from its events, by time: (points, whether a reservation has too little there)."""
    resources = t.meta[M_RESOURCES]
    point = node
    points = 1
    kept = 0
    broken = False
    k = 0
    while k < size:
        time = t.events[0, k]
        fresh = add_point(t, point, time, resources)
        while k < size and t.events[0, k] == time:
            what = t.events[1, k]
            sign = 1
            if what < 0:
                what = -what - 1
                sign = -1
                kept += 1
            elif what >= GIVEN_BACK:
                what -= GIVEN_BACK
                kept -= 1
            for r in range(resources):
                t.profile[fresh, POINT_SIZE + r] += sign * t.request[r, what]
            k += 1
        if kept > 0 and (k == size or t.events[0, k] > now):
            for r in range(resources):
                if t.profile[fresh, POINT_SIZE + r] < 0:
                    broken = True
        if are_alike(t, point, fresh, resources):
            drop_point(t, point)
        else:
            point = fresh
            points += 1
    return points, broken


@inner
def _sort_events(t: Tables, size: int) -> None:
    if size > 24:
        sort_pairs(t.events[0], t.events[1], size)
        return
    for k in range(1, size):
        time = t.events[0, k]
        what = t.events[1, k]
        at = k
        while at > 0 and (t.events[0, at - 1] > time or (t.events[0, at - 1] == time and t.events[1, at - 1] > what)):
            t.events[0, at] = t.events[0, at - 1]
            t.events[1, at] = t.events[1, at - 1]
            at -= 1
        t.events[0, at] = time
        t.events[1, at] = what


@inner
def clear_node(t: Tables, node: int) -> None:
    """Give back all points of a node but its first."""
    dropped = 0
    while leads_on(t, t.profile[node, POINT_NEXT], dropped, t.profile.shape[0]):
        dropped += 1
        drop_point(t, node)


@inner
def _take_claims(t: Tables, node: int, resources: int) -> None:
    place = t.rows[node, N_RESERVED]
    passed = 0
    while leads_on(t, place, passed, t.counts[COUNT_RESERVED]):
        passed += 1
        reservation = t.planned_nodes[place, Q_RESERVATION]
        if t.planned[reservation, V_KIND] == KIND_CLAIM:
            shape = t.classes[t.planned[reservation, V_CLASS], C_SHAPE]
            point = node
            points_seen = 0
            while leads_on(t, point, points_seen, t.profile.shape[0]):
                points_seen += 1
                for r in range(resources):
                    t.profile[point, POINT_SIZE + r] -= t.request[r, shape]
                point = t.profile[point, POINT_NEXT]
        place = t.planned_nodes[place, Q_CHAIN]


@inner
def _merge(t: Tables, node: int, points: int, resources: int) -> None:
    """Keep the first NEAR_POINTS points and the last; what lies between becomes fewer, each the least of a group.

    With the least, a node is busier than the truth at times, never freer.
    """
    t.rows[node, N_MERGED] = 1
    # `points` is more than MAX_POINTS here, so each round takes at least one away from what is left.
    groups = MAX_POINTS - NEAR_POINTS - 1
    group = (points - NEAR_POINTS - 1 + groups - 1) // groups
    point = node
    for _ in range(NEAR_POINTS):
        point = t.profile[point, POINT_NEXT]
    left = points - NEAR_POINTS - 1
    while left > 0:
        for _ in range(min(group, left) - 1):
            following = t.profile[point, POINT_NEXT]
            for r in range(POINT_SIZE, POINT_SIZE + resources):
                t.profile[point, r] = min(t.profile[point, r], t.profile[following, r])
            drop_point(t, point)
        left -= group
        point = t.profile[point, POINT_NEXT]


# --- which reservations count ---------------------------------------------------------------------------------------


@inner
def link_reservations(t: Tables) -> None:
    """Give each node the chain of the reservations that count there (N_RESERVED, Q_CHAIN)."""
    for k in range(t.counts[COUNT_RESERVATIONS]):
        for place in range(t.planned[k, V_FIRST], t.planned[k, V_FIRST] + t.planned[k, V_NODES]):
            if t.planned_nodes[place, Q_NODE] >= 0:
                t.rows[t.planned_nodes[place, Q_NODE], N_RESERVED] = -1
    for k in range(t.counts[COUNT_RESERVATIONS]):
        if t.planned[k, V_ENTRY] >= 0 and t.planned[k, V_HELD] == 1 and t.planned[k, V_KIND] != KIND_NEVER:
            for place in range(t.planned[k, V_FIRST], t.planned[k, V_FIRST] + t.planned[k, V_NODES]):
                _link(t, place)


@inner
def unlink_reservations(t: Tables) -> None:
    """Leave no node in a chain (the columns belong to other policies between cycles)."""
    for place in range(t.counts[COUNT_RESERVED]):
        if t.planned_nodes[place, Q_NODE] >= 0:
            t.rows[t.planned_nodes[place, Q_NODE], N_RESERVED] = -1


@inner
def _link(t: Tables, place: int) -> None:
    node = t.planned_nodes[place, Q_NODE]
    t.planned_nodes[place, Q_CHAIN] = t.rows[node, N_RESERVED]
    t.rows[node, N_RESERVED] = place


@inner
def _unlink(t: Tables, place: int) -> None:
    node = t.planned_nodes[place, Q_NODE]
    at = t.rows[node, N_RESERVED]
    if at == place:
        t.rows[node, N_RESERVED] = t.planned_nodes[place, Q_CHAIN]
        return
    passed = 0
    while leads_on(t, at, passed, t.counts[COUNT_RESERVED]) and t.planned_nodes[at, Q_CHAIN] != place:
        passed += 1
        at = t.planned_nodes[at, Q_CHAIN]
    t.planned_nodes[at, Q_CHAIN] = t.planned_nodes[place, Q_CHAIN]


@inner
def hold(t: Tables, reservation: int) -> None:
    """Let a reservation count: its nodes' chains lose what it takes."""
    t.planned[reservation, V_HELD] = 1
    if t.planned[reservation, V_KIND] == KIND_NEVER:
        return
    _change(t, reservation, -1)
    for place in range(
        t.planned[reservation, V_FIRST], t.planned[reservation, V_FIRST] + t.planned[reservation, V_NODES]
    ):
        _link(t, place)


@inner
def let_go(t: Tables, reservation: int) -> None:
    """Let a reservation that counts not count any more."""
    t.planned[reservation, V_HELD] = 0
    if t.planned[reservation, V_KIND] == KIND_NEVER:
        return
    for place in range(
        t.planned[reservation, V_FIRST], t.planned[reservation, V_FIRST] + t.planned[reservation, V_NODES]
    ):
        _unlink(t, place)
    _change(t, reservation, 1)


@inner
def _change(t: Tables, reservation: int, sign: int) -> None:
    begin = LOWEST
    end = INF
    if t.planned[reservation, V_KIND] != KIND_CLAIM:
        begin = t.planned[reservation, V_START]
        end = min(begin + t.planned[reservation, V_PLANNED], INF)
    shape = t.classes[t.planned[reservation, V_CLASS], C_SHAPE]
    for place in range(
        t.planned[reservation, V_FIRST], t.planned[reservation, V_FIRST] + t.planned[reservation, V_NODES]
    ):
        change_interval(t, t.planned_nodes[place, Q_NODE], shape, begin, end, sign)
