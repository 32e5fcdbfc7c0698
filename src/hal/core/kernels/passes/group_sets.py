"""Groups of one job that start together: which nodes each may take, so that all of them have enough.

Pure but for scratch. The groups of a job have nodes of their own. There is a choice for all of them just where, for
each set of groups, at least as many nodes do for one of these groups as they ask for together (Hall, J. London Math.
Soc. 1935). A node may be given to a group as long as that stays so; then every group finds enough, in whichever order
nodes are looked at. O(nodes x groups), and O(2**groups) for each node that is taken.
"""

from __future__ import annotations

from hal.core.kernels.nodes.domains import first_domain, last_domain, level_within
from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.passes.domain_placing import NO_TIER, usable_tier
from hal.core.kernels.passes.group_tastes import begin_spread, chain_by_domain, next_domain, rank_for_group
from hal.core.kernels.passes.groups import count_groups, next_group, nodes_of_groups
from hal.core.kernels.passes.node_scores import SCORE_ONE
from hal.core.kernels.passes.preferred import prefers
from hal.core.kernels.rules.booked import booked_start
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    C_NODES,
    C_SHAPE,
    CHOICE_BESIDE,
    CHOICE_HEAD,
    CHOICE_TAKEN,
    DOMAIN_FIRST,
    DOMAIN_LAST,
    INF,
    M_BOOKINGS,
    M_NODES,
    M_PLACEMENT,
    M_RESOURCES,
    N_RESERVED,
    PASS_FIRST_NODE,
    PASS_NODES,
    PASS_NOW,
    PASS_WALL,
    PLACE_FIRST,
    S_CSET,
    SCRATCH_ENDS,
    SCRATCH_SHAPES,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import sort_pairs


@inner
def begin_sets(t: Tables, class_id: int, groups: int) -> bool:
    """From `group_mask`: for each set of groups, how many nodes more than they ask for do for one of them. Whether
    there are enough for all of them, where they are to be in one domain in some one; then no node outside does."""
    level = level_within(t, t.classes[class_id, C_SHAPE])
    if level < 0:
        return count_sets(t, class_id, groups, -1)
    nodes = nodes_of_groups(t, class_id)
    best = -1
    fewest = INF
    for k in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[k]
        there = 0
        for place in range(t.domains[domain, DOMAIN_FIRST], t.domains[domain, DOMAIN_LAST]):
            there += int(t.group_mask[t.node_order[place]] != 0)
        if nodes <= there < fewest and count_sets(t, class_id, groups, domain):
            best = domain
            fewest = there
    if best < 0:
        return False
    for node in range(t.meta[M_NODES]):
        if t.domain_of[level, node] != best + 1:
            t.group_mask[node] = 0
    return count_sets(t, class_id, groups, best)


@inner
def count_sets(t: Tables, class_id: int, groups: int, domain: int) -> bool:
    """The same of the nodes of one domain, -1 = of all. O(nodes there + groups x 2**groups)."""
    sets = 1 << groups
    for one in range(sets):
        t.group_sets[0, one] = 0
        t.group_sets[1, one] = 0
    if domain < 0:
        for node in range(t.meta[M_NODES]):
            t.group_sets[1, t.group_mask[node]] += 1
    else:
        for place in range(t.domains[domain, DOMAIN_FIRST], t.domains[domain, DOMAIN_LAST]):
            t.group_sets[1, t.group_mask[t.node_order[place]]] += 1
    # How many nodes do for groups of a set alone. All but what does for the others alone do for one of a set.
    for group in range(groups):
        for one in range(sets):
            if one >> group & 1:
                t.group_sets[1, one] += t.group_sets[1, one ^ 1 << group]
    for one in range(1, sets):
        t.group_sets[0, one] = t.group_sets[1, sets - 1] - t.group_sets[1, sets - 1 - one]
    for group in range(groups):
        for one in range(1, sets):
            if one >> group & 1:
                t.group_sets[0, one] -= t.classes[class_id, C_NODES]
        class_id = next_group(t, class_id)
    for one in range(1, sets):  # noqa: SIM110 - numba
        if t.group_sets[0, one] < 0:
            return False
    return True


@inner
def take_in_group(t: Tables, node: int, group: int, groups: int) -> bool:
    """Give a node to a group that it does for, unless then others could not have enough. Whether it was given."""
    mask = t.group_mask[node]
    for one in range(1, 1 << groups):
        if one & mask != 0 and (one >> group & 1) == 0 and t.group_sets[0, one] == 0:
            return False
    for one in range(1, 1 << groups):
        if one & mask != 0 and (one >> group & 1) == 0:
            t.group_sets[0, one] -= 1
    t.group_mask[node] = 0
    return True


@inner
def take_best(
    t: Tables, class_id: int, group: int, groups: int, spread: int, keys: Ints, nodes: Ints, count: int, out: Ints,
    found: int,
) -> int:  # fmt: skip
    """Write the listed nodes of least rank that a group may take, from `found` on; how many are written then.

    spread: the level over whose domains they are spread, -1 = over none.
    """
    sort_pairs(keys, nodes, count)
    if spread >= 0:
        return _take_evenly(t, class_id, group, groups, spread, keys, nodes, count, out, found)
    left = t.classes[class_id, C_NODES]
    for k in range(count):
        if left > 0 and take_in_group(t, nodes[k], group, groups):
            out[found] = nodes[k]
            found += 1
            left -= 1
    return found


@inner
def _take_evenly(
    t: Tables, class_id: int, group: int, groups: int, spread: int, keys: Ints, nodes: Ints, count: int, out: Ints,
    found: int,
) -> int:  # fmt: skip
    """The same, one by one: each from the domain of a level of which the job has fewest nodes."""
    outside = chain_by_domain(t, spread, nodes, count)
    left = t.classes[class_id, C_NODES]
    for _ in range(count):
        if left == 0:
            break
        domain = next_domain(t, spread, keys)
        k = t.choice[CHOICE_HEAD, domain] if domain >= 0 else outside
        if domain >= 0:
            t.choice[CHOICE_HEAD, domain] = t.choice[CHOICE_TAKEN, k]
        else:
            outside = t.choice[CHOICE_TAKEN, k]
        # What it may not take now it may not take later: others have less to spare then.
        if take_in_group(t, nodes[k], group, groups):
            if domain >= 0:
                t.choice[CHOICE_BESIDE, domain] += 1
            out[found] = nodes[k]
            found += 1
            left -= 1
    return found


@inner
def choose_claims(t: Tables, class_id: int, groups: int, row: int, unreserved: bool) -> bool:
    """Nodes for a job whose time is never (scratch[row]), group by group: first those that fit now, then those that
    could; none that is booked, or, `unreserved`, reserved. Whether there are enough."""
    now = t.pass_record[PASS_NOW]
    resources = t.meta[M_RESOURCES]
    for node in range(t.meta[M_NODES]):
        mask = 0
        one = class_id
        for group in range(groups):
            shape = t.classes[one, C_SHAPE]
            if (
                (not unreserved or t.rows[node, N_RESERVED] < 0)
                and t.allowed[t.shapes[shape, S_CSET], node] != 0
                and fits(t, t.capacity, node, shape, resources)
                and (t.meta[M_BOOKINGS] == 0 or booked_start(t, node, shape, now, t.pass_record[PASS_WALL]) == now)
            ):
                mask |= 1 << group
            one = next_group(t, one)
        t.group_mask[node] = mask
    if not begin_sets(t, class_id, groups):
        return False
    found = 0
    one = class_id
    for group in range(groups):
        left = t.classes[one, C_NODES]
        for later in range(2):
            for node in range(t.meta[M_NODES]):
                if (
                    left > 0
                    and t.group_mask[node] >> group & 1
                    and fits(t, t.free, node, t.classes[one, C_SHAPE], resources) == (later == 0)
                    and take_in_group(t, node, group, groups)
                ):
                    t.scratch[row, found] = node
                    found += 1
                    left -= 1
        one = next_group(t, one)
    return True


@inner
def could_ever(t: Tables, class_id: int, groups: int) -> bool:
    """Whether the nodes that are up could hold all groups at once when they are empty."""
    resources = t.meta[M_RESOURCES]
    for node in range(t.meta[M_NODES]):
        mask = 0
        one = class_id
        for group in range(groups):
            shape = t.classes[one, C_SHAPE]
            if t.allowed[t.shapes[shape, S_CSET], node] != 0 and fits(t, t.capacity, node, shape, resources):
                mask |= 1 << group
            one = next_group(t, one)
        t.group_mask[node] = mask
    return begin_sets(t, class_id, groups)


# --- nodes for a start -----------------------------------------------------------------------------------------------


@inner
def choose_for_groups(t: Tables, entry: int, class_id: int, end: int) -> bool:
    """Write the nodes of all groups for the next starts, group by group; whether there are enough. `end`: planned end.

    Each group prefers nodes as any other work does, the first group first.
    """
    groups = count_groups(t, class_id)
    resources = t.meta[M_RESOURCES]
    scored = t.meta[M_PLACEMENT] != PLACE_FIRST or prefers(t, entry)
    for node in range(t.meta[M_NODES]):
        mask = 0
        one = class_id
        for group in range(groups):
            if usable_tier(t, node, t.classes[one, C_SHAPE], end, scored, resources) != NO_TIER:
                mask |= 1 << group
            one = next_group(t, one)
        t.group_mask[node] = mask
    if not begin_sets(t, class_id, groups):
        return False
    keys = t.scratch[SCRATCH_ENDS]
    nodes = t.scratch[SCRATCH_SHAPES]
    found = t.pass_record[PASS_FIRST_NODE] + t.pass_record[PASS_NODES]
    spread = begin_spread(t, entry)
    one = class_id
    for group in range(groups):
        shape = t.classes[one, C_SHAPE]
        count = 0
        for node in range(t.meta[M_NODES]):
            if t.group_mask[node] >> group & 1:
                tier = usable_tier(t, node, shape, end, scored, resources)
                keys[count] = rank_for_group(t, entry, one, tier, SCORE_ONE, node, shape, resources)
                nodes[count] = node
                count += 1
        found = take_best(t, one, group, groups, spread, keys, nodes, count, t.start_nodes, found)
        one = next_group(t, one)
    return True
