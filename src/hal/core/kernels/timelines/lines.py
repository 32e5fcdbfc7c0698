"""Lines: for one shape and every node the first interval in which it fits, and when the next one begins.

Pure scratch. Most searches read nothing else: a first interval is often too short, and the next one too late to matter.
A line follows a ring of touched nodes, O(points) a node. Nodes up to FEW_NODES are searched without lines.
"""

from __future__ import annotations

from typing import Final

from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    COUNT_LINE,
    COUNT_LINES,
    COUNT_LOG,
    COUNT_STALE,
    INF,
    LINE_AT,
    LINE_SHAPE,
    M_NODES,
    M_RESOURCES,
    N_LOGGED,
    N_STALE,
    POINT_NEXT,
    POINT_TIME,
    S_CSET,
    S_LINE,
)
from hal.core.kernels.structures.memory import Tables
from hal.core.kernels.timelines.chains import hold
from hal.core.kernels.timelines.points import point_fits

FEW_NODES: Final = 8
"""Up to so many nodes are searched without lines."""


@inner
def line_of(t: Tables, shape: int) -> int:
    """The line of a shape, up to date; -1 when nodes are so few that none is kept."""
    rows = t.meta[M_NODES]
    if rows <= FEW_NODES:
        return -1
    line = t.shapes[shape, S_LINE] - 1
    first = 0
    last = t.counts[COUNT_LOG]
    if line < 0:
        if t.counts[COUNT_LINES] < t.lines.shape[0]:
            line = t.counts[COUNT_LINES]
            t.counts[COUNT_LINES] += 1
        else:
            line = t.counts[COUNT_LINE]
            t.counts[COUNT_LINE] = (line + 1) % t.lines.shape[0]
            if t.shapes[t.lines[line, LINE_SHAPE], S_LINE] == line + 1:
                t.shapes[t.lines[line, LINE_SHAPE], S_LINE] = 0
        t.lines[line, LINE_SHAPE] = shape
        t.shapes[shape, S_LINE] = line + 1
        first = -1
    else:
        first = t.lines[line, LINE_AT]
    t.lines[line, LINE_AT] = last
    if first < 0 or last - first >= rows:
        for node in range(rows):
            _renew(t, line, node, shape)
    else:
        mask = t.node_log.shape[0] - 1
        for k in range(first, last):
            node = t.node_log[k & mask]
            again = t.rows[node, N_LOGGED]
            if k < again < last and t.node_log[again & mask] == node:
                continue  # it stands further on, too
            _renew(t, line, node, shape)
    return int(line)


@inner
def near_line(t: Tables, shape: int) -> int:
    """The line of a shape where it has one that is nearly up to date, else -1."""
    line = t.shapes[shape, S_LINE] - 1
    if line < 0 or t.counts[COUNT_LOG] - t.lines[line, LINE_AT] > t.meta[M_NODES] >> 2:
        return -1
    return line_of(t, shape)


@inner
def _renew(t: Tables, line: int, node: int, shape: int) -> None:
    resources = t.meta[M_RESOURCES]
    begin = INF
    end = INF
    again = INF
    if t.allowed[t.shapes[shape, S_CSET], node] != 0 and fits(t, t.capacity, node, shape, resources):
        point = _first_fitting(t, node, shape, resources)
        if point >= 0:
            begin = t.profile[point, POINT_TIME]
            points_seen = 0
            while leads_on(t, point, points_seen, t.profile.shape[0]) and point_fits(t, point, shape, resources):
                points_seen += 1
                point = t.profile[point, POINT_NEXT]
            if point >= 0:
                end = t.profile[point, POINT_TIME]
                point = _first_fitting(t, point, shape, resources)
                if point >= 0:
                    again = t.profile[point, POINT_TIME]
    t.line_begin[line, node] = begin
    t.line_end[line, 2 * node] = end
    t.line_end[line, 2 * node + 1] = again


@inner
def _first_fitting(t: Tables, point: int, shape: int, resources: int) -> int:
    """From a point on the first at which a shape fits, -1 = none."""
    points_seen = 0
    while leads_on(t, point, points_seen, t.profile.shape[0]) and not point_fits(t, point, shape, resources):
        points_seen += 1
        point = t.profile[point, POINT_NEXT]
    return point


@inner
def mark_log(t: Tables) -> tuple[int, int]:
    """Where the log of touched nodes and the list of stale ones end before a reservation is let go, for `put_back`."""
    return int(t.counts[COUNT_LOG]), int(t.counts[COUNT_STALE])


@inner
def put_back(t: Tables, reservation: int, line: int, shape: int, log: int, stale: int) -> None:
    """Let a reservation count again as it was when `mark_log` gave (log, stale): nothing has changed in the end.

    Only this line (-1 = none) has followed the log since. Its nodes need not be built again: their chains say what they
    did before, and building them would be told to every line.
    """
    hold(t, reservation)
    if t.counts[COUNT_LOG] - log < t.meta[M_NODES]:
        if line >= 0:
            for k in range(log, t.counts[COUNT_LOG]):
                _renew(t, line, t.node_log[k & (t.node_log.shape[0] - 1)], shape)
            t.lines[line, LINE_AT] = log
        t.counts[COUNT_LOG] = log
    for k in range(stale, t.counts[COUNT_STALE]):
        t.rows[t.stale[k], N_STALE] = 0
    t.counts[COUNT_STALE] = stale
