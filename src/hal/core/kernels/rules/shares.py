"""Who is first, as keys and offsets: priority points, disciplines of queues, and the tree of shares.

Pure. A key never changes while a job waits; what moves (use of shares, turns, the age of queues with another slope) is
one offset for each owner, copied to its buckets. Smaller goes first, so points count negatively. Use is kept inflated:
one unit charged at t counts 2**((t - zero) / half-life), so nothing has to be decayed; ratios between siblings, which
are all that factors read, do not change with time. The factor of a leaf is 2**-(use / share) of its first account, less
a part for what it is ahead of its siblings below (`renew_terms`). Source of the term: Slurm's multifactor fair-share
formula; shares that are used up exactly give 1/2. That accounts compete before their users do is Slurm's Fair Tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hal.core.kernels.rules.ledgers import full_ledger
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    B_CLASS,
    B_HEAD,
    B_HEAD_JOB,
    B_HEAD_KEY,
    B_INSERT,
    B_OFFSET,
    B_OWNER,
    B_REFS,
    BACKFILL_CONSERVATIVE,
    BY_DEADLINE,
    BY_PRIORITY,
    BY_SUBMISSION,
    BY_TURN,
    C_NODES,
    C_SHAPE,
    DEADLINE_SLOPE,
    E_BUCKET,
    E_JOB,
    E_KEY,
    E_WALL,
    EXTENSION_BAND,
    F_LEAST,
    F_LOSS,
    F_RATIO,
    F_SUM,
    F_USE,
    F_WEIGHT,
    F_WEIGHTS,
    INF,
    M_ACTIVE,
    M_BACKFILL,
    M_BUCKET_TOP,
    M_CPU,
    M_HALF_LIFE,
    M_INSERTS,
    M_NODES_OF_SHARES,
    M_ORDER,
    M_OWNERS,
    M_QUEUES,
    M_RESERVATIONS,
    M_RESOURCES,
    M_SHARE_ZERO,
    M_SHARES_MOVED,
    M_SLOPE,
    MODE_SHRINK,
    NO_DEADLINE_MS,
    O_BASE,
    O_LEAF,
    O_OFFSET,
    O_QOS,
    O_QUEUE,
    O_TURN,
    O_TURNS,
    O_USAGE,
    OK,
    ORDER_PRIORITY,
    ORDER_SJF,
    S_EVER,
    S_INSIDE,
    SHARE_DEPTH,
    SHARE_PARENT,
    SHARE_WAITS,
    STANDING_MODE,
    TIME_BITS,
    TURN,
    V_ENTRY,
    Y_DEADLINE,
    Y_DISCIPLINE,
    Y_FAIR,
    Y_LEAST,
    Y_NICE,
    Y_SHUT,
    Y_SIZE,
    Y_SLOPE,
    Y_TURN,
)
from hal.core.kernels.structures.memory import Tables, tables

NOMINAL_MS = 3_600_000
"""What an attempt without a planned time is charged for when it starts; its end settles the difference."""
MAX_EXPONENT = 900.0
MAX_RATIO = 60.0
AHEAD_LOSES = 0.25
"""The part of an account's factor that a user who is ahead of all others in it loses at most."""


@inner
def band_of(t: Tables, bucket: int) -> int:
    """What puts extensions of jobs behind all other work, whatever the order; 0 for other work."""
    mode = t.qos[t.owners[t.buckets[bucket, B_OWNER], O_QOS], STANDING_MODE]
    return EXTENSION_BAND if mode == MODE_SHRINK else 0


@inner
def order_key(t: Tables, bucket: int, priority: int, planned: int, submit: int, eligible: int, deadline: int) -> int:
    """The rank of a task by a built-in order, smaller first; within its band."""
    band = band_of(t, bucket)
    if band != 0 and t.meta[M_ORDER] == ORDER_SJF:
        # There keys of jobs fill almost all numbers: extensions go by their planned time alone, behind all of them.
        return int(INF - (1 << TIME_BITS) + min(planned, (1 << TIME_BITS) - 1))
    return band + _key_within(t, bucket, priority, planned, submit, eligible, deadline)


@inner
def _key_within(t: Tables, bucket: int, priority: int, planned: int, submit: int, eligible: int, deadline: int) -> int:
    """The built-in orders as a key, smaller first: priority above all, then planned time where the order asks."""
    order = t.meta[M_ORDER]
    if order == ORDER_SJF:
        return int(-priority * (1 << TIME_BITS) + min(planned, (1 << TIME_BITS) - 1))
    if order != ORDER_PRIORITY:
        return int(-priority)
    queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
    discipline = t.queues[queue, Y_DISCIPLINE]
    # A job becomes eligible once; before that (INF, a later begin) its age counts from its submission.
    since = max(submit, eligible) if eligible < INF else submit
    if discipline in (BY_SUBMISSION, BY_TURN):
        return int(t.queues[queue, Y_SLOPE] * submit)
    if discipline == BY_DEADLINE:
        return int(DEADLINE_SLOPE * (deadline if deadline < INF else submit + NO_DEADLINE_MS))
    key = t.queues[queue, Y_SLOPE] * since - t.queues[queue, Y_NICE] * priority
    if deadline < INF and t.queues[queue, Y_DEADLINE] != 0:
        latest = deadline - (planned if planned < INF else 0)
        hours = max(latest - since, 0) / 3_600_000.0
        key -= int(t.queues[queue, Y_DEADLINE] * 2.0 ** (-min(hours, 60.0)))
    return int(key)


@inner
def size_offset(t: Tables, class_id: int, queue: int) -> int:
    """Points for the processors that an attempt of a class takes."""
    cpu = t.meta[M_CPU]
    if cpu < 0 or t.queues[queue, Y_SIZE] == 0:
        return 0
    millicores = t.request[cpu, t.classes[class_id, C_SHAPE]] * t.classes[class_id, C_NODES]
    return int(-(t.queues[queue, Y_SIZE] * millicores) // 1000)


@inner
def class_rate(t: Tables, class_id: int) -> float:
    """Units a second that one attempt of a class is charged."""
    shape = t.classes[class_id, C_SHAPE]
    total = 0.0
    for r in range(t.meta[M_RESOURCES]):
        part = t.request[r, shape] * t.charge[0, r]
        if t.charge[1, 0] != 0.0:
            total = max(total, part)
        else:
            total += part
    return float(total * t.classes[class_id, C_NODES])


@inner
def charge_shares(t: Tables, bucket: int, ms: int, now: int) -> None:
    """Charge (or, with negative ms, give back) an attempt's use to its leaf and all above it."""
    owner = t.buckets[bucket, B_OWNER]
    node = t.owners[owner, O_LEAF]
    if node < 0 or ms == 0:
        return
    exponent = (now - t.meta[M_SHARE_ZERO]) / max(t.meta[M_HALF_LIFE], 1)
    grown = 2.0 ** min(exponent, MAX_EXPONENT)
    units = class_rate(t, t.buckets[bucket, B_CLASS]) * (ms / 1000.0) * (t.owners[owner, O_USAGE] / 1e6) * grown
    above = 0
    while leads_on(t, node, above, t.share_nodes.shape[0]):
        above += 1
        t.share_use[node, F_USE] = max(t.share_use[node, F_USE] + units, 0.0)
        node = t.share_nodes[node, SHARE_PARENT]
    t.meta[M_SHARES_MOVED] = 1


@inner
def take_turn(t: Tables, bucket: int) -> None:
    """Round-robin: the owner's user has had a turn, the others of the queue are next."""
    owner = t.owners[t.buckets[bucket, B_OWNER], O_TURNS]
    queue = t.owners[owner, O_QUEUE]
    if t.queues[queue, Y_DISCIPLINE] == BY_TURN:
        turn = max(t.owners[owner, O_TURN], t.queues[queue, Y_TURN])
        t.queues[queue, Y_TURN] = turn
        t.owners[owner, O_TURN] = turn + 1
        t.meta[M_SHARES_MOVED] = 1


@inner
def _could_go(t: Tables, bucket: int) -> bool:
    """Whether a bucket's first job may compete with others of its account: its queue is open, nodes that it fits on are
    up, its limits have room. What waits inside a booking has its own nodes."""
    class_id = t.buckets[bucket, B_CLASS]
    shape = t.classes[class_id, C_SHAPE]
    return bool(
        t.queues[t.owners[t.buckets[bucket, B_OWNER], O_QUEUE], Y_SHUT] == 0
        and t.shapes[shape, S_EVER] >= t.classes[class_id, C_NODES]
        and t.shapes[shape, S_INSIDE] == 0
        and full_ledger(t, bucket, t.entries[t.buckets[bucket, B_HEAD], E_WALL]) < 0
    )


@inner
def renew_terms(t: Tables) -> None:
    """What each node has had of its share, and what its factor loses for it (parents have lower indices).

    Accounts compete as a whole: below the first level a node loses by how far it is ahead of the one among its siblings
    that has had least and has work that could go, and at most AHEAD_LOSES. So who has no work moves nothing between
    accounts, and who has work that cannot go does not keep his colleagues from what is theirs.
    """
    count = t.meta[M_NODES_OF_SHARES]
    for node in range(count):
        t.share_use[node, F_SUM] = 0.0
        t.share_use[node, F_WEIGHTS] = 0.0
        t.share_use[node, F_LEAST] = MAX_RATIO
        t.share_nodes[node, SHARE_WAITS] = 0
    for place in range(t.meta[M_ACTIVE]):
        bucket = t.active[place]
        node = t.owners[t.buckets[bucket, B_OWNER], O_LEAF]
        if node > 0 and t.share_nodes[node, SHARE_WAITS] == 0 and not _could_go(t, bucket):
            continue
        while node > 0 and t.share_nodes[node, SHARE_WAITS] == 0:
            t.share_nodes[node, SHARE_WAITS] = 1
            node = t.share_nodes[node, SHARE_PARENT]
    for node in range(1, count):
        parent = t.share_nodes[node, SHARE_PARENT]
        if parent >= 0:
            t.share_use[parent, F_SUM] += t.share_use[node, F_USE]
            t.share_use[parent, F_WEIGHTS] += t.share_use[node, F_WEIGHT]
    for node in range(1, count):
        parent = t.share_nodes[node, SHARE_PARENT]
        if parent < 0:
            continue
        ratio = 0.0
        used = t.share_use[parent, F_SUM]
        if used > 0.0 and t.share_use[node, F_USE] > 0.0:
            share = t.share_use[node, F_WEIGHT] / t.share_use[parent, F_WEIGHTS]
            ratio = min((t.share_use[node, F_USE] / used) / share, MAX_RATIO) if share > 0.0 else MAX_RATIO
        t.share_use[node, F_RATIO] = ratio
        if t.share_nodes[node, SHARE_WAITS] != 0:
            t.share_use[parent, F_LEAST] = min(t.share_use[parent, F_LEAST], ratio)
    t.share_use[0, F_LOSS] = 0.0
    for node in range(1, count):
        parent = t.share_nodes[node, SHARE_PARENT]
        if parent >= 0:
            loss = t.share_use[node, F_RATIO]
            if t.share_nodes[node, SHARE_DEPTH] > 1:
                ahead = max(loss - t.share_use[parent, F_LEAST], 0.0)
                loss = -np.log2(1.0 - AHEAD_LOSES * (1.0 - 2.0**-ahead))
            t.share_use[node, F_LOSS] = t.share_use[parent, F_LOSS] + loss


@inner
def factor_of(t: Tables, leaf: int) -> float:
    """The fair-share factor of a leaf, 0..1; 1 when nothing was used."""
    if leaf <= 0:
        return 1.0
    return float(2.0 ** -t.share_use[leaf, F_LOSS])


@inner
def bucket_offset(t: Tables, bucket: int) -> int:
    """What is added to the keys of a bucket."""
    owner = t.buckets[bucket, B_OWNER]
    return int(t.owners[owner, O_OFFSET] + size_offset(t, t.buckets[bucket, B_CLASS], t.owners[owner, O_QUEUE]))


@inner
def _turn_of(t: Tables, owner: int) -> int:
    """A user's next turn; who has not been here for a while does not catch up on the turns in between."""
    return int(max(t.owners[t.owners[owner, O_TURNS], O_TURN], t.queues[t.owners[owner, O_QUEUE], Y_TURN]))


@inner
def _renew_turns(t: Tables) -> None:
    for queue in range(t.meta[M_QUEUES]):
        t.queues[queue, Y_LEAST] = INF
    for place in range(t.meta[M_ACTIVE]):
        owner = t.buckets[t.active[place], B_OWNER]
        queue = t.owners[owner, O_QUEUE]
        t.queues[queue, Y_LEAST] = min(t.queues[queue, Y_LEAST], _turn_of(t, owner))


@kernel
def renew_factors(at: Any) -> int:
    """What factors are now, for a question: no offset moves. Returns OK."""
    renew_terms(tables(at))
    return OK


@kernel
def renew_offsets(at: Any, now: int) -> int:
    """Offsets of all owners and buckets from what shares, turns and time are now. Returns how many buckets moved."""
    t = tables(at)
    renew_terms(t)
    _renew_turns(t)
    for owner in range(t.meta[M_OWNERS]):
        queue = t.owners[owner, O_QUEUE]
        discipline = t.queues[queue, Y_DISCIPLINE]
        offset = t.owners[owner, O_BASE]
        if discipline == BY_PRIORITY:
            offset -= int(t.queues[queue, Y_FAIR] * factor_of(t, t.owners[owner, O_LEAF]))
            offset -= (t.queues[queue, Y_SLOPE] - t.meta[M_SLOPE]) * now
        elif discipline == BY_DEADLINE:
            offset -= (DEADLINE_SLOPE - t.meta[M_SLOPE]) * now
        else:
            offset -= (t.queues[queue, Y_SLOPE] - t.meta[M_SLOPE]) * now
            if discipline == BY_TURN:
                offset += TURN * max(_turn_of(t, owner) - t.queues[queue, Y_LEAST], 0)
        t.owners[owner, O_OFFSET] = offset
    moved = 0
    if t.meta[M_BACKFILL] != BACKFILL_CONSERVATIVE:
        _wake_overtaking(t)
    for bucket in range(t.meta[M_BUCKET_TOP]):
        if t.buckets[bucket, B_REFS] > 0:
            offset = bucket_offset(t, bucket)
            if offset != t.buckets[bucket, B_OFFSET]:
                t.buckets[bucket, B_OFFSET] = offset
                moved += 1
    t.meta[M_SHARES_MOVED] = 0
    return moved


@inner
def _wake_overtaking(t: Tables) -> None:
    """Before offsets of buckets move: work that will rank before a reservation, and did not, is looked at again.

    O(buckets), and O(reservations) for those that gain on some reservation and end up among them.
    """
    lead = -INF
    first = INF
    last = -INF
    for k in range(t.meta[M_RESERVATIONS]):
        entry = t.reservations[k, V_ENTRY]
        if entry >= 0:
            bucket = t.entries[entry, E_BUCKET]
            was = t.entries[entry, E_KEY] + t.buckets[bucket, B_OFFSET]
            will_be = t.entries[entry, E_KEY] + bucket_offset(t, bucket)
            lead = max(lead, will_be - was)
            first = min(first, was)
            last = max(last, will_be)
    for place in range(t.meta[M_ACTIVE] if lead > -INF else 0):
        bucket = t.active[place]
        was = t.buckets[bucket, B_HEAD_KEY] + t.buckets[bucket, B_OFFSET]
        will_be = t.buckets[bucket, B_HEAD_KEY] + bucket_offset(t, bucket)
        if will_be - was < lead and was >= first and will_be <= last and _overtakes(t, bucket, was, will_be):
            t.meta[M_INSERTS] += 1
            t.buckets[bucket, B_INSERT] = t.meta[M_INSERTS]


@inner
def _overtakes(t: Tables, bucket: int, was: int, will_be: int) -> bool:
    """Whether the first job of a bucket ranks behind a reservation that it will rank before."""
    mine = t.buckets[bucket, B_HEAD_JOB]
    for k in range(t.meta[M_RESERVATIONS]):
        entry = t.reservations[k, V_ENTRY]
        if entry >= 0:
            own = t.entries[entry, E_BUCKET]
            other = t.entries[entry, E_JOB]
            key = t.entries[entry, E_KEY] + t.buckets[own, B_OFFSET]
            if was > key or (was == key and mine > other):
                key = t.entries[entry, E_KEY] + bucket_offset(t, own)
                if will_be < key or (will_be == key and mine < other):
                    return True
    return False


@kernel
def rebase_shares(at: Any, now: int) -> int:
    """Let use count as one from `now` on, before its inflation leaves the range of a float. Returns OK."""
    t = tables(at)
    exponent = (now - t.meta[M_SHARE_ZERO]) / max(t.meta[M_HALF_LIFE], 1)
    shrunk = 2.0 ** -min(exponent, MAX_EXPONENT)
    for node in range(t.meta[M_NODES_OF_SHARES]):
        t.share_use[node, F_USE] *= shrunk
    t.meta[M_SHARE_ZERO] = now
    return OK
