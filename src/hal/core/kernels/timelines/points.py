"""Points of timelines: from when on a node has which amounts free; a node's points are a chain in order of time.

Pure scratch. The first point of node r is point r and lies before all times. O(points) to change an interval.
"""

from __future__ import annotations

from hal.core.kernels.nodes.touching import make_stale
from hal.core.kernels.structures.bounds import leads_on
from hal.core.kernels.structures.jit import inlined, inner
from hal.core.kernels.structures.layout import (
    COUNT_LOG,
    COUNT_POINTS,
    COUNT_SPARE,
    COUNT_SPARES,
    INF,
    M_RESOURCES,
    N_LOGGED,
    POINT_NEXT,
    POINT_SIZE,
    POINT_TIME,
)
from hal.core.kernels.structures.memory import Tables


@inner
def room_for_points(t: Tables) -> int:
    """How many points can still be made."""
    return int(t.profile.shape[0] - t.counts[COUNT_POINTS] + t.counts[COUNT_SPARES])


@inner
def _new_point(t: Tables) -> int:
    point = t.counts[COUNT_SPARE]
    if point >= 0:
        t.counts[COUNT_SPARE] = t.profile[point, POINT_NEXT]
        t.counts[COUNT_SPARES] -= 1
        return int(point)
    point = t.counts[COUNT_POINTS]
    t.counts[COUNT_POINTS] += 1
    return int(point)


@inner
def drop_point(t: Tables, before: int) -> None:
    """Give back the point after `before`."""
    point = t.profile[before, POINT_NEXT]
    t.profile[before, POINT_NEXT] = t.profile[point, POINT_NEXT]
    t.profile[point, POINT_NEXT] = t.counts[COUNT_SPARE]
    t.counts[COUNT_SPARE] = point
    t.counts[COUNT_SPARES] += 1


@inner
def add_point(t: Tables, before: int, time: int, resources: int) -> int:
    """A new point after `before` with the same amounts."""
    point = _new_point(t)
    t.profile[point, POINT_TIME] = time
    t.profile[point, POINT_NEXT] = t.profile[before, POINT_NEXT]
    t.profile[before, POINT_NEXT] = point
    for r in range(POINT_SIZE, POINT_SIZE + resources):
        t.profile[point, r] = t.profile[before, r]
    return point


@inner
def are_alike(t: Tables, one: int, other: int, resources: int) -> bool:
    for r in range(POINT_SIZE, POINT_SIZE + resources):  # noqa: SIM110 - numba
        if t.profile[one, r] != t.profile[other, r]:
            return False
    return True


@inner
def point_fits(t: Tables, point: int, shape: int, resources: int) -> bool:
    """Whether a shape fits from this point on, until the next."""
    for r in range(resources):  # noqa: SIM110 - numba
        if t.profile[point, POINT_SIZE + r] < t.request[r, shape]:
            return False
    return True


@inlined
def log_node(t: Tables, node: int) -> None:
    """Lines must look at a node again."""
    place = t.counts[COUNT_LOG]
    t.node_log[place & (t.node_log.shape[0] - 1)] = node
    t.rows[node, N_LOGGED] = place
    t.counts[COUNT_LOG] = place + 1


@inner
def change_interval(t: Tables, node: int, shape: int, begin: int, end: int, sign: int) -> None:
    """Take (-1) or give back (+1) a request on a node over [begin, end); needs room for two points."""
    if end <= begin:
        return
    resources = t.meta[M_RESOURCES]
    make_stale(t, node)
    log_node(t, node)
    before = -1
    point = node
    following = t.profile[point, POINT_NEXT]
    ahead = 0
    while leads_on(t, following, ahead, t.profile.shape[0]) and t.profile[following, POINT_TIME] <= begin:
        ahead += 1
        before = point
        point = following
        following = t.profile[point, POINT_NEXT]
    if t.profile[point, POINT_TIME] < begin:
        before = point
        point = add_point(t, point, begin, resources)
    edge = before
    points_seen = 0
    while leads_on(t, point, points_seen, t.profile.shape[0]) and t.profile[point, POINT_TIME] < end:
        points_seen += 1
        following = t.profile[point, POINT_NEXT]
        if end < INF and (following < 0 or t.profile[following, POINT_TIME] > end):
            add_point(t, point, end, resources)
        for r in range(resources):
            t.profile[point, POINT_SIZE + r] += sign * t.request[r, shape]
        before = point
        point = t.profile[point, POINT_NEXT]
    if point >= 0 and before >= 0 and are_alike(t, before, point, resources):
        drop_point(t, before)
    if edge >= 0 and t.profile[edge, POINT_NEXT] >= 0 and are_alike(t, edge, t.profile[edge, POINT_NEXT], resources):
        drop_point(t, edge)
