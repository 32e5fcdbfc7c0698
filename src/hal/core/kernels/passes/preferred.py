"""Choosing nodes for work that prefers some: spread over domains, near other work or away from it, by advice.

Pure but for scratch. What may be used is listed with ranks as for gangs that are placed by domain, so a preference
never refuses a node. Spread: of the domains of a level the one that holds fewest nodes of the job is used next; where
the job is now is counted once for its starts of a slice, O(running attempts). O(nodes) a start, and for a gang that is
spread O(its nodes x domains of the level).
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.nodes.compact_nodes import (
    choose_offered,
    fill_domain,
    is_in_smaller,
    offered_in,
    take_least,
    write,
)
from hal.core.kernels.nodes.domains import first_domain, last_domain
from hal.core.kernels.passes.node_scores import score_by
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inlined, inner
from hal.core.kernels.structures.layout import (
    B_CLASS,
    B_OWNER,
    C_PREFERENCE,
    C_SCORES,
    CHOICE_AHEAD,
    CHOICE_BESIDE,
    CHOICE_HEAD,
    CHOICE_NODE,
    CHOICE_RANKS,
    CHOICE_TAKEN,
    DOMAIN_FIRST,
    DOMAIN_LAST,
    E_BUCKET,
    E_JOB,
    LIKE_PLACEMENT,
    LIKE_SCATTERED,
    LIKE_SPREAD,
    M_COMPACT,
    M_NODES,
    M_PLACEMENT,
    M_PREFERS,
    M_RUN_TOP,
    O_QUEUE,
    P_NEXT,
    P_NODE,
    PASS_FIRST_NODE,
    PASS_FIRST_START,
    PASS_SPREAD_JOB,
    PASS_SPREAD_LEVEL,
    PASS_SPREAD_STARTS,
    PASS_STARTS,
    PLACE_PLUGIN,
    R_JOB,
    R_NODES,
    R_PIECE,
    SPREAD_LEVELS,
    START_JOB,
    START_NODE,
    START_NODES,
    Y_PREFERENCE,
)
from hal.core.kernels.structures.memory import Tables

FAR: Final = 1 << 38
"""More than any score with what preferences add to it: between two tiers of ranks."""
MOST_COUNTED: Final = 1 << 20
"""Nodes of a job on one node beyond which no more are told apart."""
BY_NODE: Final = -1
"""Instead of a level: each node is a domain of its own."""


@inlined
def class_of(t: Tables, entry: int) -> int:
    """The class of a waiting job; of several groups that of the first one."""
    return int(t.buckets[t.entries[entry, E_BUCKET], B_CLASS])


@inlined
def own_preference(t: Tables, entry: int) -> int:
    """What a waiting job prefers itself, 0 = nothing."""
    return int(t.classes[class_of(t, entry), C_PREFERENCE])


@inlined
def queue_preference(t: Tables, entry: int) -> int:
    """What its queue prefers, 0 = nothing."""
    return int(t.queues[t.owners[t.buckets[t.entries[entry, E_BUCKET], B_OWNER], O_QUEUE], Y_PREFERENCE])


@inlined
def prefers(t: Tables, entry: int) -> bool:
    """Whether a waiting job, or its queue, prefers some nodes to others."""
    return t.meta[M_PREFERS] != 0 and (own_preference(t, entry) != 0 or queue_preference(t, entry) != 0)


@inner
def preferred_rank(t: Tables, entry: int, class_id: int, tier: int, node: int, shape: int, resources: int) -> int:
    """The rank of a node, least first: its tier, then its score with what the preferences add to it. class_id: the
    entry's, or that of another group of its job."""
    own = own_preference(t, entry)
    queue = queue_preference(t, entry)
    placement = t.preferences[queue, LIKE_PLACEMENT] - 1
    if placement < 0:
        placement = t.meta[M_PLACEMENT]
    score = score_by(t, placement, node, shape, resources)
    line = t.classes[class_id, C_SCORES]
    if placement == PLACE_PLUGIN and line != 0:
        score = t.scores[line - 1, node]
    return int(tier * FAR - score - t.favours[own, node] - t.favours[queue, node])


@inner
def choose_preferred(t: Tables, entry: int, count: int, nodes: int, level: int, scored: int, offset: int) -> int:
    """Choose `nodes` of `count` listed nodes, or fewer than that where it cannot; how many.

    level: in one domain of it; -1 = anywhere. scored: its line of `domain_scores`, -1 = it has none.
    """
    if count < nodes:
        return 0
    spread = t.preferences[own_preference(t, entry), LIKE_SPREAD]
    if spread != 0:
        return _choose_spread(t, t.entries[entry, E_JOB], count, nodes, level, spread - SPREAD_LEVELS, offset)
    compact = t.meta[M_COMPACT] != 0 and t.preferences[queue_preference(t, entry), LIKE_SCATTERED] == 0
    if nodes > 1 and (compact or level >= 0):
        return choose_offered(t, count, nodes, level, scored, t.start_nodes, offset)
    for k in range(count):
        t.choice[CHOICE_TAKEN, k] = 0
    take_least(t, 0, count, nodes, False)
    return write(t, 0, count, t.start_nodes, offset)


@inner
def _choose_spread(t: Tables, job: int, count: int, nodes: int, level: int, spread: int, offset: int) -> int:
    """The same, over the domains of level `spread` (BY_NODE: over nodes), counting what the job holds."""
    _count_job(t, job, spread)
    first = 0
    last = count
    domain = -1
    if level >= 0:
        domain = _least_used(t, level, spread, nodes)
        if domain < 0:
            return 0
        first = t.choice[CHOICE_AHEAD, t.domains[domain, DOMAIN_FIRST]]
        last = t.choice[CHOICE_AHEAD, t.domains[domain, DOMAIN_LAST]]
    for k in range(first, last):
        t.choice[CHOICE_TAKEN, k] = 0
    if spread == BY_NODE:
        for k in range(first, last):
            here = min(t.choice[CHOICE_BESIDE, t.choice[CHOICE_NODE, k]], MOST_COUNTED)
            t.choice[CHOICE_RANKS, k] += here * (8 * FAR)
        take_least(t, first, last, nodes, False)
    elif spread <= level:
        fill_domain(t, domain, first, last, nodes)
    else:
        _even_out(t, first, last, nodes, spread)
    return write(t, first, last, t.start_nodes, offset)


@inner
def _count_job(t: Tables, job: int, spread: int) -> None:
    """Count the nodes that a job holds by domain, those of its starts in this slice included."""
    p = t.pass_record
    if p[PASS_SPREAD_JOB] != job + 1 or p[PASS_SPREAD_LEVEL] != spread:
        p[PASS_SPREAD_JOB] = job + 1
        p[PASS_SPREAD_LEVEL] = spread
        p[PASS_SPREAD_STARTS] = 0
        if spread == BY_NODE:
            for node in range(t.meta[M_NODES]):
                t.choice[CHOICE_BESIDE, node] = 0
        else:
            for k in range(first_domain(t, spread), last_domain(t, spread)):
                t.choice[CHOICE_BESIDE, t.listed[k]] = 0
        for run in range(t.meta[M_RUN_TOP]):
            if t.runs[run, R_NODES] > 0 and t.runs[run, R_JOB] == job:
                piece = t.runs[run, R_PIECE]
                walked = 0
                while leads_on(t, piece, walked, t.pieces.shape[0]):
                    walked += 1
                    _add(t, t.pieces[piece, P_NODE], spread)
                    piece = t.pieces[piece, P_NEXT]
    for k in range(p[PASS_FIRST_START] + p[PASS_SPREAD_STARTS], p[PASS_FIRST_START] + p[PASS_STARTS]):
        if t.starts[k, START_JOB] == job:
            begin = p[PASS_FIRST_NODE] + t.starts[k, START_NODE]
            for i in range(begin, begin + t.starts[k, START_NODES]):
                _add(t, t.start_nodes[i], spread)
    p[PASS_SPREAD_STARTS] = p[PASS_STARTS]


@inner
def _add(t: Tables, node: int, spread: int) -> None:
    """The job holds one more node."""
    if spread == BY_NODE:
        t.choice[CHOICE_BESIDE, node] += 1
    elif t.domain_of[spread, node] > 0:
        t.choice[CHOICE_BESIDE, t.domain_of[spread, node] - 1] += 1


@inner
def _least_used(t: Tables, level: int, spread: int, nodes: int) -> int:
    """Of the domains of a level with enough listed nodes the one in whose domain of level `spread` the job holds fewest
    nodes; of equals the one with the fewest listed nodes. -1 = none has enough."""
    best = -1
    least = 0
    smallest = 0
    for at in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[at]
        there = offered_in(t, domain)
        if there < nodes:
            continue
        held = 0
        if 0 <= spread <= level:
            around = t.domain_of[spread, t.node_order[t.domains[domain, DOMAIN_FIRST]]] - 1
            held = t.choice[CHOICE_BESIDE, around] if around >= 0 else MOST_COUNTED
        better = best < 0 or held < least
        if not better and held == least:
            better = there < smallest or (there == smallest and is_in_smaller(t, domain, best))
        if better:
            best = domain
            least = held
            smallest = there
    return int(best)


@inner
def _even_out(t: Tables, first: int, last: int, nodes: int, spread: int) -> None:
    """Take `nodes` of the listed nodes first..last-1 one by one: each from the domain of a level of which the job holds
    fewest nodes, of equals the one with the node of least rank, then the first. What is in no domain comes last."""
    ranks = t.choice[CHOICE_RANKS]
    begin = first_domain(t, spread)
    end = last_domain(t, spread)
    for at in range(begin, end):
        t.choice[CHOICE_HEAD, t.listed[at]] = -1
    outside = -1
    for k in range(first, last):
        domain = t.domain_of[spread, t.choice[CHOICE_NODE, k]] - 1
        head = t.choice[CHOICE_HEAD, domain] if domain >= 0 else outside
        if head < 0 or ranks[k] < ranks[head]:
            if domain >= 0:
                t.choice[CHOICE_HEAD, domain] = k
            else:
                outside = k
    for _node in range(nodes):
        best = -1
        for at in range(begin, end):
            domain = t.listed[at]
            head = t.choice[CHOICE_HEAD, domain]
            if head < 0:
                continue
            if best >= 0:
                more = t.choice[CHOICE_BESIDE, domain] - t.choice[CHOICE_BESIDE, best]
                if more > 0 or (more == 0 and ranks[head] >= ranks[t.choice[CHOICE_HEAD, best]]):
                    continue
            best = domain
        if best >= 0:
            t.choice[CHOICE_TAKEN, t.choice[CHOICE_HEAD, best]] = 1
            t.choice[CHOICE_BESIDE, best] += 1
            t.choice[CHOICE_HEAD, best] = _next_in(t, best, spread, first, last)
        else:
            t.choice[CHOICE_TAKEN, outside] = 1
            outside = _next_in(t, -1, spread, first, last)
    for k in range(first, last):  # they are counted when they are written down as a start
        domain = t.domain_of[spread, t.choice[CHOICE_NODE, k]] - 1
        if t.choice[CHOICE_TAKEN, k] != 0 and domain >= 0:
            t.choice[CHOICE_BESIDE, domain] -= 1


@inner
def _next_in(t: Tables, domain: int, spread: int, first: int, last: int) -> int:
    """The listed node of least rank of a domain (-1: of none) that is not taken yet, -1 = there is none."""
    ranks = t.choice[CHOICE_RANKS]
    if domain >= 0:
        first = max(first, t.choice[CHOICE_AHEAD, t.domains[domain, DOMAIN_FIRST]])
        last = min(last, t.choice[CHOICE_AHEAD, t.domains[domain, DOMAIN_LAST]])
    head = -1
    for k in range(first, last):
        mine = t.domain_of[spread, t.choice[CHOICE_NODE, k]] - 1 == domain
        if mine and t.choice[CHOICE_TAKEN, k] == 0 and (head < 0 or ranks[k] < ranks[head]):
            head = k
    return head
