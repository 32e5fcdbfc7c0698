"""Choosing the nodes of a gang by domain: the smallest that holds it, on few of the narrowest domains.

Pure; scratch. What may be used is offered with a rank, least first. A gang that must be in one domain of a level, or
that is placed compactly, goes to the domain with the fewest offered nodes that are enough, the narrowest level first;
of equals the one whose wider domains have fewer, then the first. Compactly means: within it the narrowest domains that
have most are used whole, and the rest comes from the one with the fewest that are enough, so that large pieces stay
whole. Nodes are written in topological order, so that ranks of a gang follow it. O(nodes + domains log domains).
Where a plugin scores domains, the one that holds it with the highest score takes the place of the smallest.
"""

from __future__ import annotations

from hal.core.kernels.nodes.domains import first_domain, last_domain
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.jit import inlined, inner
from hal.core.kernels.structures.layout import (
    CHOICE_AHEAD,
    CHOICE_COUNTS,
    CHOICE_DOMAINS,
    CHOICE_NODE,
    CHOICE_NONE,
    CHOICE_RANK,
    CHOICE_RANKS,
    CHOICE_TAKEN,
    DOMAIN_FIRST,
    DOMAIN_LAST,
    DOMAIN_LEVEL,
    DOMAIN_PARENT,
    M_COMPACT,
    M_LEVELS,
    M_NODES,
    M_WITHIN,
    N_PLACE,
    S_WITHIN,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import select, sort_pairs


@inlined
def must_share(t: Tables, shape: int, nodes: int) -> bool:
    """Whether a gang's nodes must be in one domain. One node always is: others are not allowed."""
    return nodes > 1 and t.meta[M_WITHIN] != 0 and t.shapes[shape, S_WITHIN] != 0


@inlined
def by_domain(t: Tables, shape: int, nodes: int) -> bool:
    """Whether the nodes of a start are chosen by domain."""
    return nodes > 1 and (t.meta[M_COMPACT] != 0 or (t.meta[M_WITHIN] != 0 and t.shapes[shape, S_WITHIN] != 0))


@inner
def begin_offers(t: Tables) -> None:
    """Nothing is offered."""
    ranks = t.choice[CHOICE_RANK]
    for place in range(t.meta[M_NODES]):
        ranks[place] = CHOICE_NONE


@inlined
def offer(t: Tables, node: int, rank: int) -> None:
    """A node may be used; those of least rank are preferred."""
    t.choice[CHOICE_RANK, t.rows[node, N_PLACE]] = rank


@inner
def gather_offers(t: Tables) -> int:
    """List what was offered in topological order; how many nodes it is."""
    ranks = t.choice[CHOICE_RANK]
    count = 0
    for place in range(t.meta[M_NODES]):
        t.choice[CHOICE_AHEAD, place] = count
        t.choice[CHOICE_NODE, count] = t.node_order[place]
        t.choice[CHOICE_RANKS, count] = ranks[place]
        count += int(ranks[place] != CHOICE_NONE)
    t.choice[CHOICE_AHEAD, t.meta[M_NODES]] = count
    return count


@inlined
def offered_in(t: Tables, domain: int) -> int:
    """How many listed nodes a domain has."""
    ahead = t.choice[CHOICE_AHEAD]
    return int(ahead[t.domains[domain, DOMAIN_LAST]] - ahead[t.domains[domain, DOMAIN_FIRST]])


@inner
def choose_offered(t: Tables, count: int, nodes: int, level: int, scored: int, out: Ints, offset: int) -> int:
    """Choose compactly among `count` listed nodes: `nodes` of them, or 0 where no domain has as many.

    level: in one domain of it; -1 = in none, or in several. scored: its line of `domain_scores`; -1 = it has none.
    """
    domain = _best_scored(t, scored, max(level, 0), nodes) if scored >= 0 else -1
    narrow = t.meta[M_LEVELS] - 1
    while domain < 0 and narrow >= max(level, 0):
        domain = _smallest(t, narrow, nodes)
        narrow -= 1
    first = 0
    last = count
    if domain >= 0:
        first = t.choice[CHOICE_AHEAD, t.domains[domain, DOMAIN_FIRST]]
        last = t.choice[CHOICE_AHEAD, t.domains[domain, DOMAIN_LAST]]
    elif level >= 0:
        return 0
    if last - first < nodes:
        return 0
    for k in range(first, last):
        t.choice[CHOICE_TAKEN, k] = 0
    fill_domain(t, domain, first, last, nodes)
    return write(t, first, last, out, offset)


@inner
def choose_ranked(t: Tables, nodes: int, level: int, highest: bool, out: Ints, offset: int) -> int:
    """Choose by rank alone in the domain of a level that has the fewest listed nodes that are enough; 0 = none has.

    highest: of equals the last ones in topological order.
    """
    domain = _smallest(t, level, nodes)
    if domain < 0:
        return 0
    first = t.choice[CHOICE_AHEAD, t.domains[domain, DOMAIN_FIRST]]
    last = t.choice[CHOICE_AHEAD, t.domains[domain, DOMAIN_LAST]]
    for k in range(first, last):
        t.choice[CHOICE_TAKEN, k] = 0
    take_least(t, first, last, nodes, highest)
    return write(t, first, last, out, offset)


@inner
def choose_least(t: Tables, count: int, nodes: int, out: Ints) -> int:
    """Choose up to `nodes` of `count` listed nodes by rank alone; how many it is."""
    for k in range(count):
        t.choice[CHOICE_TAKEN, k] = 0
    if count > 0:
        take_least(t, 0, count, min(nodes, count), False)
    return write(t, 0, count, out, 0)


@inner
def choose_ready(t: Tables, nodes: int, level: int, out: Ints) -> int:
    """Choose for a claim, by rank (0: it is free already): the domain of a level with the most listed nodes up to
    `nodes`, of equals the one with the most that are free; how many nodes it is."""
    best = -1
    most = 0
    ready = 0
    for at in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[at]
        first = t.choice[CHOICE_AHEAD, t.domains[domain, DOMAIN_FIRST]]
        last = t.choice[CHOICE_AHEAD, t.domains[domain, DOMAIN_LAST]]
        free = 0
        for k in range(first, last):
            free += int(t.choice[CHOICE_RANKS, k] == 0)
        there = min(last - first, nodes)
        if there > most or (there == most and free > ready):
            best = domain
            most = there
            ready = free
    if best < 0:
        return 0
    first = t.choice[CHOICE_AHEAD, t.domains[best, DOMAIN_FIRST]]
    last = t.choice[CHOICE_AHEAD, t.domains[best, DOMAIN_LAST]]
    for k in range(first, last):
        t.choice[CHOICE_TAKEN, k] = 0
    take_least(t, first, last, most, False)
    return write(t, first, last, out, 0)


@inner
def write(t: Tables, first: int, last: int, out: Ints, offset: int) -> int:
    found = 0
    for k in range(first, last):
        if t.choice[CHOICE_TAKEN, k] != 0:
            out[offset + found] = t.choice[CHOICE_NODE, k]
            found += 1
    return found


@inner
def _best_scored(t: Tables, line: int, widest: int, nodes: int) -> int:
    """The domain with the highest score of those that have enough listed nodes, of no wider level than `widest`; -1 =
    none has. Of equals the narrowest, and of these the smallest."""
    best = -1
    most = -1
    least = 0
    for step in range(t.meta[M_LEVELS] - widest):
        level = t.meta[M_LEVELS] - 1 - step
        for at in range(first_domain(t, level), last_domain(t, level)):
            domain = t.listed[at]
            there = offered_in(t, domain)
            score = t.domain_scores[line, domain]
            if there < nodes or score < most:
                continue
            if score == most:
                if t.domains[best, DOMAIN_LEVEL] != level or there > least:
                    continue
                if there == least and not is_in_smaller(t, domain, best):
                    continue
            best = domain
            most = score
            least = there
    return int(best)


@inner
def _smallest(t: Tables, level: int, nodes: int) -> int:
    """The domain of a level that has the fewest listed nodes that are enough, -1 = none has."""
    best = -1
    least = 0
    for at in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[at]
        there = offered_in(t, domain)
        if there >= nodes and (best < 0 or there < least or (there == least and is_in_smaller(t, domain, best))):
            best = domain
            least = there
    return int(best)


@inner
def is_in_smaller(t: Tables, one: int, other: int) -> bool:
    """Whether the domains around one have fewer listed nodes than those around another, the narrowest first."""
    for _level in range(t.meta[M_LEVELS]):
        one = t.domains[one, DOMAIN_PARENT] - 1
        other = t.domains[other, DOMAIN_PARENT] - 1
        if one < 0 or other < 0 or one == other:
            return False
        here = offered_in(t, one)
        there = offered_in(t, other)
        if here != there:
            return here < there
    return False


@inner
def fill_domain(t: Tables, around: int, first: int, last: int, nodes: int) -> None:
    """Take `nodes` of the listed nodes first..last-1, which are those of a domain (-1: all), from few narrow ones."""
    level = t.meta[M_LEVELS] - 1
    begin = t.domains[around, DOMAIN_FIRST] if around >= 0 else 0
    end = t.domains[around, DOMAIN_LAST] if around >= 0 else t.meta[M_NODES]
    counts = t.choice[CHOICE_COUNTS]
    places = t.choice[CHOICE_DOMAINS]
    size = 0
    for at in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[at]
        if begin <= t.domains[domain, DOMAIN_FIRST] and t.domains[domain, DOMAIN_LAST] <= end:
            there = offered_in(t, domain)
            if there > 0:
                counts[size] = -there
                places[size] = at
                size += 1
    sort_pairs(counts, places, size)
    left = nodes
    k = 0
    while k < size and left > 0:
        enough = k
        while enough + 1 < size and -counts[enough + 1] >= left:
            enough += 1
        while enough > k and counts[enough - 1] == counts[enough]:
            enough -= 1
        domain = t.listed[places[enough]]
        there = min(-counts[enough], left)
        begin = t.choice[CHOICE_AHEAD, t.domains[domain, DOMAIN_FIRST]]
        take_least(t, begin, begin - counts[enough], there, False)
        left -= there
        k += 1
    if left > 0:
        take_least(t, first, last, left, False)  # of what is in no domain of the narrowest level


@inner
def take_least(t: Tables, first: int, last: int, nodes: int, highest: bool) -> None:
    """Take the `nodes` of least rank of what is not taken yet of the listed nodes first..last-1."""
    ranks = t.choice[CHOICE_RANKS]
    taken = t.choice[CHOICE_TAKEN]
    values = t.choice[CHOICE_RANK]  # what was offered is listed: its place is free
    count = 0
    for k in range(first, last):
        if taken[k] == 0:
            values[count] = ranks[k]
            count += 1
    worst = select(values, count, nodes - 1)
    equals = nodes
    for k in range(first, last):
        if taken[k] == 0 and ranks[k] < worst:
            taken[k] = 1
            equals -= 1
    for step in range(last - first):
        k = last - 1 - step if highest else first + step
        if equals > 0 and taken[k] == 0 and ranks[k] == worst:
            taken[k] = 1
            equals -= 1
