"""Who is next: of each bucket its candidate, in a heap by (lane, key, job).

Pure scratch. Within a bucket the order cannot change while work waits, so one candidate a bucket is enough. O(log
buckets) to replace one, O(buckets) to list them all.
"""

from __future__ import annotations

from hal.core.kernels.structures.arrays import Table
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_CANDIDATE,
    B_HEAD,
    B_HEAD_JOB,
    B_HEAD_KEY,
    B_OFFSET,
    E_FIRST,
    E_JOB,
    E_KEY,
    E_PLANNED,
    H_BUCKET,
    H_JOB,
    H_KEY,
    H_LANE,
    HEAP_SIZE,
    PASS_HEAP,
    PASS_JOB,
    PASS_KEY,
    PASS_LANE,
    PASS_TASK,
)
from hal.core.kernels.structures.memory import Tables


@inner
def _is_less(heap: Table, a: int, b: int) -> bool:
    if heap[a, H_LANE] != heap[b, H_LANE]:
        return bool(heap[a, H_LANE] < heap[b, H_LANE])
    if heap[a, H_KEY] != heap[b, H_KEY]:
        return bool(heap[a, H_KEY] < heap[b, H_KEY])
    return bool(heap[a, H_JOB] < heap[b, H_JOB])


@inner
def sink_candidate(heap: Table, size: int, at: int) -> None:
    """Let a candidate sink to where it belongs: log2(size) rounds, each goes one level down."""
    lane = heap[at, H_LANE]
    key = heap[at, H_KEY]
    job = heap[at, H_JOB]
    bucket = heap[at, H_BUCKET]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _is_less(heap, child + 1, child):
            child += 1
        if heap[child, H_LANE] != lane:
            before = heap[child, H_LANE] < lane
        elif heap[child, H_KEY] != key:
            before = heap[child, H_KEY] < key
        else:
            before = heap[child, H_JOB] < job
        if not before:
            break
        for c in range(HEAP_SIZE):
            heap[at, c] = heap[child, c]
        at = child
    heap[at, H_LANE] = lane
    heap[at, H_KEY] = key
    heap[at, H_JOB] = job
    heap[at, H_BUCKET] = bucket


@inner
def order_candidates(heap: Table, size: int) -> None:
    """Make a heap of the first `size` candidates."""
    for at in range(size // 2 - 1, -1, -1):
        sink_candidate(heap, size, at)


@inner
def drop_first(t: Tables) -> None:
    """Take the first candidate off the heap: nothing of its bucket is left to look at."""
    size = t.pass_record[PASS_HEAP] - 1
    t.pass_record[PASS_HEAP] = size
    for c in range(HEAP_SIZE):
        t.heap[0, c] = t.heap[size, c]
    sink_candidate(t.heap, size, 0)


@inner
def put_head(t: Tables, at: int, bucket: int) -> None:
    """The first entry of a bucket as its candidate: known without a look at the entry, which lies far away."""
    t.heap[at, H_LANE] = 0
    t.heap[at, H_KEY] = t.buckets[bucket, B_HEAD_KEY] + t.buckets[bucket, B_OFFSET]
    t.heap[at, H_JOB] = t.buckets[bucket, B_HEAD_JOB]
    t.heap[at, H_BUCKET] = bucket
    t.buckets[bucket, B_CANDIDATE] = t.buckets[bucket, B_HEAD]


@inner
def put_candidate(t: Tables, at: int, bucket: int, entry: int, lane: int) -> None:
    """An entry as its bucket's candidate: by rank (lane 0), or by planned time (lane 1)."""
    t.heap[at, H_LANE] = lane
    if lane == 1:
        t.heap[at, H_KEY] = t.entries[entry, E_PLANNED]
    else:
        t.heap[at, H_KEY] = t.entries[entry, E_KEY] + t.buckets[bucket, B_OFFSET]
    t.heap[at, H_JOB] = t.entries[entry, E_JOB]
    t.heap[at, H_BUCKET] = bucket
    t.buckets[bucket, B_CANDIDATE] = entry


@inner
def move_cursor(t: Tables) -> int:
    """Move the pass's cursor to the first candidate, and return its entry."""
    entry = t.buckets[t.heap[0, H_BUCKET], B_CANDIDATE]
    t.pass_record[PASS_LANE] = t.heap[0, H_LANE]
    t.pass_record[PASS_KEY] = t.heap[0, H_KEY]
    t.pass_record[PASS_JOB] = t.heap[0, H_JOB]
    t.pass_record[PASS_TASK] = t.entries[entry, E_FIRST]
    return int(entry)
