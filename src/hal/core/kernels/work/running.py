"""Running attempts: they are assumed, refused, adopted and ended here, and hold their rows in between.

Pure. A run's rows are a chain of pieces; runs with a planned end are nodes of one tree by (planned end, job, task), the
projected releases of the whole machine. O(log n + rows x shapes) an attempt.
"""

from __future__ import annotations

from typing import Any

from hal.core.kernels.nodes.ends import add_end, drop_end
from hal.core.kernels.nodes.rows import (
    fits,
    give_node,
    look_again,
    reserve_node,
    settle_counts,
    shift_node,
    take_later,
    take_node,
)
from hal.core.kernels.nodes.touching import free_node, free_replaced, free_run, make_stale, pass_over
from hal.core.kernels.nodes.wants import take_licences
from hal.core.kernels.rules.booked import within_booking
from hal.core.kernels.rules.ledgers import charge_since, settle_ledgers
from hal.core.kernels.rules.licences import give_licences
from hal.core.kernels.rules.shares import NOMINAL_MS, band_of, charge_shares, order_key, take_turn
from hal.core.kernels.structures.arrays import Ints, Table
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    B_CLASS,
    B_REFS,
    BACKFILL_CONSERVATIVE,
    BAD_LIVE,
    BAD_NODES,
    BAD_UNKNOWN,
    C_AFFINE,
    C_NODES,
    C_SHAPE,
    E_ATTEMPT,
    E_BLOCKED_AT,
    E_BUCKET,
    E_DEADLINE,
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
    M_AFFINE,
    M_BACKFILL,
    M_BUCKET_TOP,
    M_BY_TIME,
    M_CLOCK,
    M_CPU,
    M_DIRTY,
    M_DROPS,
    M_ENTRY_TOP,
    M_EPOCH,
    M_FAULT,
    M_INSERTS,
    M_LAST_JOB,
    M_LAST_KEY,
    M_ORDER,
    M_PARKED_INSERTS,
    M_PARKED_WAKE,
    M_PARTED,
    M_PASS_STARTS,
    M_PENDING,
    M_PIECE_FREE,
    M_PIECE_TOP,
    M_PIECES,
    M_RESERVATIONS,
    M_RESERVED,
    M_RESOURCES,
    M_RUN_FREE,
    M_RUN_TOP,
    M_RUNS,
    M_SUSPENDED,
    M_VERSION,
    M_WAKE,
    N_ATTEMPTS,
    N_PIECES,
    OK,
    ORDER_PLUGIN,
    P_BEFORE,
    P_NEXT,
    P_NODE,
    P_ON_ROW,
    P_RUN,
    Q_NODE,
    R_ATTEMPT,
    R_BUCKET,
    R_CHARGED,
    R_DEADLINE,
    R_DUE,
    R_ELIGIBLE,
    R_END,
    R_FOR,
    R_JOB,
    R_KEY,
    R_NODES,
    R_PIECE,
    R_PLANNED,
    R_PREEMPTED,
    R_PRIORITY,
    R_SINCE,
    R_START,
    R_STATE,
    R_SUBMIT,
    R_TASK,
    R_WALL,
    RUN_CLAIM,
    RUN_GOING,
    RUN_ON,
    RUN_SUSPENDED,
    S_CSET,
    T_TIE,
    TICK_READY,
    V_CLASS,
    V_DIRTY,
    V_ENTRY,
    V_JOB,
    V_KEY,
    WHERE_BUCKET,
)
from hal.core.kernels.structures.memory import Tables, tables
from hal.core.kernels.structures.slots import (
    copy_record,
    drop_hashed,
    find_one,
    find_two,
    give_slot,
    put_hashed,
    take_slot,
)
from hal.core.kernels.work.pending import (
    bucket_of,
    drop_entry,
    exit_bucket,
    follows,
    leave_bucket,
    link_new,
    mark_dirty,
    settle,
    take_entry,
)


@inner
def _open_run(
    t: Tables,
    job: int,
    task: int,
    attempt: int,
    bucket: int,
    priority: int,
    submit: int,
    wall: int,
    planned: int,
    start: int,
    key: int,
    eligible: int,
    nodes: int,
    deadline: int,
    charged: int,
) -> int:
    run = take_slot(t.meta, t.runs, M_RUN_FREE, M_RUN_TOP)
    shape = t.classes[t.buckets[bucket, B_CLASS], C_SHAPE]
    end = min(start + within_booking(t, shape, start, planned), INF)
    t.runs[run, R_JOB] = job
    t.runs[run, R_TASK] = task
    t.runs[run, R_ATTEMPT] = attempt
    t.runs[run, R_BUCKET] = bucket
    t.runs[run, R_PRIORITY] = priority
    t.runs[run, R_SUBMIT] = submit
    t.runs[run, R_WALL] = wall
    t.runs[run, R_PLANNED] = planned
    t.runs[run, R_START] = start
    t.runs[run, R_END] = end
    t.runs[run, R_PIECE] = -1
    t.runs[run, R_NODES] = nodes
    t.runs[run, R_KEY] = key
    t.runs[run, R_ELIGIBLE] = eligible
    t.runs[run, R_DEADLINE] = deadline
    t.runs[run, R_CHARGED] = charged
    t.runs[run, R_STATE] = RUN_ON
    t.runs[run, R_PREEMPTED] = 0
    t.runs[run, R_FOR] = -1
    put_hashed(t.run_index, run, job, task)
    if t.meta[M_AFFINE] != 0 and t.classes[t.buckets[bucket, B_CLASS], C_AFFINE] != 0:
        t.meta[M_PARTED] = 1
    t.buckets[bucket, B_REFS] += 1
    t.meta[M_RUNS] += 1
    take_licences(t, shape, 1)
    add_end(t, run)
    return run


@inner
def _charge(at: Any, bucket: int, wall: int, planned: int, now: int) -> int:
    """Charge an assumed start to its ledgers and shares. Returns the ms that shares were charged for."""
    t = tables(at)
    charge_since(t, bucket, wall, now, 1)
    take_turn(t, bucket)
    charged = planned if planned < INF else NOMINAL_MS
    charge_shares(t, bucket, charged, now)
    return int(charged)


@inner
def _add_piece(t: Tables, run: int, last: int, node: int) -> int:
    """Append a row to a run's chain after piece `last` (-1 = first). Returns the piece."""
    piece = take_slot(t.meta, t.pieces, M_PIECE_FREE, M_PIECE_TOP)
    t.pieces[piece, P_NODE] = node
    t.pieces[piece, P_NEXT] = -1
    if last < 0:
        t.runs[run, R_PIECE] = piece
    else:
        t.pieces[last, P_NEXT] = piece
    t.pieces[piece, P_RUN] = run
    other = t.rows[node, N_ATTEMPTS]
    t.pieces[piece, P_ON_ROW] = other
    t.pieces[piece, P_BEFORE] = 0
    if other > 0:
        t.pieces[other - 1, P_BEFORE] = piece + 1
    t.rows[node, N_ATTEMPTS] = piece + 1
    t.rows[node, N_PIECES] += 1
    t.meta[M_PIECES] += 1
    make_stale(t, node)
    return piece


@inner
def _leave_row(t: Tables, piece: int) -> None:
    """Take a piece out of its row's chain."""
    node = t.pieces[piece, P_NODE]
    before = t.pieces[piece, P_BEFORE]
    following = t.pieces[piece, P_ON_ROW]
    if before > 0:
        t.pieces[before - 1, P_ON_ROW] = following
    else:
        t.rows[node, N_ATTEMPTS] = following
    if following > 0:
        t.pieces[following - 1, P_BEFORE] = before
    t.rows[node, N_PIECES] -= 1
    free_node(t, node)


@inner
def mark_row(t: Tables, node: int) -> None:
    """What is reserved for jobs that could use a row is planned anew: it came free."""
    if t.meta[M_BACKFILL] == BACKFILL_CONSERVATIVE:
        mark_dirty(t)
        return
    for k in range(t.meta[M_RESERVATIONS]):
        if t.reservations[k, V_DIRTY] == 0:
            shape = t.classes[t.reservations[k, V_CLASS], C_SHAPE]
            if t.allowed[t.shapes[shape, S_CSET], node] != 0 and fits(t, t.capacity, node, shape, t.meta[M_RESOURCES]):
                t.reservations[k, V_DIRTY] = 1


@inner
def move_end(t: Tables, run: int, end: int) -> None:
    """Let a run be released at another time."""
    if end == t.runs[run, R_END]:
        return
    free_run(t, run)
    piece = t.runs[run, R_PIECE]
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]) and t.ticks[TICK_READY] == 1:
        walked += 1
        look_again(t, t.pieces[piece, P_NODE])
        piece = t.pieces[piece, P_NEXT]
    drop_end(t, run)
    t.runs[run, R_END] = end
    add_end(t, run)


@inner
def shift_cpu(t: Tables, run: int, sign: int) -> None:
    """Give (+1) or take (-1) the cpu of a run on all its rows: it is suspended, or goes on."""
    cpu = t.meta[M_CPU]
    if cpu < 0:
        return
    amount = t.request[cpu, t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE]]
    if sign > 0:
        t.meta[M_EPOCH] += 1
    piece = t.runs[run, R_PIECE]
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        node = t.pieces[piece, P_NODE]
        shift_node(t, node, cpu, sign * amount)
        if sign > 0:
            free_node(t, node)
            mark_row(t, node)
        else:
            make_stale(t, node)
        piece = t.pieces[piece, P_NEXT]


@inner
def suspend_run(t: Tables, run: int, since: int) -> None:
    """A run gives back its cpu; nobody knows when it ends."""
    t.runs[run, R_STATE] = RUN_SUSPENDED
    t.runs[run, R_SINCE] = since
    t.meta[M_SUSPENDED] += 1
    move_end(t, run, INF)
    shift_cpu(t, run, 1)


@inner
def send_run(t: Tables, run: int, due: int) -> None:
    """A run was told to end by `due`."""
    t.runs[run, R_STATE] = RUN_GOING
    t.runs[run, R_DUE] = due
    move_end(t, run, min(t.runs[run, R_END], due))


@inner
def close_run(at: Any, run: int, ended: int) -> None:
    """Give back a run's rows, its slot, what it holds of ledgers, and what it was charged for beyond `ended`."""
    t = tables(at)
    bucket = t.runs[run, R_BUCKET]
    shape = t.classes[t.buckets[bucket, B_CLASS], C_SHAPE]
    if t.runs[run, R_STATE] == RUN_SUSPENDED:
        shift_cpu(t, run, -1)
        t.runs[run, R_START] += max(t.meta[M_CLOCK] - t.runs[run, R_SINCE], 0)
        t.meta[M_SUSPENDED] -= 1
    if t.meta[M_AFFINE] != 0 and t.classes[t.buckets[bucket, B_CLASS], C_AFFINE] != 0:
        t.meta[M_PARTED] = 1
    settle_ledgers(t, bucket, t.runs[run, R_WALL], t.runs[run, R_START], ended)
    charge_shares(t, bucket, max(ended - t.runs[run, R_START], 0) - t.runs[run, R_CHARGED], t.meta[M_CLOCK])
    t.meta[M_EPOCH] += 1
    piece = t.runs[run, R_PIECE]
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        following = t.pieces[piece, P_NEXT]
        node = t.pieces[piece, P_NODE]
        give_node(t, node, shape)
        _leave_row(t, piece)
        mark_row(t, node)
        give_slot(t.meta, t.pieces, M_PIECE_FREE, piece)
        t.meta[M_PIECES] -= 1
        piece = following
    give_licences(t, shape)
    drop_end(t, run)
    drop_hashed(t.run_index, t.runs, R_JOB, True, run)
    leave_bucket(t, t.runs[run, R_BUCKET])
    t.runs[run, R_NODES] = 0
    t.meta[M_RUNS] -= 1
    give_slot(t.meta, t.runs, M_RUN_FREE, run)


@inner
def open_from_entry(at: Any, slot: int, start: int, now: int, rows: Ints, first: int, last: int) -> int:
    """The first task of an entry holds rows[first:last] from now on and is planned from `start`. Returns its run.

    The counts lag behind until `settle_counts`.
    """
    t = tables(at)
    bucket = t.entries[slot, E_BUCKET]
    run = _open_run(
        t,
        t.entries[slot, E_JOB],
        t.entries[slot, E_FIRST],
        t.entries[slot, E_ATTEMPT],
        bucket,
        t.entries[slot, E_PRIORITY],
        t.entries[slot, E_SUBMIT],
        t.entries[slot, E_WALL],
        t.entries[slot, E_PLANNED],
        start,
        t.entries[slot, E_KEY],
        t.entries[slot, E_ELIGIBLE],
        last - first,
        t.entries[slot, E_DEADLINE],
        _charge(at, bucket, t.entries[slot, E_WALL], t.entries[slot, E_PLANNED], now),
    )
    shape = t.classes[t.buckets[bucket, B_CLASS], C_SHAPE]
    piece = -1
    for i in range(first, last):
        piece = _add_piece(t, run, piece, rows[i])
        take_later(t, rows[i], shape)
    t.meta[M_PENDING] -= 1
    t.entries[slot, E_FIRST] += 1
    t.entries[slot, E_TASKS] -= 1
    if t.entries[slot, E_TASKS] == 0:
        if not follows(t, slot):
            exit_bucket(t, slot)
        t.entries[slot, E_RESERVED] = -1
        drop_entry(t, slot)
    else:
        t.rank[slot, T_TIE] += 1
        if t.meta[M_BY_TIME] == 1:
            t.by_time[slot, T_TIE] += 1
    return run


@kernel
def assume(
    at: Any,
    starts: Any,
    start_nodes: Ints,
    now: int,
    replans: bool,
    reservations: Table,
    reserved: Table,
    complete: int,
    resumed: bool,
    pass_wake: int,
    pass_inserts: int,
) -> int:
    """Make a plan true: starts take their nodes, reservations replace the old ones, parking is noted.

    complete: 0 = the pass goes on, 1 = it ends, 2 = it ends and has looked at every reservation. The arguments are the
    fields of a plan, which does not lie in the tables: an arena may be fresh when the plan is assumed.
    """
    t = tables(at)
    if t.meta[M_RUN_TOP] + starts.shape[0] > t.runs.shape[0]:
        return GROW_RUNS
    if t.meta[M_PIECE_TOP] + start_nodes.shape[0] > t.pieces.shape[0]:
        return GROW_PIECES
    wake = t.meta[M_WAKE]
    dirty = t.meta[M_DIRTY]
    if replans:
        free_replaced(t, reservations, reserved, pass_wake + 1)
        _forget_reservations(t)
    for k in range(starts.shape[0]):
        start = starts[k]
        slot = start["entry"]
        t.meta[M_FAULT] = k
        if t.entries[slot, E_JOB] != start["job"] or t.entries[slot, E_FIRST] != start["task"]:
            return BAD_UNKNOWN
        first = start["row_offset"]
        open_from_entry(at, slot, now, now, start_nodes, first, first + start["row_count"])
    settle_counts(t)
    if replans:
        _keep_reservations(t, reservations, reserved, now)
        dirty = 1 if wake > pass_wake else 0
    t.meta[M_DIRTY] = dirty
    t.meta[M_WAKE] = wake
    if (complete > 0 or replans) and wake <= pass_wake:
        t.meta[M_DROPS] = 0  # reservations that it made to count no more say so themselves now
    t.meta[M_PASS_STARTS] = starts.shape[0] + (t.meta[M_PASS_STARTS] if resumed else 0)
    if complete > 0:
        t.meta[M_PARKED_WAKE] = pass_wake
        t.meta[M_PARKED_INSERTS] = pass_inserts
    if complete == 2:
        pass_over(t, pass_wake)
    t.meta[M_CLOCK] = max(t.meta[M_CLOCK], now)
    t.meta[M_VERSION] += 1
    return OK


@inner
def _forget_reservations(t: Tables) -> None:
    """Forget all reservations: a plan's replace them."""
    for k in range(t.meta[M_RESERVATIONS]):
        slot = t.reservations[k, V_ENTRY]
        if slot >= 0 and t.entries[slot, E_RESERVED] == k:
            t.entries[slot, E_RESERVED] = -1
    for i in range(t.meta[M_RESERVED]):
        reserve_node(t, t.reserved[i, Q_NODE], -1)
    t.meta[M_RESERVATIONS] = 0
    t.meta[M_RESERVED] = 0


@inner
def _keep_reservations(t: Tables, reservations: Table, reserved: Table, now: int) -> None:
    """Keep a plan's reservations, and which of them ranks last."""
    t.meta[M_LAST_KEY] = -INF
    for k in range(reservations.shape[0]):
        copy_record(t.reservations, k, reservations, k)
        key = reservations[k, V_KEY]
        job = reservations[k, V_JOB]
        if key > t.meta[M_LAST_KEY] or (key == t.meta[M_LAST_KEY] and job > t.meta[M_LAST_JOB]):
            t.meta[M_LAST_KEY] = key
            t.meta[M_LAST_JOB] = job
        slot = reservations[k, V_ENTRY]
        if slot >= 0 and (k == 0 or reservations[k - 1, V_ENTRY] != slot):  # of several groups it knows the first
            t.entries[slot, E_RESERVED] = k
            if t.entries[slot, E_BLOCKED_AT] < 0:
                t.entries[slot, E_BLOCKED_AT] = now
    for i in range(reserved.shape[0]):
        copy_record(t.reserved, i, reserved, i)
        if t.meta[M_BACKFILL] != BACKFILL_CONSERVATIVE:
            reserve_node(t, reserved[i, Q_NODE], i)
    t.meta[M_RESERVED] = reserved.shape[0]
    t.meta[M_RESERVATIONS] = reservations.shape[0]


@kernel
def note_parked(at: Any, now: int, pass_wake: int, pass_inserts: int, complete: int) -> None:
    """A complete pass that changes nothing else: what it looked at stays parked until something wakes it.

    complete: as in `assume`.
    """
    t = tables(at)
    t.meta[M_PARKED_WAKE] = pass_wake
    t.meta[M_PARKED_INSERTS] = pass_inserts
    if t.meta[M_WAKE] <= pass_wake:
        t.meta[M_DROPS] = 0
    if complete == 2:
        pass_over(t, pass_wake)
    t.meta[M_PASS_STARTS] = 0
    t.meta[M_CLOCK] = max(t.meta[M_CLOCK], now)
    t.meta[M_VERSION] += 1


@inner
def _unmark(t: Tables, gone: Any, count: int) -> None:
    for k in range(count):
        run = find_two(t.run_index, t.runs, R_JOB, gone[k]["job"], gone[k]["task"])
        t.runs[run, R_ATTEMPT] = -t.runs[run, R_ATTEMPT]


@inner
def _mark_all(t: Tables, gone: Any) -> int:
    """Check that each row names another running attempt; marked by a negative attempt number."""
    for k in range(gone.shape[0]):
        run = find_two(t.run_index, t.runs, R_JOB, gone[k]["job"], gone[k]["task"])
        if run < 0 or t.runs[run, R_ATTEMPT] != gone[k]["attempt"] or t.runs[run, R_STATE] == RUN_CLAIM:
            _unmark(t, gone, k)
            t.meta[M_FAULT] = k
            return BAD_UNKNOWN
        t.runs[run, R_ATTEMPT] = -t.runs[run, R_ATTEMPT]
    return OK


@inner
def _wait_again(t: Tables, run: int, attempt: int, eligible: int, held: int) -> None:
    """Let the task of a run that is about to be closed wait as that attempt."""
    slot = take_entry(t)
    t.entries[slot, E_JOB] = t.runs[run, R_JOB]
    t.entries[slot, E_FIRST] = t.runs[run, R_TASK]
    t.entries[slot, E_TASKS] = 1
    t.entries[slot, E_ATTEMPT] = attempt
    t.entries[slot, E_BUCKET] = t.runs[run, R_BUCKET]
    t.entries[slot, E_PRIORITY] = t.runs[run, R_PRIORITY]
    t.entries[slot, E_SUBMIT] = t.runs[run, R_SUBMIT]
    t.entries[slot, E_ELIGIBLE] = eligible
    t.entries[slot, E_HELD] = held
    t.entries[slot, E_WALL] = t.runs[run, R_WALL]
    t.entries[slot, E_PLANNED] = t.runs[run, R_PLANNED]
    t.entries[slot, E_KEY] = t.runs[run, R_KEY]
    t.entries[slot, E_DEADLINE] = t.runs[run, R_DEADLINE]
    link_new(t, slot)
    settle(t, slot)


@kernel
def end(at: Any, gone: Any) -> int:
    """End attempts (dtype END); with requeue the task waits again as the next attempt."""
    t = tables(at)
    if t.meta[M_ENTRY_TOP] + gone.shape[0] > t.entries.shape[0]:
        return GROW_ENTRIES
    outcome = _mark_all(t, gone)
    if outcome != OK:
        return outcome
    for k in range(gone.shape[0]):
        row = gone[k]
        run = find_two(t.run_index, t.runs, R_JOB, row["job"], row["task"])
        if row["requeue"] != 0:
            eligible = max(min(row["eligible_ms"], INF), t.runs[run, R_SUBMIT])
            _wait_again(t, run, row["attempt"] + 1, eligible, row["held"])
        close_run(at, run, row["ended_ms"] if row["ended_ms"] > 0 else t.meta[M_CLOCK])
    t.meta[M_VERSION] += 1
    return OK


@inner
def _back_in_line(t: Tables, run: int, attempt: int) -> bool:
    """Let the entry that this task was taken from begin with it again, if it is still there and alike."""
    slot = find_one(t.job_index, t.entries, E_JOB, t.runs[run, R_JOB])
    tried = 0
    while leads_on(t, slot, tried, t.entries.shape[0]):
        tried += 1
        if (
            t.entries[slot, E_FIRST] == t.runs[run, R_TASK] + 1
            and t.entries[slot, E_WHERE] == WHERE_BUCKET
            and t.entries[slot, E_ATTEMPT] == attempt
            and t.entries[slot, E_BUCKET] == t.runs[run, R_BUCKET]
            and t.entries[slot, E_KEY] == t.runs[run, R_KEY]
            and t.entries[slot, E_WALL] == t.runs[run, R_WALL]
            and t.entries[slot, E_PLANNED] == t.runs[run, R_PLANNED]
        ):
            t.entries[slot, E_FIRST] -= 1
            t.entries[slot, E_TASKS] += 1
            t.rank[slot, T_TIE] -= 1
            if t.meta[M_BY_TIME] == 1:
                t.by_time[slot, T_TIE] -= 1
            t.meta[M_PENDING] += 1
            return True
        slot = t.entries[slot, E_SIBLING]
    return False


@inner
def put_back(t: Tables, run: int, attempt: int) -> None:
    """The task of a run that is about to be closed waits again at its old place."""
    if _back_in_line(t, run, attempt):
        t.meta[M_INSERTS] += 1
        return
    sibling = find_one(t.job_index, t.entries, E_JOB, t.runs[run, R_JOB])
    held = t.entries[sibling, E_HELD] if sibling >= 0 else 0
    _wait_again(t, run, attempt, t.runs[run, R_ELIGIBLE], held)


@kernel
def refuse(at: Any, gone: Any, new_attempt: int) -> int:
    """Undo assumed starts in reverse order: each task waits again at its old place."""
    t = tables(at)
    if t.meta[M_ENTRY_TOP] + gone.shape[0] > t.entries.shape[0]:
        return GROW_ENTRIES
    outcome = _mark_all(t, gone)
    if outcome != OK:
        return outcome
    for k in range(gone.shape[0] - 1, -1, -1):
        row = gone[k]
        run = find_two(t.run_index, t.runs, R_JOB, row["job"], row["task"])
        put_back(t, run, row["attempt"] + new_attempt)
        close_run(at, run, t.runs[run, R_START])
    mark_dirty(t)
    t.meta[M_VERSION] += 1
    return OK


@kernel
def adopt(at: Any, adopted: Any, adopted_rows: Ints, class_ids: Ints, owner_ids: Ints, keys: Ints) -> int:
    """Enter attempts that run already (dtype ADOPT); `adopted_rows` are row ids. Amounts may go below zero."""
    t = tables(at)
    count = adopted.shape[0]
    if t.meta[M_RUN_TOP] + count > t.runs.shape[0]:
        return GROW_RUNS
    if t.meta[M_PIECE_TOP] + adopted_rows.shape[0] > t.pieces.shape[0]:
        return GROW_PIECES
    if t.meta[M_BUCKET_TOP] + min(count, class_ids.shape[0] * owner_ids.shape[0]) > t.buckets.shape[0]:
        return GROW_BUCKETS
    for k in range(count):
        row = adopted[k]
        t.meta[M_FAULT] = k
        if find_two(t.run_index, t.runs, R_JOB, row["job"], row["task"]) >= 0:
            return BAD_LIVE
        class_id = class_ids[row["class_index"]]
        if row["row_count"] != t.classes[class_id, C_NODES]:
            return BAD_NODES
        slot = find_one(t.job_index, t.entries, E_JOB, row["job"])
        tried = 0
        while leads_on(t, slot, tried, t.entries.shape[0]):
            tried += 1
            if 0 <= row["task"] - t.entries[slot, E_FIRST] < t.entries[slot, E_TASKS]:
                return BAD_LIVE
            slot = t.entries[slot, E_SIBLING]
    for k in range(count):
        row = adopted[k]
        bucket = bucket_of(t, class_ids[row["class_index"]], owner_ids[row["owner_index"]])
        wall = min(row["walltime_ms"], INF)
        planned = min(row["planned_ms"], INF) if row["planned_ms"] >= 0 else wall
        submit = row["submit_ms"]
        deadline = row["deadline_ms"] if row["deadline_ms"] > 0 else INF
        if keys.shape[0] > 0:
            key = keys[k] + band_of(t, bucket)
        else:
            key = order_key(t, bucket, row["priority"], planned, submit, submit, deadline)
        run = _open_run(
            t,
            row["job"],
            row["task"],
            row["attempt"],
            bucket,
            row["priority"],
            row["submit_ms"],
            wall,
            planned,
            row["start_ms"],
            key,
            row["submit_ms"],
            row["row_count"],
            deadline,
            _charge(at, bucket, wall, planned, row["start_ms"]),
        )
        shape = t.classes[t.buckets[bucket, B_CLASS], C_SHAPE]
        last = -1
        for i in range(row["row_offset"], row["row_offset"] + row["row_count"]):
            last = _add_piece(t, run, last, adopted_rows[i])
            take_node(t, adopted_rows[i], shape)
        t.runs[run, R_PREEMPTED] = row["taken"]
        if row["state"] == RUN_GOING:
            send_run(t, run, row["due_ms"])
        elif row["state"] == RUN_SUSPENDED:
            suspend_run(t, run, row["due_ms"])
    mark_dirty(t)
    t.meta[M_VERSION] += 1
    return OK


@kernel
def retime(at: Any, slots: Ints, changed: Table) -> int:
    """New priority, walltime, planned time (columns of `changed`, KEEP = unchanged) of running attempts."""
    t = tables(at)
    for k in range(slots.shape[0]):
        run = slots[k]
        if changed[k, 0] != KEEP:
            t.runs[run, R_PRIORITY] = changed[k, 0]
        bucket = t.runs[run, R_BUCKET]
        if changed[k, 1] != KEEP:
            charge_since(t, bucket, t.runs[run, R_WALL], t.runs[run, R_START], -1)
            charge_since(t, bucket, min(changed[k, 1], INF), t.runs[run, R_START], 1)
            if t.runs[run, R_PLANNED] == t.runs[run, R_WALL]:
                t.runs[run, R_PLANNED] = min(changed[k, 1], INF)
            t.runs[run, R_WALL] = min(changed[k, 1], INF)
        if changed[k, 2] != KEEP:
            t.runs[run, R_PLANNED] = min(changed[k, 2], INF) if changed[k, 2] >= 0 else t.runs[run, R_WALL]
        if t.meta[M_ORDER] != ORDER_PLUGIN:
            t.runs[run, R_KEY] = order_key(
                t,
                bucket,
                t.runs[run, R_PRIORITY],
                t.runs[run, R_PLANNED],
                t.runs[run, R_SUBMIT],
                t.runs[run, R_ELIGIBLE],
                t.runs[run, R_DEADLINE],
            )
        shape = t.classes[t.buckets[bucket, B_CLASS], C_SHAPE]
        planned = within_booking(t, shape, t.runs[run, R_START], t.runs[run, R_PLANNED])
        end_ms = min(t.runs[run, R_START] + planned, INF)
        if t.runs[run, R_STATE] == RUN_SUSPENDED:
            end_ms = INF
        elif t.runs[run, R_STATE] == RUN_GOING:
            end_ms = min(end_ms, t.runs[run, R_DUE])
        move_end(t, run, end_ms)
    mark_dirty(t)
    t.meta[M_VERSION] += 1
    return OK
