"""What it costs to clear a node for a waiting task: the running work there that would have to be preempted.

Pure but for scratch. A search describes itself in `search_record`: the shape, for whom, whether what others borrowed is
offered. A node's price is what the cheapest candidates on it would lose that make the job fit there: first those that
lose least, without those that then prove needless, or one alone where that is cheaper. O(attempts on the node).
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.preemption.lending import borrows, give_back
from hal.core.kernels.rules.booked import booked_start
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_CLASS,
    B_OWNER,
    C_AFFINE,
    C_MOVABLE,
    C_SHAPE,
    INF,
    M_BOOKINGS,
    M_CPU,
    M_MIN_RUN,
    M_NODES,
    M_PATIENCE,
    M_PRICED,
    M_RESOURCES,
    MAX_CANDIDATES,
    MODE_CHECKPOINT,
    MODE_OFF,
    MODE_REQUEUE,
    MODE_SHRINK,
    MODE_SUSPEND,
    N_ATTEMPTS,
    O_QOS,
    P_NEXT,
    P_NODE,
    P_ON_ROW,
    P_RUN,
    PASS_NOW,
    PASS_WALL,
    PASS_WORK,
    PRICE_NEVER,
    R_ATTEMPT,
    R_BUCKET,
    R_DUE,
    R_END,
    R_JOB,
    R_MARK,
    R_NODES,
    R_OFFERED,
    R_PIECE,
    R_PREEMPTED,
    R_PRICE,
    R_START,
    R_STATE,
    R_TASK,
    RUN_GOING,
    RUN_ON,
    S_CSET,
    SEARCH_COST,
    SEARCH_FREE,
    SEARCH_JOBS,
    SEARCH_KEPT,
    SEARCH_YOUTH,
    SEEK_GANG,
    SEEK_MOVES,
    SEEK_OFFERED,
    SEEK_QOS,
    SEEK_SHAPE,
    SEEK_STAMP,
    STANDING_GRACE,
    STANDING_MODE,
    STANDING_TAKES,
)
from hal.core.kernels.structures.memory import Tables

MOVES_LEAST: Final = 2
"""In SEEK_MOVES: a node costs what has to move from it, whatever that would lose."""
MOST_ELAPSED_MS: Final = 1 << 34
MOST_LOST: Final = 1 << 50
MOST_PRICE: Final = 1 << 54
WEIGHT_OF_A_NODE: Final = 1_000
MOST_DOUBLINGS: Final = 16
LARGEST: Final = 4
"""Line of `picks`: the most of each resource that a node has."""


@inner
def qos_of(t: Tables, run: int) -> int:
    return int(t.owners[t.buckets[t.runs[run, R_BUCKET], B_OWNER], O_QOS])


@inner
def shape_of(t: Tables, run: int) -> int:
    return int(t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE])


@inner
def mode_of(t: Tables, run: int) -> int:
    """How a run would be preempted; what was offered is requeued where its QOS says nothing, or would keep it. What is
    moved waits again, whatever its QOS says; it may save its work before if its QOS says so."""
    offered = t.search_record[SEEK_OFFERED]
    mode = int(t.qos[qos_of(t, run), STANDING_MODE])
    if t.search_record[SEEK_MOVES] > 0:
        return MODE_CHECKPOINT if mode == MODE_CHECKPOINT else MODE_REQUEUE
    return MODE_REQUEUE if offered > 0 and mode in (MODE_OFF, MODE_SUSPEND) else mode


@inner
def _has_extensions(t: Tables) -> bool:
    """Whether extensions of jobs have a standing: that is the last one."""
    return bool(t.qos[t.qos.shape[0] - 1, STANDING_MODE] == MODE_SHRINK)


@inner
def protected_until(t: Tables, run: int) -> int:
    """What was preempted before is given time, twice as much each time: so every task gets to its end. Extensions of a
    job are not: they leave whenever others need their nodes."""
    if mode_of(t, run) == MODE_SHRINK:
        return 0
    times = t.runs[run, R_ATTEMPT] - 1 + t.runs[run, R_PREEMPTED]
    if times <= 0:
        return 0
    return int(t.runs[run, R_START] + (t.meta[M_MIN_RUN] << min(times - 1, MOST_DOUBLINGS)))


@inner
def is_movable(t: Tables, run: int) -> bool:
    """Whether a running attempt may be moved."""
    class_id = t.buckets[t.runs[run, R_BUCKET], B_CLASS]
    # Where work with terms of affinity may go depends on what else is moved.
    movable = t.classes[class_id, C_MOVABLE] != 0 and t.classes[class_id, C_AFFINE] != 1
    return bool(t.runs[run, R_STATE] == RUN_ON and movable and t.qos[qos_of(t, run), STANDING_MODE] != MODE_SHRINK)


@inner
def _is_eligible(t: Tables, run: int) -> bool:
    """Whether a running attempt may be preempted at all: it was offered, or its QOS allows it, or it may be moved."""
    if t.runs[run, R_STATE] != RUN_ON:
        return False
    if t.search_record[SEEK_MOVES] > 0:
        return is_movable(t, run)
    offered = t.search_record[SEEK_OFFERED]
    if offered > 0:
        return bool(t.runs[run, R_OFFERED] == offered)
    qos = t.search_record[SEEK_QOS]
    victim = qos_of(t, run)
    return bool(t.qos[qos, STANDING_TAKES + victim] != 0 and t.qos[victim, STANDING_MODE] != MODE_OFF)


@inner
def find_largest(t: Tables) -> None:
    """The most of each resource that a node has, into scratch: what weights are shares of."""
    for r in range(t.meta[M_RESOURCES]):
        t.picks[LARGEST, r] = 1
        for node in range(t.meta[M_NODES]):
            t.picks[LARGEST, r] = max(t.picks[LARGEST, r], t.capacity[node, r])


@inner
def weigh(t: Tables, shape: int) -> int:
    """What one node of a shape weighs: the largest share that it takes of what the largest node has, 1..1000."""
    most = 1
    for r in range(t.meta[M_RESOURCES]):
        most = max(most, t.request[r, shape] * WEIGHT_OF_A_NODE // t.picks[LARGEST, r])
    return int(min(most, WEIGHT_OF_A_NODE))


@inner
def price_of(t: Tables, run: int, mode: int) -> int:
    """By what victims are chosen: what a run would lose, or what a plugin says instead; nothing where it is suspended.
    Where the search is for what moves least, what it holds. Extensions of a job cost nothing in any case, and where
    there are some, nothing else is as cheap."""
    if mode == MODE_SHRINK:
        return 0
    if t.search_record[SEEK_MOVES] == MOVES_LEAST:
        return int(weigh(t, shape_of(t, run)) * t.runs[run, R_NODES])
    least = t.runs[run, R_NODES] if _has_extensions(t) else 0
    if t.meta[M_PRICED] != 0:
        return int(max(t.runs[run, R_PRICE], least))
    if mode == MODE_SUSPEND:
        return int(least)
    return int(max(loss_of(t, run, mode), least))


@inner
def loss_of(t: Tables, run: int, mode: int) -> int:
    """What a run would lose: its time since it started, times what it holds; no more than its grace where it saves its
    work."""
    elapsed = max(t.pass_record[PASS_NOW] - t.runs[run, R_START], 0)
    if mode == MODE_CHECKPOINT:
        elapsed = min(elapsed, t.qos[qos_of(t, run), STANDING_GRACE])
    held = weigh(t, shape_of(t, run)) * t.runs[run, R_NODES]
    return int(min(min(elapsed, MOST_ELAPSED_MS) * held, MOST_LOST))


@inner
def is_going(t: Tables, run: int) -> bool:
    """Whether a run was told to end and can still be expected to."""
    late = t.pass_record[PASS_NOW] > t.runs[run, R_DUE] + t.meta[M_PATIENCE]
    return bool(t.runs[run, R_STATE] == RUN_GOING and not late)


@inner
def leaves(t: Tables, run: int) -> bool:
    """Whether a running attempt ends by itself within the time that it would be given to leave."""
    now = t.pass_record[PASS_NOW]
    latest = now + t.qos[qos_of(t, run), STANDING_GRACE]
    return bool(t.runs[run, R_STATE] == RUN_ON and now < t.runs[run, R_END] <= latest)


@inner
def may_lose(t: Tables, run: int, node: int) -> bool:
    """Whether a run's price and age allow that it is preempted; on a node, when it is old enough is noted there."""
    if t.meta[M_PRICED] != 0 and t.runs[run, R_PRICE] == PRICE_NEVER and mode_of(t, run) != MODE_SHRINK:
        return False
    if node >= 0 and t.search_record[SEEK_OFFERED] > 0 and not borrows(t, run, t.search_record[SEEK_OFFERED]):
        return False
    until = protected_until(t, run)
    if until > t.pass_record[PASS_NOW]:
        place = max(node, 0)
        t.search[place, SEARCH_YOUTH] = min(t.search[place, SEARCH_YOUTH], until)
        return False
    return True


@inner
def gives(t: Tables, run: int, mode: int, r: int) -> int:
    """How much of a resource a run gives back on each of its nodes."""
    if mode == MODE_SUSPEND and r != t.meta[M_CPU]:
        return 0
    return int(t.request[r, shape_of(t, run)])


@inner
def fits_by(t: Tables, node: int, block: int) -> bool:
    """Whether the shape fits by one of the two blocks of amounts that a search keeps for a node."""
    shape = t.search_record[SEEK_SHAPE]
    resources = t.meta[M_RESOURCES]
    for r in range(resources):  # noqa: SIM110 - numba
        if t.search[node, SEARCH_FREE + block * resources + r] < t.request[r, shape]:
            return False
    return True


@inner
def lend(t: Tables, run: int, sign: int) -> None:
    """Count what a run gives back to the cohorts, where the search is for what they lent."""
    if t.search_record[SEEK_OFFERED] > 0:
        give_back(t, run, sign)


@inner
def _try(t: Tables, node: int, run: int, sign: int) -> None:
    """Give (or take) what a candidate frees on a node, in the block for trying."""
    resources = t.meta[M_RESOURCES]
    mode = mode_of(t, run)
    for r in range(resources):
        t.search[node, SEARCH_FREE + resources + r] += sign * gives(t, run, mode, r)


@inner
def _reset_try(t: Tables, node: int) -> None:
    resources = t.meta[M_RESOURCES]
    for r in range(resources):
        t.search[node, SEARCH_FREE + resources + r] = t.search[node, SEARCH_FREE + r]


@inner
def _loses_less(t: Tables, run: int, part: int, size: int, place: int) -> bool:
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
def _gather(t: Tables, node: int) -> int:
    """The candidates on a node, those that lose least first, into `picks` (part lost, run, what it holds); how many."""
    stamp = t.search_record[SEEK_STAMP]
    gang = t.search_record[SEEK_GANG]
    count = 0
    piece = t.rows[node, N_ATTEMPTS]
    walked = 0
    while leads_on(t, piece - 1, walked, t.pieces.shape[0]):
        walked += 1
        run = t.pieces[piece - 1, P_RUN]
        piece = t.pieces[piece - 1, P_ON_ROW]
        t.pass_record[PASS_WORK] += 1
        if t.runs[run, R_MARK] == stamp or not _is_eligible(t, run) or leaves(t, run):
            continue
        if not may_lose(t, run, node):
            continue
        mode = mode_of(t, run)
        part = price_of(t, run, mode) // min(t.runs[run, R_NODES], gang)
        size = weigh(t, shape_of(t, run))
        if count == MAX_CANDIDATES and not _loses_less(t, run, part, size, count - 1):
            continue
        at = count if count < MAX_CANDIDATES else count - 1
        count = at + 1
        while at > 0 and _loses_less(t, run, part, size, at - 1):
            for line in range(3):
                t.picks[line, at] = t.picks[line, at - 1]
            at -= 1
        t.picks[0, at] = part
        t.picks[1, at] = run
        t.picks[2, at] = size
    return count


@inner
def pick(t: Tables, node: int) -> int:
    """The victims on one node, marked 1 in picks[3]; price in SEARCH_COST, number in SEARCH_JOBS. -1: it cannot be.

    Those that lose least until the shape fits, without those that then prove needless; or one alone that is cheaper.
    """
    count = _gather(t, node)
    taken = _pick_least(t, node, count)
    if taken < 0:
        return -1
    price = 0
    jobs = 0
    for place in range(taken - 1, -1, -1):
        if t.picks[3, place] == 0:
            continue
        run = t.picks[1, place]
        lend(t, run, -1)  # what is picked is counted when it is marked
        _try(t, node, run, -1)
        if fits_by(t, node, 1):
            t.picks[3, place] = 0
        else:
            _try(t, node, run, 1)
            price += t.picks[0, place]
            jobs += 1
    for place in range(count):
        if t.picks[0, place] > price or (t.picks[0, place] == price and jobs == 1):
            break
        _reset_try(t, node)
        _try(t, node, t.picks[1, place], 1)
        if fits_by(t, node, 1):
            for other in range(count):
                t.picks[3, other] = 1 if other == place else 0
            taken = max(taken, place + 1)
            price = t.picks[0, place]
            jobs = 1
            break
    t.search[node, SEARCH_COST] = min(price, MOST_PRICE)
    t.search[node, SEARCH_JOBS] = jobs
    return taken


@inner
def _pick_least(t: Tables, node: int, count: int) -> int:
    """Pick candidates, those that lose least first, until the shape fits; how many were tried, -1 if it never does."""
    offered = t.search_record[SEEK_OFFERED]
    _reset_try(t, node)
    taken = 0
    while taken < count and not fits_by(t, node, 1):
        run = t.picks[1, taken]
        t.picks[3, taken] = 0
        if offered == 0 or borrows(t, run, offered):  # still, when those before it have left
            _try(t, node, run, 1)
            lend(t, run, 1)
            t.picks[3, taken] = 1
        taken += 1
    if fits_by(t, node, 1):
        return taken
    for place in range(taken):
        if t.picks[3, place] == 1:
            lend(t, t.picks[1, place], -1)
    return -1


@inner
def look_at(t: Tables, node: int) -> None:
    """The price of one node: what is free or leaving already costs nothing."""
    shape = t.search_record[SEEK_SHAPE]
    now = t.pass_record[PASS_NOW]
    resources = t.meta[M_RESOURCES]
    t.search[node, SEARCH_COST] = -1
    t.search[node, SEARCH_JOBS] = 0
    t.search[node, SEARCH_YOUTH] = INF
    if t.search[node, SEARCH_KEPT] == t.search_record[SEEK_STAMP]:
        return
    if t.open_now[t.shapes[shape, S_CSET], node] == 0 or not fits(t, t.capacity, node, shape, resources):
        return
    if t.meta[M_BOOKINGS] > 0 and booked_start(t, node, shape, now, t.pass_record[PASS_WALL]) != now:
        return
    for r in range(resources):
        t.search[node, SEARCH_FREE + r] = t.free[node, r]
    piece = t.rows[node, N_ATTEMPTS]
    walked = 0
    while leads_on(t, piece - 1, walked, t.pieces.shape[0]):
        walked += 1
        run = t.pieces[piece - 1, P_RUN]
        piece = t.pieces[piece - 1, P_ON_ROW]
        if is_going(t, run) or (_is_eligible(t, run) and leaves(t, run)):
            for r in range(resources):
                t.search[node, SEARCH_FREE + r] += t.request[r, shape_of(t, run)]
    if fits_by(t, node, 0):
        t.search[node, SEARCH_COST] = 0
        return
    pick(t, node)


@inner
def count_fitting(t: Tables) -> int:
    """On how many nodes the shape fits by now."""
    t.pass_record[PASS_WORK] += t.meta[M_NODES]
    count = 0
    for node in range(t.meta[M_NODES]):
        if t.search[node, SEARCH_COST] >= 0 and fits_by(t, node, 0):
            count += 1
    return count


@inner
def clear(t: Tables, run: int, sign: int) -> int:
    """Give (or take) what a victim frees on all its nodes; by how much the number of nodes that fit has changed."""
    resources = t.meta[M_RESOURCES]
    mode = mode_of(t, run)
    change = 0
    piece = t.runs[run, R_PIECE]
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        node = t.pieces[piece, P_NODE]
        t.pass_record[PASS_WORK] += 1
        if t.search[node, SEARCH_COST] >= 0:
            before = fits_by(t, node, 0)
            for r in range(resources):
                t.search[node, SEARCH_FREE + r] += sign * gives(t, run, mode, r)
            after = fits_by(t, node, 0)
            change += (1 if after else 0) - (1 if before else 0)
        piece = t.pieces[piece, P_NEXT]
    return change
