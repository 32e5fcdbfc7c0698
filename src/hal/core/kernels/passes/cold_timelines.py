"""Timelines that are not up to date: built before a pass decides, or slice by slice where many of them are missing.

Pure; all of it is scratch. What is built when decides how long a slice takes, never what is planned. O(attempts) a
stale node, O(nodes) a line.
"""

from __future__ import annotations

from typing import Any, Final

from hal.core.kernels.passes.planned_reservations import HURT
from hal.core.kernels.passes.record import copy_reservations
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    B_CLASS,
    C_NODES,
    C_SHAPE,
    COUNT_COLD,
    COUNT_LINES,
    COUNT_RESERVED,
    COUNT_STALE,
    KIND_CLAIM,
    M_ACTIVE,
    M_NODES,
    M_PIECES,
    M_RESERVATIONS,
    M_RESERVED,
    N_PIECES,
    N_RESERVED,
    N_STALE,
    PASS_NOW,
    PASS_WORK,
    Q_CHAIN,
    Q_RESERVATION,
    S_EVER,
    S_LINE,
    V_HELD,
    V_KIND,
)
from hal.core.kernels.structures.memory import Tables, tables
from hal.core.kernels.timelines.chains import build_node, clear_node, link_reservations, unlink_reservations, warm_up
from hal.core.kernels.timelines.lines import FEW_NODES, line_of

NODE_WORK: Final = 1
ATTEMPT_WORK: Final = 1
"""What it takes to build the timeline of a node, and for each attempt there, in units of work."""
LINE_SHIFT: Final = 1
"""What it takes to draw the line of a shape: so many nodes, as a power of two, are one unit of work."""


@inner
def begin_planning(t: Tables) -> bool:
    """Begin with the reservations of the state. Returns whether the tables are large enough to plan."""
    warm_up(t)
    reserved = t.meta[M_RESERVED]
    # All nodes together need a point for each attempt and two for each reservation; two more while these move.
    if (
        t.planned.shape[0] < t.meta[M_RESERVATIONS] + 1
        or t.planned_nodes.shape[0] < reserved + t.meta[M_NODES]
        or t.profile.shape[0] < t.rows.shape[0] + t.meta[M_PIECES] + 4 * reserved + 8
        or t.events.shape[1] < t.meta[M_PIECES] + 2 * reserved + 8
    ):
        return False
    copy_reservations(t)
    return True


@inner
def build_stale(t: Tables) -> bool:
    """Build what is stale. Returns whether reservations cannot be kept; V_HELD = HURT says which."""
    now = t.pass_record[PASS_NOW]
    hurt = False
    for k in range(t.counts[COUNT_STALE]):
        clear_node(t, t.stale[k])
    while t.counts[COUNT_STALE] > 0:
        t.counts[COUNT_STALE] -= 1
        node = t.stale[t.counts[COUNT_STALE]]
        t.rows[node, N_STALE] = 0
        if node < t.meta[M_NODES] and build_node(t, node, now):
            place = t.rows[node, N_RESERVED]
            passed = 0
            while leads_on(t, place, passed, t.counts[COUNT_RESERVED]):
                passed += 1
                k = t.planned_nodes[place, Q_RESERVATION]
                if t.planned[k, V_KIND] != KIND_CLAIM:
                    t.planned[k, V_HELD] = HURT
                    hurt = True
                place = t.planned_nodes[place, Q_CHAIN]
    return hurt


@kernel
def learn(at: Any, now: int, budget: int) -> int:
    """Bring a part of what is kept about nodes up to date, where much of it is missing. Returns the work that it took.

    -1 asks for larger tables. Less than half of `budget`: what is left, if anything, is no slice's work.
    Nothing that is ever decided depends on this having been called; the next cycle takes less long.
    """
    t = tables(at)
    t.pass_record[PASS_WORK] = 0
    if t.meta[M_NODES] <= FEW_NODES or not _much_is_missing(t, budget):
        return 0
    if not begin_planning(t):
        return -1
    if _build_some(t, now, budget):
        _draw_some(t, budget)
    return int(t.pass_record[PASS_WORK])


@inner
def _wants_line(t: Tables, bucket: int) -> bool:
    """Whether work of a bucket, which some day could start, has no line yet."""
    class_id = t.buckets[bucket, B_CLASS]
    shape = t.classes[class_id, C_SHAPE]
    return bool(t.shapes[shape, S_LINE] == 0 and t.shapes[shape, S_EVER] >= t.classes[class_id, C_NODES])


@inner
def _much_is_missing(t: Tables, budget: int) -> bool:
    """Whether many nodes are stale, or a line is wanted for which there is room."""
    if t.counts[COUNT_COLD] != 0 or t.counts[COUNT_STALE] * NODE_WORK > budget >> 3:
        return True
    if t.counts[COUNT_LINES] < t.lines.shape[0]:
        for place in range(t.meta[M_ACTIVE]):
            if _wants_line(t, t.active[place]):
                return True
    return False


@inner
def _build_some(t: Tables, now: int, budget: int) -> bool:
    """Build stale nodes as long as the budget lasts. Returns whether lines may be drawn: all that can be built is.

    A node on which a reservation cannot be kept stays stale, below the others: who decides next has to see it. What was
    spent on it does not count as work: it would be spent again each time.
    """
    link_reservations(t)
    for k in range(t.counts[COUNT_STALE]):
        clear_node(t, t.stale[k])
    broken = 0
    spent = 0
    while t.counts[COUNT_STALE] > broken and spent < budget:
        last = t.counts[COUNT_STALE] - 1
        node = t.stale[last]
        work = NODE_WORK + ATTEMPT_WORK * t.rows[node, N_PIECES]
        spent += work
        if node < t.meta[M_NODES] and build_node(t, node, now):
            t.stale[last] = t.stale[broken]
            t.stale[broken] = node
            broken += 1
        else:
            t.counts[COUNT_STALE] = last
            t.rows[node, N_STALE] = 0
            t.pass_record[PASS_WORK] += work
    unlink_reservations(t)
    return bool(t.counts[COUNT_STALE] == broken)


@inner
def _draw_some(t: Tables, budget: int) -> None:
    """Draw lines for shapes that wait and have none, while there is room and as long as the budget lasts."""
    for place in range(t.meta[M_ACTIVE]):
        if t.counts[COUNT_LINES] >= t.lines.shape[0] or t.pass_record[PASS_WORK] >= budget:
            break
        if _wants_line(t, t.active[place]):
            line_of(t, t.classes[t.buckets[t.active[place], B_CLASS], C_SHAPE])
            t.pass_record[PASS_WORK] += t.meta[M_NODES] >> LINE_SHIFT
