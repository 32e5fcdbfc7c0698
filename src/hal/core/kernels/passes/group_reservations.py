"""EASY's reservation for a job of several groups: one instant for all of them, and nodes for each.

The instant is the earliest release, or end of a booking, at which all groups can have enough nodes at once. Each group
has a reservation of its own, of the same job and with the same start, so whoever competes with any of them waits for
all. Pure but for scratch. O(nodes x groups x log time); where bookings are ahead, O(nodes x groups) for each instant at
which the counts would do.
"""

from __future__ import annotations

from hal.core.kernels.passes.group_sets import begin_sets, choose_claims, could_ever, take_in_group
from hal.core.kernels.passes.groups import count_groups, next_group
from hal.core.kernels.passes.head_reservations import (
    add_reservation,
    hold_nodes,
    list_due,
    list_ready_nodes,
    project,
)
from hal.core.kernels.rules.booked import booked_start
from hal.core.kernels.rules.licences import licence_shadow
from hal.core.kernels.structures.bounds import goes_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_CLASS,
    BACKFILL_NONE,
    C_NODES,
    C_SHAPE,
    COUNT_RESERVATIONS,
    COUNT_RESERVED,
    E_BLOCKED_AT,
    E_BUCKET,
    E_PLANNED,
    INF,
    KIND_BLOCK,
    KIND_CLAIM,
    KIND_NEVER,
    KIND_RESERVED,
    M_BACKFILL,
    M_BOOKINGS,
    M_CLAIM_AFTER,
    M_NODES,
    PASS_NOW,
    PASS_STAMP,
    PASS_WALL,
    Q_NODE,
    S_LICENCES,
    SCRATCH_ENDS,
    SCRATCH_RANKS,
    SCRATCH_SHAPES,
    V_CLASS,
    V_FIRST,
    V_KIND,
    V_START,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import select, sort_pairs


@inner
def reserve_groups(t: Tables, entry: int) -> bool:
    """Reserve nodes for all groups of a job that is the first to wait, or claim them. Whether it may ever start: where
    the nodes that are up could not hold all groups at once, nobody waits for it."""
    class_id = t.buckets[t.entries[entry, E_BUCKET], B_CLASS]
    groups = count_groups(t, class_id)
    if not could_ever(t, class_id, groups):
        return False
    first = t.counts[COUNT_RESERVATIONS]
    one = class_id
    for _ in range(groups):
        mine = add_reservation(t, entry, 0)
        t.planned[mine, V_CLASS] = one
        t.planned[mine, V_KIND] = KIND_BLOCK
        one = next_group(t, one)
    if t.meta[M_BACKFILL] == BACKFILL_NONE:
        return True
    due = list_due(t)
    one = class_id
    for group in range(groups):
        shape = t.classes[one, C_SHAPE]
        stamp = t.pass_record[PASS_STAMP] + first + group
        newly, _shadow, _line = project(t, shape, -stamp, due, INF, INF, False)
        list_ready_nodes(t, shape, newly)
        for node in range(t.meta[M_NODES]):
            t.group_ready[group, node] = t.scratch[SCRATCH_ENDS, node]
        one = next_group(t, one)
    shadow = _earliest_together(t, entry, class_id, groups)
    chosen = _choose_latest(t, class_id, groups, shadow) if shadow >= 0 else _choose_claims(t, entry, class_id, groups)
    kind = KIND_RESERVED if shadow >= 0 else KIND_CLAIM if chosen else KIND_NEVER
    taken = 0
    one = class_id
    for group in range(groups):
        mine = first + group
        stamp = t.pass_record[PASS_STAMP] + mine
        t.planned[mine, V_KIND] = kind
        t.planned[mine, V_FIRST] = t.counts[COUNT_RESERVED]
        found = t.classes[one, C_NODES] if chosen else 0
        if shadow >= 0:
            t.planned[mine, V_START] = shadow
            project(t, t.classes[one, C_SHAPE], stamp, due, INF, shadow, False)
        for k in range(found):
            t.planned_nodes[t.counts[COUNT_RESERVED] + k, Q_NODE] = t.scratch[SCRATCH_RANKS, taken + k]
        hold_nodes(t, mine, found, shadow, -1, stamp)
        taken += found
        one = next_group(t, one)
    return True


@inner
def _earliest_together(t: Tables, entry: int, class_id: int, groups: int) -> int:
    """The earliest instant at which all groups can have enough nodes, and licences are there; -1 = never."""
    since = t.pass_record[PASS_NOW]
    shape = t.classes[class_id, C_SHAPE]
    if t.meta[M_BOOKINGS] > 0 or t.shapes[shape, S_LICENCES] != 0:
        since = licence_shadow(t, shape, t.entries[entry, E_PLANNED], t.pass_record[PASS_WALL])
        if since < 0:
            return -1
    if t.meta[M_BOOKINGS] > 0:
        return _between_bookings(t, class_id, groups, since)
    last = since
    for group in range(groups):
        for node in range(t.meta[M_NODES]):
            if t.group_ready[group, node] < INF:
                last = max(last, t.group_ready[group, node])
    if not _together_at(t, class_id, groups, last):
        return -1
    low = since - 1
    rounds = 0
    while goes_on(t, last - low > 1, rounds, 64):  # a node that fits stays fitting: only releases are ahead
        rounds += 1
        middle = (low + last) // 2
        if _together_at(t, class_id, groups, middle):
            last = middle
        else:
            low = middle
    return int(last)


@inner
def _between_bookings(t: Tables, class_id: int, groups: int, since: int) -> int:
    """The same where bookings are ahead: nodes that fit do not do at any time."""
    values = t.scratch[SCRATCH_SHAPES]
    at = since
    tries = 0
    # Each round begins where a node becomes free for some group: later than the one before.
    while goes_on(t, True, tries, groups * t.meta[M_NODES] * (1 + t.booked.shape[0]) + 1):
        tries += 1
        if _together_at(t, class_id, groups, at):
            return int(at)
        following = INF
        least = at
        one = class_id
        for group in range(groups):
            count = 0
            for node in range(t.meta[M_NODES]):
                begin = _begin_of(t, group, node, t.classes[one, C_SHAPE], at)
                if begin < INF:
                    values[count] = begin
                    count += 1
                    if begin > at:
                        following = min(following, begin)
            if count < t.classes[one, C_NODES]:
                return -1
            least = max(least, select(values, count, t.classes[one, C_NODES] - 1))
            one = next_group(t, one)
        if following >= INF:
            return -1
        at = max(least, following)
    return -1


@inner
def _begin_of(t: Tables, group: int, node: int, shape: int, since: int) -> int:
    """From when on, not before `since`, a group may be on a node; INF = never."""
    ready = t.group_ready[group, node]
    if ready >= INF or t.meta[M_BOOKINGS] == 0:
        return int(max(ready, since))
    return int(booked_start(t, node, shape, max(ready, since), t.pass_record[PASS_WALL]))


@inner
def _together_at(t: Tables, class_id: int, groups: int, at: int) -> bool:
    """Whether all groups can have enough nodes at an instant."""
    for node in range(t.meta[M_NODES]):
        mask = 0
        one = class_id
        for group in range(groups):
            if _begin_of(t, group, node, t.classes[one, C_SHAPE], at) == at:
                mask |= 1 << group
            one = next_group(t, one)
        t.group_mask[node] = mask
    return begin_sets(t, class_id, groups)


@inner
def _choose_latest(t: Tables, class_id: int, groups: int, shadow: int) -> bool:
    """List the nodes of all groups, group by group: those that come free latest, then the highest."""
    _together_at(t, class_id, groups, shadow)
    keys = t.scratch[SCRATCH_ENDS]
    nodes = t.scratch[SCRATCH_SHAPES]
    found = 0
    one = class_id
    for group in range(groups):
        count = 0
        for node in range(t.meta[M_NODES]):
            if t.group_mask[node] >> group & 1:
                keys[count] = -t.group_ready[group, node]
                nodes[count] = t.meta[M_NODES] - 1 - node
                count += 1
        sort_pairs(keys, nodes, count)
        left = t.classes[one, C_NODES]
        for k in range(count):
            node = t.meta[M_NODES] - 1 - nodes[k]
            if left > 0 and take_in_group(t, node, group, groups):
                t.scratch[SCRATCH_RANKS, found] = node
                found += 1
                left -= 1
        one = next_group(t, one)
    return True


@inner
def _choose_claims(t: Tables, entry: int, class_id: int, groups: int) -> bool:
    """Where its shadow is never: after a while list nodes to claim, first those that fit now. Whether there are any."""
    now = t.pass_record[PASS_NOW]
    since = t.entries[entry, E_BLOCKED_AT]
    if since < 0 or now - since < t.meta[M_CLAIM_AFTER]:
        return False
    return choose_claims(t, class_id, groups, SCRATCH_RANKS, True)
