"""EASY's reservation: the earliest release at which enough nodes hold the first waiting job, and which nodes.

Every release up to and including that instant counts, and of the nodes those that come free latest are reserved. What
this slice started counts with what runs. Releases are walked in the order of time, O(attempts); on a big cluster the
kept instants of the shape are asked instead (see releases). Source: Lifka, JSSPP 1995.
"""

from __future__ import annotations

from hal.core.kernels.nodes.compact_nodes import (
    begin_offers,
    choose_ranked,
    choose_ready,
    gather_offers,
    must_share,
    offer,
)
from hal.core.kernels.nodes.domains import add_to_domain, begin_domains, first_domain, last_domain, level_within
from hal.core.kernels.nodes.ends import ends_root
from hal.core.kernels.nodes.releases import (
    FEW_NODES,
    FEW_STARTS,
    WALK,
    kept_line,
    list_ready,
    list_ready_until,
    project_node,
    project_release,
    ready_line,
)
from hal.core.kernels.nodes.rows import fits, reserve_node
from hal.core.kernels.rules.booked import booked_start, within_booking
from hal.core.kernels.rules.licences import licence_shadow
from hal.core.kernels.structures.bounds import goes_on, leads_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_CLASS,
    BACKFILL_NONE,
    C_NODES,
    C_SHAPE,
    COUNT_RESERVATIONS,
    COUNT_RESERVED,
    DOMAIN_FIRST,
    DOMAIN_LAST,
    E_BLOCKED_AT,
    E_BUCKET,
    E_FIRST,
    E_JOB,
    E_PLANNED,
    INF,
    KIND_BLOCK,
    KIND_CLAIM,
    KIND_NEVER,
    KIND_RESERVED,
    M_BACKFILL,
    M_BOOKINGS,
    M_CLAIM_AFTER,
    M_NODES,
    M_RESOURCES,
    N_RESERVED,
    N_STAMP,
    P_NEXT,
    P_NODE,
    PASS_FIRST_NODE,
    PASS_FIRST_START,
    PASS_KEY,
    PASS_NOW,
    PASS_STAMP,
    PASS_STARTS,
    PASS_WALL,
    Q_EXTRA,
    Q_NODE,
    Q_RESERVATION,
    R_BUCKET,
    R_NODES,
    R_PIECE,
    S_CSET,
    S_FIT,
    S_LICENCES,
    SCRATCH_DUE,
    SCRATCH_DUE_START,
    SCRATCH_ENDS,
    SCRATCH_FREED,
    SCRATCH_FREED_AT,
    SCRATCH_SHAPES,
    START_ENTRY,
    START_NODE,
    START_NODES,
    T_KEY,
    T_RIGHT,
    V_BEHIND,
    V_CLASS,
    V_DIRTY,
    V_ENTRY,
    V_FIRST,
    V_HELD,
    V_JOB,
    V_KEY,
    V_KIND,
    V_NODES,
    V_PLANNED,
    V_START,
    V_TASK,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import select, sort_pairs
from hal.core.kernels.structures.treap import tree_descend


@inner
def reserve(t: Tables, entry: int, task: int) -> None:
    """Reserve nodes for a task of an entry that is the first to wait: from its shadow on, or now where it claims them.

    Under strict order it blocks whoever competes, without nodes.
    """
    class_id = t.buckets[t.entries[entry, E_BUCKET], B_CLASS]
    shape = t.classes[class_id, C_SHAPE]
    mine = add_reservation(t, entry, task)
    if t.meta[M_BACKFILL] == BACKFILL_NONE:
        t.planned[mine, V_KIND] = KIND_BLOCK
        return
    stamp = t.pass_record[PASS_STAMP] + mine
    apart = t.meta[M_BOOKINGS] > 0 or t.shapes[shape, S_LICENCES] != 0
    line = -1
    if apart:
        newly, shadow = _find_shadow_between_bookings(t, entry, stamp)
    else:
        newly, shadow, line = _find_shadow(t, shape, t.classes[class_id, C_NODES], stamp)
    if shadow >= 0:
        t.planned[mine, V_KIND] = KIND_RESERVED
        t.planned[mine, V_START] = shadow
        found = t.classes[class_id, C_NODES] if apart else _choose_latest(t, mine, newly)
    else:
        found = _claim_nodes(t, mine, apart)
    hold_nodes(t, mine, found, shadow, line, stamp)


@inner
def add_reservation(t: Tables, entry: int, task: int) -> int:
    """A reservation without nodes and time."""
    mine = t.counts[COUNT_RESERVATIONS]
    t.counts[COUNT_RESERVATIONS] += 1
    t.planned[mine, V_ENTRY] = entry
    t.planned[mine, V_JOB] = t.entries[entry, E_JOB]
    t.planned[mine, V_TASK] = t.entries[entry, E_FIRST] + task
    t.planned[mine, V_KEY] = t.pass_record[PASS_KEY]
    t.planned[mine, V_START] = INF
    t.planned[mine, V_PLANNED] = t.entries[entry, E_PLANNED]
    t.planned[mine, V_CLASS] = t.buckets[t.entries[entry, E_BUCKET], B_CLASS]
    t.planned[mine, V_FIRST] = t.counts[COUNT_RESERVED]
    t.planned[mine, V_NODES] = 0
    t.planned[mine, V_DIRTY] = 0
    t.planned[mine, V_HELD] = 1
    t.planned[mine, V_BEHIND] = 0
    return int(mine)


# --- the shadow: when enough nodes fit -------------------------------------------------------------------------------


@inner
def _find_shadow(t: Tables, shape: int, nodes: int, stamp: int) -> tuple[int, int, int]:
    """When enough nodes fit: (nodes that newly fit by then, listed in scratch; the instant or -1; the line asked)."""
    fit = t.shapes[shape, S_FIT]
    if fit >= nodes:
        return 0, t.pass_record[PASS_NOW], -1
    line = -1
    may_keep = t.meta[M_NODES] >= FEW_NODES and t.pass_record[PASS_STARTS] <= FEW_STARTS
    if may_keep and kept_line(t, shape) >= 0:
        line = ready_line(t, shape)
    if line < 0:
        newly, shadow, line = project(t, shape, stamp, list_due(t), nodes, INF, may_keep)
        if line < 0:
            return newly, shadow, -1
    if must_share(t, shape, nodes):
        newly = list_ready_until(t, line, _ready_in_one(t, line, shape, nodes))
    else:
        newly = list_ready(t, line, nodes - fit)
    return newly, t.scratch[SCRATCH_FREED_AT, newly - 1] if newly > 0 else -1, line


@inner
def _ready_in_one(t: Tables, line: int, shape: int, nodes: int) -> int:
    """The earliest instant at which so many nodes of one domain fit, by the kept instants; INF = never."""
    values = t.scratch[SCRATCH_ENDS]
    level = level_within(t, shape)
    best = INF
    for k in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[k]
        count = 0
        for place in range(t.domains[domain, DOMAIN_FIRST], t.domains[domain, DOMAIN_LAST]):
            at = t.ready[line, t.node_order[place]]
            if at < INF:
                values[count] = at
                count += 1
        if count >= nodes:
            best = min(best, select(values, count, nodes - 1))
    return int(max(best, t.pass_record[PASS_NOW] + 1))


@inner
def list_due(t: Tables) -> int:
    """List the planned ends of this slice's starts, which are not in the tree of running attempts yet; how many."""
    now = t.pass_record[PASS_NOW]
    first = t.pass_record[PASS_FIRST_START]
    due = t.scratch[SCRATCH_DUE]
    count = 0
    for start in range(first, first + t.pass_record[PASS_STARTS]):
        entry = t.starts[start, START_ENTRY]
        given = t.classes[t.buckets[t.entries[entry, E_BUCKET], B_CLASS], C_SHAPE]
        end = now + within_booking(t, given, now, t.entries[entry, E_PLANNED])
        if end < INF:
            due[count] = end
            t.scratch[SCRATCH_DUE_START, count] = start
            count += 1
    sort_pairs(due, t.scratch[SCRATCH_DUE_START], count)
    return count


@inner
def project(
    t: Tables, shape: int, stamp: int, due: int, nodes: int, until: int, may_keep: bool
) -> tuple[int, int, int]:
    """Project releases in the order of time up to `until` or, with all of that instant, until `nodes` nodes fit.

    nodes: INF = only `until` counts. due: how many of this slice's starts are listed.
    may_keep: after WALK nodes the kept instants are asked instead.
    Returns (nodes that newly fit, the instant at which they were enough or -1, the line to ask or -1).
    """
    now = t.pass_record[PASS_NOW]
    newly = 0
    counted = 0
    shadow = -1
    share = nodes < INF and must_share(t, shape, nodes)
    if share:
        begin_domains(t, shape)
    depth = tree_descend(t.ends, ends_root(t), t.path, 0)
    taken = 0
    looked = 0
    seen = 0
    while goes_on(t, True, seen, t.ends.shape[0] + due + 1):
        seen += 1
        if looked >= WALK and may_keep:
            line = ready_line(t, shape)
            if line >= 0:
                return newly, shadow, line
            may_keep = False
        at = INF
        runs = False
        if depth > 0:
            at = max(t.ends[t.path[depth - 1], T_KEY], now + 1)
            runs = True
        if taken < due and max(t.scratch[SCRATCH_DUE, taken], now + 1) < at:
            at = max(t.scratch[SCRATCH_DUE, taken], now + 1)
            runs = False
        if at >= INF or at > until or (shadow >= 0 and at > shadow):
            break
        if runs:
            run = t.path[depth - 1]
            depth = tree_descend(t.ends, t.ends[run, T_RIGHT], t.path, depth - 1)
            newly = _release_run(t, run, shape, stamp, at, newly)
            looked += t.runs[run, R_NODES]
        else:
            newly = _release_start(t, t.scratch[SCRATCH_DUE_START, taken], shape, stamp, at, newly)
            taken += 1
        if shadow >= 0:
            continue
        if share:
            while counted < newly and shadow < 0:
                if add_to_domain(t, shape, t.scratch[SCRATCH_FREED, counted]) >= nodes:
                    shadow = at
                counted += 1
        elif t.shapes[shape, S_FIT] + newly >= nodes:
            shadow = at
    return newly, shadow, -1


@inner
def _release_run(t: Tables, run: int, shape: int, stamp: int, at: int, newly: int) -> int:
    """Project the end of an attempt; nodes that newly fit are listed behind the first `newly`. How many there are."""
    given = t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE]
    piece = t.runs[run, R_PIECE]
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        node = t.pieces[piece, P_NODE]
        if project_release(t, shape, node, given, stamp):
            t.scratch[SCRATCH_FREED_AT, newly] = at
            t.scratch[SCRATCH_FREED, newly] = node
            newly += 1
        piece = t.pieces[piece, P_NEXT]
    return newly


@inner
def _release_start(t: Tables, start: int, shape: int, stamp: int, at: int, newly: int) -> int:
    """The same of an attempt that this slice starts."""
    given = t.classes[t.buckets[t.entries[t.starts[start, START_ENTRY], E_BUCKET], B_CLASS], C_SHAPE]
    first = t.pass_record[PASS_FIRST_NODE] + t.starts[start, START_NODE]
    for i in range(first, first + t.starts[start, START_NODES]):
        if project_release(t, shape, t.start_nodes[i], given, stamp):
            t.scratch[SCRATCH_FREED_AT, newly] = at
            t.scratch[SCRATCH_FREED, newly] = t.start_nodes[i]
            newly += 1
    return newly


# --- where bookings or licences have a say ---------------------------------------------------------------------------


@inner
def _find_shadow_between_bookings(t: Tables, entry: int, stamp: int) -> tuple[int, int]:
    """When enough nodes fit between bookings, and licences are there: (nodes that newly fit by then, instant or -1).

    Writes the reserved nodes, and projects amounts up to the instant.
    """
    class_id = t.buckets[t.entries[entry, E_BUCKET], B_CLASS]
    shape = t.classes[class_id, C_SHAPE]
    since = licence_shadow(t, shape, t.entries[entry, E_PLANNED], t.pass_record[PASS_WALL])
    if since < 0:
        return 0, -1
    due = list_due(t)
    newly, _shadow, _line = project(t, shape, -stamp, due, INF, INF, False)
    nodes = t.classes[class_id, C_NODES]
    if must_share(t, shape, nodes):
        shadow = _choose_in_one_between_bookings(t, shape, nodes, since, newly)
    else:
        shadow = _choose_between_bookings(t, shape, nodes, since, newly)
    if shadow >= 0:
        newly, _shadow, _line = project(t, shape, stamp, due, INF, shadow, False)
    return newly, shadow


@inner
def _choose_between_bookings(t: Tables, shape: int, nodes: int, since: int, newly: int) -> int:
    """The earliest instant from `since` on at which enough nodes fit and bookings let the job run there; -1 = never.

    Writes the nodes: of those the ones that come free latest. A node that fits stays fitting: only releases are ahead.
    """
    wall = t.pass_record[PASS_WALL]
    ready = t.scratch[SCRATCH_ENDS]
    values = t.scratch[SCRATCH_SHAPES]
    list_ready_nodes(t, shape, newly)
    at = since
    tries = 0
    # Each round begins where a booking ends on some node: later than the one before.
    while goes_on(t, True, tries, t.meta[M_NODES] * (1 + t.booked.shape[0]) + 1):
        tries += 1
        count = 0
        there = 0
        for node in range(t.meta[M_NODES]):
            if ready[node] < INF:
                begin = booked_start(t, node, shape, max(ready[node], at), wall)
                if begin < INF:
                    values[count] = begin
                    count += 1
                if begin == at:
                    there += 1
        if there >= nodes:
            break
        if count < nodes:
            return -1
        at = select(values, count, nodes - 1)
    freed_at = t.scratch[SCRATCH_FREED_AT]
    freed = t.scratch[SCRATCH_FREED]
    count = 0
    for node in range(t.meta[M_NODES]):
        if ready[node] < INF and booked_start(t, node, shape, max(ready[node], at), wall) == at:
            freed_at[count] = ready[node]
            freed[count] = node
            count += 1
    sort_pairs(freed_at, freed, count)
    for k in range(nodes):
        t.planned_nodes[t.counts[COUNT_RESERVED] + k, Q_NODE] = freed[count - 1 - k]
    return int(at)


@inner
def _choose_in_one_between_bookings(t: Tables, shape: int, nodes: int, since: int, newly: int) -> int:
    """The same for nodes that must be in one domain: the earliest instant of any domain."""
    wall = t.pass_record[PASS_WALL]
    ready = t.scratch[SCRATCH_ENDS]
    level = level_within(t, shape)
    list_ready_nodes(t, shape, newly)
    best = INF
    for k in range(first_domain(t, level), last_domain(t, level)):
        domain = t.listed[k]
        best = min(best, _between_bookings_of(t, domain, shape, nodes, since))
    if best >= INF:
        return -1
    begin_offers(t)
    for node in range(t.meta[M_NODES]):
        if ready[node] < INF and booked_start(t, node, shape, max(ready[node], best), wall) == best:
            offer(t, node, -ready[node])
    gather_offers(t)
    _choose_in_one(t, nodes, level)
    return int(best)


@inner
def _between_bookings_of(t: Tables, domain: int, shape: int, nodes: int, since: int) -> int:
    """The earliest instant from `since` on at which so many nodes of a domain fit between bookings; INF = never."""
    wall = t.pass_record[PASS_WALL]
    ready = t.scratch[SCRATCH_ENDS]
    values = t.scratch[SCRATCH_SHAPES]
    first = t.domains[domain, DOMAIN_FIRST]
    last = t.domains[domain, DOMAIN_LAST]
    at = since
    tries = 0
    # Each round begins where a booking ends on some node: later than the one before.
    while goes_on(t, True, tries, t.meta[M_NODES] * (1 + t.booked.shape[0]) + 1):
        tries += 1
        count = 0
        there = 0
        for place in range(first, last):
            node = t.node_order[place]
            if ready[node] < INF:
                begin = booked_start(t, node, shape, max(ready[node], at), wall)
                if begin < INF:
                    values[count] = begin
                    count += 1
                if begin == at:
                    there += 1
        if there >= nodes:
            return int(at)
        if count < nodes:
            return INF
        at = select(values, count, nodes - 1)
    return INF


@inner
def list_ready_nodes(t: Tables, shape: int, newly: int) -> None:
    """List for each node when it comes to fit, beside bookings; INF where it never does or is reserved already."""
    resources = t.meta[M_RESOURCES]
    cset = t.shapes[shape, S_CSET]
    ready = t.scratch[SCRATCH_ENDS]
    for node in range(t.meta[M_NODES]):
        ready[node] = INF
        if t.allowed[cset, node] != 0 and fits(t, t.free, node, shape, resources):
            ready[node] = t.pass_record[PASS_NOW]
    for k in range(newly):
        ready[t.scratch[SCRATCH_FREED, k]] = t.scratch[SCRATCH_FREED_AT, k]
    for i in range(t.counts[COUNT_RESERVED]):
        ready[t.planned_nodes[i, Q_NODE]] = INF  # for work of another booking: a node is reserved once


# --- the nodes -------------------------------------------------------------------------------------------------------


@inner
def _choose_latest(t: Tables, mine: int, newly: int) -> int:
    """Write the nodes that come free latest, then those that fit now, the highest first; how many."""
    class_id = t.planned[mine, V_CLASS]
    shape = t.classes[class_id, C_SHAPE]
    nodes = t.classes[class_id, C_NODES]
    offset = t.planned[mine, V_FIRST]
    freed = t.scratch[SCRATCH_FREED]
    found = 0
    if must_share(t, shape, nodes):
        return _choose_latest_in_one(t, shape, nodes, newly)
    sort_pairs(t.scratch[SCRATCH_FREED_AT], freed, newly)
    while found < nodes and newly > 0:
        newly -= 1
        t.planned_nodes[offset + found, Q_NODE] = freed[newly]
        found += 1
    node = t.meta[M_NODES] - 1
    while found < nodes and node >= 0:
        if t.allowed[t.shapes[shape, S_CSET], node] != 0 and fits(t, t.free, node, shape, t.meta[M_RESOURCES]):
            t.planned_nodes[offset + found, Q_NODE] = node
            found += 1
        node -= 1
    return found


@inner
def _choose_latest_in_one(t: Tables, shape: int, nodes: int, newly: int) -> int:
    """The same in the domain with the fewest nodes that are enough."""
    begin_offers(t)
    for node in range(t.meta[M_NODES]):
        if t.allowed[t.shapes[shape, S_CSET], node] != 0 and fits(t, t.free, node, shape, t.meta[M_RESOURCES]):
            offer(t, node, 0)
    for k in range(newly):
        offer(t, t.scratch[SCRATCH_FREED, k], -t.scratch[SCRATCH_FREED_AT, k])
    gather_offers(t)
    return _choose_in_one(t, nodes, level_within(t, shape))


@inner
def _choose_in_one(t: Tables, nodes: int, level: int) -> int:
    """Write offered nodes of one domain, those of least rank; how many."""
    chosen = t.scratch[SCRATCH_SHAPES]
    found = choose_ranked(t, nodes, level, True, chosen, 0)
    for k in range(found):
        t.planned_nodes[t.counts[COUNT_RESERVED] + k, Q_NODE] = chosen[k]
    return found


@inner
def _claim_nodes(t: Tables, mine: int, apart: bool) -> int:
    """Where its shadow is never: after a while claim nodes, first those that fit now, then others; how many."""
    class_id = t.planned[mine, V_CLASS]
    shape = t.classes[class_id, C_SHAPE]
    nodes = t.classes[class_id, C_NODES]
    now = t.pass_record[PASS_NOW]
    resources = t.meta[M_RESOURCES]
    since = t.entries[t.planned[mine, V_ENTRY], E_BLOCKED_AT]
    t.planned[mine, V_KIND] = KIND_NEVER
    if since < 0 or now - since < t.meta[M_CLAIM_AFTER]:
        return 0
    t.planned[mine, V_KIND] = KIND_CLAIM
    found = 0
    share = must_share(t, shape, nodes)
    if share:
        begin_offers(t)
    for later in range(2):
        for node in range(t.meta[M_NODES]):
            if (
                (found < nodes or share)
                and t.rows[node, N_RESERVED] < 0  # for work of another booking: a node is reserved once
                and t.allowed[t.shapes[shape, S_CSET], node] != 0
                and fits(t, t.capacity, node, shape, resources)
                and fits(t, t.free, node, shape, resources) == (later == 0)
                and (not apart or booked_start(t, node, shape, now, t.pass_record[PASS_WALL]) == now)
            ):
                if share:
                    offer(t, node, later)
                else:
                    t.planned_nodes[t.planned[mine, V_FIRST] + found, Q_NODE] = node
                    found += 1
    if share:
        gather_offers(t)
        chosen = t.scratch[SCRATCH_SHAPES]
        found = choose_ready(t, nodes, level_within(t, shape), chosen)
        for k in range(found):
            t.planned_nodes[t.planned[mine, V_FIRST] + k, Q_NODE] = chosen[k]
    return found


@inner
def hold_nodes(t: Tables, mine: int, found: int, shadow: int, line: int, stamp: int) -> None:
    """Reserve the nodes that were written, and note what is left on each at the shadow beside the reservation."""
    shape = t.classes[t.planned[mine, V_CLASS], C_SHAPE]
    offset = t.planned[mine, V_FIRST]
    t.planned[mine, V_NODES] = found
    for i in range(offset, offset + found):
        node = t.planned_nodes[i, Q_NODE]
        if line >= 0 and shadow >= 0:
            project_node(t, node, shadow, stamp)
        t.planned_nodes[i, Q_RESERVATION] = mine
        reserve_node(t, node, i)
        for r in range(t.meta[M_RESOURCES]):
            there = t.projected[node, r] if t.rows[node, N_STAMP] == stamp and shadow >= 0 else t.free[node, r]
            t.planned_nodes[i, Q_EXTRA + r] = there - t.request[r, shape]
    t.counts[COUNT_RESERVED] += found
