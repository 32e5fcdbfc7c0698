"""A cycle under strict order, EASY or EASY-SJBF: who starts now, and what the first waiting job is promised.

Pure but for scratch columns: what it takes it gives back before it returns. Buckets are merged by their candidates in a
heap; within a cycle the longest planned time that a class may start now (its window) only shrinks, so one cursor per
bucket is enough and every pop starts a job, lowers a window or drops a bucket. Source: Lifka, JSSPP 1995; Tsafrir,
Etsion, Feitelson, TPDS 2007 (shortest first).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.booked import booked_start, booked_window, select, waits_for_booking, within_booking
from hal.core.kernels.bounds import goes_on, leads_on, looks_on
from hal.core.kernels.ends import ends_root
from hal.core.kernels.jit import inner, kernel
from hal.core.kernels.layout import (
    B_CANDIDATE,
    B_CAP,
    B_CAP_STAMP,
    B_CLASS,
    B_HEAD,
    B_HEAD_JOB,
    B_HEAD_KEY,
    B_INSERT,
    B_LEAST,
    B_OFFSET,
    B_OWNER,
    B_ROOT,
    B_TIME_ROOT,
    BACKFILL_NONE,
    BACKFILL_SJBF,
    BY_TURN,
    C_NODES,
    C_SHAPE,
    CAP_FULL,
    E_ATTEMPT,
    E_BLOCKED_AT,
    E_BUCKET,
    E_FIRST,
    E_JOB,
    E_KEY,
    E_PLANNED,
    E_STAMP,
    E_TASKS,
    E_WALL,
    G_KIND,
    INF,
    KIND_BLOCK,
    KIND_CLAIM,
    KIND_NEVER,
    KIND_PROMISE,
    LEDGER_HOURS,
    M_ACTIVE,
    M_BACKFILL,
    M_BOOKING_EDGE,
    M_BOOKINGS,
    M_CLAIM_AFTER,
    M_DIRTY,
    M_EPOCH,
    M_INSERTS,
    M_NEXT_EDGE,
    M_ORDER,
    M_PARKED_INSERTS,
    M_PARKED_WAKE,
    M_PARKING,
    M_PASS_STARTS,
    M_PROMISED,
    M_RESERVATIONS,
    M_RESOURCES,
    M_ROWS,
    M_RUNS,
    M_SHAPES,
    M_SHARED,
    M_TIMER_ROOT,
    M_VERSION,
    M_WAKE,
    O_QUEUE,
    ORDER_PRIORITY,
    P_NEXT,
    P_ROW,
    Q_EXTRA,
    Q_PROMISE,
    Q_ROW,
    R_BUCKET,
    R_PIECE,
    REASON_BOOKED,
    REASON_LEDGER,
    REASON_LICENCE,
    REASON_RESOURCES,
    S_CLOSED,
    S_CLOSED_STAMP,
    S_CSET,
    S_EVER,
    S_FIT,
    S_LICENCES,
    S_OPEN,
    S_OPEN_STAMP,
    S_WAKE,
    T_KEY,
    T_RIGHT,
    TICK,
    TICK_NOW,
    TICK_TAKEN,
    TICK_WALL,
    TICK_WORK,
    V_BEHIND,
    V_CLASS,
    V_DIRTY,
    V_ENTRY,
    V_HELD,
    V_JOB,
    V_KEY,
    V_KIND,
    V_NODES,
    V_PLANNED,
    V_ROW,
    V_START,
    V_TASK,
    W_PROMISED,
    W_STAMP,
    Y_CLOSED_STAMP,
    Y_DISCIPLINE,
    Y_SHUT,
    Y_STRICT,
    Y_WAITS_JOB,
    Y_WAITS_KEY,
    Y_WAITS_STAMP,
)
from hal.core.kernels.ledgers import charge_ledgers, full_ledger, ledger_wakes
from hal.core.kernels.licences import (
    licence_shadow,
    licences_now,
    licences_promised,
    licences_there,
    note_promised,
    use_extra,
)
from hal.core.kernels.memory import Tables, tables
from hal.core.kernels.placing import choose, window
from hal.core.kernels.releases import FEW_ROWS, FEW_STARTS, WALK, enough_ready, line_of, project_row, ready_line
from hal.core.kernels.rows import compete, fits, forget_lags, promise_row, settle_counts, take_later, touch
from hal.core.kernels.searched import may_preempt, search_at
from hal.core.kernels.sorting import sort_pairs
from hal.core.kernels.tables import copy_record
from hal.core.kernels.treap import Table, tree_descend, tree_first, tree_seek
from hal.core.kernels.wants import take_licences

Ints = NDArray[np.int64]
Slice = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int]
"""What a cycle kernel returns; see `cycle`."""

LOWEST = -INF
RUNS_A_START = 64
"""Running attempts for each start of a pass before shares are asked again: shares err by this part of the cluster."""
MAX_VERDICTS = 256

STOP_ANEW = 2
STOP_SEARCH = 3
STOP_RESUME = 4
"""Why a pass is interrupted: shares have moved; work to take back is searched for; suspended work is looked at."""

H_LANE = 0
H_KEY = 1
H_SEQ = 2
H_BUCKET = 3


@inner
def _less(heap: Table, a: int, b: int) -> bool:
    if heap[a, H_LANE] != heap[b, H_LANE]:
        return bool(heap[a, H_LANE] < heap[b, H_LANE])
    if heap[a, H_KEY] != heap[b, H_KEY]:
        return bool(heap[a, H_KEY] < heap[b, H_KEY])
    return bool(heap[a, H_SEQ] < heap[b, H_SEQ])


@inner
def heap_down(heap: Table, size: int, at: int) -> None:
    """Let an item sink to its place: log2(size) rounds, each goes one level down."""
    lane = heap[at, H_LANE]
    key = heap[at, H_KEY]
    seq = heap[at, H_SEQ]
    bucket = heap[at, H_BUCKET]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _less(heap, child + 1, child):
            child += 1
        if heap[child, H_LANE] != lane:
            before = heap[child, H_LANE] < lane
        elif heap[child, H_KEY] != key:
            before = heap[child, H_KEY] < key
        else:
            before = heap[child, H_SEQ] < seq
        if not before:
            break
        for c in range(4):
            heap[at, c] = heap[child, c]
        at = child
    heap[at, H_LANE] = lane
    heap[at, H_KEY] = key
    heap[at, H_SEQ] = seq
    heap[at, H_BUCKET] = bucket


@inner
def heap_order(heap: Table, size: int) -> None:
    """Make a heap of the first `size` items."""
    for at in range(size // 2 - 1, -1, -1):
        heap_down(heap, size, at)


@inner
def release(t: Tables, resources: int, cset: int, shape: int, row: int, given: int, stamp: int) -> bool:
    """Project a release onto a row; True when the waiting shape fits there from now on and did not before."""
    if t.rows[row, W_STAMP] != stamp:
        t.rows[row, W_STAMP] = stamp
        for r in range(resources):
            t.projected[row, r] = t.free[row, r]
    if t.allowed[cset, row] == 0:
        for r in range(resources):
            t.projected[row, r] += t.request[r, given]
        return False
    before = fits(t, t.projected, row, shape, resources)
    for r in range(resources):
        t.projected[row, r] += t.request[r, given]
    return not before and fits(t, t.projected, row, shape, resources)


@inner
def _project(
    t: Tables, shape: int, now: int, stamp: int, starts: Any, start_at: int, start_rows: Ints, due: Ints, due_index:
    Ints, fresh: int, freed: Ints, freed_row: Ints, enough: int, until: int,
) -> tuple[int, int]:  # fmt: skip
    """Project releases in the order of time, up to `until` or, with all of that instant, until `enough` rows newly fit.

    Returns (rows that newly fit, the instant at which they were enough or -1).
    """
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    newly = 0
    shadow = -1
    depth = tree_descend(t.ends, ends_root(t), t.path, 0)
    taken = 0
    seen = 0
    while goes_on(t, True, seen, t.ends.shape[0] + fresh + 1):
        seen += 1
        at = INF
        from_tree = False
        if depth > 0:
            at = max(t.ends[t.path[depth - 1], T_KEY], now + 1)
            from_tree = True
        if taken < fresh and max(due[taken], now + 1) < at:
            at = max(due[taken], now + 1)
            from_tree = False
        if at >= INF or at > until or (shadow >= 0 and at > shadow):
            break
        if from_tree:
            run = t.path[depth - 1]
            depth = tree_descend(t.ends, t.ends[run, T_RIGHT], t.path, depth - 1)
            given = t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE]
            piece = t.runs[run, R_PIECE]
            walked = 0
            while leads_on(t, piece, walked, t.pieces.shape[0]):
                walked += 1
                row = t.pieces[piece, P_ROW]
                if release(t, resources, cset, shape, row, given, stamp):
                    freed[newly] = at
                    freed_row[newly] = row
                    newly += 1
                piece = t.pieces[piece, P_NEXT]
        else:
            start = starts[start_at + due_index[taken]]
            taken += 1
            given = t.classes[t.buckets[t.entries[start["entry"], E_BUCKET], B_CLASS], C_SHAPE]
            for i in range(start["row_offset"], start["row_offset"] + start["row_count"]):
                row = start_rows[i]
                if release(t, resources, cset, shape, row, given, stamp):
                    freed[newly] = at
                    freed_row[newly] = row
                    newly += 1
        if shadow < 0 and newly >= enough:
            shadow = at
    return newly, shadow


@inner
def _promise_between(
    t: Tables, promised: Table, offset: int, shape: int, nodes: int, now: int, since: int, newly: int, freed: Ints,
    freed_row: Ints,
) -> int:  # fmt: skip
    """The earliest instant from `since` on at which enough rows fit and bookings let the job run there; -1 = never.

    Writes the rows: of those the ones that come free latest. A row that fits goes on fitting: only releases are ahead.
    """
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    wall = t.ticks[TICK_WALL]
    ready = t.scratch[8]
    values = t.scratch[9]
    for row in range(t.meta[M_ROWS]):
        ready[row] = INF
        if t.allowed[cset, row] != 0 and fits(t, t.free, row, shape, resources):
            ready[row] = now
    for k in range(newly):
        ready[freed_row[k]] = freed[k]
    for i in range(offset):
        ready[promised[i, Q_ROW]] = INF  # to work of another booking: a row is promised once
    at = since
    tries = 0
    # Each round begins where a booking ends on some row: later than the one before.
    while goes_on(t, True, tries, t.meta[M_ROWS] * (1 + t.booked.shape[0]) + 1):
        tries += 1
        count = 0
        there = 0
        for row in range(t.meta[M_ROWS]):
            if ready[row] < INF:
                begin = booked_start(t, row, shape, max(ready[row], at), wall)
                if begin < INF:
                    values[count] = begin
                    count += 1
                if begin == at:
                    there += 1
        if there >= nodes:
            break
        if count < nodes:
            return -1
        at = select(values, count, nodes - 1)
    count = 0
    for row in range(t.meta[M_ROWS]):
        if ready[row] < INF and booked_start(t, row, shape, max(ready[row], at), wall) == at:
            freed[count] = ready[row]
            freed_row[count] = row
            count += 1
    sort_pairs(freed, freed_row, count)
    for k in range(nodes):
        promised[offset + k, Q_ROW] = freed_row[count - 1 - k]
    return int(at)


@inner
def _between_bookings(
    at: Any, promises: Table, promised: Table, entry: int, shape: int, nodes: int, now: int, stamp: int, starts: Any,
    start_at: int, start_count: int, start_rows: Ints, due: Ints, due_index: Ints, fresh: int, freed: Ints, freed_row:
    Ints,
) -> tuple[int, int]:  # fmt: skip
    """Where bookings or licences have a say: (rows that newly fit by then, the instant of the promise or -1).

    Writes the promised rows, and projects amounts up to the instant.
    """
    t = tables(at)
    wall = t.ticks[TICK_WALL]
    planned = t.entries[entry, E_PLANNED]
    since = licence_shadow(t, promises, shape, planned, wall, now, starts, start_at, start_count)
    if since < 0:
        return 0, -1
    newly, _ = _project(
        t, shape, now, -stamp, starts, start_at, start_rows, due, due_index, fresh, freed, freed_row, INF, INF
    )
    shadow = _promise_between(t, promised, t.counts[1], shape, nodes, now, since, newly, freed, freed_row)
    if shadow >= 0:
        newly, _ = _project(
            t, shape, now, stamp, starts, start_at, start_rows, due, due_index, fresh, freed, freed_row, INF, shadow
        )
    return newly, shadow


@inner
def _promise(
    at: Any, promises: Table, promised: Table, entry: int, key: int, now: int, stamp: int, starts: Any, start_at:
    int, start_count: int, start_rows: Ints, due: Ints, due_index: Ints, freed: Ints, freed_row: Ints,
) -> None:  # fmt: skip
    """Promise the first waiting job its rows: the earliest release at which enough rows fit, counting every release up
    to and including it, and on it the rows that come free latest. counts = [promises, promised rows]."""
    t = tables(at)
    class_id = t.buckets[t.entries[entry, E_BUCKET], B_CLASS]
    shape = t.classes[class_id, C_SHAPE]
    nodes = t.classes[class_id, C_NODES]
    cset = t.shapes[shape, S_CSET]
    resources = t.meta[M_RESOURCES]
    mine = t.counts[0]
    offset = t.counts[1]
    t.counts[0] += 1
    promises[mine, V_ENTRY] = entry
    promises[mine, V_JOB] = t.entries[entry, E_JOB]
    promises[mine, V_TASK] = t.entries[entry, E_FIRST]
    promises[mine, V_KEY] = key
    promises[mine, V_START] = INF
    promises[mine, V_PLANNED] = t.entries[entry, E_PLANNED]
    promises[mine, V_CLASS] = class_id
    promises[mine, V_ROW] = offset
    promises[mine, V_NODES] = 0
    promises[mine, V_DIRTY] = 0
    promises[mine, V_HELD] = 1
    promises[mine, V_BEHIND] = 0
    if t.meta[M_BACKFILL] == BACKFILL_NONE:
        promises[mine, V_KIND] = KIND_BLOCK
        return
    # What was started in this very cycle is not in the tree of running attempts yet: merge it in by planned end.
    fresh = 0
    for k in range(start_count):
        start = starts[start_at + k]
        given = t.classes[t.buckets[t.entries[start["entry"], E_BUCKET], B_CLASS], C_SHAPE]
        end = now + within_booking(t, given, now, t.entries[start["entry"], E_PLANNED])
        if end < INF:
            due[fresh] = end
            due_index[fresh] = k
            fresh += 1
    sort_pairs(due, due_index, fresh)
    fit = t.shapes[shape, S_FIT]
    newly = 0
    shadow = now if fit >= nodes else -1
    booked = t.meta[M_BOOKINGS] > 0 or t.shapes[shape, S_LICENCES] != 0
    # Few releases are walked in the order of time; on a big cluster the kept instants of the shape are asked instead.
    line = -1
    may_keep = t.meta[M_ROWS] >= FEW_ROWS and start_count <= FEW_STARTS and shadow != now and not booked
    if may_keep and line_of(t, shape) >= 0:
        line = ready_line(t, shape, starts, start_at, start_count, start_rows, now, t.scratch[8], t.scratch[9])
    looked = 0
    depth = tree_descend(t.ends, ends_root(t), t.path, 0)
    taken = 0
    seen = 0
    while goes_on(t, shadow != now and line < 0 and not booked, seen, t.ends.shape[0] + fresh + 1):
        seen += 1
        if looked >= WALK and may_keep:
            line = ready_line(t, shape, starts, start_at, start_count, start_rows, now, t.scratch[8], t.scratch[9])
            may_keep = False
            if line >= 0:
                break
        instant = INF
        from_tree = False
        if depth > 0:
            instant = max(t.ends[t.path[depth - 1], T_KEY], now + 1)
            from_tree = True
        if taken < fresh and max(due[taken], now + 1) < instant:
            instant = max(due[taken], now + 1)
            from_tree = False
        if instant >= INF or (shadow >= 0 and instant > shadow):
            break
        if from_tree:
            run = t.path[depth - 1]
            depth = tree_descend(t.ends, t.ends[run, T_RIGHT], t.path, depth - 1)
            given = t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE]
            piece = t.runs[run, R_PIECE]
            walked = 0
            while leads_on(t, piece, walked, t.pieces.shape[0]):
                walked += 1
                row = t.pieces[piece, P_ROW]
                looked += 1
                if release(t, resources, cset, shape, row, given, stamp):
                    freed[newly] = instant
                    freed_row[newly] = row
                    newly += 1
                piece = t.pieces[piece, P_NEXT]
        else:
            start = starts[start_at + due_index[taken]]
            taken += 1
            given = t.classes[t.buckets[t.entries[start["entry"], E_BUCKET], B_CLASS], C_SHAPE]
            for i in range(start["row_offset"], start["row_offset"] + start["row_count"]):
                row = start_rows[i]
                if release(t, resources, cset, shape, row, given, stamp):
                    freed[newly] = instant
                    freed_row[newly] = row
                    newly += 1
        if shadow < 0 and fit + newly >= nodes:
            shadow = instant
    if line >= 0:
        newly = enough_ready(t, line, nodes - fit, now, freed, freed_row)
        shadow = freed[newly - 1] if newly > 0 else -1
    if booked:
        newly, shadow = _between_bookings(
            at, promises, promised, entry, shape, nodes, now, stamp, starts, start_at, start_count, start_rows, due,
            due_index, fresh, freed, freed_row,
        )  # fmt: skip
    found = 0
    if shadow >= 0:
        promises[mine, V_KIND] = KIND_PROMISE
        promises[mine, V_START] = shadow
        found = nodes if booked else 0
        sort_pairs(freed, freed_row, newly)
        while found < nodes and newly > 0:
            newly -= 1
            promised[offset + found, Q_ROW] = freed_row[newly]
            found += 1
        row = t.meta[M_ROWS] - 1
        while found < nodes and row >= 0:
            if t.allowed[cset, row] != 0 and fits(t, t.free, row, shape, resources):
                promised[offset + found, Q_ROW] = row
                found += 1
            row -= 1
    else:
        since = t.entries[entry, E_BLOCKED_AT]
        promises[mine, V_KIND] = KIND_NEVER
        if since < 0 or now - since < t.meta[M_CLAIM_AFTER]:
            return
        # Claim: first the rows that fit now, then the ones that could.
        promises[mine, V_KIND] = KIND_CLAIM
        for now_fits in range(2):
            for row in range(t.meta[M_ROWS]):
                if (
                    found < nodes
                    and t.rows[row, W_PROMISED] < 0  # to work of another booking: a row is promised once
                    and t.allowed[cset, row] != 0
                    and fits(t, t.capacity, row, shape, resources)
                    and fits(t, t.free, row, shape, resources) == (now_fits == 0)
                    and (not booked or booked_start(t, row, shape, now, t.ticks[TICK_WALL]) == now)
                ):
                    promised[offset + found, Q_ROW] = row
                    found += 1
    promises[mine, V_NODES] = found
    for i in range(offset, offset + found):
        row = promised[i, Q_ROW]
        if line >= 0 and shadow >= 0:
            project_row(
                t, row, shadow, stamp, starts, start_at, start_count, start_rows, now, t.scratch[8], t.scratch[9]
            )
        promised[i, Q_PROMISE] = mine
        promise_row(t, row, i)
        for r in range(resources):
            there = t.projected[row, r] if t.rows[row, W_STAMP] == stamp and shadow >= 0 else t.free[row, r]
            promised[i, Q_EXTRA + r] = there - t.request[r, shape]
    t.counts[1] += found


@inner
def _is_closed(t: Tables, promises: Table, count: int, shape: int, stamp: int) -> bool:
    """Whether a job that competes for a shape's rows is promised them already; cached by stamp."""
    if t.shapes[shape, S_CLOSED_STAMP] != stamp:
        closed = 0
        for k in range(count):
            if compete(t, shape, t.classes[promises[k, V_CLASS], C_SHAPE]):
                closed = 1
                break
        t.shapes[shape, S_CLOSED_STAMP] = stamp
        t.shapes[shape, S_CLOSED] = closed
    return bool(t.shapes[shape, S_CLOSED] == 1)


@inner
def _is_parked(t: Tables, bucket: int, shape: int, queue: int, dropped: int, stamp: int) -> bool:
    """Whether nothing that a bucket waits for has changed since the last complete pass: its wake keys are its own
    insertions, rows of its shape that came free, its ledgers, and promises of jobs that compete with it."""
    parked = t.meta[M_PARKED_WAKE]
    if (
        t.buckets[bucket, B_INSERT] > t.meta[M_PARKED_INSERTS]
        or t.shapes[shape, S_WAKE] > parked
        or t.queues[queue, Y_STRICT] != 0
        or ledger_wakes(t, bucket, parked)
    ):
        return False
    if t.shapes[shape, S_OPEN_STAMP] != stamp:
        opened = 0
        for k in range(dropped):
            if compete(t, shape, t.classes[t.reservations[t.scratch[7, k], V_CLASS], C_SHAPE]):
                opened = 1
                break
        t.shapes[shape, S_OPEN_STAMP] = stamp
        t.shapes[shape, S_OPEN] = opened
    return bool(t.shapes[shape, S_OPEN] == 0)


@inner
def wait_strictly(t: Tables, bucket: int, queue: int, entry: int, stamp: int) -> None:
    """An entry of a strict queue waits and this cycle will not come by it: what ranks behind it must not start."""
    key = t.entries[entry, E_KEY] + t.buckets[bucket, B_OFFSET]
    if (
        t.queues[queue, Y_WAITS_STAMP] != stamp
        or key < t.queues[queue, Y_WAITS_KEY]
        or (key == t.queues[queue, Y_WAITS_KEY] and t.entries[entry, E_JOB] < t.queues[queue, Y_WAITS_JOB])
    ):
        t.queues[queue, Y_WAITS_STAMP] = stamp
        t.queues[queue, Y_WAITS_KEY] = key
        t.queues[queue, Y_WAITS_JOB] = t.entries[entry, E_JOB]


@inner
def waits_behind(t: Tables, queue: int, key: int, job: int, stamp: int) -> bool:
    """Whether a job of a strict queue ranks behind one that waits."""
    if t.queues[queue, Y_STRICT] == 0:
        return False
    if t.queues[queue, Y_CLOSED_STAMP] == stamp:
        return True
    if t.queues[queue, Y_WAITS_STAMP] != stamp or t.queues[queue, Y_WAITS_KEY] > key:
        return False
    return bool(t.queues[queue, Y_WAITS_KEY] < key or t.queues[queue, Y_WAITS_JOB] < job)


@inner
def close_strict_queues(t: Tables, key: int, seq: int, stamp: int) -> None:
    """A pass goes on: strict queues whose first job it has passed over already stay closed."""
    for place in range(t.meta[M_ACTIVE]):
        bucket = t.active[place]
        queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
        if t.queues[queue, Y_STRICT] != 0:
            head = t.buckets[bucket, B_HEAD]
            first = t.entries[head, E_KEY] + t.buckets[bucket, B_OFFSET]
            if first < key or (first == key and t.entries[head, E_JOB] < seq):
                t.queues[queue, Y_CLOSED_STAMP] = stamp


@inner
def _close_if_strict(t: Tables, entry: int, stamp: int) -> None:
    """A promised job waits: nothing of its queue passes it where the queue is strict."""
    queue = t.owners[t.buckets[t.entries[entry, E_BUCKET], B_OWNER], O_QUEUE]
    if t.queues[queue, Y_STRICT] != 0:
        t.queues[queue, Y_CLOSED_STAMP] = stamp


@inner
def _is_given_up(t: Tables, k: int, now: int) -> bool:
    """Whether a promise ends by itself: something changed under it, it is due, or its time has come to claim rows."""
    entry = t.reservations[k, V_ENTRY]
    if t.meta[M_DIRTY] != 0 or t.reservations[k, V_DIRTY] != 0 or entry < 0 or search_at(t, entry, 0) <= now:
        return True
    if t.reservations[k, V_KIND] == KIND_PROMISE:
        return bool(now >= t.reservations[k, V_START])
    since = t.entries[entry, E_BLOCKED_AT]
    return bool(t.reservations[k, V_KIND] == KIND_NEVER and since >= 0 and now - since >= t.meta[M_CLAIM_AFTER])


@inner
def _is_ahead(t: Tables, one: int, other: int) -> bool:
    """Whether an entry ranks before another one."""
    key = t.entries[one, E_KEY] + t.buckets[t.entries[one, E_BUCKET], B_OFFSET]
    other_key = t.entries[other, E_KEY] + t.buckets[t.entries[other, E_BUCKET], B_OFFSET]
    if key != other_key:
        return bool(key < other_key)
    if t.entries[one, E_JOB] != t.entries[other, E_JOB]:
        return bool(t.entries[one, E_JOB] < t.entries[other, E_JOB])
    return bool(t.entries[one, E_FIRST] < t.entries[other, E_FIRST])


@inner
def _give_up(t: Tables, k: int, dropped: int) -> int:
    """Forget a promise for this cycle. Returns how many are forgotten now."""
    t.scratch[7, dropped] = k
    for i in range(t.reservations[k, V_ROW], t.reservations[k, V_ROW] + t.reservations[k, V_NODES]):
        promise_row(t, t.reserved[i, Q_ROW], -1)
    if t.reservations[k, V_ENTRY] >= 0:
        t.entries[t.reservations[k, V_ENTRY], E_STAMP] = 0
    return dropped + 1


@inner
def _last_kept(t: Tables, stamp: int) -> int:
    """The entry that ranks last of those whose promises are kept, -1 where there is none."""
    last = -1
    for k in range(t.meta[M_RESERVATIONS]):
        entry = t.reservations[k, V_ENTRY]
        if entry >= 0 and t.entries[entry, E_STAMP] == stamp and (last < 0 or _is_ahead(t, last, entry)):
            last = entry
    return last


@inner
def _overtaken(t: Tables, full: bool, dropped: int, now: int, stamp: int) -> int:
    """Give up promises that shut out better work: what shut it out before them is gone. Returns how many are given up.

    Two promises that do not compete may both compete with a job that ranks between them. As long as the first one
    stands, the job waits for it and the second one is lawful; when the first one goes, the job is next.
    """
    again = dropped < t.meta[M_RESERVATIONS]
    rounds = 0
    while goes_on(t, again, rounds, t.meta[M_RESERVATIONS] + 1):  # each gives a promise up
        rounds += 1
        again = False
        last = _last_kept(t, stamp)
        if last < 0:
            break
        last_key = t.entries[last, E_KEY] + t.buckets[t.entries[last, E_BUCKET], B_OFFSET]
        for place in range(t.meta[M_ACTIVE]):
            bucket = t.active[place]
            key = t.buckets[bucket, B_HEAD_KEY] + t.buckets[bucket, B_OFFSET]
            if key > last_key or (key == last_key and t.buckets[bucket, B_HEAD_JOB] > t.entries[last, E_JOB]):
                continue  # no promise that is kept ranks behind it
            shape = t.classes[t.buckets[bucket, B_CLASS], C_SHAPE]
            queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
            nodes = t.classes[t.buckets[bucket, B_CLASS], C_NODES]
            if t.queues[queue, Y_SHUT] != 0 or t.shapes[shape, S_EVER] < nodes:
                continue
            if not full and _is_parked(t, bucket, shape, queue, dropped, stamp):
                continue
            head = t.buckets[bucket, B_HEAD]
            if t.entries[head, E_STAMP] == stamp or not _is_ahead(t, head, last):
                continue
            shut = False
            rival = False
            for k in range(t.meta[M_RESERVATIONS]):
                entry = t.reservations[k, V_ENTRY]
                if (
                    not shut
                    and entry >= 0
                    and t.entries[entry, E_STAMP] == stamp
                    and compete(t, shape, t.classes[t.reservations[k, V_CLASS], C_SHAPE])
                ):
                    shut = _is_ahead(t, entry, head)
                    rival = True
            wall = t.entries[head, E_WALL]
            if shut or not rival or full_ledger(t, bucket, wall) >= 0 or waits_for_booking(t, shape, nodes, now, wall):
                continue
            for k in range(t.meta[M_RESERVATIONS]):
                entry = t.reservations[k, V_ENTRY]
                if (
                    entry >= 0
                    and t.entries[entry, E_STAMP] == stamp
                    and compete(t, shape, t.classes[t.reservations[k, V_CLASS], C_SHAPE])
                ):
                    dropped = _give_up(t, k, dropped)
                    again = dropped < t.meta[M_RESERVATIONS]
            for s in range(t.meta[M_SHAPES]):
                t.shapes[s, S_OPEN_STAMP] = 0  # more is given up than when it was asked
    return dropped


@inner
def _keep_promises(at: Any, promises: Table, promised: Table, full: bool, now: int, stamp: int) -> int:
    """Copy the promises that still stand; the others are listed in scratch[7]. Returns how many are given up."""
    t = tables(at)
    dropped = 0
    for k in range(t.meta[M_RESERVATIONS]):
        if _is_given_up(t, k, now):
            dropped = _give_up(t, k, dropped)
        else:
            t.entries[t.reservations[k, V_ENTRY], E_STAMP] = stamp
    dropped = _overtaken(t, full, dropped, now, stamp)
    for k in range(t.meta[M_RESERVATIONS]):
        entry = t.reservations[k, V_ENTRY]
        if entry < 0 or t.entries[entry, E_STAMP] != stamp:
            continue
        mine = t.counts[0]
        copy_record(promises, mine, t.reservations, k)
        promises[mine, V_ROW] = t.counts[1]
        _close_if_strict(t, entry, stamp)
        for i in range(t.reservations[k, V_ROW], t.reservations[k, V_ROW] + t.reservations[k, V_NODES]):
            copy_record(promised, t.counts[1], t.reserved, i)
            promised[t.counts[1], Q_PROMISE] = mine
            promise_row(t, t.reserved[i, Q_ROW], t.counts[1])
            t.counts[1] += 1
        t.counts[0] += 1
    return dropped


@inner
def _seek_unstarted(t: Tables, tree: Table, root: int, key: int, seq: int, tie: int, longest: int, stamp: int) -> int:
    """The next candidate that this cycle has neither started nor promised anything."""
    entry = tree_seek(tree, root, key, seq, tie, longest, t.path)
    tried = 0
    while leads_on(t, entry, tried, t.entries.shape[0]) and t.entries[entry, E_STAMP] == stamp:
        tried += 1
        entry = tree_seek(tree, root, tree[entry, 0], tree[entry, 1], tree[entry, 2] + 1, longest, t.path)
    return entry


@inner
def _refresh(
    at: Any, promises: Table, promised: Table, size: int, only: int, lane: int, key: int, seq: int, tie: int,
    fresh_only: bool, dropped: int, now: int, stamp: int, block_stamp: int, closed_stamp: int,
) -> int:  # fmt: skip
    """Put candidates at or after a place of the order on the heap: of all buckets (`only` < 0), or the top's next.

    Returns the size of the heap.
    """
    t = tables(at)
    mode = t.meta[M_BACKFILL]
    if only < 0:
        size = 0
    found = -1
    for place in range(t.meta[M_ACTIVE] if only < 0 else 1):
        bucket = t.active[place] if only < 0 else only
        found = -1
        class_id = t.buckets[bucket, B_CLASS]
        shape = t.classes[class_id, C_SHAPE]
        queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
        if t.queues[queue, Y_SHUT] != 0 or t.queues[queue, Y_CLOSED_STAMP] == stamp:
            continue
        if t.buckets[bucket, B_CAP_STAMP] == stamp and t.buckets[bucket, B_CAP] == CAP_FULL:
            continue
        if fresh_only and _is_parked(t, bucket, shape, queue, dropped, stamp):
            continue
        nodes = t.classes[class_id, C_NODES]
        strict = t.queues[queue, Y_STRICT] != 0
        timed = False
        longest = INF
        if t.shapes[shape, S_EVER] < nodes:
            longest = -1
        elif t.counts[0] > 0 and _is_closed(t, promises, t.counts[0], shape, closed_stamp):
            if mode != BACKFILL_NONE:
                longest = window(t, promises, promised, t.counts[1], shape, nodes, now, block_stamp)
                longest = min(longest, booked_window(t, shape, nodes, now, t.scratch[9]))
                if t.buckets[bucket, B_CAP_STAMP] == stamp:
                    longest = min(longest, t.buckets[bucket, B_CAP])
            else:
                longest = -1
            timed = mode == BACKFILL_SJBF and not strict
        if strict and longest < INF:
            first = _seek_unstarted(t, t.rank, t.buckets[bucket, B_ROOT], LOWEST, -1, -1, INF, stamp)
            if first >= 0 and t.entries[first, E_PLANNED] > longest:
                wait_strictly(t, bucket, queue, first, stamp)
                continue
        if longest < 0 or (longest < INF and t.buckets[bucket, B_LEAST] > longest):
            continue
        if lane == 1 and not timed:
            continue
        if only < 0 and not timed and longest == INF and not _head_is_past(t, bucket, key, seq, tie):
            _set_head_item(t, size, bucket)
            size += 1
            continue
        from_key = key - t.buckets[bucket, B_OFFSET] if lane == 0 else key
        from_seq = seq
        from_tie = tie
        if timed and lane == 0:
            from_key = LOWEST
            from_seq = -1
            from_tie = -1
        tree = t.by_time if timed else t.rank
        root = t.buckets[bucket, B_TIME_ROOT] if timed else t.buckets[bucket, B_ROOT]
        found = _seek_unstarted(t, tree, root, from_key, from_seq, from_tie, longest, stamp)
        if found >= 0 and only < 0:
            _set_item(t, size, bucket, found, 1 if timed else 0)
            size += 1
    if only < 0:
        heap_order(t.heap, size)
        return size
    if found >= 0:
        _set_item(t, 0, only, found, lane)
    else:
        size -= 1
        for c in range(4):
            t.heap[0, c] = t.heap[size, c]
    heap_down(t.heap, size, 0)
    return size


@inner
def _head_is_past(t: Tables, bucket: int, key: int, seq: int, tie: int) -> bool:
    """Whether a place of the order lies behind the first entry of a bucket."""
    mine = t.buckets[bucket, B_HEAD_KEY] + t.buckets[bucket, B_OFFSET]
    if mine != key:
        return bool(mine < key)
    if t.buckets[bucket, B_HEAD_JOB] != seq:
        return bool(t.buckets[bucket, B_HEAD_JOB] < seq)
    return bool(t.entries[t.buckets[bucket, B_HEAD], E_FIRST] < tie)


@inner
def _set_head_item(t: Tables, at: int, bucket: int) -> None:
    """The first entry of a bucket as its candidate; whether this cycle is done with it is asked when its turn comes."""
    t.heap[at, H_LANE] = 0
    t.heap[at, H_KEY] = t.buckets[bucket, B_HEAD_KEY] + t.buckets[bucket, B_OFFSET]
    t.heap[at, H_SEQ] = t.buckets[bucket, B_HEAD_JOB]
    t.heap[at, H_BUCKET] = bucket
    t.buckets[bucket, B_CANDIDATE] = t.buckets[bucket, B_HEAD]


@inner
def _set_item(t: Tables, at: int, bucket: int, entry: int, lane: int) -> None:
    t.heap[at, H_LANE] = lane
    if lane == 1:
        t.heap[at, H_KEY] = t.entries[entry, E_PLANNED]
    else:
        t.heap[at, H_KEY] = t.entries[entry, E_KEY] + t.buckets[bucket, B_OFFSET]
    t.heap[at, H_SEQ] = t.entries[entry, E_JOB]
    t.heap[at, H_BUCKET] = bucket
    t.buckets[bucket, B_CANDIDATE] = entry


@inner
def _shut_bucket(t: Tables, bucket: int, stamp: int) -> None:
    """Nothing of a bucket starts any more in this cycle."""
    t.buckets[bucket, B_CAP] = CAP_FULL
    t.buckets[bucket, B_CAP_STAMP] = stamp


@inner
def next_timer(t: Tables) -> int:
    """When the next waiting entry becomes eligible, INF when none does."""
    first = tree_first(t.rank, t.meta[M_TIMER_ROOT])
    return int(t.rank[first, T_KEY]) if first >= 0 else INF


@kernel
def cycle(
    at: Any, starts: Any, start_at: int, start_rows: Ints, row_at: int, promise_arena: Table, promise_at: int,
    promised_arena: Table, promised_at: int, verdict_arena: Any, verdict_at: int, now: int, budget: int, max_starts:
    int, resumed: bool, full: bool, pass_wake: int, pass_inserts: int, lane: int, key: int, seq: int, tie: int,
    stops: int,
) -> Slice:  # fmt: skip
    """One slice. Writes each output from its place on; row offsets in them count from that place.

    Returns (starts, rows used, replans, promises, promised rows, verdicts, unfinished, lane, key, seq, tie, wake_ms,
    work, pass_wake, pass_inserts, full, changes, version); (lane, key, seq, tie) is where an unfinished pass goes on.
    `stops` != 0: there is suspended work that this pass has not looked at yet.
    """
    t = tables(at)
    fit_before = t.scratch[1]
    due = t.scratch[2]
    due_index = t.scratch[3]
    freed = t.scratch[4]
    freed_row = t.scratch[5]
    rank_scratch = t.scratch[6]
    promises = promise_arena[promise_at:]
    promised = promised_arena[promised_at:]
    verdicts = verdict_arena[verdict_at : verdict_at + MAX_VERDICTS]
    t.ticks[TICK] += 4
    stamp = t.ticks[TICK]
    block_stamp = stamp
    closed_stamp = stamp
    t.ticks[TICK_WORK] = 0
    t.ticks[TICK_NOW] = now
    t.ticks[TICK_TAKEN] += 1
    t.counts[0] = 0
    t.counts[1] = 0
    dropped = 0
    if resumed:
        replans = False
        t.counts[0] = t.meta[M_RESERVATIONS]
        t.counts[1] = t.meta[M_PROMISED]
        for k in range(t.counts[0]):
            copy_record(promises, k, t.reservations, k)
            if promises[k, V_ENTRY] >= 0:
                t.entries[promises[k, V_ENTRY], E_STAMP] = stamp
                _close_if_strict(t, promises[k, V_ENTRY], stamp)
        for i in range(t.counts[1]):
            copy_record(promised, i, t.reserved, i)
        close_strict_queues(t, key, seq, stamp)
    else:
        pass_wake = t.meta[M_EPOCH]
        pass_inserts = t.meta[M_INSERTS]
        full = t.meta[M_DIRTY] != 0 or t.meta[M_PARKING] == 0 or t.meta[M_PARKED_WAKE] < t.meta[M_WAKE]
        dropped = _keep_promises(at, promises, promised, full, now, stamp)
        replans = t.meta[M_DIRTY] != 0 or dropped > 0
        lane = 0
        key = LOWEST
        seq = -1
        tie = -1
    note_promised(t, promises, t.counts[0], now, starts, start_at, 0)
    passed = t.meta[M_PASS_STARTS] if resumed else 0
    most = INF
    if t.meta[M_ORDER] == ORDER_PRIORITY and t.meta[M_SHARED] == 1:
        most = max((t.meta[M_RUNS] - passed) // RUNS_A_START, 1) - passed
    again = False
    started = 0
    used = 0
    refusals = 0
    promised_changed = False
    unfinished = 0
    t.ticks[TICK_WORK] = 0
    size = 0
    only = -1
    pops = 0
    while looks_on(t, True, pops):
        pops += 1
        size = _refresh(
            at, promises, promised, size, only, lane, key, seq, tie, not full, dropped, now, stamp, block_stamp,
            closed_stamp,
        )  # fmt: skip
        if size == 0:
            break
        bucket = t.heap[0, H_BUCKET]
        entry = t.buckets[bucket, B_CANDIDATE]
        lane = t.heap[0, H_LANE]
        key = t.heap[0, H_KEY]
        seq = t.heap[0, H_SEQ]
        tie = t.entries[entry, E_FIRST]
        if t.ticks[TICK_WORK] >= budget:
            unfinished = 1
            break
        if t.entries[entry, E_STAMP] == stamp:
            only = bucket  # promised something: the next one is its candidate
            continue
        t.ticks[TICK_WORK] += 1
        queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
        if waits_behind(t, queue, key, seq, stamp):
            t.queues[queue, Y_CLOSED_STAMP] = stamp
            only = -1
            continue
        class_id = t.buckets[bucket, B_CLASS]
        shape = t.classes[class_id, C_SHAPE]
        nodes = t.classes[class_id, C_NODES]
        closed = t.counts[0] > 0 and _is_closed(t, promises, t.counts[0], shape, closed_stamp)
        if started >= most or (passed + started > 0 and t.queues[queue, Y_DISCIPLINE] == BY_TURN):
            again = True
            unfinished = STOP_ANEW  # shares have moved: a new pass asks again who is first
            break
        longest = window(t, promises, promised, t.counts[1], shape, nodes, now, block_stamp)
        if t.buckets[bucket, B_CAP_STAMP] == stamp:
            longest = min(longest, t.buckets[bucket, B_CAP])
        planned = within_booking(t, shape, now, t.entries[entry, E_PLANNED])
        wall = t.entries[entry, E_WALL]
        t.ticks[TICK_WALL] = wall
        booked = booked_window(t, shape, nodes, now, t.scratch[9])
        if stops != 0 and not may_preempt(t, bucket):
            # What was suspended for others goes on before anybody else starts.
            unfinished = STOP_RESUME
            break
        end = min(now + planned, INF)
        refused = planned > longest or wall > booked
        if refused and not closed and full_ledger(t, bucket, wall) >= 0:
            refused = False  # who waits for a limit earns no promise, however short the nodes are
        lacking = -1
        unlicensed = False
        task = 0
        tasks = t.entries[entry, E_TASKS]
        while not refused and task < tasks:
            lacking = full_ledger(t, bucket, wall)
            if lacking >= 0:
                break
            if started >= most or (passed + started > 0 and t.queues[queue, Y_DISCIPLINE] == BY_TURN):
                again = True
                break
            if started >= max_starts or start_at + started >= starts.shape[0]:
                unfinished = 1
                break
            if row_at + used + nodes > start_rows.shape[0] or t.ticks[TICK_WORK] >= budget + nodes:
                unfinished = 1
                break
            if licences_promised(t, shape, end) or not licences_there(
                t, promises, shape, wall, now, starts, start_at, started
            ):
                refused = True
                unlicensed = True
                if not licences_now(t, shape):
                    _shut_bucket(t, bucket, stamp)
                elif licences_promised(t, shape, end):
                    t.buckets[bucket, B_CAP] = planned - 1
                    t.buckets[bucket, B_CAP_STAMP] = stamp
                break
            found = 0
            if t.shapes[shape, S_FIT] >= nodes:
                found = choose(
                    at,
                    promises,
                    promised,
                    t.counts[1],
                    shape,
                    nodes,
                    end,
                    start_rows,
                    row_at + used,
                    rank_scratch,
                    stamp,
                    started == 0,
                )
            if found < nodes:
                refused = True
                settle_counts(t)
                # Rows that fit, not rows passed over: the place where a search begins is remembered, work must not
                # depend on it, or equal inputs would be cut into unequal slices.
                t.ticks[TICK_WORK] += t.shapes[shape, S_FIT]
                if closed and longest >= 0 and t.meta[M_BOOKINGS] == 0:
                    t.buckets[bucket, B_CAP] = planned - 1
                    t.buckets[bucket, B_CAP_STAMP] = stamp
                break
            if started == 0:
                for s in range(t.meta[M_SHAPES]):
                    fit_before[s] = t.shapes[s, S_FIT]
            start = starts[start_at + started]
            start["job"] = t.entries[entry, E_JOB]
            start["task"] = t.entries[entry, E_FIRST] + task
            start["attempt"] = t.entries[entry, E_ATTEMPT]
            start["row_offset"] = used
            start["row_count"] = nodes
            start["entry"] = entry
            for i in range(row_at + used, row_at + used + nodes):
                row = start_rows[i]
                take_later(t, row, shape)
                place = t.rows[row, W_PROMISED]
                if place >= 0:
                    block_stamp += 1
                    promise = promised[place, Q_PROMISE]
                    if promises[promise, V_KIND] != KIND_PROMISE or end > promises[promise, V_START]:
                        promised_changed = True
                        for r in range(t.meta[M_RESOURCES]):
                            promised[place, Q_EXTRA + r] -= t.request[r, shape]
            charge_ledgers(t, bucket, wall, 1)
            t.ticks[TICK_TAKEN] += 1
            take_licences(t, shape, 1)
            use_extra(t, shape, end)
            started += 1
            used += nodes
            task += 1
            t.ticks[TICK_WORK] += nodes
        if again:
            # Shares have moved: a new pass asks anew who is first.
            unfinished = STOP_ANEW
            break
        if unfinished == 1:
            tie += task
            break
        if refused and not closed and search_at(t, entry, task) <= now:
            unfinished = STOP_SEARCH
        elif refused and stops != 0:
            unfinished = STOP_RESUME
        if unfinished != 0:
            tie += task
            break
        if task == tasks:
            t.entries[entry, E_STAMP] = stamp
        tie = t.entries[entry, E_FIRST] + 1
        if refused:
            settle_counts(t)
        if (refused or lacking >= 0) and t.queues[queue, Y_STRICT] != 0:
            t.queues[queue, Y_CLOSED_STAMP] = stamp
            only = -1
        if lacking >= 0:
            if t.ledgers[lacking, G_KIND] == LEDGER_HOURS:
                t.entries[entry, E_STAMP] = stamp
            else:
                _shut_bucket(t, bucket, stamp)
            if refusals < verdicts.shape[0]:
                verdicts[refusals]["job"] = t.entries[entry, E_JOB]
                verdicts[refusals]["task"] = t.entries[entry, E_FIRST] + task
                verdicts[refusals]["reason"] = REASON_LEDGER
                verdicts[refusals]["short_rows"] = 0
                refusals += 1
            only = bucket
        elif refused and not closed and waits_for_booking(t, shape, nodes, now, wall):
            t.entries[entry, E_STAMP] = stamp
            only = bucket
        elif refused and not closed:
            t.entries[entry, E_STAMP] = stamp
            _promise(
                at,
                promises,
                promised,
                entry,
                key,
                now,
                stamp + t.counts[0],
                starts,
                start_at,
                started,
                start_rows[row_at:],
                due,
                due_index,
                freed,
                freed_row,
            )
            promises[t.counts[0] - 1, V_TASK] += task
            note_promised(t, promises, t.counts[0], now, starts, start_at, started)
            replans = True
            block_stamp += 1
            closed_stamp += 1
            if refusals < verdicts.shape[0]:
                verdicts[refusals]["job"] = t.entries[entry, E_JOB]
                verdicts[refusals]["task"] = t.entries[entry, E_FIRST] + task
                short = nodes - t.shapes[shape, S_FIT]
                verdicts[refusals]["reason"] = REASON_RESOURCES if short > 0 else REASON_BOOKED
                if unlicensed:
                    verdicts[refusals]["reason"] = REASON_LICENCE
                verdicts[refusals]["short_rows"] = max(short, 0)
                refusals += 1
            only = -1
        else:
            only = bucket
        if only >= 0 and t.queues[queue, Y_CLOSED_STAMP] == stamp:
            only = -1
    if unfinished == 0 and stops != 0:
        unfinished = STOP_RESUME
    t.ticks[TICK] = max(t.ticks[TICK], max(block_stamp, max(closed_stamp, stamp + t.counts[0])))
    # Give everything back: the state is as it was.
    if started > 0:
        for k in range(start_at, start_at + started):
            bucket = t.entries[starts[k]["entry"], E_BUCKET]
            charge_ledgers(t, bucket, t.entries[starts[k]["entry"], E_WALL], -1)
            shape = t.classes[t.buckets[bucket, B_CLASS], C_SHAPE]
            take_licences(t, shape, -1)
            for i in range(row_at + starts[k]["row_offset"], row_at + starts[k]["row_offset"] + starts[k]["row_count"]):
                for r in range(t.meta[M_RESOURCES]):
                    t.free[start_rows[i], r] += t.request[r, shape]
                touch(t, start_rows[i])
        forget_lags(t)
        for s in range(t.meta[M_SHAPES]):
            t.shapes[s, S_FIT] = fit_before[s]
    if replans:
        for i in range(t.counts[1]):
            promise_row(t, promised[i, Q_ROW], -1)
        for i in range(t.meta[M_PROMISED]):
            promise_row(t, t.reserved[i, Q_ROW], i)
    replans = replans or promised_changed
    wake = min(next_timer(t), min(t.meta[M_NEXT_EDGE], t.meta[M_BOOKING_EDGE]))
    for k in range(t.counts[0]):
        if promises[k, V_KIND] == KIND_NEVER and promises[k, V_ENTRY] >= 0:
            since = t.entries[promises[k, V_ENTRY], E_BLOCKED_AT]
            wake = min(wake, (now if since < 0 else since) + t.meta[M_CLAIM_AFTER])
        if promises[k, V_ENTRY] >= 0:
            wake = min(wake, max(search_at(t, promises[k, V_ENTRY], 0), now + 1))
    changes = started > 0 or (replans and (t.counts[0] > 0 or t.meta[M_RESERVATIONS] > 0))
    if unfinished == 0 and t.meta[M_ACTIVE] > 0:
        changes = changes or t.meta[M_PARKED_WAKE] != pass_wake or t.meta[M_PARKED_INSERTS] != pass_inserts
    return (
        started,
        used,
        int(replans),
        t.counts[0],
        t.counts[1],
        refusals,
        unfinished,
        lane,
        key,
        seq,
        tie,
        wake,
        t.ticks[TICK_WORK],
        pass_wake,
        pass_inserts,
        int(full or dropped > 0),
        int(changes),
        t.meta[M_VERSION],
    )
