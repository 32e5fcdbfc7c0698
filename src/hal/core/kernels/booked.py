"""What bookings forbid: a job never starts where its walltime would run into one that is not its own.

Pure. Only hard limits count here: the walltime, never a planned time. A row's bookings are a chain by start. A job of a
booking runs on the booking's rows only, and within its time (before it too, where it says `early`). Rows of a booking
that holds now are closed in `open_now`, so what is left for a start now is one comparison a row. O(bookings of a row).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.bounds import leads_on
from hal.core.kernels.jit import inner
from hal.core.kernels.layout import (
    BOOKED_BOOKING,
    BOOKED_NEXT,
    INF,
    K_EARLY,
    K_END,
    K_NAME,
    K_START,
    M_BOOKED_ROWS,
    M_BOOKINGS,
    M_RESOURCES,
    S_AHEAD,
    S_AHEAD_NODES,
    S_AHEAD_TICK,
    S_BOOKING,
    S_CSET,
    S_FIT,
    S_INSIDE,
    TICK_NOW,
    TICK_TAKEN,
    TICK_WALL,
    W_AHEAD,
    W_BOOKED,
)
from hal.core.kernels.memory import Tables
from hal.core.kernels.rows import fits

Ints = NDArray[np.int64]


@inner
def _after_others(t: Tables, row: int, mine: int, since: int, wall: int, last: int) -> int:
    """The first instant from `since` on at which `wall`, cut at `last`, meets no booking of the row but `mine`.

    One walk is enough: what a job clears by ending before it begins, later ones that begin no earlier cannot push it
    into.
    """
    at = since
    place = t.rows[row, W_BOOKED] - 1
    passed = 0
    while leads_on(t, place, passed, t.booked.shape[0]):
        passed += 1
        booking = t.booked[place, BOOKED_BOOKING]
        if (
            t.bookings[booking, K_NAME] != mine
            and at < t.bookings[booking, K_END]
            and min(at + wall, last) > t.bookings[booking, K_START]
        ):
            at = t.bookings[booking, K_END]
        place = t.booked[place, BOOKED_NEXT] - 1
    return int(at)


@inner
def booked_start(t: Tables, row: int, shape: int, since: int, wall: int) -> int:
    """The first instant from `since` on at which bookings let a shape run on a row for `wall`; INF = never.

    Work that asks for the whole of its booking, or more, begins whenever it holds and is ended with it.
    """
    mine = t.shapes[shape, S_BOOKING]
    if mine == 0:
        return _after_others(t, row, 0, since, wall, INF)
    place = t.rows[row, W_BOOKED] - 1
    passed = 0
    while leads_on(t, place, passed, t.booked.shape[0]):
        passed += 1
        booking = t.booked[place, BOOKED_BOOKING]
        if t.bookings[booking, K_NAME] == mine:
            at = since
            if t.bookings[booking, K_EARLY] == 0:
                at = max(at, t.bookings[booking, K_START])
            end = t.bookings[booking, K_END]
            at = _after_others(t, row, mine, at, wall, end)
            if at < end and (at + wall <= end or wall >= end - t.bookings[booking, K_START]):
                return int(at)
        place = t.booked[place, BOOKED_NEXT] - 1
    return INF


@inner
def within_booking(t: Tables, shape: int, now: int, planned: int) -> int:
    """What of a planned time is left when a shape starts now: its booking, where it has one, ends it."""
    mine = t.shapes[shape, S_INSIDE]
    if mine != 0:
        for booking in range(t.meta[M_BOOKINGS]):
            if t.bookings[booking, K_NAME] == mine and t.bookings[booking, K_END] > now:
                return int(min(planned, t.bookings[booking, K_END] - now))
    return planned


@inner
def waits_for_booking(t: Tables, shape: int, nodes: int, now: int, wall: int) -> bool:
    """Whether the time of its booking, not resources, keeps a shape from starting: such work is promised nothing."""
    if t.shapes[shape, S_INSIDE] == 0:
        return False
    if t.shapes[shape, S_BOOKING] == 0:
        for booking in range(t.meta[M_BOOKINGS]):
            if t.bookings[booking, K_NAME] == t.shapes[shape, S_INSIDE] and _takes(t, booking, now, wall):
                return False
        return True
    there = 0
    for i in range(t.meta[M_BOOKED_ROWS]):
        row = t.booked_rows[i]
        if t.open_now[t.shapes[shape, S_CSET], row] != 0 and booked_start(t, row, shape, now, wall) == now:
            there += 1
    return there < nodes


@inner
def inside_start(t: Tables, shape: int, since: int, wall: int) -> int:
    """The first instant from `since` on at which a booking that holds no nodes lets its work start; INF = never."""
    mine = t.shapes[shape, S_INSIDE]
    if mine == 0 or t.shapes[shape, S_BOOKING] != 0:
        return since
    for booking in range(t.meta[M_BOOKINGS]):
        at = since if t.bookings[booking, K_EARLY] != 0 else max(since, t.bookings[booking, K_START])
        if t.bookings[booking, K_NAME] == mine and _takes(t, booking, at, wall):
            return int(at)
    return INF


@inner
def _takes(t: Tables, booking: int, now: int, wall: int) -> bool:
    begin = t.bookings[booking, K_START]
    end = t.bookings[booking, K_END]
    begun = begin <= now or t.bookings[booking, K_EARLY] != 0
    return bool(begun and now < end and (now + wall <= end or wall >= end - begin))


@inner
def may_start(t: Tables, row: int, shape: int) -> bool:
    """Whether bookings let the job that is looked at (TICK_WALL) start on an open row now (TICK_NOW)."""
    if t.meta[M_BOOKINGS] == 0:
        return True
    if t.shapes[shape, S_BOOKING] == 0:
        return bool(min(t.ticks[TICK_NOW] + t.ticks[TICK_WALL], INF) <= t.rows[row, W_AHEAD])
    return bool(booked_start(t, row, shape, t.ticks[TICK_NOW], t.ticks[TICK_WALL]) == t.ticks[TICK_NOW])


@inner
def booked_window(t: Tables, shape: int, nodes: int, now: int, values: Ints) -> int:
    """The longest walltime that bookings leave now on `nodes` rows that fit; -1 none, INF any. Kept between starts."""
    if t.meta[M_BOOKINGS] == 0 or t.shapes[shape, S_BOOKING] != 0:
        return INF
    if t.shapes[shape, S_AHEAD_TICK] != t.ticks[TICK_TAKEN] or t.shapes[shape, S_AHEAD_NODES] != nodes:
        t.shapes[shape, S_AHEAD_TICK] = t.ticks[TICK_TAKEN]
        t.shapes[shape, S_AHEAD_NODES] = nodes
        t.shapes[shape, S_AHEAD] = _longest(t, shape, nodes, now, values)
    return int(t.shapes[shape, S_AHEAD])


@inner
def _longest(t: Tables, shape: int, nodes: int, now: int, values: Ints) -> int:
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    count = 0
    for i in range(t.meta[M_BOOKED_ROWS]):
        row = t.booked_rows[i]
        if t.rows[row, W_AHEAD] < INF and t.open_now[cset, row] != 0 and fits(t, t.free, row, shape, resources):
            values[count] = now - t.rows[row, W_AHEAD]
            count += 1
    wanted = nodes - (t.shapes[shape, S_FIT] - count)
    if wanted <= 0:
        return INF
    if wanted > count:
        return -1
    return int(-select(values, count, wanted - 1))


@inner
def select(values: Ints, count: int, k: int) -> int:
    """The k-th smallest (from 0) of the first `count` values, which it reorders. O(count).

    Each round leaves out at least one value; within it i and j stop at the pivot, then at what they have swapped.
    """
    low = 0
    high = count - 1
    while low < high:
        middle = (low + high) // 2
        a = values[low]
        b = values[middle]
        c = values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i = low
        j = high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return int(values[k])
