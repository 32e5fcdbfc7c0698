"""What every pass does: begin a slice, write starts, verdicts and reservations, give back what starts took, end.

A slice is described by one record (`pass_record`): what was asked of it, where the pass is, what it gave. Starts, their
nodes and verdicts are written where the plan will find them; reservations are kept in `planned`, `planned_nodes` until
the slice ends, and copied only where they replace those of the state. Pure but for these and scratch.
"""

from __future__ import annotations

from hal.core.kernels.nodes.wants import take_licences
from hal.core.kernels.rules.ledgers import charge_ledgers
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_CLASS,
    C_AFFINE,
    C_SHAPE,
    COUNT_RESERVATIONS,
    COUNT_RESERVED,
    E_ATTEMPT,
    E_BUCKET,
    E_FIRST,
    E_JOB,
    E_WALL,
    LOWEST,
    M_ACTIVE,
    M_AFFINE,
    M_BOOKING_EDGE,
    M_EPOCH,
    M_INSERTS,
    M_NEXT_EDGE,
    M_PARKED_INSERTS,
    M_PARKED_WAKE,
    M_RESERVATIONS,
    M_RESERVED,
    M_RESOURCES,
    M_TIMER_ROOT,
    M_VERSION,
    MAX_VERDICTS,
    PASS_ATTENDS,
    PASS_BUDGET,
    PASS_CHANGES,
    PASS_EPOCH,
    PASS_FIRST_NODE,
    PASS_FIRST_RESERVATION,
    PASS_FIRST_RESERVED,
    PASS_FIRST_START,
    PASS_FIRST_VERDICT,
    PASS_HEAP,
    PASS_INSERTS,
    PASS_JOB,
    PASS_KEY,
    PASS_LANE,
    PASS_LAST_NODE,
    PASS_LAST_RESERVATION,
    PASS_LAST_RESERVED,
    PASS_LAST_START,
    PASS_LAST_VERDICT,
    PASS_MOST_STARTS,
    PASS_NODES,
    PASS_NOW,
    PASS_REPLANS,
    PASS_RESERVATIONS,
    PASS_RESERVED,
    PASS_SPREAD_JOB,
    PASS_STARTS,
    PASS_STOP,
    PASS_TASK,
    PASS_VERDICTS,
    PASS_VERSION,
    PASS_WORK,
    START_ATTEMPT,
    START_ENTRY,
    START_JOB,
    START_NODE,
    START_NODES,
    START_TASK,
    STOP_NONE,
    T_KEY,
    VERDICT_JOB,
    VERDICT_REASON,
    VERDICT_SHORT,
    VERDICT_TASK,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.slots import copy_record
from hal.core.kernels.structures.treap import tree_first


@inner
def begin_slice(t: Tables, now: int, budget: int, most_starts: int, resumed: bool, attends: bool) -> bool:
    """Begin a slice where the one before left off. Returns whether the tables of outputs have room for its plan.

    resumed: the cursor is in the record; else a new pass begins at the top. attends: there is suspended work that the
    pass has not looked at yet.
    """
    p = t.pass_record
    p[PASS_FIRST_START] += p[PASS_STARTS]
    p[PASS_FIRST_NODE] += p[PASS_NODES]
    p[PASS_FIRST_VERDICT] += p[PASS_VERDICTS]
    if p[PASS_REPLANS] != 0:
        p[PASS_FIRST_RESERVATION] += p[PASS_RESERVATIONS]
        p[PASS_FIRST_RESERVED] += p[PASS_RESERVED]
    p[PASS_STARTS] = 0
    p[PASS_NODES] = 0
    p[PASS_VERDICTS] = 0
    p[PASS_REPLANS] = 0
    p[PASS_STOP] = STOP_NONE
    p[PASS_WORK] = 0
    p[PASS_NOW] = now
    p[PASS_BUDGET] = budget
    p[PASS_MOST_STARTS] = most_starts
    p[PASS_ATTENDS] = attends
    p[PASS_HEAP] = 0
    p[PASS_SPREAD_JOB] = 0
    if not resumed:
        p[PASS_LANE] = 0
        p[PASS_KEY] = LOWEST
        p[PASS_JOB] = -1
        p[PASS_TASK] = -1
        p[PASS_EPOCH] = t.meta[M_EPOCH]
        p[PASS_INSERTS] = t.meta[M_INSERTS]
    return bool(
        p[PASS_FIRST_START] <= p[PASS_LAST_START]
        and p[PASS_FIRST_NODE] <= p[PASS_LAST_NODE]
        and p[PASS_FIRST_VERDICT] <= p[PASS_LAST_VERDICT]
        and p[PASS_FIRST_RESERVATION] <= p[PASS_LAST_RESERVATION]
        and p[PASS_FIRST_RESERVED] <= p[PASS_LAST_RESERVED]
    )


@inner
def abandon_slice(t: Tables) -> None:
    """Nothing of the slice counts: it is planned again with larger tables."""
    t.pass_record[PASS_STARTS] = 0
    t.pass_record[PASS_NODES] = 0
    t.pass_record[PASS_VERDICTS] = 0
    t.pass_record[PASS_REPLANS] = 0


@inner
def room_for_start(t: Tables, nodes: int) -> bool:
    """Whether the slice may start one more attempt, and has room to write it down."""
    p = t.pass_record
    return bool(
        p[PASS_STARTS] < p[PASS_MOST_STARTS]
        and p[PASS_FIRST_START] + p[PASS_STARTS] < t.starts.shape[0]
        and p[PASS_FIRST_NODE] + p[PASS_NODES] + nodes <= t.start_nodes.shape[0]
    )


@inner
def write_start(t: Tables, entry: int, task: int, nodes: int) -> None:
    """Write down that the next task of an entry starts, on the nodes that were chosen for it."""
    p = t.pass_record
    start = p[PASS_FIRST_START] + p[PASS_STARTS]
    t.starts[start, START_JOB] = t.entries[entry, E_JOB]
    t.starts[start, START_TASK] = t.entries[entry, E_FIRST] + task
    t.starts[start, START_ATTEMPT] = t.entries[entry, E_ATTEMPT]
    t.starts[start, START_NODE] = p[PASS_NODES]
    t.starts[start, START_NODES] = nodes
    t.starts[start, START_ENTRY] = entry
    p[PASS_STARTS] += 1
    p[PASS_NODES] += nodes


@inner
def is_affine(t: Tables, bucket: int) -> bool:
    """Whether a start of this bucket decides where others may start. Then the slice ends with it: what it parts from
    which nodes is worked out when it is assumed, before anybody else starts."""
    return bool(t.meta[M_AFFINE] != 0 and t.classes[t.buckets[bucket, B_CLASS], C_AFFINE] != 0)


@inner
def write_verdict(t: Tables, entry: int, task: int, reason: int, short: int) -> None:
    """Write down why a task does not start; `short`: how many nodes lack. Beyond MAX_VERDICTS nothing is written."""
    p = t.pass_record
    if p[PASS_VERDICTS] < MAX_VERDICTS:
        verdict = p[PASS_FIRST_VERDICT] + p[PASS_VERDICTS]
        t.verdicts[verdict, VERDICT_JOB] = t.entries[entry, E_JOB]
        t.verdicts[verdict, VERDICT_TASK] = t.entries[entry, E_FIRST] + task
        t.verdicts[verdict, VERDICT_REASON] = reason
        t.verdicts[verdict, VERDICT_SHORT] = short
        p[PASS_VERDICTS] += 1


@inner
def copy_reservations(t: Tables) -> None:
    """Begin with the reservations of the state."""
    t.counts[COUNT_RESERVATIONS] = t.meta[M_RESERVATIONS]
    t.counts[COUNT_RESERVED] = t.meta[M_RESERVED]
    for k in range(t.meta[M_RESERVATIONS]):
        copy_record(t.planned, k, t.reservations, k)
    for i in range(t.meta[M_RESERVED]):
        copy_record(t.planned_nodes, i, t.reserved, i)


@inner
def give_back_starts(t: Tables) -> None:
    """Give back what the slice's starts took of nodes, ledgers and licences: the state is as it was."""
    p = t.pass_record
    for k in range(p[PASS_FIRST_START], p[PASS_FIRST_START] + p[PASS_STARTS]):
        entry = t.starts[k, START_ENTRY]
        bucket = t.entries[entry, E_BUCKET]
        shape = t.classes[t.buckets[bucket, B_CLASS], C_SHAPE]
        charge_ledgers(t, bucket, t.entries[entry, E_WALL], -1)
        take_licences(t, shape, -1)
        first = p[PASS_FIRST_NODE] + t.starts[k, START_NODE]
        for i in range(first, first + t.starts[k, START_NODES]):
            for r in range(t.meta[M_RESOURCES]):
                t.free[t.start_nodes[i], r] += t.request[r, shape]


@inner
def next_timer(t: Tables) -> int:
    """When the next waiting entry becomes eligible, or hours, periods or bookings change; INF when nothing does."""
    edge = min(t.meta[M_NEXT_EDGE], t.meta[M_BOOKING_EDGE])
    first = tree_first(t.rank, t.meta[M_TIMER_ROOT])
    return int(min(t.rank[first, T_KEY], edge) if first >= 0 else edge)


@inner
def end_slice(t: Tables, changes: bool) -> None:
    """Complete the record; `changes` says whether starts or reservations change the state. Copies reservations."""
    p = t.pass_record
    if p[PASS_STOP] == STOP_NONE and t.meta[M_ACTIVE] > 0:
        changes = changes or t.meta[M_PARKED_WAKE] != p[PASS_EPOCH] or t.meta[M_PARKED_INSERTS] != p[PASS_INSERTS]
    p[PASS_CHANGES] = changes
    p[PASS_VERSION] = t.meta[M_VERSION]
    p[PASS_RESERVATIONS] = t.counts[COUNT_RESERVATIONS]
    p[PASS_RESERVED] = t.counts[COUNT_RESERVED]
    if p[PASS_REPLANS] != 0:
        for k in range(t.counts[COUNT_RESERVATIONS]):
            copy_record(t.plan_reservations, p[PASS_FIRST_RESERVATION] + k, t.planned, k)
        for i in range(t.counts[COUNT_RESERVED]):
            copy_record(t.plan_nodes, p[PASS_FIRST_RESERVED] + i, t.planned_nodes, i)
