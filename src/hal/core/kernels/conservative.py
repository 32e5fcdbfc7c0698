"""A cycle under conservative backfill: all waiting jobs, or the first K, hold promises, which only move earlier.

Pure but for scratch. Rows have kept timelines (see timelines). In rank order, a job whose rows or others came freer
gives its promise back, takes the earliest instant at which enough rows each stay free for the whole of its planned
time, and starts where that is now; else the promise stays as it is, so a pass after one event looks at touched rows
only. An array holds one promise, for its next task; when that starts, the promises behind it are made anew in rank
order, as they are when better work comes, an attempt outlives its plan or a row is lost: those that compete with it for
a row. What happens on rows that a job could not use changes nothing for it. With K promises ahead that compete, a job
gets none and starts only where it leaves all promises as they are: its class's window says how long it may be.
Source: Mu'alem and Feitelson, TPDS 12(6), 2001.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.booked import booked_start, select, within_booking
from hal.core.kernels.bounds import goes_on, leads_on, looks_on
from hal.core.kernels.easy import (
    LOWEST,
    MAX_VERDICTS,
    STOP_ANEW,
    STOP_RESUME,
    STOP_SEARCH,
    Slice,
    close_strict_queues,
    heap_down,
    heap_order,
    next_timer,
    wait_strictly,
    waits_behind,
)
from hal.core.kernels.jit import inner, kernel
from hal.core.kernels.layout import (
    B_CANDIDATE,
    B_CLASS,
    B_HEAD,
    B_INSERT,
    B_OFFSET,
    B_OWNER,
    B_ROOT,
    C_NODES,
    C_SHAPE,
    COUNT_COLD,
    COUNT_FREED,
    COUNT_LINES,
    COUNT_LOG,
    COUNT_PROMISED,
    COUNT_PROMISES,
    COUNT_STALE,
    E_ATTEMPT,
    E_BLOCKED_AT,
    E_BUCKET,
    E_FIRST,
    E_JOB,
    E_KEY,
    E_PLANNED,
    E_RESERVED,
    E_TASKS,
    E_WALL,
    INF,
    KIND_CLAIM,
    KIND_NEVER,
    KIND_PROMISE,
    M_ACTIVE,
    M_BOOKING_EDGE,
    M_BOOKINGS,
    M_CLAIM_AFTER,
    M_DIRTY,
    M_DROPS,
    M_EPOCH,
    M_FREED,
    M_INSERTS,
    M_MAX_RESERVATIONS,
    M_NEXT_EDGE,
    M_PARKED_INSERTS,
    M_PARKED_WAKE,
    M_PARKING,
    M_PIECES,
    M_PLACEMENT,
    M_PROMISED,
    M_RESERVATIONS,
    M_RESOURCES,
    M_ROWS,
    M_SEEN,
    M_VERSION,
    M_WAKE,
    O_QUEUE,
    PLACE_BEST,
    PLACE_FIRST,
    Q_CHAIN,
    Q_PROMISE,
    Q_ROW,
    REASON_LEDGER,
    REASON_PROMISED,
    REASON_RESOURCES,
    S_BLOCK_STAMP,
    S_BLOCKED,
    S_CLOSED_STAMP,
    S_CSET,
    S_EVER,
    S_FIT,
    S_LINE,
    S_SCORES,
    S_UNTIL,
    TICK,
    TICK_NOW,
    TICK_WALL,
    TICK_WORK,
    V_BEHIND,
    V_CLASS,
    V_DIRTY,
    V_ENTRY,
    V_HELD,
    V_JOB,
    V_KEY,
    V_KIND,
    V_NODES,
    V_PLANNED,
    V_ROW,
    V_START,
    V_TASK,
    W_EVENT,
    W_FREED,
    W_LATE,
    W_PIECES,
    W_PROMISED,
    W_STALE,
    W_STAMP,
    X_JOB,
    X_KEY,
    X_SHAPE,
    Y_CLOSED_STAMP,
    Y_SHUT,
    Y_STRICT,
)
from hal.core.kernels.ledgers import charge_ledgers, full_ledger
from hal.core.kernels.licences import licence_start, licences_there, waits_apart, waits_for_late
from hal.core.kernels.memory import Tables, tables
from hal.core.kernels.placing import SCORE_ONE, TIER_EXTRA, TIER_FREE, TIER_SHORT, tightness
from hal.core.kernels.reach import competes, reaches
from hal.core.kernels.rows import fits
from hal.core.kernels.searched import may_preempt, search_at
from hal.core.kernels.tables import copy_record
from hal.core.kernels.timelines import (
    FEW_ROWS,
    build_row,
    came_free,
    change_span,
    clear_row,
    earliest,
    free_until,
    hold,
    let_go,
    line_of,
    lines_mark,
    link_promises,
    mark_late,
    may_hold,
    near_line,
    next_start,
    pick,
    put_back,
    room_for_points,
    unlink_promises,
    warm_up,
)
from hal.core.kernels.touching import make_stale
from hal.core.kernels.treap import Table, tree_seek
from hal.core.kernels.wants import take_licences

Ints = NDArray[np.int64]

HURT = 2
NOWHERE = -1
ANYWHERE = -2
VACATED = 1
"""In place of the lane, which EASY alone has: an earlier slice of this pass dropped reservations that held rows."""
LOOK_SHIFT = 4
"""So many rows looked at, as a power of two, are one unit of work."""
BOUND_SHIFT = 6
"""The same for a search below a bound, which leaves out most rows by one comparison."""
ROW_WORK = 1
ATTEMPT_WORK = 1
"""What it takes to build a row, and for each attempt there, in units of work."""
LINE_SHIFT = 1
"""What it takes to draw the line of a shape: so many rows, as a power of two, are one unit of work."""


@inner
def _ranks_before(promises: Table, promise: int, key: int, job: int, task: int) -> bool:
    """Whether a promise's job comes before a place of the order."""
    if promises[promise, V_KEY] != key:
        return bool(promises[promise, V_KEY] < key)
    if promises[promise, V_JOB] != job:
        return bool(promises[promise, V_JOB] < job)
    return bool(promises[promise, V_TASK] < task)


@inner
def _forget_overtaken(t: Tables, promises: Table, promised: Table, made: bool, key: int, job: int, task: int) -> bool:
    """Before chains are linked: promises behind better work that competes with them count no more.

    Where `made`, those before (key, job, task) were made by this very pass and stay. Returns whether there was one.
    """
    some = False
    for k in range(t.counts[COUNT_PROMISES]):
        if promises[k, V_ENTRY] < 0 or promises[k, V_HELD] == 0:
            continue
        if made and _ranks_before(promises, k, key, job, task):
            continue
        shape = t.classes[promises[k, V_CLASS], C_SHAPE]
        for d in range(t.meta[M_DROPS]):
            other = t.drops[d, X_SHAPE]
            if not _ranks_before(promises, k, t.drops[d, X_KEY], t.drops[d, X_JOB], -1) and (
                other < 0 or competes(t, shape, other)
            ):
                _forget(t, promises, promised, k)
                some = True
                break
    return some


@inner
def _forget_hurt(t: Tables, promises: Table, promised: Table, made: bool, key: int, job: int, task: int) -> None:
    """Promises that cannot be kept (V_HELD = HURT), and those behind that compete with them, count no more."""
    for k in range(t.counts[COUNT_PROMISES]):
        if promises[k, V_ENTRY] < 0 or promises[k, V_HELD] != HURT:
            continue
        shape = t.classes[promises[k, V_CLASS], C_SHAPE]
        for other in range(t.counts[COUNT_PROMISES]):
            if (
                promises[other, V_ENTRY] >= 0
                and promises[other, V_HELD] == 1
                and not _ranks_before(promises, other, promises[k, V_KEY], promises[k, V_JOB], promises[k, V_TASK])
                and not (made and _ranks_before(promises, other, key, job, task))
                and competes(t, shape, t.classes[promises[other, V_CLASS], C_SHAPE])
            ):
                _forget(t, promises, promised, other)
    for k in range(t.counts[COUNT_PROMISES]):
        if promises[k, V_ENTRY] >= 0 and promises[k, V_HELD] == HURT:
            if made and _ranks_before(promises, k, key, job, task):
                promises[k, V_HELD] = 1  # the next pass makes it anew
            else:
                _forget(t, promises, promised, k)


@inner
def _forget(t: Tables, promises: Table, promised: Table, promise: int) -> None:
    promises[promise, V_HELD] = 0
    if promises[promise, V_KIND] != KIND_NEVER:
        for place in range(promises[promise, V_ROW], promises[promise, V_ROW] + promises[promise, V_NODES]):
            make_stale(t, promised[place, Q_ROW])


@inner
def _leave_stale(t: Tables, promises: Table, promised: Table) -> None:
    """Rows of promises that the state holds and that cannot be kept are told of again when a cycle is repeated."""
    for k in range(t.counts[COUNT_PROMISES]):
        if promises[k, V_ENTRY] >= 0 and promises[k, V_HELD] != 1 and promises[k, V_KIND] != KIND_NEVER:
            for place in range(promises[k, V_ROW], promises[k, V_ROW] + promises[k, V_NODES]):
                make_stale(t, promised[place, Q_ROW])
        promises[k, V_HELD] = min(promises[k, V_HELD], 1)


@inner
def _build(t: Tables, promises: Table, promised: Table, now: int) -> bool:
    """Build what is stale. Returns whether promises cannot be kept; V_HELD = HURT says which."""
    hurt = False
    for k in range(t.counts[COUNT_STALE]):
        clear_row(t, t.stale[k])
    while t.counts[COUNT_STALE] > 0:
        t.counts[COUNT_STALE] -= 1
        row = t.stale[t.counts[COUNT_STALE]]
        t.rows[row, W_STALE] = 0
        if row < t.meta[M_ROWS] and build_row(t, promises, promised, row, now):
            place = t.rows[row, W_PROMISED]
            passed = 0
            while leads_on(t, place, passed, t.counts[COUNT_PROMISED]):
                passed += 1
                k = promised[place, Q_PROMISE]
                if promises[k, V_KIND] != KIND_CLAIM:
                    promises[k, V_HELD] = HURT
                    hurt = True
                place = promised[place, Q_CHAIN]
    return hurt


@inner
def _begin(t: Tables, promises: Table, promised: Table) -> bool:
    """Copy what is promised into scratch. Returns whether scratch and arenas are large enough to plan."""
    t.counts[COUNT_PROMISES] = t.meta[M_RESERVATIONS]
    t.counts[COUNT_PROMISED] = t.meta[M_PROMISED]
    warm_up(t)
    # All rows together need a point for each attempt and two for each promise; two more while promises move.
    if (
        promises.shape[0] < t.counts[COUNT_PROMISES] + 1
        or promised.shape[0] < t.counts[COUNT_PROMISED] + t.meta[M_ROWS]
        or t.profile.shape[0] < t.rows.shape[0] + t.meta[M_PIECES] + 4 * t.counts[COUNT_PROMISED] + 8
        or t.events.shape[1] < t.meta[M_PIECES] + 2 * t.counts[COUNT_PROMISED] + 8
    ):
        return False
    for i in range(t.counts[COUNT_PROMISED]):
        copy_record(promised, i, t.reserved, i)
    for k in range(t.counts[COUNT_PROMISES]):
        copy_record(promises, k, t.reservations, k)
    return True


@inner
def _wants_line(t: Tables, bucket: int) -> bool:
    """Whether work of a bucket, which some day could start, has no line yet."""
    class_id = t.buckets[bucket, B_CLASS]
    shape = t.classes[class_id, C_SHAPE]
    return bool(t.shapes[shape, S_LINE] == 0 and t.shapes[shape, S_EVER] >= t.classes[class_id, C_NODES])


@inner
def _much_is_missing(t: Tables, budget: int) -> bool:
    """Whether many rows are stale, or a line is wanted for which there is room."""
    if t.counts[COUNT_COLD] != 0 or t.counts[COUNT_STALE] * ROW_WORK > budget >> 3:
        return True
    if t.counts[COUNT_LINES] < t.lines.shape[0]:
        for place in range(t.meta[M_ACTIVE]):
            if _wants_line(t, t.active[place]):
                return True
    return False


@inner
def _build_some(t: Tables, promises: Table, promised: Table, now: int, budget: int) -> bool:
    """Build stale rows as long as the budget lasts. Returns whether lines may be drawn: all that can be built is.

    A row on which a promise cannot be kept stays stale, below the others: who decides next has to hear of it. What was
    spent on it is not told as work: it would be spent again each time.
    """
    link_promises(t, promises, promised)
    for k in range(t.counts[COUNT_STALE]):
        clear_row(t, t.stale[k])
    broken = 0
    spent = 0
    while t.counts[COUNT_STALE] > broken and spent < budget:
        last = t.counts[COUNT_STALE] - 1
        row = t.stale[last]
        work = ROW_WORK + ATTEMPT_WORK * t.rows[row, W_PIECES]
        spent += work
        if row < t.meta[M_ROWS] and build_row(t, promises, promised, row, now):
            t.stale[last] = t.stale[broken]
            t.stale[broken] = row
            broken += 1
        else:
            t.counts[COUNT_STALE] = last
            t.rows[row, W_STALE] = 0
            t.ticks[TICK_WORK] += work
    unlink_promises(t, promised)
    return bool(t.counts[COUNT_STALE] == broken)


@inner
def _draw_some(t: Tables, budget: int) -> None:
    """Draw lines for shapes that wait and have none, while there is room and as long as the budget lasts."""
    for place in range(t.meta[M_ACTIVE]):
        if t.counts[COUNT_LINES] >= t.lines.shape[0] or t.ticks[TICK_WORK] >= budget:
            break
        if _wants_line(t, t.active[place]):
            line_of(t, t.classes[t.buckets[t.active[place], B_CLASS], C_SHAPE])
            t.ticks[TICK_WORK] += t.meta[M_ROWS] >> LINE_SHIFT


@inner
def _is_closed(t: Tables, promises: Table, shape: int, key: int, job: int, task: int) -> bool:
    """Whether as many jobs ahead as may hold promises compete with a shape; once so in a cycle, it stays so."""
    if t.counts[COUNT_PROMISES] < t.meta[M_MAX_RESERVATIONS]:
        return False
    if t.shapes[shape, S_CLOSED_STAMP] == t.ticks[TICK]:
        return True
    ahead = 0
    for k in range(t.counts[COUNT_PROMISES]):
        if (
            promises[k, V_ENTRY] >= 0
            and _ranks_before(promises, k, key, job, task)
            and competes(t, shape, t.classes[promises[k, V_CLASS], C_SHAPE])
        ):
            ahead += 1
            if ahead >= t.meta[M_MAX_RESERVATIONS]:
                t.shapes[shape, S_CLOSED_STAMP] = t.ticks[TICK]
                return True
    return False


@inner
def _window(t: Tables, shape: int, nodes: int, now: int) -> int:
    """The longest planned time with which a class may start now beside all promises; -1 = none, INF = any. Exact."""
    if t.shapes[shape, S_FIT] < nodes:
        return -1
    if (
        nodes == 1
        and t.shapes[shape, S_BLOCK_STAMP] == t.ticks[TICK]
        and t.shapes[shape, S_BLOCKED] == t.counts[COUNT_LOG]
    ):
        return int(t.shapes[shape, S_UNTIL])
    line = line_of(t, shape)
    values = t.scratch[1]
    count = 0
    for row in range(t.meta[M_ROWS]):
        until = free_until(t, line, row, shape, now)
        if until > now:
            values[count] = -until
            count += 1
    t.ticks[TICK_WORK] += 1 + (t.meta[M_ROWS] >> LOOK_SHIFT)
    longest = -1
    if count >= nodes:
        until = -select(values, count, nodes - 1)
        longest = INF if until >= INF else until - now
    if nodes == 1:
        t.shapes[shape, S_BLOCK_STAMP] = t.ticks[TICK]
        t.shapes[shape, S_BLOCKED] = t.counts[COUNT_LOG]
        t.shapes[shape, S_UNTIL] = longest
    return int(longest)


@inner
def _list_events(t: Tables, pass_wake: int) -> int:
    """List in scratch[6] the rows on which an event freed something for this pass to see; how many they are."""
    events = t.scratch[6]
    count = 0
    for k in range(t.meta[M_FREED]):
        row = t.freed[k]
        if t.meta[M_SEEN] < t.rows[row, W_EVENT] <= pass_wake:
            events[count] = row
            count += 1
    return count


@inner
def _is_woken(t: Tables, promises: Table, promise: int, events: int) -> bool:
    """Whether an event freed something that a promised job could use. Where only promises moved, it looks later."""
    shape = t.classes[promises[promise, V_CLASS], C_SHAPE]
    t.ticks[TICK_WORK] += 1 + (events >> 3)
    for k in range(events):
        if reaches(t, shape, t.scratch[6][k]):
            return True
    t.ticks[TICK_WORK] += t.meta[M_FREED] >> LOOK_SHIFT
    for k in range(t.meta[M_FREED]):
        if reaches(t, shape, t.freed[k]):
            promises[promise, V_BEHIND] = 1
            break
    return False


@inner
def _forward(t: Tables, promises: Table, promised: Table, promise: int, now: int, events: int) -> tuple[int, int]:
    """Whether a promise may find an earlier place: only on rows where something came free since it last looked.

    Returns (NOWHERE, 0); (row, its start) for a promise of one row that moves there; or (ANYWHERE, where to begin).
    """
    if not _is_woken(t, promises, promise, events):
        return NOWHERE, 0
    count = t.meta[M_FREED] + t.counts[COUNT_FREED]
    many = t.meta[M_ROWS] >> 3 if promises[promise, V_NODES] > 1 else t.meta[M_ROWS]
    if promises[promise, V_BEHIND] == 1 or count > many:
        promises[promise, V_BEHIND] = 0
        return ANYWHERE, now
    t.ticks[TICK_WORK] += count >> LOOK_SHIFT
    shape = t.classes[promises[promise, V_CLASS], C_SHAPE]
    planned = promises[promise, V_PLANNED]
    line = near_line(t, shape)
    own = _own_came_free(t, promises, promised, promise)
    if own and (promises[promise, V_NODES] > 1 or waits_apart(t, shape)):
        return ANYWHERE, now
    # Its own row came free in part: what it holds itself must not stand in its way.
    log, stale = lines_mark(t)
    mine = promised[promises[promise, V_ROW], Q_ROW] if own else -1
    if own:
        let_go(t, promises, promised, promise)
    best = promises[promise, V_START]
    found, best = _soonest(t, t.freed, t.meta[M_FREED], line, mine, shape, now, planned, NOWHERE, best)
    found, best = _soonest(t, t.scratch[5], t.counts[COUNT_FREED], line, mine, shape, now, planned, found, best)
    if own:
        put_back(t, promises, promised, promise, -1, shape, log, stale)
    if found >= 0 and (promises[promise, V_NODES] > 1 or best == now):
        return ANYWHERE, best
    return found, best


@inner
def _own_came_free(t: Tables, promises: Table, promised: Table, promise: int) -> bool:
    """Whether one of the rows where something came free is a promise's own."""
    for place in range(promises[promise, V_ROW], promises[promise, V_ROW] + promises[promise, V_NODES]):
        row = promised[place, Q_ROW]
        if t.rows[row, W_FREED] != 0 or t.rows[row, W_STAMP] == t.ticks[TICK]:
            return True
    return False


@inner
def _soonest(
    t: Tables, freed: Ints, count: int, line: int, mine: int, shape: int, now: int, planned: int, found: int, best: int
) -> tuple[int, int]:
    """A row of these that lets a promise of one row start before `best`, or at it when `found` does too: (row, start).

    Of those that let it start first the highest, as `_rows_later` chooses. The line does not know row `mine`.
    """
    for k in range(count):
        row = freed[k]
        known = -1 if row == mine else line
        if known >= 0 and t.line_begin[line, row] > best:
            continue
        begin = next_start(t, known, row, shape, now, planned, best + 1)
        if begin < best or (begin == best and found >= 0 and row > found):
            best = begin
            found = row
    return found, best


@inner
def _note_freed(t: Tables, promises: Table, promised: Table, promise: int) -> None:
    """A promise left its rows in this cycle: those that did not come free before are listed in scratch[5]."""
    local = t.scratch[5]
    for place in range(promises[promise, V_ROW], promises[promise, V_ROW] + promises[promise, V_NODES]):
        row = promised[place, Q_ROW]
        if row >= 0 and t.rows[row, W_FREED] == 0 and t.rows[row, W_STAMP] != t.ticks[TICK]:
            t.rows[row, W_STAMP] = t.ticks[TICK]
            local[t.counts[COUNT_FREED]] = row
            t.counts[COUNT_FREED] += 1


@inner
def _rows_later(t: Tables, line: int, shape: int, nodes: int, planned: int, begin: int, out: Ints) -> None:
    """Rows for a promise: of those that hold the shape from `begin` on, the ones that come free latest."""
    ranks = t.scratch[1]
    candidates = t.scratch[2]
    count = 0
    for k in range(may_hold(t, line, begin + 1)):
        row = candidates[k]
        if next_start(t, line, row, shape, begin, planned, begin + 1) == begin:
            ranks[count] = -came_free(t, line, row, shape, begin)
            candidates[count] = row
            count += 1
    pick(t, count, nodes, False, out, 0)


@inner
def _rows_now(
    t: Tables, promises: Table, promised: Table, line: int, shape: int, nodes: int, planned: int, now: int, out: Ints,
    offset: int,
) -> None:  # fmt: skip
    """Rows for a start: first rows promised to others from its end on, then unpromised ones, by score or row."""
    resources = t.meta[M_RESOURCES]
    ranks = t.scratch[1]
    candidates = t.scratch[2]
    end = min(now + planned, INF)
    count = 0
    for k in range(may_hold(t, line, now + 1)):
        row = candidates[k]
        if next_start(t, line, row, shape, now, planned, now + 1) != now:
            continue
        tier = TIER_FREE
        place = t.rows[row, W_PROMISED]
        if place >= 0:
            tier = TIER_SHORT
            passed = 0
            while leads_on(t, place, passed, t.counts[COUNT_PROMISED]):
                passed += 1
                promise = promised[place, Q_PROMISE]
                if promises[promise, V_KIND] != KIND_PROMISE or end > promises[promise, V_START]:
                    tier = TIER_EXTRA
                place = promised[place, Q_CHAIN]
        score = 0
        if t.meta[M_PLACEMENT] == PLACE_BEST:
            score = tightness(t, row, shape, resources)
        elif t.meta[M_PLACEMENT] != PLACE_FIRST:
            score = t.scores[t.shapes[shape, S_SCORES], row]
        ranks[count] = tier * 4 * SCORE_ONE - score
        candidates[count] = row
        count += 1
    pick(t, count, nodes, True, out, offset)


@inner
def _claim_rows(t: Tables, shape: int, nodes: int, now: int, out: Ints) -> int:
    """Rows for a job whose time is never: first those that fit now, then those that could; none that is booked."""
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    found = 0
    for later in range(2):
        for row in range(t.meta[M_ROWS]):
            if (
                found < nodes
                and t.allowed[cset, row] != 0
                and fits(t, t.capacity, row, shape, resources)
                and fits(t, t.free, row, shape, resources) == (later == 0)
                and (t.meta[M_BOOKINGS] == 0 or booked_start(t, row, shape, now, t.ticks[TICK_WALL]) == now)
            ):
                out[found] = row
                found += 1
    return found


@inner
def _let_go_behind(
    t: Tables, promises: Table, promised: Table, shape: int, mine: int, key: int, job: int, task: int
) -> bool:
    """Promises behind a place of the order that compete with a shape count no more: they are made anew in turn."""
    some = False
    for k in range(t.counts[COUNT_PROMISES]):
        if (
            k != mine
            and promises[k, V_ENTRY] >= 0
            and promises[k, V_HELD] == 1
            and not _ranks_before(promises, k, key, job, task)
            and competes(t, shape, t.classes[promises[k, V_CLASS], C_SHAPE])
        ):
            _note_freed(t, promises, promised, k)
            let_go(t, promises, promised, k)
            some = True
    return some


@inner
def _drop_behind(
    t: Tables, promises: Table, promised: Table, bucket: int, key: int, job: int, task: int
) -> tuple[bool, bool]:
    """Promises of a bucket from a place of the order on end: its queue is strict and somebody ahead waits.

    Returns whether there was one, and whether one left rows that it held until now.
    """
    some = False
    vacated = False
    for k in range(t.counts[COUNT_PROMISES]):
        entry = promises[k, V_ENTRY]
        if entry >= 0 and t.entries[entry, E_BUCKET] == bucket and not _ranks_before(promises, k, key, job, task):
            _note_freed(t, promises, promised, k)
            if promises[k, V_HELD] == 1:
                vacated = vacated or promises[k, V_KIND] != KIND_NEVER
                let_go(t, promises, promised, k)
            promises[k, V_ENTRY] = -1
            some = True
    return some, vacated


@inner
def _waking(t: Tables, promises: Table, promised: Table, promise: int, now: int) -> int:
    """When a promise wants a cycle though nothing happens: at its start, unless that follows an attempt that outlives
    its plan and will be reported; where its time is never, when it may claim rows."""
    kind = promises[promise, V_KIND]
    if kind == KIND_NEVER:
        since = t.entries[promises[promise, V_ENTRY], E_BLOCKED_AT]
        return int((now if since < 0 else since) + t.meta[M_CLAIM_AFTER])
    if kind != KIND_PROMISE or promises[promise, V_START] <= now:
        return INF
    if promises[promise, V_START] == now + 1:
        for place in range(promises[promise, V_ROW], promises[promise, V_ROW] + promises[promise, V_NODES]):
            if t.rows[promised[place, Q_ROW], W_LATE] == 1:
                return INF
        if waits_for_late(t, t.classes[promises[promise, V_CLASS], C_SHAPE], now):
            return INF
    return int(promises[promise, V_START])


@inner
def _compact(t: Tables, promises: Table, promised: Table) -> None:
    """Drop the promises of jobs that started or went away; rows move up.

    Each keeps places for all its nodes: a claim that found fewer rows may find more the next time.
    """
    kept = 0
    used = 0
    for k in range(t.counts[COUNT_PROMISES]):
        if promises[k, V_ENTRY] < 0:
            continue
        offset = promises[k, V_ROW]
        nodes = t.classes[promises[k, V_CLASS], C_NODES]
        for i in range(nodes):
            copy_record(promised, used + i, promised, offset + i)
            promised[used + i, Q_PROMISE] = kept
        copy_record(promises, kept, promises, k)
        promises[kept, V_ROW] = used
        used += nodes
        kept += 1
    t.counts[COUNT_PROMISES] = kept
    t.counts[COUNT_PROMISED] = used


@inner
def _candidates(t: Tables, key: int, seq: int, tie: int, everywhere: bool) -> int:
    size = 0
    for place in range(t.meta[M_ACTIVE]):
        bucket = t.active[place]
        queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
        strict = t.queues[queue, Y_STRICT] != 0  # who is first is known only from all that wait
        if t.queues[queue, Y_SHUT] != 0:
            continue
        if not everywhere and not strict and t.buckets[bucket, B_INSERT] <= t.meta[M_PARKED_INSERTS]:
            continue
        class_id = t.buckets[bucket, B_CLASS]
        if t.shapes[t.classes[class_id, C_SHAPE], S_EVER] < t.classes[class_id, C_NODES]:
            if strict:
                wait_strictly(t, bucket, queue, t.buckets[bucket, B_HEAD], t.ticks[TICK])
            continue
        entry = tree_seek(t.rank, t.buckets[bucket, B_ROOT], key - t.buckets[bucket, B_OFFSET], seq, tie, INF, t.path)
        if entry >= 0:
            _put(t, size, bucket, entry)
            size += 1
    heap_order(t.heap, size)
    return size


@inner
def _put(t: Tables, at: int, bucket: int, entry: int) -> None:
    t.heap[at, 0] = 0
    t.heap[at, 1] = t.entries[entry, E_KEY] + t.buckets[bucket, B_OFFSET]
    t.heap[at, 2] = t.entries[entry, E_JOB]
    t.heap[at, 3] = bucket
    t.buckets[bucket, B_CANDIDATE] = entry


@kernel
def learn(
    at: Any, promise_arena: Table, promise_at: int, promised_arena: Table, promised_at: int, now: int, budget: int
) -> int:
    """Bring a part of what is kept about rows up to date, where much of it is missing. Returns the work that it took.

    -1 asks for larger scratch and arenas. Less than half of `budget`: what is left, if anything, is no slice's work.
    Nothing that is ever decided depends on this having been called; the next cycle takes less long.
    """
    t = tables(at)
    t.ticks[TICK_WORK] = 0
    promises = promise_arena[promise_at:]
    promised = promised_arena[promised_at:]
    if t.meta[M_ROWS] <= FEW_ROWS or not _much_is_missing(t, budget):
        return 0
    if not _begin(t, promises, promised):
        return -1
    if _build_some(t, promises, promised, now, budget):
        _draw_some(t, budget)
    return int(t.ticks[TICK_WORK])


@kernel
def cycle(
    at: Any, starts: Any, start_at: int, start_rows: Ints, row_at: int, promise_arena: Table,
    promise_at: int, promised_arena: Table, promised_at: int, verdict_arena: Any, verdict_at: int, now: int, budget:
    int, max_starts: int, resumed: bool, full: bool, pass_wake: int, pass_inserts: int, lane: int, key: int, seq:
    int, tie: int, stops: int,
) -> Slice:  # fmt: skip
    """One slice; outputs and return as `easy.cycle`. A first item of -1 asks for larger scratch and arenas."""
    t = tables(at)
    out = t.scratch[4]
    promises = promise_arena[promise_at:]
    promised = promised_arena[promised_at:]
    verdicts = verdict_arena[verdict_at : verdict_at + MAX_VERDICTS]
    t.ticks[TICK] += 1
    t.ticks[TICK_WORK] = 0
    t.ticks[TICK_NOW] = now
    resources = t.meta[M_RESOURCES]
    rows = t.meta[M_ROWS]
    if not resumed:
        pass_wake = t.meta[M_EPOCH]
        pass_inserts = t.meta[M_INSERTS]
        full = t.meta[M_DIRTY] != 0  # promises are looked at again; else only work that has none
        for k in range(t.meta[M_RESERVATIONS]):
            kind = t.reservations[k, V_KIND]
            entry = t.reservations[k, V_ENTRY]
            if entry >= 0 and kind == KIND_PROMISE and now >= t.reservations[k, V_START]:
                full = True
            elif entry >= 0 and kind == KIND_NEVER:
                full = full or now - t.entries[entry, E_BLOCKED_AT] >= t.meta[M_CLAIM_AFTER]
            if entry >= 0 and search_at(t, entry, 0) <= now:
                full = True
        key = LOWEST
        seq = -1
        tie = -1
    replans = t.meta[M_DIRTY] != 0 and not resumed
    wake = min(next_timer(t), min(t.meta[M_NEXT_EDGE], t.meta[M_BOOKING_EDGE]))
    t.counts[COUNT_FREED] = 0
    short = not _begin(t, promises, promised)
    if short:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    for k in range(t.counts[COUNT_PROMISES]):
        if (
            full
            and promises[k, V_ENTRY] >= 0
            and t.shapes[t.classes[promises[k, V_CLASS], C_SHAPE], S_EVER] < t.classes[promises[k, V_CLASS], C_NODES]
        ):
            _forget(t, promises, promised, k)
            promises[k, V_ENTRY] = -1  # nothing that is up could hold it any more
    if t.meta[M_DROPS] > 0:
        replans = _forget_overtaken(t, promises, promised, resumed, key, seq, tie) or replans
    link_promises(t, promises, promised)
    mark_late(t, now)
    if _build(t, promises, promised, now):
        _forget_hurt(t, promises, promised, resumed, key, seq, tie)
        replans = True
        full = True
        link_promises(t, promises, promised)
        _build(t, promises, promised, now)
        _leave_stale(t, promises, promised)
    if resumed:
        close_strict_queues(t, key, seq, t.ticks[TICK])
    everywhere = full or t.meta[M_PARKING] == 0 or t.meta[M_PARKED_WAKE] < t.meta[M_WAKE]
    size = _candidates(t, key, seq, tie, everywhere)
    events = _list_events(t, pass_wake)
    started = 0
    used = 0
    refusals = 0
    unfinished = 0
    vacated = resumed and lane == VACATED
    pops = 0
    while looks_on(t, size > 0, pops):
        pops += 1
        bucket = t.heap[0, 3]
        entry = t.buckets[bucket, B_CANDIDATE]
        key = t.heap[0, 1]
        seq = t.heap[0, 2]
        tie = t.entries[entry, E_FIRST]
        t.ticks[TICK_WALL] = t.entries[entry, E_WALL]
        if t.ticks[TICK_WORK] >= budget:
            unfinished = 1
            break
        t.ticks[TICK_WORK] += 1
        queue = t.owners[t.buckets[bucket, B_OWNER], O_QUEUE]
        strict = t.queues[queue, Y_STRICT] != 0
        if waits_behind(t, queue, key, seq, t.ticks[TICK]):
            dropped, left = _drop_behind(t, promises, promised, bucket, key, seq, tie)
            replans = replans or dropped
            vacated = vacated or left
            size -= 1
            for c in range(4):
                t.heap[0, c] = t.heap[size, c]
            heap_down(t.heap, size, 0)
            continue
        class_id = t.buckets[bucket, B_CLASS]
        shape = t.classes[class_id, C_SHAPE]
        nodes = t.classes[class_id, C_NODES]
        planned = within_booking(t, shape, now, t.entries[entry, E_PLANNED])
        mine = t.entries[entry, E_RESERVED]
        first = t.entries[entry, E_FIRST]
        if stops != 0 and not may_preempt(t, bucket):
            unfinished = STOP_RESUME
            break
        wall = t.entries[entry, E_WALL]
        held = mine >= 0 and promises[mine, V_HELD] == 1
        longest = INF
        closed = _is_closed(t, promises, shape, key, seq, tie)
        if closed:
            longest = _window(t, shape, nodes, now)
            if mine >= 0:
                _note_freed(t, promises, promised, mine)
                if held:
                    vacated = vacated or promises[mine, V_KIND] != KIND_NEVER
                    let_go(t, promises, promised, mine)
                promises[mine, V_ENTRY] = -1
                mine = -1
                held = False
                replans = True
        waits = True
        if (full or not held) and planned <= longest:
            lacking = full_ledger(t, bucket, wall) >= 0
            # A promise that no freed row can bring forward stays; one that is due, or has no time, is looked at.
            limit = INF
            since = now
            stays = False
            if held and not lacking and promises[mine, V_KIND] == KIND_PROMISE and promises[mine, V_START] > now:
                limit = promises[mine, V_START]
                behind = promises[mine, V_BEHIND]
                where, since = _forward(t, promises, promised, mine, now, events)
                stays = where != ANYWHERE
                replans = replans or promises[mine, V_BEHIND] != behind
                if waits_apart(t, shape):
                    stays = False  # rows do not tell when licences come free
                    since = now
                elif where >= 0:
                    _note_freed(t, promises, promised, mine)
                    let_go(t, promises, promised, mine)
                    promises[mine, V_START] = since
                    promised[promises[mine, V_ROW], Q_ROW] = where
                    hold(t, promises, promised, mine)
                    replans = True
            log, stale = lines_mark(t)
            if held and not stays:
                let_go(t, promises, promised, mine)
            task = 0
            begin = limit
            line = -1
            while not stays and not lacking and task < t.entries[entry, E_TASKS]:
                if (
                    started >= max_starts
                    or start_at + started >= starts.shape[0]
                    or row_at + used + nodes > start_rows.shape[0]
                    or (task > 0 and t.ticks[TICK_WORK] >= budget)
                ):
                    unfinished = 1
                    break
                if (
                    room_for_points(t) < 4 * nodes + 4
                    or t.counts[COUNT_PROMISES] + 1 > promises.shape[0]
                    or t.counts[COUNT_PROMISED] + nodes > promised.shape[0]
                ):
                    short = True
                    break
                line = line_of(t, shape)
                t.ticks[TICK_WORK] += 1 + (rows >> (BOUND_SHIFT if limit < INF else LOOK_SHIFT))
                begin = earliest(t, line, shape, nodes, planned, since, limit)
                tries = 0
                # Each goes on later: to where a licence comes back, or rows come free.
                most = t.profile.shape[0] + t.holding.shape[1] + t.licence_events.shape[1] + t.bookings.shape[0]
                while goes_on(t, waits_apart(t, shape) and begin < limit, tries, most):
                    tries += 1
                    later = licence_start(
                        t, promises, t.counts[COUNT_PROMISES], mine, shape, begin, planned, wall, now, starts, start_at,
                        started,
                    )  # fmt: skip
                    if later == begin:
                        break
                    begin = earliest(t, line, shape, nodes, planned, later, limit) if later < limit else INF
                if begin != now or not licences_there(t, promises, shape, wall, now, starts, start_at, started):
                    break
                _rows_now(t, promises, promised, line, shape, nodes, planned, now, start_rows, row_at + used)
                start = starts[start_at + started]
                start["job"] = t.entries[entry, E_JOB]
                start["task"] = first + task
                start["attempt"] = t.entries[entry, E_ATTEMPT]
                start["row_offset"] = used
                start["row_count"] = nodes
                start["entry"] = entry
                for i in range(row_at + used, row_at + used + nodes):
                    row = start_rows[i]
                    change_span(t, row, shape, now, min(now + planned, INF), -1)
                    for r in range(resources):
                        t.free[row, r] -= t.request[r, shape]
                charge_ledgers(t, bucket, wall, 1)
                take_licences(t, shape, 1)
                lacking = full_ledger(t, bucket, wall) >= 0
                started += 1
                used += nodes
                task += 1
                since = now
                limit = INF
                t.ticks[TICK_WORK] += nodes
                if task < t.entries[entry, E_TASKS]:
                    # An array holds one promise, for its next task; the tasks after it rank before all that follow.
                    replans = _let_go_behind(t, promises, promised, shape, mine, key, seq, tie + 1) or replans
            if short:
                break
            if unfinished == 0 and task < t.entries[entry, E_TASKS] and not lacking:
                if search_at(t, entry, task) <= now:
                    unfinished = STOP_SEARCH
                elif stops != 0:
                    unfinished = STOP_RESUME
            if unfinished != 0:
                # The slice ends inside this array; the next one goes on with its next task.
                tie += task
                if held and task == 0:
                    if not stays:
                        put_back(t, promises, promised, mine, line, shape, log, stale)
                elif mine >= 0:
                    promises[mine, V_TASK] = first + task
                    replans = True
                break
            waits = task < t.entries[entry, E_TASKS]
            if task == t.entries[entry, E_TASKS] or lacking:
                # All started, or a ledger is full, which earns no promise.
                if lacking and task < t.entries[entry, E_TASKS] and refusals < verdicts.shape[0]:
                    verdicts[refusals]["job"] = t.entries[entry, E_JOB]
                    verdicts[refusals]["task"] = first + task
                    verdicts[refusals]["reason"] = REASON_LEDGER
                    verdicts[refusals]["short_rows"] = 0
                    refusals += 1
                if mine >= 0:
                    _note_freed(t, promises, promised, mine)
                    promises[mine, V_ENTRY] = -1
                    replans = True
            else:
                if stays or (held and task == 0 and limit < INF and begin >= limit):
                    if not stays:
                        put_back(t, promises, promised, mine, line, shape, log, stale)
                    if promises[mine, V_KEY] != key:
                        promises[mine, V_KEY] = key
                        replans = True
                else:
                    if mine < 0 and not closed:
                        mine = t.counts[COUNT_PROMISES]
                        t.counts[COUNT_PROMISES] += 1
                        promises[mine, V_ENTRY] = entry
                        promises[mine, V_JOB] = t.entries[entry, E_JOB]
                        promises[mine, V_CLASS] = class_id
                        promises[mine, V_ROW] = t.counts[COUNT_PROMISED]
                        promises[mine, V_NODES] = 0
                        promises[mine, V_START] = -1
                        promises[mine, V_HELD] = 0
                        promises[mine, V_DIRTY] = 0
                        t.counts[COUNT_PROMISED] += nodes
                    if mine >= 0:
                        kind = KIND_PROMISE if begin < INF else KIND_NEVER
                        if begin >= INF:
                            since = t.entries[entry, E_BLOCKED_AT]
                            if since >= 0 and now - since >= t.meta[M_CLAIM_AFTER]:
                                kind = KIND_CLAIM
                        found = nodes
                        out[:nodes] = -1  # a promise of 'never' names no rows yet
                        if kind == KIND_PROMISE:
                            _rows_later(t, line, shape, nodes, planned, begin, out)
                            t.ticks[TICK_WORK] += nodes + (rows >> LOOK_SHIFT)
                        elif kind == KIND_CLAIM:
                            found = _claim_rows(t, shape, nodes, now, out)
                        offset = promises[mine, V_ROW]
                        moved = (
                            promises[mine, V_START] != begin
                            or promises[mine, V_KIND] != kind
                            or promises[mine, V_NODES] != found
                        )
                        for i in range(found):
                            moved = moved or promised[offset + i, Q_ROW] != out[i]
                        if moved:
                            replans = True
                            _note_freed(t, promises, promised, mine)
                            if kind == KIND_CLAIM:
                                _let_go_behind(t, promises, promised, shape, mine, key, seq, first + task + 1)
                        promises[mine, V_TASK] = first + task
                        promises[mine, V_KEY] = key
                        promises[mine, V_START] = begin
                        promises[mine, V_PLANNED] = planned
                        promises[mine, V_KIND] = kind
                        promises[mine, V_BEHIND] = 0
                        promises[mine, V_NODES] = found
                        for i in range(nodes):
                            promised[offset + i, Q_ROW] = out[i] if i < found else -1
                            promised[offset + i, Q_PROMISE] = mine
                        replans = replans or task > 0 or not held
                        hold(t, promises, promised, mine)
                if refusals < verdicts.shape[0]:
                    lacking = nodes - t.shapes[shape, S_FIT]
                    verdicts[refusals]["job"] = t.entries[entry, E_JOB]
                    verdicts[refusals]["task"] = first + task
                    verdicts[refusals]["reason"] = REASON_RESOURCES if lacking > 0 else REASON_PROMISED
                    verdicts[refusals]["short_rows"] = max(lacking, 0)
                    refusals += 1
        if strict:
            longest = INF
            if waits:
                t.queues[queue, Y_CLOSED_STAMP] = t.ticks[TICK]
        following = tree_seek(
            t.rank, t.buckets[bucket, B_ROOT], key - t.buckets[bucket, B_OFFSET], seq, first + 1, longest, t.path
        )
        if following >= 0:
            _put(t, 0, bucket, following)
        else:
            size -= 1
            for c in range(4):
                t.heap[0, c] = t.heap[size, c]
        heap_down(t.heap, size, 0)
    for k in range(start_at, start_at + started):
        charge_ledgers(t, t.entries[starts[k]["entry"], E_BUCKET], t.entries[starts[k]["entry"], E_WALL], -1)
        shape = t.classes[t.buckets[t.entries[starts[k]["entry"], E_BUCKET], B_CLASS], C_SHAPE]
        take_licences(t, shape, -1)
        for i in range(row_at + starts[k]["row_offset"], row_at + starts[k]["row_offset"] + starts[k]["row_count"]):
            for r in range(resources):
                t.free[start_rows[i], r] += t.request[r, shape]
    unlink_promises(t, promised)
    if short:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if unfinished == 0 and stops != 0:
        unfinished = STOP_RESUME
    for k in range(t.counts[COUNT_PROMISES]):
        if unfinished == 0 and full and promises[k, V_ENTRY] >= 0 and promises[k, V_HELD] == 0:
            promises[k, V_ENTRY] = -1  # enough others are ahead of it now
        if promises[k, V_ENTRY] >= 0:
            wake = min(wake, _waking(t, promises, promised, k, now))
            wake = min(wake, max(search_at(t, promises[k, V_ENTRY], 0), now + 1))
    if unfinished == 0 and vacated:
        unfinished = STOP_ANEW  # who ranks before was placed around rows that came free after its turn
    _compact(t, promises, promised)
    if t.counts[COUNT_PROMISES] != t.meta[M_RESERVATIONS]:
        replans = True
    changes = started > 0 or replans
    if unfinished == 0 and t.meta[M_ACTIVE] > 0:
        changes = changes or t.meta[M_PARKED_WAKE] != pass_wake or t.meta[M_PARKED_INSERTS] != pass_inserts
    return (
        started,
        used,
        int(replans),
        t.counts[COUNT_PROMISES],
        t.counts[COUNT_PROMISED],
        refusals,
        unfinished,
        VACATED if vacated else 0,
        key,
        seq,
        tie,
        wake,
        t.ticks[TICK_WORK],
        pass_wake,
        pass_inserts,
        int(full),
        int(changes),
        t.meta[M_VERSION],
    )
