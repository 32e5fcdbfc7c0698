"""Where a shape fits, and what changes when a row's free amounts change.

Pure. Tables: `free`, `capacity` [N, R] and `request` [R, S] (resource-major) int64 base units; `allowed` [C, N] int8:
constraint set C admits the row and the row is up; `open_now` is the same less rows of bookings that hold now (one table
where there is none). `shapes[s, S_FIT]` follows every change of a row by one branch-free
pass over the shapes. Whoever takes from many rows takes `later`: such rows are listed with the amounts that the shapes
count them by, and one pass a row settles all that was taken from it. Scored placement follows rows by `touch`: float32
columns of what is left, and a list of touched rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.jit import inlined, inner, kernel
from hal.core.kernels.layout import (
    M_CSETS,
    M_EPOCH,
    M_RESOURCES,
    M_ROWS,
    M_SHAPES,
    READY_SHAPE,
    S_BOOKING,
    S_CSET,
    S_EVER,
    S_FIT,
    S_FOLLOWED,
    S_FROM,
    S_WAKE,
    TICK_LAGS,
    TICK_MIRROR,
    TICK_READY,
    TICK_TOUCHED,
    TICK_UNREADY,
    W_BOOKED,
    W_LAGS,
    W_PROMISED,
    W_UNREADY,
)
from hal.core.kernels.memory import Tables, tables
from hal.core.kernels.treap import Table
from hal.core.kernels.wants import share_licences

Ints = NDArray[np.int64]
Allowed = NDArray[np.int8]

SHAPES_AT_ONCE: Final = 64
"""Shapes that one step of a pass compares; most steps find nothing that changed."""
BLOCK_BITS: Final = 7
BLOCK: Final = 1 << BLOCK_BITS
"""Rows of a block: scored placement keeps the best row of each."""
ROOM_BITS: Final = 5
"""Rows of a group, as a power of two: first-fit passes over it as a whole by the most that any of them has free."""
TOUCHED: Final = 256
"""Touched rows that are remembered one by one, a power of two; before that, only which blocks they are in."""
ONE: Final = 1 << 24
"""The whole of a row's resource in `spare`: what float32 holds exactly."""
HIDDEN: Final = -2 * ONE


@inlined
def fits(t: Tables, amounts: Table, row: int, shape: int, resources: int) -> bool:
    """Whether a row's amounts hold a shape's request."""
    for r in range(resources):  # noqa: SIM110 - numba
        if amounts[row, r] < t.request[r, shape]:
            return False
    return True


@inlined
def _mirror(t: Tables, row: int) -> None:
    """Say in `spare` what is left of a row, and nothing of a promised or booked one: those are looked at apart."""
    for r in range(t.meta[M_RESOURCES]):
        if t.rows[row, W_PROMISED] >= 0 or t.rows[row, W_BOOKED] != 0 or t.capacity[row, r] <= 0:
            t.spare[r, row] = HIDDEN
        else:
            t.spare[r, row] = t.free[row, r] / t.capacity[row, r] * ONE


@inlined
def look_again(t: Tables, row: int) -> None:
    """What runs on a row, or until when, changed: the kept instants at which it comes to fit hold no longer."""
    if t.rows[row, W_UNREADY] == 0:
        t.rows[row, W_UNREADY] = 1
        t.unready[t.ticks[TICK_UNREADY]] = row
        t.ticks[TICK_UNREADY] += 1


@inlined
def touch(t: Tables, row: int) -> None:
    """A row's free amounts, or whether it is promised, changed."""
    if t.ticks[TICK_READY] == 1:
        look_again(t, row)
    if t.ticks[TICK_MIRROR] == 1:
        _follow_touch(t, row)


@inlined
def _follow_touch(t: Tables, row: int) -> None:
    _mirror(t, row)
    place = t.ticks[TICK_TOUCHED]
    t.touched[place & (TOUCHED - 1)] = row
    t.block_touched[row >> BLOCK_BITS] = place
    t.ticks[TICK_TOUCHED] = place + 1


@inner
def build_mirror(t: Tables) -> None:
    """Fill the float columns; from now on `touch` keeps them."""
    for row in range(t.meta[M_ROWS]):
        for r in range(t.meta[M_RESOURCES]):
            t.per_unit[r, row] = ONE / t.capacity[row, r] if t.capacity[row, r] > 0 else 0.0
        _mirror(t, row)
    for s in range(t.meta[M_SHAPES]):
        t.shapes[s, S_FOLLOWED] = -1
    t.ticks[TICK_MIRROR] = 1


@kernel
def follow_rows(at: Any) -> None:
    """Begin to follow rows, where nobody does yet."""
    t = tables(at)
    if t.ticks[TICK_MIRROR] == 0:
        build_mirror(t)


@inlined
def promise_row(t: Tables, row: int, place: int) -> None:
    """A row is promised (its place in the table of promised rows), or not any more (-1)."""
    changes = (t.rows[row, W_PROMISED] >= 0) != (place >= 0)
    t.rows[row, W_PROMISED] = place
    if changes:
        touch(t, row)


@inlined
def _differ(t: Tables, begin: int, count: int, less: Table, row: int, more: Table) -> bool:
    """Whether some of `count` shapes from `begin` on fit `more` of a row and not `less`: differ[0] says which."""
    gone = t.differ[0]
    never = t.differ[1]
    for k in range(count):
        gone[k] = 0
        never[k] = 0
    for r in range(t.meta[M_RESOURCES]):
        low = less[row, r]
        high = more[row, r]
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
def _settle_taken(t: Tables, row: int) -> None:
    """Lower the counts of the shapes that fit the amounts in `counted` and no longer fit what is free."""
    plain = t.meta[M_CSETS] == 1
    if plain and t.open_now[0, row] == 0:
        return
    shapes = t.meta[M_SHAPES]
    if t.meta[M_RESOURCES] == 1:
        less = t.free[row, 0]
        more = t.counted[row, 0]
        for s in range(shapes):
            if less < t.request[0, s] <= more and (plain or t.open_now[t.shapes[s, S_CSET], row] != 0):
                t.shapes[s, S_FIT] -= 1
        return
    for begin in range(0, shapes, SHAPES_AT_ONCE):
        count = min(SHAPES_AT_ONCE, shapes - begin)
        if _differ(t, begin, count, t.free, row, t.counted):
            for s in range(begin, begin + count):
                if t.differ[0, s - begin] != 0 and (plain or t.open_now[t.shapes[s, S_CSET], row] != 0):
                    t.shapes[s, S_FIT] -= 1


@inlined
def take_later(t: Tables, row: int, shape: int) -> None:
    """Take a shape's request from a row; the counts lag behind until `settle_counts`."""
    if t.rows[row, W_LAGS] == 0:
        t.rows[row, W_LAGS] = 1
        t.lagging[t.ticks[TICK_LAGS]] = row
        t.ticks[TICK_LAGS] += 1
        for r in range(t.meta[M_RESOURCES]):
            t.counted[row, r] = t.free[row, r]
    for r in range(t.meta[M_RESOURCES]):
        t.free[row, r] -= t.request[r, shape]
    touch(t, row)


@inlined
def settle_counts(t: Tables) -> None:
    """Let the counts say what the rows say."""
    for k in range(t.ticks[TICK_LAGS]):
        row = t.lagging[k]
        t.rows[row, W_LAGS] = 0
        _settle_taken(t, row)
    t.ticks[TICK_LAGS] = 0


@inlined
def forget_lags(t: Tables) -> None:
    """The rows and the counts were put back: nothing lags behind."""
    for k in range(t.ticks[TICK_LAGS]):
        t.rows[t.lagging[k], W_LAGS] = 0
    t.ticks[TICK_LAGS] = 0


@inlined
def take_row(t: Tables, row: int, shape: int) -> None:
    """Take a shape's request from a row and lower the counts of the shapes that no longer fit there."""
    take_later(t, row, shape)
    settle_counts(t)


@inlined
def _fits_again(t: Tables, row: int, shape: int) -> None:
    t.shapes[shape, S_FIT] += 1
    t.shapes[shape, S_WAKE] = t.meta[M_EPOCH]
    if row < t.shapes[shape, S_FROM]:
        t.shapes[shape, S_FROM] = row


@inlined
def give_row(t: Tables, row: int, shape: int) -> None:
    """Give a shape's request back to a row, raise the counts, and let first-fit look at the row again."""
    for r in range(t.meta[M_RESOURCES]):
        t.counted[row, r] = t.free[row, r]
        t.free[row, r] += t.request[r, shape]
    touch(t, row)
    plain = t.meta[M_CSETS] == 1
    if plain and t.open_now[0, row] == 0:
        return
    shapes = t.meta[M_SHAPES]
    if t.meta[M_RESOURCES] == 1:
        less = t.counted[row, 0]
        more = t.free[row, 0]
        for s in range(shapes):
            if less < t.request[0, s] <= more and (plain or t.open_now[t.shapes[s, S_CSET], row] != 0):
                _fits_again(t, row, s)
        return
    for begin in range(0, shapes, SHAPES_AT_ONCE):
        count = min(SHAPES_AT_ONCE, shapes - begin)
        if _differ(t, begin, count, t.counted, row, t.free):
            for s in range(begin, begin + count):
                if t.differ[0, s - begin] != 0 and (plain or t.open_now[t.shapes[s, S_CSET], row] != 0):
                    _fits_again(t, row, s)


@inner
def shift_row(t: Tables, row: int, resource: int, amount: int) -> None:
    """Give (or take) an amount of one resource on a row, and keep the counts of the shapes."""
    resources = t.meta[M_RESOURCES]
    for s in range(t.meta[M_SHAPES]):
        if t.open_now[t.shapes[s, S_CSET], row] == 0:
            continue
        before = fits(t, t.free, row, s, resources)
        t.free[row, resource] += amount
        after = fits(t, t.free, row, s, resources)
        t.free[row, resource] -= amount
        if after and not before:
            t.shapes[s, S_FIT] += 1
            t.shapes[s, S_WAKE] = t.meta[M_EPOCH]
            if row < t.shapes[s, S_FROM]:
                t.shapes[s, S_FROM] = row
        elif before and not after:
            t.shapes[s, S_FIT] -= 1
    t.free[row, resource] += amount
    touch(t, row)


@kernel
def recount(at: Any, first: int, last: int) -> None:
    """Count anew, for shapes first..last-1, the rows where they fit now and where they could when empty."""
    t = tables(at)
    resources = t.meta[M_RESOURCES]
    for line in range(t.ready_of.shape[0]):
        if first < t.ready_of[line, READY_SHAPE] <= last:
            t.ready_of[line, READY_SHAPE] = 0
    for s in range(first, last):
        now = 0
        ever = 0
        start = t.meta[M_ROWS]
        for row in range(t.meta[M_ROWS]):
            if t.allowed[t.shapes[s, S_CSET], row] == 0:
                continue
            if fits(t, t.capacity, row, s, resources):
                ever += 1
            if t.open_now[t.shapes[s, S_CSET], row] != 0 and fits(t, t.free, row, s, resources):
                now += 1
                if now == 1:
                    start = row
        t.shapes[s, S_FIT] = now
        t.shapes[s, S_EVER] = ever
        t.shapes[s, S_FROM] = start
        t.shapes[s, S_FOLLOWED] = -1


@inner
def compete(t: Tables, one: int, other: int) -> bool:
    """Whether some row could hold either shape: then their jobs compete."""
    if one == other:
        return True
    if t.shapes[one, S_BOOKING] != t.shapes[other, S_BOOKING]:
        return False  # never at the same time: nobody waits for what the other one is promised
    if share_licences(t, one, other):
        return True
    resources = t.meta[M_RESOURCES]
    first = t.shapes[one, S_CSET]
    second = t.shapes[other, S_CSET]
    for row in range(t.meta[M_ROWS]):
        if (
            t.allowed[first, row] != 0
            and t.allowed[second, row] != 0
            and fits(t, t.capacity, row, one, resources)
            and fits(t, t.capacity, row, other, resources)
        ):
            return True
    return False
