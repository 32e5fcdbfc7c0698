"""A job of several groups in a conservative pass: it starts as a whole, or holds a reservation for each group.

Pure but for scratch and the pass record. The reservations of one job stand together, in the order of its groups, have
one start and rank as its first task; they are made, moved and given up together. In everything else they are as those
of other jobs (see `conservative`).
"""

from __future__ import annotations

from hal.core.kernels.nodes.wants import take_licences
from hal.core.kernels.passes.earlier_starts import LOOK_SHIFT, is_woken
from hal.core.kernels.passes.group_sets import choose_claims
from hal.core.kernels.passes.group_timelines import (
    choose_groups_later,
    choose_groups_now,
    earliest_of_groups,
    groups_are_closed,
)
from hal.core.kernels.passes.groups import class_short, count_groups, entry_of_group, next_group, nodes_of_groups
from hal.core.kernels.passes.planned_reservations import let_go_behind, note_freed
from hal.core.kernels.passes.record import is_affine, room_for_start, write_start, write_verdict
from hal.core.kernels.preemption.searched import search_at
from hal.core.kernels.rules.booked import within_booking
from hal.core.kernels.rules.ledgers import charge_ledgers, full_ledger
from hal.core.kernels.rules.licences import licences_there, waits_apart
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_CLASS,
    C_NODES,
    C_SHAPE,
    COUNT_RESERVATIONS,
    COUNT_RESERVED,
    E_BLOCKED_AT,
    E_BUCKET,
    E_FIRST,
    E_JOB,
    E_PLANNED,
    E_RESERVED,
    INF,
    KIND_CLAIM,
    KIND_NEVER,
    KIND_RESERVED,
    M_BOOKINGS,
    M_CLAIM_AFTER,
    M_NODES,
    M_RESOURCES,
    PASS_ATTENDS,
    PASS_FIRST_NODE,
    PASS_FIRST_START,
    PASS_FULL,
    PASS_KEY,
    PASS_NODES,
    PASS_NOW,
    PASS_REPLANS,
    PASS_STARTS,
    PASS_STOP,
    PASS_VACATED,
    PASS_WALL,
    PASS_WORK,
    Q_NODE,
    Q_RESERVATION,
    REASON_LEDGER,
    REASON_RESERVED,
    REASON_RESOURCES,
    SCRATCH_CHOSEN,
    STOP_BUDGET,
    STOP_GROW,
    STOP_NONE,
    STOP_RESTART,
    STOP_RESUME,
    STOP_SEARCH,
    V_BEHIND,
    V_CLASS,
    V_DIRTY,
    V_ENTRY,
    V_FIRST,
    V_HELD,
    V_JOB,
    V_KEY,
    V_KIND,
    V_NODES,
    V_PLANNED,
    V_START,
    V_TASK,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.timelines.chains import hold, let_go
from hal.core.kernels.timelines.points import change_interval, room_for_points


@inner
def plan_groups(t: Tables, bucket: int, entry: int) -> tuple[bool, int]:
    """Start all groups of a candidate, or let them hold reservations, or leave these.

    Returns (whether it waits, the longest planned time with which another job of its class may start now).
    """
    p = t.pass_record
    class_id = t.buckets[bucket, B_CLASS]
    groups = count_groups(t, class_id)
    mine = t.entries[entry, E_RESERVED]
    closed = groups_are_closed(t, class_id)
    if closed and mine >= 0:
        drop_groups(t, mine, groups)
        mine = -1
    held = mine >= 0 and t.planned[mine, V_HELD] == 1
    if held and p[PASS_FULL] == 0:
        return True, INF
    planned = within_booking(t, t.classes[class_id, C_SHAPE], p[PASS_NOW], t.entries[entry, E_PLANNED])
    if full_ledger(t, bucket, p[PASS_WALL]) >= 0:
        write_verdict(t, entry, 0, REASON_LEDGER, 0)
        _end_reservations(t, mine, groups)
        return True, INF
    limit = p[PASS_NOW] + 1 if closed else INF
    begin = limit
    stays = False
    if held and t.planned[mine, V_KIND] == KIND_RESERVED and t.planned[mine, V_START] > p[PASS_NOW]:
        limit = t.planned[mine, V_START]
        begin = limit
        stays = not _are_woken(t, mine, groups)
    if not stays:
        if not _has_room(t, class_id, groups):
            return True, INF
        begin = _look(t, class_id, groups, mine, held, planned, limit)
    if begin == p[PASS_NOW] and licences_there(t, t.classes[class_id, C_SHAPE], p[PASS_WALL]):
        _start(t, entry, class_id, groups, planned)
        _end_reservations(t, mine, groups)
        if is_affine(t, bucket):
            p[PASS_STOP] = STOP_RESTART
        return False, INF
    keeps = begin >= limit and held and limit < INF
    searches = search_at(t, entry, 0) <= p[PASS_NOW]
    if held and not stays and (keeps or searches or p[PASS_ATTENDS] != 0):
        for k in range(mine, mine + groups):
            hold(t, k)
    if searches:
        p[PASS_STOP] = STOP_SEARCH  # what it lacks may be preempted
        return True, INF
    if p[PASS_ATTENDS] != 0:
        p[PASS_STOP] = STOP_RESUME  # what was suspended for others resumes before anybody else starts
        return True, INF
    if keeps:
        for k in range(mine, mine + groups):
            if t.planned[k, V_KEY] != p[PASS_KEY]:
                t.planned[k, V_KEY] = p[PASS_KEY]
                p[PASS_REPLANS] = 1
    elif not closed:
        _reserve(t, entry, class_id, groups, mine, planned, begin, held)
    short = class_short(t, class_id)
    write_verdict(t, entry, 0, REASON_RESOURCES if short > 0 else REASON_RESERVED, short)
    return True, planned - 1 if closed and t.meta[M_BOOKINGS] == 0 else INF


@inner
def drop_groups(t: Tables, mine: int, groups: int) -> None:
    """Drop the reservations of a job that may not hold any, or does not wait any more as it did."""
    for k in range(mine, mine + groups):
        note_freed(t, k)
        if t.planned[k, V_HELD] == 1:
            if t.planned[k, V_KIND] != KIND_NEVER:
                t.pass_record[PASS_VACATED] = 1
            let_go(t, k)
        t.planned[k, V_ENTRY] = -1
    t.pass_record[PASS_REPLANS] = 1


@inner
def _end_reservations(t: Tables, mine: int, groups: int) -> None:
    """It started, or a ledger is full, which earns no reservation."""
    if mine < 0:
        return
    for k in range(mine, mine + groups):
        note_freed(t, k)
        if t.planned[k, V_HELD] == 1:
            let_go(t, k)
        t.planned[k, V_ENTRY] = -1
    t.pass_record[PASS_REPLANS] = 1


@inner
def _are_woken(t: Tables, mine: int, groups: int) -> bool:
    """Whether an event freed something that some group could use; what only reservations left it looks at then."""
    woken = False
    for k in range(mine, mine + groups):
        behind = t.planned[k, V_BEHIND]
        if is_woken(t, k):
            woken = True
        if t.planned[k, V_BEHIND] != behind:
            t.pass_record[PASS_REPLANS] = 1
    if woken:
        for k in range(mine, mine + groups):
            if t.planned[k, V_BEHIND] != 0:
                t.planned[k, V_BEHIND] = 0
                t.pass_record[PASS_REPLANS] = 1
    # What its first licences wait for is at no node.
    return woken or waits_apart(t, t.classes[t.planned[mine, V_CLASS], C_SHAPE])


@inner
def _has_room(t: Tables, class_id: int, groups: int) -> bool:
    """Whether the slice may start all groups or reserve for them; else it stops."""
    p = t.pass_record
    nodes = nodes_of_groups(t, class_id)
    if (
        room_for_points(t) < 4 * nodes + 4
        or t.counts[COUNT_RESERVATIONS] + groups > t.planned.shape[0]
        or t.counts[COUNT_RESERVED] + nodes > t.planned_nodes.shape[0]
    ):
        p[PASS_STOP] = STOP_GROW
    elif not room_for_start(t, nodes) or p[PASS_FIRST_START] + p[PASS_STARTS] + groups > t.starts.shape[0]:
        p[PASS_STOP] = STOP_BUDGET
    return bool(p[PASS_STOP] == STOP_NONE)


@inner
def _look(t: Tables, class_id: int, groups: int, mine: int, held: bool, planned: int, limit: int) -> int:
    """The earliest instant for all groups as if they had no reservations; these do not count any more."""
    p = t.pass_record
    p[PASS_WORK] += groups * (1 + (t.meta[M_NODES] >> LOOK_SHIFT))
    if held:
        for k in range(mine, mine + groups):
            let_go(t, k)
    return earliest_of_groups(t, t.counts[COUNT_RESERVATIONS], mine, class_id, planned, p[PASS_NOW], limit)


@inner
def _start(t: Tables, entry: int, class_id: int, groups: int, planned: int) -> None:
    """Start all groups now: take what they need of nodes, ledgers and licences."""
    p = t.pass_record
    choose_groups_now(t, entry, class_id, planned)
    end = min(p[PASS_NOW] + planned, INF)
    one = class_id
    for group in range(groups):
        slot = entry_of_group(t, entry, group)
        shape = t.classes[one, C_SHAPE]
        nodes = t.classes[one, C_NODES]
        first = p[PASS_FIRST_NODE] + p[PASS_NODES]
        for i in range(first, first + nodes):
            change_interval(t, t.start_nodes[i], shape, p[PASS_NOW], end, -1)
            for r in range(t.meta[M_RESOURCES]):
                t.free[t.start_nodes[i], r] -= t.request[r, shape]
        charge_ledgers(t, t.entries[slot, E_BUCKET], p[PASS_WALL], 1)
        take_licences(t, shape, 1)
        write_start(t, slot, 0, nodes)
        p[PASS_WORK] += nodes
        one = next_group(t, one)


@inner
def _reserve(
    t: Tables, entry: int, class_id: int, groups: int, mine: int, planned: int, begin: int, held: bool
) -> None:
    """Let all groups hold reservations from `begin` on, in place of those from `mine` on (-1 = new ones); at INF they
    wait, then claim nodes."""
    p = t.pass_record
    if mine < 0:
        mine = _add_reservations(t, entry, class_id, groups)
    nodes = nodes_of_groups(t, class_id)
    kind = KIND_RESERVED
    chosen = True
    if begin < INF:
        choose_groups_later(t, class_id, planned, begin)
        p[PASS_WORK] += nodes + groups * (t.meta[M_NODES] >> LOOK_SHIFT)
    else:
        since = t.entries[entry, E_BLOCKED_AT]
        chosen = (
            since >= 0
            and p[PASS_NOW] - since >= t.meta[M_CLAIM_AFTER]
            and choose_claims(t, class_id, groups, SCRATCH_CHOSEN, False)
        )
        kind = KIND_CLAIM if chosen else KIND_NEVER
    moves = _move(t, mine, groups, begin, kind, chosen)
    if moves or not held:
        p[PASS_REPLANS] = 1
    if moves and kind == KIND_CLAIM:
        one = class_id
        for _ in range(groups):
            let_go_behind(t, t.classes[one, C_SHAPE], mine, t.entries[entry, E_FIRST] + 1)
            one = next_group(t, one)
    taken = 0
    for k in range(mine, mine + groups):
        t.planned[k, V_TASK] = t.entries[entry, E_FIRST]
        t.planned[k, V_KEY] = p[PASS_KEY]
        t.planned[k, V_START] = begin
        t.planned[k, V_PLANNED] = planned
        t.planned[k, V_KIND] = kind
        t.planned[k, V_BEHIND] = 0
        wide = t.classes[t.planned[k, V_CLASS], C_NODES]
        t.planned[k, V_NODES] = wide if chosen else 0
        for i in range(wide):
            place = t.planned[k, V_FIRST] + i
            t.planned_nodes[place, Q_NODE] = t.scratch[SCRATCH_CHOSEN, taken + i] if chosen else -1
            t.planned_nodes[place, Q_RESERVATION] = k
        taken += wide
        hold(t, k)


@inner
def _move(t: Tables, mine: int, groups: int, begin: int, kind: int, chosen: bool) -> bool:
    """Whether the reservations were at another time, of another kind or on other nodes than the chosen ones; then the
    nodes that they leave are noted."""
    differ = False
    taken = 0
    for k in range(mine, mine + groups):
        wide = t.classes[t.planned[k, V_CLASS], C_NODES]
        if (
            t.planned[k, V_START] != begin
            or t.planned[k, V_KIND] != kind
            or t.planned[k, V_NODES] != (wide if chosen else 0)
        ):
            differ = True
        elif chosen:
            for i in range(wide):
                if t.planned_nodes[t.planned[k, V_FIRST] + i, Q_NODE] != t.scratch[SCRATCH_CHOSEN, taken + i]:
                    differ = True
        taken += wide
    if differ:
        for k in range(mine, mine + groups):
            note_freed(t, k)
    return differ


@inner
def _add_reservations(t: Tables, entry: int, class_id: int, groups: int) -> int:
    """Reservations that do not count yet, with places for their nodes; the first of them."""
    first = t.counts[COUNT_RESERVATIONS]
    one = class_id
    for k in range(first, first + groups):
        t.planned[k, V_ENTRY] = entry
        t.planned[k, V_JOB] = t.entries[entry, E_JOB]
        t.planned[k, V_CLASS] = one
        t.planned[k, V_FIRST] = t.counts[COUNT_RESERVED]
        t.planned[k, V_NODES] = 0
        t.planned[k, V_KIND] = KIND_NEVER
        t.planned[k, V_START] = -1
        t.planned[k, V_HELD] = 0
        t.planned[k, V_DIRTY] = 0
        for i in range(t.counts[COUNT_RESERVED], t.counts[COUNT_RESERVED] + t.classes[one, C_NODES]):
            for column in range(t.planned_nodes.shape[1]):
                t.planned_nodes[i, column] = 0
        t.counts[COUNT_RESERVED] += t.classes[one, C_NODES]
        one = next_group(t, one)
    t.counts[COUNT_RESERVATIONS] += groups
    return int(first)
