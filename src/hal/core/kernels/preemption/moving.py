"""Whether it pays to move work that may be moved, so that a gang can start: gain, loss, and where it would run.

Pure but for scratch. The gang gains the time until it would start by itself, times what it holds; what is moved loses
the time since it started, times what it holds. It must find room elsewhere, all of it at once, beside the nodes that
the gang gets and those that others have reserved: so whatever runs can go on running. Largest first, each on the first
nodes that hold it. O(attempts + victims x nodes), where victims of one shape go on where the one before found room; the
victims are placed in slices. In the same way a node may be emptied without a gang, to give it back.
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.nodes.compact_nodes import must_share
from hal.core.kernels.nodes.domains import add_to_domain, begin_domains, first_domain, last_domain, level_within
from hal.core.kernels.nodes.ends import ends_root
from hal.core.kernels.nodes.releases import project_release
from hal.core.kernels.preemption.node_prices import MOST_PRICE, is_going, loss_of, mode_of, shape_of, weigh
from hal.core.kernels.rules.booked import booked_start
from hal.core.kernels.structures.bounds import goes_on, leads_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_OFFSET,
    DOMAIN_FIRST,
    DOMAIN_LAST,
    E_BUCKET,
    E_JOB,
    E_KEY,
    INF,
    KIND_BLOCK,
    KIND_RESERVED,
    M_BOOKINGS,
    M_MOVING,
    M_NODES,
    M_RESERVATIONS,
    M_RESOURCES,
    P_NEXT,
    P_NODE,
    PASS_NOW,
    PASS_WALL,
    PASS_WORK,
    Q_NODE,
    R_NODES,
    R_PIECE,
    R_WALL,
    S_CSET,
    S_FIT,
    SCRATCH_CHOSEN,
    SCRATCH_ORDER,
    SEARCH_COST,
    SEARCH_FREE,
    SEARCH_KEPT,
    SEEK_ALONE,
    SEEK_DUE,
    SEEK_ENTRY,
    SEEK_FROM,
    SEEK_GANG,
    SEEK_LAST,
    SEEK_LEFT,
    SEEK_SHAPE,
    SEEK_STAMP,
    STANDING_GRACE,
    T_KEY,
    T_RIGHT,
    TICK,
    V_ENTRY,
    V_FIRST,
    V_JOB,
    V_KEY,
    V_KIND,
    V_NODES,
    V_START,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import sort_pairs
from hal.core.kernels.structures.treap import tree_descend

MOST_WAIT_MS: Final = 7 * 86_400_000
"""A gang that would wait longer, or for ever, gains no more."""
THOUSANDTHS: Final = 1_000


@inner
def longest_grace(t: Tables) -> int:
    """The longest time that running work is given to leave."""
    grace = 0
    for qos in range(t.qos.shape[0]):
        grace = max(grace, t.qos[qos, STANDING_GRACE])
    return grace


@inner
def comes_free_at(t: Tables, until: int) -> int:
    """When enough nodes come free for the searching task by planned ends alone; INF: not by `until`."""
    shape = t.search_record[SEEK_SHAPE]
    gang = t.search_record[SEEK_GANG]
    now = t.pass_record[PASS_NOW]
    t.ticks[TICK] += 1
    stamp = t.ticks[TICK]
    share = must_share(t, shape, gang)
    if share:
        begin_domains(t, shape)
    there = t.shapes[shape, S_FIT]
    at = now
    depth = tree_descend(t.ends, ends_root(t), t.path, 0)
    seen = 0
    while goes_on(t, depth > 0 and there < gang, seen, t.ends.shape[0]):
        seen += 1
        run = t.path[depth - 1]
        if t.ends[run, T_KEY] > until:
            break
        depth = tree_descend(t.ends, t.ends[run, T_RIGHT], t.path, depth - 1)
        if t.ends[run, T_KEY] <= now and not is_going(t, run):
            continue  # it outlives its plan: nobody knows when it ends
        at = max(at, t.ends[run, T_KEY])
        piece = t.runs[run, R_PIECE]
        walked = 0
        while leads_on(t, piece, walked, t.pieces.shape[0]):
            walked += 1
            t.pass_record[PASS_WORK] += 1
            if project_release(t, shape, t.pieces[piece, P_NODE], shape_of(t, run), stamp):
                there = max(there, add_to_domain(t, shape, t.pieces[piece, P_NODE])) if share else there + 1
            piece = t.pieces[piece, P_NEXT]
    return int(at) if there >= gang else INF


@inner
def keep_reserved(t: Tables, everybody: bool) -> None:
    """Mark the nodes that are reserved for who ranks before, or for everybody else: the search leaves them alone."""
    entry = t.search_record[SEEK_ENTRY]
    stamp = t.search_record[SEEK_STAMP]
    ends = min(t.pass_record[PASS_NOW] + t.pass_record[PASS_WALL], INF)
    key = 0
    if not everybody:
        key = t.entries[entry, E_KEY] + t.buckets[t.entries[entry, E_BUCKET], B_OFFSET]
    for k in range(t.meta[M_RESERVATIONS]):
        before = t.reservations[k, V_KEY]
        if everybody:
            ahead = t.reservations[k, V_ENTRY] != entry
        else:
            ahead = before < key or (before == key and t.reservations[k, V_JOB] < t.entries[entry, E_JOB])
        if everybody:
            pass
        elif t.reservations[k, V_KIND] == KIND_RESERVED and ends <= t.reservations[k, V_START]:
            ahead = False
        if not ahead:
            continue
        if t.reservations[k, V_KIND] == KIND_BLOCK:
            t.pass_record[PASS_WORK] += t.meta[M_NODES]
            for node in range(t.meta[M_NODES]):
                t.search[node, SEARCH_KEPT] = stamp
        first = t.reservations[k, V_FIRST]
        t.pass_record[PASS_WORK] += 1 + t.reservations[k, V_NODES]
        for i in range(first, first + t.reservations[k, V_NODES]):
            t.search[t.reserved[i, Q_NODE], SEARCH_KEPT] = stamp


@inner
def pays(t: Tables, count: int) -> bool:
    """Whether the gang gains enough by the victims: so many times what they lose as the configuration asks for.

    When the gang would start by itself is noted in the search record.
    """
    s = t.search_record
    alone = comes_free_at(t, INF - 1)
    s[SEEK_ALONE] = alone
    wait = min(alone - s[SEEK_DUE], MOST_WAIT_MS)
    lost = 0
    for k in range(count):
        run = t.victims[1, k]
        lost = min(lost + loss_of(t, run, mode_of(t, run)), MOST_PRICE)
    least = (lost + THOUSANDTHS - 1) // THOUSANDTHS * t.meta[M_MOVING]
    return bool(wait > 0 and weigh(t, s[SEEK_SHAPE]) * s[SEEK_GANG] * wait >= least)


@inner
def begin_elsewhere(t: Tables, count: int) -> None:
    """Begin to look for room for all victims at once when the gang has started; `go_on_elsewhere` follows."""
    s = t.search_record
    resources = t.meta[M_RESOURCES]
    keep_reserved(t, True)
    t.pass_record[PASS_WORK] += t.meta[M_NODES]
    for node in range(t.meta[M_NODES]):
        cleared = t.search[node, SEARCH_COST] >= 0
        for r in range(resources):
            amount = t.search[node, SEARCH_FREE + r] if cleared else t.free[node, r]
            t.search[node, SEARCH_FREE + resources + r] = amount
    for k in range(s[SEEK_GANG]):
        _hold(t, t.scratch[SCRATCH_CHOSEN, k], s[SEEK_SHAPE])
    for k in range(count):
        run = t.victims[1, k]
        t.victims[2, k] = weigh(t, shape_of(t, run)) * t.runs[run, R_NODES]
        t.victims[3, k] = run
    sort_pairs(t.victims[2], t.victims[3], count)
    s[SEEK_LEFT] = count
    s[SEEK_FROM] = 0
    s[SEEK_LAST] = -1


@inner
def go_on_elsewhere(t: Tables, budget: int) -> bool:
    """Look for room for victims, largest first, until the budget is used up, but for one at least. SEEK_LEFT says for
    how many it was not looked for yet. Returns whether all others had room."""
    s = t.search_record
    left = s[SEEK_LEFT]
    for k in range(left - 1, -1, -1):
        if k < left - 1 and t.pass_record[PASS_WORK] >= budget:
            return True
        run = t.victims[3, k]
        if shape_of(t, run) != s[SEEK_LAST] or t.meta[M_BOOKINGS] > 0:
            s[SEEK_FROM] = 0
        s[SEEK_LAST] = shape_of(t, run)
        s[SEEK_FROM] = _place_again(t, run, s[SEEK_FROM])
        s[SEEK_LEFT] = k
        if s[SEEK_FROM] < 0:
            return False
    return True


@inner
def _hold(t: Tables, node: int, shape: int) -> None:
    """Take a request from what a node has left, in the block for trying."""
    resources = t.meta[M_RESOURCES]
    for r in range(resources):
        t.search[node, SEARCH_FREE + resources + r] -= t.request[r, shape]


@inner
def _has_room(t: Tables, node: int, run: int, shape: int) -> bool:
    """Whether a victim could go on, on one of its nodes, on this one."""
    t.pass_record[PASS_WORK] += 1
    if t.search[node, SEARCH_KEPT] == t.search_record[SEEK_STAMP] or t.open_now[t.shapes[shape, S_CSET], node] == 0:
        return False
    resources = t.meta[M_RESOURCES]
    for r in range(resources):
        if t.search[node, SEARCH_FREE + resources + r] < t.request[r, shape]:
            return False
    if t.meta[M_BOOKINGS] == 0:
        return True
    now = t.pass_record[PASS_NOW]
    return bool(booked_start(t, node, shape, now, min(t.runs[run, R_WALL] + longest_grace(t), INF)) == now)


@inner
def _place_again(t: Tables, run: int, begin: int) -> int:
    """Give a victim the first nodes from `begin` on that have room; the first of them, -1: there is no room."""
    shape = shape_of(t, run)
    wanted = t.runs[run, R_NODES]
    found = t.scratch[SCRATCH_ORDER]
    count = 0
    if must_share(t, shape, wanted):
        level = level_within(t, shape)
        for k in range(first_domain(t, level), last_domain(t, level)):
            domain = t.listed[k]
            count = 0
            for place in range(t.domains[domain, DOMAIN_FIRST], t.domains[domain, DOMAIN_LAST]):
                node = t.node_order[place]
                if count < wanted and _has_room(t, node, run, shape):
                    found[count] = node
                    count += 1
            if count == wanted:
                break
    else:
        for node in range(begin, t.meta[M_NODES]):
            if count == wanted:
                break
            if _has_room(t, node, run, shape):
                found[count] = node
                count += 1
    if count < wanted:
        return -1
    for k in range(count):
        _hold(t, found[k], shape)
    return 0 if must_share(t, shape, wanted) else int(found[0])
