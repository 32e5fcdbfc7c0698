"""Where a shape fits, and what changes when a node's free amounts change.

Pure. Tables: `free`, `capacity` [N, R] and `request` [R, S] (resource-major) int64 base units; `allowed` [C, N] int8:
constraint set C admits the node and the node is up; `open_now` is the same less nodes of bookings that hold now (one
table where there is none). `shapes[s, S_FIT]` follows every change of a node by one branch-free pass over the shapes.
Whoever takes from many nodes takes `later`: such nodes are listed with the amounts that the shapes count them by, and
one pass a node settles all that was taken from it. Scored placement follows nodes by `touch`: float32 columns of what
is left, and a list of touched nodes.
"""

from __future__ import annotations

from typing import Any, Final

from hal.core.kernels.nodes.domains import forget_fits, gain_ever, gain_fit, lose_ever, lose_fit
from hal.core.kernels.nodes.wants import share_licences
from hal.core.kernels.structures.arrays import Table
from hal.core.kernels.structures.jit import inlined, inner, kernel
from hal.core.kernels.structures.layout import (
    BLOCK_BITS,
    M_CSETS,
    M_EPOCH,
    M_NODES,
    M_RESOURCES,
    M_SHAPES,
    M_WITHIN,
    N_BOOKED,
    N_LAGS,
    N_RESERVED,
    N_UNREADY,
    READY_SHAPE,
    S_BOOKING,
    S_CSET,
    S_EVER,
    S_FIT,
    S_FOLLOWED,
    S_FROM,
    S_WAKE,
    S_WITHIN,
    SHAPES_AT_ONCE,
    TICK_LAGS,
    TICK_MIRROR,
    TICK_READY,
    TICK_TOUCHED,
    TICK_UNREADY,
    TOUCHED,
    WITHIN_SHAPE,
)
from hal.core.kernels.structures.memory import Tables, tables

ONE: Final = 1 << 24
"""The whole of a node's resource in `spare`: what float32 holds exactly."""
HIDDEN: Final = -2 * ONE


@inlined
def fits(t: Tables, amounts: Table, node: int, shape: int, resources: int) -> bool:
    """Whether a node's amounts hold a shape's request."""
    for r in range(resources):  # noqa: SIM110 - numba
        if amounts[node, r] < t.request[r, shape]:
            return False
    return True


@inlined
def _mirror(t: Tables, node: int) -> None:
    """Say in `spare` what is left of a node, and nothing of a reserved or booked one: those are looked at apart."""
    for r in range(t.meta[M_RESOURCES]):
        if t.rows[node, N_RESERVED] >= 0 or t.rows[node, N_BOOKED] != 0 or t.capacity[node, r] <= 0:
            t.spare[r, node] = HIDDEN
        else:
            t.spare[r, node] = t.free[node, r] / t.capacity[node, r] * ONE


@inlined
def look_again(t: Tables, node: int) -> None:
    """What runs on a node, or until when, changed: the kept instants at which it comes to fit hold no longer."""
    if t.rows[node, N_UNREADY] == 0:
        t.rows[node, N_UNREADY] = 1
        t.unready[t.ticks[TICK_UNREADY]] = node
        t.ticks[TICK_UNREADY] += 1


@inlined
def touch(t: Tables, node: int) -> None:
    """A node's free amounts, or whether it is reserved, changed."""
    if t.ticks[TICK_READY] == 1:
        look_again(t, node)
    if t.ticks[TICK_MIRROR] == 1:
        _follow_touch(t, node)


@inlined
def _follow_touch(t: Tables, node: int) -> None:
    _mirror(t, node)
    place = t.ticks[TICK_TOUCHED]
    t.touched[place & (TOUCHED - 1)] = node
    t.block_touched[node >> BLOCK_BITS] = place
    t.ticks[TICK_TOUCHED] = place + 1


@inner
def build_mirror(t: Tables) -> None:
    """Fill the float columns; from now on `touch` keeps them."""
    for node in range(t.meta[M_NODES]):
        for r in range(t.meta[M_RESOURCES]):
            t.per_unit[r, node] = ONE / t.capacity[node, r] if t.capacity[node, r] > 0 else 0.0
        _mirror(t, node)
    for s in range(t.meta[M_SHAPES]):
        t.shapes[s, S_FOLLOWED] = -1
    t.ticks[TICK_MIRROR] = 1


@kernel
def follow_rows(at: Any) -> None:
    """Begin to follow nodes, where nobody does yet."""
    t = tables(at)
    if t.ticks[TICK_MIRROR] == 0:
        build_mirror(t)


@inlined
def reserve_node(t: Tables, node: int, place: int) -> None:
    """A node is reserved (its place in the table of reserved nodes), or not any more (-1)."""
    changes = (t.rows[node, N_RESERVED] >= 0) != (place >= 0)
    t.rows[node, N_RESERVED] = place
    if changes:
        touch(t, node)


@inlined
def _differ(t: Tables, begin: int, count: int, less: Table, node: int, more: Table) -> bool:
    """Whether some of `count` shapes from `begin` on fit `more` of a node and not `less`: differ[0] says which."""
    gone = t.differ[0]
    never = t.differ[1]
    for k in range(count):
        gone[k] = 0
        never[k] = 0
    for r in range(t.meta[M_RESOURCES]):
        low = less[node, r]
        high = more[node, r]
        asked = t.request[r, begin : begin + count]
        for k in range(count):
            gone[k] |= asked[k] > low
            never[k] |= asked[k] > high
    found = 0
    for k in range(count):
        gone[k] &= ~never[k]
        found |= gone[k]
    return found != 0


@inlined
def _fits_no_longer(t: Tables, node: int, shape: int) -> None:
    if t.meta[M_WITHIN] != 0 and t.shapes[shape, S_WITHIN] != 0:
        lose_fit(t, node, shape)
    else:
        t.shapes[shape, S_FIT] -= 1


@inlined
def _settle_taken(t: Tables, node: int) -> None:
    """Lower the counts of the shapes that fit the amounts in `counted` and no longer fit what is free."""
    plain = t.meta[M_CSETS] == 1
    if plain and t.open_now[0, node] == 0:
        return
    shapes = t.meta[M_SHAPES]
    if t.meta[M_RESOURCES] == 1:
        less = t.free[node, 0]
        more = t.counted[node, 0]
        for s in range(shapes):
            if less < t.request[0, s] <= more and (plain or t.open_now[t.shapes[s, S_CSET], node] != 0):
                _fits_no_longer(t, node, s)
        return
    for begin in range(0, shapes, SHAPES_AT_ONCE):
        count = min(SHAPES_AT_ONCE, shapes - begin)
        if _differ(t, begin, count, t.free, node, t.counted):
            for s in range(begin, begin + count):
                if t.differ[0, s - begin] != 0 and (plain or t.open_now[t.shapes[s, S_CSET], node] != 0):
                    _fits_no_longer(t, node, s)


@inlined
def take_later(t: Tables, node: int, shape: int) -> None:
    """Take a shape's request from a node; the counts lag behind until `settle_counts`."""
    if t.rows[node, N_LAGS] == 0:
        t.rows[node, N_LAGS] = 1
        t.lagging[t.ticks[TICK_LAGS]] = node
        t.ticks[TICK_LAGS] += 1
        for r in range(t.meta[M_RESOURCES]):
            t.counted[node, r] = t.free[node, r]
    for r in range(t.meta[M_RESOURCES]):
        t.free[node, r] -= t.request[r, shape]
    touch(t, node)


@inlined
def settle_counts(t: Tables) -> None:
    """Let the counts say what the nodes say."""
    for k in range(t.ticks[TICK_LAGS]):
        node = t.lagging[k]
        t.rows[node, N_LAGS] = 0
        _settle_taken(t, node)
    t.ticks[TICK_LAGS] = 0


@inlined
def forget_lags(t: Tables) -> None:
    """The nodes and the counts were put back: nothing lags behind."""
    for k in range(t.ticks[TICK_LAGS]):
        t.rows[t.lagging[k], N_LAGS] = 0
    t.ticks[TICK_LAGS] = 0


@inlined
def take_node(t: Tables, node: int, shape: int) -> None:
    """Take a shape's request from a node and lower the counts of the shapes that no longer fit there."""
    take_later(t, node, shape)
    settle_counts(t)


@inlined
def _fits_again(t: Tables, node: int, shape: int) -> None:
    if t.meta[M_WITHIN] != 0 and t.shapes[shape, S_WITHIN] != 0:
        gain_fit(t, node, shape)
    else:
        t.shapes[shape, S_FIT] += 1
    t.shapes[shape, S_WAKE] = t.meta[M_EPOCH]
    if node < t.shapes[shape, S_FROM]:
        t.shapes[shape, S_FROM] = node


@inlined
def give_node(t: Tables, node: int, shape: int) -> None:
    """Give a shape's request back to a node, raise the counts, and let first-fit look at the node again."""
    for r in range(t.meta[M_RESOURCES]):
        t.counted[node, r] = t.free[node, r]
        t.free[node, r] += t.request[r, shape]
    touch(t, node)
    plain = t.meta[M_CSETS] == 1
    if plain and t.open_now[0, node] == 0:
        return
    shapes = t.meta[M_SHAPES]
    if t.meta[M_RESOURCES] == 1:
        less = t.counted[node, 0]
        more = t.free[node, 0]
        for s in range(shapes):
            if less < t.request[0, s] <= more and (plain or t.open_now[t.shapes[s, S_CSET], node] != 0):
                _fits_again(t, node, s)
        return
    for begin in range(0, shapes, SHAPES_AT_ONCE):
        count = min(SHAPES_AT_ONCE, shapes - begin)
        if _differ(t, begin, count, t.counted, node, t.free):
            for s in range(begin, begin + count):
                if t.differ[0, s - begin] != 0 and (plain or t.open_now[t.shapes[s, S_CSET], node] != 0):
                    _fits_again(t, node, s)


@inner
def shift_node(t: Tables, node: int, resource: int, amount: int) -> None:
    """Give (or take) an amount of one resource on a node, and keep the counts of the shapes."""
    resources = t.meta[M_RESOURCES]
    for s in range(t.meta[M_SHAPES]):
        if t.open_now[t.shapes[s, S_CSET], node] == 0:
            continue
        before = fits(t, t.free, node, s, resources)
        t.free[node, resource] += amount
        after = fits(t, t.free, node, s, resources)
        t.free[node, resource] -= amount
        if after and not before:
            _fits_again(t, node, s)
        elif before and not after:
            _fits_no_longer(t, node, s)
    t.free[node, resource] += amount
    touch(t, node)


@kernel
def recount(at: Any, first: int, last: int) -> None:
    """Count again, for shapes first..last-1, the nodes where they fit now and where they could when empty."""
    t = tables(at)
    resources = t.meta[M_RESOURCES]
    for line in range(t.ready_of.shape[0]):
        if first < t.ready_of[line, READY_SHAPE] <= last:
            t.ready_of[line, READY_SHAPE] = 0
    for s in range(first, last):
        now = 0
        ever = 0
        start = t.meta[M_NODES]
        within = t.shapes[s, S_WITHIN] != 0
        if within:
            forget_fits(t, s)
        for node in range(t.meta[M_NODES]):
            if t.allowed[t.shapes[s, S_CSET], node] == 0:
                continue
            if fits(t, t.capacity, node, s, resources):
                ever += 1
                if within:
                    gain_ever(t, node, s)
            if t.open_now[t.shapes[s, S_CSET], node] != 0 and fits(t, t.free, node, s, resources):
                now += 1
                if within:
                    gain_fit(t, node, s)
                if now == 1:
                    start = node
        if not within:
            t.shapes[s, S_FIT] = now
            t.shapes[s, S_EVER] = ever
        t.shapes[s, S_FROM] = start
        t.shapes[s, S_FOLLOWED] = -1


@kernel
def count_node(at: Any, node: int, sign: int) -> None:
    """Count a node (1), or no longer (-1), where shapes fit whose nodes must be in one domain. O(such shapes)."""
    t = tables(at)
    resources = t.meta[M_RESOURCES]
    for line in range(t.meta[M_WITHIN]):
        s = t.within[line, WITHIN_SHAPE] - 1
        if s < 0 or t.allowed[t.shapes[s, S_CSET], node] == 0:
            continue
        ever = fits(t, t.capacity, node, s, resources)
        now = t.open_now[t.shapes[s, S_CSET], node] != 0 and fits(t, t.free, node, s, resources)
        if sign > 0:
            if ever:
                gain_ever(t, node, s)
            if now:
                gain_fit(t, node, s)
        else:
            if ever:
                lose_ever(t, node, s)
            if now:
                lose_fit(t, node, s)


@inner
def lay_aside(t: Tables, node: int) -> None:
    """Before something is given back to a node as if it had never been taken: remember by what shapes count it."""
    t.rows[node, N_LAGS] = 1
    for r in range(t.meta[M_RESOURCES]):
        t.counted[node, r] = t.free[node, r]


@inner
def count_back(t: Tables, node: int) -> None:
    """Afterwards, once a node: where shapes fit again whose nodes must be in one domain."""
    if t.rows[node, N_LAGS] == 0:
        return
    t.rows[node, N_LAGS] = 0
    resources = t.meta[M_RESOURCES]
    for line in range(t.meta[M_WITHIN]):
        s = t.within[line, WITHIN_SHAPE] - 1
        if (
            s >= 0
            and t.open_now[t.shapes[s, S_CSET], node] != 0
            and fits(t, t.free, node, s, resources)
            and not fits(t, t.counted, node, s, resources)
        ):
            gain_fit(t, node, s)


@inner
def compete(t: Tables, one: int, other: int) -> bool:
    """Whether some node could hold either shape: then their jobs compete."""
    if one == other:
        return True
    if t.shapes[one, S_BOOKING] != t.shapes[other, S_BOOKING]:
        return False  # never at the same time: nobody waits for what the other one is reserved
    if share_licences(t, one, other):
        return True
    resources = t.meta[M_RESOURCES]
    first = t.shapes[one, S_CSET]
    second = t.shapes[other, S_CSET]
    for node in range(t.meta[M_NODES]):
        if (
            t.allowed[first, node] != 0
            and t.allowed[second, node] != 0
            and fits(t, t.capacity, node, one, resources)
            and fits(t, t.capacity, node, other, resources)
        ):
            return True
    return False
