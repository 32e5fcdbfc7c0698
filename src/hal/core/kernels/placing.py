"""Choosing rows for one attempt: first-fit or best score, never on what is promised to a job ahead.

Pure. A row that is promised from t on may be used until t (short work uses such rows first), and by longer work only
out of what is left beyond the promise. Free amounts only shrink inside a cycle, so first-fit goes on where the shape's
last search began to fit, past groups of rows of which none has enough: O(rows) a shape and cycle. Scored: each shape
keeps the best row of each block of rows and follows the rows that were touched since it last looked: O(rows / BLOCK +
touched blocks x BLOCK) a decision.
Source of the reservation rule: Lifka, JSSPP 1995 (EASY).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.booked import may_start
from hal.core.kernels.jit import inlined, inner
from hal.core.kernels.layout import (
    INF,
    KIND_PROMISE,
    M_BOOKED_ROWS,
    M_BOOKINGS,
    M_PLACEMENT,
    M_RESOURCES,
    M_ROWS,
    PLACE_BEST,
    PLACE_FIRST,
    Q_EXTRA,
    Q_PROMISE,
    Q_ROW,
    S_BLOCK_STAMP,
    S_BLOCKED,
    S_CSET,
    S_FIT,
    S_FOLLOWED,
    S_FROM,
    S_FROM_NOW,
    S_FROM_STAMP,
    S_SCORES,
    S_UNTIL,
    TICK_MIRROR,
    TICK_TOUCHED,
    TICK_WORK,
    V_KIND,
    V_START,
    W_BOOKED,
    W_PROMISED,
)
from hal.core.kernels.memory import Tables, tables
from hal.core.kernels.rows import (
    BLOCK,
    BLOCK_BITS,
    HIDDEN,
    ONE,
    ROOM_BITS,
    TOUCHED,
    build_mirror,
    fits,
    promise_row,
)
from hal.core.kernels.treap import Table

Ints = NDArray[np.int64]

TIER_SHORT: Final = 0
TIER_FREE: Final = 1
TIER_EXTRA: Final = 2
SCORE_ONE: Final = 1_000_000
ROW_BITS: Final = 32
LAST_ROW: Final = (1 << ROW_BITS) - 1
ONE_BY_ONE: Final = 64
"""So many touched rows are looked at one by one; beyond that a pass over their blocks is cheaper."""
ERROR: Final = 8
"""How far `spare` less a request may be from the exact share, in parts of ONE: roundings to 24 bits of both, of the
inverse and of their product are 5."""
MARGIN: Final = 64
"""Rows within this of the least are looked at exactly: two errors of the least, two of the row, 17 for a millionth."""
MOST_ASKED: Final = np.float32(8 * ONE)
CHOSEN: Final = 1 << 40
"""In W_PROMISED while a gang's rows are chosen: this one is."""
assert TOUCHED >= ONE_BY_ONE


@inner
def has_extra(t: Tables, promised: Table, place: int, shape: int, resources: int) -> bool:
    """Whether a shape fits beside the promise on a promised row."""
    for r in range(resources):  # noqa: SIM110 - numba
        if promised[place, Q_EXTRA + r] < t.request[r, shape]:
            return False
    return True


@inner
def window(
    t: Tables, promises: Table, promised: Table, promised_rows: int, shape: int, nodes: int, now: int, stamp: int,
) -> int:  # fmt: skip
    """The longest planned time of this class that may start now: -1 none, INF any; an upper bound in between.

    From counts: the rows that fit, less those that fit but are promised. Exact for INF, -1 and one reservation.
    """
    fit = t.shapes[shape, S_FIT]
    if fit < nodes:
        return -1
    if promised_rows == 0:
        return INF
    if t.shapes[shape, S_BLOCK_STAMP] != stamp:
        resources = t.meta[M_RESOURCES]
        blocked = 0
        until = -1
        for place in range(promised_rows):
            row = promised[place, Q_ROW]
            if (
                t.open_now[t.shapes[shape, S_CSET], row] != 0
                and fits(t, t.free, row, shape, resources)
                and not has_extra(t, promised, place, shape, resources)
            ):
                blocked += 1
                promise = promised[place, Q_PROMISE]
                if promises[promise, V_KIND] == KIND_PROMISE and promises[promise, V_START] > until:
                    until = promises[promise, V_START]
        t.shapes[shape, S_BLOCK_STAMP] = stamp
        t.shapes[shape, S_BLOCKED] = blocked
        t.shapes[shape, S_UNTIL] = until
    if fit - t.shapes[shape, S_BLOCKED] >= nodes:
        return INF
    return int(t.shapes[shape, S_UNTIL] - now) if t.shapes[shape, S_UNTIL] >= now else -1


@inlined
def _has_room(t: Tables, group: int, shape: int, resources: int) -> bool:
    """Whether each amount that a shape asks for is free on some row of a group, not necessarily on one."""
    for r in range(resources):  # noqa: SIM110 - numba
        if t.room[group, 1 + r] < t.request[r, shape]:
            return False
    return True


@inner
def _note_room(t: Tables, group: int, last: int, stamp: int, resources: int) -> None:
    """Note the most that a row of a group has free. It stays an upper bound in this cycle: free amounts only shrink."""
    t.room[group, 0] = stamp
    for r in range(resources):
        t.room[group, 1 + r] = 0
        for row in range(group << ROOM_BITS, last):
            t.room[group, 1 + r] = max(t.room[group, 1 + r], t.free[row, r])


@inner
def _first_fit(
    t: Tables, promises: Table, promised: Table, promised_rows: int, shape: int, nodes: int, end: int, out: Ints,
    offset: int, stamp: int, settled: bool,
) -> int:  # fmt: skip
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    found = 0
    for place in range(promised_rows):
        promise = promised[place, Q_PROMISE]
        if promises[promise, V_KIND] == KIND_PROMISE and end <= promises[promise, V_START]:
            row = promised[place, Q_ROW]
            if t.open_now[cset, row] != 0 and fits(t, t.free, row, shape, resources) and may_start(t, row, shape):
                out[offset + found] = row
                found += 1
                if found == nodes:
                    return found
    first = t.shapes[shape, S_FROM_NOW] if t.shapes[shape, S_FROM_STAMP] == stamp else t.shapes[shape, S_FROM]
    start = -1
    row = first
    while row < t.meta[M_ROWS] and found < nodes:
        group = row >> ROOM_BITS
        last = min((group + 1) << ROOM_BITS, t.meta[M_ROWS])
        if t.room[group, 0] == stamp and not _has_room(t, group, shape, resources):
            row = last
            continue
        none_fits = True
        while row < last:
            if t.open_now[cset, row] != 0 and fits(t, t.free, row, shape, resources):
                none_fits = False
                if start < 0:
                    start = row
                if t.rows[row, W_PROMISED] < 0 and may_start(t, row, shape):
                    out[offset + found] = row
                    found += 1
                    if found == nodes:
                        break
            row += 1
        if none_fits:
            _note_room(t, group, last, stamp, resources)
    if start < 0:
        start = row
    t.shapes[shape, S_FROM_NOW] = start
    t.shapes[shape, S_FROM_STAMP] = stamp
    if settled:
        t.shapes[shape, S_FROM] = start
    if found == nodes:
        return found
    for place in range(promised_rows):
        promise = promised[place, Q_PROMISE]
        if promises[promise, V_KIND] != KIND_PROMISE or end > promises[promise, V_START]:
            row = promised[place, Q_ROW]
            if (
                t.open_now[cset, row] != 0
                and fits(t, t.free, row, shape, resources)
                and has_extra(t, promised, place, shape, resources)
                and may_start(t, row, shape)
            ):
                out[offset + found] = row
                found += 1
                if found == nodes:
                    return found
    return found


@inner
def tightness(t: Tables, row: int, shape: int, resources: int) -> int:
    """Best-fit score in millionths: one minus the least share of a wanted resource that would be left."""
    least = 1.0
    for r in range(resources):
        if t.request[r, shape] > 0:
            left = (t.free[row, r] - t.request[r, shape]) / t.capacity[row, r]
            least = min(least, left)
    return int(np.floor((1.0 - least) * SCORE_ONE + 0.5))


@inner
def _score(t: Tables, row: int, shape: int, resources: int) -> int:
    """How good a row that holds the request is, in millionths: higher is better."""
    if t.meta[M_PLACEMENT] == PLACE_BEST:
        return tightness(t, row, shape, resources)
    return int(t.scores[t.shapes[shape, S_SCORES], row])


@inner
def _rank(t: Tables, row: int, shape: int, resources: int) -> int:
    """Score and row as one number, higher is better; -1 where the request does not fit; promised and booked rows are
    looked at apart."""
    if (
        t.open_now[t.shapes[shape, S_CSET], row] == 0
        or t.rows[row, W_PROMISED] >= 0
        or t.rows[row, W_BOOKED] != 0
        or not fits(t, t.free, row, shape, resources)
    ):
        return -1
    return (_score(t, row, shape, resources) << ROW_BITS) + LAST_ROW - row


@inner
def _spare_of_block(t: Tables, shape: int, first: int, count: int, resources: int) -> int:
    """Fill `value` with about what would be left of each row's tightest wanted resource, in parts of ONE; below -ERROR
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
def _best_of_block(at: Any, shape: int, block: int) -> int:
    """The best rank of a block's rows, -1 when none fits.

    Best-fit looks exactly only at rows that float32 cannot tell from the best one; where the best by float32 does not
    fit exactly, at all of them. A plugin's scores are given for each row.
    """
    t = tables(at)
    resources = t.meta[M_RESOURCES]
    first = block << BLOCK_BITS
    count = min(BLOCK, t.meta[M_ROWS] - first)
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
            row = first + k
            # An empty cluster is full of equals, and the first of them is the better one.
            same = alike >= 0
            for r in range(resources):
                same = same and t.free[row, r] == t.free[alike, r] and t.capacity[row, r] == t.capacity[alike, r]
            if same:
                continue
            rank = _rank(t, row, shape, resources)
            if rank >= 0:
                alike = row
                sure = sure or t.value[k] <= least + 2 * ERROR
                best = max(best, rank)
        if sure:
            return best
    for row in range(first, first + count):
        best = max(best, _rank(t, row, shape, resources))
    return best


@inner
def _follow(at: Any, shape: int) -> None:
    """Bring a shape's best rows up to date: after few touched rows by looking at each, else block by block."""
    t = tables(at)
    place = t.ticks[TICK_TOUCHED]
    seen = t.shapes[shape, S_FOLLOWED]
    if seen == place:
        return
    t.shapes[shape, S_FOLLOWED] = place
    resources = t.meta[M_RESOURCES]
    if seen < 0 or place - seen > ONE_BY_ONE:
        for block in range((t.meta[M_ROWS] + BLOCK - 1) >> BLOCK_BITS):
            if seen < 0 or t.block_touched[block] >= seen:
                t.best[shape, block] = _best_of_block(at, shape, block)
        return
    for k in range(seen, place):
        row = t.touched[k & (TOUCHED - 1)]
        block = row >> BLOCK_BITS
        rank = _rank(t, row, shape, resources)
        there = t.best[shape, block]
        if rank > there:
            t.best[shape, block] = rank
        elif rank < there and LAST_ROW - (there & LAST_ROW) == row:
            t.best[shape, block] = _best_of_block(at, shape, block)


@inner
def _free_scored(at: Any, shape: int, nodes: int, out: Ints, offset: int, found: int) -> int:
    """Add the best rows that are promised to nobody: each the best of the blocks' best, then its block without it."""
    t = tables(at)
    _follow(at, shape)
    begin = found
    while found < nodes:
        best = -1
        for block in range((t.meta[M_ROWS] + BLOCK - 1) >> BLOCK_BITS):
            best = max(best, t.best[shape, block])
        if best < 0:
            break
        row = LAST_ROW - (best & LAST_ROW)
        out[offset + found] = row
        found += 1
        if found < nodes:
            promise_row(t, row, CHOSEN)
            t.best[shape, row >> BLOCK_BITS] = _best_of_block(at, shape, row >> BLOCK_BITS)
    for i in range(offset + begin, offset + found):
        if t.rows[out[i], W_PROMISED] == CHOSEN:
            promise_row(t, out[i], -1)
    return found


@inner
def _promised_scored(
    at: Any, promises: Table, promised: Table, promised_rows: int, shape: int, nodes: int, end: int, out: Ints,
    offset: int, found: int, short: bool, rank_scratch: Ints,
) -> int:  # fmt: skip
    """Add promised rows, best first: those that are promised from `end` on only (`short`), or with room beside."""
    t = tables(at)
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    begin = found
    for place in range(promised_rows):
        promise = promised[place, Q_PROMISE]
        if (promises[promise, V_KIND] == KIND_PROMISE and end <= promises[promise, V_START]) != short:
            continue
        row = promised[place, Q_ROW]
        if (
            t.open_now[cset, row] == 0
            or not fits(t, t.free, row, shape, resources)
            or not (short or has_extra(t, promised, place, shape, resources))
            or not may_start(t, row, shape)
        ):
            continue
        found = _insert(t, row, shape, nodes, out, offset, begin, found, rank_scratch)
    return found


@inner
def _booked_scored(t: Tables, shape: int, nodes: int, out: Ints, offset: int, found: int, rank_scratch: Ints) -> int:
    """Add booked rows that bookings leave it now and that are promised to nobody, best first."""
    resources = t.meta[M_RESOURCES]
    begin = found
    for i in range(t.meta[M_BOOKED_ROWS]):
        row = t.booked_rows[i]
        if (
            t.open_now[t.shapes[shape, S_CSET], row] != 0
            and t.rows[row, W_PROMISED] < 0
            and fits(t, t.free, row, shape, resources)
            and may_start(t, row, shape)
        ):
            found = _insert(t, row, shape, nodes, out, offset, begin, found, rank_scratch)
    return found


@inner
def _insert(
    t: Tables, row: int, shape: int, nodes: int, out: Ints, offset: int, begin: int, found: int, rank_scratch: Ints
) -> int:
    """Put a row among those found since `begin`, the best first and at most `nodes` in all; how many there are now."""
    rank = (_score(t, row, shape, t.meta[M_RESOURCES]) << ROW_BITS) + LAST_ROW - row
    to = found
    if found == nodes:
        if rank <= rank_scratch[nodes - 1]:
            return found
        to = nodes - 1
    else:
        found += 1
    while to > begin and rank_scratch[to - 1] < rank:
        rank_scratch[to] = rank_scratch[to - 1]
        out[offset + to] = out[offset + to - 1]
        to -= 1
    rank_scratch[to] = rank
    out[offset + to] = row
    return found


@inner
def _best_scored(
    at: Any, promises: Table, promised: Table, promised_rows: int, shape: int, nodes: int, end: int, out: Ints,
    offset: int, rank_scratch: Ints,
) -> int:  # fmt: skip
    """The best rows: first those whose promise begins after `end`, then booked ones that it would leave in time, then
    the ones promised to nobody, then the rest."""
    t = tables(at)
    t.ticks[TICK_WORK] += (t.meta[M_ROWS] + BLOCK - 1) >> BLOCK_BITS
    if t.ticks[TICK_MIRROR] == 0:
        build_mirror(t)
    found = 0
    if promised_rows > 0:
        found = _promised_scored(
            at, promises, promised, promised_rows, shape, nodes, end, out, offset, 0, True, rank_scratch
        )
    if found < nodes and t.meta[M_BOOKINGS] > 0:
        found = _booked_scored(t, shape, nodes, out, offset, found, rank_scratch)
    if found < nodes:
        found = _free_scored(at, shape, nodes, out, offset, found)
    if found < nodes and promised_rows > 0:
        found = _promised_scored(
            at, promises, promised, promised_rows, shape, nodes, end, out, offset, found, False, rank_scratch
        )
    return found


@inner
def choose(
    at: Any, promises: Table, promised: Table, promised_rows: int, shape: int, nodes: int, end: int, out: Ints,
    offset: int, rank_scratch: Ints, stamp: int, settled: bool,
) -> int:  # fmt: skip
    """Write up to `nodes` distinct rows into out[offset:]; the attempt can start when the result equals `nodes`.

    `end` is its planned end; `settled` says that nothing was started yet in this cycle.
    """
    t = tables(at)
    if t.meta[M_PLACEMENT] == PLACE_FIRST:
        return _first_fit(
            t, promises, promised, promised_rows, shape, nodes, min(end, INF), out, offset, stamp, settled
        )
    return _best_scored(at, promises, promised, promised_rows, shape, nodes, min(end, INF), out, offset, rank_scratch)
