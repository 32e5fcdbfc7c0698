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

from hal.core.kernels.jit import inner, kernel
from hal.core.kernels.layout import (
    B_CANDIDATE,
    B_CAP,
    B_CAP_STAMP,
    B_CLASS,
    B_HEAD,
    B_INSERT,
    B_OFFSET,
    B_ROOT,
    B_TIME_ROOT,
    BACKFILL_NONE,
    BACKFILL_SJBF,
    C_NODES,
    C_SHAPE,
    E_ATTEMPT,
    E_BLOCKED_AT,
    E_BUCKET,
    E_FIRST,
    E_JOB,
    E_KEY,
    E_PLANNED,
    E_STAMP,
    E_TASKS,
    INF,
    KIND_BLOCK,
    KIND_CLAIM,
    KIND_NEVER,
    KIND_PROMISE,
    M_ACTIVE,
    M_BACKFILL,
    M_CLAIM_AFTER,
    M_DIRTY,
    M_END_ROOT,
    M_INSERTS,
    M_PARKED_INSERTS,
    M_PARKED_WAKE,
    M_PARKING,
    M_PROMISED,
    M_RESERVATIONS,
    M_RESOURCES,
    M_ROWS,
    M_SHAPES,
    M_TIMER_ROOT,
    M_VERSION,
    M_WAKE,
    P_NEXT,
    P_ROW,
    Q_EXTRA,
    Q_PROMISE,
    Q_ROW,
    R_BUCKET,
    R_PIECE,
    REASON_RESOURCES,
    S_CLOSED,
    S_CLOSED_STAMP,
    S_CSET,
    S_EVER,
    S_FIT,
    T_KEY,
    T_RIGHT,
    TICK,
    TICK_WORK,
    V_CLASS,
    V_ENTRY,
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
)
from hal.core.kernels.placing import choose, window
from hal.core.kernels.rows import Allowed, compete, fits, take_row
from hal.core.kernels.tables import copy_record
from hal.core.kernels.treap import Table, tree_descend, tree_first, tree_least, tree_seek

Ints = NDArray[np.int64]
Slice = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int]
"""What a cycle kernel returns; see `cycle`."""

LOWEST = -INF
MAX_VERDICTS = 256

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
def _swap(heap: Table, a: int, b: int) -> None:
    for c in range(4):
        keep = heap[a, c]
        heap[a, c] = heap[b, c]
        heap[b, c] = keep


@inner
def heap_down(heap: Table, size: int, at: int) -> None:
    """Let an item sink to its place."""
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _less(heap, child + 1, child):
            child += 1
        if not _less(heap, child, at):
            return
        _swap(heap, child, at)
        at = child


@inner
def heap_order(heap: Table, size: int) -> None:
    """Make a heap of the first `size` items."""
    for at in range(size // 2 - 1, -1, -1):
        heap_down(heap, size, at)


@inner
def sort_pairs(first: Ints, second: Ints, size: int) -> None:
    """Heapsort two columns together by (first, second), ascending."""
    for begin in range(size // 2 - 1, -1, -1):
        _sink_pair(first, second, size, begin)
    for last in range(size - 1, 0, -1):
        first[0], first[last] = first[last], first[0]
        second[0], second[last] = second[last], second[0]
        _sink_pair(first, second, last, 0)


@inner
def _sink_pair(first: Ints, second: Ints, size: int, at: int) -> None:
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and (
            first[child + 1] > first[child] or (first[child + 1] == first[child] and second[child + 1] > second[child])
        ):
            child += 1
        if first[at] > first[child] or (first[at] == first[child] and second[at] >= second[child]):
            return
        first[at], first[child] = first[child], first[at]
        second[at], second[child] = second[child], second[at]
        at = child


@inner
def _release(
    allowed: Allowed, request: Table, free: Table, rows: Table, projected: Table, resources: int, cset: int,
    shape: int, row: int, given: int, stamp: int,
) -> bool:  # fmt: skip
    """Project a release onto a row; True when the waiting shape fits there from now on and did not before."""
    if rows[row, W_STAMP] != stamp:
        rows[row, W_STAMP] = stamp
        for r in range(resources):
            projected[row, r] = free[row, r]
    if allowed[cset, row] == 0:
        for r in range(resources):
            projected[row, r] += request[r, given]
        return False
    before = fits(projected, row, request, shape, resources)
    for r in range(resources):
        projected[row, r] += request[r, given]
    return not before and fits(projected, row, request, shape, resources)


@inner
def _promise(
    meta: Ints, entries: Table, buckets: Table, classes: Table, shapes: Table, request: Table, allowed: Allowed,
    free: Table, capacity: Table, rows: Table, runs: Table, ends: Table, pieces: Table, projected: Table,
    promises: Table, promised: Table, counts: Ints, entry: int, key: int, now: int, stamp: int, path: Ints,
    starts: Any, start_at: int, start_count: int, start_rows: Ints, due: Ints, due_index: Ints, freed: Ints,
    freed_row: Ints,
) -> None:  # fmt: skip
    """Promise the first waiting job its rows: the earliest release at which enough rows fit, counting every release up
    to and including it, and on it the rows that come free latest. counts = [promises, promised rows]."""
    class_id = buckets[entries[entry, E_BUCKET], B_CLASS]
    shape = classes[class_id, C_SHAPE]
    nodes = classes[class_id, C_NODES]
    cset = shapes[shape, S_CSET]
    resources = meta[M_RESOURCES]
    mine = counts[0]
    offset = counts[1]
    counts[0] += 1
    promises[mine, V_ENTRY] = entry
    promises[mine, V_JOB] = entries[entry, E_JOB]
    promises[mine, V_TASK] = entries[entry, E_FIRST]
    promises[mine, V_KEY] = key
    promises[mine, V_START] = INF
    promises[mine, V_PLANNED] = entries[entry, E_PLANNED]
    promises[mine, V_CLASS] = class_id
    promises[mine, V_ROW] = offset
    promises[mine, V_NODES] = 0
    if meta[M_BACKFILL] == BACKFILL_NONE:
        promises[mine, V_KIND] = KIND_BLOCK
        return
    # What was started in this very cycle is not in the tree of running attempts yet: merge it in by planned end.
    fresh = 0
    for k in range(start_count):
        start = starts[start_at + k]
        end = now + entries[start["entry"], E_PLANNED]
        if end < INF:
            due[fresh] = end
            due_index[fresh] = k
            fresh += 1
    sort_pairs(due, due_index, fresh)
    fit = shapes[shape, S_FIT]
    newly = 0
    shadow = now if fit >= nodes else -1
    depth = tree_descend(ends, meta[M_END_ROOT], path, 0)
    taken = 0
    while shadow != now:
        at = INF
        from_tree = False
        if depth > 0:
            at = max(ends[path[depth - 1], T_KEY], now + 1)
            from_tree = True
        if taken < fresh and max(due[taken], now + 1) < at:
            at = max(due[taken], now + 1)
            from_tree = False
        if at >= INF or (shadow >= 0 and at > shadow):
            break
        if from_tree:
            run = path[depth - 1]
            depth = tree_descend(ends, ends[run, T_RIGHT], path, depth - 1)
            given = classes[buckets[runs[run, R_BUCKET], B_CLASS], C_SHAPE]
            piece = runs[run, R_PIECE]
            while piece >= 0:
                row = pieces[piece, P_ROW]
                if _release(allowed, request, free, rows, projected, resources, cset, shape, row, given, stamp):
                    freed[newly] = at
                    freed_row[newly] = row
                    newly += 1
                piece = pieces[piece, P_NEXT]
        else:
            start = starts[start_at + due_index[taken]]
            taken += 1
            given = classes[buckets[entries[start["entry"], E_BUCKET], B_CLASS], C_SHAPE]
            for i in range(start["row_offset"], start["row_offset"] + start["row_count"]):
                row = start_rows[i]
                if _release(allowed, request, free, rows, projected, resources, cset, shape, row, given, stamp):
                    freed[newly] = at
                    freed_row[newly] = row
                    newly += 1
        if shadow < 0 and fit + newly >= nodes:
            shadow = at
    found = 0
    if shadow >= 0:
        promises[mine, V_KIND] = KIND_PROMISE
        promises[mine, V_START] = shadow
        sort_pairs(freed, freed_row, newly)
        while found < nodes and newly > 0:
            newly -= 1
            promised[offset + found, Q_ROW] = freed_row[newly]
            found += 1
        row = meta[M_ROWS] - 1
        while found < nodes and row >= 0:
            if allowed[cset, row] != 0 and fits(free, row, request, shape, resources):
                promised[offset + found, Q_ROW] = row
                found += 1
            row -= 1
    else:
        since = entries[entry, E_BLOCKED_AT]
        promises[mine, V_KIND] = KIND_NEVER
        if since < 0 or now - since < meta[M_CLAIM_AFTER]:
            return
        # Claim: first the rows that fit now, then the ones that could.
        promises[mine, V_KIND] = KIND_CLAIM
        for now_fits in range(2):
            for row in range(meta[M_ROWS]):
                if (
                    found < nodes
                    and allowed[cset, row] != 0
                    and fits(capacity, row, request, shape, resources)
                    and fits(free, row, request, shape, resources) == (now_fits == 0)
                ):
                    promised[offset + found, Q_ROW] = row
                    found += 1
    promises[mine, V_NODES] = found
    for i in range(offset, offset + found):
        row = promised[i, Q_ROW]
        promised[i, Q_PROMISE] = mine
        rows[row, W_PROMISED] = i
        for r in range(resources):
            there = projected[row, r] if rows[row, W_STAMP] == stamp and shadow >= 0 else free[row, r]
            promised[i, Q_EXTRA + r] = there - request[r, shape]
    counts[1] += found


@inner
def _is_closed(
    meta: Ints, classes: Table, shapes: Table, request: Table, allowed: Allowed, capacity: Table, promises: Table,
    count: int, shape: int, stamp: int,
) -> bool:  # fmt: skip
    """Whether a job that competes for a shape's rows is promised them already; cached by stamp."""
    if shapes[shape, S_CLOSED_STAMP] != stamp:
        closed = 0
        for k in range(count):
            if compete(meta, shapes, request, allowed, capacity, shape, classes[promises[k, V_CLASS], C_SHAPE]):
                closed = 1
                break
        shapes[shape, S_CLOSED_STAMP] = stamp
        shapes[shape, S_CLOSED] = closed
    return bool(shapes[shape, S_CLOSED] == 1)


@inner
def _seek_unstarted(
    entries: Table, tree: Table, root: int, key: int, seq: int, tie: int, longest: int, path: Ints, stamp: int
) -> int:
    """The next candidate that this cycle has neither started nor promised anything."""
    entry = tree_seek(tree, root, key, seq, tie, longest, path)
    while entry >= 0 and entries[entry, E_STAMP] == stamp:
        entry = tree_seek(tree, root, tree[entry, 0], tree[entry, 1], tree[entry, 2] + 1, longest, path)
    return entry


@inner
def _refresh(
    meta: Ints, entries: Table, rank: Table, by_time: Table, buckets: Table, active: Ints, classes: Table,
    shapes: Table, request: Table, allowed: Allowed, free: Table, capacity: Table, promises: Table, promised: Table,
    counts: Ints, heap: Table, size: int, only: int, lane: int, key: int, seq: int, tie: int, fresh_only: bool,
    now: int, stamp: int, block_stamp: int, closed_stamp: int, path: Ints,
) -> int:  # fmt: skip
    """Put candidates at or after a place of the order on the heap: of all buckets (`only` < 0), or the top's next.

    Returns the size of the heap.
    """
    mode = meta[M_BACKFILL]
    if only < 0:
        size = 0
    found = -1
    for place in range(meta[M_ACTIVE] if only < 0 else 1):
        bucket = active[place] if only < 0 else only
        found = -1
        if fresh_only and buckets[bucket, B_INSERT] <= meta[M_PARKED_INSERTS]:
            continue
        class_id = buckets[bucket, B_CLASS]
        shape = classes[class_id, C_SHAPE]
        nodes = classes[class_id, C_NODES]
        if shapes[shape, S_EVER] < nodes:
            continue
        timed = False
        longest = INF
        if counts[0] > 0 and _is_closed(
            meta, classes, shapes, request, allowed, capacity, promises, counts[0], shape, closed_stamp
        ):
            if mode == BACKFILL_NONE:
                continue
            longest = window(
                meta, shapes, request, allowed, free, promises, promised, counts[1], shape, nodes, now, block_stamp
            )
            if buckets[bucket, B_CAP_STAMP] == stamp:
                longest = min(longest, buckets[bucket, B_CAP])
            if longest < 0 or tree_least(rank, buckets[bucket, B_ROOT]) > longest:
                continue
            timed = mode == BACKFILL_SJBF
        elif lane == 1:
            continue
        if key == LOWEST and not timed and longest == INF:
            found = buckets[bucket, B_HEAD]
            if entries[found, E_STAMP] == stamp:
                found = -1
        if found < 0:
            from_key = key - buckets[bucket, B_OFFSET] if lane == 0 else key
            from_seq = seq
            from_tie = tie
            if timed and lane == 0:
                from_key = LOWEST
                from_seq = -1
                from_tie = -1
            tree = by_time if timed else rank
            root = buckets[bucket, B_TIME_ROOT] if timed else buckets[bucket, B_ROOT]
            found = _seek_unstarted(entries, tree, root, from_key, from_seq, from_tie, longest, path, stamp)
        if found >= 0 and only < 0:
            _set_item(entries, buckets, heap, size, bucket, found, 1 if timed else 0)
            size += 1
    if only < 0:
        heap_order(heap, size)
        return size
    if found >= 0:
        _set_item(entries, buckets, heap, 0, only, found, lane)
    else:
        size -= 1
        for c in range(4):
            heap[0, c] = heap[size, c]
    heap_down(heap, size, 0)
    return size


@inner
def _set_item(entries: Table, buckets: Table, heap: Table, at: int, bucket: int, entry: int, lane: int) -> None:
    heap[at, H_LANE] = lane
    if lane == 1:
        heap[at, H_KEY] = entries[entry, E_PLANNED]
    else:
        heap[at, H_KEY] = entries[entry, E_KEY] + buckets[bucket, B_OFFSET]
    heap[at, H_SEQ] = entries[entry, E_JOB]
    heap[at, H_BUCKET] = bucket
    buckets[bucket, B_CANDIDATE] = entry


@inner
def next_timer(meta: Ints, rank: Table) -> int:
    """When the next waiting entry becomes eligible, INF when none does."""
    first = tree_first(rank, meta[M_TIMER_ROOT])
    return int(rank[first, T_KEY]) if first >= 0 else INF


@kernel
def cycle(
    meta: Ints, entries: Table, rank: Table, by_time: Table, buckets: Table, active: Ints, classes: Table,
    shapes: Table, request: Table, allowed: Allowed, free: Table, capacity: Table, rows: Table, runs: Table,
    ends: Table, pieces: Table, reservations: Table, reserved: Table, scores: Table, projected: Table,
    heap: Table, scratch: Table, counts: Ints, ticks: Ints, starts: Any, start_at: int, start_rows: Ints, row_at: int,
    promise_arena: Table, promise_at: int, promised_arena: Table, promised_at: int, verdict_arena: Any,
    verdict_at: int, now: int, budget: int, max_starts: int, resumed: bool, full: bool, pass_wake: int,
    pass_inserts: int, lane: int, key: int, seq: int, tie: int,
) -> Slice:  # fmt: skip
    """One slice. Writes each output from its place on; row offsets in them count from that place.

    Returns (starts, rows used, replans, promises, promised rows, verdicts, unfinished, lane, key, seq, tie, wake_ms,
    work, pass_wake, pass_inserts, full, changes, version); (lane, key, seq, tie) is where an unfinished pass goes on.
    """
    path = scratch[0]
    fit_before = scratch[1]
    due = scratch[2]
    due_index = scratch[3]
    freed = scratch[4]
    freed_row = scratch[5]
    rank_scratch = scratch[6]
    promises = promise_arena[promise_at:]
    promised = promised_arena[promised_at:]
    verdicts = verdict_arena[verdict_at : verdict_at + MAX_VERDICTS]
    ticks[TICK] += 4
    stamp = ticks[TICK]
    block_stamp = stamp
    closed_stamp = stamp
    ticks[TICK_WORK] = 0
    replans = False
    if not resumed:
        pass_wake = meta[M_WAKE]
        pass_inserts = meta[M_INSERTS]
        replans = meta[M_DIRTY] != 0
        for k in range(meta[M_RESERVATIONS]):
            kind = reservations[k, V_KIND]
            if kind == KIND_PROMISE and now >= reservations[k, V_START]:
                replans = True
            elif kind == KIND_NEVER and reservations[k, V_ENTRY] >= 0:
                since = entries[reservations[k, V_ENTRY], E_BLOCKED_AT]
                replans = replans or (since >= 0 and now - since >= meta[M_CLAIM_AFTER])
        full = replans or meta[M_PARKING] == 0 or meta[M_PARKED_WAKE] != meta[M_WAKE]
        lane = 0
        key = LOWEST
        seq = -1
        tie = -1
    counts[0] = 0
    counts[1] = 0
    if replans:
        for i in range(meta[M_PROMISED]):
            rows[reserved[i, Q_ROW], W_PROMISED] = -1
    else:
        counts[0] = meta[M_RESERVATIONS]
        counts[1] = meta[M_PROMISED]
        for k in range(counts[0]):
            copy_record(promises, k, reservations, k)
            if promises[k, V_ENTRY] >= 0:
                entries[promises[k, V_ENTRY], E_STAMP] = stamp
        for i in range(counts[1]):
            copy_record(promised, i, reserved, i)
    started = 0
    used = 0
    refusals = 0
    promised_changed = False
    unfinished = 0
    ticks[TICK_WORK] = 0
    size = 0
    only = -1
    while True:
        size = _refresh(
            meta, entries, rank, by_time, buckets, active, classes, shapes, request, allowed, free, capacity, promises,
            promised, counts, heap, size, only, lane, key, seq, tie, not full, now, stamp, block_stamp, closed_stamp,
            path,
        )  # fmt: skip
        if size == 0:
            break
        bucket = heap[0, H_BUCKET]
        entry = buckets[bucket, B_CANDIDATE]
        lane = heap[0, H_LANE]
        key = heap[0, H_KEY]
        seq = heap[0, H_SEQ]
        tie = entries[entry, E_FIRST]
        if ticks[TICK_WORK] >= budget:
            unfinished = 1
            break
        ticks[TICK_WORK] += 1
        class_id = buckets[bucket, B_CLASS]
        shape = classes[class_id, C_SHAPE]
        nodes = classes[class_id, C_NODES]
        closed = counts[0] > 0 and _is_closed(
            meta, classes, shapes, request, allowed, capacity, promises, counts[0], shape, closed_stamp
        )
        longest = window(
            meta, shapes, request, allowed, free, promises, promised, counts[1], shape, nodes, now, block_stamp
        )
        if buckets[bucket, B_CAP_STAMP] == stamp:
            longest = min(longest, buckets[bucket, B_CAP])
        planned = entries[entry, E_PLANNED]
        end = min(now + planned, INF)
        refused = planned > longest
        task = 0
        tasks = entries[entry, E_TASKS]
        while not refused and task < tasks:
            if started >= max_starts or start_at + started >= starts.shape[0]:
                unfinished = 1
                break
            if row_at + used + nodes > start_rows.shape[0] or ticks[TICK_WORK] >= budget + nodes:
                unfinished = 1
                break
            found = 0
            if shapes[shape, S_FIT] >= nodes:
                found = choose(
                    meta, shapes, request, allowed, free, capacity, rows, promises, promised, counts[1], shape, nodes,
                    end, start_rows, row_at + used, scores, rank_scratch, stamp, started == 0, ticks,
                )  # fmt: skip
            if found < nodes:
                refused = True
                # Rows that fit, not rows passed over: the place where a search begins is remembered, work must not
                # depend on it, or equal inputs would be cut into unequal slices.
                ticks[TICK_WORK] += shapes[shape, S_FIT]
                if closed and longest >= 0:
                    buckets[bucket, B_CAP] = planned - 1
                    buckets[bucket, B_CAP_STAMP] = stamp
                break
            if started == 0:
                for s in range(meta[M_SHAPES]):
                    fit_before[s] = shapes[s, S_FIT]
            start = starts[start_at + started]
            start["job"] = entries[entry, E_JOB]
            start["task"] = entries[entry, E_FIRST] + task
            start["attempt"] = entries[entry, E_ATTEMPT]
            start["row_offset"] = used
            start["row_count"] = nodes
            start["entry"] = entry
            for i in range(row_at + used, row_at + used + nodes):
                row = start_rows[i]
                take_row(meta, shapes, request, allowed, free, row, shape)
                place = rows[row, W_PROMISED]
                if place >= 0:
                    block_stamp += 1
                    promise = promised[place, Q_PROMISE]
                    if promises[promise, V_KIND] != KIND_PROMISE or end > promises[promise, V_START]:
                        promised_changed = True
                        for r in range(meta[M_RESOURCES]):
                            promised[place, Q_EXTRA + r] -= request[r, shape]
            started += 1
            used += nodes
            task += 1
            ticks[TICK_WORK] += nodes
        if unfinished == 1:
            tie += task
            break
        if task == tasks:
            entries[entry, E_STAMP] = stamp
        tie = entries[entry, E_FIRST] + 1
        if refused and not closed:
            entries[entry, E_STAMP] = stamp
            _promise(
                meta, entries, buckets, classes, shapes, request, allowed, free, capacity, rows, runs, ends, pieces,
                projected, promises, promised, counts, entry, key, now, stamp + counts[0], path, starts, start_at,
                started, start_rows[row_at:], due, due_index, freed, freed_row,
            )  # fmt: skip
            promises[counts[0] - 1, V_TASK] += task
            replans = True
            block_stamp += 1
            closed_stamp += 1
            if refusals < verdicts.shape[0]:
                verdicts[refusals]["job"] = entries[entry, E_JOB]
                verdicts[refusals]["task"] = entries[entry, E_FIRST] + task
                verdicts[refusals]["reason"] = REASON_RESOURCES
                verdicts[refusals]["short_rows"] = nodes - shapes[shape, S_FIT]
                refusals += 1
            only = -1
        else:
            only = bucket
    ticks[TICK] = max(ticks[TICK], max(block_stamp, max(closed_stamp, stamp + counts[0])))
    # Give everything back: the state is as it was.
    if started > 0:
        for k in range(start_at, start_at + started):
            shape = classes[buckets[entries[starts[k]["entry"], E_BUCKET], B_CLASS], C_SHAPE]
            for i in range(row_at + starts[k]["row_offset"], row_at + starts[k]["row_offset"] + starts[k]["row_count"]):
                for r in range(meta[M_RESOURCES]):
                    free[start_rows[i], r] += request[r, shape]
        for s in range(meta[M_SHAPES]):
            shapes[s, S_FIT] = fit_before[s]
    if replans:
        for i in range(counts[1]):
            rows[promised[i, Q_ROW], W_PROMISED] = -1
        for i in range(meta[M_PROMISED]):
            rows[reserved[i, Q_ROW], W_PROMISED] = i
    replans = replans or promised_changed
    wake = next_timer(meta, rank)
    for k in range(counts[0]):
        if promises[k, V_KIND] == KIND_NEVER and promises[k, V_ENTRY] >= 0:
            since = entries[promises[k, V_ENTRY], E_BLOCKED_AT]
            wake = min(wake, (now if since < 0 else since) + meta[M_CLAIM_AFTER])
    changes = started > 0 or (replans and (counts[0] > 0 or meta[M_RESERVATIONS] > 0))
    if unfinished == 0 and meta[M_ACTIVE] > 0:
        changes = changes or meta[M_PARKED_WAKE] != pass_wake or meta[M_PARKED_INSERTS] != pass_inserts
    return (
        started, used, int(replans), counts[0], counts[1], refusals, unfinished, lane, key, seq, tie,
        wake, ticks[TICK_WORK], pass_wake, pass_inserts, int(full), int(changes), meta[M_VERSION],
    )  # fmt: skip
