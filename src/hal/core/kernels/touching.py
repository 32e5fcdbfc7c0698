"""What changed on which rows since timelines were built and since waiting jobs last looked for an earlier place.

Pure. Two lists of rows, each row at most once. `stale` is scratch: chains that must be built anew. `freed` belongs to
the state: rows on which something came free that the last whole pass over the promises may not have seen; only there
can a promise move earlier, and only an event on a row that it could use wakes it: what happens among others changes
nothing for it. Kept only where the policy plans with timelines. O(1) a row.
"""

from __future__ import annotations

from hal.core.kernels.bounds import leads_on
from hal.core.kernels.jit import inner
from hal.core.kernels.layout import (
    COUNT_STALE,
    KIND_NEVER,
    M_DROPS,
    M_EPOCH,
    M_FREED,
    M_RESERVATIONS,
    M_SEEN,
    M_TIMELINES,
    MAX_DROPS,
    P_NEXT,
    P_ROW,
    Q_ROW,
    R_PIECE,
    V_ENTRY,
    V_HELD,
    V_JOB,
    V_KIND,
    V_NODES,
    V_ROW,
    V_START,
    W_EVENT,
    W_FREED,
    W_STALE,
    X_JOB,
    X_KEY,
    X_SHAPE,
)
from hal.core.kernels.memory import Tables
from hal.core.kernels.treap import Table


@inner
def make_stale(t: Tables, row: int) -> None:
    """A row's chain is not what the state says: build it anew in the next cycle."""
    if t.meta[M_TIMELINES] == 1 and t.rows[row, W_STALE] == 0:
        t.rows[row, W_STALE] = 1
        t.stale[t.counts[COUNT_STALE]] = row
        t.counts[COUNT_STALE] += 1


@inner
def make_freed(t: Tables, row: int, epoch: int) -> None:
    """Something came free on a row, now or later; `epoch` is later than that of any pass that did not see it."""
    make_stale(t, row)
    if t.rows[row, W_FREED] == 0:
        t.freed[t.meta[M_FREED]] = row
        t.meta[M_FREED] += 1
    t.rows[row, W_FREED] = epoch


@inner
def free_row(t: Tables, row: int) -> None:
    """An event freed something on a row; the event counts the epoch up afterwards."""
    if t.meta[M_TIMELINES] == 1:
        make_freed(t, row, t.meta[M_EPOCH] + 1)
        t.rows[row, W_EVENT] = t.meta[M_EPOCH] + 1


@inner
def free_run(t: Tables, run: int) -> None:
    """The planned end of an attempt moved."""
    piece = t.runs[run, R_PIECE]
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        free_row(t, t.pieces[piece, P_ROW])
        piece = t.pieces[piece, P_NEXT]


@inner
def free_promise(t: Tables, promise: int) -> None:
    """A promise of the state goes away by an event."""
    if t.reservations[promise, V_KIND] == KIND_NEVER:
        return
    for i in range(t.reservations[promise, V_NODES]):
        free_row(t, t.reserved[t.reservations[promise, V_ROW] + i, Q_ROW])


@inner
def overtake(t: Tables, key: int, job: int, shape: int) -> None:
    """Work has come that ranks before promises: those behind it that compete with it are made anew."""
    for k in range(t.meta[M_DROPS]):
        if t.drops[k, X_SHAPE] == shape or t.drops[k, X_SHAPE] < 0 or t.meta[M_DROPS] == MAX_DROPS:
            if t.drops[k, X_SHAPE] != shape:
                t.drops[k, X_SHAPE] = -1
            if key < t.drops[k, X_KEY] or (key == t.drops[k, X_KEY] and job < t.drops[k, X_JOB]):
                t.drops[k, X_KEY] = key
                t.drops[k, X_JOB] = job
            return
    k = t.meta[M_DROPS]
    t.drops[k, X_KEY] = key
    t.drops[k, X_JOB] = job
    t.drops[k, X_SHAPE] = shape
    t.meta[M_DROPS] += 1


@inner
def free_replaced(t: Tables, promises: Table, promised: Table, epoch: int) -> None:
    """Before a plan's promises replace those of the state: rows of promises that moved or are gone come free.

    A plan keeps the order of the promises that it keeps.
    """
    if t.meta[M_TIMELINES] == 0:
        return
    new = 0
    for old in range(t.meta[M_RESERVATIONS]):
        if t.reservations[old, V_ENTRY] < 0:
            continue
        if (
            new < promises.shape[0]
            and promises[new, V_ENTRY] == t.reservations[old, V_ENTRY]
            and promises[new, V_JOB] == t.reservations[old, V_JOB]
        ):
            same = (
                promises[new, V_START] == t.reservations[old, V_START]
                and promises[new, V_KIND] == t.reservations[old, V_KIND]
                and promises[new, V_HELD] == t.reservations[old, V_HELD]
                and promises[new, V_NODES] == t.reservations[old, V_NODES]
            )
            for i in range(t.reservations[old, V_NODES]):
                same = (
                    same
                    and promised[promises[new, V_ROW] + i, Q_ROW] == t.reserved[t.reservations[old, V_ROW] + i, Q_ROW]
                )
            new += 1
            if same:
                continue
        if t.reservations[old, V_KIND] != KIND_NEVER:
            for i in range(t.reservations[old, V_NODES]):
                make_freed(t, t.reserved[t.reservations[old, V_ROW] + i, Q_ROW], epoch)


@inner
def pass_over(t: Tables, pass_wake: int) -> None:
    """A whole pass looked at every promise: what came free before it began need not be looked at again."""
    kept = 0
    for k in range(t.meta[M_FREED]):
        row = t.freed[k]
        if t.rows[row, W_FREED] > pass_wake:
            t.freed[kept] = row
            kept += 1
        else:
            t.rows[row, W_FREED] = 0
    t.meta[M_FREED] = kept
    t.meta[M_SEEN] = pass_wake
