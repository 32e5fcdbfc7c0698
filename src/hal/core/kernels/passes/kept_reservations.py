"""Which reservations of the state a new pass of EASY keeps, and what they close: O(reservations + buckets).

Pure but for scratch. A reservation is given up where something changed under it, where it is due, or where it shuts out
better work; the others are copied into `planned`. SCRATCH_GIVEN_UP lists those that were given up (PASS_GIVEN_UP).
"""

from __future__ import annotations

from hal.core.kernels.nodes.rows import compete, reserve_node
from hal.core.kernels.passes.groups import class_waits_for_booking, fits_ever, next_group
from hal.core.kernels.passes.strict_queues import close_queue
from hal.core.kernels.preemption.searched import search_at
from hal.core.kernels.rules.ledgers import full_ledger, ledger_wakes
from hal.core.kernels.structures.bounds import goes_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_CLASS,
    B_HEAD,
    B_HEAD_JOB,
    B_HEAD_KEY,
    B_INSERT,
    B_OFFSET,
    B_OWNER,
    C_FOLLOWS,
    C_NEXT,
    C_SHAPE,
    COUNT_RESERVATIONS,
    COUNT_RESERVED,
    E_BLOCKED_AT,
    E_BUCKET,
    E_FIRST,
    E_JOB,
    E_KEY,
    E_STAMP,
    E_WALL,
    KIND_NEVER,
    KIND_RESERVED,
    M_ACTIVE,
    M_CLAIM_AFTER,
    M_DIRTY,
    M_PARKED_INSERTS,
    M_PARKED_WAKE,
    M_RESERVATIONS,
    M_SHAPES,
    MAX_GROUPS,
    O_QUEUE,
    PASS_CLOSED_STAMP,
    PASS_FULL,
    PASS_GIVEN_UP,
    PASS_NOW,
    PASS_STAMP,
    Q_NODE,
    Q_RESERVATION,
    S_CLOSED,
    S_OPEN,
    S_OPEN_STAMP,
    S_WAKE,
    SCRATCH_GIVEN_UP,
    V_CLASS,
    V_DIRTY,
    V_ENTRY,
    V_FIRST,
    V_JOB,
    V_KIND,
    V_NODES,
    V_START,
    Y_SHUT,
    Y_STRICT,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.slots import copy_record


@inner
def is_closed(t: Tables, shape: int) -> bool:
    """Whether a job that competes for a shape's nodes has a reservation already; kept until there is one more."""
    if t.counts[COUNT_RESERVATIONS] == 0:
        return False
    stamp = t.pass_record[PASS_CLOSED_STAMP]
    if t.shapes[shape, S_CLOSED] >> 1 != stamp:
        closed = 0
        for k in range(t.counts[COUNT_RESERVATIONS]):
            if compete(t, shape, t.classes[t.planned[k, V_CLASS], C_SHAPE]):
                closed = 1
                break
        t.shapes[shape, S_CLOSED] = 2 * stamp + closed
    return bool(t.shapes[shape, S_CLOSED] & 1)


@inner
def class_is_closed(t: Tables, class_id: int) -> bool:
    """Whether a job that competes with a class, or with one of its groups, has a reservation already."""
    for _ in range(MAX_GROUPS):
        if is_closed(t, t.classes[class_id, C_SHAPE]):
            return True
        class_id = next_group(t, class_id)
        if class_id < 0:
            break
    return False


@inner
def class_is_parked(t: Tables, bucket: int, queue: int) -> bool:
    """`is_parked`, of all groups of what waits in a bucket."""
    class_id = t.buckets[bucket, B_CLASS]
    for _ in range(MAX_GROUPS):
        if not is_parked(t, bucket, t.classes[class_id, C_SHAPE], queue):
            return False
        class_id = next_group(t, class_id)
        if class_id < 0:
            break
    return True


@inner
def _competes(t: Tables, class_id: int, shape: int) -> bool:
    """Whether a class, or one of its groups, competes with a shape."""
    for _ in range(MAX_GROUPS):
        if compete(t, t.classes[class_id, C_SHAPE], shape):
            return True
        class_id = next_group(t, class_id)
        if class_id < 0:
            break
    return False


@inner
def is_parked(t: Tables, bucket: int, shape: int, queue: int) -> bool:
    """Whether nothing that a bucket waits for has changed since the last complete pass: its wake keys are its own
    insertions, nodes of its shape that came free, its ledgers, and reservations of jobs that compete with it."""
    parked = t.meta[M_PARKED_WAKE]
    if (
        t.buckets[bucket, B_INSERT] > t.meta[M_PARKED_INSERTS]
        or t.shapes[shape, S_WAKE] > parked
        or t.queues[queue, Y_STRICT] != 0
        or ledger_wakes(t, bucket, parked)
    ):
        return False
    stamp = t.pass_record[PASS_STAMP]
    if t.shapes[shape, S_OPEN_STAMP] != stamp:
        opened = 0
        for k in range(t.pass_record[PASS_GIVEN_UP]):
            gone = t.scratch[SCRATCH_GIVEN_UP, k]
            if compete(t, shape, t.classes[t.reservations[gone, V_CLASS], C_SHAPE]):
                opened = 1
                break
        t.shapes[shape, S_OPEN_STAMP] = stamp
        t.shapes[shape, S_OPEN] = opened
    return bool(t.shapes[shape, S_OPEN] == 0)


@inner
def keep_reservations(t: Tables) -> None:
    """Copy the reservations of the state that still stand into `planned`, and give up the others."""
    stamp = t.pass_record[PASS_STAMP]
    t.pass_record[PASS_GIVEN_UP] = 0
    for k in range(t.meta[M_RESERVATIONS]):
        if _job_has_ended(t, k):
            _give_up(t, k)
        else:
            t.entries[t.reservations[k, V_ENTRY], E_STAMP] = stamp
    _give_up_overtaken(t)
    t.counts[COUNT_RESERVATIONS] = 0
    t.counts[COUNT_RESERVED] = 0
    for k in range(t.meta[M_RESERVATIONS]):
        if _is_kept(t, k):
            _keep(t, k)


@inner
def _keep(t: Tables, k: int) -> None:
    mine = t.counts[COUNT_RESERVATIONS]
    t.counts[COUNT_RESERVATIONS] += 1
    copy_record(t.planned, mine, t.reservations, k)
    t.planned[mine, V_FIRST] = t.counts[COUNT_RESERVED]
    close_queue(t, t.owners[t.buckets[t.entries[t.reservations[k, V_ENTRY], E_BUCKET], B_OWNER], O_QUEUE])
    for i in range(t.reservations[k, V_FIRST], t.reservations[k, V_FIRST] + t.reservations[k, V_NODES]):
        place = t.counts[COUNT_RESERVED]
        t.counts[COUNT_RESERVED] += 1
        copy_record(t.planned_nodes, place, t.reserved, i)
        t.planned_nodes[place, Q_RESERVATION] = mine
        reserve_node(t, t.reserved[i, Q_NODE], place)


@inner
def _is_kept(t: Tables, k: int) -> bool:
    """Whether a reservation of the state counts in this slice."""
    entry = t.reservations[k, V_ENTRY]
    return bool(entry >= 0 and t.entries[entry, E_STAMP] == t.pass_record[PASS_STAMP])


@inner
def _has_ended(t: Tables, k: int) -> bool:
    """Whether a reservation ends by itself: something changed under it, it is due, or its time has come to claim."""
    now = t.pass_record[PASS_NOW]
    entry = t.reservations[k, V_ENTRY]
    if t.meta[M_DIRTY] != 0 or t.reservations[k, V_DIRTY] != 0 or entry < 0 or search_at(t, entry, 0) <= now:
        return True
    if t.reservations[k, V_KIND] == KIND_RESERVED:
        return bool(now >= t.reservations[k, V_START])
    since = t.entries[entry, E_BLOCKED_AT]
    return bool(t.reservations[k, V_KIND] == KIND_NEVER and since >= 0 and now - since >= t.meta[M_CLAIM_AFTER])


@inner
def _job_has_ended(t: Tables, k: int) -> bool:
    """Whether a reservation ends by itself, or that of another group of its job, which are its neighbours."""
    if _has_ended(t, k):
        return True
    if t.classes[t.reservations[k, V_CLASS], C_NEXT] == 0 and t.classes[t.reservations[k, V_CLASS], C_FOLLOWS] == 0:
        return False
    for other in range(max(k - MAX_GROUPS, 0), min(k + MAX_GROUPS, t.meta[M_RESERVATIONS])):
        if t.reservations[other, V_JOB] == t.reservations[k, V_JOB] and _has_ended(t, other):
            return True
    return False


@inner
def _give_up(t: Tables, k: int) -> None:
    """Forget a reservation for this slice."""
    t.scratch[SCRATCH_GIVEN_UP, t.pass_record[PASS_GIVEN_UP]] = k
    t.pass_record[PASS_GIVEN_UP] += 1
    for i in range(t.reservations[k, V_FIRST], t.reservations[k, V_FIRST] + t.reservations[k, V_NODES]):
        reserve_node(t, t.reserved[i, Q_NODE], -1)
    if t.reservations[k, V_ENTRY] >= 0:
        t.entries[t.reservations[k, V_ENTRY], E_STAMP] = 0


@inner
def _is_ahead(t: Tables, one: int, other: int) -> bool:
    """Whether an entry ranks before another one."""
    key = t.entries[one, E_KEY] + t.buckets[t.entries[one, E_BUCKET], B_OFFSET]
    other_key = t.entries[other, E_KEY] + t.buckets[t.entries[other, E_BUCKET], B_OFFSET]
    if key != other_key:
        return bool(key < other_key)
    if t.entries[one, E_JOB] != t.entries[other, E_JOB]:
        return bool(t.entries[one, E_JOB] < t.entries[other, E_JOB])
    return bool(t.entries[one, E_FIRST] < t.entries[other, E_FIRST])


@inner
def _last_kept(t: Tables) -> int:
    """The entry that ranks last of those whose reservations are kept, -1 where there is none."""
    last = -1
    for k in range(t.meta[M_RESERVATIONS]):
        entry = t.reservations[k, V_ENTRY]
        if _is_kept(t, k) and (last < 0 or _is_ahead(t, last, entry)):
            last = entry
    return last


@inner
def _give_up_overtaken(t: Tables) -> None:
    """Give up reservations that shut out better work: what shut it out before them is gone.

    Two reservations that do not compete may both compete with a job that ranks between them. As long as the first one
    stands, the job waits for it and the second one is lawful; when the first one goes, the job is next.
    """
    more = t.pass_record[PASS_GIVEN_UP] < t.meta[M_RESERVATIONS]
    rounds = 0
    while goes_on(t, more, rounds, t.meta[M_RESERVATIONS] + 1):  # each gives a reservation up
        rounds += 1
        more = False
        last = _last_kept(t)
        if last < 0:
            break
        last_key = t.entries[last, E_KEY] + t.buckets[t.entries[last, E_BUCKET], B_OFFSET]
        last_job = t.entries[last, E_JOB]
        for place in range(t.meta[M_ACTIVE]):
            bucket = t.active[place]
            key = t.buckets[bucket, B_HEAD_KEY] + t.buckets[bucket, B_OFFSET]
            if key > last_key or (key == last_key and t.buckets[bucket, B_HEAD_JOB] > last_job):
                continue  # no reservation that is kept ranks behind it
            if _is_overtaken(t, bucket, last):
                _give_up_rivals(t, t.buckets[bucket, B_CLASS])
                more = t.pass_record[PASS_GIVEN_UP] < t.meta[M_RESERVATIONS]
                for s in range(t.meta[M_SHAPES]):
                    t.shapes[s, S_OPEN_STAMP] = 0  # more is given up than when it was asked


@inner
def _is_overtaken(t: Tables, bucket: int, last: int) -> bool:
    """Whether the first job of a bucket could start or reserve but for reservations that all rank behind it."""
    class_id = t.buckets[bucket, B_CLASS]
    queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
    if t.queues[queue, Y_SHUT] != 0 or not fits_ever(t, class_id):
        return False
    if t.pass_record[PASS_FULL] == 0 and class_is_parked(t, bucket, queue):
        return False
    head = t.buckets[bucket, B_HEAD]
    if t.entries[head, E_STAMP] == t.pass_record[PASS_STAMP] or not _is_ahead(t, head, last):
        return False
    rival = False
    for k in range(t.meta[M_RESERVATIONS]):
        if _is_kept(t, k) and _competes(t, class_id, t.classes[t.reservations[k, V_CLASS], C_SHAPE]):
            if _is_ahead(t, t.reservations[k, V_ENTRY], head):
                return False
            rival = True
    wall = t.entries[head, E_WALL]
    if not rival or full_ledger(t, bucket, wall) >= 0:
        return False
    return not class_waits_for_booking(t, class_id, t.pass_record[PASS_NOW], wall)


@inner
def _give_up_rivals(t: Tables, class_id: int) -> None:
    """Give up all reservations that compete with a class, each with those of the other groups of its job."""
    for k in range(t.meta[M_RESERVATIONS]):
        if _is_kept(t, k) and _competes(t, class_id, t.classes[t.reservations[k, V_CLASS], C_SHAPE]):
            entry = t.reservations[k, V_ENTRY]
            for other in range(t.meta[M_RESERVATIONS]):
                if t.reservations[other, V_ENTRY] == entry:
                    _give_up(t, other)
