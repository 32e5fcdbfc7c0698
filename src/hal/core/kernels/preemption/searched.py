"""For which waiting jobs it pays to look for running work to preempt, and when it was last looked for.

Pure. Each entry remembers the search for its next task in a record of its own (`searched`, by its slot), so
none pushes another one out: after a search in vain an entry is quiet until something has changed, or work that was too
young is old enough, and while nothing happens each entry is searched for once for each of these. O(1), to remember one
O(entries of its job).
"""

from __future__ import annotations

from hal.core.kernels.rules.ledgers import lends
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_CLASS,
    B_OWNER,
    C_NEXT,
    C_NODES,
    E_BUCKET,
    E_FIRST,
    E_JOB,
    E_SIBLING,
    E_SOUGHT,
    E_WHERE,
    INF,
    M_CLAIMS,
    M_EPOCH,
    M_MOST_CLAIMS,
    M_MOVING,
    M_MOVING_NODES,
    M_PREEMPTING,
    M_RECLAIM,
    M_SEARCH_EVERY,
    O_QOS,
    SOUGHT_EPOCH,
    SOUGHT_JOB,
    SOUGHT_NEXT,
    SOUGHT_TASK,
    SOUGHT_YOUTH,
    STANDING_PREEMPTS,
    WHERE_BUCKET,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.slots import find_one


@inner
def waiting_entry(t: Tables, job: int, task: int) -> int:
    """The entry in a bucket that begins with this task, -1."""
    slot = find_one(t.job_index, t.entries, E_JOB, job)
    tried = 0
    while leads_on(t, slot, tried, t.entries.shape[0]) and not (
        t.entries[slot, E_FIRST] == task and t.entries[slot, E_WHERE] == WHERE_BUCKET
    ):
        tried += 1
        slot = t.entries[slot, E_SIBLING]
    return int(slot)


@inner
def may_preempt(t: Tables, bucket: int) -> bool:
    """Whether the work of a bucket may take from somebody else than extensions of jobs."""
    return bool(
        t.meta[M_PREEMPTING] != 0 and t.qos[t.owners[t.buckets[bucket, B_OWNER], O_QOS], STANDING_PREEMPTS] == 1
    )


@inner
def may_move(t: Tables, bucket: int) -> bool:
    """Whether work may be moved for the work of a bucket: its gang is wide enough, and the configuration allows it."""
    return bool(t.meta[M_MOVING] != 0 and t.classes[t.buckets[bucket, B_CLASS], C_NODES] >= t.meta[M_MOVING_NODES])


@inner
def _may_search(t: Tables, bucket: int) -> bool:
    """Whether there may be something that the work of a bucket may take."""
    if t.qos[t.owners[t.buckets[bucket, B_OWNER], O_QOS], STANDING_PREEMPTS] != 0 or may_move(t, bucket):
        return True
    return bool(t.meta[M_RECLAIM] != 0 and lends(t, bucket))


@inner
def remember(t: Tables, job: int, task: int, now: int, youth: int) -> None:
    """Nothing was found for a task at `now`; `youth` is when work that is too young now is old enough."""
    entry = waiting_entry(t, job, task)
    if entry >= 0:
        t.searched[entry, SOUGHT_JOB] = job + 1
        t.searched[entry, SOUGHT_TASK] = task
        t.searched[entry, SOUGHT_EPOCH] = t.meta[M_EPOCH]
        t.searched[entry, SOUGHT_NEXT] = now + t.meta[M_SEARCH_EVERY]
        t.searched[entry, SOUGHT_YOUTH] = max(youth, now + 1)
        t.entries[entry, E_SOUGHT] = max(min(now + t.meta[M_SEARCH_EVERY], youth), now + 1)


@inner
def search_at(t: Tables, entry: int, task: int) -> int:
    """The instant from which on it pays to search for a task of an entry, if it cannot start: INF = an event first."""
    bucket = t.entries[entry, E_BUCKET]
    if t.meta[M_PREEMPTING] == 0 or t.meta[M_CLAIMS] >= t.meta[M_MOST_CLAIMS]:
        return INF
    preempts = t.qos[t.owners[t.buckets[bucket, B_OWNER], O_QOS], STANDING_PREEMPTS] != 0
    if t.classes[t.buckets[bucket, B_CLASS], C_NEXT] != 0 and not preempts:
        return INF  # neither what others borrowed nor work that may be moved is taken for several groups at once
    if not _may_search(t, bucket):
        return INF
    job = t.entries[entry, E_JOB]
    if t.searched[entry, SOUGHT_JOB] != job + 1 or t.searched[entry, SOUGHT_TASK] != t.entries[entry, E_FIRST] + task:
        return 0
    if t.searched[entry, SOUGHT_EPOCH] != t.meta[M_EPOCH]:
        return int(min(t.searched[entry, SOUGHT_NEXT], t.searched[entry, SOUGHT_YOUTH]))
    return int(t.searched[entry, SOUGHT_YOUTH])
