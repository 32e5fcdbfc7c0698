"""A pass under conservative backfill: all waiting jobs, or the first K, hold reservations, which only move earlier.

Pure but for scratch and the pass record. Nodes have kept timelines (see timelines). In rank order, a job whose nodes or
others came freer gives its reservation back, takes the earliest instant at which enough nodes each stay free for the
whole of its planned time, and starts where that is now; else the reservation stays as it is, so a pass after one event
looks at touched nodes only. An array holds one reservation, for its next task; when that starts, the reservations
behind it are planned again in rank order, as they are when better work comes, an attempt outlives its plan or a node is
lost: those that compete with it for a node. What happens on nodes that a job could not use changes nothing for it. With
K reservations ahead that compete, a job gets none and starts only where it leaves all of them as they are: its class's
window says how long it may be. Source: Mu'alem and Feitelson, TPDS 12(6), 2001.
"""

from __future__ import annotations

from typing import Any, Final

from hal.core.kernels.nodes.wants import take_licences
from hal.core.kernels.passes.candidates import drop_first, move_cursor, order_candidates, put_candidate, sink_candidate
from hal.core.kernels.passes.cold_timelines import begin_planning, build_stale
from hal.core.kernels.passes.earlier_starts import ANYWHERE, LOOK_SHIFT, find_earlier, list_events
from hal.core.kernels.passes.group_plans import drop_groups, plan_groups
from hal.core.kernels.passes.group_sets import could_ever
from hal.core.kernels.passes.groups import all_groups_wait, count_groups, fits_ever
from hal.core.kernels.passes.node_choice import choose_claim, choose_later, choose_now, longest_start
from hal.core.kernels.passes.planned_reservations import (
    after_job,
    compact,
    drop_behind,
    forget,
    forget_hurt,
    forget_overtaken,
    is_closed,
    leave_stale,
    let_go_behind,
    note_freed,
    wake_of,
)
from hal.core.kernels.passes.record import (
    abandon_slice,
    begin_slice,
    end_slice,
    give_back_starts,
    is_affine,
    next_timer,
    room_for_start,
    write_start,
    write_verdict,
)
from hal.core.kernels.passes.strict_queues import close_passed_queues, close_queue, wait_strictly, waits_behind
from hal.core.kernels.preemption.searched import may_preempt, search_at
from hal.core.kernels.rules.booked import within_booking
from hal.core.kernels.rules.ledgers import charge_ledgers, full_ledger
from hal.core.kernels.rules.licences import licence_start, licences_there, waits_apart
from hal.core.kernels.structures.bounds import goes_on, looks_on
from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    B_CLASS,
    B_HEAD,
    B_INSERT,
    B_OFFSET,
    B_OWNER,
    B_ROOT,
    C_NEXT,
    C_NODES,
    C_SHAPE,
    COUNT_FREED,
    COUNT_RESERVATIONS,
    COUNT_RESERVED,
    E_BLOCKED_AT,
    E_BUCKET,
    E_FIRST,
    E_JOB,
    E_PLANNED,
    E_RESERVED,
    E_TASKS,
    E_WALL,
    GROW_OUTPUTS,
    GROW_TIMELINES,
    H_BUCKET,
    INF,
    KIND_CLAIM,
    KIND_NEVER,
    KIND_RESERVED,
    M_ACTIVE,
    M_CLAIM_AFTER,
    M_DIRTY,
    M_DROPS,
    M_NODES,
    M_PARKED_INSERTS,
    M_PARKED_WAKE,
    M_PARKING,
    M_RESERVATIONS,
    M_RESOURCES,
    M_WAKE,
    O_QUEUE,
    PASS_ATTENDS,
    PASS_BUDGET,
    PASS_FIRST_NODE,
    PASS_FULL,
    PASS_HEAP,
    PASS_JOB,
    PASS_KEY,
    PASS_LANE,
    PASS_NODES,
    PASS_NOW,
    PASS_REPLANS,
    PASS_STAMP,
    PASS_STARTS,
    PASS_STOP,
    PASS_TASK,
    PASS_VACATED,
    PASS_WAKE,
    PASS_WALL,
    PASS_WORK,
    PLANNED,
    Q_NODE,
    Q_RESERVATION,
    REASON_LEDGER,
    REASON_RESERVED,
    REASON_RESOURCES,
    S_EVER,
    S_FIT,
    SCRATCH_CHOSEN,
    STOP_BUDGET,
    STOP_GROW,
    STOP_NONE,
    STOP_RESTART,
    STOP_RESUME,
    STOP_SEARCH,
    TICK,
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
    Y_SHUT,
    Y_STRICT,
)
from hal.core.kernels.structures.memory import Tables, tables
from hal.core.kernels.structures.treap import tree_seek
from hal.core.kernels.timelines.chains import hold, let_go, link_reservations, mark_late, unlink_reservations
from hal.core.kernels.timelines.lines import line_of, mark_log, put_back
from hal.core.kernels.timelines.node_intervals import earliest
from hal.core.kernels.timelines.points import change_interval, room_for_points

VACATED: Final = 1
"""In place of the lane, which EASY alone has: an earlier slice of this pass dropped reservations that held nodes."""
BOUND_SHIFT: Final = 6
"""So many nodes, as a power of two, are one unit of work for a search below a bound, which leaves out most of them by
one comparison."""


@kernel
def cycle(at: Any, now: int, budget: int, most_starts: int, resumed: bool, attends: bool) -> int:
    """One slice, described by the pass record (see `begin_slice`). Returns PLANNED, or GROW_* and decided nothing."""
    t = tables(at)
    p = t.pass_record
    if not begin_slice(t, now, budget, most_starts, resumed, attends):
        return GROW_OUTPUTS
    if not _begin_pass(t, resumed):
        return GROW_TIMELINES
    candidates = 0
    while looks_on(t, p[PASS_STOP] == STOP_NONE and p[PASS_HEAP] > 0, candidates):
        candidates += 1
        bucket = t.heap[0, H_BUCKET]
        entry = move_cursor(t)
        if p[PASS_WORK] >= budget:
            p[PASS_STOP] = STOP_BUDGET
        else:
            p[PASS_WORK] += 1
            _consider(t, bucket, entry)
    give_back_starts(t)
    unlink_reservations(t)
    if p[PASS_STOP] == STOP_GROW:
        abandon_slice(t)
        return GROW_TIMELINES
    _end_pass(t)
    return PLANNED


@inner
def _begin_pass(t: Tables, resumed: bool) -> bool:
    """Bring reservations and timelines up to date, and list the candidates. Returns whether the tables are large
    enough."""
    p = t.pass_record
    t.ticks[TICK] += 1
    p[PASS_STAMP] = t.ticks[TICK]
    p[PASS_VACATED] = resumed and p[PASS_LANE] == VACATED
    t.counts[COUNT_FREED] = 0
    if not resumed:
        p[PASS_FULL] = _looks_at_all(t)
        p[PASS_REPLANS] = t.meta[M_DIRTY] != 0
    if not begin_planning(t):
        abandon_slice(t)
        return False
    if p[PASS_FULL] != 0:
        _drop_lost(t)
    if t.meta[M_DROPS] > 0 and forget_overtaken(t):
        p[PASS_REPLANS] = 1
    link_reservations(t)
    mark_late(t, p[PASS_NOW])
    if build_stale(t):
        forget_hurt(t)
        p[PASS_REPLANS] = 1
        p[PASS_FULL] = 1
        link_reservations(t)
        build_stale(t)
        leave_stale(t)
    if resumed:
        close_passed_queues(t)
    _list_candidates(t)
    list_events(t)
    return True


@inner
def _looks_at_all(t: Tables) -> bool:
    """Whether a new pass looks at reservations again, not only at work that has none: something changed, one is due or
    may claim nodes, or it pays to search for one's job."""
    now = t.pass_record[PASS_NOW]
    full = t.meta[M_DIRTY] != 0
    for k in range(t.meta[M_RESERVATIONS]):
        entry = t.reservations[k, V_ENTRY]
        if entry >= 0:
            kind = t.reservations[k, V_KIND]
            if (kind == KIND_RESERVED and now >= t.reservations[k, V_START]) or (
                kind == KIND_NEVER and now - t.entries[entry, E_BLOCKED_AT] >= t.meta[M_CLAIM_AFTER]
            ):
                full = True
            if search_at(t, entry, 0) <= now:
                full = True
    return bool(full)


@inner
def _drop_lost(t: Tables) -> None:
    """Drop the reservations of jobs that nothing that is up could hold any more."""
    k = 0
    while k < t.counts[COUNT_RESERVATIONS]:
        entry = t.planned[k, V_ENTRY]
        following = after_job(t, k) if entry >= 0 else k + 1
        if entry >= 0 and not _could_start(t, t.planned[k, V_CLASS]):
            for one in range(k, following):
                forget(t, one)
                t.planned[one, V_ENTRY] = -1
        k = following


@inner
def _could_start(t: Tables, class_id: int) -> bool:
    """Whether the nodes that are up could hold work of a class, with all its groups, when they are empty."""
    if t.classes[class_id, C_NEXT] != 0:
        return fits_ever(t, class_id) and could_ever(t, class_id, count_groups(t, class_id))
    return bool(t.shapes[t.classes[class_id, C_SHAPE], S_EVER] >= t.classes[class_id, C_NODES])


# --- select: the candidate whose turn is next ------------------------------------------------------------------------


@inner
def _list_candidates(t: Tables) -> None:
    """Put the first candidate at or after the cursor of each bucket on the heap, where the pass looks at the bucket."""
    p = t.pass_record
    everywhere = p[PASS_FULL] != 0 or t.meta[M_PARKING] == 0 or t.meta[M_PARKED_WAKE] < t.meta[M_WAKE]
    size = 0
    for place in range(t.meta[M_ACTIVE]):
        bucket = t.active[place]
        queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
        strict = t.queues[queue, Y_STRICT] != 0  # who is first is known only from all that wait
        if t.queues[queue, Y_SHUT] != 0:
            continue
        if not everywhere and not strict and t.buckets[bucket, B_INSERT] <= t.meta[M_PARKED_INSERTS]:
            continue
        class_id = t.buckets[bucket, B_CLASS]
        if not _could_start(t, class_id):
            if strict:
                wait_strictly(t, bucket, queue, t.buckets[bucket, B_HEAD])
            continue
        key = p[PASS_KEY] - t.buckets[bucket, B_OFFSET]
        entry = tree_seek(t.rank, t.buckets[bucket, B_ROOT], key, p[PASS_JOB], p[PASS_TASK], INF, t.path)
        if entry >= 0:
            put_candidate(t, size, bucket, entry, 0)
            size += 1
    p[PASS_HEAP] = size
    order_candidates(t.heap, size)


@inner
def _move_on(t: Tables, bucket: int, longest: int) -> None:
    """Let the next entry of a bucket that is no longer than `longest` take the place of the one at the cursor."""
    p = t.pass_record
    following = tree_seek(
        t.rank,
        t.buckets[bucket, B_ROOT],
        p[PASS_KEY] - t.buckets[bucket, B_OFFSET],
        p[PASS_JOB],
        p[PASS_TASK] + 1,
        longest,
        t.path,
    )
    if following < 0:
        drop_first(t)
        return
    put_candidate(t, 0, bucket, following, 0)
    sink_candidate(t.heap, p[PASS_HEAP], 0)


# --- admit: whether a candidate is looked at -------------------------------------------------------------------------


@inner
def _consider(t: Tables, bucket: int, entry: int) -> None:
    """Start what may start of a candidate, or let it hold a reservation, and go on to the next of its bucket."""
    p = t.pass_record
    queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
    p[PASS_WALL] = t.entries[entry, E_WALL]
    if waits_behind(t, queue):
        drop_behind(t, bucket)
        drop_first(t)
        return
    if p[PASS_ATTENDS] != 0 and not may_preempt(t, bucket):
        p[PASS_STOP] = STOP_RESUME  # what was suspended for others resumes before anybody else starts
        return
    if t.classes[t.buckets[bucket, B_CLASS], C_NEXT] != 0:
        _consider_groups(t, bucket, entry, queue)
        return
    shape = t.classes[t.buckets[bucket, B_CLASS], C_SHAPE]
    mine = t.entries[entry, E_RESERVED]
    longest = INF
    closed = is_closed(t, shape)
    if closed:
        longest = longest_start(t, shape, t.classes[t.buckets[bucket, B_CLASS], C_NODES])
        if mine >= 0:
            _drop_reservation(t, mine)
            mine = -1
    waits = True
    held = mine >= 0 and t.planned[mine, V_HELD] == 1
    planned = within_booking(t, shape, p[PASS_NOW], t.entries[entry, E_PLANNED])
    if planned <= longest and (p[PASS_FULL] != 0 or not held):
        started = p[PASS_STARTS]
        waits = _plan_entry(t, bucket, entry, mine, planned, closed)
        if p[PASS_STOP] == STOP_NONE and p[PASS_STARTS] > started and is_affine(t, bucket):
            p[PASS_STOP] = STOP_RESTART
        if p[PASS_STOP] != STOP_NONE:
            return
    if t.queues[queue, Y_STRICT] != 0:
        longest = INF
        if waits:
            close_queue(t, queue)
    _move_on(t, bucket, longest)


@inner
def _consider_groups(t: Tables, bucket: int, entry: int, queue: int) -> None:
    """The same for a job with several groups."""
    p = t.pass_record
    class_id = t.buckets[bucket, B_CLASS]
    waits = True
    longest = INF
    if all_groups_wait(t, entry, class_id):
        waits, longest = plan_groups(t, bucket, entry)
        if p[PASS_STOP] != STOP_NONE:
            p[PASS_TASK] += 0 if waits else 1
            return
    elif t.entries[entry, E_RESERVED] >= 0:
        drop_groups(t, t.entries[entry, E_RESERVED], count_groups(t, class_id))
    if t.queues[queue, Y_STRICT] != 0:
        longest = INF
        if waits:
            close_queue(t, queue)
    _move_on(t, bucket, longest)


@inner
def _drop_reservation(t: Tables, mine: int) -> None:
    """Drop the reservation of a job that may not hold one any more."""
    note_freed(t, mine)
    if t.planned[mine, V_HELD] == 1:
        if t.planned[mine, V_KIND] != KIND_NEVER:
            t.pass_record[PASS_VACATED] = 1
        let_go(t, mine)
    t.planned[mine, V_ENTRY] = -1
    t.pass_record[PASS_REPLANS] = 1


@inner
def _plan_entry(t: Tables, bucket: int, entry: int, mine: int, planned: int, closed: bool) -> bool:
    """Start tasks of a candidate, then reserve for the next one or leave its reservation. Returns whether it waits.

    The slice may end inside an array (PASS_STOP): the next one begins with its next task. Its branches are the ways in
    which a turn ends: the reservation stays or is put back, its job started, stops the slice, or holds another one.
    """
    p = t.pass_record
    held = mine >= 0 and t.planned[mine, V_HELD] == 1
    stays = False
    since = p[PASS_NOW]
    limit = INF
    if (
        held
        and t.planned[mine, V_KIND] == KIND_RESERVED
        and t.planned[mine, V_START] > since
        and full_ledger(t, bucket, p[PASS_WALL]) < 0
    ):
        limit = t.planned[mine, V_START]
        stays, since = _look_forward(t, mine)
    log, stale = mark_log(t)
    task = 0
    begin = limit
    line = -1
    if not stays:
        if held:
            let_go(t, mine)
        task, begin, line = _start_tasks(t, bucket, entry, mine, planned, since, limit)
        if p[PASS_STOP] == STOP_GROW:
            return True
    lacking = full_ledger(t, bucket, p[PASS_WALL]) >= 0
    _stop_for_preemption(t, entry, task, lacking)
    moved = not stays and not (held and task == 0)
    if p[PASS_STOP] != STOP_NONE:
        p[PASS_TASK] += task
        if not stays and not moved:
            put_back(t, mine, line, t.classes[t.planned[mine, V_CLASS], C_SHAPE], log, stale)
        elif moved and mine >= 0:
            t.planned[mine, V_TASK] = t.entries[entry, E_FIRST] + task
            p[PASS_REPLANS] = 1
        return True
    if task == t.entries[entry, E_TASKS] or lacking:
        _end_reservation(t, entry, mine, task)
        return bool(task < t.entries[entry, E_TASKS])
    if not stays and not moved and limit < INF and begin >= limit:
        put_back(t, mine, line, t.classes[t.planned[mine, V_CLASS], C_SHAPE], log, stale)
        stays = True
    if stays:
        if t.planned[mine, V_KEY] != p[PASS_KEY]:
            t.planned[mine, V_KEY] = p[PASS_KEY]
            p[PASS_REPLANS] = 1
    elif mine >= 0 or not closed:
        _reserve(t, entry, mine, task, planned, begin, line, held)
    _say_why(t, entry, task)
    return True


@inner
def _look_forward(t: Tables, mine: int) -> tuple[bool, int]:
    """Whether a reservation that counts stays where it is, or moved to a node that came free; else from when on an
    earlier instant is to be looked for."""
    p = t.pass_record
    behind = t.planned[mine, V_BEHIND]
    node, since = find_earlier(t, mine)
    if t.planned[mine, V_BEHIND] != behind:
        p[PASS_REPLANS] = 1
    if waits_apart(t, t.classes[t.planned[mine, V_CLASS], C_SHAPE]):
        return False, p[PASS_NOW]  # nodes do not say when licences come free
    if node >= 0:
        note_freed(t, mine)
        let_go(t, mine)
        t.planned[mine, V_START] = since
        t.planned_nodes[t.planned[mine, V_FIRST], Q_NODE] = node
        hold(t, mine)
        p[PASS_REPLANS] = 1
    return node != ANYWHERE, since


@inner
def _stop_for_preemption(t: Tables, entry: int, task: int, lacking: bool) -> None:
    """Stop the slice where what a refused task lacks may be preempted, or held by what was suspended."""
    p = t.pass_record
    if p[PASS_STOP] == STOP_NONE and task < t.entries[entry, E_TASKS] and not lacking:
        if search_at(t, entry, task) <= p[PASS_NOW]:
            p[PASS_STOP] = STOP_SEARCH
        elif p[PASS_ATTENDS] != 0:
            p[PASS_STOP] = STOP_RESUME


# --- place: start tasks ----------------------------------------------------------------------------------------------


@inner
def _start_tasks(
    t: Tables, bucket: int, entry: int, mine: int, planned: int, since: int, limit: int
) -> tuple[int, int, int]:
    """Start tasks of a candidate as long as each can begin now. `since` and `limit` bound the first one's search.

    Returns (tasks started, the earliest instant found for the next one, the line that was asked).
    """
    p = t.pass_record
    now = p[PASS_NOW]
    shape = t.classes[t.buckets[bucket, B_CLASS], C_SHAPE]
    nodes = t.classes[t.buckets[bucket, B_CLASS], C_NODES]
    task = 0
    begin = limit
    line = -1
    while task < t.entries[entry, E_TASKS] and full_ledger(t, bucket, p[PASS_WALL]) < 0:
        if not room_for_start(t, nodes) or (task > 0 and p[PASS_WORK] >= p[PASS_BUDGET]):
            p[PASS_STOP] = STOP_BUDGET
            break
        if _is_short(t, nodes):
            p[PASS_STOP] = STOP_GROW
            break
        line = line_of(t, shape)
        p[PASS_WORK] += 1 + (t.meta[M_NODES] >> (BOUND_SHIFT if limit < INF else LOOK_SHIFT))
        begin = _earliest_start(t, line, mine, shape, nodes, planned, since, limit)
        if begin != now or not licences_there(t, shape, p[PASS_WALL]):
            break
        _start_task(t, bucket, entry, task, line, planned)
        task += 1
        since = now
        limit = INF
        p[PASS_WORK] += nodes
        if task < t.entries[entry, E_TASKS]:
            if is_affine(t, bucket):
                p[PASS_STOP] = STOP_RESTART
                break
            # An array holds one reservation, for its next task; the tasks after it rank before all that follow.
            let_go_behind(t, shape, mine, p[PASS_TASK] + 1)
    return task, begin, line


@inner
def _is_short(t: Tables, nodes: int) -> bool:
    """Whether tables are too small for one more start or reservation."""
    return bool(
        room_for_points(t) < 4 * nodes + 4
        or t.counts[COUNT_RESERVATIONS] + 1 > t.planned.shape[0]
        or t.counts[COUNT_RESERVED] + nodes > t.planned_nodes.shape[0]
    )


@inner
def _earliest_start(
    t: Tables, line: int, mine: int, shape: int, nodes: int, planned: int, since: int, limit: int
) -> int:
    """The earliest instant in [since, limit) at which enough nodes and licences stay free for the planned time."""
    begin = earliest(t, line, shape, nodes, planned, since, limit)
    tries = 0
    # Each goes on later: to where a licence comes back, or nodes come free.
    most = t.profile.shape[0] + t.holding.shape[1] + t.licence_events.shape[1] + t.booking_times.shape[0]
    while goes_on(t, waits_apart(t, shape) and begin < limit, tries, most):
        tries += 1
        later = licence_start(t, t.counts[COUNT_RESERVATIONS], mine, shape, begin, planned, t.pass_record[PASS_WALL])
        if later == begin:
            break
        begin = earliest(t, line, shape, nodes, planned, later, limit) if later < limit else INF
    return begin


@inner
def _start_task(t: Tables, bucket: int, entry: int, task: int, line: int, planned: int) -> None:
    """Start one task now: choose its nodes, and take what it needs of them, of ledgers and licences."""
    p = t.pass_record
    shape = t.classes[t.buckets[bucket, B_CLASS], C_SHAPE]
    nodes = t.classes[t.buckets[bucket, B_CLASS], C_NODES]
    choose_now(t, entry, line, shape, nodes, planned, t.domain_lines[bucket] - 1)
    first = p[PASS_FIRST_NODE] + p[PASS_NODES]
    for i in range(first, first + nodes):
        node = t.start_nodes[i]
        change_interval(t, node, shape, p[PASS_NOW], min(p[PASS_NOW] + planned, INF), -1)
        for r in range(t.meta[M_RESOURCES]):
            t.free[node, r] -= t.request[r, shape]
    charge_ledgers(t, bucket, p[PASS_WALL], 1)
    take_licences(t, shape, 1)
    write_start(t, entry, task, nodes)


# --- record and reserve ----------------------------------------------------------------------------------------------


@inner
def _end_reservation(t: Tables, entry: int, mine: int, task: int) -> None:
    """All tasks started, or a ledger is full, which earns no reservation."""
    if task < t.entries[entry, E_TASKS]:
        write_verdict(t, entry, task, REASON_LEDGER, 0)
    if mine >= 0:
        note_freed(t, mine)
        t.planned[mine, V_ENTRY] = -1
        t.pass_record[PASS_REPLANS] = 1


@inner
def _say_why(t: Tables, entry: int, task: int) -> None:
    """Write down what a task waits for."""
    class_id = t.buckets[t.entries[entry, E_BUCKET], B_CLASS]
    short = t.classes[class_id, C_NODES] - t.shapes[t.classes[class_id, C_SHAPE], S_FIT]
    write_verdict(t, entry, task, REASON_RESOURCES if short > 0 else REASON_RESERVED, max(short, 0))


@inner
def _add_reservation(t: Tables, entry: int) -> int:
    """A reservation that does not count yet, with places for its nodes."""
    mine = t.counts[COUNT_RESERVATIONS]
    t.counts[COUNT_RESERVATIONS] += 1
    class_id = t.buckets[t.entries[entry, E_BUCKET], B_CLASS]
    t.planned[mine, V_ENTRY] = entry
    t.planned[mine, V_JOB] = t.entries[entry, E_JOB]
    t.planned[mine, V_CLASS] = class_id
    t.planned[mine, V_FIRST] = t.counts[COUNT_RESERVED]
    t.planned[mine, V_NODES] = 0
    t.planned[mine, V_START] = -1
    t.planned[mine, V_HELD] = 0
    t.planned[mine, V_DIRTY] = 0
    for i in range(t.counts[COUNT_RESERVED], t.counts[COUNT_RESERVED] + t.classes[class_id, C_NODES]):
        for column in range(t.planned_nodes.shape[1]):
            t.planned_nodes[i, column] = 0
    t.counts[COUNT_RESERVED] += t.classes[class_id, C_NODES]
    return int(mine)


@inner
def _reserve(t: Tables, entry: int, mine: int, task: int, planned: int, begin: int, line: int, held: bool) -> None:
    """Let a task hold a reservation from `begin` on, in place of `mine` (-1 = a new one); at INF it waits, then claims
    nodes."""
    p = t.pass_record
    if mine < 0:
        mine = _add_reservation(t, entry)
    class_id = t.planned[mine, V_CLASS]
    shape = t.classes[class_id, C_SHAPE]
    nodes = t.classes[class_id, C_NODES]
    chosen = t.scratch[SCRATCH_CHOSEN]
    for i in range(nodes):
        chosen[i] = -1  # a reservation at 'never' names no nodes yet
    kind = KIND_RESERVED
    found = nodes
    if begin < INF:
        choose_later(t, line, shape, nodes, planned, begin)
        p[PASS_WORK] += nodes + (t.meta[M_NODES] >> LOOK_SHIFT)
    else:
        since = t.entries[entry, E_BLOCKED_AT]
        kind = KIND_NEVER
        if since >= 0 and p[PASS_NOW] - since >= t.meta[M_CLAIM_AFTER]:
            kind = KIND_CLAIM
            found = choose_claim(t, shape, nodes)
    if _differs(t, mine, begin, kind, found):
        p[PASS_REPLANS] = 1
        note_freed(t, mine)
        if kind == KIND_CLAIM:
            let_go_behind(t, shape, mine, t.entries[entry, E_FIRST] + task + 1)
    if task > 0 or not held:
        p[PASS_REPLANS] = 1
    t.planned[mine, V_TASK] = t.entries[entry, E_FIRST] + task
    t.planned[mine, V_KEY] = p[PASS_KEY]
    t.planned[mine, V_START] = begin
    t.planned[mine, V_PLANNED] = planned
    t.planned[mine, V_KIND] = kind
    t.planned[mine, V_BEHIND] = 0
    t.planned[mine, V_NODES] = found
    for i in range(nodes):
        t.planned_nodes[t.planned[mine, V_FIRST] + i, Q_NODE] = chosen[i] if i < found else -1
        t.planned_nodes[t.planned[mine, V_FIRST] + i, Q_RESERVATION] = mine
    hold(t, mine)


@inner
def _differs(t: Tables, mine: int, begin: int, kind: int, found: int) -> bool:
    """Whether a reservation was at another time, of another kind or on other nodes than the chosen ones."""
    if t.planned[mine, V_START] != begin or t.planned[mine, V_KIND] != kind or t.planned[mine, V_NODES] != found:
        return True
    for i in range(found):
        if t.planned_nodes[t.planned[mine, V_FIRST] + i, Q_NODE] != t.scratch[SCRATCH_CHOSEN, i]:
            return True
    return False


# --- the end of a slice ----------------------------------------------------------------------------------------------


@inner
def _end_pass(t: Tables) -> None:
    """Drop what no longer counts, say when to plan again, and complete the record."""
    p = t.pass_record
    if p[PASS_STOP] == STOP_NONE and p[PASS_ATTENDS] != 0:
        p[PASS_STOP] = STOP_RESUME
    wake = next_timer(t)
    for k in range(t.counts[COUNT_RESERVATIONS]):
        if p[PASS_STOP] == STOP_NONE and p[PASS_FULL] != 0 and t.planned[k, V_HELD] == 0:
            t.planned[k, V_ENTRY] = -1  # enough others are ahead of it now
        if t.planned[k, V_ENTRY] >= 0:
            wake = min(wake, wake_of(t, k))
            wake = min(wake, max(search_at(t, t.planned[k, V_ENTRY], 0), p[PASS_NOW] + 1))
    p[PASS_WAKE] = wake
    if p[PASS_STOP] == STOP_NONE and p[PASS_VACATED] != 0:
        p[PASS_STOP] = STOP_RESTART  # who ranks before was placed around nodes that came free after its turn
    p[PASS_LANE] = VACATED if p[PASS_VACATED] != 0 else 0
    compact(t)
    if t.counts[COUNT_RESERVATIONS] != t.meta[M_RESERVATIONS]:
        p[PASS_REPLANS] = 1
    end_slice(t, p[PASS_STARTS] > 0 or p[PASS_REPLANS] != 0)
