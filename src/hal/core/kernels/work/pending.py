"""Waiting work: entries enter and leave their buckets, the timer and the index of jobs.

Pure. An entry is a run of alike waiting tasks of one job; its slot is also its node in the ranked index (and in the
index by planned time where the policy wants one). All changes here are O(log n) an entry.
"""

from __future__ import annotations

from typing import Any

from hal.core.kernels.nodes.touching import free_reservation, overtake
from hal.core.kernels.rules.ledgers import turn_periods
from hal.core.kernels.rules.shares import band_of, bucket_offset, order_key
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    B_ACTIVE,
    B_CLASS,
    B_COUNT,
    B_HEAD,
    B_HEAD_JOB,
    B_HEAD_KEY,
    B_INSERT,
    B_LEAST,
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
    C_FOLLOWS,
    C_NEXT,
    C_REFS,
    C_SHAPE,
    E_ATTEMPT,
    E_BLOCKED_AT,
    E_BUCKET,
    E_DEADLINE,
    E_ELIGIBLE,
    E_FIRST,
    E_HELD,
    E_JOB,
    E_KEY,
    E_PLANNED,
    E_PRIORITY,
    E_RESERVED,
    E_SIBLING,
    E_SOUGHT,
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
    M_ENTRIES,
    M_ENTRY_FREE,
    M_ENTRY_TOP,
    M_EPOCH,
    M_FAULT,
    M_GROUPS,
    M_INSERTS,
    M_LAST_JOB,
    M_LAST_KEY,
    M_NEXT_EDGE,
    M_ORDER,
    M_PENDING,
    M_RESERVATIONS,
    M_SHARES_MOVED,
    M_TIMER_ROOT,
    M_VERSION,
    M_WAKE,
    MAX_GROUPS,
    O_REFS,
    OK,
    ORDER_PLUGIN,
    ORDER_PRIORITY,
    PRIORITY_LIMIT,
    T_KEY,
    T_SEQ,
    V_DIRTY,
    V_ENTRY,
    V_JOB,
    V_KEY,
    WHERE_ASIDE,
    WHERE_BUCKET,
    WHERE_FREE,
    WHERE_TIMER,
)
from hal.core.kernels.structures.memory import Tables, tables
from hal.core.kernels.structures.slots import (
    drop_hashed,
    find_one,
    find_two,
    give_slot,
    move_hashed,
    put_hashed,
    take_slot,
)
from hal.core.kernels.structures.treap import tree_before, tree_first, tree_insert, tree_least, tree_node, tree_remove


@inner
def bucket_of(t: Tables, class_id: int, owner: int) -> int:
    """The bucket of (class, owner); a new one takes a slot (the caller made sure that there is one)."""
    bucket = find_two(t.bucket_index, t.buckets, B_CLASS, class_id, owner)
    if bucket >= 0:
        return bucket
    bucket = take_slot(t.meta, t.buckets, M_BUCKET_FREE, M_BUCKET_TOP)
    t.buckets[bucket, :] = 0
    t.buckets[bucket, B_CLASS] = class_id
    t.buckets[bucket, B_OWNER] = owner
    t.buckets[bucket, B_ROOT] = -1
    t.buckets[bucket, B_TIME_ROOT] = -1
    t.buckets[bucket, B_ACTIVE] = -1
    t.buckets[bucket, B_HEAD] = -1
    t.owners[owner, O_REFS] += 1
    if t.meta[M_ORDER] == ORDER_PRIORITY:
        t.buckets[bucket, B_OFFSET] = bucket_offset(t, bucket)
    put_hashed(t.bucket_index, bucket, class_id, owner)
    t.classes[class_id, C_REFS] += 1
    return bucket


@inner
def leave_bucket(t: Tables, bucket: int) -> None:
    """One reference less; a bucket that nobody refers to gives its slot back."""
    t.buckets[bucket, B_REFS] -= 1
    if t.buckets[bucket, B_REFS] == 0:
        drop_hashed(t.bucket_index, t.buckets, B_CLASS, True, bucket)
        t.classes[t.buckets[bucket, B_CLASS], C_REFS] -= 1
        t.owners[t.buckets[bucket, B_OWNER], O_REFS] -= 1
        give_slot(t.meta, t.buckets, M_BUCKET_FREE, bucket)


@inner
def mark_dirty(t: Tables) -> None:
    """Something changed that may move reservations or let parked work start."""
    t.meta[M_DIRTY] = 1
    t.meta[M_EPOCH] += 1
    t.meta[M_WAKE] = t.meta[M_EPOCH]


@inner
def mark_reservation(t: Tables, reservation: int) -> None:
    """The next pass plans this reservation again; conservative reservations hang together."""
    if t.meta[M_BACKFILL] == BACKFILL_CONSERVATIVE:
        mark_dirty(t)
    else:
        t.reservations[reservation, V_DIRTY] = 1


@inner
def _set_head(t: Tables, bucket: int, slot: int) -> None:
    """The first entry of a bucket, and where it stands."""
    t.buckets[bucket, B_HEAD] = slot
    t.buckets[bucket, B_HEAD_KEY] = t.rank[slot, T_KEY]
    t.buckets[bucket, B_HEAD_JOB] = t.rank[slot, T_SEQ]


@inner
def enter_bucket(t: Tables, slot: int) -> None:
    """Put an eligible entry into its bucket; outranking a job with a reservation lets the next pass reserve again."""
    bucket = t.entries[slot, E_BUCKET]
    key = t.entries[slot, E_KEY]
    job = t.entries[slot, E_JOB]
    first = t.entries[slot, E_FIRST]
    planned = t.entries[slot, E_PLANNED]
    tree_node(t.rank, slot, key, job, first, planned)
    t.buckets[bucket, B_ROOT] = tree_insert(t.rank, t.buckets[bucket, B_ROOT], slot, t.path)
    if t.meta[M_BY_TIME] == 1:
        tree_node(t.by_time, slot, planned, job, first, planned)
        t.buckets[bucket, B_TIME_ROOT] = tree_insert(t.by_time, t.buckets[bucket, B_TIME_ROOT], slot, t.path)
    t.buckets[bucket, B_LEAST] = tree_least(t.rank, t.buckets[bucket, B_ROOT])
    head = t.buckets[bucket, B_HEAD]
    if head < 0:
        _set_head(t, bucket, slot)
        t.buckets[bucket, B_ACTIVE] = t.meta[M_ACTIVE]
        t.active[t.meta[M_ACTIVE]] = bucket
        t.meta[M_ACTIVE] += 1
        t.meta[M_SHARES_MOVED] = 1  # siblings of who has work again count by him
    elif tree_before(t.rank, slot, head):
        _set_head(t, bucket, slot)
    t.buckets[bucket, B_COUNT] += 1
    t.meta[M_INSERTS] += 1
    t.buckets[bucket, B_INSERT] = t.meta[M_INSERTS]
    t.entries[slot, E_WHERE] = WHERE_BUCKET
    key += t.buckets[bucket, B_OFFSET]
    if t.meta[M_BACKFILL] != BACKFILL_CONSERVATIVE:
        for k in range(t.meta[M_RESERVATIONS]):
            if key < t.reservations[k, V_KEY] or (key == t.reservations[k, V_KEY] and job < t.reservations[k, V_JOB]):
                mark_reservation(t, k)
    elif t.meta[M_RESERVATIONS] > 0 and (
        key < t.meta[M_LAST_KEY] or (key == t.meta[M_LAST_KEY] and job < t.meta[M_LAST_JOB])
    ):
        mark_dirty(t)
        class_id = t.buckets[bucket, B_CLASS]
        for _ in range(MAX_GROUPS):
            overtake(t, key, job, t.classes[class_id, C_SHAPE])
            class_id = t.classes[class_id, C_NEXT] - 1
            if class_id < 0:
                break


@inner
def exit_bucket(t: Tables, slot: int) -> None:
    """Take an entry out of its bucket."""
    bucket = t.entries[slot, E_BUCKET]
    t.buckets[bucket, B_ROOT] = tree_remove(t.rank, t.buckets[bucket, B_ROOT], slot, t.path)
    if t.meta[M_BY_TIME] == 1:
        t.buckets[bucket, B_TIME_ROOT] = tree_remove(t.by_time, t.buckets[bucket, B_TIME_ROOT], slot, t.path)
    t.buckets[bucket, B_LEAST] = tree_least(t.rank, t.buckets[bucket, B_ROOT])
    t.buckets[bucket, B_COUNT] -= 1
    if t.buckets[bucket, B_COUNT] == 0:
        t.buckets[bucket, B_HEAD] = -1
        place = t.buckets[bucket, B_ACTIVE]
        t.meta[M_ACTIVE] -= 1
        t.meta[M_SHARES_MOVED] = 1
        last = t.active[t.meta[M_ACTIVE]]
        t.active[place] = last
        t.buckets[last, B_ACTIVE] = place
        t.buckets[bucket, B_ACTIVE] = -1
    elif t.buckets[bucket, B_HEAD] == slot:
        _set_head(t, bucket, tree_first(t.rank, t.buckets[bucket, B_ROOT]))
    t.entries[slot, E_WHERE] = WHERE_ASIDE


@inner
def forget_reservation(t: Tables, slot: int) -> None:
    """An entry that goes away or changes loses its reservation; the next pass plans anew."""
    reservation = t.entries[slot, E_RESERVED]
    if reservation >= 0:
        if reservation < t.meta[M_RESERVATIONS] and t.reservations[reservation, V_ENTRY] == slot:
            free_reservation(t, reservation)
            t.reservations[reservation, V_ENTRY] = -1
            for k in range(t.meta[M_RESERVATIONS] if t.meta[M_GROUPS] != 0 else 0):
                if t.reservations[k, V_ENTRY] == slot:  # of another group of its job
                    free_reservation(t, k)
                    t.reservations[k, V_ENTRY] = -1
                    mark_reservation(t, k)
        t.entries[slot, E_RESERVED] = -1
        mark_reservation(t, reservation)


@inner
def follows(t: Tables, slot: int) -> bool:
    """Whether an entry is that of a group that starts only with the first one of its job, and never by itself."""
    return bool(t.meta[M_GROUPS] != 0 and t.classes[t.buckets[t.entries[slot, E_BUCKET], B_CLASS], C_FOLLOWS] != 0)


@inner
def settle(t: Tables, slot: int) -> None:
    """Put an entry that is aside where it belongs: bucket, timer, or aside."""
    if t.entries[slot, E_HELD] != 0 or t.entries[slot, E_ELIGIBLE] >= INF or follows(t, slot):
        t.entries[slot, E_WHERE] = WHERE_ASIDE
    elif t.entries[slot, E_ELIGIBLE] > t.meta[M_CLOCK] and t.entries[slot, E_ELIGIBLE] > t.entries[slot, E_SUBMIT]:
        tree_node(t.rank, slot, t.entries[slot, E_ELIGIBLE], t.entries[slot, E_JOB], t.entries[slot, E_FIRST], 0)
        t.meta[M_TIMER_ROOT] = tree_insert(t.rank, t.meta[M_TIMER_ROOT], slot, t.path)
        t.entries[slot, E_WHERE] = WHERE_TIMER
    else:
        enter_bucket(t, slot)


@inner
def set_aside(t: Tables, slot: int) -> None:
    """Take an entry out of bucket or timer; it keeps its slot."""
    if t.entries[slot, E_WHERE] == WHERE_BUCKET:
        forget_reservation(t, slot)
        exit_bucket(t, slot)
    elif t.entries[slot, E_WHERE] == WHERE_TIMER:
        t.meta[M_TIMER_ROOT] = tree_remove(t.rank, t.meta[M_TIMER_ROOT], slot, t.path)
        t.entries[slot, E_WHERE] = WHERE_ASIDE


@inner
def link_entry(t: Tables, slot: int) -> None:
    """Enter a filled entry under its job."""
    job = t.entries[slot, E_JOB]
    first = find_one(t.job_index, t.entries, E_JOB, job)
    if first < 0:
        t.entries[slot, E_SIBLING] = -1
        put_hashed(t.job_index, slot, job, 0)
    else:
        t.entries[slot, E_SIBLING] = t.entries[first, E_SIBLING]
        t.entries[first, E_SIBLING] = slot


@inner
def drop_entry(t: Tables, slot: int) -> None:
    """Free the slot of an entry that is in no tree."""
    job = t.entries[slot, E_JOB]
    first = find_one(t.job_index, t.entries, E_JOB, job)
    if first == slot:
        following = t.entries[slot, E_SIBLING]
        if following < 0:
            drop_hashed(t.job_index, t.entries, E_JOB, False, slot)
        else:
            move_hashed(t.job_index, job, 0, slot, following)
    else:
        before = 0
        while leads_on(t, first, before, t.entries.shape[0]) and t.entries[first, E_SIBLING] != slot:
            before += 1
            first = t.entries[first, E_SIBLING]
        t.entries[first, E_SIBLING] = t.entries[slot, E_SIBLING]
    leave_bucket(t, t.entries[slot, E_BUCKET])
    t.meta[M_ENTRIES] -= 1
    t.entries[slot, E_WHERE] = WHERE_FREE
    t.entries[slot, E_JOB] = -1
    give_slot(t.meta, t.entries, M_ENTRY_FREE, slot)


@inner
def take_entry(t: Tables) -> int:
    """Take a slot for an entry. Whoever takes it sets all that was submitted (E_JOB to E_PLANNED, key, deadline), then
    calls `link_new`."""
    slot = take_slot(t.meta, t.entries, M_ENTRY_FREE, M_ENTRY_TOP)
    t.entries[slot, E_WHERE] = WHERE_ASIDE
    t.entries[slot, E_RESERVED] = -1
    t.entries[slot, E_BLOCKED_AT] = -1
    t.entries[slot, E_SOUGHT] = 0
    return slot


@inner
def link_new(t: Tables, slot: int) -> None:
    """Count a new entry; it is aside until `settle`."""
    link_entry(t, slot)
    t.buckets[t.entries[slot, E_BUCKET], B_REFS] += 1
    t.meta[M_ENTRIES] += 1
    t.meta[M_PENDING] += t.entries[slot, E_TASKS]


@inner
def rekey(t: Tables, slot: int) -> None:
    """The key of an entry by the built-in order, after what it depends on has changed."""
    t.entries[slot, E_KEY] = order_key(
        t,
        t.entries[slot, E_BUCKET],
        t.entries[slot, E_PRIORITY],
        t.entries[slot, E_PLANNED],
        t.entries[slot, E_SUBMIT],
        t.entries[slot, E_ELIGIBLE],
        t.entries[slot, E_DEADLINE],
    )


@inner
def _overlaps(t: Tables, slot: int, first: int, tasks: int) -> bool:
    tried = 0
    while leads_on(t, slot, tried, t.entries.shape[0]):
        tried += 1
        if first < t.entries[slot, E_FIRST] + t.entries[slot, E_TASKS] and t.entries[slot, E_FIRST] < first + tasks:
            return True
        slot = t.entries[slot, E_SIBLING]
    return False


@inner
def _check_rows(t: Tables, rows: Any, classes: int, owners: int) -> int:
    """Whether submitted rows can be entered. Returns OK or BAD_* (M_FAULT = row)."""
    job = -1
    end = 0
    for k in range(rows.shape[0]):
        row = rows[k]
        t.meta[M_FAULT] = k
        if row["class_index"] < 0 or row["class_index"] >= classes:
            return BAD_CLASS
        if row["owner_index"] < 0 or row["owner_index"] >= owners:
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
        there = find_one(t.job_index, t.entries, E_JOB, job)
        if there >= 0 and _overlaps(t, there, row["first_task"], row["tasks"]):
            return BAD_LIVE
    return OK


@kernel
def submit(at: Any, rows: Any, class_ids: Ints, owner_ids: Ints, keys: Ints) -> int:
    """Enter a block of submitted rows; checks the whole block first. Returns OK, GROW_* or BAD_* (M_FAULT = row).

    `keys` is empty unless the order is a plugin's, then one key a row.
    """
    t = tables(at)
    count = rows.shape[0]
    if t.meta[M_ENTRY_TOP] + count > t.entries.shape[0]:
        return GROW_ENTRIES
    if t.meta[M_BUCKET_TOP] + min(count, class_ids.shape[0] * owner_ids.shape[0]) > t.buckets.shape[0]:
        return GROW_BUCKETS
    outcome = _check_rows(t, rows, class_ids.shape[0], owner_ids.shape[0])
    if outcome != OK:
        return outcome
    for k in range(count):
        row = rows[k]
        bucket = bucket_of(t, class_ids[row["class_index"]], owner_ids[row["owner_index"]])
        wall = min(row["walltime_ms"], INF)
        planned = row["planned_ms"]
        if planned < 0:
            planned = wall
        planned = min(planned, INF)
        eligible = min(row["eligible_ms"], INF)
        deadline = row["deadline_ms"] if row["deadline_ms"] > 0 else INF
        if keys.shape[0] > 0:
            key = keys[k] + band_of(t, bucket)
        else:
            key = order_key(t, bucket, row["priority"], planned, row["submit_ms"], eligible, deadline)
        slot = take_entry(t)
        t.entries[slot, E_JOB] = row["job"]
        t.entries[slot, E_FIRST] = row["first_task"]
        t.entries[slot, E_TASKS] = row["tasks"]
        t.entries[slot, E_ATTEMPT] = row["attempt"]
        t.entries[slot, E_BUCKET] = bucket
        t.entries[slot, E_PRIORITY] = row["priority"]
        t.entries[slot, E_SUBMIT] = row["submit_ms"]
        t.entries[slot, E_ELIGIBLE] = eligible
        t.entries[slot, E_HELD] = row["held"]
        t.entries[slot, E_WALL] = wall
        t.entries[slot, E_PLANNED] = planned
        t.entries[slot, E_KEY] = key
        t.entries[slot, E_DEADLINE] = deadline
        link_new(t, slot)
        settle(t, slot)
    t.meta[M_VERSION] += 1
    return OK


CHANGE_ELIGIBLE = 0
CHANGE_HOLD = 1
CHANGE_RELEASE = 2
CHANGE_CANCEL = 3
CHANGE_UPDATE = 4
CHANGE_REKEY = 5


@inner
def _cancel(t: Tables, slot: int, since: int, tasks_gone: int) -> None:
    """Cancel those tasks of an entry that are among `tasks_gone` from `since` on; all of them where it is below 0."""
    first = t.entries[slot, E_FIRST]
    tasks = t.entries[slot, E_TASKS]
    low = first if since < 0 else max(first, since)
    high = first + tasks if since < 0 else min(first + tasks, since + tasks_gone)
    if low < high:
        set_aside(t, slot)
        t.meta[M_PENDING] -= high - low
        if first + tasks > high > low > first:
            rest = take_entry(t)
            t.entries[rest, E_JOB] = t.entries[slot, E_JOB]
            t.entries[rest, E_ATTEMPT] = t.entries[slot, E_ATTEMPT]
            t.entries[rest, E_BUCKET] = t.entries[slot, E_BUCKET]
            t.entries[rest, E_PRIORITY] = t.entries[slot, E_PRIORITY]
            t.entries[rest, E_SUBMIT] = t.entries[slot, E_SUBMIT]
            t.entries[rest, E_ELIGIBLE] = t.entries[slot, E_ELIGIBLE]
            t.entries[rest, E_HELD] = t.entries[slot, E_HELD]
            t.entries[rest, E_WALL] = t.entries[slot, E_WALL]
            t.entries[rest, E_PLANNED] = t.entries[slot, E_PLANNED]
            t.entries[rest, E_KEY] = t.entries[slot, E_KEY]
            t.entries[rest, E_DEADLINE] = t.entries[slot, E_DEADLINE]
            t.entries[rest, E_FIRST] = high
            t.entries[rest, E_TASKS] = first + tasks - high
            link_new(t, rest)
            t.meta[M_PENDING] -= first + tasks - high
            settle(t, rest)
        if low > first:
            t.entries[slot, E_TASKS] = low - first
            settle(t, slot)
        elif high < first + tasks:
            t.entries[slot, E_FIRST] = high
            t.entries[slot, E_TASKS] = first + tasks - high
            settle(t, slot)
        else:
            drop_entry(t, slot)


@inner
def _edit(t: Tables, slot: int, what: int, one: int, two: int, three: int) -> None:
    """Change an entry, and let it wait where it then belongs."""
    set_aside(t, slot)
    if what == CHANGE_ELIGIBLE:
        t.entries[slot, E_ELIGIBLE] = min(one, INF)
        if t.meta[M_ORDER] == ORDER_PRIORITY:
            rekey(t, slot)
    elif what == CHANGE_HOLD:
        t.entries[slot, E_HELD] = 1
    elif what == CHANGE_RELEASE:
        t.entries[slot, E_HELD] = 0
    elif what == CHANGE_UPDATE:
        if one != KEEP:
            t.entries[slot, E_PRIORITY] = one
        if two != KEEP:
            if t.entries[slot, E_PLANNED] == t.entries[slot, E_WALL]:
                t.entries[slot, E_PLANNED] = min(two, INF)
            t.entries[slot, E_WALL] = min(two, INF)
        if three != KEEP:
            t.entries[slot, E_PLANNED] = min(three, INF) if three >= 0 else t.entries[slot, E_WALL]
        if t.meta[M_ORDER] != ORDER_PLUGIN:
            rekey(t, slot)
    else:
        t.entries[slot, E_KEY] = one
    settle(t, slot)


@kernel
def change(at: Any, what: int, jobs: Ints, one: Ints, two: Ints, three: Ints) -> int:
    """Eligible, hold, release, cancel or update the waiting tasks of jobs; unknown jobs are passed over.

    one, two, three: eligible_ms | (none) | first_task and tasks (-1 = all) | priority, walltime, planned (KEEP) | keys.
    """
    t = tables(at)
    if what == CHANGE_CANCEL and t.meta[M_ENTRY_TOP] + jobs.shape[0] > t.entries.shape[0]:
        return GROW_ENTRIES
    for k in range(jobs.shape[0]):
        slot = find_one(t.job_index, t.entries, E_JOB, jobs[k])
        tried = 0
        while leads_on(t, slot, tried, t.entries.shape[0]):
            tried += 1
            following = t.entries[slot, E_SIBLING]
            if what == CHANGE_CANCEL:
                _cancel(t, slot, one[k], two[k])
            else:
                three_of = three[k] if what == CHANGE_UPDATE else 0
                two_of = two[k] if what == CHANGE_UPDATE else 0
                one_of = one[k] if what in (CHANGE_ELIGIBLE, CHANGE_UPDATE, CHANGE_REKEY) else 0
                _edit(t, slot, what, one_of, two_of, three_of)
            slot = following
    t.meta[M_VERSION] += 1
    return OK


@kernel
def advance(at: Any, now: int) -> int:
    """Move the clock; entries whose time has come enter their buckets. Returns OK."""
    t = tables(at)
    t.meta[M_CLOCK] = max(t.meta[M_CLOCK], now)
    if now >= t.meta[M_NEXT_EDGE]:
        turn_periods(t, now)
    due = 0
    while leads_on(t, t.meta[M_TIMER_ROOT], due, t.entries.shape[0]):
        due += 1
        slot = tree_first(t.rank, t.meta[M_TIMER_ROOT])
        if t.rank[slot, T_KEY] > t.meta[M_CLOCK]:
            break
        t.meta[M_TIMER_ROOT] = tree_remove(t.rank, t.meta[M_TIMER_ROOT], slot, t.path)
        enter_bucket(t, slot)
    t.meta[M_VERSION] += 1
    return OK


@kernel
def rebuild(at: Any, slots: Ints, keys: Ints) -> int:
    """Re-key every entry (`slots` = all that wait in buckets, timers or aside) after a change of policy.

    `keys` is empty for a built-in order. Buckets are emptied first; O(n log n). Returns OK.
    """
    t = tables(at)
    for place in range(t.meta[M_ACTIVE]):
        bucket = t.active[place]
        t.buckets[bucket, B_ROOT] = -1
        t.buckets[bucket, B_TIME_ROOT] = -1
        t.buckets[bucket, B_COUNT] = 0
        t.buckets[bucket, B_HEAD] = -1
        t.buckets[bucket, B_ACTIVE] = -1
    t.meta[M_ACTIVE] = 0
    for k in range(slots.shape[0]):
        slot = slots[k]
        t.entries[slot, E_RESERVED] = -1
        if keys.shape[0] > 0:
            t.entries[slot, E_KEY] = keys[k] + band_of(t, t.entries[slot, E_BUCKET])
        else:
            rekey(t, slot)
        if t.entries[slot, E_WHERE] == WHERE_BUCKET:
            enter_bucket(t, slot)
    mark_dirty(t)
    t.meta[M_VERSION] += 1
    return OK
