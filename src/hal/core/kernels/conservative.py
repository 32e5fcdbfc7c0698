"""A cycle under conservative backfill: every waiting job holds a promise, and promises only move earlier.

Pure but for scratch. Each row has a timeline: breakpoints with the projected free amounts, from running attempts
(released at their planned ends) and promises. In rank order, a job gives its promise back, takes the earliest instant
at which enough rows each stay free for the whole of its planned time, and starts where that is now. Timelines are built
for each slice; O(points) a search. An array holds one promise, for its next task; when that starts, the promises behind
it are made anew in rank order, as they are when better work comes, an attempt outlives its plan or a row is lost.
Source: Mu'alem and Feitelson, TPDS 12(6), 2001.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.easy import LOWEST, MAX_VERDICTS, Slice, heap_down, heap_order, next_timer, sort_pairs
from hal.core.kernels.jit import inner, kernel
from hal.core.kernels.layout import (
    B_CANDIDATE,
    B_CLASS,
    B_INSERT,
    B_OFFSET,
    B_OWNER,
    B_ROOT,
    C_NODES,
    C_SHAPE,
    E_ATTEMPT,
    E_BLOCKED_AT,
    E_BUCKET,
    E_FIRST,
    E_JOB,
    E_KEY,
    E_PLANNED,
    E_RESERVED,
    E_TASKS,
    E_WALL,
    INF,
    KIND_CLAIM,
    KIND_NEVER,
    KIND_PROMISE,
    M_ACTIVE,
    M_CLAIM_AFTER,
    M_DIRTY,
    M_DROP_JOB,
    M_DROP_KEY,
    M_END_ROOT,
    M_EPOCH,
    M_INSERTS,
    M_MAX_RESERVATIONS,
    M_NEXT_EDGE,
    M_PARKED_INSERTS,
    M_PARKED_WAKE,
    M_PARKING,
    M_PROMISED,
    M_RESERVATIONS,
    M_RESOURCES,
    M_ROWS,
    M_VERSION,
    M_WAKE,
    O_QUEUE,
    P_NEXT,
    P_ROW,
    POINT_NEXT,
    POINT_SIZE,
    POINT_TIME,
    Q_PROMISE,
    Q_ROW,
    R_BUCKET,
    R_PIECE,
    REASON_PROMISED,
    REASON_RESOURCES,
    S_CSET,
    S_EVER,
    S_FIT,
    T_KEY,
    T_RIGHT,
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
    W_AT,
    W_LAST,
    Y_SHUT,
)
from hal.core.kernels.ledgers import charge_ledgers, full_ledger
from hal.core.kernels.memory import Tables, tables
from hal.core.kernels.rows import fits
from hal.core.kernels.tables import copy_record
from hal.core.kernels.treap import Table, tree_descend, tree_seek

Ints = NDArray[np.int64]

C_PROMISES = 0
C_PROMISED = 1
C_POINTS = 2


@inner
def _point_fits(t: Tables, point: int, shape: int, resources: int) -> bool:
    for r in range(resources):  # noqa: SIM110 - numba
        if t.profile[point, POINT_SIZE + r] < t.request[r, shape]:
            return False
    return True


@inner
def _split(t: Tables, point: int, at: int, resources: int) -> int:
    """The point at `at` in the timeline that `point` (not later) belongs to; a new one where there was none."""
    following = t.profile[point, POINT_NEXT]
    while following >= 0 and t.profile[following, POINT_TIME] <= at:
        point = following
        following = t.profile[point, POINT_NEXT]
    if t.profile[point, POINT_TIME] == at:
        return int(point)
    fresh = t.counts[C_POINTS]
    t.counts[C_POINTS] += 1
    t.profile[fresh, POINT_TIME] = at
    t.profile[fresh, POINT_NEXT] = following
    t.profile[point, POINT_NEXT] = fresh
    for r in range(resources):
        t.profile[fresh, POINT_SIZE + r] = t.profile[point, POINT_SIZE + r]
    return int(fresh)


@inner
def _change_span(t: Tables, resources: int, row: int, shape: int, begin: int, end: int, sign: int) -> None:
    """Take (-1) or give (+1) a request on a row's timeline over [begin, end); the timeline begins at `now`."""
    head = t.rows[row, W_AT]
    begin = max(begin, t.profile[head, POINT_TIME])
    if end <= begin:
        return
    point = _split(t, head, begin, resources)
    last = -1
    if end < INF:
        last = _split(t, point, end, resources)
    while point != last and point >= 0:
        for r in range(resources):
            t.profile[point, POINT_SIZE + r] += sign * t.request[r, shape]
        point = t.profile[point, POINT_NEXT]


@inner
def _build(t: Tables, promises: Table, promised: Table, now: int, afresh: bool, key: int, seq: int, tie: int) -> None:
    """Timelines of all rows: free now, then every release, less every promise that counts.

    Those made by this pass count (before (key, seq, tie)); of the older ones those that no better work has overtaken,
    and none when planning `afresh`.
    """
    resources = t.meta[M_RESOURCES]
    for row in range(t.meta[M_ROWS]):
        t.rows[row, W_AT] = row
        t.rows[row, W_LAST] = row
        t.profile[row, POINT_TIME] = now
        t.profile[row, POINT_NEXT] = -1
        for r in range(resources):
            t.profile[row, POINT_SIZE + r] = t.free[row, r]
    t.counts[C_POINTS] = t.meta[M_ROWS]
    depth = tree_descend(t.ends, t.meta[M_END_ROOT], t.path, 0)
    while depth > 0:
        run = t.path[depth - 1]
        depth = tree_descend(t.ends, t.ends[run, T_RIGHT], t.path, depth - 1)
        at = max(t.ends[run, T_KEY], now + 1)
        shape = t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE]
        piece = t.runs[run, R_PIECE]
        while piece >= 0:
            row = t.pieces[piece, P_ROW]
            point = _split(t, t.rows[row, W_LAST], at, resources)
            t.rows[row, W_LAST] = point
            for r in range(resources):
                t.profile[point, POINT_SIZE + r] += t.request[r, shape]
            piece = t.pieces[piece, P_NEXT]
    for k in range(t.counts[C_PROMISES]):
        if promises[k, V_ENTRY] >= 0 and (
            (not afresh and _ranks_before(promises, k, t.meta[M_DROP_KEY], t.meta[M_DROP_JOB], -1))
            or _ranks_before(promises, k, key, seq, tie)
        ):
            _hold(t, promises, promised, k, -1)


@inner
def _ranks_before(promises: Table, promise: int, key: int, job: int, task: int) -> bool:
    """Whether a promise's job comes before a place of the order."""
    if promises[promise, V_KEY] != key:
        return bool(promises[promise, V_KEY] < key)
    if promises[promise, V_JOB] != job:
        return bool(promises[promise, V_JOB] < job)
    return bool(promises[promise, V_TASK] < task)


@inner
def _promises_broken(t: Tables, promises: Table, promised: Table) -> bool:
    """Whether the promises cannot all be kept: an attempt outlives its plan, or a promised row is lost."""
    resources = t.meta[M_RESOURCES]
    for k in range(t.counts[C_PROMISES]):
        if promises[k, V_ENTRY] >= 0 and promises[k, V_KIND] != KIND_NEVER:
            shape = t.classes[promises[k, V_CLASS], C_SHAPE]
            for i in range(promises[k, V_ROW], promises[k, V_ROW] + promises[k, V_NODES]):
                row = promised[i, Q_ROW]
                if t.allowed[t.shapes[shape, S_CSET], row] == 0 or not fits(t, t.capacity, row, shape, resources):
                    return True
    for row in range(t.meta[M_ROWS]):
        point = t.rows[row, W_AT]
        while point >= 0:
            for r in range(resources):
                if t.profile[point, POINT_SIZE + r] < 0:
                    return True
            point = t.profile[point, POINT_NEXT]
    return False


@inner
def _hold(t: Tables, promises: Table, promised: Table, promise: int, sign: int) -> None:
    """Take (-1) or give back (+1) what a promise holds on its rows' timelines."""
    kind = promises[promise, V_KIND]
    if kind == KIND_NEVER:
        return
    begin = promises[promise, V_START]
    end = INF if kind == KIND_CLAIM else min(begin + promises[promise, V_PLANNED], INF)
    if kind == KIND_CLAIM:
        begin = 0
    shape = t.classes[promises[promise, V_CLASS], C_SHAPE]
    for i in range(promises[promise, V_ROW], promises[promise, V_ROW] + promises[promise, V_NODES]):
        _change_span(t, t.meta[M_RESOURCES], promised[i, Q_ROW], shape, begin, end, sign)


@inner
def _next_interval(t: Tables, point: int, shape: int, resources: int, planned: int) -> tuple[int, int, int]:
    """The first interval [a, b] of start times from `point` on, and the point after it (-1: none follow).

    a < 0: there is none. Within [a, b] the row holds the shape for the whole planned time.
    """
    while point >= 0:
        while point >= 0 and not _point_fits(t, point, shape, resources):
            point = t.profile[point, POINT_NEXT]
            t.ticks[TICK_WORK] += 1
        if point < 0:
            break
        begin = t.profile[point, POINT_TIME]
        while point >= 0 and _point_fits(t, point, shape, resources):
            point = t.profile[point, POINT_NEXT]
            t.ticks[TICK_WORK] += 1
        if point < 0:
            return begin, INF, -1
        if planned < INF and t.profile[point, POINT_TIME] - planned >= begin:
            return begin, t.profile[point, POINT_TIME] - planned, point
    return -1, -1, -1


@inner
def _earliest(t: Tables, shape: int, nodes: int, planned: int) -> int:
    """The earliest instant at which `nodes` rows each hold the shape for the whole planned time, -1 = never."""
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    if nodes == 1:
        best = INF
        for row in range(t.meta[M_ROWS]):
            if t.allowed[cset, row] == 0 or not fits(t, t.capacity, row, shape, resources):
                continue
            head = t.rows[row, W_AT]
            begin, _last, _point = _next_interval(t, head, shape, resources, planned)
            if 0 <= begin < best:
                best = begin
                if best == t.profile[head, POINT_TIME]:
                    break
        return best if best < INF else -1
    size = 0
    for row in range(t.meta[M_ROWS]):
        if t.allowed[cset, row] == 0 or not fits(t, t.capacity, row, shape, resources):
            continue
        point = t.rows[row, W_AT]
        while point >= 0:
            begin, last, point = _next_interval(t, point, shape, resources, planned)
            if begin < 0:
                break
            t.events[0, size] = begin
            t.events[1, size] = 0
            size += 1
            if last < INF:
                t.events[0, size] = last
                t.events[1, size] = 1
                size += 1
    sort_pairs(t.events[0], t.events[1], size)
    t.ticks[TICK_WORK] += size
    open_rows = 0
    for k in range(size):
        if t.events[1, k] == 0:
            open_rows += 1
            if open_rows == nodes:
                return int(t.events[0, k])
        else:
            open_rows -= 1
    return -1


@inner
def _free_over(t: Tables, resources: int, row: int, shape: int, begin: int, end: int) -> bool:
    """Whether a row holds the shape over the whole of [begin, end), at least at `begin`."""
    point = t.rows[row, W_AT]
    following = t.profile[point, POINT_NEXT]
    while following >= 0 and t.profile[following, POINT_TIME] <= begin:
        point = following
        following = t.profile[point, POINT_NEXT]
    while True:
        if not _point_fits(t, point, shape, resources):
            return False
        point = t.profile[point, POINT_NEXT]
        if point < 0 or t.profile[point, POINT_TIME] >= end:
            return True


@inner
def _rows_at(t: Tables, shape: int, nodes: int, begin: int, planned: int, out: Ints, offset: int) -> int:
    """The lowest rows that hold the shape over [begin, begin + planned); returns how many of `nodes` were found."""
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    end = min(begin + planned, INF)
    found = 0
    for row in range(t.meta[M_ROWS]):
        if (
            t.allowed[cset, row] != 0
            and fits(t, t.capacity, row, shape, resources)
            and _free_over(t, resources, row, shape, begin, end)
        ):
            out[offset + found] = row
            found += 1
            if found == nodes:
                break
    t.ticks[TICK_WORK] += t.meta[M_ROWS]
    return found


@inner
def _claim_rows(t: Tables, shape: int, nodes: int, out: Ints) -> int:
    """Rows for a job whose time is never: first those that fit now, then those that could."""
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    found = 0
    for later in range(2):
        for row in range(t.meta[M_ROWS]):
            if (
                found < nodes
                and t.allowed[cset, row] != 0
                and fits(t, t.capacity, row, shape, resources)
                and fits(t, t.free, row, shape, resources) == (later == 0)
            ):
                out[found] = row
                found += 1
    return found


@inner
def _compact(t: Tables, promises: Table, promised: Table) -> None:
    """Drop the promises of jobs that started or went away; rows move up."""
    kept = 0
    used = 0
    for k in range(t.counts[C_PROMISES]):
        if promises[k, V_ENTRY] < 0:
            continue
        offset = promises[k, V_ROW]
        for i in range(promises[k, V_NODES]):
            copy_record(promised, used + i, promised, offset + i)
            promised[used + i, Q_PROMISE] = kept
        copy_record(promises, kept, promises, k)
        promises[kept, V_ROW] = used
        used += promises[k, V_NODES]
        kept += 1
    t.counts[C_PROMISES] = kept
    t.counts[C_PROMISED] = used


@inner
def _candidates(t: Tables, key: int, seq: int, tie: int, everywhere: bool) -> int:
    size = 0
    for place in range(t.meta[M_ACTIVE]):
        bucket = t.active[place]
        if not everywhere and t.buckets[bucket, B_INSERT] <= t.meta[M_PARKED_INSERTS]:
            continue
        class_id = t.buckets[bucket, B_CLASS]
        if t.shapes[t.classes[class_id, C_SHAPE], S_EVER] < t.classes[class_id, C_NODES]:
            continue
        if t.queues[t.owners[t.buckets[bucket, B_OWNER], O_QUEUE], Y_SHUT] != 0:
            continue
        entry = tree_seek(t.rank, t.buckets[bucket, B_ROOT], key - t.buckets[bucket, B_OFFSET], seq, tie, INF, t.path)
        if entry >= 0:
            _put(t, size, bucket, entry)
            size += 1
    heap_order(t.heap, size)
    return size


@inner
def _put(t: Tables, at: int, bucket: int, entry: int) -> None:
    t.heap[at, 0] = 0
    t.heap[at, 1] = t.entries[entry, E_KEY] + t.buckets[bucket, B_OFFSET]
    t.heap[at, 2] = t.entries[entry, E_JOB]
    t.heap[at, 3] = bucket
    t.buckets[bucket, B_CANDIDATE] = entry


@kernel
def cycle(
    at: Any, starts: Any, start_at: int, start_rows: Ints, row_at: int, promise_arena: Table,
    promise_at: int, promised_arena: Table, promised_at: int, verdict_arena: Any, verdict_at: int, now: int, budget:
    int, max_starts: int, resumed: bool, full: bool, pass_wake: int, pass_inserts: int, lane: int, key: int, seq:
    int, tie: int,
) -> Slice:  # fmt: skip
    """One slice; outputs and return as `easy.cycle`. A first item of -1 asks for larger scratch and arenas."""
    t = tables(at)
    freed = t.scratch[4]
    promises = promise_arena[promise_at:]
    promised = promised_arena[promised_at:]
    verdicts = verdict_arena[verdict_at : verdict_at + MAX_VERDICTS]
    t.ticks[TICK_WORK] = 0
    resources = t.meta[M_RESOURCES]
    if not resumed:
        pass_wake = t.meta[M_EPOCH]
        pass_inserts = t.meta[M_INSERTS]
        full = t.meta[M_DIRTY] != 0  # promises are looked at again; else only work that has none
        for k in range(t.meta[M_RESERVATIONS]):
            kind = t.reservations[k, V_KIND]
            entry = t.reservations[k, V_ENTRY]
            if entry >= 0 and kind == KIND_PROMISE and now >= t.reservations[k, V_START]:
                full = True
            elif entry >= 0 and kind == KIND_NEVER:
                full = full or now - t.entries[entry, E_BLOCKED_AT] >= t.meta[M_CLAIM_AFTER]
        key = LOWEST
        seq = -1
        tie = -1
    replans = t.meta[M_DIRTY] != 0 and not resumed
    wake = min(next_timer(t), t.meta[M_NEXT_EDGE])
    everywhere = full or t.meta[M_PARKING] == 0 or t.meta[M_PARKED_WAKE] < t.meta[M_WAKE]
    size = _candidates(t, key, seq, tie, everywhere)
    t.counts[C_PROMISES] = t.meta[M_RESERVATIONS]
    t.counts[C_PROMISED] = t.meta[M_PROMISED]
    short = (
        promises.shape[0] < t.counts[C_PROMISES] + 1
        or promised.shape[0] < t.counts[C_PROMISED] + t.meta[M_ROWS]
        or t.profile.shape[0] < t.meta[M_ROWS] + t.runs.shape[0] + t.pieces.shape[0] + 2 * t.counts[C_PROMISED]
    )
    if short:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    for k in range(t.counts[C_PROMISES]):
        copy_record(promises, k, t.reservations, k)
        if (
            full
            and t.shapes[t.classes[promises[k, V_CLASS], C_SHAPE], S_EVER] < t.classes[promises[k, V_CLASS], C_NODES]
        ):
            promises[k, V_ENTRY] = -1  # nothing that is up could hold it any more
    for i in range(t.counts[C_PROMISED]):
        copy_record(promised, i, t.reserved, i)
    afresh = resumed and lane == 1
    building = size > 0
    while building:
        _build(t, promises, promised, now, afresh, key, seq, tie)
        building = False
        if full and not resumed and not afresh:
            afresh = _promises_broken(t, promises, promised)
            building = afresh
    started = 0
    used = 0
    refusals = 0
    unfinished = 0
    while size > 0:
        bucket = t.heap[0, 3]
        entry = t.buckets[bucket, B_CANDIDATE]
        key = t.heap[0, 1]
        seq = t.heap[0, 2]
        tie = t.entries[entry, E_FIRST]
        if t.ticks[TICK_WORK] >= budget:
            unfinished = 1
            break
        t.ticks[TICK_WORK] += 1
        class_id = t.buckets[bucket, B_CLASS]
        shape = t.classes[class_id, C_SHAPE]
        nodes = t.classes[class_id, C_NODES]
        planned = t.entries[entry, E_PLANNED]
        mine = t.entries[entry, E_RESERVED]
        first = t.entries[entry, E_FIRST]
        if full or mine < 0:
            if mine >= 0 and not afresh and _ranks_before(promises, mine, t.meta[M_DROP_KEY], t.meta[M_DROP_JOB], -1):
                _hold(t, promises, promised, mine, 1)
            task = 0
            begin = -1
            lacking = False
            while task < t.entries[entry, E_TASKS]:
                if (
                    started >= max_starts
                    or start_at + started >= starts.shape[0]
                    or row_at + used + nodes > start_rows.shape[0]
                    or t.ticks[TICK_WORK] >= budget + t.meta[M_ROWS] + t.counts[C_POINTS]
                ):
                    unfinished = 1
                    break
                if (
                    t.counts[C_POINTS] + 4 * nodes + 4 > t.profile.shape[0]
                    or 2 * t.counts[C_POINTS] + 4 > t.events.shape[1]
                    or t.counts[C_PROMISES] + 1 > promises.shape[0]
                    or t.counts[C_PROMISED] + nodes > promised.shape[0]
                ):
                    short = True
                    break
                if full_ledger(t, bucket, t.entries[entry, E_WALL]) >= 0:
                    lacking = True
                    break
                begin = _earliest(t, shape, nodes, planned)
                if begin != now:
                    break
                found = _rows_at(t, shape, nodes, now, planned, start_rows, row_at + used)
                if found < nodes:
                    begin = -1
                    break
                start = starts[start_at + started]
                start["job"] = t.entries[entry, E_JOB]
                start["task"] = first + task
                start["attempt"] = t.entries[entry, E_ATTEMPT]
                start["row_offset"] = used
                start["row_count"] = nodes
                start["entry"] = entry
                for i in range(row_at + used, row_at + used + nodes):
                    row = start_rows[i]
                    _change_span(t, resources, row, shape, now, min(now + planned, INF), -1)
                    for r in range(resources):
                        t.free[row, r] -= t.request[r, shape]
                charge_ledgers(t, bucket, t.entries[entry, E_WALL], 1)
                started += 1
                used += nodes
                task += 1
                if full and not afresh and task < t.entries[entry, E_TASKS]:
                    # An array holds one promise, for its next task; the tasks after it rank before all that follow.
                    for k in range(t.counts[C_PROMISES]):
                        if (
                            promises[k, V_ENTRY] >= 0
                            and k != mine
                            and not _ranks_before(promises, k, key, seq, tie + 1)
                            and _ranks_before(promises, k, t.meta[M_DROP_KEY], t.meta[M_DROP_JOB], -1)
                        ):
                            _hold(t, promises, promised, k, 1)
                    afresh = True
            if short:
                break
            if unfinished == 1:
                # The slice ends inside this array: its promise stays as it was until the next slice looks again.
                tie += task
                if mine >= 0 and task > 0:
                    promises[mine, V_TASK] = first + task
                    replans = True
                break
            if task == t.entries[entry, E_TASKS] or lacking:
                # All started, or a ledger is full, which earns no promise.
                if mine >= 0:
                    promises[mine, V_ENTRY] = -1
                    replans = True
            else:
                if mine < 0 and t.counts[C_PROMISES] < t.meta[M_MAX_RESERVATIONS]:
                    mine = t.counts[C_PROMISES]
                    t.counts[C_PROMISES] += 1
                    promises[mine, V_ENTRY] = entry
                    promises[mine, V_JOB] = t.entries[entry, E_JOB]
                    promises[mine, V_CLASS] = class_id
                    promises[mine, V_ROW] = t.counts[C_PROMISED]
                    promises[mine, V_NODES] = 0
                    promises[mine, V_START] = -1
                    t.counts[C_PROMISED] += nodes
                if mine >= 0:
                    kind = KIND_PROMISE if begin >= 0 else KIND_NEVER
                    if begin < 0:
                        begin = INF
                        since = t.entries[entry, E_BLOCKED_AT]
                        if since >= 0 and now - since >= t.meta[M_CLAIM_AFTER]:
                            kind = KIND_CLAIM
                    found = nodes
                    freed[:nodes] = -1  # a promise of 'never' names no rows yet
                    if kind == KIND_PROMISE:
                        found = _rows_at(t, shape, nodes, begin, planned, freed, 0)
                    elif kind == KIND_CLAIM:
                        found = _claim_rows(t, shape, nodes, freed)
                    offset = promises[mine, V_ROW]
                    if promises[mine, V_START] != begin or promises[mine, V_KIND] != kind:
                        replans = True
                    promises[mine, V_TASK] = first + task
                    promises[mine, V_KEY] = key
                    promises[mine, V_START] = begin
                    promises[mine, V_PLANNED] = planned
                    promises[mine, V_KIND] = kind
                    promises[mine, V_NODES] = found
                    for i in range(found):
                        if promised[offset + i, Q_ROW] != freed[i]:
                            replans = True
                        promised[offset + i, Q_ROW] = freed[i]
                        promised[offset + i, Q_PROMISE] = mine
                    replans = replans or task > 0
                    _hold(t, promises, promised, mine, -1)
                    if kind == KIND_NEVER:
                        since = t.entries[entry, E_BLOCKED_AT]
                        wake = min(wake, (now if since < 0 else since) + t.meta[M_CLAIM_AFTER])
                    elif kind == KIND_PROMISE:
                        wake = min(wake, begin)
                if refusals < verdicts.shape[0]:
                    lacking = nodes - t.shapes[shape, S_FIT]
                    verdicts[refusals]["job"] = t.entries[entry, E_JOB]
                    verdicts[refusals]["task"] = first + task
                    verdicts[refusals]["reason"] = REASON_RESOURCES if lacking > 0 else REASON_PROMISED
                    verdicts[refusals]["short_rows"] = max(lacking, 0)
                    refusals += 1
        following = tree_seek(
            t.rank, t.buckets[bucket, B_ROOT], key - t.buckets[bucket, B_OFFSET], seq, first + 1, INF, t.path
        )
        if following >= 0:
            _put(t, 0, bucket, following)
        else:
            size -= 1
            for c in range(4):
                t.heap[0, c] = t.heap[size, c]
        heap_down(t.heap, size, 0)
    for k in range(start_at, start_at + started):
        charge_ledgers(t, t.entries[starts[k]["entry"], E_BUCKET], t.entries[starts[k]["entry"], E_WALL], -1)
        shape = t.classes[t.buckets[t.entries[starts[k]["entry"], E_BUCKET], B_CLASS], C_SHAPE]
        for i in range(row_at + starts[k]["row_offset"], row_at + starts[k]["row_offset"] + starts[k]["row_count"]):
            for r in range(resources):
                t.free[start_rows[i], r] += t.request[r, shape]
    if short:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    for k in range(t.counts[C_PROMISES]):
        if promises[k, V_ENTRY] >= 0 and promises[k, V_KIND] == KIND_PROMISE and promises[k, V_START] > now:
            wake = min(wake, promises[k, V_START])
    _compact(t, promises, promised)
    if t.counts[C_PROMISES] != t.meta[M_RESERVATIONS]:
        replans = True
    changes = started > 0 or replans
    if unfinished == 0 and t.meta[M_ACTIVE] > 0:
        changes = changes or t.meta[M_PARKED_WAKE] != pass_wake or t.meta[M_PARKED_INSERTS] != pass_inserts
    return (
        started,
        used,
        int(replans),
        t.counts[C_PROMISES],
        t.counts[C_PROMISED],
        refusals,
        unfinished,
        int(afresh),
        key,
        seq,
        tie,
        wake,
        t.ticks[TICK_WORK],
        pass_wake,
        pass_inserts,
        int(full),
        int(changes),
        t.meta[M_VERSION],
    )
