"""Claims and what is preempted: running work leaves, is suspended or goes on; what it frees goes to the claim.

Pure. A claim is a run that has no attempt yet: its nodes are charged to it from the moment of the decision, so their
free amounts are negative until those who were asked to leave have left, and nothing else fits there. It starts when no
node of it lacks anything. Suspended work keeps its nodes and gives back its cpu only. O(runs) a look at claims, while
there are any.
"""

from __future__ import annotations

from typing import Any

from hal.core.kernels.nodes.compact_nodes import must_share
from hal.core.kernels.nodes.domains import level_within
from hal.core.kernels.nodes.rows import fits, settle_counts
from hal.core.kernels.preemption.searched import remember
from hal.core.kernels.rules.booked import booked_start
from hal.core.kernels.rules.ledgers import charge_ledgers, full_ledger
from hal.core.kernels.structures.arrays import Ints, Table
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    A_AT,
    A_ATTEMPT,
    A_FIRST,
    A_FOR_JOB,
    A_FOR_TASK,
    A_GRACE,
    A_JOB,
    A_MODE,
    A_NODES,
    A_OP,
    A_SLOT,
    A_TASK,
    B_CLASS,
    B_OFFSET,
    BAD_UNKNOWN,
    C_AFFINE,
    C_FOLLOWS,
    C_NEXT,
    C_SHAPE,
    E_ATTEMPT,
    E_FIRST,
    E_JOB,
    E_WHERE,
    GROW_ENTRIES,
    GROW_PIECES,
    GROW_RUNS,
    INF,
    M_AFFINE,
    M_CLAIMS,
    M_CLOCK,
    M_CPU,
    M_ENTRY_TOP,
    M_FAULT,
    M_GROUPS,
    M_NODES,
    M_PARTED,
    M_PATIENCE,
    M_PIECE_TOP,
    M_RESOURCES,
    M_RUN_TOP,
    M_SUSPENDED,
    M_VERSION,
    MAX_GROUPS,
    MODE_SUSPEND,
    N_STATE,
    NODE_UP,
    OK,
    OP_CANCEL,
    OP_CLAIM,
    OP_PREEMPT,
    OP_RESUME,
    OP_SEARCHED,
    OP_START,
    P_NEXT,
    P_NODE,
    R_ATTEMPT,
    R_BUCKET,
    R_DUE,
    R_FOR,
    R_JOB,
    R_KEY,
    R_NODES,
    R_PIECE,
    R_PLANNED,
    R_PREEMPTED,
    R_SINCE,
    R_START,
    R_STATE,
    R_TASK,
    R_WALL,
    RUN_CLAIM,
    RUN_ON,
    RUN_SUSPENDED,
    S_CSET,
    SEARCH_FREE,
    WHERE_ASIDE,
    WHERE_BUCKET,
)
from hal.core.kernels.structures.memory import Tables, tables
from hal.core.kernels.structures.slots import find_two
from hal.core.kernels.structures.sorting import sort_pairs
from hal.core.kernels.work.pending import follows, forget_reservation, mark_dirty
from hal.core.kernels.work.running import (
    close_run,
    move_end,
    open_from_entry,
    put_back,
    send_run,
    shift_cpu,
    suspend_run,
)

STARTS = INF
"""In the place of its rank: a claim that starts now."""
TARGET_STATES = (0, RUN_ON, 0, RUN_CLAIM, RUN_CLAIM, RUN_SUSPENDED, 0)
"""By operation: the state that its run must be in."""


@inner
def _shape_of(t: Tables, run: int) -> int:
    return int(t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE])


@inner
def _take(t: Tables, run: int, mode: int, grace: int, for_job: int, now: int) -> None:
    """A running attempt is told to leave, or is suspended at once."""
    t.runs[run, R_FOR] = for_job
    if mode == MODE_SUSPEND:
        t.runs[run, R_PREEMPTED] += 1
        suspend_run(t, run, now)
    else:
        send_run(t, run, now + grace)


@inner
def _resume(t: Tables, run: int, now: int) -> None:
    """A suspended attempt goes on: its time stood still."""
    shift_cpu(t, run, -1)
    t.meta[M_SUSPENDED] -= 1
    t.runs[run, R_STATE] = RUN_ON
    t.runs[run, R_START] += now - t.runs[run, R_SINCE]
    t.runs[run, R_FOR] = -1
    move_end(t, run, min(t.runs[run, R_START] + t.runs[run, R_PLANNED], INF))


@inner
def _fall(at: Any, run: int) -> None:
    """A claim is given up: its nodes are others' too again, its task waits at its old place."""
    t = tables(at)
    t.meta[M_CLAIMS] -= 1
    t.runs[run, R_STATE] = RUN_ON
    put_back(t, run, t.runs[run, R_ATTEMPT])
    close_run(at, run, t.runs[run, R_START])
    mark_dirty(t)


@inner
def _is_target(t: Tables, move: Ints) -> bool:
    """Whether what a move names is what it was when the move was planned."""
    op = move[A_OP]
    slot = move[A_SLOT]
    if op == OP_SEARCHED:
        return True
    if op == OP_CLAIM:
        return bool(
            t.entries[slot, E_WHERE] == (WHERE_ASIDE if follows(t, slot) else WHERE_BUCKET)
            and t.entries[slot, E_JOB] == move[A_JOB]
            and t.entries[slot, E_FIRST] == move[A_TASK]
            and t.entries[slot, E_ATTEMPT] == move[A_ATTEMPT]
        )
    return bool(
        t.runs[slot, R_NODES] > 0
        and t.runs[slot, R_JOB] == move[A_JOB]
        and t.runs[slot, R_TASK] == move[A_TASK]
        and t.runs[slot, R_ATTEMPT] == move[A_ATTEMPT]
        and t.runs[slot, R_STATE] == TARGET_STATES[op]
    )


@kernel
def apply_moves(at: Any, moves: Table, rows: Ints, now: int) -> int:
    """Make the moves of a plan true, in their order; `nodes` are the plan's. Returns OK, GROW_* or BAD_UNKNOWN."""
    t = tables(at)
    count = moves.shape[0]
    if t.meta[M_ENTRY_TOP] + count > t.entries.shape[0]:
        return GROW_ENTRIES
    if t.meta[M_RUN_TOP] + count > t.runs.shape[0]:
        return GROW_RUNS
    if t.meta[M_PIECE_TOP] + rows.shape[0] > t.pieces.shape[0]:
        return GROW_PIECES
    for k in range(count):
        t.meta[M_FAULT] = k
        if not _is_target(t, moves[k]):
            return BAD_UNKNOWN
    for k in range(count):
        op = moves[k, A_OP]
        slot = moves[k, A_SLOT]
        if op == OP_PREEMPT:
            _take(t, slot, moves[k, A_MODE], moves[k, A_GRACE], moves[k, A_FOR_JOB], now)
        elif op == OP_CLAIM:
            forget_reservation(t, slot)
            first = moves[k, A_FIRST]
            run = open_from_entry(at, slot, moves[k, A_AT], now, rows, first, first + moves[k, A_NODES])
            settle_counts(t)
            t.runs[run, R_STATE] = RUN_CLAIM
            t.runs[run, R_DUE] = moves[k, A_AT]
            t.meta[M_CLAIMS] += 1
        elif op == OP_START:
            t.meta[M_CLAIMS] -= 1
            t.runs[slot, R_STATE] = RUN_ON
            if t.meta[M_AFFINE] != 0 and t.classes[t.buckets[t.runs[slot, R_BUCKET], B_CLASS], C_AFFINE] != 0:
                t.meta[M_PARTED] = 1  # only now does it run there
            t.runs[slot, R_START] = now
            move_end(t, slot, min(now + t.runs[slot, R_PLANNED], INF))
        elif op == OP_CANCEL:
            _fall(at, slot)
        elif op == OP_RESUME:
            _resume(t, slot, now)
        else:
            remember(t, moves[k, A_JOB], moves[k, A_TASK], now, moves[k, A_AT])
    t.meta[M_CLOCK] = max(t.meta[M_CLOCK], now)
    t.meta[M_VERSION] += 1
    return OK


@kernel
def cancel_claims(at: Any, jobs: Ints, everyone: bool) -> int:
    """Give up the claims of these jobs, or of all: somebody has changed them. Returns OK or GROW_ENTRIES."""
    t = tables(at)
    if t.meta[M_ENTRY_TOP] + t.meta[M_CLAIMS] > t.entries.shape[0]:
        return GROW_ENTRIES
    for run in range(t.meta[M_RUN_TOP]):
        if t.meta[M_CLAIMS] == 0:
            break
        if t.runs[run, R_NODES] > 0 and t.runs[run, R_STATE] == RUN_CLAIM:
            named = everyone
            for k in range(jobs.shape[0]):
                named = named or jobs[k] == t.runs[run, R_JOB]
            if named:
                _fall(at, run)
    return OK


# --- claims whose time has come --------------------------------------------------------------------------------------


@inner
def _add(moves: Table, count: int, op: int, t: Tables, run: int) -> None:
    for column in range(moves.shape[1]):
        moves[count, column] = 0
    moves[count, A_OP] = op
    moves[count, A_SLOT] = run
    moves[count, A_JOB] = t.runs[run, R_JOB]
    moves[count, A_TASK] = t.runs[run, R_TASK]
    moves[count, A_ATTEMPT] = t.runs[run, R_ATTEMPT]
    moves[count, A_FOR_JOB] = -1
    moves[count, A_FOR_TASK] = -1


@inner
def _list_runs(t: Tables, state: int, keys: Ints, slots: Ints) -> int:
    """Runs in a state, those that rank first come first."""
    count = 0
    for run in range(t.meta[M_RUN_TOP]):
        if t.runs[run, R_NODES] > 0 and t.runs[run, R_STATE] == state:
            keys[count] = t.runs[run, R_KEY] + t.buckets[t.runs[run, R_BUCKET], B_OFFSET]
            slots[count] = run
            count += 1
    sort_pairs(keys, slots, count)
    return count


@inner
def _is_open(t: Tables, run: int, shape: int, node: int) -> bool:
    """Whether an attempt may be on a node where it is charged, as far as one can ask: where affinity matters it parts
    its like from the node itself, so it is asked whether that is up."""
    if t.meta[M_AFFINE] != 0 and t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_AFFINE] == 1:
        return bool(t.rows[node, N_STATE] == NODE_UP)
    return bool(t.open_now[t.shapes[shape, S_CSET], node] != 0)


@inner
def _has_groups(t: Tables, run: int) -> bool:
    """Whether a claim is of the first group of a job that has several: those of the others stand or fall with it."""
    return bool(t.meta[M_GROUPS] != 0 and t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_NEXT] != 0)


@inner
def _is_of_another(t: Tables, run: int) -> bool:
    """Whether a claim is that of another group than the first of its job, which is looked at instead."""
    return bool(t.meta[M_GROUPS] != 0 and t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_FOLLOWS] != 0)


@inner
def _next_claim(t: Tables, run: int) -> int:
    """The claim of the next group of a job; -1 behind that of the last one."""
    if t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_NEXT] == 0:
        return -1
    return find_two(t.run_index, t.runs, R_JOB, t.runs[run, R_JOB], t.runs[run, R_TASK] + 1)


@inner
def _are_ready(t: Tables, run: int, now: int) -> int:
    """As `_is_ready`, of all groups of a job, of whose first one this is the claim."""
    ready = 1
    level = level_within(t, _shape_of(t, run))
    domain = -1
    for _ in range(MAX_GROUPS):
        ready = min(ready, _is_ready(t, run, _shape_of(t, run), now))
        piece = t.runs[run, R_PIECE]
        walked = 0
        while leads_on(t, piece, walked, t.pieces.shape[0]) and level >= 0:
            walked += 1
            here = t.domain_of[level, t.pieces[piece, P_NODE]]
            if domain >= 0 and here != domain:
                return -1
            domain = here
            piece = t.pieces[piece, P_NEXT]
        run = _next_claim(t, run)
        if run < 0:
            break
    return ready


@inner
def _is_ready(t: Tables, run: int, shape: int, now: int) -> int:
    """1: all nodes of a claim are free, by the amounts in `search`; 0: not yet; -1: a node can never be, a booking is
    too near, or a node has left the domain in which all must be. Whether terms of affinity hold is asked before."""
    resources = t.meta[M_RESOURCES]
    ready = 1
    level = level_within(t, shape) if must_share(t, shape, t.runs[run, R_NODES]) else -1
    domain = -1
    piece = t.runs[run, R_PIECE]
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        node = t.pieces[piece, P_NODE]
        if not _is_open(t, run, shape, node) or not fits(t, t.capacity, node, shape, resources):
            return -1
        if booked_start(t, node, shape, now, t.runs[run, R_WALL]) != now:
            return -1
        if level >= 0:
            if domain >= 0 and t.domain_of[level, node] != domain:
                return -1
            domain = t.domain_of[level, node]
        for r in range(resources):
            if t.search[node, SEARCH_FREE + r] < t.request[r, shape]:
                ready = 0
        piece = t.pieces[piece, P_NEXT]
    return ready


@inner
def _hold(t: Tables, run: int, shape: int, sign: int) -> None:
    piece = t.runs[run, R_PIECE]
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        for r in range(t.meta[M_RESOURCES]):
            t.search[t.pieces[piece, P_NODE], SEARCH_FREE + r] += sign * t.request[r, shape]
        piece = t.pieces[piece, P_NEXT]


@inner
def _write_nodes(t: Tables, run: int, rows: Ints, used: int) -> int:
    """Write the nodes of a claim from `used` on; how many are written then."""
    piece = t.runs[run, R_PIECE]
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        rows[used] = t.pieces[piece, P_NODE]
        used += 1
        piece = t.pieces[piece, P_NEXT]
    return used


@inner
def _note_start(order: Table, first: int, claims: int, run: int) -> None:
    """Note that a claim starts: that at `first`, or that of another group of its job, which may be listed anywhere."""
    if order[1, first] == run:
        order[0, first] = STARTS
        return
    for k in range(claims):
        if order[1, k] == run:
            order[0, k] = STARTS


@kernel
def ready_claims(at: Any, now: int, order: Table, moves: Table, rows: Ints) -> tuple[int, int, int]:
    """Claims that start or fall now: (moves, nodes, wake_ms). `order` is scratch, [2, claims]; moves [claims, 13].

    Those of the groups of one job start or fall together, one after the other in the order of the groups.
    """
    t = tables(at)
    for node in range(t.meta[M_NODES]):
        for r in range(t.meta[M_RESOURCES]):
            t.search[node, SEARCH_FREE + r] = t.free[node, r]
    claims = _list_runs(t, RUN_CLAIM, order[0], order[1])
    for k in range(claims):
        _hold(t, order[1, k], _shape_of(t, order[1, k]), 1)
        charge_ledgers(t, t.runs[order[1, k], R_BUCKET], t.runs[order[1, k], R_WALL], -1)
    count = 0
    used = 0
    wake = INF
    for k in range(claims):
        run = order[1, k]
        if _is_of_another(t, run):
            continue
        several = _has_groups(t, run)
        ready = _are_ready(t, run, now) if several else _is_ready(t, run, _shape_of(t, run), now)
        if ready == 1 and full_ledger(t, t.runs[run, R_BUCKET], t.runs[run, R_WALL]) >= 0:
            ready = 0  # who has to give back what it borrowed has not left
        falls = ready < 0 or now > t.runs[run, R_DUE] + t.meta[M_PATIENCE]
        if ready < 1 and not falls:
            wake = min(wake, t.runs[run, R_DUE] + t.meta[M_PATIENCE] + 1)
            continue
        for _ in range(MAX_GROUPS):
            _add(moves, count, OP_START if ready == 1 else OP_CANCEL, t, run)
            if ready == 1:
                moves[count, A_FIRST] = used
                moves[count, A_NODES] = t.runs[run, R_NODES]
                used = _write_nodes(t, run, rows, used)
                _hold(t, run, _shape_of(t, run), -1)
                charge_ledgers(t, t.runs[run, R_BUCKET], t.runs[run, R_WALL], 1)
                _note_start(order, k, claims, run)
            count += 1
            run = _next_claim(t, run) if several else -1
            if run < 0:
                break
    for k in range(claims):
        if order[0, k] != STARTS:
            charge_ledgers(t, t.runs[order[1, k], R_BUCKET], t.runs[order[1, k], R_WALL], 1)
    return count, used, wake


@kernel
def resumable(at: Any, now: int, order: Table, moves: Table) -> int:
    """Suspended attempts whose cpu is free again and that meet no booking, best rank first; how many.

    `order` [2, suspended] is scratch.
    """
    t = tables(at)
    cpu = t.meta[M_CPU]
    if cpu < 0:
        return 0
    suspended = _list_runs(t, RUN_SUSPENDED, order[0], order[1])
    for node in range(t.meta[M_NODES]):
        t.search[node, SEARCH_FREE] = t.free[node, cpu]
    count = 0
    for k in range(suspended):
        run = order[1, k]
        shape = _shape_of(t, run)
        amount = t.request[cpu, shape]
        left = min(t.runs[run, R_WALL] - (t.runs[run, R_SINCE] - t.runs[run, R_START]), INF)
        there = True
        piece = t.runs[run, R_PIECE]
        walked = 0
        while leads_on(t, piece, walked, t.pieces.shape[0]):
            walked += 1
            node = t.pieces[piece, P_NODE]
            there = there and _is_open(t, run, shape, node) and t.search[node, SEARCH_FREE] >= amount
            there = there and booked_start(t, node, shape, now, left) == now
            piece = t.pieces[piece, P_NEXT]
        if there:
            piece = t.runs[run, R_PIECE]
            walked = 0
            while leads_on(t, piece, walked, t.pieces.shape[0]):
                walked += 1
                t.search[t.pieces[piece, P_NODE], SEARCH_FREE] -= amount
                piece = t.pieces[piece, P_NEXT]
            _add(moves, count, OP_RESUME, t, run)
            count += 1
    return count
