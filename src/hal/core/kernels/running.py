"""Running attempts: they are assumed, refused, adopted and ended here, and hold their rows in between.

Pure. A run's rows are a chain of pieces; runs with a planned end are nodes of one tree by (planned end, job, task), the
projected releases of the whole machine. O(log n + rows x shapes) an attempt.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.jit import inner, kernel
from hal.core.kernels.layout import (
    B_CLASS,
    B_REFS,
    BACKFILL_CONSERVATIVE,
    BAD_LIVE,
    BAD_ROW,
    BAD_UNKNOWN,
    C_NODES,
    C_SHAPE,
    E_ATTEMPT,
    E_BLOCKED_AT,
    E_BUCKET,
    E_ELIGIBLE,
    E_FIRST,
    E_HELD,
    E_JOB,
    E_KEY,
    E_PLANNED,
    E_PRIORITY,
    E_RESERVED,
    E_SIBLING,
    E_SUBMIT,
    E_TASKS,
    E_WALL,
    E_WHERE,
    GROW_BUCKETS,
    GROW_ENTRIES,
    GROW_PIECES,
    GROW_RUNS,
    INF,
    KEEP,
    M_BACKFILL,
    M_BUCKET_TOP,
    M_BY_TIME,
    M_CLOCK,
    M_DIRTY,
    M_DROP_KEY,
    M_END_ROOT,
    M_ENTRY_TOP,
    M_FAULT,
    M_INSERTS,
    M_LAST_JOB,
    M_LAST_KEY,
    M_ORDER,
    M_PARKED_INSERTS,
    M_PARKED_WAKE,
    M_PENDING,
    M_PIECE_FREE,
    M_PIECE_TOP,
    M_PIECES,
    M_PROMISED,
    M_RESERVATIONS,
    M_RUN_FREE,
    M_RUN_TOP,
    M_RUNS,
    M_VERSION,
    M_WAKE,
    OK,
    ORDER_SJF,
    P_NEXT,
    P_ROW,
    Q_ROW,
    R_ATTEMPT,
    R_BUCKET,
    R_ELIGIBLE,
    R_END,
    R_JOB,
    R_KEY,
    R_NODES,
    R_PIECE,
    R_PLANNED,
    R_PRIORITY,
    R_START,
    R_SUBMIT,
    R_TASK,
    R_WALL,
    T_TIE,
    V_ENTRY,
    V_JOB,
    V_KEY,
    W_PIECES,
    W_PROMISED,
    WHERE_BUCKET,
)
from hal.core.kernels.pending import (
    bucket_of,
    drop_entry,
    exit_bucket,
    leave_bucket,
    mark_dirty,
    new_entry,
    order_key,
    settle,
)
from hal.core.kernels.rows import Allowed, give_row, take_row
from hal.core.kernels.tables import (
    Index,
    copy_record,
    drop_hashed,
    find_one,
    find_two,
    give_slot,
    put_hashed,
    take_slot,
)
from hal.core.kernels.treap import Table, tree_insert, tree_node, tree_remove

Ints = NDArray[np.int64]


@inner
def _open_run(
    meta: Ints, buckets: Table, runs: Table, ends: Table, run_index: Index, path: Ints, job: int, task: int,
    attempt: int, bucket: int, priority: int, submit: int, wall: int, planned: int, start: int, key: int,
    eligible: int, nodes: int,
) -> int:  # fmt: skip
    run = take_slot(meta, runs, M_RUN_FREE, M_RUN_TOP)
    end = min(start + planned, INF)
    runs[run, R_JOB] = job
    runs[run, R_TASK] = task
    runs[run, R_ATTEMPT] = attempt
    runs[run, R_BUCKET] = bucket
    runs[run, R_PRIORITY] = priority
    runs[run, R_SUBMIT] = submit
    runs[run, R_WALL] = wall
    runs[run, R_PLANNED] = planned
    runs[run, R_START] = start
    runs[run, R_END] = end
    runs[run, R_PIECE] = -1
    runs[run, R_NODES] = nodes
    runs[run, R_KEY] = key
    runs[run, R_ELIGIBLE] = eligible
    put_hashed(run_index, run, job, task)
    buckets[bucket, B_REFS] += 1
    meta[M_RUNS] += 1
    if end < INF:
        tree_node(ends, run, end, job, task, 0)
        meta[M_END_ROOT] = tree_insert(ends, meta[M_END_ROOT], run, path)
    return run


@inner
def _add_piece(meta: Ints, rows: Table, runs: Table, pieces: Table, run: int, last: int, row: int) -> int:
    """Append a row to a run's chain after piece `last` (-1 = first). Returns the piece."""
    piece = take_slot(meta, pieces, M_PIECE_FREE, M_PIECE_TOP)
    pieces[piece, P_ROW] = row
    pieces[piece, P_NEXT] = -1
    if last < 0:
        runs[run, R_PIECE] = piece
    else:
        pieces[last, P_NEXT] = piece
    rows[row, W_PIECES] += 1
    meta[M_PIECES] += 1
    return piece


@inner
def _close_run(
    meta: Ints, buckets: Table, bucket_index: Index, classes: Table, shapes: Table, request: Table, allowed: Allowed,
    free: Table, rows: Table, runs: Table, ends: Table, run_index: Index, pieces: Table, path: Ints, run: int,
) -> None:  # fmt: skip
    """Give back a run's rows and its slot."""
    shape = classes[buckets[runs[run, R_BUCKET], B_CLASS], C_SHAPE]
    piece = runs[run, R_PIECE]
    while piece >= 0:
        following = pieces[piece, P_NEXT]
        row = pieces[piece, P_ROW]
        give_row(meta, shapes, request, allowed, free, row, shape)
        rows[row, W_PIECES] -= 1
        give_slot(meta, pieces, M_PIECE_FREE, piece)
        meta[M_PIECES] -= 1
        piece = following
    if runs[run, R_END] < INF:
        meta[M_END_ROOT] = tree_remove(ends, meta[M_END_ROOT], run, path)
    drop_hashed(run_index, runs, R_JOB, True, run)
    leave_bucket(meta, buckets, bucket_index, classes, runs[run, R_BUCKET])
    runs[run, R_NODES] = 0
    meta[M_RUNS] -= 1
    give_slot(meta, runs, M_RUN_FREE, run)


@kernel
def assume(
    meta: Ints, entries: Table, rank: Table, by_time: Table, job_index: Index, buckets: Table, bucket_index: Index,
    active: Ints, classes: Table, shapes: Table, request: Table, allowed: Allowed, free: Table, rows: Table,
    runs: Table, ends: Table, run_index: Index, pieces: Table, reservations: Table, reserved: Table,
    path: Ints, starts: Any, start_rows: Ints, now: int, replans: bool, promises: Table, promised: Table,
    complete: bool, pass_wake: int, pass_inserts: int,
) -> int:  # fmt: skip
    """Make a plan true: starts take their rows, reservations replace the old ones, parking is noted."""
    if meta[M_RUN_TOP] + starts.shape[0] > runs.shape[0]:
        return GROW_RUNS
    if meta[M_PIECE_TOP] + start_rows.shape[0] > pieces.shape[0]:
        return GROW_PIECES
    wake = meta[M_WAKE]
    dirty = meta[M_DIRTY]
    if replans:
        for k in range(meta[M_RESERVATIONS]):
            slot = reservations[k, V_ENTRY]
            if slot >= 0 and entries[slot, E_RESERVED] == k:
                entries[slot, E_RESERVED] = -1
        for i in range(meta[M_PROMISED]):
            rows[reserved[i, Q_ROW], W_PROMISED] = -1
        meta[M_RESERVATIONS] = 0
        meta[M_PROMISED] = 0
    for k in range(starts.shape[0]):
        start = starts[k]
        slot = start["entry"]
        meta[M_FAULT] = k
        if entries[slot, E_JOB] != start["job"] or entries[slot, E_FIRST] != start["task"]:
            return BAD_UNKNOWN
        bucket = entries[slot, E_BUCKET]
        count = start["row_count"]
        run = _open_run(
            meta, buckets, runs, ends, run_index, path, start["job"], start["task"], start["attempt"], bucket,
            entries[slot, E_PRIORITY], entries[slot, E_SUBMIT], entries[slot, E_WALL], entries[slot, E_PLANNED], now,
            entries[slot, E_KEY], entries[slot, E_ELIGIBLE], count,
        )  # fmt: skip
        shape = classes[buckets[bucket, B_CLASS], C_SHAPE]
        last = -1
        for i in range(start["row_offset"], start["row_offset"] + count):
            row = start_rows[i]
            last = _add_piece(meta, rows, runs, pieces, run, last, row)
            take_row(meta, shapes, request, allowed, free, row, shape)
        meta[M_PENDING] -= 1
        entries[slot, E_FIRST] += 1
        entries[slot, E_TASKS] -= 1
        if entries[slot, E_TASKS] == 0:
            exit_bucket(meta, entries, rank, by_time, buckets, active, slot, path)
            entries[slot, E_RESERVED] = -1
            drop_entry(meta, entries, job_index, buckets, bucket_index, classes, slot)
        else:
            rank[slot, T_TIE] += 1
            if meta[M_BY_TIME] == 1:
                by_time[slot, T_TIE] += 1
    if replans:
        for k in range(promises.shape[0]):
            slot = promises[k, V_ENTRY]
            copy_record(reservations, k, promises, k)
            if slot < 0:
                continue
            entries[slot, E_RESERVED] = k
            if entries[slot, E_BLOCKED_AT] < 0:
                entries[slot, E_BLOCKED_AT] = now
        for i in range(promised.shape[0]):
            copy_record(reserved, i, promised, i)
            if meta[M_BACKFILL] != BACKFILL_CONSERVATIVE:
                rows[promised[i, Q_ROW], W_PROMISED] = i
        meta[M_PROMISED] = promised.shape[0]
        meta[M_RESERVATIONS] = promises.shape[0]
        dirty = 1 if wake != pass_wake else 0
        meta[M_LAST_KEY] = -INF
        for k in range(promises.shape[0]):
            if promises[k, V_KEY] > meta[M_LAST_KEY] or (
                promises[k, V_KEY] == meta[M_LAST_KEY] and promises[k, V_JOB] > meta[M_LAST_JOB]
            ):
                meta[M_LAST_KEY] = promises[k, V_KEY]
                meta[M_LAST_JOB] = promises[k, V_JOB]
    meta[M_DIRTY] = dirty
    meta[M_WAKE] = wake
    if complete and wake == pass_wake:
        meta[M_DROP_KEY] = INF
    if complete:
        meta[M_PARKED_WAKE] = pass_wake
        meta[M_PARKED_INSERTS] = pass_inserts
    meta[M_CLOCK] = max(meta[M_CLOCK], now)
    meta[M_VERSION] += 1
    return OK


@kernel
def note_parked(meta: Ints, now: int, pass_wake: int, pass_inserts: int) -> None:
    """A complete pass that changes nothing else: what it looked at stays parked until something wakes it."""
    meta[M_PARKED_WAKE] = pass_wake
    meta[M_PARKED_INSERTS] = pass_inserts
    if meta[M_WAKE] == pass_wake:
        meta[M_DROP_KEY] = INF
    meta[M_CLOCK] = max(meta[M_CLOCK], now)
    meta[M_VERSION] += 1


@inner
def _unmark(runs: Table, run_index: Index, gone: Any, count: int) -> None:
    for k in range(count):
        run = find_two(run_index, runs, R_JOB, gone[k]["job"], gone[k]["task"])
        runs[run, R_ATTEMPT] = -runs[run, R_ATTEMPT]


@inner
def _mark_all(meta: Ints, runs: Table, run_index: Index, gone: Any) -> int:
    """Check that each row names another running attempt; marked by a negative attempt number."""
    for k in range(gone.shape[0]):
        run = find_two(run_index, runs, R_JOB, gone[k]["job"], gone[k]["task"])
        if run < 0 or runs[run, R_ATTEMPT] != gone[k]["attempt"]:
            _unmark(runs, run_index, gone, k)
            meta[M_FAULT] = k
            return BAD_UNKNOWN
        runs[run, R_ATTEMPT] = -runs[run, R_ATTEMPT]
    return OK


@kernel
def end(
    meta: Ints, entries: Table, rank: Table, by_time: Table, job_index: Index, buckets: Table, bucket_index: Index,
    active: Ints, classes: Table, shapes: Table, request: Table, allowed: Allowed, free: Table, rows: Table,
    runs: Table, ends: Table, run_index: Index, pieces: Table, reservations: Table, path: Ints, gone: Any,
) -> int:  # fmt: skip
    """End attempts (dtype END); with requeue the task waits again as the next attempt."""
    if meta[M_ENTRY_TOP] + gone.shape[0] > entries.shape[0]:
        return GROW_ENTRIES
    outcome = _mark_all(meta, runs, run_index, gone)
    if outcome != OK:
        return outcome
    for k in range(gone.shape[0]):
        row = gone[k]
        run = find_two(run_index, runs, R_JOB, row["job"], row["task"])
        if row["requeue"] != 0:
            eligible = max(min(row["eligible_ms"], INF), runs[run, R_SUBMIT])
            slot = new_entry(
                meta, entries, job_index, buckets, row["job"], row["task"], 1, row["attempt"] + 1,
                runs[run, R_BUCKET], runs[run, R_PRIORITY], runs[run, R_SUBMIT], eligible, row["held"],
                runs[run, R_WALL], runs[run, R_PLANNED], runs[run, R_KEY],
            )  # fmt: skip
            settle(meta, entries, rank, by_time, buckets, active, reservations, slot, path)
        _close_run(
            meta, buckets, bucket_index, classes, shapes, request, allowed, free, rows, runs, ends, run_index, pieces,
            path, run,
        )  # fmt: skip
    mark_dirty(meta)
    meta[M_VERSION] += 1
    return OK


@inner
def _back_in_line(
    meta: Ints, entries: Table, rank: Table, by_time: Table, job_index: Index, runs: Table, run: int, attempt: int
) -> bool:
    """Let the entry that this task was taken from begin with it again, if it is still there and alike."""
    slot = find_one(job_index, entries, E_JOB, runs[run, R_JOB])
    while slot >= 0:
        if (
            entries[slot, E_FIRST] == runs[run, R_TASK] + 1
            and entries[slot, E_WHERE] == WHERE_BUCKET
            and entries[slot, E_ATTEMPT] == attempt
            and entries[slot, E_BUCKET] == runs[run, R_BUCKET]
            and entries[slot, E_KEY] == runs[run, R_KEY]
            and entries[slot, E_WALL] == runs[run, R_WALL]
            and entries[slot, E_PLANNED] == runs[run, R_PLANNED]
        ):
            entries[slot, E_FIRST] -= 1
            entries[slot, E_TASKS] += 1
            rank[slot, T_TIE] -= 1
            if meta[M_BY_TIME] == 1:
                by_time[slot, T_TIE] -= 1
            meta[M_PENDING] += 1
            return True
        slot = entries[slot, E_SIBLING]
    return False


@kernel
def refuse(
    meta: Ints, entries: Table, rank: Table, by_time: Table, job_index: Index, buckets: Table, bucket_index: Index,
    active: Ints, classes: Table, shapes: Table, request: Table, allowed: Allowed, free: Table, rows: Table,
    runs: Table, ends: Table, run_index: Index, pieces: Table, reservations: Table, path: Ints, gone: Any,
    new_attempt: int,
) -> int:  # fmt: skip
    """Undo assumed starts in reverse order: each task waits again at its old place."""
    if meta[M_ENTRY_TOP] + gone.shape[0] > entries.shape[0]:
        return GROW_ENTRIES
    outcome = _mark_all(meta, runs, run_index, gone)
    if outcome != OK:
        return outcome
    for k in range(gone.shape[0] - 1, -1, -1):
        row = gone[k]
        run = find_two(run_index, runs, R_JOB, row["job"], row["task"])
        attempt = row["attempt"] + new_attempt
        if not _back_in_line(meta, entries, rank, by_time, job_index, runs, run, attempt):
            sibling = find_one(job_index, entries, E_JOB, row["job"])
            held = entries[sibling, E_HELD] if sibling >= 0 else 0
            slot = new_entry(
                meta, entries, job_index, buckets, row["job"], row["task"], 1, attempt, runs[run, R_BUCKET],
                runs[run, R_PRIORITY], runs[run, R_SUBMIT], runs[run, R_ELIGIBLE], held, runs[run, R_WALL],
                runs[run, R_PLANNED], runs[run, R_KEY],
            )  # fmt: skip
            settle(meta, entries, rank, by_time, buckets, active, reservations, slot, path)
        else:
            meta[M_INSERTS] += 1
        _close_run(
            meta, buckets, bucket_index, classes, shapes, request, allowed, free, rows, runs, ends, run_index, pieces,
            path, run,
        )  # fmt: skip
    mark_dirty(meta)
    meta[M_VERSION] += 1
    return OK


@kernel
def adopt(
    meta: Ints, entries: Table, job_index: Index, buckets: Table, bucket_index: Index, classes: Table, shapes: Table,
    request: Table, allowed: Allowed, free: Table, rows: Table, runs: Table, ends: Table, run_index: Index,
    pieces: Table, path: Ints, adopted: Any, adopted_rows: Ints, class_ids: Ints, owner_ids: Ints, keys: Ints,
) -> int:  # fmt: skip
    """Enter attempts that run already (dtype ADOPT); `adopted_rows` are row ids. Amounts may go below zero."""
    count = adopted.shape[0]
    if meta[M_RUN_TOP] + count > runs.shape[0]:
        return GROW_RUNS
    if meta[M_PIECE_TOP] + adopted_rows.shape[0] > pieces.shape[0]:
        return GROW_PIECES
    if meta[M_BUCKET_TOP] + min(count, class_ids.shape[0] * owner_ids.shape[0]) > buckets.shape[0]:
        return GROW_BUCKETS
    for k in range(count):
        row = adopted[k]
        meta[M_FAULT] = k
        if find_two(run_index, runs, R_JOB, row["job"], row["task"]) >= 0:
            return BAD_LIVE
        class_id = class_ids[row["class_index"]]
        if row["row_count"] != classes[class_id, C_NODES]:
            return BAD_ROW
        slot = find_one(job_index, entries, E_JOB, row["job"])
        while slot >= 0:
            if 0 <= row["task"] - entries[slot, E_FIRST] < entries[slot, E_TASKS]:
                return BAD_LIVE
            slot = entries[slot, E_SIBLING]
    for k in range(count):
        row = adopted[k]
        bucket = bucket_of(
            meta, buckets, bucket_index, classes, class_ids[row["class_index"]], owner_ids[row["owner_index"]]
        )
        wall = min(row["walltime_ms"], INF)
        planned = min(row["planned_ms"], INF) if row["planned_ms"] >= 0 else wall
        key = keys[k] if keys.shape[0] > 0 else order_key(meta[M_ORDER], row["priority"], planned)
        run = _open_run(
            meta, buckets, runs, ends, run_index, path, row["job"], row["task"], row["attempt"], bucket,
            row["priority"], row["submit_ms"], wall, planned, row["start_ms"], key, row["submit_ms"], row["row_count"],
        )  # fmt: skip
        shape = classes[buckets[bucket, B_CLASS], C_SHAPE]
        last = -1
        for i in range(row["row_offset"], row["row_offset"] + row["row_count"]):
            last = _add_piece(meta, rows, runs, pieces, run, last, adopted_rows[i])
            take_row(meta, shapes, request, allowed, free, adopted_rows[i], shape)
    mark_dirty(meta)
    meta[M_VERSION] += 1
    return OK


@kernel
def retime(meta: Ints, runs: Table, ends: Table, path: Ints, slots: Ints, changed: Table) -> int:
    """New priority, walltime, planned time (columns of `changed`, KEEP = unchanged) of running attempts."""
    for k in range(slots.shape[0]):
        run = slots[k]
        if changed[k, 0] != KEEP:
            runs[run, R_PRIORITY] = changed[k, 0]
        if changed[k, 1] != KEEP:
            if runs[run, R_PLANNED] == runs[run, R_WALL]:
                runs[run, R_PLANNED] = min(changed[k, 1], INF)
            runs[run, R_WALL] = min(changed[k, 1], INF)
        if changed[k, 2] != KEEP:
            runs[run, R_PLANNED] = min(changed[k, 2], INF) if changed[k, 2] >= 0 else runs[run, R_WALL]
        if meta[M_ORDER] <= ORDER_SJF:
            runs[run, R_KEY] = order_key(meta[M_ORDER], runs[run, R_PRIORITY], runs[run, R_PLANNED])
        end_ms = min(runs[run, R_START] + runs[run, R_PLANNED], INF)
        if end_ms != runs[run, R_END]:
            if runs[run, R_END] < INF:
                meta[M_END_ROOT] = tree_remove(ends, meta[M_END_ROOT], run, path)
            runs[run, R_END] = end_ms
            if end_ms < INF:
                tree_node(ends, run, end_ms, runs[run, R_JOB], runs[run, R_TASK], 0)
                meta[M_END_ROOT] = tree_insert(ends, meta[M_END_ROOT], run, path)
    mark_dirty(meta)
    meta[M_VERSION] += 1
    return OK
