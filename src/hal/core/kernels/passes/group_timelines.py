"""Jobs of several groups where nodes have timelines: when all groups can have enough nodes at once, and which ones.

Pure but for scratch. All groups begin at one instant from which on each has enough nodes that stay free for the whole
planned time; whether there are enough for all of them at once is counted by sets of groups (see `group_sets`).
O(nodes x groups) for each instant that is tried.
"""

from __future__ import annotations

from hal.core.kernels.nodes.reach import competes
from hal.core.kernels.passes.group_sets import begin_sets, take_best, take_in_group
from hal.core.kernels.passes.group_tastes import begin_spread, rank_for_group
from hal.core.kernels.passes.groups import count_groups, next_group
from hal.core.kernels.passes.node_choice import tier_of
from hal.core.kernels.passes.node_scores import SCORE_ONE
from hal.core.kernels.passes.planned_reservations import is_passed
from hal.core.kernels.rules.licences import licence_start, waits_apart
from hal.core.kernels.structures.bounds import goes_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    C_NODES,
    C_SHAPE,
    COUNT_RESERVATIONS,
    INF,
    LOWEST,
    M_MAX_RESERVATIONS,
    M_NODES,
    M_RESOURCES,
    PASS_FIRST_NODE,
    PASS_NODES,
    PASS_NOW,
    PASS_WALL,
    S_LINE,
    SCRATCH_BEGINS,
    SCRATCH_CANDIDATES,
    SCRATCH_CHOSEN,
    SCRATCH_VALUES,
    V_CLASS,
    V_ENTRY,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import select, sort_pairs
from hal.core.kernels.timelines.lines import FEW_NODES, line_of
from hal.core.kernels.timelines.node_intervals import came_free, next_start


@inner
def groups_are_closed(t: Tables, class_id: int) -> bool:
    """Whether as many jobs ahead as may hold reservations compete with some group of a job."""
    if t.counts[COUNT_RESERVATIONS] < t.meta[M_MAX_RESERVATIONS]:
        return False
    groups = count_groups(t, class_id)
    ahead = 0
    counted = -1
    for k in range(t.counts[COUNT_RESERVATIONS]):
        entry = t.planned[k, V_ENTRY]
        if entry < 0 or entry == counted or not is_passed(t, k):
            continue
        other = t.classes[t.planned[k, V_CLASS], C_SHAPE]
        one = class_id
        for _ in range(groups):
            if entry != counted and competes(t, t.classes[one, C_SHAPE], other):
                counted = entry
                ahead += 1
            one = next_group(t, one)
        if ahead >= t.meta[M_MAX_RESERVATIONS]:
            return True
    return False


@inner
def earliest_of_groups(
    t: Tables, reservations: int, mine: int, class_id: int, planned: int, since: int, limit: int
) -> int:
    """The earliest instant in [since, limit) at which all groups, and their licences, can begin; INF = none.

    Args:
        reservations: how many there are. mine: the job's first one, -1.
    """
    shape = t.classes[class_id, C_SHAPE]
    begin = _nodes_from(t, class_id, planned, since, limit)
    tries = 0
    most = t.profile.shape[0] + t.holding.shape[1] + t.licence_events.shape[1] + t.booking_times.shape[0]
    while goes_on(t, waits_apart(t, shape) and begin < limit, tries, most):
        tries += 1
        later = licence_start(t, reservations, mine, shape, begin, planned, t.pass_record[PASS_WALL])
        if later == begin:
            break
        begin = _nodes_from(t, class_id, planned, later, limit) if later < limit else INF
    return int(begin)


@inner
def _nodes_from(t: Tables, class_id: int, planned: int, since: int, before: int) -> int:
    """The same by nodes alone. Leaves in `group_mask` which groups each node does for then."""
    groups = count_groups(t, class_id)
    rows = t.meta[M_NODES]
    values = t.scratch[SCRATCH_VALUES]
    _draw_lines(t, class_id, groups)
    for group in range(groups):
        for node in range(rows):
            t.group_ready[group, node] = LOWEST
    at = since
    tries = 0
    # Each round begins where some node comes free for some group, or a booking ends: later than the one before.
    most = groups * (t.profile.shape[0] + rows * (1 + t.booked.shape[0])) + 1
    while goes_on(t, at < before, tries, most):
        tries += 1
        least = at
        following = INF
        for node in range(rows):
            t.group_mask[node] = 0
        one = class_id
        for group in range(groups):
            shape = t.classes[one, C_SHAPE]
            line = _line(t, shape)
            count = 0
            for node in range(rows):
                begin = t.group_ready[group, node]
                if begin < at:
                    begin = next_start(t, line, node, shape, at, planned, before)
                    t.group_ready[group, node] = begin
                if begin < before:
                    values[count] = begin
                    count += 1
                    if begin == at:
                        t.group_mask[node] |= 1 << group
                    else:
                        following = min(following, begin)
            if count < t.classes[one, C_NODES]:
                return INF
            least = max(least, select(values, count, t.classes[one, C_NODES] - 1))
            one = next_group(t, one)
        if least == at and begin_sets(t, class_id, groups):
            return int(at)
        at = least if least > at else following
    return INF


@inner
def _draw_lines(t: Tables, class_id: int, groups: int) -> None:
    """Bring the lines of all groups up to date."""
    one = class_id
    for _ in range(groups):
        line_of(t, t.classes[one, C_SHAPE])
        one = next_group(t, one)


@inner
def _line(t: Tables, shape: int) -> int:
    """The line of a shape for which `_draw_lines` was called, -1: it has none."""
    return int(t.shapes[shape, S_LINE] - 1) if t.meta[M_NODES] > FEW_NODES else -1


@inner
def _mark_those_from(t: Tables, class_id: int, groups: int, planned: int, begin: int) -> bool:
    """Write down for which groups each node does from an instant on; whether there are enough."""
    _draw_lines(t, class_id, groups)
    for node in range(t.meta[M_NODES]):
        t.group_mask[node] = 0
    one = class_id
    for group in range(groups):
        shape = t.classes[one, C_SHAPE]
        line = _line(t, shape)
        for node in range(t.meta[M_NODES]):
            if next_start(t, line, node, shape, begin, planned, begin + 1) == begin:
                t.group_mask[node] |= 1 << group
        one = next_group(t, one)
    return begin_sets(t, class_id, groups)


@inner
def choose_groups_later(t: Tables, class_id: int, planned: int, begin: int) -> None:
    """Nodes for reservations (SCRATCH_CHOSEN), group by group: of those that do from `begin` on, those free latest."""
    groups = count_groups(t, class_id)
    _mark_those_from(t, class_id, groups, planned, begin)
    keys = t.scratch[SCRATCH_BEGINS]
    nodes = t.scratch[SCRATCH_CANDIDATES]
    last = t.meta[M_NODES] - 1
    found = 0
    one = class_id
    for group in range(groups):
        shape = t.classes[one, C_SHAPE]
        line = _line(t, shape)
        count = 0
        for node in range(t.meta[M_NODES]):
            if t.group_mask[node] >> group & 1:
                keys[count] = -came_free(t, line, node, shape, begin)
                nodes[count] = last - node
                count += 1
        sort_pairs(keys, nodes, count)
        left = t.classes[one, C_NODES]
        for k in range(count):
            if left > 0 and take_in_group(t, last - nodes[k], group, groups):
                t.scratch[SCRATCH_CHOSEN, found] = last - nodes[k]
                found += 1
                left -= 1
        one = next_group(t, one)


@inner
def choose_groups_now(t: Tables, entry: int, class_id: int, planned: int) -> None:
    """Nodes for the next starts, group by group: first those reserved for others from its end on, then by score."""
    groups = count_groups(t, class_id)
    now = t.pass_record[PASS_NOW]
    resources = t.meta[M_RESOURCES]
    end = min(now + planned, INF)
    _mark_those_from(t, class_id, groups, planned, now)
    keys = t.scratch[SCRATCH_BEGINS]
    nodes = t.scratch[SCRATCH_CANDIDATES]
    found = t.pass_record[PASS_FIRST_NODE] + t.pass_record[PASS_NODES]
    spread = begin_spread(t, entry)
    one = class_id
    for group in range(groups):
        shape = t.classes[one, C_SHAPE]
        count = 0
        for node in range(t.meta[M_NODES]):
            if t.group_mask[node] >> group & 1:
                tier = tier_of(t, node, end)
                keys[count] = rank_for_group(t, entry, one, tier, 4 * SCORE_ONE, node, shape, resources)
                nodes[count] = node
                count += 1
        found = take_best(t, one, group, groups, spread, keys, nodes, count, t.start_nodes, found)
        one = next_group(t, one)
