"""Choosing rows for one attempt: first-fit or best score, never on what is promised to a job ahead.

Pure. A row that is promised from t on may be used until t (short work uses such rows first), and by longer work only
out of what is left beyond the promise. Free amounts only shrink inside a cycle, so first-fit goes on where the shape's
last search began to fit. O(rows looked at x resources). Source of the reservation rule: Lifka, JSSPP 1995 (EASY).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.jit import inner
from hal.core.kernels.layout import (
    INF,
    KIND_PROMISE,
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
    S_FROM,
    S_FROM_NOW,
    S_FROM_STAMP,
    S_SCORES,
    S_UNTIL,
    TICK_WORK,
    V_KIND,
    V_START,
    W_PROMISED,
)
from hal.core.kernels.memory import Tables
from hal.core.kernels.rows import fits
from hal.core.kernels.treap import Table

Ints = NDArray[np.int64]

TIER_SHORT = 0
TIER_FREE = 1
TIER_EXTRA = 2
SCORE_ONE = 1_000_000


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
                t.allowed[t.shapes[shape, S_CSET], row] != 0
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
            if t.allowed[cset, row] != 0 and fits(t, t.free, row, shape, resources):
                out[offset + found] = row
                found += 1
                if found == nodes:
                    return found
    first = t.shapes[shape, S_FROM_NOW] if t.shapes[shape, S_FROM_STAMP] == stamp else t.shapes[shape, S_FROM]
    start = -1
    row = first
    while row < t.meta[M_ROWS]:
        if t.allowed[cset, row] != 0 and fits(t, t.free, row, shape, resources):
            if start < 0:
                start = row
            if t.rows[row, W_PROMISED] < 0:
                out[offset + found] = row
                found += 1
                if found == nodes:
                    break
        row += 1
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
                t.allowed[cset, row] != 0
                and fits(t, t.free, row, shape, resources)
                and has_extra(t, promised, place, shape, resources)
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
def _best_scored(
    t: Tables, promises: Table, promised: Table, shape: int, nodes: int, end: int, out: Ints, offset: int,
    rank_scratch: Ints,
) -> int:  # fmt: skip
    """The `nodes` rows of least (tier, -score, row), kept sorted while all rows are looked at."""
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    best = t.meta[M_PLACEMENT] == PLACE_BEST
    found = 0
    for row in range(t.meta[M_ROWS]):
        if t.allowed[cset, row] == 0 or not fits(t, t.free, row, shape, resources):
            continue
        place = t.rows[row, W_PROMISED]
        tier = TIER_FREE
        if place >= 0:
            promise = promised[place, Q_PROMISE]
            if promises[promise, V_KIND] == KIND_PROMISE and end <= promises[promise, V_START]:
                tier = TIER_SHORT
            elif has_extra(t, promised, place, shape, resources):
                tier = TIER_EXTRA
            else:
                continue
        if best:
            score = tightness(t, row, shape, resources)
        else:
            score = t.scores[t.shapes[shape, S_SCORES], row]
        rank = tier * 4 * SCORE_ONE - score
        at = found
        if found == nodes:
            if rank >= rank_scratch[nodes - 1]:
                continue
            at = nodes - 1
        else:
            found += 1
        while at > 0 and rank_scratch[at - 1] > rank:
            rank_scratch[at] = rank_scratch[at - 1]
            out[offset + at] = out[offset + at - 1]
            at -= 1
        rank_scratch[at] = rank
        out[offset + at] = row
    t.ticks[TICK_WORK] += t.meta[M_ROWS]
    return found


@inner
def choose(
    t: Tables, promises: Table, promised: Table, promised_rows: int, shape: int, nodes: int, end: int, out: Ints,
    offset: int, rank_scratch: Ints, stamp: int, settled: bool,
) -> int:  # fmt: skip
    """Write up to `nodes` distinct rows into out[offset:]; the attempt can start when the result equals `nodes`.

    `end` is its planned end; `settled` says that nothing was started yet in this cycle.
    """
    if t.meta[M_PLACEMENT] == PLACE_FIRST:
        return _first_fit(
            t, promises, promised, promised_rows, shape, nodes, min(end, INF), out, offset, stamp, settled
        )
    return _best_scored(t, promises, promised, shape, nodes, min(end, INF), out, offset, rank_scratch)
