"""Conservative backfill's reservations while a slice plans: who ranks before whom, which count, which are let go.

Pure but for scratch. A reservation that does not count (V_HELD = 0) has its turn to be planned again still ahead. Nodes
that a reservation leaves are listed (SCRATCH_LOCAL): there others may find an earlier start.
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.nodes.reach import competes
from hal.core.kernels.nodes.touching import make_stale
from hal.core.kernels.rules.licences import waits_for_late
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    C_NODES,
    C_SHAPE,
    COUNT_FREED,
    COUNT_RESERVATIONS,
    COUNT_RESERVED,
    E_BLOCKED_AT,
    E_BUCKET,
    INF,
    KIND_NEVER,
    KIND_RESERVED,
    M_CLAIM_AFTER,
    M_DROPS,
    M_GROUPS,
    M_MAX_RESERVATIONS,
    N_FREED,
    N_LATE,
    N_STAMP,
    PASS_JOB,
    PASS_KEY,
    PASS_NOW,
    PASS_REPLANS,
    PASS_TASK,
    PASS_VACATED,
    Q_NODE,
    Q_RESERVATION,
    S_CLOSED,
    SCRATCH_LOCAL,
    TICK,
    V_CLASS,
    V_ENTRY,
    V_FIRST,
    V_HELD,
    V_JOB,
    V_KEY,
    V_KIND,
    V_NODES,
    V_START,
    V_TASK,
    X_JOB,
    X_KEY,
    X_SHAPE,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.slots import copy_record
from hal.core.kernels.timelines.chains import let_go

HURT: Final = 2
"""In V_HELD: it cannot be kept."""


@inner
def ranks_before(t: Tables, reservation: int, key: int, job: int, task: int) -> bool:
    """Whether a reservation is of a task that ranks before (key, job, task)."""
    if t.planned[reservation, V_KEY] != key:
        return bool(t.planned[reservation, V_KEY] < key)
    if t.planned[reservation, V_JOB] != job:
        return bool(t.planned[reservation, V_JOB] < job)
    return bool(t.planned[reservation, V_TASK] < task)


@inner
def is_passed(t: Tables, reservation: int) -> bool:
    """Whether the pass has come by the job of a reservation already: this very pass made it."""
    p = t.pass_record
    return ranks_before(t, reservation, p[PASS_KEY], p[PASS_JOB], p[PASS_TASK])


@inner
def forget_overtaken(t: Tables) -> bool:
    """Before chains are linked: reservations behind better work that competes with them count no more.

    Those that this very pass made stay. Returns whether there was one.
    """
    some = False
    for k in range(t.counts[COUNT_RESERVATIONS]):
        if t.planned[k, V_ENTRY] < 0 or t.planned[k, V_HELD] == 0:
            continue
        if is_passed(t, k):
            continue
        shape = t.classes[t.planned[k, V_CLASS], C_SHAPE]
        for d in range(t.meta[M_DROPS]):
            other = t.drops[d, X_SHAPE]
            if not ranks_before(t, k, t.drops[d, X_KEY], t.drops[d, X_JOB], -1) and (
                other < 0 or competes(t, shape, other)
            ):
                _forget_job(t, k)
                some = True
                break
    return some


@inner
def forget_hurt(t: Tables) -> None:
    """Reservations that cannot be kept (V_HELD = HURT), and those behind that compete with them, count no more."""
    if t.meta[M_GROUPS] != 0:
        for k in range(t.counts[COUNT_RESERVATIONS]):
            if t.planned[k, V_ENTRY] >= 0 and t.planned[k, V_HELD] == HURT:
                for other in range(first_of_job(t, k), after_job(t, k)):
                    if t.planned[other, V_HELD] == 1:
                        t.planned[other, V_HELD] = HURT
    for k in range(t.counts[COUNT_RESERVATIONS]):
        if t.planned[k, V_ENTRY] < 0 or t.planned[k, V_HELD] != HURT:
            continue
        shape = t.classes[t.planned[k, V_CLASS], C_SHAPE]
        for other in range(t.counts[COUNT_RESERVATIONS]):
            if (
                t.planned[other, V_ENTRY] >= 0
                and t.planned[other, V_HELD] == 1
                and not ranks_before(t, other, t.planned[k, V_KEY], t.planned[k, V_JOB], t.planned[k, V_TASK])
                and not is_passed(t, other)
                and competes(t, shape, t.classes[t.planned[other, V_CLASS], C_SHAPE])
            ):
                _forget_job(t, other)
    for k in range(t.counts[COUNT_RESERVATIONS]):
        if t.planned[k, V_ENTRY] >= 0 and t.planned[k, V_HELD] == HURT:
            if is_passed(t, k):
                t.planned[k, V_HELD] = 1  # the next pass plans it again
            else:
                forget(t, k)


@inner
def first_of_job(t: Tables, reservation: int) -> int:
    """The first reservation of the same job: those of its groups stand together."""
    entry = t.planned[reservation, V_ENTRY]
    while t.meta[M_GROUPS] != 0 and reservation > 0 and t.planned[reservation - 1, V_ENTRY] == entry:
        reservation -= 1
    return reservation


@inner
def after_job(t: Tables, reservation: int) -> int:
    """Where the reservations of other jobs go on."""
    entry = t.planned[reservation, V_ENTRY]
    last = t.counts[COUNT_RESERVATIONS]
    reservation += 1
    while t.meta[M_GROUPS] != 0 and reservation < last and t.planned[reservation, V_ENTRY] == entry:
        reservation += 1
    return reservation


@inner
def _forget_job(t: Tables, reservation: int) -> None:
    """The same for all groups of its job."""
    for k in range(first_of_job(t, reservation), after_job(t, reservation)):
        if t.planned[k, V_HELD] == 1:
            forget(t, k)


@inner
def forget(t: Tables, reservation: int) -> None:
    """Let a reservation count no more before chains are linked: its nodes are built again."""
    t.planned[reservation, V_HELD] = 0
    if t.planned[reservation, V_KIND] != KIND_NEVER:
        for place in range(
            t.planned[reservation, V_FIRST], t.planned[reservation, V_FIRST] + t.planned[reservation, V_NODES]
        ):
            make_stale(t, t.planned_nodes[place, Q_NODE])


@inner
def leave_stale(t: Tables) -> None:
    """Nodes of reservations of the state that cannot be kept are stale again when a slice is repeated."""
    for k in range(t.counts[COUNT_RESERVATIONS]):
        if t.planned[k, V_ENTRY] >= 0 and t.planned[k, V_HELD] != 1 and t.planned[k, V_KIND] != KIND_NEVER:
            for place in range(t.planned[k, V_FIRST], t.planned[k, V_FIRST] + t.planned[k, V_NODES]):
                make_stale(t, t.planned_nodes[place, Q_NODE])
        t.planned[k, V_HELD] = min(t.planned[k, V_HELD], 1)


@inner
def is_closed(t: Tables, shape: int) -> bool:
    """Whether as many jobs ahead as may hold reservations compete with a shape; once so in a slice, it stays so."""
    if t.counts[COUNT_RESERVATIONS] < t.meta[M_MAX_RESERVATIONS]:
        return False
    if t.shapes[shape, S_CLOSED] == 2 * t.ticks[TICK] + 1:
        return True
    ahead = 0
    counted = -1
    for k in range(t.counts[COUNT_RESERVATIONS]):
        if (
            t.planned[k, V_ENTRY] >= 0
            and t.planned[k, V_ENTRY] != counted  # a job with several groups is one
            and is_passed(t, k)
            and competes(t, shape, t.classes[t.planned[k, V_CLASS], C_SHAPE])
        ):
            counted = t.planned[k, V_ENTRY]
            ahead += 1
            if ahead >= t.meta[M_MAX_RESERVATIONS]:
                t.shapes[shape, S_CLOSED] = 2 * t.ticks[TICK] + 1
                return True
    return False


@inner
def note_freed(t: Tables, reservation: int) -> None:
    """A reservation leaves its nodes in this slice: those that did not come free before are listed (SCRATCH_LOCAL)."""
    local = t.scratch[SCRATCH_LOCAL]
    for place in range(
        t.planned[reservation, V_FIRST], t.planned[reservation, V_FIRST] + t.planned[reservation, V_NODES]
    ):
        node = t.planned_nodes[place, Q_NODE]
        if node >= 0 and t.rows[node, N_FREED] == 0 and t.rows[node, N_STAMP] != t.ticks[TICK]:
            t.rows[node, N_STAMP] = t.ticks[TICK]
            local[t.counts[COUNT_FREED]] = node
            t.counts[COUNT_FREED] += 1


@inner
def let_go_behind(t: Tables, shape: int, mine: int, task: int) -> None:
    """Reservations that compete with a shape and rank behind a task of the job at the cursor count no more.

    They are planned again in turn.
    """
    p = t.pass_record
    for k in range(t.counts[COUNT_RESERVATIONS]):
        if (
            k != mine
            and t.planned[k, V_ENTRY] >= 0
            and t.planned[k, V_HELD] == 1
            and not ranks_before(t, k, p[PASS_KEY], p[PASS_JOB], task)
            and competes(t, shape, t.classes[t.planned[k, V_CLASS], C_SHAPE])
        ):
            for one in range(first_of_job(t, k), after_job(t, k)):
                if t.planned[one, V_HELD] == 1:
                    note_freed(t, one)
                    let_go(t, one)
            p[PASS_REPLANS] = 1


@inner
def drop_behind(t: Tables, bucket: int) -> None:
    """Drop the reservations of a bucket from the cursor on: its queue is strict and somebody ahead waits."""
    p = t.pass_record
    for k in range(t.counts[COUNT_RESERVATIONS]):
        entry = t.planned[k, V_ENTRY]
        if entry >= 0 and t.entries[entry, E_BUCKET] == bucket and not is_passed(t, k):
            note_freed(t, k)
            if t.planned[k, V_HELD] == 1:
                if t.planned[k, V_KIND] != KIND_NEVER:
                    p[PASS_VACATED] = 1
                let_go(t, k)
            t.planned[k, V_ENTRY] = -1
            p[PASS_REPLANS] = 1


@inner
def wake_of(t: Tables, reservation: int) -> int:
    """When a reservation wants a pass though nothing happens: at its start, unless that follows an attempt that
    outlives its plan and will be reported; where its time is never, when it may claim nodes."""
    now = t.pass_record[PASS_NOW]
    kind = t.planned[reservation, V_KIND]
    if kind == KIND_NEVER:
        since = t.entries[t.planned[reservation, V_ENTRY], E_BLOCKED_AT]
        return int((now if since < 0 else since) + t.meta[M_CLAIM_AFTER])
    if kind != KIND_RESERVED or t.planned[reservation, V_START] <= now:
        return INF
    if t.planned[reservation, V_START] == now + 1:
        for place in range(
            t.planned[reservation, V_FIRST], t.planned[reservation, V_FIRST] + t.planned[reservation, V_NODES]
        ):
            if t.rows[t.planned_nodes[place, Q_NODE], N_LATE] == 1:
                return INF
        if waits_for_late(t, t.classes[t.planned[reservation, V_CLASS], C_SHAPE], now):
            return INF
    return int(t.planned[reservation, V_START])


@inner
def compact(t: Tables) -> None:
    """Drop the reservations of jobs that started or went away; the others move up.

    Each keeps places for all its nodes: a claim that found fewer nodes may find more the next time.
    """
    kept = 0
    used = 0
    for k in range(t.counts[COUNT_RESERVATIONS]):
        if t.planned[k, V_ENTRY] < 0:
            continue
        offset = t.planned[k, V_FIRST]
        nodes = t.classes[t.planned[k, V_CLASS], C_NODES]
        for i in range(nodes):
            if used != offset:
                copy_record(t.planned_nodes, used + i, t.planned_nodes, offset + i)
            t.planned_nodes[used + i, Q_RESERVATION] = kept
        if kept != k:
            copy_record(t.planned, kept, t.planned, k)
        t.planned[kept, V_FIRST] = used
        used += nodes
        kept += 1
    t.counts[COUNT_RESERVATIONS] = kept
    t.counts[COUNT_RESERVED] = used
