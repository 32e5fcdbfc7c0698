"""What each row will have free, and when: kept from cycle to cycle, built anew only for rows that something touched.

A row's timeline is a chain of points (a time, and the amounts free from then on): free now, plus what running attempts
give back at their planned ends, less what waiting jobs are promised. The first point lies before all times, so a chain
depends on `now` only where an attempt outlives its plan (its release is now + 1 then, and its rows are built in each
cycle). All of it is scratch: which rows are `stale` decides what is built, never what is planned. With more than
EXACT_ROWS rows a chain has at most MAX_POINTS points after it was built: later ones are merged to the least of their
amounts, so a row may be said to be busier than it is, never freer; the last point stays, so nothing that fits an empty
row is put off for ever. With few rows (a pool is one, with hundreds of attempts) chains are exact.

A line holds, for one shape and every row, the first maximal interval in which it fits, and when the next one begins
(beside its end in `line_end`); it is brought up to date through a ring of touched rows. Most searches read nothing
else: a first interval is often too short, and the next one too late to matter. A gang starts at the least t at which
`nodes` rows each fit over the whole of [t, t + planned): t goes up to the nodes-th smallest of the rows' next starts
until that many start at t, and rows that begin too late are left out from the first. O(rows) a search, O(points) a
touched row and line.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.booked import booked_start, select
from hal.core.kernels.bounds import goes_on, leads_on
from hal.core.kernels.easy import LOWEST
from hal.core.kernels.ends import ends_root
from hal.core.kernels.jit import inlined, inner
from hal.core.kernels.layout import (
    B_CLASS,
    C_SHAPE,
    COUNT_COLD,
    COUNT_LATE,
    COUNT_LINE,
    COUNT_LINES,
    COUNT_LOG,
    COUNT_POINTS,
    COUNT_PROMISED,
    COUNT_PROMISES,
    COUNT_SPARE,
    COUNT_SPARES,
    COUNT_STALE,
    E_WALL,
    INF,
    KIND_CLAIM,
    KIND_NEVER,
    LINE_AT,
    LINE_SHAPE,
    M_BOOKINGS,
    M_RESOURCES,
    M_ROWS,
    P_NEXT,
    P_ON_ROW,
    P_ROW,
    P_RUN,
    POINT_NEXT,
    POINT_SIZE,
    POINT_TIME,
    Q_CHAIN,
    Q_PROMISE,
    Q_ROW,
    R_BUCKET,
    R_END,
    R_PIECE,
    S_CSET,
    S_LINE,
    T_KEY,
    T_RIGHT,
    TICK_WALL,
    V_CLASS,
    V_ENTRY,
    V_HELD,
    V_KIND,
    V_NODES,
    V_PLANNED,
    V_ROW,
    V_START,
    W_ATTEMPTS,
    W_LATE,
    W_LOGGED,
    W_MERGED,
    W_PROMISED,
    W_STALE,
)
from hal.core.kernels.memory import Tables
from hal.core.kernels.rows import fits
from hal.core.kernels.sorting import sort_pairs
from hal.core.kernels.touching import make_stale
from hal.core.kernels.treap import Table, tree_descend

Ints = NDArray[np.int64]

MAX_POINTS = 64
EXACT_ROWS = 64
NEAR_POINTS = 32
"""Of a chain that is merged, so many first points stay as they are."""
FEW_ROWS = 8
"""Up to so many rows are searched without lines."""
PROMISED_BACK = 1 << 40
"""Added to a shape: what a promise gives back at its end."""


# --- points -----------------------------------------------------------------------------------------------------------


@inner
def room_for_points(t: Tables) -> int:
    """How many points can still be made."""
    return int(t.profile.shape[0] - t.counts[COUNT_POINTS] + t.counts[COUNT_SPARES])


@inner
def _new_point(t: Tables) -> int:
    point = t.counts[COUNT_SPARE]
    if point >= 0:
        t.counts[COUNT_SPARE] = t.profile[point, POINT_NEXT]
        t.counts[COUNT_SPARES] -= 1
        return int(point)
    point = t.counts[COUNT_POINTS]
    t.counts[COUNT_POINTS] += 1
    return int(point)


@inner
def _drop_point(t: Tables, before: int) -> None:
    """Give back the point after `before`."""
    point = t.profile[before, POINT_NEXT]
    t.profile[before, POINT_NEXT] = t.profile[point, POINT_NEXT]
    t.profile[point, POINT_NEXT] = t.counts[COUNT_SPARE]
    t.counts[COUNT_SPARE] = point
    t.counts[COUNT_SPARES] += 1


@inner
def _point_after(t: Tables, before: int, time: int, resources: int) -> int:
    """A new point after `before` with the same amounts."""
    point = _new_point(t)
    t.profile[point, POINT_TIME] = time
    t.profile[point, POINT_NEXT] = t.profile[before, POINT_NEXT]
    t.profile[before, POINT_NEXT] = point
    for r in range(POINT_SIZE, POINT_SIZE + resources):
        t.profile[point, r] = t.profile[before, r]
    return point


@inner
def _alike(t: Tables, one: int, other: int, resources: int) -> bool:
    for r in range(POINT_SIZE, POINT_SIZE + resources):  # noqa: SIM110 - numba
        if t.profile[one, r] != t.profile[other, r]:
            return False
    return True


@inner
def point_fits(t: Tables, point: int, shape: int, resources: int) -> bool:
    """Whether a shape fits from this point on, until the next."""
    for r in range(resources):  # noqa: SIM110 - numba
        if t.profile[point, POINT_SIZE + r] < t.request[r, shape]:
            return False
    return True


@inlined
def _log_row(t: Tables, row: int) -> None:
    """Lines must look at a row again."""
    place = t.counts[COUNT_LOG]
    t.row_log[place & (t.row_log.shape[0] - 1)] = row
    t.rows[row, W_LOGGED] = place
    t.counts[COUNT_LOG] = place + 1


@inner
def change_span(t: Tables, row: int, shape: int, begin: int, end: int, sign: int) -> None:
    """Take (-1) or give back (+1) a request on a row over [begin, end); needs room for two points."""
    if end <= begin:
        return
    resources = t.meta[M_RESOURCES]
    make_stale(t, row)
    _log_row(t, row)
    before = -1
    point = row
    following = t.profile[point, POINT_NEXT]
    ahead = 0
    while leads_on(t, following, ahead, t.profile.shape[0]) and t.profile[following, POINT_TIME] <= begin:
        ahead += 1
        before = point
        point = following
        following = t.profile[point, POINT_NEXT]
    if t.profile[point, POINT_TIME] < begin:
        before = point
        point = _point_after(t, point, begin, resources)
    edge = before
    points_seen = 0
    while leads_on(t, point, points_seen, t.profile.shape[0]) and t.profile[point, POINT_TIME] < end:
        points_seen += 1
        following = t.profile[point, POINT_NEXT]
        if end < INF and (following < 0 or t.profile[following, POINT_TIME] > end):
            _point_after(t, point, end, resources)
        for r in range(resources):
            t.profile[point, POINT_SIZE + r] += sign * t.request[r, shape]
        before = point
        point = t.profile[point, POINT_NEXT]
    if point >= 0 and before >= 0 and _alike(t, before, point, resources):
        _drop_point(t, before)
    if edge >= 0 and t.profile[edge, POINT_NEXT] >= 0 and _alike(t, edge, t.profile[edge, POINT_NEXT], resources):
        _drop_point(t, edge)


# --- building ---------------------------------------------------------------------------------------------------------


@inner
def warm_up(t: Tables) -> None:
    """Forget all chains and lines when the tables are new; then every row is stale."""
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
    for row in range(t.rows.shape[0]):
        t.profile[row, POINT_NEXT] = -1
        t.rows[row, W_STALE] = 0
        t.rows[row, W_LATE] = 0
        make_stale(t, row)


@inner
def mark_late(t: Tables, now: int) -> None:
    """Rows of attempts that outlive their plan, now or when their chain was built, are stale."""
    for k in range(t.counts[COUNT_LATE]):
        row = t.late[k]
        t.rows[row, W_LATE] = 0
        make_stale(t, row)
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
            make_stale(t, t.pieces[piece, P_ROW])
            piece = t.pieces[piece, P_NEXT]


@inner
def link_promises(t: Tables, promises: Table, promised: Table) -> None:
    """Give each row the chain of the promises that count there (W_PROMISED, Q_CHAIN)."""
    for k in range(t.counts[COUNT_PROMISES]):
        for place in range(promises[k, V_ROW], promises[k, V_ROW] + promises[k, V_NODES]):
            if promised[place, Q_ROW] >= 0:
                t.rows[promised[place, Q_ROW], W_PROMISED] = -1
    for k in range(t.counts[COUNT_PROMISES]):
        if promises[k, V_ENTRY] >= 0 and promises[k, V_HELD] == 1 and promises[k, V_KIND] != KIND_NEVER:
            for place in range(promises[k, V_ROW], promises[k, V_ROW] + promises[k, V_NODES]):
                _link(t, promised, place)


@inner
def unlink_promises(t: Tables, promised: Table) -> None:
    """Leave no row in a chain (the columns belong to other policies between cycles)."""
    for place in range(t.counts[COUNT_PROMISED]):
        if promised[place, Q_ROW] >= 0:
            t.rows[promised[place, Q_ROW], W_PROMISED] = -1


@inner
def _link(t: Tables, promised: Table, place: int) -> None:
    row = promised[place, Q_ROW]
    promised[place, Q_CHAIN] = t.rows[row, W_PROMISED]
    t.rows[row, W_PROMISED] = place


@inner
def _unlink(t: Tables, promised: Table, place: int) -> None:
    row = promised[place, Q_ROW]
    at = t.rows[row, W_PROMISED]
    if at == place:
        t.rows[row, W_PROMISED] = promised[place, Q_CHAIN]
        return
    passed = 0
    while leads_on(t, at, passed, t.counts[COUNT_PROMISED]) and promised[at, Q_CHAIN] != place:
        passed += 1
        at = promised[at, Q_CHAIN]
    promised[at, Q_CHAIN] = promised[place, Q_CHAIN]


@inner
def hold(t: Tables, promises: Table, promised: Table, promise: int) -> None:
    """Let a promise count: its rows' chains lose what it takes."""
    promises[promise, V_HELD] = 1
    if promises[promise, V_KIND] == KIND_NEVER:
        return
    _change(t, promises, promised, promise, -1)
    for place in range(promises[promise, V_ROW], promises[promise, V_ROW] + promises[promise, V_NODES]):
        _link(t, promised, place)


@inner
def let_go(t: Tables, promises: Table, promised: Table, promise: int) -> None:
    """Let a promise that counts not count any more."""
    promises[promise, V_HELD] = 0
    if promises[promise, V_KIND] == KIND_NEVER:
        return
    for place in range(promises[promise, V_ROW], promises[promise, V_ROW] + promises[promise, V_NODES]):
        _unlink(t, promised, place)
    _change(t, promises, promised, promise, 1)


@inner
def _change(t: Tables, promises: Table, promised: Table, promise: int, sign: int) -> None:
    begin = LOWEST
    end = INF
    if promises[promise, V_KIND] != KIND_CLAIM:
        begin = promises[promise, V_START]
        end = min(begin + promises[promise, V_PLANNED], INF)
    shape = t.classes[promises[promise, V_CLASS], C_SHAPE]
    for place in range(promises[promise, V_ROW], promises[promise, V_ROW] + promises[promise, V_NODES]):
        change_span(t, promised[place, Q_ROW], shape, begin, end, sign)


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
def clear_row(t: Tables, row: int) -> None:
    """Give back all points of a row but its first."""
    dropped = 0
    while leads_on(t, t.profile[row, POINT_NEXT], dropped, t.profile.shape[0]):
        dropped += 1
        _drop_point(t, row)


@inner
def build_row(t: Tables, promises: Table, promised: Table, row: int, now: int) -> bool:
    """Build the chain of a cleared row. Returns whether a promise on it cannot be kept: the row is lost, or busy."""
    resources = t.meta[M_RESOURCES]
    broken = False
    size = 0
    late = False
    piece = t.rows[row, W_ATTEMPTS] - 1
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
    if late and t.rows[row, W_LATE] == 0:
        t.rows[row, W_LATE] = 1
        t.late[t.counts[COUNT_LATE]] = row
        t.counts[COUNT_LATE] += 1
    claims = False
    place = t.rows[row, W_PROMISED]
    passed = 0
    while leads_on(t, place, passed, t.counts[COUNT_PROMISED]):
        passed += 1
        promise = promised[place, Q_PROMISE]
        shape = t.classes[promises[promise, V_CLASS], C_SHAPE]
        if t.allowed[t.shapes[shape, S_CSET], row] == 0 or not fits(t, t.capacity, row, shape, resources):
            broken = True
        if promises[promise, V_KIND] == KIND_CLAIM:
            claims = True
        else:
            begin = promises[promise, V_START]
            wall = t.entries[promises[promise, V_ENTRY], E_WALL]
            if t.meta[M_BOOKINGS] > 0 and begin > now and booked_start(t, row, shape, begin, wall) != begin:
                broken = True
            t.events[0, size] = begin
            t.events[1, size] = -shape - 1
            size += 1
            if begin + promises[promise, V_PLANNED] < INF:
                t.events[0, size] = begin + promises[promise, V_PLANNED]
                t.events[1, size] = shape + PROMISED_BACK
                size += 1
        place = promised[place, Q_CHAIN]
    _sort_events(t, size)
    t.profile[row, POINT_TIME] = LOWEST
    for r in range(resources):
        t.profile[row, POINT_SIZE + r] = t.free[row, r]
    point = row
    points = 1
    kept = 0
    k = 0
    while k < size:
        time = t.events[0, k]
        fresh = _point_after(t, point, time, resources)
        while k < size and t.events[0, k] == time:
            what = t.events[1, k]
            sign = 1
            if what < 0:
                what = -what - 1
                sign = -1
                kept += 1
            elif what >= PROMISED_BACK:
                what -= PROMISED_BACK
                kept -= 1
            for r in range(resources):
                t.profile[fresh, POINT_SIZE + r] += sign * t.request[r, what]
            k += 1
        if kept > 0 and (k == size or t.events[0, k] > now):
            for r in range(resources):
                if t.profile[fresh, POINT_SIZE + r] < 0:
                    broken = True
        if _alike(t, point, fresh, resources):
            _drop_point(t, point)
        else:
            point = fresh
            points += 1
    if claims:
        _take_claims(t, promises, promised, row, resources)
    t.rows[row, W_MERGED] = 0
    if points > MAX_POINTS and t.meta[M_ROWS] > EXACT_ROWS:
        _merge(t, row, points, resources)
    _log_row(t, row)
    return broken


@inner
def _take_claims(t: Tables, promises: Table, promised: Table, row: int, resources: int) -> None:
    place = t.rows[row, W_PROMISED]
    passed = 0
    while leads_on(t, place, passed, t.counts[COUNT_PROMISED]):
        passed += 1
        promise = promised[place, Q_PROMISE]
        if promises[promise, V_KIND] == KIND_CLAIM:
            shape = t.classes[promises[promise, V_CLASS], C_SHAPE]
            point = row
            points_seen = 0
            while leads_on(t, point, points_seen, t.profile.shape[0]):
                points_seen += 1
                for r in range(resources):
                    t.profile[point, POINT_SIZE + r] -= t.request[r, shape]
                point = t.profile[point, POINT_NEXT]
        place = promised[place, Q_CHAIN]


@inner
def _merge(t: Tables, row: int, points: int, resources: int) -> None:
    """Keep the first NEAR_POINTS points and the last; what lies between becomes fewer, each the least of a group.

    With the least, a row is busier than the truth at times, never freer.
    """
    t.rows[row, W_MERGED] = 1
    # `points` is more than MAX_POINTS here, so each round takes at least one away from what is left.
    groups = MAX_POINTS - NEAR_POINTS - 1
    group = (points - NEAR_POINTS - 1 + groups - 1) // groups
    point = row
    for _ in range(NEAR_POINTS):
        point = t.profile[point, POINT_NEXT]
    left = points - NEAR_POINTS - 1
    while left > 0:
        for _ in range(min(group, left) - 1):
            following = t.profile[point, POINT_NEXT]
            for r in range(POINT_SIZE, POINT_SIZE + resources):
                t.profile[point, r] = min(t.profile[point, r], t.profile[following, r])
            _drop_point(t, point)
        left -= group
        point = t.profile[point, POINT_NEXT]


# --- lines ------------------------------------------------------------------------------------------------------------


@inner
def line_of(t: Tables, shape: int) -> int:
    """The line of a shape, up to date; -1 when rows are so few that none is kept."""
    rows = t.meta[M_ROWS]
    if rows <= FEW_ROWS:
        return -1
    line = t.shapes[shape, S_LINE] - 1
    first = 0
    last = t.counts[COUNT_LOG]
    if line < 0:
        if t.counts[COUNT_LINES] < t.lines.shape[0]:
            line = t.counts[COUNT_LINES]
            t.counts[COUNT_LINES] += 1
        else:
            line = t.counts[COUNT_LINE]
            t.counts[COUNT_LINE] = (line + 1) % t.lines.shape[0]
            if t.shapes[t.lines[line, LINE_SHAPE], S_LINE] == line + 1:
                t.shapes[t.lines[line, LINE_SHAPE], S_LINE] = 0
        t.lines[line, LINE_SHAPE] = shape
        t.shapes[shape, S_LINE] = line + 1
        first = -1
    else:
        first = t.lines[line, LINE_AT]
    t.lines[line, LINE_AT] = last
    if first < 0 or last - first >= rows:
        for row in range(rows):
            _renew(t, line, row, shape)
    else:
        mask = t.row_log.shape[0] - 1
        for k in range(first, last):
            row = t.row_log[k & mask]
            again = t.rows[row, W_LOGGED]
            if k < again < last and t.row_log[again & mask] == row:
                continue  # it stands further on, too
            _renew(t, line, row, shape)
    return int(line)


@inner
def near_line(t: Tables, shape: int) -> int:
    """The line of a shape where it has one that is nearly up to date, else -1."""
    line = t.shapes[shape, S_LINE] - 1
    if line < 0 or t.counts[COUNT_LOG] - t.lines[line, LINE_AT] > t.meta[M_ROWS] >> 2:
        return -1
    return line_of(t, shape)


@inner
def _renew(t: Tables, line: int, row: int, shape: int) -> None:
    resources = t.meta[M_RESOURCES]
    begin = INF
    end = INF
    again = INF
    if t.allowed[t.shapes[shape, S_CSET], row] != 0 and fits(t, t.capacity, row, shape, resources):
        point = _first_fitting(t, row, shape, resources)
        if point >= 0:
            begin = t.profile[point, POINT_TIME]
            points_seen = 0
            while leads_on(t, point, points_seen, t.profile.shape[0]) and point_fits(t, point, shape, resources):
                points_seen += 1
                point = t.profile[point, POINT_NEXT]
            if point >= 0:
                end = t.profile[point, POINT_TIME]
                point = _first_fitting(t, point, shape, resources)
                if point >= 0:
                    again = t.profile[point, POINT_TIME]
    t.line_begin[line, row] = begin
    t.line_end[line, 2 * row] = end
    t.line_end[line, 2 * row + 1] = again


@inner
def _first_fitting(t: Tables, point: int, shape: int, resources: int) -> int:
    """From a point on the first at which a shape fits, -1 = none."""
    points_seen = 0
    while leads_on(t, point, points_seen, t.profile.shape[0]) and not point_fits(t, point, shape, resources):
        points_seen += 1
        point = t.profile[point, POINT_NEXT]
    return point


@inner
def lines_mark(t: Tables) -> tuple[int, int]:
    """Where the log of touched rows and the list of stale ones end before a promise is let go, for `put_back`."""
    return int(t.counts[COUNT_LOG]), int(t.counts[COUNT_STALE])


@inner
def put_back(
    t: Tables, promises: Table, promised: Table, promise: int, line: int, shape: int, log: int, stale: int
) -> None:
    """Let a promise count again as it was when `lines_mark` gave (log, stale): nothing has changed in the end.

    Only this line (-1 = none) has followed the log since. Its rows need not be built anew: their chains say the same as
    before, and building them would be told to every line.
    """
    hold(t, promises, promised, promise)
    if t.counts[COUNT_LOG] - log < t.meta[M_ROWS]:
        if line >= 0:
            for k in range(log, t.counts[COUNT_LOG]):
                _renew(t, line, t.row_log[k & (t.row_log.shape[0] - 1)], shape)
            t.lines[line, LINE_AT] = log
        t.counts[COUNT_LOG] = log
    for k in range(stale, t.counts[COUNT_STALE]):
        t.rows[t.stale[k], W_STALE] = 0
    t.counts[COUNT_STALE] = stale


@inner
def next_start(t: Tables, line: int, row: int, shape: int, since: int, planned: int, before: int) -> int:
    """The first instant in [since, before) at which a row holds the shape for the whole planned time, INF = none.

    Bookings must let it run for its walltime (TICK_WALL).
    """
    begin = _next_free(t, line, row, shape, since, planned, before)
    if t.meta[M_BOOKINGS] == 0:
        return begin
    tries = 0
    while goes_on(t, begin < before, tries, t.profile.shape[0] + t.booked.shape[0]):  # each goes past a booking
        tries += 1
        later = booked_start(t, row, shape, begin, t.ticks[TICK_WALL])
        if later == begin:
            return begin
        if later >= before:
            return INF
        begin = _next_free(t, line, row, shape, later, planned, before)
    return INF


@inner
def _next_free(t: Tables, line: int, row: int, shape: int, since: int, planned: int, before: int) -> int:
    """As `next_start`, without bookings."""
    if line >= 0:
        begin = t.line_begin[line, row]
        if begin >= before:
            return INF
        begin = max(begin, since)
        end = t.line_end[line, 2 * row]
        if end >= INF or begin + planned <= end:
            return int(begin) if begin < before else INF
        if t.line_end[line, 2 * row + 1] >= before:
            return INF  # the first interval is too short, and the next begins too late
    return _walk(t, row, shape, since, planned, before)


@inner
def _walk(t: Tables, row: int, shape: int, since: int, planned: int, before: int) -> int:
    resources = t.meta[M_RESOURCES]
    if t.allowed[t.shapes[shape, S_CSET], row] == 0 or not fits(t, t.capacity, row, shape, resources):
        return INF
    point = row
    following = t.profile[point, POINT_NEXT]
    ahead = 0
    while leads_on(t, following, ahead, t.profile.shape[0]) and t.profile[following, POINT_TIME] <= since:
        ahead += 1
        point = following
        following = t.profile[point, POINT_NEXT]
    begin = -1
    at = since
    points_seen = 0
    # What begins at `before` or later need not be known, and most of a timeline is later.
    while leads_on(t, point, points_seen, t.profile.shape[0]) and (begin >= 0 or at < before):
        points_seen += 1
        if point_fits(t, point, shape, resources):
            if begin < 0:
                begin = at
        elif begin >= 0:
            if begin + planned <= at:
                return int(begin)
            begin = -1
        point = t.profile[point, POINT_NEXT]
        if point >= 0:
            at = t.profile[point, POINT_TIME]
            if begin >= 0 and begin + planned <= at:
                return int(begin)
    return int(begin) if begin >= 0 else INF


@inner
def free_until(t: Tables, line: int, row: int, shape: int, now: int) -> int:
    """Until when a row holds the shape from now on without a break; -1 when it does not hold it now."""
    if line >= 0:
        begin = t.line_begin[line, row]
        if begin > now:
            return -1
        if now < t.line_end[line, 2 * row]:
            return int(t.line_end[line, 2 * row])
    resources = t.meta[M_RESOURCES]
    if t.allowed[t.shapes[shape, S_CSET], row] == 0 or not fits(t, t.capacity, row, shape, resources):
        return -1
    point = row
    following = t.profile[point, POINT_NEXT]
    ahead = 0
    while leads_on(t, following, ahead, t.profile.shape[0]) and t.profile[following, POINT_TIME] <= now:
        ahead += 1
        point = following
        following = t.profile[point, POINT_NEXT]
    if not point_fits(t, point, shape, resources):
        return -1
    ahead = 0
    while leads_on(t, following, ahead, t.profile.shape[0]) and point_fits(t, following, shape, resources):
        ahead += 1
        following = t.profile[following, POINT_NEXT]
    return int(t.profile[following, POINT_TIME]) if following >= 0 else INF


@inner
def came_free(t: Tables, line: int, row: int, shape: int, at: int) -> int:
    """Since when a row that holds the shape at `at` does so; LOWEST when it does now."""
    if line >= 0 and t.line_begin[line, row] <= at < t.line_end[line, 2 * row]:
        return int(t.line_begin[line, row])
    resources = t.meta[M_RESOURCES]
    since = LOWEST
    free = True
    point = row
    points_seen = 0
    while leads_on(t, point, points_seen, t.profile.shape[0]) and t.profile[point, POINT_TIME] <= at:
        points_seen += 1
        if not point_fits(t, point, shape, resources):
            free = False
        elif not free:
            free = True
            since = t.profile[point, POINT_TIME]
        point = t.profile[point, POINT_NEXT]
    return int(since)


# --- searching --------------------------------------------------------------------------------------------------------


@inner
def may_hold(t: Tables, line: int, before: int) -> int:
    """List in scratch[2] the rows, ascending, that may hold a line's shape before an instant; how many they are.

    Without a branch: which rows these are nobody can foresee.
    """
    rows = t.meta[M_ROWS]
    candidates = t.scratch[2]
    if line < 0:
        for row in range(rows):
            candidates[row] = row
        return int(rows)
    begins = t.line_begin[line]
    count = 0
    for row in range(rows):
        candidates[count] = row
        count += int(begins[row] < before)
    return count


@inner
def earliest(t: Tables, line: int, shape: int, nodes: int, planned: int, since: int, before: int) -> int:
    """The earliest instant in [since, before) at which `nodes` rows hold the shape for the planned time; INF = none."""
    rows = t.meta[M_ROWS]
    if nodes == 1:
        best = before
        for row in range(rows):
            begin = next_start(t, line, row, shape, since, planned, best)
            if begin < best:
                best = begin
                if best == since:
                    break
        return int(best) if best < before else INF
    begins = t.scratch[0]
    values = t.scratch[1]
    candidates = t.scratch[2]
    left = may_hold(t, line, before)
    for k in range(left):
        begins[k] = LOWEST
    at = since
    tries = 0
    # Each round begins where some row comes free or a booking ends: later than the one before.
    while goes_on(t, left >= nodes, tries, t.profile.shape[0] + t.rows.shape[0] * (1 + t.booked.shape[0])):
        tries += 1
        count = 0
        there = 0
        for k in range(left):
            row = candidates[k]
            begin = begins[k]
            if begin < at:
                begin = next_start(t, line, row, shape, at, planned, before)
            if begin < before:
                candidates[count] = row
                begins[count] = begin
                values[count] = begin
                count += 1
                if begin == at:
                    there += 1
        if there >= nodes:
            return int(at)
        left = count
        if left >= nodes:
            at = select(values, left, nodes - 1)
    return INF


@inner
def pick(t: Tables, count: int, nodes: int, lowest: bool, out: Ints, offset: int) -> None:
    """Of `count` >= nodes candidates (ranks in scratch[1], rows ascending in scratch[2]) the `nodes` of least rank.

    Ties go to the lowest rows, or to the highest.
    """
    ranks = t.scratch[1]
    rows = t.scratch[2]
    if count == nodes:
        for k in range(count):
            out[offset + k] = rows[k]
        return
    copy = t.scratch[3]
    for k in range(count):
        copy[k] = ranks[k]
    worst = select(copy, count, nodes - 1)
    found = 0
    for k in range(count):
        if ranks[k] < worst:
            out[offset + found] = rows[k]
            found += 1
    for k in range(count):
        at = k if lowest else count - 1 - k
        if ranks[at] == worst and found < nodes:
            out[offset + found] = rows[at]
            found += 1
