"""What bookings forbid: a job never starts where its walltime would run into one that is not its own.

Pure. Only hard limits count here: the walltime, never a planned time. A node's bookings are a chain by start. A job of
a booking runs on the booking's nodes only, and within its time (before it too, where it says `early`). Nodes of a
booking that holds now are closed in `open_now`, so what is left for a start now is one comparison a node. O(bookings of
a node).
"""

from __future__ import annotations

from hal.core.kernels.nodes.domains import first_domain, last_domain, level_within
from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    BOOKED_BOOKING,
    BOOKED_NEXT,
    BOOKING_EARLY,
    BOOKING_END,
    BOOKING_NAME,
    BOOKING_START,
    INF,
    M_BOOKED_NODES,
    M_BOOKINGS,
    M_RESOURCES,
    M_WITHIN,
    N_AHEAD,
    N_BOOKED,
    PASS_NOW,
    PASS_WALL,
    S_AHEAD,
    S_AHEAD_NODES,
    S_AHEAD_TICK,
    S_BOOKING,
    S_CSET,
    S_FIT,
    S_INSIDE,
    S_WITHIN,
    SCRATCH_SHAPES,
    TICK_TAKEN,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import select


@inner
def _after_others(t: Tables, node: int, mine: int, since: int, wall: int, last: int) -> int:
    """The first instant from `since` on at which `wall`, cut at `last`, meets no booking of the node but `mine`.

    One walk is enough: what a job clears by ending before it begins, later ones that begin no earlier cannot push it
    into.
    """
    at = since
    place = t.rows[node, N_BOOKED] - 1
    passed = 0
    while leads_on(t, place, passed, t.booked.shape[0]):
        passed += 1
        booking = t.booked[place, BOOKED_BOOKING]
        if (
            t.booking_times[booking, BOOKING_NAME] != mine
            and at < t.booking_times[booking, BOOKING_END]
            and min(at + wall, last) > t.booking_times[booking, BOOKING_START]
        ):
            at = t.booking_times[booking, BOOKING_END]
        place = t.booked[place, BOOKED_NEXT] - 1
    return int(at)


@inner
def booked_start(t: Tables, node: int, shape: int, since: int, wall: int) -> int:
    """The first instant from `since` on at which bookings let a shape run on a node for `wall`; INF = never.

    Work that asks for the whole of its booking, or more, begins whenever it holds and is ended with it.
    """
    mine = t.shapes[shape, S_BOOKING]
    if mine == 0:
        return _after_others(t, node, 0, since, wall, INF)
    place = t.rows[node, N_BOOKED] - 1
    passed = 0
    while leads_on(t, place, passed, t.booked.shape[0]):
        passed += 1
        booking = t.booked[place, BOOKED_BOOKING]
        if t.booking_times[booking, BOOKING_NAME] == mine:
            at = since
            if t.booking_times[booking, BOOKING_EARLY] == 0:
                at = max(at, t.booking_times[booking, BOOKING_START])
            end = t.booking_times[booking, BOOKING_END]
            at = _after_others(t, node, mine, at, wall, end)
            if at < end and (at + wall <= end or wall >= end - t.booking_times[booking, BOOKING_START]):
                return int(at)
        place = t.booked[place, BOOKED_NEXT] - 1
    return INF


@inner
def within_booking(t: Tables, shape: int, now: int, planned: int) -> int:
    """What of a planned time is left when a shape starts now: its booking, where it has one, ends it."""
    mine = t.shapes[shape, S_INSIDE]
    if mine != 0:
        for booking in range(t.meta[M_BOOKINGS]):
            if t.booking_times[booking, BOOKING_NAME] == mine and t.booking_times[booking, BOOKING_END] > now:
                return int(min(planned, t.booking_times[booking, BOOKING_END] - now))
    return planned


@inner
def waits_for_booking(t: Tables, shape: int, nodes: int, now: int, wall: int) -> bool:
    """Whether the time of its booking, not resources, keeps a shape from starting: such work is reserved nothing."""
    if t.shapes[shape, S_INSIDE] == 0:
        return False
    if t.shapes[shape, S_BOOKING] == 0:
        for booking in range(t.meta[M_BOOKINGS]):
            if t.booking_times[booking, BOOKING_NAME] == t.shapes[shape, S_INSIDE] and _takes(t, booking, now, wall):
                return False
        return True
    there = 0
    for i in range(t.meta[M_BOOKED_NODES]):
        node = t.booked_rows[i]
        if t.open_now[t.shapes[shape, S_CSET], node] != 0 and booked_start(t, node, shape, now, wall) == now:
            there += 1
    return there < nodes


@inner
def inside_start(t: Tables, shape: int, since: int, wall: int) -> int:
    """The first instant from `since` on at which a booking that holds no nodes lets its work start; INF = never."""
    mine = t.shapes[shape, S_INSIDE]
    if mine == 0 or t.shapes[shape, S_BOOKING] != 0:
        return since
    for booking in range(t.meta[M_BOOKINGS]):
        at = (
            since
            if t.booking_times[booking, BOOKING_EARLY] != 0
            else max(since, t.booking_times[booking, BOOKING_START])
        )
        if t.booking_times[booking, BOOKING_NAME] == mine and _takes(t, booking, at, wall):
            return int(at)
    return INF


@inner
def _takes(t: Tables, booking: int, now: int, wall: int) -> bool:
    begin = t.booking_times[booking, BOOKING_START]
    end = t.booking_times[booking, BOOKING_END]
    begun = begin <= now or t.booking_times[booking, BOOKING_EARLY] != 0
    return bool(begun and now < end and (now + wall <= end or wall >= end - begin))


@inner
def may_start(t: Tables, node: int, shape: int) -> bool:
    """Whether bookings let the job that is looked at (PASS_WALL) start on an open node now (PASS_NOW)."""
    if t.meta[M_BOOKINGS] == 0:
        return True
    now = t.pass_record[PASS_NOW]
    wall = t.pass_record[PASS_WALL]
    if t.shapes[shape, S_BOOKING] == 0:
        return bool(min(now + wall, INF) <= t.rows[node, N_AHEAD])
    return bool(booked_start(t, node, shape, now, wall) == now)


@inner
def booked_window(t: Tables, shape: int, nodes: int) -> int:
    """The longest walltime that bookings leave now on so many nodes that fit; -1 none, INF any. Kept between starts."""
    if t.meta[M_BOOKINGS] == 0 or t.shapes[shape, S_BOOKING] != 0:
        return INF
    if t.shapes[shape, S_AHEAD_TICK] != t.ticks[TICK_TAKEN] or t.shapes[shape, S_AHEAD_NODES] != nodes:
        t.shapes[shape, S_AHEAD_TICK] = t.ticks[TICK_TAKEN]
        t.shapes[shape, S_AHEAD_NODES] = nodes
        t.shapes[shape, S_AHEAD] = _longest(t, shape, nodes)
    return int(t.shapes[shape, S_AHEAD])


@inner
def _longest(t: Tables, shape: int, nodes: int) -> int:
    if t.meta[M_WITHIN] == 0 or t.shapes[shape, S_WITHIN] == 0:
        return _longest_among(t, shape, nodes, -1, -1, t.shapes[shape, S_FIT])
    level = level_within(t, shape)
    line = t.shapes[shape, S_WITHIN] - 1
    longest = -1
    for k in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[k]
        if t.domain_fit[line, domain] >= nodes:
            longest = max(longest, _longest_among(t, shape, nodes, level, domain, t.domain_fit[line, domain]))
    return longest


@inner
def _longest_among(t: Tables, shape: int, nodes: int, level: int, domain: int, fit: int) -> int:
    """The longest walltime that bookings leave on `nodes` of `fit` nodes: those of a domain, or (-1) all."""
    now = t.pass_record[PASS_NOW]
    values = t.scratch[SCRATCH_SHAPES]
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    count = 0
    for i in range(t.meta[M_BOOKED_NODES]):
        node = t.booked_rows[i]
        if level >= 0 and t.domain_of[level, node] != domain + 1:
            continue
        if t.rows[node, N_AHEAD] < INF and t.open_now[cset, node] != 0 and fits(t, t.free, node, shape, resources):
            values[count] = now - t.rows[node, N_AHEAD]
            count += 1
    wanted = nodes - (fit - count)
    if wanted <= 0:
        return INF
    if wanted > count:
        return -1
    return int(-select(values, count, wanted - 1))
