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
    M_INSERTS,
    M_MAX_RESERVATIONS,
    M_PARKED_INSERTS,
    M_PARKED_WAKE,
    M_PARKING,
    M_PROMISED,
    M_RESERVATIONS,
    M_RESOURCES,
    M_ROWS,
    M_VERSION,
    M_WAKE,
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
)
from hal.core.kernels.rows import Allowed, fits
from hal.core.kernels.tables import copy_record
from hal.core.kernels.treap import Table, tree_descend, tree_seek

Ints = NDArray[np.int64]

C_PROMISES = 0
C_PROMISED = 1
C_POINTS = 2


@inner
def _point_fits(profile: Table, point: int, request: Table, shape: int, resources: int) -> bool:
    for r in range(resources):  # noqa: SIM110 - numba
        if profile[point, POINT_SIZE + r] < request[r, shape]:
            return False
    return True


@inner
def _split(profile: Table, counts: Ints, point: int, at: int, resources: int) -> int:
    """The point at `at` in the timeline that `point` (not later) belongs to; a new one where there was none."""
    following = profile[point, POINT_NEXT]
    while following >= 0 and profile[following, POINT_TIME] <= at:
        point = following
        following = profile[point, POINT_NEXT]
    if profile[point, POINT_TIME] == at:
        return int(point)
    fresh = counts[C_POINTS]
    counts[C_POINTS] += 1
    profile[fresh, POINT_TIME] = at
    profile[fresh, POINT_NEXT] = following
    profile[point, POINT_NEXT] = fresh
    for r in range(resources):
        profile[fresh, POINT_SIZE + r] = profile[point, POINT_SIZE + r]
    return int(fresh)


@inner
def _change_span(
    profile: Table, counts: Ints, rows: Table, request: Table, resources: int, row: int, shape: int, begin: int,
    end: int, sign: int,
) -> None:  # fmt: skip
    """Take (-1) or give (+1) a request on a row's timeline over [begin, end); the timeline begins at `now`."""
    head = rows[row, W_AT]
    begin = max(begin, profile[head, POINT_TIME])
    if end <= begin:
        return
    point = _split(profile, counts, head, begin, resources)
    last = -1
    if end < INF:
        last = _split(profile, counts, point, end, resources)
    while point != last and point >= 0:
        for r in range(resources):
            profile[point, POINT_SIZE + r] += sign * request[r, shape]
        point = profile[point, POINT_NEXT]


@inner
def _build(
    meta: Ints, buckets: Table, classes: Table, request: Table, free: Table, rows: Table, runs: Table, ends: Table,
    pieces: Table, promises: Table, promised: Table, counts: Ints, profile: Table, path: Ints, now: int, afresh: bool,
    key: int, seq: int, tie: int,
) -> None:  # fmt: skip
    """Timelines of all rows: free now, then every release, less every promise that counts.

    Those made by this pass count (before (key, seq, tie)); of the older ones those that no better work has overtaken,
    and none when planning `afresh`.
    """
    resources = meta[M_RESOURCES]
    for row in range(meta[M_ROWS]):
        rows[row, W_AT] = row
        rows[row, W_LAST] = row
        profile[row, POINT_TIME] = now
        profile[row, POINT_NEXT] = -1
        for r in range(resources):
            profile[row, POINT_SIZE + r] = free[row, r]
    counts[C_POINTS] = meta[M_ROWS]
    depth = tree_descend(ends, meta[M_END_ROOT], path, 0)
    while depth > 0:
        run = path[depth - 1]
        depth = tree_descend(ends, ends[run, T_RIGHT], path, depth - 1)
        at = max(ends[run, T_KEY], now + 1)
        shape = classes[buckets[runs[run, R_BUCKET], B_CLASS], C_SHAPE]
        piece = runs[run, R_PIECE]
        while piece >= 0:
            row = pieces[piece, P_ROW]
            point = _split(profile, counts, rows[row, W_LAST], at, resources)
            rows[row, W_LAST] = point
            for r in range(resources):
                profile[point, POINT_SIZE + r] += request[r, shape]
            piece = pieces[piece, P_NEXT]
    for k in range(counts[C_PROMISES]):
        if promises[k, V_ENTRY] >= 0 and (
            (not afresh and _ranks_before(promises, k, meta[M_DROP_KEY], meta[M_DROP_JOB], -1))
            or _ranks_before(promises, k, key, seq, tie)
        ):
            _hold(meta, classes, request, rows, promises, promised, counts, profile, k, -1)


@inner
def _ranks_before(promises: Table, promise: int, key: int, job: int, task: int) -> bool:
    """Whether a promise's job comes before a place of the order."""
    if promises[promise, V_KEY] != key:
        return bool(promises[promise, V_KEY] < key)
    if promises[promise, V_JOB] != job:
        return bool(promises[promise, V_JOB] < job)
    return bool(promises[promise, V_TASK] < task)


@inner
def _promises_broken(
    meta: Ints, classes: Table, shapes: Table, request: Table, allowed: Allowed, capacity: Table, rows: Table,
    promises: Table, promised: Table, counts: Ints, profile: Table,
) -> bool:  # fmt: skip
    """Whether the promises cannot all be kept: an attempt outlives its plan, or a promised row is lost."""
    resources = meta[M_RESOURCES]
    for k in range(counts[C_PROMISES]):
        if promises[k, V_ENTRY] >= 0 and promises[k, V_KIND] != KIND_NEVER:
            shape = classes[promises[k, V_CLASS], C_SHAPE]
            for i in range(promises[k, V_ROW], promises[k, V_ROW] + promises[k, V_NODES]):
                row = promised[i, Q_ROW]
                if allowed[shapes[shape, S_CSET], row] == 0 or not fits(capacity, row, request, shape, resources):
                    return True
    for row in range(meta[M_ROWS]):
        point = rows[row, W_AT]
        while point >= 0:
            for r in range(resources):
                if profile[point, POINT_SIZE + r] < 0:
                    return True
            point = profile[point, POINT_NEXT]
    return False


@inner
def _hold(
    meta: Ints, classes: Table, request: Table, rows: Table, promises: Table, promised: Table, counts: Ints,
    profile: Table, promise: int, sign: int,
) -> None:  # fmt: skip
    """Take (-1) or give back (+1) what a promise holds on its rows' timelines."""
    kind = promises[promise, V_KIND]
    if kind == KIND_NEVER:
        return
    begin = promises[promise, V_START]
    end = INF if kind == KIND_CLAIM else min(begin + promises[promise, V_PLANNED], INF)
    if kind == KIND_CLAIM:
        begin = 0
    shape = classes[promises[promise, V_CLASS], C_SHAPE]
    for i in range(promises[promise, V_ROW], promises[promise, V_ROW] + promises[promise, V_NODES]):
        _change_span(profile, counts, rows, request, meta[M_RESOURCES], promised[i, Q_ROW], shape, begin, end, sign)


@inner
def _next_interval(
    profile: Table, point: int, request: Table, shape: int, resources: int, planned: int, ticks: Ints
) -> tuple[int, int, int]:
    """The first interval [a, b] of start times from `point` on, and the point after it (-1: none follow).

    a < 0: there is none. Within [a, b] the row holds the shape for the whole planned time.
    """
    while point >= 0:
        while point >= 0 and not _point_fits(profile, point, request, shape, resources):
            point = profile[point, POINT_NEXT]
            ticks[TICK_WORK] += 1
        if point < 0:
            break
        begin = profile[point, POINT_TIME]
        while point >= 0 and _point_fits(profile, point, request, shape, resources):
            point = profile[point, POINT_NEXT]
            ticks[TICK_WORK] += 1
        if point < 0:
            return begin, INF, -1
        if planned < INF and profile[point, POINT_TIME] - planned >= begin:
            return begin, profile[point, POINT_TIME] - planned, point
    return -1, -1, -1


@inner
def _earliest(
    meta: Ints, shapes: Table, request: Table, allowed: Allowed, capacity: Table, rows: Table, profile: Table,
    shape: int, nodes: int, planned: int, events: Table, ticks: Ints,
) -> int:  # fmt: skip
    """The earliest instant at which `nodes` rows each hold the shape for the whole planned time, -1 = never."""
    resources = meta[M_RESOURCES]
    cset = shapes[shape, S_CSET]
    if nodes == 1:
        best = INF
        for row in range(meta[M_ROWS]):
            if allowed[cset, row] == 0 or not fits(capacity, row, request, shape, resources):
                continue
            head = rows[row, W_AT]
            begin, _last, _point = _next_interval(profile, head, request, shape, resources, planned, ticks)
            if 0 <= begin < best:
                best = begin
                if best == profile[head, POINT_TIME]:
                    break
        return best if best < INF else -1
    size = 0
    for row in range(meta[M_ROWS]):
        if allowed[cset, row] == 0 or not fits(capacity, row, request, shape, resources):
            continue
        point = rows[row, W_AT]
        while point >= 0:
            begin, last, point = _next_interval(profile, point, request, shape, resources, planned, ticks)
            if begin < 0:
                break
            events[0, size] = begin
            events[1, size] = 0
            size += 1
            if last < INF:
                events[0, size] = last
                events[1, size] = 1
                size += 1
    sort_pairs(events[0], events[1], size)
    ticks[TICK_WORK] += size
    open_rows = 0
    for k in range(size):
        if events[1, k] == 0:
            open_rows += 1
            if open_rows == nodes:
                return int(events[0, k])
        else:
            open_rows -= 1
    return -1


@inner
def _free_over(
    profile: Table, rows: Table, request: Table, resources: int, row: int, shape: int, begin: int, end: int
) -> bool:
    """Whether a row holds the shape over the whole of [begin, end), at least at `begin`."""
    point = rows[row, W_AT]
    following = profile[point, POINT_NEXT]
    while following >= 0 and profile[following, POINT_TIME] <= begin:
        point = following
        following = profile[point, POINT_NEXT]
    while True:
        if not _point_fits(profile, point, request, shape, resources):
            return False
        point = profile[point, POINT_NEXT]
        if point < 0 or profile[point, POINT_TIME] >= end:
            return True


@inner
def _rows_at(
    meta: Ints, shapes: Table, request: Table, allowed: Allowed, capacity: Table, rows: Table, profile: Table,
    shape: int, nodes: int, begin: int, planned: int, out: Ints, offset: int, ticks: Ints,
) -> int:  # fmt: skip
    """The lowest rows that hold the shape over [begin, begin + planned); returns how many of `nodes` were found."""
    resources = meta[M_RESOURCES]
    cset = shapes[shape, S_CSET]
    end = min(begin + planned, INF)
    found = 0
    for row in range(meta[M_ROWS]):
        if (
            allowed[cset, row] != 0
            and fits(capacity, row, request, shape, resources)
            and _free_over(profile, rows, request, resources, row, shape, begin, end)
        ):
            out[offset + found] = row
            found += 1
            if found == nodes:
                break
    ticks[TICK_WORK] += meta[M_ROWS]
    return found


@inner
def _claim_rows(
    meta: Ints, shapes: Table, request: Table, allowed: Allowed, free: Table, capacity: Table, shape: int, nodes: int,
    out: Ints,
) -> int:  # fmt: skip
    """Rows for a job whose time is never: first those that fit now, then those that could."""
    resources = meta[M_RESOURCES]
    cset = shapes[shape, S_CSET]
    found = 0
    for later in range(2):
        for row in range(meta[M_ROWS]):
            if (
                found < nodes
                and allowed[cset, row] != 0
                and fits(capacity, row, request, shape, resources)
                and fits(free, row, request, shape, resources) == (later == 0)
            ):
                out[found] = row
                found += 1
    return found


@inner
def _compact(promises: Table, promised: Table, counts: Ints) -> None:
    """Drop the promises of jobs that started or went away; rows move up."""
    kept = 0
    used = 0
    for k in range(counts[C_PROMISES]):
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
    counts[C_PROMISES] = kept
    counts[C_PROMISED] = used


@inner
def _candidates(
    meta: Ints, entries: Table, rank: Table, buckets: Table, active: Ints, classes: Table, shapes: Table, heap: Table,
    key: int, seq: int, tie: int, everywhere: bool, path: Ints,
) -> int:  # fmt: skip
    size = 0
    for place in range(meta[M_ACTIVE]):
        bucket = active[place]
        if not everywhere and buckets[bucket, B_INSERT] <= meta[M_PARKED_INSERTS]:
            continue
        class_id = buckets[bucket, B_CLASS]
        if shapes[classes[class_id, C_SHAPE], S_EVER] < classes[class_id, C_NODES]:
            continue
        entry = tree_seek(rank, buckets[bucket, B_ROOT], key - buckets[bucket, B_OFFSET], seq, tie, INF, path)
        if entry >= 0:
            _put(entries, buckets, heap, size, bucket, entry)
            size += 1
    heap_order(heap, size)
    return size


@inner
def _put(entries: Table, buckets: Table, heap: Table, at: int, bucket: int, entry: int) -> None:
    heap[at, 0] = 0
    heap[at, 1] = entries[entry, E_KEY] + buckets[bucket, B_OFFSET]
    heap[at, 2] = entries[entry, E_JOB]
    heap[at, 3] = bucket
    buckets[bucket, B_CANDIDATE] = entry


@kernel
def cycle(
    meta: Ints, entries: Table, rank: Table, buckets: Table, active: Ints, classes: Table, shapes: Table,
    request: Table, allowed: Allowed, free: Table, capacity: Table, rows: Table, runs: Table, ends: Table,
    pieces: Table, reservations: Table, reserved: Table, path: Ints, heap: Table, freed: Ints, counts: Ints,
    ticks: Ints, profile: Table, events: Table, starts: Any, start_at: int, start_rows: Ints, row_at: int,
    promise_arena: Table, promise_at: int, promised_arena: Table, promised_at: int, verdict_arena: Any,
    verdict_at: int, now: int, budget: int, max_starts: int, resumed: bool, full: bool, pass_wake: int,
    pass_inserts: int, lane: int, key: int, seq: int, tie: int,
) -> Slice:  # fmt: skip
    """One slice; outputs and return as `easy.cycle`. A first item of -1 asks for larger scratch and arenas."""
    promises = promise_arena[promise_at:]
    promised = promised_arena[promised_at:]
    verdicts = verdict_arena[verdict_at : verdict_at + MAX_VERDICTS]
    ticks[TICK_WORK] = 0
    resources = meta[M_RESOURCES]
    if not resumed:
        pass_wake = meta[M_WAKE]
        pass_inserts = meta[M_INSERTS]
        full = meta[M_DIRTY] != 0  # promises are looked at again; else only work that has none
        for k in range(meta[M_RESERVATIONS]):
            kind = reservations[k, V_KIND]
            entry = reservations[k, V_ENTRY]
            if entry >= 0 and kind == KIND_PROMISE and now >= reservations[k, V_START]:
                full = True
            elif entry >= 0 and kind == KIND_NEVER:
                full = full or now - entries[entry, E_BLOCKED_AT] >= meta[M_CLAIM_AFTER]
        key = LOWEST
        seq = -1
        tie = -1
    replans = meta[M_DIRTY] != 0 and not resumed
    wake = next_timer(meta, rank)
    everywhere = full or meta[M_PARKING] == 0 or meta[M_PARKED_WAKE] != meta[M_WAKE]
    size = _candidates(meta, entries, rank, buckets, active, classes, shapes, heap, key, seq, tie, everywhere, path)
    counts[C_PROMISES] = meta[M_RESERVATIONS]
    counts[C_PROMISED] = meta[M_PROMISED]
    short = (
        promises.shape[0] < counts[C_PROMISES] + 1
        or promised.shape[0] < counts[C_PROMISED] + meta[M_ROWS]
        or profile.shape[0] < meta[M_ROWS] + runs.shape[0] + pieces.shape[0] + 2 * counts[C_PROMISED]
    )
    if short:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    for k in range(counts[C_PROMISES]):
        copy_record(promises, k, reservations, k)
        if full and shapes[classes[promises[k, V_CLASS], C_SHAPE], S_EVER] < classes[promises[k, V_CLASS], C_NODES]:
            promises[k, V_ENTRY] = -1  # nothing that is up could hold it any more
    for i in range(counts[C_PROMISED]):
        copy_record(promised, i, reserved, i)
    afresh = resumed and lane == 1
    building = size > 0
    while building:
        _build(
            meta, buckets, classes, request, free, rows, runs, ends, pieces, promises, promised, counts, profile, path,
            now, afresh, key, seq, tie,
        )  # fmt: skip
        building = False
        if full and not resumed and not afresh:
            afresh = _promises_broken(
                meta, classes, shapes, request, allowed, capacity, rows, promises, promised, counts, profile
            )
            building = afresh
    started = 0
    used = 0
    refusals = 0
    unfinished = 0
    while size > 0:
        bucket = heap[0, 3]
        entry = buckets[bucket, B_CANDIDATE]
        key = heap[0, 1]
        seq = heap[0, 2]
        tie = entries[entry, E_FIRST]
        if ticks[TICK_WORK] >= budget:
            unfinished = 1
            break
        ticks[TICK_WORK] += 1
        class_id = buckets[bucket, B_CLASS]
        shape = classes[class_id, C_SHAPE]
        nodes = classes[class_id, C_NODES]
        planned = entries[entry, E_PLANNED]
        mine = entries[entry, E_RESERVED]
        first = entries[entry, E_FIRST]
        if full or mine < 0:
            if mine >= 0 and not afresh and _ranks_before(promises, mine, meta[M_DROP_KEY], meta[M_DROP_JOB], -1):
                _hold(meta, classes, request, rows, promises, promised, counts, profile, mine, 1)
            task = 0
            begin = -1
            while task < entries[entry, E_TASKS]:
                if (
                    started >= max_starts
                    or start_at + started >= starts.shape[0]
                    or row_at + used + nodes > start_rows.shape[0]
                    or ticks[TICK_WORK] >= budget + meta[M_ROWS] + counts[C_POINTS]
                ):
                    unfinished = 1
                    break
                if (
                    counts[C_POINTS] + 4 * nodes + 4 > profile.shape[0]
                    or 2 * counts[C_POINTS] + 4 > events.shape[1]
                    or counts[C_PROMISES] + 1 > promises.shape[0]
                    or counts[C_PROMISED] + nodes > promised.shape[0]
                ):
                    short = True
                    break
                begin = _earliest(
                    meta, shapes, request, allowed, capacity, rows, profile, shape, nodes, planned, events, ticks
                )
                if begin != now:
                    break
                found = _rows_at(
                    meta, shapes, request, allowed, capacity, rows, profile, shape, nodes, now, planned, start_rows,
                    row_at + used, ticks,
                )  # fmt: skip
                if found < nodes:
                    begin = -1
                    break
                start = starts[start_at + started]
                start["job"] = entries[entry, E_JOB]
                start["task"] = first + task
                start["attempt"] = entries[entry, E_ATTEMPT]
                start["row_offset"] = used
                start["row_count"] = nodes
                start["entry"] = entry
                for i in range(row_at + used, row_at + used + nodes):
                    row = start_rows[i]
                    _change_span(
                        profile, counts, rows, request, resources, row, shape, now, min(now + planned, INF), -1
                    )
                    for r in range(resources):
                        free[row, r] -= request[r, shape]
                started += 1
                used += nodes
                task += 1
                if full and not afresh and task < entries[entry, E_TASKS]:
                    # An array holds one promise, for its next task; the tasks after it rank before all that follow.
                    for k in range(counts[C_PROMISES]):
                        if (
                            promises[k, V_ENTRY] >= 0
                            and k != mine
                            and not _ranks_before(promises, k, key, seq, tie + 1)
                            and _ranks_before(promises, k, meta[M_DROP_KEY], meta[M_DROP_JOB], -1)
                        ):
                            _hold(meta, classes, request, rows, promises, promised, counts, profile, k, 1)
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
            if task == entries[entry, E_TASKS]:
                if mine >= 0:
                    promises[mine, V_ENTRY] = -1
                    replans = True
            else:
                if mine < 0 and counts[C_PROMISES] < meta[M_MAX_RESERVATIONS]:
                    mine = counts[C_PROMISES]
                    counts[C_PROMISES] += 1
                    promises[mine, V_ENTRY] = entry
                    promises[mine, V_JOB] = entries[entry, E_JOB]
                    promises[mine, V_CLASS] = class_id
                    promises[mine, V_ROW] = counts[C_PROMISED]
                    promises[mine, V_NODES] = 0
                    promises[mine, V_START] = -1
                    counts[C_PROMISED] += nodes
                if mine >= 0:
                    kind = KIND_PROMISE if begin >= 0 else KIND_NEVER
                    if begin < 0:
                        begin = INF
                        since = entries[entry, E_BLOCKED_AT]
                        if since >= 0 and now - since >= meta[M_CLAIM_AFTER]:
                            kind = KIND_CLAIM
                    found = nodes
                    freed[:nodes] = -1  # a promise of 'never' names no rows yet
                    if kind == KIND_PROMISE:
                        found = _rows_at(
                            meta, shapes, request, allowed, capacity, rows, profile, shape, nodes, begin, planned,
                            freed, 0, ticks,
                        )  # fmt: skip
                    elif kind == KIND_CLAIM:
                        found = _claim_rows(meta, shapes, request, allowed, free, capacity, shape, nodes, freed)
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
                    _hold(meta, classes, request, rows, promises, promised, counts, profile, mine, -1)
                    if kind == KIND_NEVER:
                        since = entries[entry, E_BLOCKED_AT]
                        wake = min(wake, (now if since < 0 else since) + meta[M_CLAIM_AFTER])
                    elif kind == KIND_PROMISE:
                        wake = min(wake, begin)
                if refusals < verdicts.shape[0]:
                    lacking = nodes - shapes[shape, S_FIT]
                    verdicts[refusals]["job"] = entries[entry, E_JOB]
                    verdicts[refusals]["task"] = first + task
                    verdicts[refusals]["reason"] = REASON_RESOURCES if lacking > 0 else REASON_PROMISED
                    verdicts[refusals]["short_rows"] = max(lacking, 0)
                    refusals += 1
        following = tree_seek(rank, buckets[bucket, B_ROOT], key - buckets[bucket, B_OFFSET], seq, first + 1, INF, path)
        if following >= 0:
            _put(entries, buckets, heap, 0, bucket, following)
        else:
            size -= 1
            for c in range(4):
                heap[0, c] = heap[size, c]
        heap_down(heap, size, 0)
    for k in range(start_at, start_at + started):
        shape = classes[buckets[entries[starts[k]["entry"], E_BUCKET], B_CLASS], C_SHAPE]
        for i in range(row_at + starts[k]["row_offset"], row_at + starts[k]["row_offset"] + starts[k]["row_count"]):
            for r in range(resources):
                free[start_rows[i], r] += request[r, shape]
    if short:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    for k in range(counts[C_PROMISES]):
        if promises[k, V_ENTRY] >= 0 and promises[k, V_KIND] == KIND_PROMISE and promises[k, V_START] > now:
            wake = min(wake, promises[k, V_START])
    _compact(promises, promised, counts)
    if counts[C_PROMISES] != meta[M_RESERVATIONS]:
        replans = True
    changes = started > 0 or replans
    if unfinished == 0 and meta[M_ACTIVE] > 0:
        changes = changes or meta[M_PARKED_WAKE] != pass_wake or meta[M_PARKED_INSERTS] != pass_inserts
    return (
        started, used, int(replans), counts[C_PROMISES], counts[C_PROMISED], refusals, unfinished, int(afresh),
        key, seq, tie,
        wake, ticks[TICK_WORK], pass_wake, pass_inserts, int(full), int(changes), meta[M_VERSION],
    )  # fmt: skip
