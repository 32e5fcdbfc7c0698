"""Licences and other amounts of the whole cluster: what is there, what waits for it, when it comes free.

Pure. A shape asks for `wants[shape, licence]`; one start takes that once, however many nodes it has. What is in use is
counted where starts are assumed and ends are applied, so more than there is can never be held. A job that waits for
licences is promised an instant like one that waits for nodes; until then others may use what comes back in time
(EASY), or what no promise of theirs needs (timelines). O(licences), and O(attempts) to look into the future.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.booked import inside_start, within_booking
from hal.core.kernels.bounds import goes_on
from hal.core.kernels.jit import inner
from hal.core.kernels.layout import (
    B_CLASS,
    BACKFILL_CONSERVATIVE,
    C_SHAPE,
    E_BUCKET,
    E_PLANNED,
    E_WALL,
    INF,
    J_AT,
    J_GAIN,
    J_LICENCE,
    K_END,
    K_NAME,
    K_START,
    KIND_CLAIM,
    KIND_PROMISE,
    M_BACKFILL,
    M_BOOKINGS,
    M_CHANGES,
    M_DIRTY,
    M_EPOCH,
    M_LICENCES,
    M_RESERVATIONS,
    M_RUN_TOP,
    M_SHAPES,
    M_VERSION,
    M_WAKE,
    R_BUCKET,
    R_END,
    R_NODES,
    R_START,
    R_WALL,
    S_BOOKING,
    S_INSIDE,
    S_LICENCES,
    S_WAKE,
    TICK,
    TICK_LISTED,
    TICK_LISTED_USED,
    TICK_LISTED_VERSION,
    TICK_WORK,
    V_CLASS,
    V_DIRTY,
    V_ENTRY,
    V_HELD,
    V_KIND,
    V_PLANNED,
    V_START,
    Z_EXTRA,
    Z_HELD,
    Z_LISTED,
    Z_LISTED_COUNT,
    Z_PARENT,
    Z_SHADOW,
    Z_TOTAL,
    Z_USED,
    Z_WHOLE,
)
from hal.core.kernels.memory import Tables
from hal.core.kernels.sorting import sort_pairs
from hal.core.kernels.treap import Table
from hal.core.kernels.wants import share_licences, take_licences

Ints = NDArray[np.int64]

LOOK_SHIFT: Final = 4
"""So many attempts or promises looked at, as a power of two, are one unit of work."""


@inner
def give_licences(t: Tables, shape: int) -> None:
    """An attempt has ended: what it held is free; who waits for that is looked at again."""
    if t.shapes[shape, S_LICENCES] == 0:
        return
    take_licences(t, shape, -1)
    for s in range(t.meta[M_SHAPES]):
        if _wakes(t, shape, s):
            t.shapes[s, S_WAKE] = t.meta[M_EPOCH]
    for k in range(t.meta[M_RESERVATIONS]):
        if _wakes(t, shape, t.classes[t.reservations[k, V_CLASS], C_SHAPE]):
            t.reservations[k, V_DIRTY] = 1
            if t.meta[M_BACKFILL] == BACKFILL_CONSERVATIVE:
                t.meta[M_DIRTY] = 1
                t.meta[M_WAKE] = t.meta[M_EPOCH]


@inner
def _wakes(t: Tables, gave: int, waits: int) -> bool:
    """Whether two shapes want of the same licence, inside or outside bookings."""
    if t.shapes[waits, S_LICENCES] != 0:
        for one in range(t.meta[M_LICENCES]):
            for other in range(t.meta[M_LICENCES] if t.wants[gave, one] > 0 else 0):
                if t.wants[waits, other] > 0 and t.licences[one, Z_PARENT] == t.licences[other, Z_PARENT]:
                    return True
    return False


@inner
def licences_there(
    t: Tables, promises: Table, shape: int, wall: int, now: int, starts: Any, start_at: int, start_count: int
) -> bool:
    """Whether what a shape wants is free now and stays so for the walltime, whatever bookings set aside meanwhile."""
    if t.shapes[shape, S_LICENCES] == 0:
        return True
    if not licences_now(t, shape):
        return False
    if t.meta[M_CHANGES] == 0:
        return True
    return licence_start(t, promises, 0, -1, shape, now, wall, wall, now, starts, start_at, start_count) == now


@inner
def licences_now(t: Tables, shape: int) -> bool:
    """Whether what a shape wants is free at this instant."""
    for licence in range(t.meta[M_LICENCES] if t.shapes[shape, S_LICENCES] != 0 else 0):
        want = t.wants[shape, licence]
        parent = t.licences[licence, Z_PARENT]
        if want > 0 and (
            want > t.licences[licence, Z_TOTAL] - t.licences[licence, Z_USED]
            or want > t.licences[parent, Z_WHOLE] - t.licences[parent, Z_HELD]
        ):
            return False
    return True


# --- EASY: one promise for each licence -------------------------------------------------------------------------------


@inner
def licences_promised(t: Tables, shape: int, end: int) -> bool:
    """Whether what a shape wants is promised to a job ahead before the planned end of a start now."""
    if t.shapes[shape, S_LICENCES] != 0:
        for licence in range(t.meta[M_LICENCES]):
            want = t.wants[shape, licence]
            if want > 0 and end > t.licences[licence, Z_SHADOW] and want > t.licences[licence, Z_EXTRA]:
                return True
    return False


@inner
def use_extra(t: Tables, shape: int, end: int) -> None:
    """A start that outlasts a promise uses what is left beside it."""
    if t.shapes[shape, S_LICENCES] != 0:
        for licence in range(t.meta[M_LICENCES]):
            if end > t.licences[licence, Z_SHADOW]:
                t.licences[licence, Z_EXTRA] -= t.wants[shape, licence]


@inner
def note_promised(
    t: Tables, promises: Table, count: int, now: int, starts: Any, start_at: int, start_count: int
) -> None:
    """Write down until when each licence may be used by others (`Z_SHADOW`), and how much of it beyond (`Z_EXTRA`)."""
    for licence in range(t.meta[M_LICENCES]):
        t.licences[licence, Z_SHADOW] = INF
        t.licences[licence, Z_EXTRA] = INF
    for k in range(count if t.meta[M_LICENCES] > 0 else 0):
        shape = t.classes[promises[k, V_CLASS], C_SHAPE]
        kind = promises[k, V_KIND]
        if promises[k, V_ENTRY] < 0 or t.shapes[shape, S_LICENCES] == 0 or kind not in (KIND_PROMISE, KIND_CLAIM):
            continue
        at = promises[k, V_START] if kind == KIND_PROMISE else now - 1
        for licence in range(t.meta[M_LICENCES]):
            want = t.wants[shape, licence]
            if want > 0:
                free = t.licences[licence, Z_TOTAL] - t.licences[licence, Z_USED]
                if kind == KIND_PROMISE:
                    free += _given_by(t, licence, at, now, starts, start_at, start_count)
                    for j in range(t.meta[M_CHANGES]):
                        if t.changes[j, J_LICENCE] == licence and t.changes[j, J_AT] <= at:
                            free += t.changes[j, J_GAIN]
                t.licences[licence, Z_SHADOW] = at
                t.licences[licence, Z_EXTRA] = max(free - want, 0)


@inner
def _given_by(t: Tables, licence: int, at: int, now: int, starts: Any, start_at: int, start_count: int) -> int:
    """How much of a licence comes back up to and including `at`."""
    given = 0
    for run in range(t.meta[M_RUN_TOP]):
        if t.runs[run, R_NODES] > 0 and max(t.runs[run, R_END], now + 1) <= at:
            given += t.wants[t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE], licence]
    for k in range(start_at, start_at + start_count):
        entry = starts[k]["entry"]
        shape = t.classes[t.buckets[t.entries[entry, E_BUCKET], B_CLASS], C_SHAPE]
        if now + within_booking(t, shape, now, t.entries[entry, E_PLANNED]) <= at:
            given += t.wants[shape, licence]
    return int(given)


@inner
def licence_shadow(
    t: Tables, promises: Table, shape: int, planned: int, wall: int, now: int, starts: Any, start_at: int,
    start_count: int,
) -> int:  # fmt: skip
    """The earliest instant at which what a shape wants is there, by planned ends; -1 = never."""
    begin = licence_start(t, promises, 0, -1, shape, now, planned, wall, now, starts, start_at, start_count)
    return begin if begin < INF else -1


@inner
def _is_booked(t: Tables, licence: int) -> bool:
    for k in range(t.meta[M_CHANGES]):  # noqa: SIM110 - numba
        if t.changes[k, J_LICENCE] == licence:
            return True
    return False


@inner
def _list_holders(t: Tables, licence: int, booked: bool) -> int:
    """List the ends (ascending) and amounts of attempts that hold a licence, once a cycle. Returns where it begins.

    Planned ends, or, where bookings are ahead, by walltimes.
    """
    if t.ticks[TICK_LISTED] != t.ticks[TICK] or t.ticks[TICK_LISTED_VERSION] != t.meta[M_VERSION]:
        t.ticks[TICK_LISTED] = t.ticks[TICK]
        t.ticks[TICK_LISTED_VERSION] = t.meta[M_VERSION]
        t.ticks[TICK_LISTED_USED] = 0
        for other in range(t.meta[M_LICENCES]):
            t.licences[other, Z_LISTED] = -1
    if t.licences[licence, Z_LISTED] >= 0:
        return int(t.licences[licence, Z_LISTED])
    room = t.holding.shape[1]
    first = t.ticks[TICK_LISTED_USED]
    count = 0
    run = 0
    while run < t.meta[M_RUN_TOP]:
        if t.runs[run, R_NODES] > 0:
            shape = t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE]
            want = t.wants[shape, licence]
            end = t.runs[run, R_END]
            if want > 0 and booked:
                begun = t.runs[run, R_START]
                end = min(begun + within_booking(t, shape, begun, t.runs[run, R_WALL]), INF)
            if want > 0 and end < INF:
                if first + count == room and first == 0:
                    break  # never: attempts of one licence are no more than the list is long
                if first + count == room:
                    # The list is full: what it says of other licences goes. All attempts of one licence have room.
                    for other in range(t.meta[M_LICENCES]):
                        t.licences[other, Z_LISTED] = -1
                    first = 0
                    count = 0
                    run = 0
                    continue
                t.holding[0, first + count] = end
                t.holding[1, first + count] = want
                count += 1
        run += 1
    t.ticks[TICK_WORK] += (t.meta[M_RUN_TOP] >> LOOK_SHIFT) + count
    sort_pairs(t.holding[0, first : first + count], t.holding[1, first : first + count], count)
    t.licences[licence, Z_LISTED] = first
    t.licences[licence, Z_LISTED_COUNT] = count
    t.ticks[TICK_LISTED_USED] = first + count
    return int(first)


@inner
def _own_releases(t: Tables, licence: int, booked: bool, now: int, starts: Any, start_at: int, start_count: int) -> int:
    """Ends and (negative) amounts of a cycle's own starts that hold a licence; how many."""
    times = t.licence_events[0]
    amounts = t.licence_events[1]
    size = 0
    for k in range(start_at, start_at + start_count):
        entry = starts[k]["entry"]
        shape = t.classes[t.buckets[t.entries[entry, E_BUCKET], B_CLASS], C_SHAPE]
        lasts = t.entries[entry, E_WALL] if booked else t.entries[entry, E_PLANNED]
        end = min(now + within_booking(t, shape, now, lasts), INF)
        if t.wants[shape, licence] > 0 and end < INF and size < times.shape[0]:
            times[size] = end
            amounts[size] = -t.wants[shape, licence]
            size += 1
    return size


# --- timelines: any number of promises --------------------------------------------------------------------------------


@inner
def waits_apart(t: Tables, shape: int) -> bool:
    """Whether more than rows decides when a shape may start: licences, or a booking that holds none."""
    return bool(
        t.shapes[shape, S_LICENCES] != 0 or (t.shapes[shape, S_INSIDE] != 0 and t.shapes[shape, S_BOOKING] == 0)
    )


@inner
def licence_start(
    t: Tables, promises: Table, count: int, mine: int, shape: int, since: int, planned: int, wall: int, now: int,
    starts: Any, start_at: int, start_count: int,
) -> int:  # fmt: skip
    """The earliest instant from `since` on at which what a shape wants stays free for the planned time, beside the
    first `count` promises but `mine`; where bookings are ahead, for the walltime. INF = never. Within its booking."""
    begin = since
    again = waits_apart(t, shape)
    tries = 0
    # Each goes on later: to where a licence comes back, or a booking begins or ends.
    while goes_on(
        t, again and begin < INF, tries, t.holding.shape[1] + t.licence_events.shape[1] + t.bookings.shape[0] + 2
    ):
        tries += 1
        again = False
        begin = inside_start(t, shape, begin, wall)
        for licence in range(t.meta[M_LICENCES]):
            if t.wants[shape, licence] > 0 and begin < INF:
                booked = _is_booked(t, licence)
                later = _start_of_one(
                    t, promises, count, mine, shape, licence, booked, begin, wall if booked else planned, now, starts,
                    start_at, start_count,
                )  # fmt: skip
                again = again or later > begin
                begin = later
    return int(begin)


@inner
def waits_for_late(t: Tables, shape: int, now: int) -> bool:
    """Whether an attempt that outlives its plan holds what a shape wants: its end will be reported."""
    if t.shapes[shape, S_LICENCES] != 0:
        for run in range(t.meta[M_RUN_TOP]):
            late = t.runs[run, R_NODES] > 0 and t.runs[run, R_END] <= now
            if late and share_licences(t, shape, t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE]):
                return True
    return False


@inner
def _start_of_one(
    t: Tables, promises: Table, count: int, mine: int, shape: int, licence: int, booked: bool, since: int, lasts: int,
    now: int, starts: Any, start_at: int, start_count: int,
) -> int:  # fmt: skip
    place = _list_holders(t, licence, booked)
    last = place + t.licences[licence, Z_LISTED_COUNT]
    size = _own_releases(t, licence, booked, now, starts, start_at, start_count)
    times = t.licence_events[0]
    amounts = t.licence_events[1]
    free = t.licences[licence, Z_TOTAL] - t.licences[licence, Z_USED]
    for k in range(count):
        held = t.wants[t.classes[promises[k, V_CLASS], C_SHAPE], licence]
        if k == mine or promises[k, V_ENTRY] < 0 or promises[k, V_HELD] != 1 or held == 0:
            continue
        if promises[k, V_KIND] == KIND_CLAIM:
            free -= held
        elif promises[k, V_KIND] == KIND_PROMISE and size + 2 <= times.shape[0]:
            times[size] = promises[k, V_START]
            amounts[size] = held
            times[size + 1] = min(promises[k, V_START] + promises[k, V_PLANNED], INF)
            amounts[size + 1] = -held
            size += 2
    for k in range(t.meta[M_CHANGES] if booked else 0):
        if t.changes[k, J_LICENCE] == licence and size < times.shape[0]:
            times[size] = t.changes[k, J_AT]
            amounts[size] = -t.changes[k, J_GAIN]
            size += 1
    sort_pairs(times, amounts, size)
    t.ticks[TICK_WORK] += 1 + ((count + size) >> LOOK_SHIFT)
    want = t.wants[shape, licence]
    begin = since
    k = 0
    first = place
    steps = 0
    most = last - place + size + 1
    while goes_on(t, True, steps, most):  # each takes the next end or event
        steps += 1
        # Before `at` this much is free: if that is too little, nothing begins before it.
        at = max(t.holding[0, place], now + 1) if place < last else INF
        if k < size:
            at = min(at, times[k])
        if free < want:
            if at >= INF:
                return INF
            begin = max(begin, at)
        if at >= min(begin + _lasting(t, shape, begin, lasts), INF):
            t.ticks[TICK_WORK] += (place - first) >> LOOK_SHIFT
            return int(begin)
        while place < last and max(t.holding[0, place], now + 1) == at:
            free += t.holding[1, place]
            place += 1
        while k < size and times[k] == at:
            free -= amounts[k]
            k += 1
    return INF


@inner
def _lasting(t: Tables, shape: int, begin: int, lasts: int) -> int:
    """How long a start at `begin` lasts: work that asks for the whole of its booking is ended with it."""
    mine = t.shapes[shape, S_INSIDE]
    if mine != 0:
        for booking in range(t.meta[M_BOOKINGS]):
            end = t.bookings[booking, K_END]
            if t.bookings[booking, K_NAME] == mine and end > begin:
                return int(min(lasts, end - begin)) if lasts >= end - t.bookings[booking, K_START] else lasts
    return lasts
