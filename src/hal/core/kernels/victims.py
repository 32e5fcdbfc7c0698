"""Whose running work to take back so that one waiting job can start: evict and replay over a bounded set of candidates.

Pure. A candidate runs, its QOS may be taken from and is not protected by its youth. A row's price is what the cheapest
candidates on it would lose that make the job fit there: first those that lose least, without those that then prove
needless, or one alone where that is cheaper. A gang counts on each of its rows with its part, and once it is chosen,
all its rows are cleared. The cheapest rows are taken; then, from the one that loses most, every victim without which
enough rows still fit is let be. Nobody is taken back for a job that would start by itself within the time that they are
given to leave. O(runs on the rows + rows log rows + victims x rows of a gang); where what was lent is taken back, with
O(runs log runs + rows that they hold) beside it, in the last slice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.booked import booked_start
from hal.core.kernels.bounds import goes_on, leads_on
from hal.core.kernels.easy import release
from hal.core.kernels.ends import ends_root
from hal.core.kernels.jit import inner, kernel
from hal.core.kernels.layout import (
    B_CLASS,
    B_OFFSET,
    B_OWNER,
    C_NODES,
    C_SHAPE,
    E_BUCKET,
    E_JOB,
    E_KEY,
    E_WALL,
    INF,
    K_GRACE,
    K_MODE,
    K_PREEMPTS,
    K_TAKES,
    KIND_BLOCK,
    KIND_PROMISE,
    M_BOOKINGS,
    M_CPU,
    M_MIN_RUN,
    M_PATIENCE,
    M_PRICED,
    M_RESERVATIONS,
    M_RESOURCES,
    M_ROWS,
    M_RUN_TOP,
    MAX_CANDIDATES,
    MODE_CHECKPOINT,
    MODE_OFF,
    MODE_REQUEUE,
    MODE_SUSPEND,
    O_QOS,
    P_NEXT,
    P_ON_ROW,
    P_ROW,
    P_RUN,
    PRICE_NEVER,
    Q_ROW,
    R_ATTEMPT,
    R_BUCKET,
    R_DUE,
    R_END,
    R_JOB,
    R_MARK,
    R_NODES,
    R_OFFERED,
    R_PIECE,
    R_PRICE,
    R_START,
    R_STATE,
    R_TAKEN,
    R_TASK,
    RUN_GOING,
    RUN_ON,
    S_CSET,
    S_EVER,
    S_FIT,
    T_KEY,
    T_RIGHT,
    TICK,
    TICK_SEARCH,
    TICK_WALL,
    TICK_WORK,
    V_JOB,
    V_KEY,
    V_KIND,
    V_NODES,
    V_ROW,
    V_START,
    W_ATTEMPTS,
    Z_COST,
    Z_FREE,
    Z_JOBS,
    Z_KEPT,
    Z_YOUTH,
)
from hal.core.kernels.ledgers import full_ledger, lends
from hal.core.kernels.lending import borrows, find_lent, full_beside_cohorts, give_back, gives_lent, still_lent
from hal.core.kernels.licences import licences_now
from hal.core.kernels.memory import Tables, tables
from hal.core.kernels.rows import fits
from hal.core.kernels.searched import waiting_entry
from hal.core.kernels.sorting import sort_pairs
from hal.core.kernels.treap import Table, tree_descend

Ints = NDArray[np.int64]

FOUND = 0
NOTHING = 1
UNFINISHED = 2

MOST_ELAPSED_MS = 1 << 34
MOST_LOST = 1 << 50
MOST_PRICE = 1 << 54
WEIGHT_OF_A_ROW = 1_000
MOST_DOUBLINGS = 16
LARGEST = 4  # line of `picks`


@inner
def _qos(t: Tables, run: int) -> int:
    return int(t.owners[t.buckets[t.runs[run, R_BUCKET], B_OWNER], O_QOS])


@inner
def _shape(t: Tables, run: int) -> int:
    return int(t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE])


@inner
def mode_of(t: Tables, run: int, offered: int) -> int:
    """How a run would be taken back; what was offered is requeued where its QOS says nothing, or would keep it."""
    mode = int(t.qos[_qos(t, run), K_MODE])
    return MODE_REQUEUE if offered > 0 and mode in (MODE_OFF, MODE_SUSPEND) else mode


@inner
def protected_until(t: Tables, run: int) -> int:
    """What was taken back before is given time, twice as much each time: so every task gets to its end."""
    times = t.runs[run, R_ATTEMPT] - 1 + t.runs[run, R_TAKEN]
    if times <= 0:
        return 0
    return int(t.runs[run, R_START] + (t.meta[M_MIN_RUN] << min(times - 1, MOST_DOUBLINGS)))


@inner
def _eligible(t: Tables, run: int, qos: int, offered: int) -> bool:
    if t.runs[run, R_STATE] != RUN_ON:
        return False
    if offered > 0:
        return bool(t.runs[run, R_OFFERED] == offered)
    victim = _qos(t, run)
    return bool(t.qos[qos, K_TAKES + victim] != 0 and t.qos[victim, K_MODE] != MODE_OFF)


@inner
def _find_largest(t: Tables) -> None:
    """The most of each resource that a row has, into scratch: what weights are shares of."""
    for r in range(t.meta[M_RESOURCES]):
        t.picks[LARGEST, r] = 1
        for row in range(t.meta[M_ROWS]):
            t.picks[LARGEST, r] = max(t.picks[LARGEST, r], t.capacity[row, r])


@inner
def weight(t: Tables, shape: int, resources: int) -> int:
    """What one row of a shape weighs: the largest share that it takes of what the largest row has, 1..1000."""
    most = 1
    for r in range(resources):
        most = max(most, t.request[r, shape] * WEIGHT_OF_A_ROW // t.picks[LARGEST, r])
    return int(min(most, WEIGHT_OF_A_ROW))


@inner
def lost(t: Tables, run: int, mode: int, now: int) -> int:
    """What a run would lose: its time since it started, times what it holds; no more than its grace where it saves its
    work, nothing where it is only suspended. What a plugin says instead, if there is one."""
    if t.meta[M_PRICED] != 0:
        return int(t.runs[run, R_PRICE])
    if mode == MODE_SUSPEND:
        return 0
    elapsed = max(now - t.runs[run, R_START], 0)
    if mode == MODE_CHECKPOINT:
        elapsed = min(elapsed, t.qos[_qos(t, run), K_GRACE])
    held = weight(t, _shape(t, run), t.meta[M_RESOURCES]) * t.runs[run, R_NODES]
    return int(min(min(elapsed, MOST_ELAPSED_MS) * held, MOST_LOST))


@inner
def _is_going(t: Tables, run: int, now: int) -> bool:
    """Whether a run was told to end and can still be expected to."""
    return bool(t.runs[run, R_STATE] == RUN_GOING and now <= t.runs[run, R_DUE] + t.meta[M_PATIENCE])


@inner
def _leaves(t: Tables, run: int, now: int) -> bool:
    """Whether a running attempt ends by itself within the time that it would be given to leave."""
    return bool(t.runs[run, R_STATE] == RUN_ON and now < t.runs[run, R_END] <= now + t.qos[_qos(t, run), K_GRACE])


@inner
def _gives(t: Tables, run: int, mode: int, r: int) -> int:
    """How much of a resource a run gives back on each of its rows."""
    if mode == MODE_SUSPEND and r != t.meta[M_CPU]:
        return 0
    return int(t.request[r, _shape(t, run)])


@inner
def _there(t: Tables, row: int, shape: int, resources: int, block: int) -> bool:
    """Whether a shape fits by one of the two blocks of amounts that a search keeps for a row."""
    for r in range(resources):  # noqa: SIM110 - numba
        if t.search[row, Z_FREE + block * resources + r] < t.request[r, shape]:
            return False
    return True


@inner
def _lend(t: Tables, run: int, offered: int, sign: int) -> None:
    if offered > 0:
        give_back(t, run, sign)


@inner
def _try(t: Tables, row: int, resources: int, run: int, mode: int, sign: int) -> None:
    for r in range(resources):
        t.search[row, Z_FREE + resources + r] += sign * _gives(t, run, mode, r)


@inner
def _reset_try(t: Tables, row: int, resources: int) -> None:
    for r in range(resources):
        t.search[row, Z_FREE + resources + r] = t.search[row, Z_FREE + r]


@inner
def _before(t: Tables, run: int, part: int, size: int, place: int) -> bool:
    """Whether a candidate comes before the one at a place: it loses less, else frees more, else by job and task."""
    other = t.picks[1, place]
    if part != t.picks[0, place]:
        return bool(part < t.picks[0, place])
    if size != t.picks[2, place]:
        return bool(size > t.picks[2, place])
    if t.runs[run, R_JOB] != t.runs[other, R_JOB]:
        return bool(t.runs[run, R_JOB] < t.runs[other, R_JOB])
    return bool(t.runs[run, R_TASK] < t.runs[other, R_TASK])


@inner
def _gather(t: Tables, row: int, qos: int, gang: int, offered: int, now: int, stamp: int) -> int:
    """The candidates on a row, those that lose least first, into `picks` (part lost, run, what it holds); how many."""
    resources = t.meta[M_RESOURCES]
    count = 0
    piece = t.rows[row, W_ATTEMPTS]
    walked = 0
    while leads_on(t, piece - 1, walked, t.pieces.shape[0]):
        walked += 1
        run = t.pieces[piece - 1, P_RUN]
        piece = t.pieces[piece - 1, P_ON_ROW]
        t.ticks[TICK_WORK] += 1
        if t.runs[run, R_MARK] == stamp or not _eligible(t, run, qos, offered) or _leaves(t, run, now):
            continue
        if t.meta[M_PRICED] != 0 and t.runs[run, R_PRICE] == PRICE_NEVER:
            continue
        if offered > 0 and not borrows(t, run, offered):
            continue
        until = protected_until(t, run)
        if until > now:
            t.search[row, Z_YOUTH] = min(t.search[row, Z_YOUTH], until)
            continue
        mode = mode_of(t, run, offered)
        part = lost(t, run, mode, now) // min(t.runs[run, R_NODES], gang)
        size = weight(t, _shape(t, run), resources)
        if count == MAX_CANDIDATES and not _before(t, run, part, size, count - 1):
            continue
        at = count if count < MAX_CANDIDATES else count - 1
        count = at + 1
        while at > 0 and _before(t, run, part, size, at - 1):
            for line in range(3):
                t.picks[line, at] = t.picks[line, at - 1]
            at -= 1
        t.picks[0, at] = part
        t.picks[1, at] = run
        t.picks[2, at] = size
    return count


@inner
def _pick(t: Tables, row: int, shape: int, qos: int, gang: int, offered: int, now: int, stamp: int) -> int:
    """The victims on one row, marked 1 in picks[3]; their price in Z_COST and number in Z_JOBS. -1: it cannot be."""
    resources = t.meta[M_RESOURCES]
    count = _gather(t, row, qos, gang, offered, now, stamp)
    _reset_try(t, row, resources)
    taken = 0
    while taken < count and not _there(t, row, shape, resources, 1):
        run = t.picks[1, taken]
        t.picks[3, taken] = 0
        if offered == 0 or borrows(t, run, offered):  # still, when those before it have left
            _try(t, row, resources, run, mode_of(t, run, offered), 1)
            _lend(t, run, offered, 1)
            t.picks[3, taken] = 1
        taken += 1
    if not _there(t, row, shape, resources, 1):
        for place in range(taken):
            if t.picks[3, place] == 1:
                _lend(t, t.picks[1, place], offered, -1)
        return -1
    price = 0
    jobs = 0
    for place in range(taken - 1, -1, -1):
        if t.picks[3, place] == 0:
            continue
        run = t.picks[1, place]
        _lend(t, run, offered, -1)  # what is picked is counted when it is marked
        _try(t, row, resources, run, mode_of(t, run, offered), -1)
        if _there(t, row, shape, resources, 1):
            t.picks[3, place] = 0
        else:
            _try(t, row, resources, run, mode_of(t, run, offered), 1)
            price += t.picks[0, place]
            jobs += 1
    for place in range(count):
        run = t.picks[1, place]
        if t.picks[0, place] > price or (t.picks[0, place] == price and jobs == 1):
            break
        _reset_try(t, row, resources)
        _try(t, row, resources, run, mode_of(t, run, offered), 1)
        if _there(t, row, shape, resources, 1):
            for other in range(count):
                t.picks[3, other] = 1 if other == place else 0
            taken = max(taken, place + 1)
            price = t.picks[0, place]
            jobs = 1
            break
    t.search[row, Z_COST] = min(price, MOST_PRICE)
    t.search[row, Z_JOBS] = jobs
    return taken


@inner
def _look(t: Tables, row: int, shape: int, qos: int, gang: int, offered: int, now: int, stamp: int) -> None:
    """The price of one row: what is free or leaving already costs nothing."""
    resources = t.meta[M_RESOURCES]
    t.search[row, Z_COST] = -1
    t.search[row, Z_JOBS] = 0
    t.search[row, Z_YOUTH] = INF
    if offered > 0 and t.search[row, Z_KEPT] == offered:
        return
    if t.open_now[t.shapes[shape, S_CSET], row] == 0 or not fits(t, t.capacity, row, shape, resources):
        return
    if t.meta[M_BOOKINGS] > 0 and booked_start(t, row, shape, now, t.ticks[TICK_WALL]) != now:
        return
    for r in range(resources):
        t.search[row, Z_FREE + r] = t.free[row, r]
    piece = t.rows[row, W_ATTEMPTS]
    walked = 0
    while leads_on(t, piece - 1, walked, t.pieces.shape[0]):
        walked += 1
        run = t.pieces[piece - 1, P_RUN]
        piece = t.pieces[piece - 1, P_ON_ROW]
        if _is_going(t, run, now) or (_eligible(t, run, qos, offered) and _leaves(t, run, now)):
            for r in range(resources):
                t.search[row, Z_FREE + r] += t.request[r, _shape(t, run)]
    if _there(t, row, shape, resources, 0):
        t.search[row, Z_COST] = 0
        return
    _pick(t, row, shape, qos, gang, offered, now, stamp)


@inner
def _count_there(t: Tables, shape: int) -> int:
    """On how many rows a shape fits by now."""
    t.ticks[TICK_WORK] += t.meta[M_ROWS]
    count = 0
    for row in range(t.meta[M_ROWS]):
        if t.search[row, Z_COST] >= 0 and _there(t, row, shape, t.meta[M_RESOURCES], 0):
            count += 1
    return count


@inner
def _clear(t: Tables, run: int, mode: int, sign: int, shape: int) -> int:
    """Give (or take) what a victim frees on all its rows; by how much the number of rows that fit has changed."""
    resources = t.meta[M_RESOURCES]
    change = 0
    piece = t.runs[run, R_PIECE]
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        row = t.pieces[piece, P_ROW]
        t.ticks[TICK_WORK] += 1
        if t.search[row, Z_COST] >= 0:
            before = _there(t, row, shape, resources, 0)
            for r in range(resources):
                t.search[row, Z_FREE + r] += sign * _gives(t, run, mode, r)
            after = _there(t, row, shape, resources, 0)
            change += (1 if after else 0) - (1 if before else 0)
        piece = t.pieces[piece, P_NEXT]
    return change


@inner
def _starts_by_itself(t: Tables, shape: int, gang: int, now: int, until: int) -> bool:
    """Whether enough rows come free by `until` without anything taken back."""
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    t.ticks[TICK] += 1
    stamp = t.ticks[TICK]
    there = t.shapes[shape, S_FIT]
    depth = tree_descend(t.ends, ends_root(t), t.path, 0)
    seen = 0
    while goes_on(t, depth > 0 and there < gang, seen, t.ends.shape[0]):
        seen += 1
        run = t.path[depth - 1]
        if t.ends[run, T_KEY] > until:
            break
        depth = tree_descend(t.ends, t.ends[run, T_RIGHT], t.path, depth - 1)
        if t.ends[run, T_KEY] <= now and not _is_going(t, run, now):
            continue  # it outlives its plan: nobody knows when it ends
        piece = t.runs[run, R_PIECE]
        walked = 0
        while leads_on(t, piece, walked, t.pieces.shape[0]):
            walked += 1
            t.ticks[TICK_WORK] += 1
            if release(t, resources, cset, shape, t.pieces[piece, P_ROW], _shape(t, run), stamp):
                there += 1
            piece = t.pieces[piece, P_NEXT]
    return bool(there >= gang)


@inner
def _due(t: Tables, victims: Table, count: int, chosen: Ints, gang: int, shape: int, offered: int, now: int) -> int:
    """When the last of the chosen rows is free at the latest."""
    due = now
    for k in range(count):
        if mode_of(t, victims[1, k], offered) != MODE_SUSPEND:
            due = max(due, now + t.qos[_qos(t, victims[1, k]), K_GRACE])
    for k in range(gang):
        row = chosen[k]
        if not fits(t, t.free, row, shape, t.meta[M_RESOURCES]):
            piece = t.rows[row, W_ATTEMPTS]
            walked = 0
            while leads_on(t, piece - 1, walked, t.pieces.shape[0]):
                walked += 1
                run = t.pieces[piece - 1, P_RUN]
                piece = t.pieces[piece - 1, P_ON_ROW]
                if _is_going(t, run, now):
                    due = max(due, t.runs[run, R_DUE])
                elif _leaves(t, run, now):
                    due = max(due, t.runs[run, R_END])
    return int(due)


@inner
def _choose(t: Tables, shape: int, gang: int, chosen: Ints) -> int:
    """Rows for the job: those that are free now come first, then the others that were cleared; how many were found."""
    resources = t.meta[M_RESOURCES]
    found = 0
    for later in range(2):
        for row in range(t.meta[M_ROWS]):
            if (
                found < gang
                and t.search[row, Z_COST] >= 0
                and _there(t, row, shape, resources, 0)
                and fits(t, t.free, row, shape, resources) == (later == 0)
            ):
                chosen[found] = row
                found += 1
    return found


@inner
def _take_rows(
    t: Tables, shape: int, qos: int, gang: int, offered: int, now: int, stamp: int, victims: Table,
) -> tuple[int, int]:  # fmt: skip
    """Mark victims until enough rows are cleared, cheapest rows first: (victims, rows that fit then)."""
    resources = t.meta[M_RESOURCES]
    prices = t.scratch[4]
    order = t.scratch[5]
    rows = 0
    fitting = 0
    for row in range(t.meta[M_ROWS]):
        if t.search[row, Z_COST] >= 0:
            prices[rows] = t.search[row, Z_COST] * (MAX_CANDIDATES * 2) + t.search[row, Z_JOBS]
            order[rows] = row
            rows += 1
            if _there(t, row, shape, resources, 0):
                fitting += 1
    sort_pairs(prices, order, rows)
    count = 0
    for place in range(rows):
        if fitting >= gang:
            break
        row = order[place]
        if _there(t, row, shape, resources, 0):
            continue
        taken = _pick(t, row, shape, qos, gang, offered, now, stamp)
        # Picking asked for no other row, so the picks stay as they are while their victims are marked.
        for k in range(taken):
            if t.picks[3, k] == 1:
                run = t.picks[1, k]
                mode = mode_of(t, run, offered)
                t.runs[run, R_MARK] = stamp
                victims[0, count] = lost(t, run, mode, now)
                victims[1, count] = run
                count += 1
                _lend(t, run, offered, 1)
                fitting += _clear(t, run, mode, 1, shape)
    return count, fitting


@inner
def _offer(t: Tables, entry: int, now: int, stamp: int) -> None:
    """Offer what others borrowed of the cohorts of a waiting task; keep it off rows promised to who ranks before."""
    bucket = t.entries[entry, E_BUCKET]
    find_lent(t, bucket, stamp)
    t.ticks[TICK_WORK] += 3 * t.meta[M_RUN_TOP]
    for run in range(t.meta[M_RUN_TOP]):
        if t.runs[run, R_NODES] > 0 and _is_going(t, run, now):
            give_back(t, run, 1)
    for run in range(t.meta[M_RUN_TOP]):
        if t.runs[run, R_NODES] > 0 and t.runs[run, R_STATE] == RUN_ON and borrows(t, run, stamp):
            t.runs[run, R_OFFERED] = stamp
    for run in range(t.meta[M_RUN_TOP]):
        if t.runs[run, R_NODES] > 0 and t.runs[run, R_OFFERED] == stamp and _leaves(t, run, now):
            give_back(t, run, 1)
    key = t.entries[entry, E_KEY] + t.buckets[bucket, B_OFFSET]
    ends = min(now + t.ticks[TICK_WALL], INF)
    for k in range(t.meta[M_RESERVATIONS]):
        before = t.reservations[k, V_KEY]
        if before > key or (before == key and t.reservations[k, V_JOB] >= t.entries[entry, E_JOB]):
            continue
        if t.reservations[k, V_KIND] == KIND_PROMISE and ends <= t.reservations[k, V_START]:
            continue
        if t.reservations[k, V_KIND] == KIND_BLOCK:
            t.ticks[TICK_WORK] += t.meta[M_ROWS]
            for row in range(t.meta[M_ROWS]):
                t.search[row, Z_KEPT] = stamp
        first = t.reservations[k, V_ROW]
        t.ticks[TICK_WORK] += 1 + t.reservations[k, V_NODES]
        for i in range(first, first + t.reservations[k, V_NODES]):
            t.search[t.reserved[i, Q_ROW], Z_KEPT] = stamp


@inner
def _list_lent(t: Tables, offered: int, now: int, pool: Table) -> int:
    """What may be taken of what was offered and is not marked, those that lose least first: (lost, run); how many."""
    size = 0
    for run in range(t.meta[M_RUN_TOP]):
        t.ticks[TICK_WORK] += 1
        if t.runs[run, R_NODES] == 0 or t.runs[run, R_OFFERED] != offered or t.runs[run, R_MARK] == offered:
            continue
        if t.runs[run, R_STATE] != RUN_ON or _leaves(t, run, now):
            continue
        if t.meta[M_PRICED] != 0 and t.runs[run, R_PRICE] == PRICE_NEVER:
            continue
        until = protected_until(t, run)
        if until > now:
            t.search[0, Z_YOUTH] = min(t.search[0, Z_YOUTH], until)
            continue
        pool[0, size] = lost(t, run, mode_of(t, run, offered), now)
        pool[1, size] = run
        size += 1
    sort_pairs(pool[0], pool[1], size)
    return size


@inner
def _take_lent(
    t: Tables, entry: int, shape: int, offered: int, now: int, victims: Table, count: int, pool: Table
) -> int:
    """Mark victims until a waiting task's cohorts lack nothing: those that lose least, or one that is cheaper alone.

    Returns how many victims there are then; -1 when what may be taken is not enough. `pool` is scratch, [2, runs].
    """
    bucket = t.entries[entry, E_BUCKET]
    if not still_lent(t, bucket, offered):
        return count
    size = _list_lent(t, offered, now, pool)
    alone = -1
    for k in range(size):
        if count > 0 or alone >= 0:
            break
        t.ticks[TICK_WORK] += 1
        run = pool[1, k]
        if borrows(t, run, offered):
            give_back(t, run, 1)
            if not still_lent(t, bucket, offered):
                alone = k
            give_back(t, run, -1)
    price = 0
    begin = count
    for k in range(size):
        if not still_lent(t, bucket, offered):
            break
        t.ticks[TICK_WORK] += 1
        run = pool[1, k]
        if borrows(t, run, offered) and gives_lent(t, run, offered):
            give_back(t, run, 1)
            victims[0, count] = pool[0, k]
            victims[1, count] = run
            price += pool[0, k]
            count += 1
    if alone >= 0 and pool[0, alone] <= price:
        for k in range(begin, count):
            give_back(t, victims[1, k], -1)
        victims[0, begin] = pool[0, alone]
        victims[1, begin] = pool[1, alone]
        give_back(t, pool[1, alone], 1)
        count = begin + 1
    for k in range(begin, count):
        t.runs[victims[1, k], R_MARK] = offered
        _clear(t, victims[1, k], mode_of(t, victims[1, k], offered), 1, shape)
    return -1 if still_lent(t, bucket, offered) else count


@inner
def _let_all_be(t: Tables, shape: int, offered: int) -> None:
    """Nobody is marked any more."""
    t.ticks[TICK_WORK] += t.meta[M_RUN_TOP]
    for run in range(t.meta[M_RUN_TOP]):
        if t.runs[run, R_NODES] > 0 and t.runs[run, R_MARK] == offered:
            t.runs[run, R_MARK] = 0
            give_back(t, run, -1)
            _clear(t, run, mode_of(t, run, offered), -1, shape)


@inner
def _take_one_lent(
    t: Tables, entry: int, shape: int, gang: int, offered: int, now: int, victims: Table, pool: Table
) -> int:
    """The one that loses least of those that make room alone, in the cohorts and on rows; how many (1 or 0).

    O(runs log runs + rows + rows that the candidates hold).
    """
    _let_all_be(t, shape, offered)
    there = _count_there(t, shape)
    size = _list_lent(t, offered, now, pool)
    for k in range(size):
        run = pool[1, k]
        t.ticks[TICK_WORK] += 1
        if not borrows(t, run, offered):
            continue
        give_back(t, run, 1)
        if not still_lent(t, t.entries[entry, E_BUCKET], offered):
            if there + _clear(t, run, mode_of(t, run, offered), 1, shape) >= gang:
                victims[0, 0] = pool[0, k]
                victims[1, 0] = run
                return 1
            _clear(t, run, mode_of(t, run, offered), -1, shape)
        give_back(t, run, -1)
    return 0


@inner
def _comes_back(t: Tables, bucket: int, offered: int, now: int, until: int) -> bool:
    """Whether what a bucket's cohorts lack comes back by `until` without anything taken back."""
    find_lent(t, bucket, offered)
    depth = tree_descend(t.ends, ends_root(t), t.path, 0)
    seen = 0
    while goes_on(t, depth > 0 and still_lent(t, bucket, offered), seen, t.ends.shape[0]):
        seen += 1
        run = t.path[depth - 1]
        if t.ends[run, T_KEY] > until:
            break
        depth = tree_descend(t.ends, t.ends[run, T_RIGHT], t.path, depth - 1)
        if t.ends[run, T_KEY] > now or _is_going(t, run, now):
            give_back(t, run, 1)
    return not still_lent(t, bucket, offered)


@inner
def _longest_grace(t: Tables) -> int:
    grace = 0
    for qos in range(t.qos.shape[0]):
        grace = max(grace, t.qos[qos, K_GRACE])
    return grace


@kernel
def seek(
    at: Any,
    job: int,
    task: int,
    now: int,
    place: int,
    budget: int,
    lent: int,
    victims: Table,
    chosen: Ints,
    pool: Table,
) -> tuple[int, int, int, int, int, int, int]:
    """Search for a waiting task, from row `place` on (0 = a new search).

    Args:
        budget: work of this slice (attempts looked at); a row is finished whatever the budget.
        lent: 0 = from those from whom the QOS of the task may take; 1 = from those who borrowed what is its own.
        victims: [2, runs]: what each loses, its run. chosen: [rows]: the rows that the task gets. pool: scratch, like
            victims.
    Returns: (FOUND, NOTHING or UNFINISHED; place to go on; victims; entry; due_ms; youth_ms; work).
    """
    t = tables(at)
    t.ticks[TICK_WORK] = 0
    entry = waiting_entry(t, job, task)
    if entry < 0:
        return NOTHING, 0, 0, -1, now, INF, 1
    bucket = t.entries[entry, E_BUCKET]
    class_id = t.buckets[bucket, B_CLASS]
    shape = t.classes[class_id, C_SHAPE]
    gang = t.classes[class_id, C_NODES]
    qos = t.owners[t.buckets[bucket, B_OWNER], O_QOS]
    # It starts when its victims have left: no booking may be nearer than that.
    t.ticks[TICK_WALL] = min(t.entries[entry, E_WALL] + _longest_grace(t), INF)
    if not licences_now(t, shape):
        return NOTHING, 0, 0, entry, now, INF, 1
    if t.shapes[shape, S_EVER] < gang:
        return NOTHING, 0, 0, entry, now, INF, 1
    if lent == 0 and (t.qos[qos, K_PREEMPTS] == 0 or full_ledger(t, bucket, t.entries[entry, E_WALL]) >= 0):
        return NOTHING, 0, 0, entry, now, INF, 1
    if lent != 0 and (not lends(t, bucket) or full_beside_cohorts(t, bucket, t.entries[entry, E_WALL])):
        return NOTHING, 0, 0, entry, now, INF, 1
    _find_largest(t)
    if place == 0:
        t.ticks[TICK] += 1
        t.ticks[TICK_SEARCH] = t.ticks[TICK]
        if lent != 0:
            _offer(t, entry, now, t.ticks[TICK_SEARCH])
    stamp = t.ticks[TICK_SEARCH]
    offered = stamp if lent != 0 else 0
    for row in range(place, t.meta[M_ROWS]):
        if row > place and t.ticks[TICK_WORK] >= budget:
            return UNFINISHED, row, 0, entry, now, INF, t.ticks[TICK_WORK]
        t.ticks[TICK_WORK] += 1
        _look(t, row, shape, qos, gang, offered, now, stamp)
    count, fitting = _take_rows(t, shape, qos, gang, offered, now, stamp, victims)
    if lent != 0:
        more = _take_lent(t, entry, shape, offered, now, victims, count, pool) if fitting >= gang else -1
        count = more if more >= 0 else _take_one_lent(t, entry, shape, gang, offered, now, victims, pool)
        fitting = _count_there(t, shape)
    youth = INF
    for row in range(t.meta[M_ROWS]):
        youth = min(youth, t.search[row, Z_YOUTH])
    if fitting < gang or count <= 0:
        return NOTHING, 0, 0, entry, now, youth, t.ticks[TICK_WORK]
    sort_pairs(victims[0], victims[1], count)
    kept = 0
    for k in range(count - 1, -1, -1):
        run = victims[1, k]
        mode = mode_of(t, run, offered)
        change = _clear(t, run, mode, -1, shape)
        _lend(t, run, offered, -1)
        if fitting + change >= gang and not (offered > 0 and still_lent(t, bucket, offered)):
            fitting += change
            victims[1, k] = -1
        else:
            _clear(t, run, mode, 1, shape)
            _lend(t, run, offered, 1)
            kept += 1
    at_place = 0
    for k in range(count):
        if victims[1, k] >= 0:
            victims[0, at_place] = victims[0, k]
            victims[1, at_place] = victims[1, k]
            at_place += 1
    if kept == 0 or _choose(t, shape, gang, chosen) < gang:
        return NOTHING, 0, 0, entry, now, youth, t.ticks[TICK_WORK]
    due = _due(t, victims, kept, chosen, gang, shape, offered, now)
    if _starts_by_itself(t, shape, gang, now, due) and (lent == 0 or _comes_back(t, bucket, offered, now, due)):
        return NOTHING, 0, 0, entry, now, youth, t.ticks[TICK_WORK]
    return FOUND, 0, kept, entry, due, youth, t.ticks[TICK_WORK]
