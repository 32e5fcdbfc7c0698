"""Where a shape fits, and what changes when a row's free amounts change.

Pure. Tables: `free`, `capacity` [N, R] and `request` [R, S] (resource-major) int64 base units; `allowed` [C, N] int8:
constraint set C admits the row and the row is up. `shapes[s, S_FIT]` is kept per row change: one pass over the shapes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.jit import inner, kernel
from hal.core.kernels.layout import (
    M_CSETS,
    M_RESOURCES,
    M_ROWS,
    M_SHAPES,
    S_CSET,
    S_EVER,
    S_FIT,
    S_FROM,
)
from hal.core.kernels.treap import Table

Ints = NDArray[np.int64]
Allowed = NDArray[np.int8]


@inner
def fits(amounts: Table, row: int, request: Table, shape: int, resources: int) -> bool:
    """Whether a row's amounts hold a shape's request."""
    for r in range(resources):  # noqa: SIM110 - numba
        if amounts[row, r] < request[r, shape]:
            return False
    return True


@inner
def take_row(meta: Ints, shapes: Table, request: Table, allowed: Allowed, free: Table, row: int, shape: int) -> None:
    """Take a shape's request from a row and lower the counts of the shapes that no longer fit there."""
    resources = meta[M_RESOURCES]
    plain = meta[M_CSETS] == 1
    if plain and allowed[0, row] == 0:
        for r in range(resources):
            free[row, r] -= request[r, shape]
        return
    if resources == 1:
        old = free[row, 0]
        new = old - request[0, shape]
        free[row, 0] = new
        for s in range(meta[M_SHAPES]):
            if new < request[0, s] <= old and (plain or allowed[shapes[s, S_CSET], row] != 0):
                shapes[s, S_FIT] -= 1
        return
    for s in range(meta[M_SHAPES]):
        before = True
        after = True
        for r in range(resources):
            left = free[row, r] - request[r, s]
            before = before and left >= 0
            after = after and left >= request[r, shape]
        if before and not after and (plain or allowed[shapes[s, S_CSET], row] != 0):
            shapes[s, S_FIT] -= 1
    for r in range(resources):
        free[row, r] -= request[r, shape]


@inner
def give_row(meta: Ints, shapes: Table, request: Table, allowed: Allowed, free: Table, row: int, shape: int) -> None:
    """Give a shape's request back to a row, raise the counts, and let first-fit look at the row again."""
    resources = meta[M_RESOURCES]
    plain = meta[M_CSETS] == 1
    if plain and allowed[0, row] == 0:
        for r in range(resources):
            free[row, r] += request[r, shape]
        return
    if resources == 1:
        old = free[row, 0]
        new = old + request[0, shape]
        free[row, 0] = new
        for s in range(meta[M_SHAPES]):
            if old < request[0, s] <= new and (plain or allowed[shapes[s, S_CSET], row] != 0):
                shapes[s, S_FIT] += 1
                if row < shapes[s, S_FROM]:
                    shapes[s, S_FROM] = row
        return
    for s in range(meta[M_SHAPES]):
        before = True
        after = True
        for r in range(resources):
            left = free[row, r] - request[r, s]
            before = before and left >= 0
            after = after and left + request[r, shape] >= 0
        if after and not before and (plain or allowed[shapes[s, S_CSET], row] != 0):
            shapes[s, S_FIT] += 1
            if row < shapes[s, S_FROM]:
                shapes[s, S_FROM] = row
    for r in range(resources):
        free[row, r] += request[r, shape]


@kernel
def recount(
    meta: Ints, shapes: Table, request: Table, allowed: Allowed, free: Table, capacity: Table, first: int, last: int
) -> None:
    """Count anew, for shapes first..last-1, the rows where they fit now and where they could when empty."""
    resources = meta[M_RESOURCES]
    for s in range(first, last):
        now = 0
        ever = 0
        start = meta[M_ROWS]
        for row in range(meta[M_ROWS]):
            if allowed[shapes[s, S_CSET], row] == 0:
                continue
            if fits(capacity, row, request, s, resources):
                ever += 1
            if fits(free, row, request, s, resources):
                now += 1
                if now == 1:
                    start = row
        shapes[s, S_FIT] = now
        shapes[s, S_EVER] = ever
        shapes[s, S_FROM] = start


@inner
def compete(meta: Ints, shapes: Table, request: Table, allowed: Allowed, capacity: Table, one: int, other: int) -> bool:
    """Whether some row could hold either shape: then their jobs compete."""
    if one == other:
        return True
    resources = meta[M_RESOURCES]
    first = shapes[one, S_CSET]
    second = shapes[other, S_CSET]
    for row in range(meta[M_ROWS]):
        if (
            allowed[first, row] != 0
            and allowed[second, row] != 0
            and fits(capacity, row, request, one, resources)
            and fits(capacity, row, request, other, resources)
        ):
            return True
    return False
