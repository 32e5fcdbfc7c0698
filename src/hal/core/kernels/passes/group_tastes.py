"""What the nodes of a group are ranked by, and how the nodes of all groups of a job are spread over domains.

Pure but for scratch. Each group ranks nodes as any other work of its queue and preferences does. Spread: the next node
is from the domain of the level in which the job has fewest nodes so far, of all its groups; of equals from the one with
the node of least rank; what is in no domain comes last. Groups have nodes of their own, so over nodes they are spread
anyway. O(nodes log nodes + nodes of the group x domains of the level) a group.
"""

from __future__ import annotations

from hal.core.kernels.nodes.domains import first_domain, last_domain
from hal.core.kernels.passes.node_scores import node_score
from hal.core.kernels.passes.preferred import own_preference, preferred_rank, prefers
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    CHOICE_BESIDE,
    CHOICE_HEAD,
    CHOICE_TAKEN,
    LIKE_SPREAD,
    M_PLACEMENT,
    PASS_SPREAD_JOB,
    PLACE_FIRST,
    SPREAD_LEVELS,
)
from hal.core.kernels.structures.memory import Tables


@inner
def rank_for_group(
    t: Tables, entry: int, class_id: int, tier: int, step: int, node: int, shape: int, resources: int
) -> int:
    """The rank of a node for a group, of a class, of an entry's job, least first. step: between two tiers where nothing
    is preferred."""
    if prefers(t, entry):
        return int(preferred_rank(t, entry, class_id, tier, node, shape, resources))
    if t.meta[M_PLACEMENT] == PLACE_FIRST:
        return tier * step
    return int(tier * step - node_score(t, node, shape, resources))


@inner
def begin_spread(t: Tables, entry: int) -> int:
    """The level over whose domains the groups of an entry's job are spread, of which none has a node; -1 = of none."""
    if not prefers(t, entry):
        return -1
    level = t.preferences[own_preference(t, entry), LIKE_SPREAD] - SPREAD_LEVELS
    if level < 0:
        return -1
    for at in range(first_domain(t, level), last_domain(t, level)):
        t.choice[CHOICE_BESIDE, t.listed[at]] = 0
    t.pass_record[PASS_SPREAD_JOB] = 0  # what is counted there for others has to be counted again
    return int(level)


@inner
def chain_by_domain(t: Tables, level: int, nodes: Ints, count: int) -> int:
    """Chain the listed nodes of each domain of a level in their order: its first one in CHOICE_HEAD, from each the next
    in CHOICE_TAKEN; -1 = none. Returns the first one of those in no domain."""
    for at in range(first_domain(t, level), last_domain(t, level)):
        t.choice[CHOICE_HEAD, t.listed[at]] = -1
    outside = -1
    for k in range(count - 1, -1, -1):
        domain = t.domain_of[level, nodes[k]] - 1
        t.choice[CHOICE_TAKEN, k] = t.choice[CHOICE_HEAD, domain] if domain >= 0 else outside
        if domain >= 0:
            t.choice[CHOICE_HEAD, domain] = k
        else:
            outside = k
    return outside


@inner
def next_domain(t: Tables, level: int, keys: Ints) -> int:
    """The domain of a level of which the job has fewest nodes, of those with a chained node; of equals that with the
    node of least rank, then the first. -1 = no domain has one."""
    best = -1
    for at in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[at]
        head = t.choice[CHOICE_HEAD, domain]
        if head < 0:
            continue
        if best >= 0:
            more = t.choice[CHOICE_BESIDE, domain] - t.choice[CHOICE_BESIDE, best]
            if more > 0 or (more == 0 and keys[head] >= keys[t.choice[CHOICE_HEAD, best]]):
                continue
        best = domain
    return int(best)
