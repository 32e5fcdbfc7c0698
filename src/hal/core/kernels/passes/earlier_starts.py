"""Whether a reservation may begin earlier than it does: on nodes where something came free since it last looked.

Pure but for scratch. An event on a node that a job could use wakes it; where only reservations moved it looks later
(V_BEHIND). O(nodes that came free) a reservation, or a search of all nodes.
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.nodes.reach import reaches
from hal.core.kernels.rules.licences import waits_apart
from hal.core.kernels.structures.arrays import Ints
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    C_SHAPE,
    COUNT_FREED,
    M_FREED,
    M_NODES,
    M_SEEN,
    N_EVENT,
    N_FREED,
    N_STAMP,
    PASS_EPOCH,
    PASS_EVENTS,
    PASS_NOW,
    PASS_WORK,
    Q_NODE,
    SCRATCH_EVENTS,
    SCRATCH_LOCAL,
    TICK,
    V_BEHIND,
    V_CLASS,
    V_FIRST,
    V_NODES,
    V_PLANNED,
    V_START,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.timelines.chains import let_go
from hal.core.kernels.timelines.lines import mark_log, near_line, put_back
from hal.core.kernels.timelines.node_intervals import next_start

NOWHERE: Final = -1
ANYWHERE: Final = -2
LOOK_SHIFT: Final = 4
"""So many nodes looked at, as a power of two, are one unit of work."""


@inner
def list_events(t: Tables) -> None:
    """List the nodes on which an event freed something for this pass to see (SCRATCH_EVENTS)."""
    events = t.scratch[SCRATCH_EVENTS]
    count = 0
    for k in range(t.meta[M_FREED]):
        node = t.freed[k]
        if t.meta[M_SEEN] < t.rows[node, N_EVENT] <= t.pass_record[PASS_EPOCH]:
            events[count] = node
            count += 1
    t.pass_record[PASS_EVENTS] = count


@inner
def find_earlier(t: Tables, reservation: int) -> tuple[int, int]:
    """Whether a reservation may begin earlier: only on nodes where something came free since it last looked.

    Returns (NOWHERE, 0); (node, its start) for a reservation of one node that moves there; or (ANYWHERE, from when on).
    """
    now = t.pass_record[PASS_NOW]
    if not is_woken(t, reservation):
        return NOWHERE, 0
    count = t.meta[M_FREED] + t.counts[COUNT_FREED]
    many = t.meta[M_NODES] >> 3 if t.planned[reservation, V_NODES] > 1 else t.meta[M_NODES]
    if t.planned[reservation, V_BEHIND] == 1 or count > many:
        t.planned[reservation, V_BEHIND] = 0
        return ANYWHERE, now
    t.pass_record[PASS_WORK] += count >> LOOK_SHIFT
    shape = t.classes[t.planned[reservation, V_CLASS], C_SHAPE]
    line = near_line(t, shape)
    own = _own_came_free(t, reservation)
    if own and (t.planned[reservation, V_NODES] > 1 or waits_apart(t, shape)):
        return ANYWHERE, now
    # Its own node came free in part: what it holds itself must not stand in its way.
    log, stale = mark_log(t)
    mine = t.planned_nodes[t.planned[reservation, V_FIRST], Q_NODE] if own else -1
    if own:
        let_go(t, reservation)
    best = t.planned[reservation, V_START]
    found, best = _soonest(t, t.freed, t.meta[M_FREED], line, mine, reservation, NOWHERE, best)
    found, best = _soonest(t, t.scratch[SCRATCH_LOCAL], t.counts[COUNT_FREED], line, mine, reservation, found, best)
    if own:
        put_back(t, reservation, -1, shape, log, stale)
    if found >= 0 and (t.planned[reservation, V_NODES] > 1 or best == now):
        return ANYWHERE, best
    return found, best


@inner
def is_woken(t: Tables, reservation: int) -> bool:
    """Whether an event freed something that a reserved job could use. Where only reservations moved, it looks later."""
    events = t.pass_record[PASS_EVENTS]
    shape = t.classes[t.planned[reservation, V_CLASS], C_SHAPE]
    t.pass_record[PASS_WORK] += 1 + (events >> 3)
    for k in range(events):
        if reaches(t, shape, t.scratch[SCRATCH_EVENTS, k]):
            return True
    t.pass_record[PASS_WORK] += t.meta[M_FREED] >> LOOK_SHIFT
    for k in range(t.meta[M_FREED]):
        if reaches(t, shape, t.freed[k]):
            t.planned[reservation, V_BEHIND] = 1
            break
    return False


@inner
def _own_came_free(t: Tables, reservation: int) -> bool:
    """Whether one of the nodes where something came free is of a reservation itself."""
    for place in range(
        t.planned[reservation, V_FIRST], t.planned[reservation, V_FIRST] + t.planned[reservation, V_NODES]
    ):
        node = t.planned_nodes[place, Q_NODE]
        if t.rows[node, N_FREED] != 0 or t.rows[node, N_STAMP] == t.ticks[TICK]:
            return True
    return False


@inner
def _soonest(
    t: Tables, freed: Ints, count: int, line: int, mine: int, reservation: int, found: int, best: int
) -> tuple[int, int]:
    """A node of these that lets a reservation begin before `best`, or at it when `found` does too: (node, start).

    Of those that let it begin first the highest, as `choose_later` does. The line does not know node `mine`.
    """
    shape = t.classes[t.planned[reservation, V_CLASS], C_SHAPE]
    planned = t.planned[reservation, V_PLANNED]
    now = t.pass_record[PASS_NOW]
    for k in range(count):
        node = freed[k]
        known = -1 if node == mine else line
        if known >= 0 and t.line_begin[line, node] > best:
            continue
        begin = next_start(t, known, node, shape, now, planned, best + 1)
        if begin < best or (begin == best and found >= 0 and node > found):
            best = begin
            found = node
    return found, best
