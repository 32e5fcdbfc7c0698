"""Strict queues: nothing of such a queue starts before its first job.

Pure scratch of a slice: a queue is closed once its first job waits for resources, and where the slice does not come by
that job, its rank is written down.
"""

from __future__ import annotations

from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_HEAD,
    B_OFFSET,
    B_OWNER,
    E_JOB,
    E_KEY,
    M_ACTIVE,
    O_QUEUE,
    PASS_JOB,
    PASS_KEY,
    PASS_STAMP,
    Y_CLOSED_STAMP,
    Y_STRICT,
    Y_WAITS_JOB,
    Y_WAITS_KEY,
    Y_WAITS_STAMP,
)
from hal.core.kernels.structures.memory import Tables


@inner
def wait_strictly(t: Tables, bucket: int, queue: int, entry: int) -> None:
    """An entry of a strict queue waits and this slice will not come by it: what ranks behind it must not start."""
    key = t.entries[entry, E_KEY] + t.buckets[bucket, B_OFFSET]
    if (
        t.queues[queue, Y_WAITS_STAMP] != t.pass_record[PASS_STAMP]
        or key < t.queues[queue, Y_WAITS_KEY]
        or (key == t.queues[queue, Y_WAITS_KEY] and t.entries[entry, E_JOB] < t.queues[queue, Y_WAITS_JOB])
    ):
        t.queues[queue, Y_WAITS_STAMP] = t.pass_record[PASS_STAMP]
        t.queues[queue, Y_WAITS_KEY] = key
        t.queues[queue, Y_WAITS_JOB] = t.entries[entry, E_JOB]


@inner
def waits_behind(t: Tables, queue: int) -> bool:
    """Whether the job at the cursor is of a strict queue and ranks behind one that waits."""
    if t.queues[queue, Y_STRICT] == 0:
        return False
    stamp = t.pass_record[PASS_STAMP]
    key = t.pass_record[PASS_KEY]
    if t.queues[queue, Y_CLOSED_STAMP] == stamp:
        return True
    if t.queues[queue, Y_WAITS_STAMP] != stamp or t.queues[queue, Y_WAITS_KEY] > key:
        return False
    return bool(t.queues[queue, Y_WAITS_KEY] < key or t.queues[queue, Y_WAITS_JOB] < t.pass_record[PASS_JOB])


@inner
def close_queue(t: Tables, queue: int) -> None:
    """A job of a queue waits: nothing of the queue passes it in this slice where the queue is strict."""
    if t.queues[queue, Y_STRICT] != 0:
        t.queues[queue, Y_CLOSED_STAMP] = t.pass_record[PASS_STAMP]


@inner
def close_passed_queues(t: Tables) -> None:
    """A pass is resumed: strict queues whose first job it has passed over already stay closed."""
    key = t.pass_record[PASS_KEY]
    for place in range(t.meta[M_ACTIVE]):
        bucket = t.active[place]
        queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
        if t.queues[queue, Y_STRICT] != 0:
            head = t.buckets[bucket, B_HEAD]
            first = t.entries[head, E_KEY] + t.buckets[bucket, B_OFFSET]
            if first < key or (first == key and t.entries[head, E_JOB] < t.pass_record[PASS_JOB]):
                t.queues[queue, Y_CLOSED_STAMP] = t.pass_record[PASS_STAMP]
