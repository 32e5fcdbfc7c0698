"""Choosing nodes by timelines: for a start now, for a reservation later, for a claim; how long a start may last.

Pure but for scratch. O(nodes) a choice, by the lines of the shape (see timelines).
"""

from __future__ import annotations

from hal.core.kernels.nodes.compact_nodes import (
    begin_offers,
    by_domain,
    choose_offered,
    choose_ranked,
    choose_ready,
    gather_offers,
    must_share,
    offer,
)
from hal.core.kernels.nodes.domains import first_domain, last_domain, level_within
from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.passes.earlier_starts import LOOK_SHIFT
from hal.core.kernels.passes.node_scores import SCORE_ONE, node_score
from hal.core.kernels.passes.placing import TIER_EXTRA, TIER_FREE, TIER_SHORT
from hal.core.kernels.passes.preferred import choose_preferred, class_of, preferred_rank, prefers
from hal.core.kernels.rules.booked import booked_start
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    CHOICE_NODE,
    CHOICE_RANKS,
    COUNT_LOG,
    COUNT_RESERVED,
    DOMAIN_FIRST,
    DOMAIN_LAST,
    INF,
    KIND_RESERVED,
    M_BOOKINGS,
    M_LEVELS,
    M_NODES,
    M_PLACEMENT,
    M_RESOURCES,
    N_RESERVED,
    PASS_FIRST_NODE,
    PASS_NODES,
    PASS_NOW,
    PASS_WALL,
    PASS_WORK,
    PLACE_FIRST,
    Q_CHAIN,
    Q_RESERVATION,
    S_BLOCK_STAMP,
    S_BLOCKED,
    S_CSET,
    S_FIT,
    S_UNTIL,
    SCRATCH_CANDIDATES,
    SCRATCH_CHOSEN,
    SCRATCH_VALUES,
    TICK,
    V_KIND,
    V_START,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import select
from hal.core.kernels.timelines.lines import line_of
from hal.core.kernels.timelines.node_intervals import came_free, free_until, may_hold, next_start, pick


@inner
def longest_start(t: Tables, shape: int, nodes: int) -> int:
    """The longest planned time with which a class may start now beside all reservations; -1 none, INF any. Exact."""
    if t.shapes[shape, S_FIT] < nodes:
        return -1
    if (
        nodes == 1
        and t.shapes[shape, S_BLOCK_STAMP] == t.ticks[TICK]
        and t.shapes[shape, S_BLOCKED] == t.counts[COUNT_LOG]
    ):
        return int(t.shapes[shape, S_UNTIL])
    now = t.pass_record[PASS_NOW]
    line = line_of(t, shape)
    values = t.scratch[SCRATCH_VALUES]
    t.pass_record[PASS_WORK] += 1 + (t.meta[M_NODES] >> LOOK_SHIFT)
    longest = -1
    if must_share(t, shape, nodes):
        longest = _longest_in_one(t, line, shape, nodes)
    else:
        count = 0
        for node in range(t.meta[M_NODES]):
            until = free_until(t, line, node, shape, now)
            if until > now:
                values[count] = -until
                count += 1
        longest = _longest_of(t, count, nodes)
    if nodes == 1:
        t.shapes[shape, S_BLOCK_STAMP] = t.ticks[TICK]
        t.shapes[shape, S_BLOCKED] = t.counts[COUNT_LOG]
        t.shapes[shape, S_UNTIL] = longest
    return int(longest)


@inner
def _longest_of(t: Tables, count: int, nodes: int) -> int:
    """The longest time for which `nodes` of the nodes are free whose ends, negative, are listed in scratch."""
    if count < nodes:
        return -1
    until = -select(t.scratch[SCRATCH_VALUES], count, nodes - 1)
    return INF if until >= INF else int(until - t.pass_record[PASS_NOW])


@inner
def _longest_in_one(t: Tables, line: int, shape: int, nodes: int) -> int:
    """The longest for which `nodes` nodes of one domain are free from now on."""
    now = t.pass_record[PASS_NOW]
    values = t.scratch[SCRATCH_VALUES]
    level = level_within(t, shape)
    longest = -1
    for k in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[k]
        count = 0
        for place in range(t.domains[domain, DOMAIN_FIRST], t.domains[domain, DOMAIN_LAST]):
            until = free_until(t, line, t.node_order[place], shape, now)
            if until > now:
                values[count] = -until
                count += 1
        longest = max(longest, _longest_of(t, count, nodes))
    return longest


@inner
def choose_later(t: Tables, line: int, shape: int, nodes: int, planned: int, begin: int) -> None:
    """Nodes for a reservation (SCRATCH_CHOSEN): of those that hold the shape from `begin` on, those free latest."""
    ranks = t.scratch[SCRATCH_VALUES]
    candidates = t.scratch[SCRATCH_CANDIDATES]
    count = 0
    for k in range(may_hold(t, line, begin + 1)):
        node = candidates[k]
        if next_start(t, line, node, shape, begin, planned, begin + 1) == begin:
            ranks[count] = -came_free(t, line, node, shape, begin)
            candidates[count] = node
            count += 1
    if must_share(t, shape, nodes):
        _offer_candidates(t, count)
        choose_ranked(t, nodes, level_within(t, shape), True, t.scratch[SCRATCH_CHOSEN], 0)
    else:
        pick(t, count, nodes, False, t.scratch[SCRATCH_CHOSEN], 0)


@inner
def choose_now(t: Tables, entry: int, line: int, shape: int, nodes: int, planned: int, scored: int) -> None:
    """Nodes for the next start: first those reserved for others from its end on, then the others, by score or index.

    scored: its line of `domain_scores`; -1 = it has none.
    """
    now = t.pass_record[PASS_NOW]
    resources = t.meta[M_RESOURCES]
    ranks = t.scratch[SCRATCH_VALUES]
    candidates = t.scratch[SCRATCH_CANDIDATES]
    end = min(now + planned, INF)
    preferring = prefers(t, entry)
    count = 0
    for k in range(may_hold(t, line, now + 1)):
        node = candidates[k]
        if next_start(t, line, node, shape, now, planned, now + 1) != now:
            continue
        tier = tier_of(t, node, end)
        if preferring:
            ranks[count] = preferred_rank(t, entry, class_of(t, entry), tier, node, shape, resources)
        else:
            score = 0
            if t.meta[M_PLACEMENT] != PLACE_FIRST:
                score = node_score(t, node, shape, resources)
            ranks[count] = tier * 4 * SCORE_ONE - score
        candidates[count] = node
        count += 1
    offset = t.pass_record[PASS_FIRST_NODE] + t.pass_record[PASS_NODES]
    if preferring:
        level = level_within(t, shape) if nodes > 1 else -1
        choose_preferred(t, entry, _list_candidates(t, count), nodes, level, scored, offset)
    elif by_domain(t, shape, nodes):
        offered = _offer_candidates(t, count)
        choose_offered(t, offered, nodes, level_within(t, shape), scored, t.start_nodes, offset)
    else:
        pick(t, count, nodes, True, t.start_nodes, offset)


@inner
def _offer_candidates(t: Tables, count: int) -> int:
    """Offer the candidates by their ranks (in scratch); how many they are."""
    begin_offers(t)
    for k in range(count):
        offer(t, t.scratch[SCRATCH_CANDIDATES, k], t.scratch[SCRATCH_VALUES, k])
    return gather_offers(t)


@inner
def _list_candidates(t: Tables, count: int) -> int:
    """The same where there may be no topology: then they are listed as they come."""
    if t.meta[M_LEVELS] != 0:
        return _offer_candidates(t, count)
    for k in range(count):
        t.choice[CHOICE_NODE, k] = t.scratch[SCRATCH_CANDIDATES, k]
        t.choice[CHOICE_RANKS, k] = t.scratch[SCRATCH_VALUES, k]
    return count


@inner
def tier_of(t: Tables, node: int, end: int) -> int:
    """What a start until `end` would use of a node: what is reserved from then on only, what nobody has reserved, or
    what is left beside a reservation."""
    tier = TIER_FREE
    place = t.rows[node, N_RESERVED]
    if place >= 0:
        tier = TIER_SHORT
        passed = 0
        while leads_on(t, place, passed, t.counts[COUNT_RESERVED]):
            passed += 1
            reservation = t.planned_nodes[place, Q_RESERVATION]
            if t.planned[reservation, V_KIND] != KIND_RESERVED or end > t.planned[reservation, V_START]:
                tier = TIER_EXTRA
            place = t.planned_nodes[place, Q_CHAIN]
    return tier


@inner
def choose_claim(t: Tables, shape: int, nodes: int) -> int:
    """Nodes for a job whose time is never: first those that fit now, then those that could; none that is booked.

    In scratch (SCRATCH_CHOSEN). Returns how many were found.
    """
    now = t.pass_record[PASS_NOW]
    out = t.scratch[SCRATCH_CHOSEN]
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    found = 0
    share = must_share(t, shape, nodes)
    if share:
        begin_offers(t)
    for later in range(2):
        for node in range(t.meta[M_NODES]):
            if (
                (found < nodes or share)
                and t.allowed[cset, node] != 0
                and fits(t, t.capacity, node, shape, resources)
                and fits(t, t.free, node, shape, resources) == (later == 0)
                and (t.meta[M_BOOKINGS] == 0 or booked_start(t, node, shape, now, t.pass_record[PASS_WALL]) == now)
            ):
                if share:
                    offer(t, node, later)
                else:
                    out[found] = node
                    found += 1
    if share:
        gather_offers(t)
        found = choose_ready(t, nodes, level_within(t, shape), out)
    return found
