"""Whose running work to preempt so that one waiting job can start: evict and replay over a bounded set of candidates.

Pure. A candidate runs, its QOS may be taken from and is not protected by its youth. What it costs to clear a node is
worked out in `node_prices`. A gang counts on each of its nodes with its part, and once it is chosen, all its nodes are
cleared. The cheapest nodes are taken; then, from the one that loses most, every victim without which enough nodes still
fit is let be. Nobody is preempted for a job that would start by itself within the time that they are given to leave.
Work that may be moved is offered in the same way: `moving` says whether that pays.
O(runs on the nodes + nodes log nodes + victims x nodes of a gang); where what was lent is preempted, with O(runs log
runs + nodes that they hold) beside it, in the last slice.
"""

from __future__ import annotations

from typing import Any, Final

from hal.core.kernels.nodes.compact_nodes import (
    begin_offers,
    by_domain,
    choose_least,
    gather_offers,
    must_share,
    offer,
)
from hal.core.kernels.nodes.domains import first_domain, last_domain, level_within
from hal.core.kernels.nodes.ends import ends_root
from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.preemption.lending import (
    borrows,
    find_lent,
    full_beside_cohorts,
    give_back,
    gives_lent,
    still_lent,
)
from hal.core.kernels.preemption.moving import (
    begin_elsewhere,
    comes_free_at,
    go_on_elsewhere,
    keep_reserved,
    longest_grace,
    pays,
)
from hal.core.kernels.preemption.node_prices import (
    clear,
    count_fitting,
    find_largest,
    fits_by,
    is_going,
    is_movable,
    leaves,
    lend,
    look_at,
    loss_of,
    may_lose,
    mode_of,
    pick,
    price_of,
    qos_of,
)
from hal.core.kernels.preemption.searched import may_move, waiting_entry
from hal.core.kernels.rules.ledgers import full_ledger, lends
from hal.core.kernels.rules.licences import licences_now
from hal.core.kernels.structures.bounds import goes_on, leads_on
from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    B_CLASS,
    B_OWNER,
    C_NEXT,
    C_NODES,
    C_SHAPE,
    DOMAIN_FIRST,
    DOMAIN_LAST,
    E_BUCKET,
    E_WALL,
    INF,
    M_NODES,
    M_RESOURCES,
    M_RUN_TOP,
    MAX_CANDIDATES,
    MODE_SHRINK,
    MODE_SUSPEND,
    N_ATTEMPTS,
    O_QOS,
    P_ON_ROW,
    P_RUN,
    PASS_NOW,
    PASS_WALL,
    PASS_WORK,
    R_DUE,
    R_END,
    R_MARK,
    R_NODES,
    R_OFFERED,
    R_STATE,
    RUN_ON,
    S_EVER,
    SCRATCH_CHOSEN,
    SCRATCH_ORDER,
    SCRATCH_PRICES,
    SEARCH_COST,
    SEARCH_JOBS,
    SEARCH_KEPT,
    SEARCH_YOUTH,
    SEEK_ALONE,
    SEEK_COUNT,
    SEEK_DUE,
    SEEK_ENTRY,
    SEEK_GANG,
    SEEK_LEFT,
    SEEK_LOST,
    SEEK_MOVES,
    SEEK_NODE,
    SEEK_OFFERED,
    SEEK_QOS,
    SEEK_SHAPE,
    SEEK_SIZE,
    SEEK_STAMP,
    SEEK_YOUTH,
    STANDING_GRACE,
    STANDING_MODE,
    STANDING_PREEMPTS,
    T_KEY,
    T_RIGHT,
    TICK,
    TICK_SEARCH,
)
from hal.core.kernels.structures.memory import Tables, tables
from hal.core.kernels.structures.sorting import sort_pairs
from hal.core.kernels.structures.treap import tree_descend

MOST_A_NODE: Final = 1 << 54
"""The price of a node beyond which domains are not told apart."""
FOUND: Final = 0
NOTHING: Final = 1
UNFINISHED: Final = 2
SEVERAL: Final = 3
"""The job has several groups of nodes: `seek_groups` searches for it."""
LENT: Final = 1
"""What was lent is searched for; above it: work that may be moved."""


@kernel
def seek(at: Any, job: int, task: int, now: int, node: int, budget: int, lent: int) -> int:
    """Search for a waiting task, from a node on (0 = a new search). Returns FOUND, NOTHING, UNFINISHED or SEVERAL.

    Args:
        node: beyond the last one, what is left of it is to find room for the victims.
        budget: work of this slice (attempts looked at); a node is finished whatever the budget, and room is looked for
            for one victim.
        lent: 0 = from those from whom the QOS of the task may take; 1 = from those who borrowed what is its own; of
            work that may be moved 2 = what loses least, 3 = as little as possible.

    The search record says where to go on (SEEK_NODE), how many victims were found (SEEK_COUNT; their runs are in
    victims[1]), the entry, the nodes that it gets (SCRATCH_CHOSEN), when all are free at the latest, and when work that
    is too young now is old enough.
    """
    t = tables(at)
    t.pass_record[PASS_NOW] = now
    t.pass_record[PASS_WORK] = 0
    if node > t.meta[M_NODES]:
        return _find_room(t, budget)
    entry = waiting_entry(t, job, task)
    if entry >= 0 and t.classes[t.buckets[t.entries[entry, E_BUCKET], B_CLASS], C_NEXT] != 0:
        return SEVERAL
    if not begin_search(t, entry, lent):
        t.pass_record[PASS_WORK] = 1
        return NOTHING
    if node == 0:
        t.ticks[TICK] += 1
        t.ticks[TICK_SEARCH] = t.ticks[TICK]
    t.search_record[SEEK_STAMP] = t.ticks[TICK_SEARCH]
    t.search_record[SEEK_OFFERED] = t.ticks[TICK_SEARCH] if lent == LENT else 0
    if node == 0 and lent == LENT:
        _offer_lent(t)
    if node == 0 and lent != LENT:
        keep_reserved(t, False)
    for row in range(node, t.meta[M_NODES]):
        if row > node and t.pass_record[PASS_WORK] >= budget:
            t.search_record[SEEK_NODE] = row
            return UNFINISHED
        t.pass_record[PASS_WORK] += 1
        look_at(t, row)
    if must_share(t, t.search_record[SEEK_SHAPE], t.search_record[SEEK_GANG]) and not _keep_to_one(t):
        return NOTHING
    count, fitting = _choose_victims(t)
    for row in range(t.meta[M_NODES]):
        t.search_record[SEEK_YOUTH] = min(t.search_record[SEEK_YOUTH], t.search[row, SEARCH_YOUTH])
    gang = t.search_record[SEEK_GANG]
    if fitting < gang or count <= 0:
        return NOTHING
    kept = _spare_needless(t, count, fitting)
    if kept == 0 or _choose_nodes(t) < gang:
        return NOTHING
    t.search_record[SEEK_COUNT] = kept
    t.search_record[SEEK_DUE] = _latest_free(t, kept)
    if lent > LENT:
        if not pays(t, kept):
            return NOTHING
        begin_elsewhere(t, kept)
        return _find_room(t, budget)
    if comes_free_at(t, t.search_record[SEEK_DUE]) < INF and (lent == 0 or _comes_back(t)):
        return NOTHING
    return FOUND


@inner
def _find_room(t: Tables, budget: int) -> int:
    """Go on looking for room for the victims: FOUND, NOTHING or UNFINISHED.

    Nothing has changed since they were chosen, or the search would have begun anew.
    """
    s = t.search_record
    if not go_on_elsewhere(t, budget):
        return NOTHING
    if s[SEEK_LEFT] > 0:
        s[SEEK_NODE] = t.meta[M_NODES] + 1
        return UNFINISHED
    if _choose_nodes(t) < s[SEEK_GANG]:  # again: other passes use the same scratch between two slices
        return NOTHING
    s[SEEK_DUE] = _latest_free(t, s[SEEK_COUNT])
    return FOUND


@kernel
def empty_node(at: Any, now: int, node: int) -> int:
    """How many attempts run on a node that may be moved and all find room elsewhere at once; -1: it cannot be emptied.

    The search record then says what that loses (SEEK_LOST), and when the node would be empty by itself (SEEK_ALONE;
    INF: nobody knows). Extensions of jobs leave it anyway. O(attempts there x nodes).
    """
    t = tables(at)
    s = t.search_record
    t.pass_record[PASS_NOW] = now
    t.pass_record[PASS_WORK] = 0
    t.ticks[TICK] += 1
    t.ticks[TICK_SEARCH] = t.ticks[TICK]
    for column in range(SEEK_SIZE):
        s[column] = 0
    s[SEEK_ENTRY] = -1
    s[SEEK_STAMP] = t.ticks[TICK_SEARCH]
    s[SEEK_MOVES] = 1
    s[SEEK_ALONE] = now
    find_largest(t)
    for other in range(t.meta[M_NODES]):
        t.search[other, SEARCH_COST] = -1
        t.search[other, SEARCH_YOUTH] = INF
    t.search[node, SEARCH_KEPT] = s[SEEK_STAMP]
    count = 0
    stays = False
    piece = t.rows[node, N_ATTEMPTS]
    walked = 0
    while leads_on(t, piece - 1, walked, t.pieces.shape[0]):
        walked += 1
        run = t.pieces[piece - 1, P_RUN]
        piece = t.pieces[piece - 1, P_ON_ROW]
        t.pass_record[PASS_WORK] += 1
        s[SEEK_ALONE] = max(s[SEEK_ALONE], t.runs[run, R_DUE] if is_going(t, run) else t.runs[run, R_END])
        if is_going(t, run) or t.qos[qos_of(t, run), STANDING_MODE] == MODE_SHRINK:
            continue
        if not is_movable(t, run) or not may_lose(t, run, node):
            stays = True
            continue
        s[SEEK_LOST] = min(s[SEEK_LOST] + loss_of(t, run, mode_of(t, run)), INF)
        t.victims[0, count] = 0
        t.victims[1, count] = run
        count += 1
    s[SEEK_COUNT] = count
    if stays:
        return -1
    begin_elsewhere(t, count)
    return count if go_on_elsewhere(t, INF) else -1


@inner
def begin_search(t: Tables, entry: int, lent: int) -> bool:
    """Describe the search in its record. Returns whether it may find something."""
    s = t.search_record
    s[SEEK_NODE] = 0
    s[SEEK_COUNT] = 0
    s[SEEK_ENTRY] = entry
    s[SEEK_DUE] = t.pass_record[PASS_NOW]
    s[SEEK_YOUTH] = INF
    s[SEEK_MOVES] = max(lent - LENT, 0)
    s[SEEK_ALONE] = INF
    if entry < 0:
        return False
    bucket = t.entries[entry, E_BUCKET]
    wall = t.entries[entry, E_WALL]
    class_id = t.buckets[bucket, B_CLASS]
    s[SEEK_SHAPE] = t.classes[class_id, C_SHAPE]
    s[SEEK_GANG] = t.classes[class_id, C_NODES]
    s[SEEK_QOS] = t.owners[t.buckets[bucket, B_OWNER], O_QOS]
    # It starts when its victims have left: no booking may be nearer than that.
    t.pass_record[PASS_WALL] = min(wall + longest_grace(t), INF)
    if not licences_now(t, s[SEEK_SHAPE]) or t.shapes[s[SEEK_SHAPE], S_EVER] < s[SEEK_GANG]:
        return False
    if lent == 0 and (t.qos[s[SEEK_QOS], STANDING_PREEMPTS] == 0 or full_ledger(t, bucket, wall) >= 0):
        return False
    if lent == LENT and (not lends(t, bucket) or full_beside_cohorts(t, bucket, wall)):
        return False
    if lent > LENT and (not may_move(t, bucket) or full_ledger(t, bucket, wall) >= 0):
        return False
    find_largest(t)
    return True


@inner
def _keep_to_one(t: Tables) -> bool:
    """Leave out all nodes but those of the domain that is cleared for the least; whether there is one that can be."""
    shape = t.search_record[SEEK_SHAPE]
    gang = t.search_record[SEEK_GANG]
    level = level_within(t, shape)
    prices = t.scratch[SCRATCH_PRICES]
    order = t.scratch[SCRATCH_ORDER]
    best = -1
    least = INF
    for k in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[k]
        count = 0
        for place in range(t.domains[domain, DOMAIN_FIRST], t.domains[domain, DOMAIN_LAST]):
            node = t.node_order[place]
            t.pass_record[PASS_WORK] += 1
            if t.search[node, SEARCH_COST] >= 0:
                prices[count] = min(t.search[node, SEARCH_COST], MOST_A_NODE)
                order[count] = node
                count += 1
        if count < gang:
            continue
        sort_pairs(prices, order, count)
        price = 0
        for i in range(gang):
            price = min(price + prices[i], INF - 1)
        if price < least:
            least = price
            best = domain
    for node in range(t.meta[M_NODES]):
        if best < 0 or t.domain_of[level, node] != best + 1:
            t.search[node, SEARCH_COST] = -1
    return best >= 0


@inner
def _choose_victims(t: Tables) -> tuple[int, int]:
    """Mark victims until enough nodes, and cohorts, have room: (victims, nodes that fit then)."""
    count, fitting = _take_nodes(t)
    if t.search_record[SEEK_OFFERED] > 0:
        more = _take_lent(t, count) if fitting >= t.search_record[SEEK_GANG] else -1
        count = more if more >= 0 else _take_one_lent(t)
        fitting = count_fitting(t)
    return count, fitting


@inner
def _spare_needless(t: Tables, count: int, fitting: int) -> int:
    """From the one that loses most, let every victim be without whom enough nodes still fit; how many are left."""
    gang = t.search_record[SEEK_GANG]
    offered = t.search_record[SEEK_OFFERED]
    bucket = t.entries[t.search_record[SEEK_ENTRY], E_BUCKET]
    sort_pairs(t.victims[0], t.victims[1], count)
    for k in range(count - 1, -1, -1):
        run = t.victims[1, k]
        change = clear(t, run, -1)
        lend(t, run, -1)
        if fitting + change >= gang and not (offered > 0 and still_lent(t, bucket, offered)):
            fitting += change
            t.victims[1, k] = -1
        else:
            clear(t, run, 1)
            lend(t, run, 1)
    return drop_spared(t, count)


@inner
def drop_spared(t: Tables, count: int) -> int:
    """Close the gaps that victims (of so many) have left who are let be, marked -1; how many are left."""
    kept = 0
    for k in range(count):
        if t.victims[1, k] >= 0:
            t.victims[0, kept] = t.victims[0, k]
            t.victims[1, kept] = t.victims[1, k]
            kept += 1
    return kept


@inner
def _latest_free(t: Tables, count: int) -> int:
    """When the last of the chosen nodes is free at the latest."""
    due = all_gone_by(t, count)
    for k in range(t.search_record[SEEK_GANG]):
        due = max(due, node_free_by(t, t.scratch[SCRATCH_CHOSEN, k], t.search_record[SEEK_SHAPE]))
    return int(due)


@inner
def all_gone_by(t: Tables, count: int) -> int:
    """When the last of the victims has left at the latest."""
    now = t.pass_record[PASS_NOW]
    due = now
    for k in range(count):
        if mode_of(t, t.victims[1, k]) != MODE_SUSPEND:
            due = max(due, now + t.qos[qos_of(t, t.victims[1, k]), STANDING_GRACE])
    return int(due)


@inner
def node_free_by(t: Tables, node: int, shape: int) -> int:
    """When what leaves a node anyway has left it at the latest; now where a shape fits already."""
    due = t.pass_record[PASS_NOW]
    if not fits(t, t.free, node, shape, t.meta[M_RESOURCES]):
        piece = t.rows[node, N_ATTEMPTS]
        walked = 0
        while leads_on(t, piece - 1, walked, t.pieces.shape[0]):
            walked += 1
            run = t.pieces[piece - 1, P_RUN]
            piece = t.pieces[piece - 1, P_ON_ROW]
            if is_going(t, run):
                due = max(due, t.runs[run, R_DUE])
            elif leaves(t, run):
                due = max(due, t.runs[run, R_END])
    return int(due)


@inner
def _choose_nodes(t: Tables) -> int:
    """Nodes for the job: those that are free now come first, then the others that were cleared; how many were found."""
    shape = t.search_record[SEEK_SHAPE]
    gang = t.search_record[SEEK_GANG]
    resources = t.meta[M_RESOURCES]
    found = 0
    ordered = by_domain(t, shape, gang)
    if ordered:
        begin_offers(t)
    for later in range(2):
        for node in range(t.meta[M_NODES]):
            if (
                (found < gang or ordered)
                and t.search[node, SEARCH_COST] >= 0
                and fits_by(t, node, 0)
                and fits(t, t.free, node, shape, resources) == (later == 0)
            ):
                if ordered:
                    offer(t, node, later)
                else:
                    t.scratch[SCRATCH_CHOSEN, found] = node
                    found += 1
    return choose_least(t, gather_offers(t), gang, t.scratch[SCRATCH_CHOSEN]) if ordered else found


@inner
def _take_nodes(t: Tables) -> tuple[int, int]:
    """Mark victims until enough nodes are cleared, the cheapest nodes first: (victims, nodes that fit then)."""
    gang = t.search_record[SEEK_GANG]
    prices = t.scratch[SCRATCH_PRICES]
    order = t.scratch[SCRATCH_ORDER]
    rows = 0
    fitting = 0
    for node in range(t.meta[M_NODES]):
        if t.search[node, SEARCH_COST] >= 0:
            prices[rows] = t.search[node, SEARCH_COST] * (MAX_CANDIDATES * 2) + t.search[node, SEARCH_JOBS]
            order[rows] = node
            rows += 1
            if fits_by(t, node, 0):
                fitting += 1
    sort_pairs(prices, order, rows)
    count = 0
    for place in range(rows):
        if fitting >= gang:
            break
        node = order[place]
        if fits_by(t, node, 0):
            continue
        taken = pick(t, node)
        # Picking asked for no other node, so the picks stay as they are while their victims are marked.
        for k in range(taken):
            if t.picks[3, k] == 1:
                run = t.picks[1, k]
                t.runs[run, R_MARK] = t.search_record[SEEK_STAMP]
                t.victims[0, count] = price_of(t, run, mode_of(t, run))
                t.victims[1, count] = run
                count += 1
                lend(t, run, 1)
                fitting += clear(t, run, 1)
    return count, fitting


@inner
def _offer_lent(t: Tables) -> None:
    """Offer what others borrowed of the cohorts of a waiting task; keep it off nodes reserved for who ranks before."""
    entry = t.search_record[SEEK_ENTRY]
    stamp = t.search_record[SEEK_STAMP]
    bucket = t.entries[entry, E_BUCKET]
    find_lent(t, bucket, stamp)
    t.pass_record[PASS_WORK] += 3 * t.meta[M_RUN_TOP]
    for run in range(t.meta[M_RUN_TOP]):
        if t.runs[run, R_NODES] > 0 and is_going(t, run):
            give_back(t, run, 1)
    for run in range(t.meta[M_RUN_TOP]):
        if t.runs[run, R_NODES] > 0 and t.runs[run, R_STATE] == RUN_ON and borrows(t, run, stamp):
            t.runs[run, R_OFFERED] = stamp
    for run in range(t.meta[M_RUN_TOP]):
        if t.runs[run, R_NODES] > 0 and t.runs[run, R_OFFERED] == stamp and leaves(t, run):
            give_back(t, run, 1)
    keep_reserved(t, False)


@inner
def _list_lent(t: Tables) -> int:
    """What may be taken of what was offered and is not marked, those that lose least first: victims[2:]; how many."""
    offered = t.search_record[SEEK_OFFERED]
    size = 0
    for run in range(t.meta[M_RUN_TOP]):
        t.pass_record[PASS_WORK] += 1
        if t.runs[run, R_NODES] == 0 or t.runs[run, R_OFFERED] != offered or t.runs[run, R_MARK] == offered:
            continue
        if t.runs[run, R_STATE] != RUN_ON or leaves(t, run):
            continue
        if not may_lose(t, run, -1):
            continue
        t.victims[2, size] = price_of(t, run, mode_of(t, run))
        t.victims[3, size] = run
        size += 1
    sort_pairs(t.victims[2], t.victims[3], size)
    return size


@inner
def _take_lent(t: Tables, count: int) -> int:
    """Mark victims until a waiting task's cohorts lack nothing: those that lose least, or one that is cheaper alone.

    Returns how many victims there are then; -1 when what may be taken is not enough.
    """
    offered = t.search_record[SEEK_OFFERED]
    bucket = t.entries[t.search_record[SEEK_ENTRY], E_BUCKET]
    if not still_lent(t, bucket, offered):
        return count
    size = _list_lent(t)
    alone = _find_alone(t, size) if count == 0 else -1
    price = 0
    begin = count
    for k in range(size):
        if not still_lent(t, bucket, offered):
            break
        t.pass_record[PASS_WORK] += 1
        run = t.victims[3, k]
        if borrows(t, run, offered) and gives_lent(t, run, offered):
            give_back(t, run, 1)
            t.victims[0, count] = t.victims[2, k]
            t.victims[1, count] = run
            price += t.victims[2, k]
            count += 1
    if alone >= 0 and t.victims[2, alone] <= price:
        for k in range(begin, count):
            give_back(t, t.victims[1, k], -1)
        t.victims[0, begin] = t.victims[2, alone]
        t.victims[1, begin] = t.victims[3, alone]
        give_back(t, t.victims[3, alone], 1)
        count = begin + 1
    for k in range(begin, count):
        t.runs[t.victims[1, k], R_MARK] = offered
        clear(t, t.victims[1, k], 1)
    return -1 if still_lent(t, bucket, offered) else count


@inner
def _find_alone(t: Tables, size: int) -> int:
    """The first of what is listed that gives back enough alone, -1."""
    offered = t.search_record[SEEK_OFFERED]
    bucket = t.entries[t.search_record[SEEK_ENTRY], E_BUCKET]
    for k in range(size):
        t.pass_record[PASS_WORK] += 1
        run = t.victims[3, k]
        if borrows(t, run, offered):
            give_back(t, run, 1)
            enough = not still_lent(t, bucket, offered)
            give_back(t, run, -1)
            if enough:
                return k
    return -1


@inner
def _let_all_be(t: Tables) -> None:
    """Nobody is marked any more."""
    offered = t.search_record[SEEK_OFFERED]
    t.pass_record[PASS_WORK] += t.meta[M_RUN_TOP]
    for run in range(t.meta[M_RUN_TOP]):
        if t.runs[run, R_NODES] > 0 and t.runs[run, R_MARK] == offered:
            t.runs[run, R_MARK] = 0
            give_back(t, run, -1)
            clear(t, run, -1)


@inner
def _take_one_lent(t: Tables) -> int:
    """The one that loses least of those that make room alone, in the cohorts and on nodes; how many (1 or 0).

    O(runs log runs + nodes + nodes that the candidates hold).
    """
    offered = t.search_record[SEEK_OFFERED]
    _let_all_be(t)
    there = count_fitting(t)
    size = _list_lent(t)
    for k in range(size):
        run = t.victims[3, k]
        t.pass_record[PASS_WORK] += 1
        if not borrows(t, run, offered):
            continue
        give_back(t, run, 1)
        if not still_lent(t, t.entries[t.search_record[SEEK_ENTRY], E_BUCKET], offered):
            if there + clear(t, run, 1) >= t.search_record[SEEK_GANG]:
                t.victims[0, 0] = t.victims[2, k]
                t.victims[1, 0] = run
                return 1
            clear(t, run, -1)
        give_back(t, run, -1)
    return 0


@inner
def _comes_back(t: Tables) -> bool:
    """Whether what the cohorts lack comes back, by when the victims would have left, without any."""
    offered = t.search_record[SEEK_OFFERED]
    bucket = t.entries[t.search_record[SEEK_ENTRY], E_BUCKET]
    now = t.pass_record[PASS_NOW]
    until = t.search_record[SEEK_DUE]
    find_lent(t, bucket, offered)
    depth = tree_descend(t.ends, ends_root(t), t.path, 0)
    seen = 0
    while goes_on(t, depth > 0 and still_lent(t, bucket, offered), seen, t.ends.shape[0]):
        seen += 1
        run = t.path[depth - 1]
        if t.ends[run, T_KEY] > until:
            break
        depth = tree_descend(t.ends, t.ends[run, T_RIGHT], t.path, depth - 1)
        if t.ends[run, T_KEY] > now or is_going(t, run):
            give_back(t, run, 1)
    return not still_lent(t, bucket, offered)
