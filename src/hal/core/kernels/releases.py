"""When each row comes to hold the request of a waiting job, kept from pass to pass for the few promised shapes.

Pure; scratch. Free amounts of a row only grow with its releases, so one instant a row says all: the planned end that
makes the request fit. A release or a start makes the rows that it touches be looked at again, O(attempts on the row);
the earliest instant at which enough rows fit is the n-th least of one column, O(rows). Walking all releases in the
order of time instead costs O(attempts), which a big full cluster pays for every attempt that ends.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.bounds import leads_on
from hal.core.kernels.jit import inner
from hal.core.kernels.layout import (
    B_CLASS,
    C_SHAPE,
    E_BUCKET,
    E_PLANNED,
    INF,
    M_RESOURCES,
    M_ROWS,
    P_ON_ROW,
    P_RUN,
    R_BUCKET,
    R_END,
    READY_SHAPE,
    READY_USED,
    S_CSET,
    TICK,
    TICK_READY,
    TICK_UNREADY,
    W_ATTEMPTS,
    W_PIECES,
    W_STAMP,
    W_UNREADY,
)
from hal.core.kernels.memory import Tables
from hal.core.kernels.rows import fits
from hal.core.kernels.sorting import heap_pairs, sink_pair, sort_pairs

Ints = NDArray[np.int64]

READY_LINES: Final = 4
"""Shapes for which instants are kept; another one takes the place of the one that was asked for longest ago."""
FEW_ROWS: Final = 64
"""Below so many rows nothing is kept: walking the releases is as cheap."""
FEW_STARTS: Final = 64
"""With more starts in the same cycle the releases are walked: each row would look through all of them."""
WALK: Final = 256
"""Rows given back, in the order of time, before the kept instants are asked instead."""
TOO_MANY: Final = -2


@inner
def _releases_of_row(
    t: Tables, row: int, starts: Any, start_at: int, start_count: int, start_rows: Ints, now: int, ends: Ints,
    shapes: Ints,
) -> int:  # fmt: skip
    """Planned ends and shapes of what runs on a row and of what this cycle starts there, in the order of time."""
    if t.rows[row, W_PIECES] + start_count > ends.shape[0]:
        return TOO_MANY
    count = 0
    piece = t.rows[row, W_ATTEMPTS] - 1
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        run = t.pieces[piece, P_RUN]
        if t.runs[run, R_END] < INF:
            ends[count] = t.runs[run, R_END]
            shapes[count] = t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE]
            count += 1
        piece = t.pieces[piece, P_ON_ROW] - 1
    for k in range(start_at, start_at + start_count):
        start = starts[k]
        for i in range(start["row_offset"], start["row_offset"] + start["row_count"]):
            end = now + t.entries[start["entry"], E_PLANNED]
            if start_rows[i] == row and end < INF:
                ends[count] = end
                shapes[count] = t.classes[t.buckets[t.entries[start["entry"], E_BUCKET], B_CLASS], C_SHAPE]
                count += 1
    sort_pairs(ends, shapes, count)
    return count


@inner
def _ready(
    t: Tables, row: int, shape: int, starts: Any, start_at: int, start_count: int, start_rows: Ints, now: int, ends:
    Ints, shapes: Ints,
) -> int:  # fmt: skip
    """The planned end that makes a shape fit on a row: -1 it fits now, INF it never will, TOO_MANY not to be had."""
    resources = t.meta[M_RESOURCES]
    if t.allowed[t.shapes[shape, S_CSET], row] == 0 or not fits(t, t.capacity, row, shape, resources):
        return INF
    if fits(t, t.free, row, shape, resources):
        return -1
    count = _releases_of_row(t, row, starts, start_at, start_count, start_rows, now, ends, shapes)
    if count == TOO_MANY:
        return TOO_MANY
    for r in range(resources):
        t.projected[row, r] = t.free[row, r]
    for k in range(count):
        for r in range(resources):
            t.projected[row, r] += t.request[r, shapes[k]]
        if fits(t, t.projected, row, shape, resources):
            return int(ends[k])
    return INF


@inner
def line_of(t: Tables, shape: int) -> int:
    """The line of a shape whose instants are kept, -1."""
    if t.ticks[TICK_READY] == 1:
        for line in range(READY_LINES):
            if t.ready_of[line, READY_SHAPE] == shape + 1:
                return line
    return -1


@inner
def ready_line(
    t: Tables, shape: int, starts: Any, start_at: int, start_count: int, start_rows: Ints, now: int, ends: Ints,
    shapes: Ints,
) -> int:  # fmt: skip
    """The line of a shape, up to date, a new one if need be; -1 where a row has more attempts than scratch holds."""
    if t.ticks[TICK_READY] == 0:
        for line in range(READY_LINES):
            t.ready_of[line, READY_SHAPE] = 0
        t.ticks[TICK_READY] = 1
    for k in range(t.ticks[TICK_UNREADY]):
        row = t.unready[k]
        t.rows[row, W_UNREADY] = 0
        for line in range(READY_LINES):
            kept = t.ready_of[line, READY_SHAPE] - 1
            if kept >= 0:
                at = _ready(t, row, kept, starts, start_at, start_count, start_rows, now, ends, shapes)
                t.ready[line, row] = at
                if at == TOO_MANY:
                    t.ready_of[line, READY_SHAPE] = 0
    t.ticks[TICK_UNREADY] = 0
    mine = line_of(t, shape)
    if mine < 0:
        mine = 0
        for line in range(1, READY_LINES):
            if t.ready_of[line, READY_USED] < t.ready_of[mine, READY_USED]:
                mine = line
        t.ready_of[mine, READY_SHAPE] = 0
        for row in range(t.meta[M_ROWS]):
            t.ready[mine, row] = _ready(t, row, shape, starts, start_at, start_count, start_rows, now, ends, shapes)
            if t.ready[mine, row] == TOO_MANY:
                return -1
        t.ready_of[mine, READY_SHAPE] = shape + 1
    t.ready_of[mine, READY_USED] = t.ticks[TICK]
    return mine


@inner
def enough_ready(t: Tables, line: int, missing: int, now: int, freed: Ints, freed_row: Ints) -> int:
    """The instants, in scratch, at which rows come to fit: all up to the one at which `missing` more rows do.

    Returns how many they are, sorted by (instant, row); 0 when that instant never comes. Never before now + 1.
    """
    size = 0
    for row in range(t.meta[M_ROWS]):
        at = t.ready[line, row]
        if at < 0 or at >= INF:
            continue
        at = max(at, now + 1)
        if size < missing:
            freed[size] = at
            freed_row[size] = row
            size += 1
            if size == missing:
                heap_pairs(freed, freed_row, size)
        elif at < freed[0]:
            freed[0] = at
            freed_row[0] = row
            sink_pair(freed, freed_row, size, 0)
    if size < missing:
        return 0
    last = freed[0]
    size = 0
    for row in range(t.meta[M_ROWS]):
        at = t.ready[line, row]
        if 0 <= at < INF and max(at, now + 1) <= last:
            freed[size] = max(at, now + 1)
            freed_row[size] = row
            size += 1
    sort_pairs(freed, freed_row, size)
    return size


@inner
def project_row(
    t: Tables, row: int, until: int, stamp: int, starts: Any, start_at: int, start_count: int, start_rows: Ints, now:
    int, ends: Ints, shapes: Ints,
) -> None:  # fmt: skip
    """What will be free on a row at `until`, with every release up to and including it: in `projected`, stamped."""
    for r in range(t.meta[M_RESOURCES]):
        t.projected[row, r] = t.free[row, r]
    count = _releases_of_row(t, row, starts, start_at, start_count, start_rows, now, ends, shapes)
    for k in range(count):
        if max(ends[k], now + 1) <= until:
            for r in range(t.meta[M_RESOURCES]):
                t.projected[row, r] += t.request[r, shapes[k]]
    t.rows[row, W_STAMP] = stamp
