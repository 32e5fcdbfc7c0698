"""Licences and other amounts of the whole cluster: what is there, what waits for it, when it comes free.

Pure. A shape asks for `wants[shape, licence]`; one start takes that once, however many nodes it has. What is in use is
counted where starts are assumed and ends are applied, so more than there is can never be held. A job that waits for
licences is reserved an instant like one that waits for nodes; until then others may use what comes back in time
(EASY), or what no reservation of theirs needs (timelines). O(licences), and O(attempts) to look into the future.
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.nodes.wants import share_licences, take_licences
from hal.core.kernels.rules.booked import inside_start, within_booking
from hal.core.kernels.structures.bounds import goes_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_CLASS,
    BACKFILL_CONSERVATIVE,
    BOOKING_END,
    BOOKING_NAME,
    BOOKING_START,
    C_SHAPE,
    COUNT_RESERVATIONS,
    E_BUCKET,
    E_PLANNED,
    E_WALL,
    INF,
    J_AT,
    J_GAIN,
    J_LICENCE,
    KIND_CLAIM,
    KIND_RESERVED,
    LICENCE_EXTRA,
    LICENCE_HELD,
    LICENCE_LISTED,
    LICENCE_LISTED_COUNT,
    LICENCE_PARENT,
    LICENCE_SHADOW,
    LICENCE_TOTAL,
    LICENCE_USED,
    LICENCE_WHOLE,
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
    PASS_FIRST_START,
    PASS_NOW,
    PASS_STARTS,
    PASS_WORK,
    R_BUCKET,
    R_END,
    R_NODES,
    R_START,
    R_WALL,
    S_BOOKING,
    S_INSIDE,
    S_LICENCES,
    S_WAKE,
    START_ENTRY,
    TICK,
    TICK_LISTED,
    TICK_LISTED_USED,
    TICK_LISTED_VERSION,
    V_CLASS,
    V_DIRTY,
    V_ENTRY,
    V_HELD,
    V_KIND,
    V_PLANNED,
    V_START,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import sort_pairs

LOOK_SHIFT: Final = 4
"""So many attempts or reservations looked at, as a power of two, are one unit of work."""


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
                if (
                    t.wants[waits, other] > 0
                    and t.licence_counts[one, LICENCE_PARENT] == t.licence_counts[other, LICENCE_PARENT]
                ):
                    return True
    return False


@inner
def licences_there(t: Tables, shape: int, wall: int) -> bool:
    """Whether what a shape wants is free now and stays so for the walltime, whatever bookings set aside meanwhile."""
    if t.shapes[shape, S_LICENCES] == 0:
        return True
    if not licences_now(t, shape):
        return False
    if t.meta[M_CHANGES] == 0:
        return True
    now = t.pass_record[PASS_NOW]
    return bool(licence_start(t, 0, -1, shape, now, wall, wall) == now)


@inner
def licences_now(t: Tables, shape: int) -> bool:
    """Whether what a shape wants is free at this instant."""
    for licence in range(t.meta[M_LICENCES] if t.shapes[shape, S_LICENCES] != 0 else 0):
        want = t.wants[shape, licence]
        parent = t.licence_counts[licence, LICENCE_PARENT]
        if want > 0 and (
            want > t.licence_counts[licence, LICENCE_TOTAL] - t.licence_counts[licence, LICENCE_USED]
            or want > t.licence_counts[parent, LICENCE_WHOLE] - t.licence_counts[parent, LICENCE_HELD]
        ):
            return False
    return True


# --- EASY: one reservation for each licence --------------------------------------------------------------------------


@inner
def licences_reserved(t: Tables, shape: int, end: int) -> bool:
    """Whether what a shape wants is reserved to a job ahead before the planned end of a start now."""
    if t.shapes[shape, S_LICENCES] != 0:
        for licence in range(t.meta[M_LICENCES]):
            want = t.wants[shape, licence]
            if (
                want > 0
                and end > t.licence_counts[licence, LICENCE_SHADOW]
                and want > t.licence_counts[licence, LICENCE_EXTRA]
            ):
                return True
    return False


@inner
def use_extra(t: Tables, shape: int, end: int) -> None:
    """A start that outlasts a reservation uses what is left beside it."""
    if t.shapes[shape, S_LICENCES] != 0:
        for licence in range(t.meta[M_LICENCES]):
            if end > t.licence_counts[licence, LICENCE_SHADOW]:
                t.licence_counts[licence, LICENCE_EXTRA] -= t.wants[shape, licence]


@inner
def note_reserved(t: Tables) -> None:
    """Write down until when others may use each licence (`LICENCE_SHADOW`), and how much beyond (`LICENCE_EXTRA`)."""
    for licence in range(t.meta[M_LICENCES]):
        t.licence_counts[licence, LICENCE_SHADOW] = INF
        t.licence_counts[licence, LICENCE_EXTRA] = INF
    now = t.pass_record[PASS_NOW]
    for k in range(t.counts[COUNT_RESERVATIONS] if t.meta[M_LICENCES] > 0 else 0):
        shape = t.classes[t.planned[k, V_CLASS], C_SHAPE]
        kind = t.planned[k, V_KIND]
        if t.planned[k, V_ENTRY] < 0 or t.shapes[shape, S_LICENCES] == 0 or kind not in (KIND_RESERVED, KIND_CLAIM):
            continue
        at = t.planned[k, V_START] if kind == KIND_RESERVED else now - 1
        for licence in range(t.meta[M_LICENCES]):
            want = t.wants[shape, licence]
            if want > 0:
                free = t.licence_counts[licence, LICENCE_TOTAL] - t.licence_counts[licence, LICENCE_USED]
                if kind == KIND_RESERVED:
                    free += _given_by(t, licence, at)
                    for j in range(t.meta[M_CHANGES]):
                        if t.changes[j, J_LICENCE] == licence and t.changes[j, J_AT] <= at:
                            free += t.changes[j, J_GAIN]
                t.licence_counts[licence, LICENCE_SHADOW] = at
                t.licence_counts[licence, LICENCE_EXTRA] = max(free - want, 0)


@inner
def _given_by(t: Tables, licence: int, at: int) -> int:
    """How much of a licence comes back up to and including `at`."""
    now = t.pass_record[PASS_NOW]
    first = t.pass_record[PASS_FIRST_START]
    given = 0
    for run in range(t.meta[M_RUN_TOP]):
        if t.runs[run, R_NODES] > 0 and max(t.runs[run, R_END], now + 1) <= at:
            given += t.wants[t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE], licence]
    for k in range(first, first + t.pass_record[PASS_STARTS]):
        entry = t.starts[k, START_ENTRY]
        shape = t.classes[t.buckets[t.entries[entry, E_BUCKET], B_CLASS], C_SHAPE]
        if now + within_booking(t, shape, now, t.entries[entry, E_PLANNED]) <= at:
            given += t.wants[shape, licence]
    return int(given)


@inner
def licence_shadow(t: Tables, shape: int, planned: int, wall: int) -> int:
    """The earliest instant at which what a shape wants is there, by planned ends; -1 = never."""
    begin = licence_start(t, 0, -1, shape, t.pass_record[PASS_NOW], planned, wall)
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
            t.licence_counts[other, LICENCE_LISTED] = -1
    if t.licence_counts[licence, LICENCE_LISTED] >= 0:
        return int(t.licence_counts[licence, LICENCE_LISTED])
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
                        t.licence_counts[other, LICENCE_LISTED] = -1
                    first = 0
                    count = 0
                    run = 0
                    continue
                t.holding[0, first + count] = end
                t.holding[1, first + count] = want
                count += 1
        run += 1
    t.pass_record[PASS_WORK] += (t.meta[M_RUN_TOP] >> LOOK_SHIFT) + count
    sort_pairs(t.holding[0, first : first + count], t.holding[1, first : first + count], count)
    t.licence_counts[licence, LICENCE_LISTED] = first
    t.licence_counts[licence, LICENCE_LISTED_COUNT] = count
    t.ticks[TICK_LISTED_USED] = first + count
    return int(first)


@inner
def _own_releases(t: Tables, licence: int, booked: bool) -> int:
    """Ends and (negative) amounts of a slice's own starts that hold a licence; how many."""
    now = t.pass_record[PASS_NOW]
    first = t.pass_record[PASS_FIRST_START]
    times = t.licence_events[0]
    amounts = t.licence_events[1]
    size = 0
    for k in range(first, first + t.pass_record[PASS_STARTS]):
        entry = t.starts[k, START_ENTRY]
        shape = t.classes[t.buckets[t.entries[entry, E_BUCKET], B_CLASS], C_SHAPE]
        lasts = t.entries[entry, E_WALL] if booked else t.entries[entry, E_PLANNED]
        end = min(now + within_booking(t, shape, now, lasts), INF)
        if t.wants[shape, licence] > 0 and end < INF and size < times.shape[0]:
            times[size] = end
            amounts[size] = -t.wants[shape, licence]
            size += 1
    return size


# --- timelines: any number of reservations ---------------------------------------------------------------------------


@inner
def waits_apart(t: Tables, shape: int) -> bool:
    """Whether more than nodes decides when a shape may start: licences, or a booking that holds none."""
    return bool(
        t.shapes[shape, S_LICENCES] != 0 or (t.shapes[shape, S_INSIDE] != 0 and t.shapes[shape, S_BOOKING] == 0)
    )


@inner
def licence_start(t: Tables, count: int, mine: int, shape: int, since: int, planned: int, wall: int) -> int:
    """The earliest instant from `since` on at which what a shape wants stays free for the planned time, beside the
    first `count` reservations but `mine`; where bookings are ahead, for the walltime. INF = never. In its booking."""
    begin = since
    again = waits_apart(t, shape)
    tries = 0
    # Each goes on later: to where a licence comes back, or a booking begins or ends.
    while goes_on(
        t, again and begin < INF, tries, t.holding.shape[1] + t.licence_events.shape[1] + t.booking_times.shape[0] + 2
    ):
        tries += 1
        again = False
        begin = inside_start(t, shape, begin, wall)
        for licence in range(t.meta[M_LICENCES]):
            if t.wants[shape, licence] > 0 and begin < INF:
                booked = _is_booked(t, licence)
                later = _start_of_one(t, count, mine, shape, licence, booked, begin, wall if booked else planned)
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
def _list_reserved(t: Tables, licence: int, count: int, mine: int, size: int) -> tuple[int, int]:
    """What is free of a licence now beside claims; lists, behind `size` events, when reservations hold of it: (free,
    events)."""
    times = t.licence_events[0]
    amounts = t.licence_events[1]
    free = t.licence_counts[licence, LICENCE_TOTAL] - t.licence_counts[licence, LICENCE_USED]
    for k in range(count):
        held = t.wants[t.classes[t.planned[k, V_CLASS], C_SHAPE], licence]
        if k == mine or t.planned[k, V_ENTRY] < 0 or t.planned[k, V_HELD] != 1 or held == 0:
            continue
        if t.planned[k, V_KIND] == KIND_CLAIM:
            free -= held
        elif t.planned[k, V_KIND] == KIND_RESERVED and size + 2 <= times.shape[0]:
            times[size] = t.planned[k, V_START]
            amounts[size] = held
            times[size + 1] = min(t.planned[k, V_START] + t.planned[k, V_PLANNED], INF)
            amounts[size + 1] = -held
            size += 2
    return free, size


@inner
def _start_of_one(
    t: Tables, count: int, mine: int, shape: int, licence: int, booked: bool, since: int, lasts: int
) -> int:
    """As `licence_start`, of one licence, for as long as it `lasts`."""
    now = t.pass_record[PASS_NOW]
    place = _list_holders(t, licence, booked)
    last = place + t.licence_counts[licence, LICENCE_LISTED_COUNT]
    size = _own_releases(t, licence, booked)
    times = t.licence_events[0]
    amounts = t.licence_events[1]
    free, size = _list_reserved(t, licence, count, mine, size)
    for k in range(t.meta[M_CHANGES] if booked else 0):
        if t.changes[k, J_LICENCE] == licence and size < times.shape[0]:
            times[size] = t.changes[k, J_AT]
            amounts[size] = -t.changes[k, J_GAIN]
            size += 1
    sort_pairs(times, amounts, size)
    t.pass_record[PASS_WORK] += 1 + ((count + size) >> LOOK_SHIFT)
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
            t.pass_record[PASS_WORK] += (place - first) >> LOOK_SHIFT
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
            end = t.booking_times[booking, BOOKING_END]
            if t.booking_times[booking, BOOKING_NAME] == mine and end > begin:
                return int(min(lasts, end - begin)) if lasts >= end - t.booking_times[booking, BOOKING_START] else lasts
    return lasts
