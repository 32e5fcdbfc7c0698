"""Waiting work: entries enter and leave their buckets, the timer and the index of jobs.

Pure. An entry is a run of alike waiting tasks of one job; its slot is also its node in the ranked index (and in the
index by planned time where the policy wants one). All changes here are O(log n) an entry.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.jit import inner, kernel
from hal.core.kernels.layout import (
    B_ACTIVE,
    B_CLASS,
    B_COUNT,
    B_HEAD,
    B_INSERT,
    B_OFFSET,
    B_OWNER,
    B_REFS,
    B_ROOT,
    B_TIME_ROOT,
    BACKFILL_CONSERVATIVE,
    BAD_CLASS,
    BAD_LIVE,
    BAD_ORDER,
    BAD_OWNER,
    BAD_PRIORITY,
    BAD_TASKS,
    BAD_TIME,
    C_REFS,
    E_ATTEMPT,
    E_BLOCKED_AT,
    E_BUCKET,
    E_ELIGIBLE,
    E_FIRST,
    E_HELD,
    E_JOB,
    E_KEY,
    E_PLANNED,
    E_PRIORITY,
    E_RESERVED,
    E_SIBLING,
    E_SUBMIT,
    E_TASKS,
    E_WALL,
    E_WHERE,
    GROW_BUCKETS,
    GROW_ENTRIES,
    INF,
    KEEP,
    M_ACTIVE,
    M_BACKFILL,
    M_BUCKET_FREE,
    M_BUCKET_TOP,
    M_BY_TIME,
    M_CLOCK,
    M_DIRTY,
    M_DROP_JOB,
    M_DROP_KEY,
    M_ENTRIES,
    M_ENTRY_FREE,
    M_ENTRY_TOP,
    M_FAULT,
    M_INSERTS,
    M_LAST_JOB,
    M_LAST_KEY,
    M_ORDER,
    M_PENDING,
    M_RESERVATIONS,
    M_TIMER_ROOT,
    M_VERSION,
    M_WAKE,
    OK,
    ORDER_SJF,
    PRIORITY_LIMIT,
    T_KEY,
    TIME_BITS,
    V_ENTRY,
    V_JOB,
    V_KEY,
    WHERE_ASIDE,
    WHERE_BUCKET,
    WHERE_FREE,
    WHERE_TIMER,
)
from hal.core.kernels.tables import (
    Index,
    drop_hashed,
    find_one,
    find_two,
    give_slot,
    move_hashed,
    put_hashed,
    take_slot,
)
from hal.core.kernels.treap import Table, tree_first, tree_insert, tree_node, tree_remove

Ints = NDArray[np.int64]


@inner
def order_key(order: int, priority: int, planned: int) -> int:
    """The built-in orders as a key, smaller first: priority above all, then planned time where the order asks."""
    if order == ORDER_SJF:
        return -priority * (1 << TIME_BITS) + min(planned, (1 << TIME_BITS) - 1)
    return -priority


@inner
def bucket_of(meta: Ints, buckets: Table, bucket_index: Index, classes: Table, class_id: int, owner: int) -> int:
    """The bucket of (class, owner); a new one takes a slot (the caller made sure that there is one)."""
    bucket = find_two(bucket_index, buckets, B_CLASS, class_id, owner)
    if bucket >= 0:
        return bucket
    bucket = take_slot(meta, buckets, M_BUCKET_FREE, M_BUCKET_TOP)
    buckets[bucket, :] = 0
    buckets[bucket, B_CLASS] = class_id
    buckets[bucket, B_OWNER] = owner
    buckets[bucket, B_ROOT] = -1
    buckets[bucket, B_TIME_ROOT] = -1
    buckets[bucket, B_ACTIVE] = -1
    buckets[bucket, B_HEAD] = -1
    put_hashed(bucket_index, bucket, class_id, owner)
    classes[class_id, C_REFS] += 1
    return bucket


@inner
def leave_bucket(meta: Ints, buckets: Table, bucket_index: Index, classes: Table, bucket: int) -> None:
    """One reference less; a bucket that nobody refers to gives its slot back."""
    buckets[bucket, B_REFS] -= 1
    if buckets[bucket, B_REFS] == 0:
        drop_hashed(bucket_index, buckets, B_CLASS, True, bucket)
        classes[buckets[bucket, B_CLASS], C_REFS] -= 1
        give_slot(meta, buckets, M_BUCKET_FREE, bucket)


@inner
def mark_dirty(meta: Ints) -> None:
    """Something changed that may move reservations or let parked work start."""
    meta[M_DIRTY] = 1
    meta[M_WAKE] += 1


@inner
def enter_bucket(
    meta: Ints, entries: Table, rank: Table, by_time: Table, buckets: Table, active: Ints, reservations: Table,
    slot: int, path: Ints,
) -> None:  # fmt: skip
    """Put an eligible entry into its bucket; outranking a job with a promise lets the next pass promise anew."""
    bucket = entries[slot, E_BUCKET]
    key = entries[slot, E_KEY]
    job = entries[slot, E_JOB]
    first = entries[slot, E_FIRST]
    planned = entries[slot, E_PLANNED]
    tree_node(rank, slot, key, job, first, planned)
    buckets[bucket, B_ROOT] = tree_insert(rank, buckets[bucket, B_ROOT], slot, path)
    if meta[M_BY_TIME] == 1:
        tree_node(by_time, slot, planned, job, first, planned)
        buckets[bucket, B_TIME_ROOT] = tree_insert(by_time, buckets[bucket, B_TIME_ROOT], slot, path)
    head = buckets[bucket, B_HEAD]
    if head < 0:
        buckets[bucket, B_HEAD] = slot
        buckets[bucket, B_ACTIVE] = meta[M_ACTIVE]
        active[meta[M_ACTIVE]] = bucket
        meta[M_ACTIVE] += 1
    else:
        buckets[bucket, B_HEAD] = tree_first(rank, buckets[bucket, B_ROOT])
    buckets[bucket, B_COUNT] += 1
    meta[M_INSERTS] += 1
    buckets[bucket, B_INSERT] = meta[M_INSERTS]
    entries[slot, E_WHERE] = WHERE_BUCKET
    key += buckets[bucket, B_OFFSET]
    if meta[M_BACKFILL] != BACKFILL_CONSERVATIVE:
        for k in range(meta[M_RESERVATIONS]):
            if key < reservations[k, V_KEY] or (key == reservations[k, V_KEY] and job < reservations[k, V_JOB]):
                mark_dirty(meta)
                break
    elif meta[M_RESERVATIONS] > 0 and (key < meta[M_LAST_KEY] or (key == meta[M_LAST_KEY] and job < meta[M_LAST_JOB])):
        mark_dirty(meta)
        if key < meta[M_DROP_KEY] or (key == meta[M_DROP_KEY] and job < meta[M_DROP_JOB]):
            meta[M_DROP_KEY] = key
            meta[M_DROP_JOB] = job


@inner
def exit_bucket(
    meta: Ints, entries: Table, rank: Table, by_time: Table, buckets: Table, active: Ints, slot: int, path: Ints
) -> None:
    """Take an entry out of its bucket."""
    bucket = entries[slot, E_BUCKET]
    buckets[bucket, B_ROOT] = tree_remove(rank, buckets[bucket, B_ROOT], slot, path)
    if meta[M_BY_TIME] == 1:
        buckets[bucket, B_TIME_ROOT] = tree_remove(by_time, buckets[bucket, B_TIME_ROOT], slot, path)
    buckets[bucket, B_COUNT] -= 1
    if buckets[bucket, B_COUNT] == 0:
        buckets[bucket, B_HEAD] = -1
        place = buckets[bucket, B_ACTIVE]
        meta[M_ACTIVE] -= 1
        last = active[meta[M_ACTIVE]]
        active[place] = last
        buckets[last, B_ACTIVE] = place
        buckets[bucket, B_ACTIVE] = -1
    elif buckets[bucket, B_HEAD] == slot:
        buckets[bucket, B_HEAD] = tree_first(rank, buckets[bucket, B_ROOT])
    entries[slot, E_WHERE] = WHERE_ASIDE


@inner
def forget_promise(meta: Ints, entries: Table, reservations: Table, slot: int) -> None:
    """An entry that goes away or changes loses its reservation; the next pass plans anew."""
    promise = entries[slot, E_RESERVED]
    if promise >= 0:
        if promise < meta[M_RESERVATIONS] and reservations[promise, V_ENTRY] == slot:
            reservations[promise, V_ENTRY] = -1
        entries[slot, E_RESERVED] = -1
        mark_dirty(meta)


@inner
def settle(
    meta: Ints, entries: Table, rank: Table, by_time: Table, buckets: Table, active: Ints, reservations: Table,
    slot: int, path: Ints,
) -> None:  # fmt: skip
    """Put an entry that is aside where it belongs: bucket, timer, or aside."""
    if entries[slot, E_HELD] != 0 or entries[slot, E_ELIGIBLE] >= INF:
        entries[slot, E_WHERE] = WHERE_ASIDE
    elif entries[slot, E_ELIGIBLE] > meta[M_CLOCK] and entries[slot, E_ELIGIBLE] > entries[slot, E_SUBMIT]:
        tree_node(rank, slot, entries[slot, E_ELIGIBLE], entries[slot, E_JOB], entries[slot, E_FIRST], 0)
        meta[M_TIMER_ROOT] = tree_insert(rank, meta[M_TIMER_ROOT], slot, path)
        entries[slot, E_WHERE] = WHERE_TIMER
    else:
        enter_bucket(meta, entries, rank, by_time, buckets, active, reservations, slot, path)


@inner
def set_aside(
    meta: Ints, entries: Table, rank: Table, by_time: Table, buckets: Table, active: Ints, reservations: Table,
    slot: int, path: Ints,
) -> None:  # fmt: skip
    """Take an entry out of bucket or timer; it keeps its slot."""
    if entries[slot, E_WHERE] == WHERE_BUCKET:
        forget_promise(meta, entries, reservations, slot)
        exit_bucket(meta, entries, rank, by_time, buckets, active, slot, path)
    elif entries[slot, E_WHERE] == WHERE_TIMER:
        meta[M_TIMER_ROOT] = tree_remove(rank, meta[M_TIMER_ROOT], slot, path)
        entries[slot, E_WHERE] = WHERE_ASIDE


@inner
def link_entry(entries: Table, job_index: Index, slot: int) -> None:
    """Enter a filled entry under its job."""
    job = entries[slot, E_JOB]
    first = find_one(job_index, entries, E_JOB, job)
    if first < 0:
        entries[slot, E_SIBLING] = -1
        put_hashed(job_index, slot, job, 0)
    else:
        entries[slot, E_SIBLING] = entries[first, E_SIBLING]
        entries[first, E_SIBLING] = slot


@inner
def drop_entry(
    meta: Ints, entries: Table, job_index: Index, buckets: Table, bucket_index: Index, classes: Table, slot: int
) -> None:
    """Free the slot of an entry that is in no tree."""
    job = entries[slot, E_JOB]
    first = find_one(job_index, entries, E_JOB, job)
    if first == slot:
        following = entries[slot, E_SIBLING]
        if following < 0:
            drop_hashed(job_index, entries, E_JOB, False, slot)
        else:
            move_hashed(job_index, job, 0, slot, following)
    else:
        while entries[first, E_SIBLING] != slot:
            first = entries[first, E_SIBLING]
        entries[first, E_SIBLING] = entries[slot, E_SIBLING]
    leave_bucket(meta, buckets, bucket_index, classes, entries[slot, E_BUCKET])
    meta[M_ENTRIES] -= 1
    entries[slot, E_WHERE] = WHERE_FREE
    entries[slot, E_JOB] = -1
    give_slot(meta, entries, M_ENTRY_FREE, slot)


@inner
def new_entry(
    meta: Ints, entries: Table, job_index: Index, buckets: Table, job: int, first: int, tasks: int, attempt: int,
    bucket: int, priority: int, submit: int, eligible: int, held: int, wall: int, planned: int, key: int,
) -> int:  # fmt: skip
    """Fill a slot and link it; it is aside until `settle`."""
    slot = take_slot(meta, entries, M_ENTRY_FREE, M_ENTRY_TOP)
    entries[slot, E_JOB] = job
    entries[slot, E_FIRST] = first
    entries[slot, E_TASKS] = tasks
    entries[slot, E_ATTEMPT] = attempt
    entries[slot, E_BUCKET] = bucket
    entries[slot, E_PRIORITY] = priority
    entries[slot, E_SUBMIT] = submit
    entries[slot, E_ELIGIBLE] = eligible
    entries[slot, E_HELD] = held
    entries[slot, E_WALL] = wall
    entries[slot, E_PLANNED] = planned
    entries[slot, E_WHERE] = WHERE_ASIDE
    entries[slot, E_RESERVED] = -1
    entries[slot, E_BLOCKED_AT] = -1
    entries[slot, E_KEY] = key
    link_entry(entries, job_index, slot)
    buckets[bucket, B_REFS] += 1
    meta[M_ENTRIES] += 1
    meta[M_PENDING] += tasks
    return slot


@inner
def _overlaps(entries: Table, slot: int, first: int, tasks: int) -> bool:
    while slot >= 0:
        if first < entries[slot, E_FIRST] + entries[slot, E_TASKS] and entries[slot, E_FIRST] < first + tasks:
            return True
        slot = entries[slot, E_SIBLING]
    return False


@kernel
def submit(
    meta: Ints, entries: Table, rank: Table, by_time: Table, job_index: Index, buckets: Table, bucket_index: Index,
    active: Ints, classes: Table, reservations: Table, path: Ints, rows: Any, class_ids: Ints, owner_ids: Ints,
    keys: Ints,
) -> int:  # fmt: skip
    """Enter a block of submitted rows; checks the whole block first. Returns OK, GROW_* or BAD_* (M_FAULT = row).

    `keys` is empty unless the order is a plugin's, then one key a row.
    """
    count = rows.shape[0]
    if meta[M_ENTRY_TOP] + count > entries.shape[0]:
        return GROW_ENTRIES
    if meta[M_BUCKET_TOP] + min(count, class_ids.shape[0] * owner_ids.shape[0]) > buckets.shape[0]:
        return GROW_BUCKETS
    job = -1
    end = 0
    for k in range(count):
        row = rows[k]
        meta[M_FAULT] = k
        if row["class_index"] < 0 or row["class_index"] >= class_ids.shape[0]:
            return BAD_CLASS
        if row["owner_index"] < 0 or row["owner_index"] >= owner_ids.shape[0]:
            return BAD_OWNER
        if row["tasks"] < 1 or row["first_task"] < 0 or row["attempt"] < 1:
            return BAD_TASKS
        if row["priority"] >= PRIORITY_LIMIT or row["priority"] < -PRIORITY_LIMIT:
            return BAD_PRIORITY
        if row["walltime_ms"] < 0:
            return BAD_TIME
        if row["job"] < job or row["job"] < 0 or (row["job"] == job and row["first_task"] < end):
            return BAD_ORDER
        job = row["job"]
        end = row["first_task"] + row["tasks"]
        there = find_one(job_index, entries, E_JOB, job)
        if there >= 0 and _overlaps(entries, there, row["first_task"], row["tasks"]):
            return BAD_LIVE
    order = meta[M_ORDER]
    for k in range(count):
        row = rows[k]
        bucket = bucket_of(
            meta, buckets, bucket_index, classes, class_ids[row["class_index"]], owner_ids[row["owner_index"]]
        )
        wall = min(row["walltime_ms"], INF)
        planned = row["planned_ms"]
        if planned < 0:
            planned = wall
        planned = min(planned, INF)
        key = keys[k] if keys.shape[0] > 0 else order_key(order, row["priority"], planned)
        slot = new_entry(
            meta, entries, job_index, buckets, row["job"], row["first_task"], row["tasks"], row["attempt"], bucket,
            row["priority"], row["submit_ms"], min(row["eligible_ms"], INF), row["held"], wall, planned, key,
        )  # fmt: skip
        settle(meta, entries, rank, by_time, buckets, active, reservations, slot, path)
    meta[M_VERSION] += 1
    return OK


CHANGE_ELIGIBLE = 0
CHANGE_HOLD = 1
CHANGE_RELEASE = 2
CHANGE_CANCEL = 3
CHANGE_UPDATE = 4
CHANGE_REKEY = 5


@kernel
def change(
    meta: Ints, entries: Table, rank: Table, by_time: Table, job_index: Index, buckets: Table, bucket_index: Index,
    active: Ints, classes: Table, reservations: Table, path: Ints, what: int, jobs: Ints, one: Ints, two: Ints,
    three: Ints,
) -> int:  # fmt: skip
    """Eligible, hold, release, cancel or update the waiting tasks of jobs; unknown jobs are passed over.

    one, two, three: eligible_ms | (none) | first_task and tasks (-1 = all) | priority, walltime, planned (KEEP) | keys.
    """
    if what == CHANGE_CANCEL and meta[M_ENTRY_TOP] + jobs.shape[0] > entries.shape[0]:
        return GROW_ENTRIES
    for k in range(jobs.shape[0]):
        slot = find_one(job_index, entries, E_JOB, jobs[k])
        while slot >= 0:
            following = entries[slot, E_SIBLING]
            if what == CHANGE_CANCEL:
                first = entries[slot, E_FIRST]
                tasks = entries[slot, E_TASKS]
                low = first if one[k] < 0 else max(first, one[k])
                high = first + tasks if one[k] < 0 else min(first + tasks, one[k] + two[k])
                if low < high:
                    set_aside(meta, entries, rank, by_time, buckets, active, reservations, slot, path)
                    meta[M_PENDING] -= high - low
                    if first + tasks > high > low > first:
                        rest = new_entry(
                            meta, entries, job_index, buckets, jobs[k], high, first + tasks - high,
                            entries[slot, E_ATTEMPT], entries[slot, E_BUCKET], entries[slot, E_PRIORITY],
                            entries[slot, E_SUBMIT], entries[slot, E_ELIGIBLE], entries[slot, E_HELD],
                            entries[slot, E_WALL], entries[slot, E_PLANNED], entries[slot, E_KEY],
                        )  # fmt: skip
                        meta[M_PENDING] -= first + tasks - high
                        settle(meta, entries, rank, by_time, buckets, active, reservations, rest, path)
                    if low > first:
                        entries[slot, E_TASKS] = low - first
                        settle(meta, entries, rank, by_time, buckets, active, reservations, slot, path)
                    elif high < first + tasks:
                        entries[slot, E_FIRST] = high
                        entries[slot, E_TASKS] = first + tasks - high
                        settle(meta, entries, rank, by_time, buckets, active, reservations, slot, path)
                    else:
                        drop_entry(meta, entries, job_index, buckets, bucket_index, classes, slot)
            else:
                set_aside(meta, entries, rank, by_time, buckets, active, reservations, slot, path)
                if what == CHANGE_ELIGIBLE:
                    entries[slot, E_ELIGIBLE] = min(one[k], INF)
                elif what == CHANGE_HOLD:
                    entries[slot, E_HELD] = 1
                elif what == CHANGE_RELEASE:
                    entries[slot, E_HELD] = 0
                elif what == CHANGE_UPDATE:
                    if one[k] != KEEP:
                        entries[slot, E_PRIORITY] = one[k]
                    if two[k] != KEEP:
                        if entries[slot, E_PLANNED] == entries[slot, E_WALL]:
                            entries[slot, E_PLANNED] = min(two[k], INF)
                        entries[slot, E_WALL] = min(two[k], INF)
                    if three[k] != KEEP:
                        entries[slot, E_PLANNED] = min(three[k], INF) if three[k] >= 0 else entries[slot, E_WALL]
                    if meta[M_ORDER] <= ORDER_SJF:
                        entries[slot, E_KEY] = order_key(
                            meta[M_ORDER], entries[slot, E_PRIORITY], entries[slot, E_PLANNED]
                        )
                else:
                    entries[slot, E_KEY] = one[k]
                settle(meta, entries, rank, by_time, buckets, active, reservations, slot, path)
            slot = following
    meta[M_VERSION] += 1
    return OK


@kernel
def advance(
    meta: Ints, entries: Table, rank: Table, by_time: Table, buckets: Table, active: Ints, reservations: Table,
    path: Ints, now: int,
) -> int:  # fmt: skip
    """Move the clock; entries whose time has come enter their buckets. Returns OK."""
    meta[M_CLOCK] = max(meta[M_CLOCK], now)
    while meta[M_TIMER_ROOT] >= 0:
        slot = tree_first(rank, meta[M_TIMER_ROOT])
        if rank[slot, T_KEY] > meta[M_CLOCK]:
            break
        meta[M_TIMER_ROOT] = tree_remove(rank, meta[M_TIMER_ROOT], slot, path)
        enter_bucket(meta, entries, rank, by_time, buckets, active, reservations, slot, path)
    meta[M_VERSION] += 1
    return OK


@kernel
def rebuild(
    meta: Ints, entries: Table, rank: Table, by_time: Table, buckets: Table, active: Ints, reservations: Table,
    path: Ints, slots: Ints, keys: Ints,
) -> int:  # fmt: skip
    """Re-key every entry (`slots` = all that wait in buckets, timers or aside) after a change of policy.

    `keys` is empty for a built-in order. Buckets are emptied first; O(n log n). Returns OK.
    """
    for place in range(meta[M_ACTIVE]):
        bucket = active[place]
        buckets[bucket, B_ROOT] = -1
        buckets[bucket, B_TIME_ROOT] = -1
        buckets[bucket, B_COUNT] = 0
        buckets[bucket, B_HEAD] = -1
        buckets[bucket, B_ACTIVE] = -1
    meta[M_ACTIVE] = 0
    for k in range(slots.shape[0]):
        slot = slots[k]
        entries[slot, E_RESERVED] = -1
        if keys.shape[0] > 0:
            entries[slot, E_KEY] = keys[k]
        else:
            entries[slot, E_KEY] = order_key(meta[M_ORDER], entries[slot, E_PRIORITY], entries[slot, E_PLANNED])
        if entries[slot, E_WHERE] == WHERE_BUCKET:
            enter_bucket(meta, entries, rank, by_time, buckets, active, reservations, slot, path)
    mark_dirty(meta)
    meta[M_VERSION] += 1
    return OK
