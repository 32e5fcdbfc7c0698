"""A pass under strict order, EASY or EASY-SJBF: who starts now, and what the first waiting job has reserved.

Pure but for scratch and the pass record: what it takes it gives back before it returns. Buckets are merged by their
candidates in a heap; within a slice the longest planned time that a class may start now (its window) only shrinks, so
one cursor per bucket is enough and every candidate starts a job, lowers a window or drops a bucket. Source: Lifka,
JSSPP 1995; Tsafrir, Etsion, Feitelson, TPDS 2007 (shortest first).

A node carries one reservation at most, so jobs that hold reservations never compete for one. K protected jobs are
the pass of `conservative`, under top-k.
"""

from __future__ import annotations

from typing import Any

from hal.core.kernels.nodes.rows import (
    count_back,
    forget_lags,
    lay_aside,
    reserve_node,
    settle_counts,
    take_later,
    touch,
)
from hal.core.kernels.nodes.wants import take_licences
from hal.core.kernels.passes.candidates import (
    drop_first,
    move_cursor,
    order_candidates,
    put_candidate,
    put_head,
    sink_candidate,
)
from hal.core.kernels.passes.domain_placing import NODES_A_WORK, choose_nodes
from hal.core.kernels.passes.group_reservations import reserve_groups
from hal.core.kernels.passes.group_sets import choose_for_groups
from hal.core.kernels.passes.groups import (
    all_groups_wait,
    class_booked_window,
    class_short,
    class_waits_for_booking,
    class_window,
    count_groups,
    entry_of_group,
    fits_ever,
    next_group,
    nodes_of_groups,
)
from hal.core.kernels.passes.head_reservations import reserve
from hal.core.kernels.passes.kept_reservations import class_is_closed, class_is_parked, keep_reservations
from hal.core.kernels.passes.record import (
    begin_slice,
    copy_reservations,
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
from hal.core.kernels.rules.licences import licences_now, licences_reserved, licences_there, note_reserved, use_extra
from hal.core.kernels.structures.arrays import Table
from hal.core.kernels.structures.bounds import leads_on, looks_on
from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    B_CAP,
    B_CAP_STAMP,
    B_CLASS,
    B_HEAD,
    B_HEAD_JOB,
    B_HEAD_KEY,
    B_LEAST,
    B_OFFSET,
    B_OWNER,
    B_ROOT,
    B_TIME_ROOT,
    BACKFILL_NONE,
    BACKFILL_SJBF,
    BY_TURN,
    C_NEXT,
    C_NODES,
    C_SHAPE,
    CAP_FULL,
    COUNT_RESERVATIONS,
    COUNT_RESERVED,
    E_BLOCKED_AT,
    E_BUCKET,
    E_FIRST,
    E_PLANNED,
    E_STAMP,
    E_TASKS,
    E_WALL,
    G_KIND,
    GROW_OUTPUTS,
    H_BUCKET,
    INF,
    KIND_NEVER,
    KIND_RESERVED,
    LEDGER_HOURS,
    LOWEST,
    M_ACTIVE,
    M_BACKFILL,
    M_BOOKINGS,
    M_CLAIM_AFTER,
    M_DIRTY,
    M_NODES,
    M_ORDER,
    M_PARKED_WAKE,
    M_PARKING,
    M_PASS_STARTS,
    M_RESERVATIONS,
    M_RESERVED,
    M_RESOURCES,
    M_RUNS,
    M_SHAPES,
    M_SHARED,
    M_WAKE,
    M_WITHIN,
    N_RESERVED,
    O_QUEUE,
    ORDER_PRIORITY,
    PASS_ATTENDS,
    PASS_BLOCK_STAMP,
    PASS_BUDGET,
    PASS_CLOSED_STAMP,
    PASS_EARLIER,
    PASS_EXTENDS,
    PASS_FIRST_NODE,
    PASS_FIRST_START,
    PASS_FULL,
    PASS_GIVEN_UP,
    PASS_HEAP,
    PASS_JOB,
    PASS_KEY,
    PASS_LANE,
    PASS_NODES,
    PASS_NOW,
    PASS_ONLY,
    PASS_REPLANS,
    PASS_SHARED_STARTS,
    PASS_STAMP,
    PASS_STARTS,
    PASS_STOP,
    PASS_TASK,
    PASS_WAKE,
    PASS_WALL,
    PASS_WORK,
    PLANNED,
    Q_EXTRA,
    Q_NODE,
    Q_RESERVATION,
    REASON_BOOKED,
    REASON_LEDGER,
    REASON_LICENCE,
    REASON_RESOURCES,
    S_FIT,
    SCRATCH_FIT,
    STOP_BUDGET,
    STOP_NONE,
    STOP_RESTART,
    STOP_RESUME,
    STOP_SEARCH,
    T_KEY,
    T_SEQ,
    T_TIE,
    TICK,
    TICK_TAKEN,
    V_ENTRY,
    V_KIND,
    V_START,
    Y_CLOSED_STAMP,
    Y_DISCIPLINE,
    Y_SHUT,
    Y_STRICT,
)
from hal.core.kernels.structures.memory import Tables, tables
from hal.core.kernels.structures.treap import tree_seek

RUNS_A_START = 64
"""Running attempts for each start of a pass before shares are asked again: shares err by this part of the cluster."""

NOTHING_LACKS = 0
LACKS_LEDGER = 1
LACKS_NODES = 2
LACKS_LICENCE = 3
"""Why the next task of a candidate did not start; nodes and licences are worth a reservation, a full ledger is not."""


@kernel
def cycle(at: Any, now: int, budget: int, most_starts: int, resumed: bool, attends: bool) -> int:
    """One slice, described by the pass record (see `begin_slice`). Returns PLANNED, or GROW_OUTPUTS and did nothing."""
    t = tables(at)
    p = t.pass_record
    if not begin_slice(t, now, budget, most_starts, resumed, attends):
        return GROW_OUTPUTS
    _begin_pass(t, resumed)
    candidates = 0
    while looks_on(t, p[PASS_STOP] == STOP_NONE, candidates):
        candidates += 1
        _select(t)
        if p[PASS_HEAP] == 0:
            break
        bucket = t.heap[0, H_BUCKET]
        entry = move_cursor(t)
        if p[PASS_WORK] >= budget:
            p[PASS_STOP] = STOP_BUDGET
        elif t.entries[entry, E_STAMP] == p[PASS_STAMP]:
            p[PASS_ONLY] = bucket  # it has a reservation: the next one is its candidate
        else:
            p[PASS_WORK] += 1
            _consider(t, bucket, entry)
    _end_pass(t)
    return PLANNED


@inner
def _begin_pass(t: Tables, resumed: bool) -> None:
    """Begin with the reservations that earlier slices made, or, in a new pass, with those of the state that stand."""
    p = t.pass_record
    t.ticks[TICK] += 4
    t.ticks[TICK_TAKEN] += 1
    p[PASS_STAMP] = t.ticks[TICK]
    p[PASS_BLOCK_STAMP] = t.ticks[TICK]
    p[PASS_CLOSED_STAMP] = t.ticks[TICK]
    p[PASS_GIVEN_UP] = 0
    p[PASS_EXTENDS] = 0
    p[PASS_ONLY] = -1
    if resumed:
        copy_reservations(t)
        for k in range(t.counts[COUNT_RESERVATIONS]):
            entry = t.planned[k, V_ENTRY]
            if entry >= 0:
                t.entries[entry, E_STAMP] = p[PASS_STAMP]
                close_queue(t, t.owners[t.buckets[t.entries[entry, E_BUCKET], B_OWNER], O_QUEUE])
        close_passed_queues(t)
    else:
        p[PASS_FULL] = t.meta[M_DIRTY] != 0 or t.meta[M_PARKING] == 0 or t.meta[M_PARKED_WAKE] < t.meta[M_WAKE]
        keep_reservations(t)
        p[PASS_REPLANS] = t.meta[M_DIRTY] != 0 or p[PASS_GIVEN_UP] > 0
    note_reserved(t)
    p[PASS_EARLIER] = t.meta[M_PASS_STARTS] if resumed else 0
    p[PASS_SHARED_STARTS] = INF
    if t.meta[M_ORDER] == ORDER_PRIORITY and t.meta[M_SHARED] == 1:
        going = t.meta[M_RUNS] - p[PASS_EARLIER]
        p[PASS_SHARED_STARTS] = max(going // RUNS_A_START, 1) - p[PASS_EARLIER]
    p[PASS_WORK] = 0


# --- select: the candidate whose turn is next ------------------------------------------------------------------------


@inner
def _select(t: Tables) -> None:
    """Put candidates at or after the cursor on the heap: of all buckets, or (PASS_ONLY) the next one of the first."""
    p = t.pass_record
    lane = p[PASS_LANE]
    key = p[PASS_KEY]
    job = p[PASS_JOB]
    task = p[PASS_TASK]
    if p[PASS_ONLY] >= 0:
        if _put_next(t, 0, p[PASS_ONLY], lane, key, job, task, False):
            sink_candidate(t.heap, p[PASS_HEAP], 0)
        else:
            drop_first(t)
        return
    size = 0
    for place in range(t.meta[M_ACTIVE]):
        if _put_next(t, size, t.active[place], lane, key, job, task, True):
            size += 1
    p[PASS_HEAP] = size
    order_candidates(t.heap, size)


@inner
def _put_next(t: Tables, at: int, bucket: int, lane: int, key: int, job: int, task: int, heads: bool) -> bool:
    """Put the next candidate of a bucket on the heap. Returns whether there is one.

    heads: a first entry is put unseen; whether this slice is done with it is asked when its turn comes.
    """
    queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
    if _is_out(t, bucket, queue):
        return False
    strict = t.queues[queue, Y_STRICT] != 0
    longest, closed = _longest_now(t, bucket)
    timed = closed and not strict and t.meta[M_BACKFILL] == BACKFILL_SJBF
    if strict and longest < INF and _first_is_longer(t, bucket, queue, longest):
        return False
    if longest < 0 or (longest < INF and t.buckets[bucket, B_LEAST] > longest) or (lane == 1 and not timed):
        return False
    if heads and not timed and longest == INF and not _head_is_past(t, bucket, key, job, task):
        put_head(t, at, bucket)
        return True
    if timed:
        if lane == 0:
            key = LOWEST
            job = -1
            task = -1
        found = _seek_unstarted(t, t.by_time, t.buckets[bucket, B_TIME_ROOT], key, job, task, longest)
    else:
        key -= t.buckets[bucket, B_OFFSET]
        found = _seek_unstarted(t, t.rank, t.buckets[bucket, B_ROOT], key, job, task, longest)
    if found < 0:
        return False
    put_candidate(t, at, bucket, found, 1 if timed else 0)
    return True


@inner
def _is_out(t: Tables, bucket: int, queue: int) -> bool:
    """Whether nothing of a bucket is looked at any more in this slice."""
    p = t.pass_record
    stamp = p[PASS_STAMP]
    if t.queues[queue, Y_SHUT] != 0 or t.queues[queue, Y_CLOSED_STAMP] == stamp:
        return True
    if t.buckets[bucket, B_CAP_STAMP] == stamp and t.buckets[bucket, B_CAP] == CAP_FULL:
        return True
    return p[PASS_FULL] == 0 and class_is_parked(t, bucket, queue)


@inner
def _longest_now(t: Tables, bucket: int) -> tuple[int, bool]:
    """The longest planned time with which work of a bucket may start now, -1 none, INF any; whether it is closed."""
    class_id = t.buckets[bucket, B_CLASS]
    if not fits_ever(t, class_id):
        return -1, False
    if not class_is_closed(t, class_id):
        return INF, False
    if t.meta[M_BACKFILL] == BACKFILL_NONE:
        return -1, True
    longest = min(class_window(t, class_id), class_booked_window(t, class_id))
    if t.buckets[bucket, B_CAP_STAMP] == t.pass_record[PASS_STAMP]:
        longest = min(longest, t.buckets[bucket, B_CAP])
    return longest, True


@inner
def _first_is_longer(t: Tables, bucket: int, queue: int, longest: int) -> bool:
    """Whether the first entry of a strict queue's bucket is too long to start now: then the queue waits for it."""
    first = _seek_unstarted(t, t.rank, t.buckets[bucket, B_ROOT], LOWEST, -1, -1, INF)
    if first < 0 or t.entries[first, E_PLANNED] <= longest:
        return False
    wait_strictly(t, bucket, queue, first)
    return True


@inner
def _seek_unstarted(t: Tables, tree: Table, root: int, key: int, job: int, task: int, longest: int) -> int:
    """The next entry that this slice has neither started nor reserved anything for."""
    stamp = t.pass_record[PASS_STAMP]
    entry = tree_seek(tree, root, key, job, task, longest, t.path)
    tried = 0
    while leads_on(t, entry, tried, t.entries.shape[0]) and t.entries[entry, E_STAMP] == stamp:
        tried += 1
        entry = tree_seek(tree, root, tree[entry, T_KEY], tree[entry, T_SEQ], tree[entry, T_TIE] + 1, longest, t.path)
    return entry


@inner
def _head_is_past(t: Tables, bucket: int, key: int, job: int, task: int) -> bool:
    """Whether the cursor is behind the first entry of a bucket."""
    mine = t.buckets[bucket, B_HEAD_KEY] + t.buckets[bucket, B_OFFSET]
    if mine != key:
        return bool(mine < key)
    if t.buckets[bucket, B_HEAD_JOB] != job:
        return bool(t.buckets[bucket, B_HEAD_JOB] < job)
    return bool(t.entries[t.buckets[bucket, B_HEAD], E_FIRST] < task)


# --- admit, place, record, reserve: one candidate --------------------------------------------------------------------


@inner
def _consider(t: Tables, bucket: int, entry: int) -> None:
    """Start what may start of a candidate, or write down why it does not; the cursor moves behind it."""
    p = t.pass_record
    queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
    if waits_behind(t, queue):
        close_queue(t, queue)
        p[PASS_ONLY] = -1
        return
    if _shares_moved(t, queue):
        p[PASS_STOP] = STOP_RESTART  # a new pass asks again who is first
        return
    if p[PASS_ATTENDS] != 0 and not may_preempt(t, bucket):
        p[PASS_STOP] = STOP_RESUME  # what was suspended for others resumes before anybody else starts
        return
    class_id = t.buckets[bucket, B_CLASS]
    if t.classes[class_id, C_NEXT] != 0 and not all_groups_wait(t, entry, class_id):
        t.entries[entry, E_STAMP] = p[PASS_STAMP]
        p[PASS_TASK] = t.entries[entry, E_FIRST] + 1
        p[PASS_ONLY] = bucket
        return
    p[PASS_WALL] = t.entries[entry, E_WALL]
    closed = class_is_closed(t, class_id)
    task = 0
    lacks = LACKS_NODES
    if _may_start(t, bucket, entry, closed):
        if t.classes[class_id, C_NEXT] != 0:
            task, lacks = _start_groups(t, bucket, entry, queue, closed)
        else:
            task, lacks = _start_tasks(t, bucket, entry, queue, closed)
    if lacks >= LACKS_NODES:
        _stop_for_preemption(t, entry, task, closed)
    if p[PASS_STOP] != STOP_NONE:
        if p[PASS_STOP] != STOP_RESTART:
            p[PASS_TASK] += task
        return
    _record(t, bucket, entry, queue, task, lacks, closed)


@inner
def _shares_moved(t: Tables, queue: int) -> bool:
    """Whether this pass has started as much as it may before shares, or turns, are asked again."""
    p = t.pass_record
    if p[PASS_STARTS] >= p[PASS_SHARED_STARTS]:
        return True
    return bool(t.queues[queue, Y_DISCIPLINE] == BY_TURN and p[PASS_EARLIER] + p[PASS_STARTS] > 0)


@inner
def _may_start(t: Tables, bucket: int, entry: int, closed: bool) -> bool:
    """Whether the windows that reservations and bookings leave let a candidate start now.

    Who waits for a limit earns no reservation, however short the nodes are: its ledger is asked instead.
    """
    p = t.pass_record
    class_id = t.buckets[bucket, B_CLASS]
    longest = class_window(t, class_id)
    if t.buckets[bucket, B_CAP_STAMP] == p[PASS_STAMP]:
        longest = min(longest, t.buckets[bucket, B_CAP])
    planned = within_booking(t, t.classes[class_id, C_SHAPE], p[PASS_NOW], t.entries[entry, E_PLANNED])
    if planned <= longest and p[PASS_WALL] <= class_booked_window(t, class_id):
        return True
    return not closed and full_ledger(t, bucket, p[PASS_WALL]) >= 0


@inner
def _start_tasks(t: Tables, bucket: int, entry: int, queue: int, closed: bool) -> tuple[int, int]:
    """Start tasks of a candidate as long as nothing lacks and nothing stops the slice: (tasks started, LACKS_*)."""
    p = t.pass_record
    shape = t.classes[t.buckets[bucket, B_CLASS], C_SHAPE]
    nodes = t.classes[t.buckets[bucket, B_CLASS], C_NODES]
    wall = p[PASS_WALL]
    planned = within_booking(t, shape, p[PASS_NOW], t.entries[entry, E_PLANNED])
    end = min(p[PASS_NOW] + planned, INF)
    scored = t.domain_lines[bucket] - 1
    for task in range(t.entries[entry, E_TASKS]):
        if full_ledger(t, bucket, wall) >= 0:
            return task, LACKS_LEDGER
        if _shares_moved(t, queue):
            p[PASS_STOP] = STOP_RESTART
            return task, NOTHING_LACKS
        if not room_for_start(t, nodes) or p[PASS_WORK] >= p[PASS_BUDGET] + nodes:
            p[PASS_STOP] = STOP_BUDGET
            return task, NOTHING_LACKS
        reserved = licences_reserved(t, shape, end)
        if reserved or not licences_there(t, shape, wall):
            if not licences_now(t, shape):
                _cap_bucket(t, bucket, CAP_FULL)
            elif reserved:
                _cap_bucket(t, bucket, planned - 1)
            return task, LACKS_LICENCE
        if t.shapes[shape, S_FIT] < nodes or choose_nodes(t, entry, shape, nodes, end, scored) < nodes:
            settle_counts(t)
            # Nodes that fit, not nodes passed over: where a search begins is remembered, work must not depend on it,
            # or equal inputs would be cut into unequal slices.
            p[PASS_WORK] += t.shapes[shape, S_FIT]
            if closed and t.meta[M_BOOKINGS] == 0:
                _cap_bucket(t, bucket, planned - 1)
            return task, LACKS_NODES
        if p[PASS_STARTS] == 0:
            for s in range(t.meta[M_SHAPES]):
                t.scratch[SCRATCH_FIT, s] = t.shapes[s, S_FIT]
        _take_nodes(t, shape, nodes, end)
        charge_ledgers(t, bucket, wall, 1)
        t.ticks[TICK_TAKEN] += 1
        take_licences(t, shape, 1)
        use_extra(t, shape, end)
        write_start(t, entry, task, nodes)
        p[PASS_WORK] += nodes
        if is_affine(t, bucket):
            p[PASS_STOP] = STOP_RESTART
            return task + 1, NOTHING_LACKS
    return t.entries[entry, E_TASKS], NOTHING_LACKS


@inner
def _start_groups(t: Tables, bucket: int, entry: int, queue: int, closed: bool) -> tuple[int, int]:
    """Start all groups of a candidate, or none of them: (1 or 0, LACKS_*)."""
    p = t.pass_record
    class_id = t.buckets[bucket, B_CLASS]
    shape = t.classes[class_id, C_SHAPE]
    wall = p[PASS_WALL]
    planned = within_booking(t, shape, p[PASS_NOW], t.entries[entry, E_PLANNED])
    end = min(p[PASS_NOW] + planned, INF)
    if full_ledger(t, bucket, wall) >= 0:
        return 0, LACKS_LEDGER
    if _shares_moved(t, queue):
        p[PASS_STOP] = STOP_RESTART
        return 0, NOTHING_LACKS
    groups = count_groups(t, class_id)
    nodes = nodes_of_groups(t, class_id)
    written = p[PASS_FIRST_START] + p[PASS_STARTS] + groups <= t.starts.shape[0]
    if not written or not room_for_start(t, nodes) or p[PASS_WORK] >= p[PASS_BUDGET] + nodes:
        p[PASS_STOP] = STOP_BUDGET
        return 0, NOTHING_LACKS
    reserved = licences_reserved(t, shape, end)
    if reserved or not licences_there(t, shape, wall):
        if not licences_now(t, shape):
            _cap_bucket(t, bucket, CAP_FULL)
        elif reserved:
            _cap_bucket(t, bucket, planned - 1)
        return 0, LACKS_LICENCE
    p[PASS_WORK] += groups * (t.meta[M_NODES] >> NODES_A_WORK)
    if class_short(t, class_id) > 0 or not choose_for_groups(t, entry, class_id, end):
        settle_counts(t)
        if closed and t.meta[M_BOOKINGS] == 0:
            _cap_bucket(t, bucket, planned - 1)
        return 0, LACKS_NODES
    if p[PASS_STARTS] == 0:
        for s in range(t.meta[M_SHAPES]):
            t.scratch[SCRATCH_FIT, s] = t.shapes[s, S_FIT]
    one = class_id
    for group in range(groups):
        slot = entry_of_group(t, entry, group)
        shape = t.classes[one, C_SHAPE]
        _take_nodes(t, shape, t.classes[one, C_NODES], end)
        charge_ledgers(t, t.entries[slot, E_BUCKET], wall, 1)
        take_licences(t, shape, 1)
        use_extra(t, shape, end)
        write_start(t, slot, 0, t.classes[one, C_NODES])
        one = next_group(t, one)
    t.ticks[TICK_TAKEN] += 1
    p[PASS_WORK] += nodes
    if is_affine(t, bucket):
        p[PASS_STOP] = STOP_RESTART
    return 1, NOTHING_LACKS


@inner
def _take_nodes(t: Tables, shape: int, nodes: int, end: int) -> None:
    """Take a request from the nodes that were chosen for it, and from what is left there beside reservations."""
    first = t.pass_record[PASS_FIRST_NODE] + t.pass_record[PASS_NODES]
    for i in range(first, first + nodes):
        node = t.start_nodes[i]
        take_later(t, node, shape)
        place = t.rows[node, N_RESERVED]
        if place >= 0:
            t.pass_record[PASS_BLOCK_STAMP] += 1
            mine = t.planned_nodes[place, Q_RESERVATION]
            if t.planned[mine, V_KIND] != KIND_RESERVED or end > t.planned[mine, V_START]:
                t.pass_record[PASS_EXTENDS] = 1
                for r in range(t.meta[M_RESOURCES]):
                    t.planned_nodes[place, Q_EXTRA + r] -= t.request[r, shape]


@inner
def _cap_bucket(t: Tables, bucket: int, longest: int) -> None:
    """Only shorter work of a bucket is looked at again in this slice; none of it with CAP_FULL."""
    t.buckets[bucket, B_CAP] = longest
    t.buckets[bucket, B_CAP_STAMP] = t.pass_record[PASS_STAMP]


@inner
def _stop_for_preemption(t: Tables, entry: int, task: int, closed: bool) -> None:
    """Stop the slice where what a refused task lacks may be preempted, or held by what was suspended."""
    p = t.pass_record
    if p[PASS_STOP] != STOP_NONE:
        return
    if not closed and search_at(t, entry, task) <= p[PASS_NOW]:
        p[PASS_STOP] = STOP_SEARCH
    elif p[PASS_ATTENDS] != 0:
        p[PASS_STOP] = STOP_RESUME


@inner
def _record(t: Tables, bucket: int, entry: int, queue: int, task: int, lacks: int, closed: bool) -> None:
    """Write down what became of a candidate, and reserve for it where it is the first to lack nodes or licences."""
    p = t.pass_record
    p[PASS_TASK] = t.entries[entry, E_FIRST] + 1
    p[PASS_ONLY] = bucket
    if task == t.entries[entry, E_TASKS]:
        t.entries[entry, E_STAMP] = p[PASS_STAMP]
    if lacks >= LACKS_NODES:
        settle_counts(t)
    if lacks != NOTHING_LACKS:
        close_queue(t, queue)
    if lacks == LACKS_LEDGER:
        ledger = full_ledger(t, bucket, p[PASS_WALL])
        if t.ledgers[ledger, G_KIND] == LEDGER_HOURS:
            t.entries[entry, E_STAMP] = p[PASS_STAMP]
        else:
            _cap_bucket(t, bucket, CAP_FULL)
        write_verdict(t, entry, task, REASON_LEDGER, 0)
    elif lacks >= LACKS_NODES and not closed:
        t.entries[entry, E_STAMP] = p[PASS_STAMP]
        class_id = t.buckets[bucket, B_CLASS]
        waits = class_waits_for_booking(t, class_id, p[PASS_NOW], p[PASS_WALL])
        if not waits and _reserve_and_say(t, entry, class_id, task, lacks):
            p[PASS_ONLY] = -1
    if t.queues[queue, Y_CLOSED_STAMP] == p[PASS_STAMP]:
        p[PASS_ONLY] = -1


@inner
def _reserve_and_say(t: Tables, entry: int, class_id: int, task: int, lacks: int) -> bool:
    """Reserve for a candidate, and write down what it waits for. Whether anything is reserved."""
    p = t.pass_record
    short = class_short(t, class_id)
    if t.classes[class_id, C_NEXT] == 0:
        reserve(t, entry, task)
    elif not reserve_groups(t, entry):
        write_verdict(t, entry, task, REASON_RESOURCES, max(short, 1))
        return False
    note_reserved(t)
    p[PASS_REPLANS] = 1
    p[PASS_BLOCK_STAMP] += 1
    p[PASS_CLOSED_STAMP] += 1
    reason = REASON_LICENCE
    if lacks == LACKS_NODES:
        several = t.classes[class_id, C_NEXT] != 0 and t.meta[M_BOOKINGS] == 0
        reason = REASON_RESOURCES if short > 0 or several else REASON_BOOKED
    write_verdict(t, entry, task, reason, short)
    return True


# --- the end of a slice ----------------------------------------------------------------------------------------------


@inner
def _end_pass(t: Tables) -> None:
    """Give everything back, and complete the record."""
    p = t.pass_record
    if p[PASS_STOP] == STOP_NONE and p[PASS_ATTENDS] != 0:
        p[PASS_STOP] = STOP_RESUME
    last = max(p[PASS_BLOCK_STAMP], max(p[PASS_CLOSED_STAMP], p[PASS_STAMP] + t.counts[COUNT_RESERVATIONS]))
    t.ticks[TICK] = max(t.ticks[TICK], last)
    if p[PASS_STARTS] > 0:
        _put_back_starts(t)
        for s in range(t.meta[M_SHAPES]):
            t.shapes[s, S_FIT] = t.scratch[SCRATCH_FIT, s]
    if p[PASS_REPLANS] != 0:
        for i in range(t.counts[COUNT_RESERVED]):
            reserve_node(t, t.planned_nodes[i, Q_NODE], -1)
        for i in range(t.meta[M_RESERVED]):
            reserve_node(t, t.reserved[i, Q_NODE], i)
    if p[PASS_EXTENDS] != 0:
        p[PASS_REPLANS] = 1
    if p[PASS_GIVEN_UP] > 0:
        p[PASS_FULL] = 1
    p[PASS_WAKE] = _next_wake(t)
    some = t.counts[COUNT_RESERVATIONS] > 0 or t.meta[M_RESERVATIONS] > 0
    end_slice(t, p[PASS_STARTS] > 0 or (p[PASS_REPLANS] != 0 and some))


@inner
def _put_back_starts(t: Tables) -> None:
    """Give back what starts took, and let no count tell of them."""
    p = t.pass_record
    first = p[PASS_FIRST_NODE]
    last = first + p[PASS_NODES]
    if t.meta[M_WITHIN] == 0:
        give_back_starts(t)
        forget_lags(t)
    else:
        settle_counts(t)
        for i in range(first, last):
            lay_aside(t, t.start_nodes[i])
        give_back_starts(t)
        for i in range(first, last):
            count_back(t, t.start_nodes[i])
    for i in range(first, last):
        touch(t, t.start_nodes[i])


@inner
def _next_wake(t: Tables) -> int:
    """The instant at which to plan again though nothing happens: a timer, a claim or a search that is due."""
    now = t.pass_record[PASS_NOW]
    wake = next_timer(t)
    for k in range(t.counts[COUNT_RESERVATIONS]):
        entry = t.planned[k, V_ENTRY]
        if entry >= 0:
            if t.planned[k, V_KIND] == KIND_NEVER:
                since = t.entries[entry, E_BLOCKED_AT]
                wake = min(wake, (now if since < 0 else since) + t.meta[M_CLAIM_AFTER])
            wake = min(wake, max(search_at(t, entry, 0), now + 1))
    return int(wake)
