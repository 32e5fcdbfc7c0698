"""Choosing nodes for a start by domain: what may be used now, in topological order, for `compact_nodes`.

Pure but for scratch. The same nodes may be used as anywhere else, and in the same order of preference where only a part
of a domain is needed: what is reserved from the start's end on, what is not reserved, what is left beside
reservations. O(nodes) a start; of a shape whose nodes must be in one domain only those of domains with enough.
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.nodes.compact_nodes import by_domain, choose_offered
from hal.core.kernels.nodes.domains import first_domain, last_domain, level_within
from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.passes.node_scores import SCORE_ONE, node_score
from hal.core.kernels.passes.placing import (
    TIER_EXTRA,
    TIER_FREE,
    TIER_SHORT,
    choose_anywhere,
    has_extra,
)
from hal.core.kernels.passes.preferred import choose_preferred, class_of, preferred_rank, prefers
from hal.core.kernels.rules.booked import may_start
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    CHOICE_AHEAD,
    CHOICE_NODE,
    CHOICE_RANKS,
    COUNT_RESERVED,
    DOMAIN_FIRST,
    DOMAIN_LAST,
    INF,
    KIND_RESERVED,
    M_LEVELS,
    M_NODES,
    M_PLACEMENT,
    M_RESOURCES,
    M_WITHIN,
    N_BOOKED,
    N_RESERVED,
    PASS_BLOCK_STAMP,
    PASS_FIRST_NODE,
    PASS_NODES,
    PASS_NOW,
    PASS_WORK,
    PLACE_FIRST,
    Q_NODE,
    Q_RESERVATION,
    S_BLOCK_STAMP,
    S_BLOCKED,
    S_CSET,
    S_FIT,
    S_UNTIL,
    S_WITHIN,
    V_KIND,
    V_START,
)
from hal.core.kernels.structures.memory import Tables

NO_TIER: Final = -1
NODES_A_WORK = 4
"""So many nodes looked at, as a power of two, are one unit of work."""


@inner
def choose_nodes(t: Tables, entry: int, shape: int, nodes: int, end: int, scored: int) -> int:
    """Write up to `nodes` distinct nodes for the next start of an entry; the attempt can start when the result equals
    `nodes`.

    `end` is its planned end, `scored` its line of `domain_scores`, -1 = it has none.
    """
    if prefers(t, entry):
        return _choose_preferred(t, entry, shape, nodes, end, scored)
    if not by_domain(t, shape, nodes):
        return choose_anywhere(t, shape, nodes, end)
    t.pass_record[PASS_WORK] += t.meta[M_NODES] >> NODES_A_WORK
    offset = t.pass_record[PASS_FIRST_NODE] + t.pass_record[PASS_NODES]
    level = level_within(t, shape)
    count = 0
    if level < 0:
        count = _list_usable(t, -1, shape, min(end, INF), 0, t.meta[M_NODES], 0)
    else:
        line = t.shapes[shape, S_WITHIN] - 1
        at = 0
        for k in range(first_domain(t, level), last_domain(t, level)):
            domain = t.listed[k]
            # The counts may lag behind what this slice took: then they are too high.
            if t.domain_fit[line, domain] >= nodes:
                _skip(t, at, t.domains[domain, DOMAIN_FIRST], count)
                at = t.domains[domain, DOMAIN_LAST]
                count = _list_usable(t, -1, shape, min(end, INF), t.domains[domain, DOMAIN_FIRST], at, count)
        _skip(t, at, t.meta[M_NODES], count)
    t.choice[CHOICE_AHEAD, t.meta[M_NODES]] = count
    return choose_offered(t, count, nodes, level, scored, t.start_nodes, offset)


@inner
def _choose_preferred(t: Tables, entry: int, shape: int, nodes: int, end: int, scored: int) -> int:
    """The same for work that prefers some nodes."""
    t.pass_record[PASS_WORK] += t.meta[M_NODES] >> NODES_A_WORK
    count = _list_usable(t, entry, shape, min(end, INF), 0, t.meta[M_NODES], 0)
    t.choice[CHOICE_AHEAD, t.meta[M_NODES]] = count
    level = level_within(t, shape) if nodes > 1 else -1
    offset = t.pass_record[PASS_FIRST_NODE] + t.pass_record[PASS_NODES]
    return choose_preferred(t, entry, count, nodes, level, scored, offset)


@inner
def _skip(t: Tables, first: int, last: int, count: int) -> None:
    for place in range(first, last):
        t.choice[CHOICE_AHEAD, place] = count


@inner
def _list_usable(t: Tables, entry: int, shape: int, end: int, first: int, last: int, count: int) -> int:
    """List the nodes at places first..last-1 on which a start until `end` may be, behind `count`; how many now.

    entry: whose preferences count; -1 = there are none.
    """
    resources = t.meta[M_RESOURCES]
    scored = entry >= 0 or t.meta[M_PLACEMENT] != PLACE_FIRST
    for place in range(first, last):
        t.choice[CHOICE_AHEAD, place] = count
        node = t.node_order[place] if t.meta[M_LEVELS] != 0 else place
        tier = usable_tier(t, node, shape, end, scored, resources)
        if tier == NO_TIER:
            continue
        t.choice[CHOICE_NODE, count] = node
        if entry >= 0:
            t.choice[CHOICE_RANKS, count] = preferred_rank(t, entry, class_of(t, entry), tier, node, shape, resources)
        else:
            t.choice[CHOICE_RANKS, count] = tier * SCORE_ONE - (node_score(t, node, shape, resources) if scored else 0)
        count += 1
    return count


@inner
def usable_tier(t: Tables, node: int, shape: int, end: int, scored: bool, resources: int) -> int:
    """How soon, less is sooner, a start until `end` takes a node; NO_TIER where it may not be there now."""
    if t.open_now[t.shapes[shape, S_CSET], node] == 0 or not fits(t, t.free, node, shape, resources):
        return NO_TIER
    if not may_start(t, node, shape):
        return NO_TIER
    reserved = t.rows[node, N_RESERVED]
    if reserved >= 0:
        mine = t.planned_nodes[reserved, Q_RESERVATION]
        if t.planned[mine, V_KIND] == KIND_RESERVED and end <= t.planned[mine, V_START]:
            return 2 * TIER_SHORT
        return 2 * TIER_EXTRA if has_extra(t, reserved, shape, resources) else NO_TIER
    if scored and t.rows[node, N_BOOKED] != 0:
        return 2 * TIER_FREE - 1
    return 2 * TIER_FREE


@inner
def window(t: Tables, shape: int, nodes: int) -> int:
    """The longest planned time of this class that may start now: -1 none, INF any; an upper bound in between.

    From counts: the nodes that fit, less those that fit but are reserved. Exact for INF, -1 and one reservation; where
    the nodes must be in one domain, INF may be too much: then the choice of nodes decides.
    """
    fit = t.shapes[shape, S_FIT]
    if fit < nodes:
        return -1
    if t.counts[COUNT_RESERVED] == 0:
        return INF
    now = t.pass_record[PASS_NOW]
    if t.shapes[shape, S_BLOCK_STAMP] != t.pass_record[PASS_BLOCK_STAMP]:
        _count_blocked(t, shape)
    if t.meta[M_WITHIN] != 0 and t.shapes[shape, S_WITHIN] != 0:
        fit = 0  # S_BLOCKED is minus what the best domain has left
    if fit - t.shapes[shape, S_BLOCKED] >= nodes:
        return INF
    return int(t.shapes[shape, S_UNTIL] - now) if t.shapes[shape, S_UNTIL] >= now else -1


@inner
def _count_blocked(t: Tables, shape: int) -> None:
    """Count the nodes that fit but are reserved, and note until when the last of them is."""
    resources = t.meta[M_RESOURCES]
    share = t.meta[M_WITHIN] != 0 and t.shapes[shape, S_WITHIN] != 0
    level = level_within(t, shape)
    line = t.shapes[shape, S_WITHIN] - 1
    if share:
        for k in range(first_domain(t, level), last_domain(t, level)):
            t.domain_there[t.listed[k]] = t.domain_fit[line, t.listed[k]]
    blocked = 0
    until = -1
    for place in range(t.counts[COUNT_RESERVED]):
        node = t.planned_nodes[place, Q_NODE]
        if (
            t.open_now[t.shapes[shape, S_CSET], node] != 0
            and fits(t, t.free, node, shape, resources)
            and not has_extra(t, place, shape, resources)
        ):
            blocked += 1
            if share:
                t.domain_there[t.domain_of[level, node] - 1] -= 1
            reservation = t.planned_nodes[place, Q_RESERVATION]
            if t.planned[reservation, V_KIND] == KIND_RESERVED and t.planned[reservation, V_START] > until:
                until = t.planned[reservation, V_START]
    if share:
        blocked = 0
        for k in range(first_domain(t, level), last_domain(t, level)):
            blocked = min(blocked, -t.domain_there[t.listed[k]])
    t.shapes[shape, S_BLOCK_STAMP] = t.pass_record[PASS_BLOCK_STAMP]
    t.shapes[shape, S_BLOCKED] = blocked
    t.shapes[shape, S_UNTIL] = until
