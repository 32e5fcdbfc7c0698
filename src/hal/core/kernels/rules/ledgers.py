"""Ledgers: what owners may use at once or in a period; charged when a start is assumed, given back when it ends.

Pure. An owner's ledgers are a run of `owner_ledgers`: its own limits and those of all above it, cohorts included. A
start needs room in every one of them. Within a cycle amounts only grow, so a bucket that was refused stays refused.
"""

from __future__ import annotations

from typing import Any

from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    B_CLASS,
    B_OWNER,
    C_FOLLOWS,
    C_NEXT,
    C_NODES,
    C_SHAPE,
    G_COHORT,
    G_ENDS,
    G_EPOCH,
    G_KIND,
    G_LIMIT,
    G_NOMINAL,
    G_PERIOD,
    G_RECLAIM,
    G_RESOURCE,
    G_SHIFT,
    G_SPENT,
    G_USED,
    INF,
    LEDGER_HOURS,
    LEDGER_RESOURCE,
    LEDGER_TASKS,
    M_CLOCK,
    M_EPOCH,
    M_GROUPS,
    M_RUN_TOP,
    MAX_GROUPS,
    MODE_SHRINK,
    O_LEDGER,
    O_LEDGERS,
    O_QOS,
    OK,
    R_BUCKET,
    R_NODES,
    STANDING_MODE,
)
from hal.core.kernels.structures.memory import Tables, tables

MAX_USED = 1 << 60


@inner
def ask_of(t: Tables, ledger: int, class_id: int, wall: int) -> int:
    """What one start of a class takes from a ledger; INF where it cannot be told (hours without a walltime)."""
    kind = t.ledgers[ledger, G_KIND]
    if kind == LEDGER_TASKS:
        return 1 - int(t.classes[class_id, C_FOLLOWS])  # all groups of a job are one task
    amount = t.request[t.ledgers[ledger, G_RESOURCE], t.classes[class_id, C_SHAPE]] * t.classes[class_id, C_NODES]
    if kind == LEDGER_RESOURCE or amount == 0:
        return int(amount)
    if wall >= INF:
        return INF
    scaled = max(amount >> t.ledgers[ledger, G_SHIFT], 1)
    seconds = (wall + 999) // 1000
    return int(scaled * seconds) if seconds < MAX_USED // scaled else INF


@inner
def full_ledger(t: Tables, bucket: int, wall: int) -> int:
    """The first ledger without room for another start of a bucket, -1 when all have it."""
    owner = t.buckets[bucket, B_OWNER]
    first = t.owners[owner, O_LEDGER]
    for i in range(first, first + t.owners[owner, O_LEDGERS]):
        ledger = t.owner_ledgers[i]
        if t.ledgers[ledger, G_LIMIT] < INF:
            class_id = t.buckets[bucket, B_CLASS]
            several = t.meta[M_GROUPS] != 0
            ask = ask_of_groups(t, ledger, class_id, wall) if several else ask_of(t, ledger, class_id, wall)
            if ask > 0 and ask > t.ledgers[ledger, G_LIMIT] - t.ledgers[ledger, G_USED]:
                return int(ledger)
    return -1


@inner
def ask_of_groups(t: Tables, ledger: int, class_id: int, wall: int) -> int:
    """What one start of a class takes, with those of the other groups of its job."""
    total = 0
    for _ in range(MAX_GROUPS):
        total = min(total + ask_of(t, ledger, class_id, wall), INF)
        class_id = t.classes[class_id, C_NEXT] - 1
        if class_id < 0:
            break
    return int(total)


@inner
def lends(t: Tables, bucket: int) -> bool:
    """Whether what the next start of a bucket asks for is its own, by limits that have taken back what they lend."""
    owner = t.buckets[bucket, B_OWNER]
    if t.qos[t.owners[owner, O_QOS], STANDING_MODE] == MODE_SHRINK:
        return False  # extensions of jobs take from nobody
    first = t.owners[owner, O_LEDGER]
    mine = False
    for i in range(first, first + t.owners[owner, O_LEDGERS]):
        ledger = t.owner_ledgers[i]
        if t.ledgers[ledger, G_COHORT] > 0:
            ask = ask_of(t, ledger, t.buckets[bucket, B_CLASS], 0)
            if ask > 0:
                if ask > t.ledgers[ledger, G_NOMINAL] - t.ledgers[ledger, G_USED]:
                    return False
                mine = mine or t.ledgers[ledger, G_RECLAIM] != 0
    return mine


@inner
def charge_ledgers(t: Tables, bucket: int, wall: int, sign: int) -> None:
    """Take (1) or undo (-1) what a start of now uses; for a cycle's own bookkeeping and for assumed starts."""
    charge_since(t, bucket, wall, INF, sign)


@inner
def charge_since(t: Tables, bucket: int, wall: int, start: int, sign: int) -> None:
    """The same of an attempt that began at `start`: hours are of the period in which it began."""
    owner = t.buckets[bucket, B_OWNER]
    first = t.owners[owner, O_LEDGER]
    for i in range(first, first + t.owners[owner, O_LEDGERS]):
        ledger = t.owner_ledgers[i]
        if start < t.ledgers[ledger, G_ENDS] - t.ledgers[ledger, G_PERIOD]:
            continue
        ask = ask_of(t, ledger, t.buckets[bucket, B_CLASS], wall)
        if ask < INF:
            t.ledgers[ledger, G_USED] += sign * ask


@inner
def settle_ledgers(t: Tables, bucket: int, wall: int, start: int, ended: int) -> None:
    """Give back what an attempt held; of a period's hours, what it did not use, if it began in this period."""
    owner = t.buckets[bucket, B_OWNER]
    class_id = t.buckets[bucket, B_CLASS]
    first = t.owners[owner, O_LEDGER]
    for i in range(first, first + t.owners[owner, O_LEDGERS]):
        ledger = t.owner_ledgers[i]
        if t.ledgers[ledger, G_KIND] == LEDGER_HOURS:
            if start < t.ledgers[ledger, G_ENDS] - t.ledgers[ledger, G_PERIOD]:
                continue
            charged = ask_of(t, ledger, class_id, wall)
            used = ask_of(t, ledger, class_id, max(ended - start, 0))
            t.ledgers[ledger, G_SPENT] += used
            given = -used if charged >= INF else charged - used
        else:
            given = ask_of(t, ledger, class_id, wall)
        if given != 0:
            t.meta[M_EPOCH] += 1
            t.ledgers[ledger, G_EPOCH] = t.meta[M_EPOCH]
            t.ledgers[ledger, G_USED] = max(t.ledgers[ledger, G_USED] - given, 0)


@inner
def ledger_wakes(t: Tables, bucket: int, parked: int) -> bool:
    """Whether something was given back to a ledger of a bucket after epoch `parked`."""
    owner = t.buckets[bucket, B_OWNER]
    first = t.owners[owner, O_LEDGER]
    for i in range(first, first + t.owners[owner, O_LEDGERS]):
        if t.ledgers[t.owner_ledgers[i], G_EPOCH] > parked:
            return True
    return False


@inner
def turn_periods(t: Tables, now: int) -> None:
    """Begin the periods that have come: nothing of an hours ledger is used yet."""
    for ledger in range(t.ledgers.shape[0]):
        period = t.ledgers[ledger, G_PERIOD]
        if period > 0 and now >= t.ledgers[ledger, G_ENDS]:
            t.ledgers[ledger, G_ENDS] += ((now - t.ledgers[ledger, G_ENDS]) // period + 1) * period
            t.ledgers[ledger, G_USED] = 0
            t.ledgers[ledger, G_SPENT] = 0
            t.meta[M_EPOCH] += 1
            t.ledgers[ledger, G_EPOCH] = t.meta[M_EPOCH]


@kernel
def recharge(at: Any) -> int:
    """Count anew what running attempts hold of every ledger but those of hours (the limits changed). Returns OK."""
    t = tables(at)
    for ledger in range(t.ledgers.shape[0]):
        if t.ledgers[ledger, G_KIND] != LEDGER_HOURS:
            t.ledgers[ledger, G_USED] = 0
    for run in range(t.meta[M_RUN_TOP]):
        if t.runs[run, R_NODES] > 0:
            bucket = t.runs[run, R_BUCKET]
            owner = t.buckets[bucket, B_OWNER]
            first = t.owners[owner, O_LEDGER]
            for i in range(first, first + t.owners[owner, O_LEDGERS]):
                ledger = t.owner_ledgers[i]
                if t.ledgers[ledger, G_KIND] != LEDGER_HOURS:
                    t.ledgers[ledger, G_USED] += ask_of(t, ledger, t.buckets[bucket, B_CLASS], 0)
    turn_periods(t, t.meta[M_CLOCK])
    return OK
