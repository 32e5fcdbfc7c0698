"""Whose running work to preempt so that all groups of one waiting job can start: `victims`, for several shapes at once.

Pure but for scratch. For each group it is worked out what clearing a node for it costs (`node_prices`); whether all
groups have enough nodes is counted by sets of groups (`group_sets`). The cheapest pairs of node and group are cleared,
first those alone that leave fewer nodes lacking, until none lacks; then, from the victim that loses most, every one
without which all groups still have enough is let be. The nodes are chosen as for any start of groups, by what is free
when the victims have left.
O(attempts on the nodes x groups + nodes x groups x (log nodes + 2**groups) + victims x their nodes x groups).
"""

from __future__ import annotations

from typing import Any, Final

from hal.core.kernels.nodes.domains import first_domain, last_domain, level_within
from hal.core.kernels.nodes.ends import ends_root
from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.passes.group_sets import begin_sets, count_sets, take_best
from hal.core.kernels.passes.group_tastes import begin_spread, rank_for_group
from hal.core.kernels.passes.groups import (
    all_groups_wait,
    count_groups,
    entry_of_group,
    fits_ever,
    next_group,
    nodes_of_groups,
)
from hal.core.kernels.passes.node_scores import SCORE_ONE
from hal.core.kernels.preemption.moving import keep_reserved
from hal.core.kernels.preemption.node_prices import (
    fits_by,
    gives,
    is_going,
    look_at,
    mode_of,
    pick,
    price_of,
    shape_of,
)
from hal.core.kernels.preemption.searched import waiting_entry
from hal.core.kernels.preemption.victims import (
    FOUND,
    MOST_A_NODE,
    NOTHING,
    UNFINISHED,
    all_gone_by,
    begin_search,
    drop_spared,
    node_free_by,
)
from hal.core.kernels.rules.booked import booked_start
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.bounds import goes_on, leads_on
from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    B_CLASS,
    C_NODES,
    C_SHAPE,
    DOMAIN_FIRST,
    DOMAIN_LAST,
    E_BUCKET,
    INF,
    M_BOOKINGS,
    M_NODES,
    M_RESOURCES,
    MAX_CANDIDATES,
    MAX_GROUPS,
    P_NEXT,
    P_NODE,
    PASS_NOW,
    PASS_WALL,
    PASS_WORK,
    R_MARK,
    R_PIECE,
    S_CSET,
    SCRATCH_CHOSEN,
    SCRATCH_ENDS,
    SCRATCH_ORDER,
    SCRATCH_PRICES,
    SCRATCH_SHAPES,
    SEARCH_COST,
    SEARCH_FREE,
    SEARCH_JOBS,
    SEARCH_KEPT,
    SEARCH_YOUTH,
    SEEK_COUNT,
    SEEK_DUE,
    SEEK_GANG,
    SEEK_NODE,
    SEEK_OFFERED,
    SEEK_SHAPE,
    SEEK_STAMP,
    SEEK_YOUTH,
    T_KEY,
    T_RIGHT,
    TICK,
    TICK_SEARCH,
)
from hal.core.kernels.structures.memory import Tables, tables
from hal.core.kernels.structures.sorting import sort_pairs
from hal.core.kernels.structures.treap import tree_descend

WHICH: Final = MAX_GROUPS
"""In `search_groups`: from this line on the nodes of each group that may be cleared, the cheapest first."""


@kernel
def seek_groups(at: Any, job: int, task: int, now: int, node: int, budget: int) -> int:
    """Search for a waiting job with several groups, from a node on, as `seek` does. `task` is its first group's.

    The search record says the same; the nodes in SCRATCH_CHOSEN are those of one group after the other, whose entries
    are in SCRATCH_ORDER. Returns FOUND, NOTHING or UNFINISHED.
    """
    t = tables(at)
    s = t.search_record
    t.pass_record[PASS_NOW] = now
    t.pass_record[PASS_WORK] = 0
    entry = waiting_entry(t, job, task)
    if not _begin_groups(t, entry):
        t.pass_record[PASS_WORK] = 1
        return NOTHING
    class_id = t.buckets[t.entries[entry, E_BUCKET], B_CLASS]
    groups = count_groups(t, class_id)
    if node == 0:
        t.ticks[TICK] += 1
        t.ticks[TICK_SEARCH] = t.ticks[TICK]
    s[SEEK_STAMP] = t.ticks[TICK_SEARCH]
    s[SEEK_OFFERED] = 0
    if node == 0:
        keep_reserved(t, False)
    for row in range(node, t.meta[M_NODES]):
        if row > node and t.pass_record[PASS_WORK] >= budget:
            s[SEEK_NODE] = row
            return UNFINISHED
        t.pass_record[PASS_WORK] += 1
        _look_for_all(t, row, class_id, groups)
    for row in range(t.meta[M_NODES]):
        s[SEEK_YOUTH] = min(s[SEEK_YOUTH], t.search[row, SEARCH_YOUTH])
    if not _could_be_cleared(t, class_id, groups):
        return NOTHING
    count = _take_nodes(t, class_id, groups)
    if count == 0 or _lacking(t, groups) > 0:
        return NOTHING
    s[SEEK_COUNT] = _spare_needless(t, class_id, groups, count)
    if s[SEEK_COUNT] == 0 or not _choose_nodes(t, entry, class_id, groups):
        return NOTHING
    s[SEEK_DUE] = _latest_free(t, class_id, groups)
    if _come_free(t, class_id, groups, s[SEEK_DUE]):
        return NOTHING
    for group in range(groups):
        t.scratch[SCRATCH_ORDER, group] = entry_of_group(t, entry, group)
    return FOUND


@inner
def _begin_groups(t: Tables, entry: int) -> bool:
    """Describe the search in its record. Returns whether it may find something."""
    if not begin_search(t, entry, 0):
        return False
    class_id = t.buckets[t.entries[entry, E_BUCKET], B_CLASS]
    t.search_record[SEEK_GANG] = nodes_of_groups(t, class_id)
    if t.search_record[SEEK_GANG] > t.meta[M_NODES]:
        return False
    return fits_ever(t, class_id) and all_groups_wait(t, entry, class_id)


@inner
def _look_for_all(t: Tables, node: int, class_id: int, groups: int) -> None:
    """The price of one node for each group, -1 = it cannot be cleared for it."""
    youth = INF
    one = class_id
    for group in range(groups):
        t.search_record[SEEK_SHAPE] = t.classes[one, C_SHAPE]
        look_at(t, node)
        youth = min(youth, t.search[node, SEARCH_YOUTH])
        cost = t.search[node, SEARCH_COST]
        price = cost * (MAX_CANDIDATES * 2) + t.search[node, SEARCH_JOBS]
        t.search_groups[group, node] = price if cost >= 0 else -1
        one = next_group(t, one)
    t.search[node, SEARCH_YOUTH] = youth


@inner
def _could_be_cleared(t: Tables, class_id: int, groups: int) -> bool:
    """Whether enough nodes could be cleared for all groups at once; where they are to be in one domain, all nodes are
    left out but those of the one that is cleared for the least."""
    t.pass_record[PASS_WORK] += groups * t.meta[M_NODES]
    for node in range(t.meta[M_NODES]):
        mask = 0
        for group in range(groups):
            if t.search_groups[group, node] >= 0:
                mask |= 1 << group
        t.group_mask[node] = mask
    level = level_within(t, t.classes[class_id, C_SHAPE])
    if level < 0:
        return count_sets(t, class_id, groups, -1)
    best = -1
    least = INF
    for k in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[k]
        there = t.domains[domain, DOMAIN_LAST] - t.domains[domain, DOMAIN_FIRST]
        t.pass_record[PASS_WORK] += there
        if there < t.search_record[SEEK_GANG] or not count_sets(t, class_id, groups, domain):
            continue
        price = _price_of(t, class_id, groups, domain)
        if price < least:
            least = price
            best = domain
    for node in range(t.meta[M_NODES]):
        if best < 0 or t.domain_of[level, node] != best + 1:
            for group in range(groups):
                t.search_groups[group, node] = -1
    return best >= 0


@inner
def _price_of(t: Tables, class_id: int, groups: int, domain: int) -> int:
    """What the cheapest nodes of a domain cost, group by group, each by itself."""
    prices = t.scratch[SCRATCH_PRICES]
    order = t.scratch[SCRATCH_ORDER]
    total = 0
    one = class_id
    for group in range(groups):
        count = 0
        for place in range(t.domains[domain, DOMAIN_FIRST], t.domains[domain, DOMAIN_LAST]):
            node = t.node_order[place]
            if t.search_groups[group, node] >= 0:
                prices[count] = min(t.search_groups[group, node], MOST_A_NODE)
                order[count] = node
                count += 1
        sort_pairs(prices, order, count)
        for k in range(min(t.classes[one, C_NODES], count)):
            total = min(total + prices[k], INF - 1)
        one = next_group(t, one)
    return int(total)


# --- which nodes are cleared, by sets of groups ----------------------------------------------------------------------


@inner
def _does_for(t: Tables, node: int, class_id: int, groups: int) -> int:
    """For which groups a node does by what is free there when the victims so far have left: a bit for each."""
    mask = 0
    one = class_id
    for group in range(groups):
        t.search_record[SEEK_SHAPE] = t.classes[one, C_SHAPE]
        if t.search_groups[group, node] >= 0 and fits_by(t, node, 0):
            mask |= 1 << group
        one = next_group(t, one)
    return mask


@inner
def _lacking(t: Tables, groups: int) -> int:
    """How many nodes the groups lack together: most that any set of them lacks."""
    lacking = 0
    for one in range(1, 1 << groups):
        lacking = max(lacking, -t.group_sets[0, one])
    return int(lacking)


@inner
def _helps(t: Tables, node: int, group: int, groups: int, lacking: int) -> bool:
    """Whether fewer nodes lack if a node does for a group, too: if each set that lacks most gains it."""
    mask = t.group_mask[node]
    for one in range(1, 1 << groups):
        if t.group_sets[0, one] == -lacking and ((one >> group & 1) == 0 or one & mask != 0):
            return False
    return True


@inner
def _clear_for_all(t: Tables, run: int, sign: int, class_id: int, groups: int) -> None:
    """Give (or take) what a victim frees on all its nodes, and count again for which groups these do."""
    resources = t.meta[M_RESOURCES]
    mode = mode_of(t, run)
    piece = t.runs[run, R_PIECE]
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        node = t.pieces[piece, P_NODE]
        piece = t.pieces[piece, P_NEXT]
        t.pass_record[PASS_WORK] += 1
        counts = False
        for group in range(groups):
            counts = counts or t.search_groups[group, node] >= 0
        if not counts:
            continue
        for r in range(resources):
            t.search[node, SEARCH_FREE + r] += sign * gives(t, run, mode, r)
        before = t.group_mask[node]
        after = _does_for(t, node, class_id, groups)
        t.group_mask[node] = after
        for one in range(1, 1 << groups):
            t.group_sets[0, one] += int(one & after != 0) - int(one & before != 0)


@inner
def _take_nodes(t: Tables, class_id: int, groups: int) -> int:
    """Mark victims until no group lacks nodes, or all that could be cleared is; how many victims."""
    t.pass_record[PASS_WORK] += groups * t.meta[M_NODES]
    for node in range(t.meta[M_NODES]):
        t.group_mask[node] = _does_for(t, node, class_id, groups)
    count_sets(t, class_id, groups, -1)
    sizes = t.scratch[SCRATCH_PRICES]  # there are at least as many nodes as groups
    heads = t.scratch[SCRATCH_ORDER]
    for group in range(groups):
        size = 0
        for node in range(t.meta[M_NODES]):
            if t.search_groups[group, node] > 0:
                t.group_ready[group, size] = t.search_groups[group, node]
                t.search_groups[WHICH + group, size] = node
                size += 1
        sort_pairs(t.group_ready[group], t.search_groups[WHICH + group], size)
        sizes[group] = size
    count = 0
    lacking = _lacking(t, groups)
    for helping in range(2):
        for group in range(groups):
            heads[group] = 0
        for _ in range(groups * t.meta[M_NODES]):
            group = _cheapest(t, groups, heads, sizes) if lacking > 0 else -1
            if group < 0:
                break
            node = t.search_groups[WHICH + group, heads[group]]
            heads[group] += 1
            if t.group_mask[node] >> group & 1:
                continue
            # A node that helps nobody by itself may do so once another one is cleared: those come second.
            if helping == 0 and not _helps(t, node, group, groups, lacking):
                continue
            count = _clear_node(t, node, group, class_id, groups, count)
            lacking = _lacking(t, groups)
    return count


@inner
def _cheapest(t: Tables, groups: int, heads: Ints, sizes: Ints) -> int:
    """The group whose next node is cleared for the least, -1 = there is none any more."""
    best = -1
    for group in range(groups):
        if heads[group] < sizes[group] and (
            best < 0 or t.group_ready[group, heads[group]] < t.group_ready[best, heads[best]]
        ):
            best = group
    return best


@inner
def _clear_node(t: Tables, node: int, group: int, class_id: int, groups: int, count: int) -> int:
    """Mark the victims on a node that make room for a group; how many there are then in all."""
    one = class_id
    for _ in range(group):
        one = next_group(t, one)
    t.search_record[SEEK_SHAPE] = t.classes[one, C_SHAPE]
    taken = pick(t, node)
    # Picking asked for no other node, so the picks stay as they are while their victims are marked.
    for k in range(taken):
        if t.picks[3, k] == 1:
            run = t.picks[1, k]
            t.runs[run, R_MARK] = t.search_record[SEEK_STAMP]
            t.victims[0, count] = price_of(t, run, mode_of(t, run))
            t.victims[1, count] = run
            count += 1
            _clear_for_all(t, run, 1, class_id, groups)
    return count


@inner
def _spare_needless(t: Tables, class_id: int, groups: int, count: int) -> int:
    """From the one that loses most, let every victim be without whom no group lacks a node; how many are left."""
    sort_pairs(t.victims[0], t.victims[1], count)
    for k in range(count - 1, -1, -1):
        run = t.victims[1, k]
        _clear_for_all(t, run, -1, class_id, groups)
        if _lacking(t, groups) == 0:
            t.victims[1, k] = -1
        else:
            _clear_for_all(t, run, 1, class_id, groups)
    return drop_spared(t, count)


# --- the nodes of all groups -----------------------------------------------------------------------------------------


@inner
def _exchange(t: Tables, node: int) -> None:
    """Let what is free when the victims have left take the place of what is free, or the other way round."""
    for r in range(t.meta[M_RESOURCES]):
        t.free[node, r], t.search[node, SEARCH_FREE + r] = t.search[node, SEARCH_FREE + r], t.free[node, r]


@inner
def _choose_nodes(t: Tables, entry: int, class_id: int, groups: int) -> bool:
    """Nodes for all groups (SCRATCH_CHOSEN), one group after the other, as for a start: those that are free now come
    first, then by rank. Whether there are enough."""
    resources = t.meta[M_RESOURCES]
    for node in range(t.meta[M_NODES]):
        t.group_mask[node] = _does_for(t, node, class_id, groups)
    if not begin_sets(t, class_id, groups):
        return False
    keys = t.scratch[SCRATCH_ENDS]
    nodes = t.scratch[SCRATCH_SHAPES]
    spread = begin_spread(t, entry)
    found = 0
    one = class_id
    for group in range(groups):
        shape = t.classes[one, C_SHAPE]
        count = 0
        for node in range(t.meta[M_NODES]):
            if t.group_mask[node] >> group & 1:
                tier = 0 if fits(t, t.free, node, shape, resources) else 2
                _exchange(t, node)
                keys[count] = rank_for_group(t, entry, one, tier, SCORE_ONE, node, shape, resources)
                _exchange(t, node)
                nodes[count] = node
                count += 1
        found = take_best(t, one, group, groups, spread, keys, nodes, count, t.scratch[SCRATCH_CHOSEN], found)
        one = next_group(t, one)
    return bool(found == t.search_record[SEEK_GANG])


@inner
def _latest_free(t: Tables, class_id: int, groups: int) -> int:
    """When the last of the chosen nodes is free at the latest."""
    due = all_gone_by(t, t.search_record[SEEK_COUNT])
    first = 0
    one = class_id
    for _ in range(groups):
        for k in range(first, first + t.classes[one, C_NODES]):
            due = max(due, node_free_by(t, t.scratch[SCRATCH_CHOSEN, k], t.classes[one, C_SHAPE]))
        first += t.classes[one, C_NODES]
        one = next_group(t, one)
    return int(due)


@inner
def _come_free(t: Tables, class_id: int, groups: int, until: int) -> bool:
    """Whether enough nodes for all groups come free by planned ends alone until an instant."""
    now = t.pass_record[PASS_NOW]
    resources = t.meta[M_RESOURCES]
    block = SEARCH_FREE + resources  # that for trying
    for node in range(t.meta[M_NODES]):
        for r in range(resources):
            t.search[node, block + r] = t.free[node, r]
    depth = tree_descend(t.ends, ends_root(t), t.path, 0)
    seen = 0
    while goes_on(t, depth > 0, seen, t.ends.shape[0]):
        seen += 1
        run = t.path[depth - 1]
        if t.ends[run, T_KEY] > until:
            break
        depth = tree_descend(t.ends, t.ends[run, T_RIGHT], t.path, depth - 1)
        if t.ends[run, T_KEY] <= now and not is_going(t, run):
            continue  # it outlives its plan: nobody knows when it ends
        piece = t.runs[run, R_PIECE]
        walked = 0
        while leads_on(t, piece, walked, t.pieces.shape[0]):
            walked += 1
            t.pass_record[PASS_WORK] += 1
            for r in range(resources):
                t.search[t.pieces[piece, P_NODE], block + r] += t.request[r, shape_of(t, run)]
            piece = t.pieces[piece, P_NEXT]
    for node in range(t.meta[M_NODES]):
        mask = 0
        one = class_id
        for group in range(groups):
            t.search_record[SEEK_SHAPE] = t.classes[one, C_SHAPE]
            if _may_be_on(t, node, t.classes[one, C_SHAPE]) and fits_by(t, node, 1):
                mask |= 1 << group
            one = next_group(t, one)
        t.group_mask[node] = mask
    return begin_sets(t, class_id, groups)


@inner
def _may_be_on(t: Tables, node: int, shape: int) -> bool:
    """Whether nothing but what is taken there keeps a group from a node now: as `look_at` asks."""
    if t.search[node, SEARCH_KEPT] == t.search_record[SEEK_STAMP] or t.open_now[t.shapes[shape, S_CSET], node] == 0:
        return False
    now = t.pass_record[PASS_NOW]
    return bool(t.meta[M_BOOKINGS] == 0 or booked_start(t, node, shape, now, t.pass_record[PASS_WALL]) == now)
