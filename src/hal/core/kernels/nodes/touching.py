"""What changed on which nodes since timelines were built and since waiting jobs last looked for an earlier place.

Pure. Two lists of nodes, each node at most once. `stale` is scratch: chains that must be built again. `freed` belongs
to the state: nodes on which something came free that the last whole pass over the reservations may not have seen; only
there can a reservation move earlier, and only an event on a node that it could use wakes it: what happens among others
changes nothing for it. Kept only where the policy plans with timelines. O(1) a node.
"""

from __future__ import annotations

from hal.core.kernels.structures.arrays import Table
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    COUNT_STALE,
    KIND_NEVER,
    M_DROPS,
    M_EPOCH,
    M_FREED,
    M_RESERVATIONS,
    M_SEEN,
    M_TIMELINES,
    MAX_DROPS,
    N_EVENT,
    N_FREED,
    N_STALE,
    P_NEXT,
    P_NODE,
    Q_NODE,
    R_PIECE,
    V_ENTRY,
    V_FIRST,
    V_HELD,
    V_JOB,
    V_KIND,
    V_NODES,
    V_START,
    X_JOB,
    X_KEY,
    X_SHAPE,
)
from hal.core.kernels.structures.memory import Tables


@inner
def make_stale(t: Tables, node: int) -> None:
    """A node's chain is not what the state says: build it again in the next cycle."""
    if t.meta[M_TIMELINES] == 1 and t.rows[node, N_STALE] == 0:
        t.rows[node, N_STALE] = 1
        t.stale[t.counts[COUNT_STALE]] = node
        t.counts[COUNT_STALE] += 1


@inner
def make_freed(t: Tables, node: int, epoch: int) -> None:
    """Something came free on a node, now or later; `epoch` is later than that of any pass that did not see it."""
    make_stale(t, node)
    if t.rows[node, N_FREED] == 0:
        t.freed[t.meta[M_FREED]] = node
        t.meta[M_FREED] += 1
    t.rows[node, N_FREED] = epoch


@inner
def free_node(t: Tables, node: int) -> None:
    """An event freed something on a node; the event counts the epoch up afterwards."""
    if t.meta[M_TIMELINES] == 1:
        make_freed(t, node, t.meta[M_EPOCH] + 1)
        t.rows[node, N_EVENT] = t.meta[M_EPOCH] + 1


@inner
def free_run(t: Tables, run: int) -> None:
    """The planned end of an attempt moved."""
    piece = t.runs[run, R_PIECE]
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        free_node(t, t.pieces[piece, P_NODE])
        piece = t.pieces[piece, P_NEXT]


@inner
def free_reservation(t: Tables, reservation: int) -> None:
    """A reservation of the state goes away by an event."""
    if t.reservations[reservation, V_KIND] == KIND_NEVER:
        return
    for i in range(t.reservations[reservation, V_NODES]):
        free_node(t, t.reserved[t.reservations[reservation, V_FIRST] + i, Q_NODE])


@inner
def overtake(t: Tables, key: int, job: int, shape: int) -> None:
    """Work has come that ranks before reservations: those behind it that compete with it are made again."""
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
def free_replaced(t: Tables, reservations: Table, reserved: Table, epoch: int) -> None:
    """Before a plan's reservations replace those of the state: nodes of reservations that moved or are gone come free.

    A plan keeps the order of the reservations that it keeps.
    """
    if t.meta[M_TIMELINES] == 0:
        return
    new = 0
    for old in range(t.meta[M_RESERVATIONS]):
        if t.reservations[old, V_ENTRY] < 0:
            continue
        if (
            new < reservations.shape[0]
            and reservations[new, V_ENTRY] == t.reservations[old, V_ENTRY]
            and reservations[new, V_JOB] == t.reservations[old, V_JOB]
        ):
            same = (
                reservations[new, V_START] == t.reservations[old, V_START]
                and reservations[new, V_KIND] == t.reservations[old, V_KIND]
                and reservations[new, V_HELD] == t.reservations[old, V_HELD]
                and reservations[new, V_NODES] == t.reservations[old, V_NODES]
            )
            for i in range(t.reservations[old, V_NODES]):
                same = (
                    same
                    and reserved[reservations[new, V_FIRST] + i, Q_NODE]
                    == t.reserved[t.reservations[old, V_FIRST] + i, Q_NODE]
                )
            new += 1
            if same:
                continue
        if t.reservations[old, V_KIND] != KIND_NEVER:
            for i in range(t.reservations[old, V_NODES]):
                make_freed(t, t.reserved[t.reservations[old, V_FIRST] + i, Q_NODE], epoch)


@inner
def pass_over(t: Tables, pass_wake: int) -> None:
    """A whole pass looked at every reservation: what came free before it began need not be looked at again."""
    kept = 0
    for k in range(t.meta[M_FREED]):
        node = t.freed[k]
        if t.rows[node, N_FREED] > pass_wake:
            t.freed[kept] = node
            kept += 1
        else:
            t.rows[node, N_FREED] = 0
    t.meta[M_FREED] = kept
    t.meta[M_SEEN] = pass_wake
