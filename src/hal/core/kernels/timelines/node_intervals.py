"""When a node holds a shape, and when enough nodes do: searches in timelines, by the line of the shape if it has one.

Pure scratch. A gang starts at the least t at which so many nodes each fit over the whole of [t, t + planned): t goes up
to the n-th smallest of the nodes' next starts until that many start at t, and nodes that begin too late are left
out from the first. O(nodes) a search.
"""

from __future__ import annotations

from hal.core.kernels.nodes.domains import first_domain, last_domain, level_within
from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.rules.booked import booked_start
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.bounds import goes_on, leads_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    DOMAIN_FIRST,
    DOMAIN_LAST,
    INF,
    LOWEST,
    M_BOOKINGS,
    M_NODES,
    M_RESOURCES,
    M_WITHIN,
    PASS_WALL,
    POINT_NEXT,
    POINT_TIME,
    S_CSET,
    S_WITHIN,
    SCRATCH_BEGINS,
    SCRATCH_CANDIDATES,
    SCRATCH_COPY,
    SCRATCH_VALUES,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import select
from hal.core.kernels.timelines.points import point_fits


@inner
def next_start(t: Tables, line: int, node: int, shape: int, since: int, planned: int, before: int) -> int:
    """The first instant in [since, before) at which a node holds the shape for the whole planned time, INF = none.

    Bookings must let it run for its walltime (PASS_WALL).
    """
    begin = _next_free(t, line, node, shape, since, planned, before)
    if t.meta[M_BOOKINGS] == 0:
        return begin
    tries = 0
    while goes_on(t, begin < before, tries, t.profile.shape[0] + t.booked.shape[0]):  # each goes past a booking
        tries += 1
        later = booked_start(t, node, shape, begin, t.pass_record[PASS_WALL])
        if later == begin:
            return begin
        if later >= before:
            return INF
        begin = _next_free(t, line, node, shape, later, planned, before)
    return INF


@inner
def _next_free(t: Tables, line: int, node: int, shape: int, since: int, planned: int, before: int) -> int:
    """As `next_start`, without bookings."""
    if line >= 0:
        begin = t.line_begin[line, node]
        if begin >= before:
            return INF
        begin = max(begin, since)
        end = t.line_end[line, 2 * node]
        if end >= INF or begin + planned <= end:
            return int(begin) if begin < before else INF
        if t.line_end[line, 2 * node + 1] >= before:
            return INF  # the first interval is too short, and the next begins too late
    return _walk(t, node, shape, since, planned, before)


@inner
def _walk(t: Tables, node: int, shape: int, since: int, planned: int, before: int) -> int:
    resources = t.meta[M_RESOURCES]
    if t.allowed[t.shapes[shape, S_CSET], node] == 0 or not fits(t, t.capacity, node, shape, resources):
        return INF
    point = node
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
def free_until(t: Tables, line: int, node: int, shape: int, now: int) -> int:
    """Until when a node holds the shape from now on without a break; -1 when it does not hold it now."""
    if line >= 0:
        begin = t.line_begin[line, node]
        if begin > now:
            return -1
        if now < t.line_end[line, 2 * node]:
            return int(t.line_end[line, 2 * node])
    resources = t.meta[M_RESOURCES]
    if t.allowed[t.shapes[shape, S_CSET], node] == 0 or not fits(t, t.capacity, node, shape, resources):
        return -1
    point = node
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
def came_free(t: Tables, line: int, node: int, shape: int, at: int) -> int:
    """Since when a node that holds the shape at `at` does so; LOWEST when it does now."""
    if line >= 0 and t.line_begin[line, node] <= at < t.line_end[line, 2 * node]:
        return int(t.line_begin[line, node])
    resources = t.meta[M_RESOURCES]
    since = LOWEST
    free = True
    point = node
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


@inner
def may_hold(t: Tables, line: int, before: int) -> int:
    """List the nodes (SCRATCH_CANDIDATES), ascending, that may hold a line's shape before an instant; how many.

    Without a branch: which nodes these are nobody can foresee.
    """
    rows = t.meta[M_NODES]
    candidates = t.scratch[SCRATCH_CANDIDATES]
    if line < 0:
        for node in range(rows):
            candidates[node] = node
        return int(rows)
    begins = t.line_begin[line]
    count = 0
    for node in range(rows):
        candidates[count] = node
        count += int(begins[node] < before)
    return count


@inner
def earliest(t: Tables, line: int, shape: int, nodes: int, planned: int, since: int, before: int) -> int:
    """The first instant in [since, before) at which so many nodes hold the shape for the planned time; INF = none."""
    rows = t.meta[M_NODES]
    if nodes == 1:
        best = before
        for node in range(rows):
            begin = next_start(t, line, node, shape, since, planned, best)
            if begin < best:
                best = begin
                if best == since:
                    break
        return int(best) if best < before else INF
    if t.meta[M_WITHIN] == 0 or t.shapes[shape, S_WITHIN] == 0:
        return _earliest_of(t, line, shape, nodes, planned, since, before, may_hold(t, line, before))
    candidates = t.scratch[SCRATCH_CANDIDATES]
    level = level_within(t, shape)
    best = before
    found = INF
    for k in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[k]
        left = 0
        for place in range(t.domains[domain, DOMAIN_FIRST], t.domains[domain, DOMAIN_LAST]):
            node = t.node_order[place]
            if line < 0 or t.line_begin[line, node] < best:
                candidates[left] = node
                left += 1
        begin = _earliest_of(t, line, shape, nodes, planned, since, best, left) if left >= nodes else INF
        if begin < best:
            best = begin
            found = begin
            if best == since:
                break
    return int(found)


@inner
def _earliest_of(t: Tables, line: int, shape: int, nodes: int, planned: int, since: int, before: int, left: int) -> int:
    """The same among the first `left` nodes in SCRATCH_CANDIDATES, which it reorders."""
    begins = t.scratch[SCRATCH_BEGINS]
    values = t.scratch[SCRATCH_VALUES]
    candidates = t.scratch[SCRATCH_CANDIDATES]
    for k in range(left):
        begins[k] = LOWEST
    at = since
    tries = 0
    # Each round begins where some node comes free or a booking ends: later than the one before.
    while goes_on(t, left >= nodes, tries, t.profile.shape[0] + t.rows.shape[0] * (1 + t.booked.shape[0])):
        tries += 1
        count = 0
        there = 0
        for k in range(left):
            node = candidates[k]
            begin = begins[k]
            if begin < at:
                begin = next_start(t, line, node, shape, at, planned, before)
            if begin < before:
                candidates[count] = node
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
    """Of `count` >= nodes candidates the `nodes` of least rank: ranks in SCRATCH_VALUES, nodes in SCRATCH_CANDIDATES.

    Ties go to the lowest nodes, or to the highest.
    """
    ranks = t.scratch[SCRATCH_VALUES]
    rows = t.scratch[SCRATCH_CANDIDATES]
    if count == nodes:
        for k in range(count):
            out[offset + k] = rows[k]
        return
    copy = t.scratch[SCRATCH_COPY]
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
