"""What limits of a cohort have lent each other, and whose running work would give it back to its owner.

Pure. A limit with a cohort has a part of its own (nominal); what is in use above it is borrowed. A waiting job that
stays within the parts of its own may have preempted what others borrowed, as long as they do borrow. Nothing here runs
where no limit asks for that.
"""

from __future__ import annotations

from typing import Any

from hal.core.kernels.preemption.searched import search_at
from hal.core.kernels.rules.ledgers import ask_of, full_ledger
from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    B_CLASS,
    B_HEAD,
    B_OFFSET,
    B_OWNER,
    C_NEXT,
    COHORT_ITSELF,
    E_FIRST,
    E_JOB,
    E_KEY,
    E_SOUGHT,
    E_WALL,
    G_COHORT,
    G_LEFT,
    G_LIMIT,
    G_NOMINAL,
    G_STAMP,
    G_USED,
    INF,
    M_ACTIVE,
    O_LEDGER,
    O_LEDGERS,
    O_QUEUE,
    R_BUCKET,
    Y_FIRST,
    Y_SHUT,
    Y_STRICT,
)
from hal.core.kernels.structures.memory import Tables, tables


@inner
def full_beside_cohorts(t: Tables, bucket: int, wall: int) -> bool:
    """Whether a ledger other than those of whole cohorts has no room for another start of a bucket."""
    owner = t.buckets[bucket, B_OWNER]
    first = t.owners[owner, O_LEDGER]
    for i in range(first, first + t.owners[owner, O_LEDGERS]):
        ledger = t.owner_ledgers[i]
        if t.ledgers[ledger, G_COHORT] != COHORT_ITSELF and t.ledgers[ledger, G_LIMIT] < INF:
            ask = ask_of(t, ledger, t.buckets[bucket, B_CLASS], wall)
            if ask > 0 and ask > t.ledgers[ledger, G_LIMIT] - t.ledgers[ledger, G_USED]:
                return True
    return False


@inner
def find_lent(t: Tables, bucket: int, stamp: int) -> None:
    """Stamp the cohorts that the next start of a bucket asks of, with what lacks in them; and how far every limit of a
    cohort is above its own part."""
    owner = t.buckets[bucket, B_OWNER]
    first = t.owners[owner, O_LEDGER]
    for i in range(first, first + t.owners[owner, O_LEDGERS]):
        ledger = t.owner_ledgers[i]
        if t.ledgers[ledger, G_COHORT] == COHORT_ITSELF:
            ask = ask_of(t, ledger, t.buckets[bucket, B_CLASS], 0)
            if ask > 0:
                t.ledgers[ledger, G_STAMP] = stamp
                t.ledgers[ledger, G_LEFT] = t.ledgers[ledger, G_USED] + ask - t.ledgers[ledger, G_LIMIT]
    for ledger in range(t.ledgers.shape[0]):
        if t.ledgers[ledger, G_COHORT] > 0:
            t.ledgers[ledger, G_LEFT] = t.ledgers[ledger, G_USED] - t.ledgers[ledger, G_NOMINAL]


@inner
def give_back(t: Tables, run: int, sign: int) -> None:
    """Count a run as gone (1) or as there again (-1)."""
    bucket = t.runs[run, R_BUCKET]
    owner = t.buckets[bucket, B_OWNER]
    first = t.owners[owner, O_LEDGER]
    for i in range(first, first + t.owners[owner, O_LEDGERS]):
        ledger = t.owner_ledgers[i]
        if t.ledgers[ledger, G_COHORT] != 0:
            t.ledgers[ledger, G_LEFT] -= sign * ask_of(t, ledger, t.buckets[bucket, B_CLASS], 0)


@inner
def borrows(t: Tables, run: int, stamp: int) -> bool:
    """Whether a run holds of a stamped cohort, by a limit that still is above its own part."""
    bucket = t.runs[run, R_BUCKET]
    owner = t.buckets[bucket, B_OWNER]
    first = t.owners[owner, O_LEDGER]
    for i in range(first, first + t.owners[owner, O_LEDGERS]):
        ledger = t.owner_ledgers[i]
        cohort = t.ledgers[ledger, G_COHORT] - 1
        if (
            cohort >= 0
            and t.ledgers[cohort, G_STAMP] == stamp
            and t.ledgers[ledger, G_LEFT] > 0
            and ask_of(t, ledger, t.buckets[bucket, B_CLASS], 0) > 0
        ):
            return True
    return False


@inner
def still_lent(t: Tables, bucket: int, stamp: int) -> bool:
    """Whether anything lacks yet of what a bucket's next start asks of its cohorts."""
    owner = t.buckets[bucket, B_OWNER]
    first = t.owners[owner, O_LEDGER]
    for i in range(first, first + t.owners[owner, O_LEDGERS]):
        ledger = t.owner_ledgers[i]
        asked = t.ledgers[ledger, G_COHORT] == COHORT_ITSELF and t.ledgers[ledger, G_STAMP] == stamp
        if asked and t.ledgers[ledger, G_LEFT] > 0:
            return True
    return False


@inner
def gives_lent(t: Tables, run: int, stamp: int) -> bool:
    """Whether a run holds some of what lacks."""
    bucket = t.runs[run, R_BUCKET]
    owner = t.buckets[bucket, B_OWNER]
    first = t.owners[owner, O_LEDGER]
    for i in range(first, first + t.owners[owner, O_LEDGERS]):
        ledger = t.owner_ledgers[i]
        asked = t.ledgers[ledger, G_COHORT] == COHORT_ITSELF and t.ledgers[ledger, G_STAMP] == stamp
        if asked and t.ledgers[ledger, G_LEFT] > 0 and ask_of(t, ledger, t.buckets[bucket, B_CLASS], 0) > 0:
            return True
    return False


@inner
def _is_before(t: Tables, bucket: int, other: int) -> bool:
    """Whether the first job of a bucket ranks before that of another one."""
    entry = t.buckets[bucket, B_HEAD]
    head = t.buckets[other, B_HEAD]
    key = t.entries[entry, E_KEY] + t.buckets[bucket, B_OFFSET]
    last = t.entries[head, E_KEY] + t.buckets[other, B_OFFSET]
    return bool(key < last or (key == last and t.entries[entry, E_JOB] < t.entries[head, E_JOB]))


@inner
def _find_first(t: Tables) -> None:
    """The bucket of the first job of every strict queue, into Y_FIRST. O(buckets + queues)."""
    for queue in range(t.queues.shape[0]):
        t.queues[queue, Y_FIRST] = 0
    for k in range(t.meta[M_ACTIVE]):
        bucket = t.active[k]
        queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
        if t.queues[queue, Y_STRICT] != 0:
            first = t.queues[queue, Y_FIRST] - 1
            if first < 0 or _is_before(t, bucket, first):
                t.queues[queue, Y_FIRST] = bucket + 1


@kernel
def next_lender(at: Any, now: int) -> tuple[int, int, int]:
    """The first waiting task, by rank, that waits for nothing but what its cohort has lent: (job, task, wake_ms).

    job -1: there is none now; wake_ms: when there may be one without an event. O(queues + buckets x their ledgers).
    """
    t = tables(at)
    _find_first(t)
    best = -1
    rank = INF
    wake = INF
    for k in range(t.meta[M_ACTIVE]):
        bucket = t.active[k]
        entry = t.buckets[bucket, B_HEAD]
        full = full_ledger(t, bucket, t.entries[entry, E_WALL])
        if full < 0 or t.ledgers[full, G_COHORT] != COHORT_ITSELF or t.classes[t.buckets[bucket, B_CLASS], C_NEXT] != 0:
            continue
        when = max(search_at(t, entry, 0), t.entries[entry, E_SOUGHT])
        if when >= INF:
            continue
        queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
        if t.queues[queue, Y_SHUT] != 0 or (t.queues[queue, Y_STRICT] != 0 and t.queues[queue, Y_FIRST] != bucket + 1):
            continue
        if when > now:
            wake = min(wake, when)
            continue
        key = t.entries[entry, E_KEY] + t.buckets[bucket, B_OFFSET]
        if best < 0 or key < rank or (key == rank and t.entries[entry, E_JOB] < t.entries[best, E_JOB]):
            best = entry
            rank = key
    if best < 0:
        return -1, -1, wake
    return int(t.entries[best, E_JOB]), int(t.entries[best, E_FIRST]), now
