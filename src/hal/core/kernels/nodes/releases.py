"""When each node comes to hold the request of a waiting job, kept from pass to pass for the few reserved shapes.

Pure; scratch. Free amounts of a node only grow with its releases, so one instant a node says all: the planned end that
makes the request fit. A release or a start makes the nodes that it touches be looked at again, O(attempts on the node);
the earliest instant at which enough nodes fit is the n-th least of one column, O(nodes). Walking all releases in the
order of time instead costs O(attempts), which a big full cluster pays for every attempt that ends.
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    B_CLASS,
    C_SHAPE,
    E_BUCKET,
    E_PLANNED,
    INF,
    M_NODES,
    M_RESOURCES,
    N_ATTEMPTS,
    N_PIECES,
    N_STAMP,
    N_UNREADY,
    P_ON_ROW,
    P_RUN,
    PASS_FIRST_NODE,
    PASS_FIRST_START,
    PASS_NOW,
    PASS_STARTS,
    R_BUCKET,
    R_END,
    READY_LINES,
    READY_SHAPE,
    READY_USED,
    S_CSET,
    SCRATCH_ENDS,
    SCRATCH_FREED,
    SCRATCH_FREED_AT,
    SCRATCH_SHAPES,
    START_ENTRY,
    START_NODE,
    START_NODES,
    TICK,
    TICK_READY,
    TICK_UNREADY,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.structures.sorting import heap_pairs, sink_pair, sort_pairs

FEW_NODES: Final = 64
"""Below so many nodes nothing is kept: walking the releases is as cheap."""
FEW_STARTS: Final = 64
"""With more starts in the same cycle the releases are walked: each node would look through all of them."""
WALK: Final = 256
"""Nodes given back, in the order of time, before the kept instants are asked instead."""
TOO_MANY: Final = -2


@inner
def _list_releases(t: Tables, node: int) -> int:
    """List the planned ends and shapes of what runs on a node and of what this slice starts there, in order of time.

    In scratch (SCRATCH_ENDS, SCRATCH_SHAPES). Returns how many they are.
    """
    now = t.pass_record[PASS_NOW]
    first = t.pass_record[PASS_FIRST_START]
    count_of_starts = t.pass_record[PASS_STARTS]
    ends = t.scratch[SCRATCH_ENDS]
    shapes = t.scratch[SCRATCH_SHAPES]
    if t.rows[node, N_PIECES] + count_of_starts > ends.shape[0]:
        return TOO_MANY
    count = 0
    piece = t.rows[node, N_ATTEMPTS] - 1
    walked = 0
    while leads_on(t, piece, walked, t.pieces.shape[0]):
        walked += 1
        run = t.pieces[piece, P_RUN]
        if t.runs[run, R_END] < INF:
            ends[count] = t.runs[run, R_END]
            shapes[count] = t.classes[t.buckets[t.runs[run, R_BUCKET], B_CLASS], C_SHAPE]
            count += 1
        piece = t.pieces[piece, P_ON_ROW] - 1
    for k in range(first, first + count_of_starts):
        entry = t.starts[k, START_ENTRY]
        begin = t.pass_record[PASS_FIRST_NODE] + t.starts[k, START_NODE]
        for i in range(begin, begin + t.starts[k, START_NODES]):
            end = now + t.entries[entry, E_PLANNED]
            if t.start_nodes[i] == node and end < INF:
                ends[count] = end
                shapes[count] = t.classes[t.buckets[t.entries[entry, E_BUCKET], B_CLASS], C_SHAPE]
                count += 1
    sort_pairs(ends, shapes, count)
    return count


@inner
def _find_ready(t: Tables, node: int, shape: int) -> int:
    """The planned end that makes a shape fit on a node: -1 it fits now, INF it never will, TOO_MANY not to be had."""
    resources = t.meta[M_RESOURCES]
    if t.allowed[t.shapes[shape, S_CSET], node] == 0 or not fits(t, t.capacity, node, shape, resources):
        return INF
    if fits(t, t.free, node, shape, resources):
        return -1
    count = _list_releases(t, node)
    if count == TOO_MANY:
        return TOO_MANY
    for r in range(resources):
        t.projected[node, r] = t.free[node, r]
    for k in range(count):
        for r in range(resources):
            t.projected[node, r] += t.request[r, t.scratch[SCRATCH_SHAPES, k]]
        if fits(t, t.projected, node, shape, resources):
            return int(t.scratch[SCRATCH_ENDS, k])
    return INF


@inner
def kept_line(t: Tables, shape: int) -> int:
    """The line of a shape whose instants are kept, -1."""
    if t.ticks[TICK_READY] == 1:
        for line in range(READY_LINES):
            if t.ready_of[line, READY_SHAPE] == shape + 1:
                return line
    return -1


@inner
def ready_line(t: Tables, shape: int) -> int:
    """The line of a shape, up to date, a new one if need be; -1 where a node has more attempts than scratch holds."""
    if t.ticks[TICK_READY] == 0:
        for line in range(READY_LINES):
            t.ready_of[line, READY_SHAPE] = 0
        t.ticks[TICK_READY] = 1
    for k in range(t.ticks[TICK_UNREADY]):
        node = t.unready[k]
        t.rows[node, N_UNREADY] = 0
        for line in range(READY_LINES):
            kept = t.ready_of[line, READY_SHAPE] - 1
            if kept >= 0:
                at = _find_ready(t, node, kept)
                t.ready[line, node] = at
                if at == TOO_MANY:
                    t.ready_of[line, READY_SHAPE] = 0
    t.ticks[TICK_UNREADY] = 0
    mine = kept_line(t, shape)
    if mine < 0:
        mine = 0
        for line in range(1, READY_LINES):
            if t.ready_of[line, READY_USED] < t.ready_of[mine, READY_USED]:
                mine = line
        t.ready_of[mine, READY_SHAPE] = 0
        for node in range(t.meta[M_NODES]):
            t.ready[mine, node] = _find_ready(t, node, shape)
            if t.ready[mine, node] == TOO_MANY:
                return -1
        t.ready_of[mine, READY_SHAPE] = shape + 1
    t.ready_of[mine, READY_USED] = t.ticks[TICK]
    return mine


@inner
def list_ready(t: Tables, line: int, missing: int) -> int:
    """List in scratch when nodes come to fit, and which: all up to the instant at which `missing` more of them do.

    Returns how many they are, sorted by (instant, node); 0 when that instant never comes. Never before now + 1.
    """
    now = t.pass_record[PASS_NOW]
    freed = t.scratch[SCRATCH_FREED_AT]
    freed_row = t.scratch[SCRATCH_FREED]
    size = 0
    for node in range(t.meta[M_NODES]):
        at = t.ready[line, node]
        if at < 0 or at >= INF:
            continue
        at = max(at, now + 1)
        if size < missing:
            freed[size] = at
            freed_row[size] = node
            size += 1
            if size == missing:
                heap_pairs(freed, freed_row, size)
        elif at < freed[0]:
            freed[0] = at
            freed_row[0] = node
            sink_pair(freed, freed_row, size, 0)
    if size < missing:
        return 0
    return list_ready_until(t, line, freed[0])


@inner
def list_ready_until(t: Tables, line: int, last: int) -> int:
    """The same up to and including an instant; 0 where that is INF."""
    if last >= INF:
        return 0
    now = t.pass_record[PASS_NOW]
    freed = t.scratch[SCRATCH_FREED_AT]
    freed_row = t.scratch[SCRATCH_FREED]
    size = 0
    for node in range(t.meta[M_NODES]):
        at = t.ready[line, node]
        if 0 <= at < INF and max(at, now + 1) <= last:
            freed[size] = max(at, now + 1)
            freed_row[size] = node
            size += 1
    sort_pairs(freed, freed_row, size)
    return size


@inner
def project_node(t: Tables, node: int, until: int, stamp: int) -> None:
    """What will be free on a node at `until`, with every release up to and including it: in `projected`, stamped."""
    for r in range(t.meta[M_RESOURCES]):
        t.projected[node, r] = t.free[node, r]
    count = _list_releases(t, node)
    for k in range(count):
        if max(t.scratch[SCRATCH_ENDS, k], t.pass_record[PASS_NOW] + 1) <= until:
            for r in range(t.meta[M_RESOURCES]):
                t.projected[node, r] += t.request[r, t.scratch[SCRATCH_SHAPES, k]]
    t.rows[node, N_STAMP] = stamp


@inner
def project_release(t: Tables, shape: int, node: int, given: int, stamp: int) -> bool:
    """Project the release of a request on a node; True when a waiting shape fits there from now on and did not before.

    `stamp` names the projection: the first release of it on a node begins with what is free there.
    """
    resources = t.meta[M_RESOURCES]
    if t.rows[node, N_STAMP] != stamp:
        t.rows[node, N_STAMP] = stamp
        for r in range(resources):
            t.projected[node, r] = t.free[node, r]
    if t.allowed[t.shapes[shape, S_CSET], node] == 0:
        for r in range(resources):
            t.projected[node, r] += t.request[r, given]
        return False
    before = fits(t, t.projected, node, shape, resources)
    for r in range(resources):
        t.projected[node, r] += t.request[r, given]
    return not before and fits(t, t.projected, node, shape, resources)
