"""Where a shape fits, and what changes when a row's free amounts change.

Pure. Tables: `free`, `capacity` [N, R] and `request` [R, S] (resource-major) int64 base units; `allowed` [C, N] int8:
constraint set C admits the row and the row is up. `shapes[s, S_FIT]` is kept per row change: one pass over the shapes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hal.core.kernels.jit import inner, kernel
from hal.core.kernels.layout import (
    M_CSETS,
    M_EPOCH,
    M_RESOURCES,
    M_ROWS,
    M_SHAPES,
    S_CSET,
    S_EVER,
    S_FIT,
    S_FROM,
    S_WAKE,
)
from hal.core.kernels.memory import Tables, tables
from hal.core.kernels.treap import Table

Ints = NDArray[np.int64]
Allowed = NDArray[np.int8]


@inner
def fits(t: Tables, amounts: Table, row: int, shape: int, resources: int) -> bool:
    """Whether a row's amounts hold a shape's request."""
    for r in range(resources):  # noqa: SIM110 - numba
        if amounts[row, r] < t.request[r, shape]:
            return False
    return True


@inner
def take_row(t: Tables, row: int, shape: int) -> None:
    """Take a shape's request from a row and lower the counts of the shapes that no longer fit there."""
    resources = t.meta[M_RESOURCES]
    plain = t.meta[M_CSETS] == 1
    if plain and t.allowed[0, row] == 0:
        for r in range(resources):
            t.free[row, r] -= t.request[r, shape]
        return
    if resources == 1:
        old = t.free[row, 0]
        new = old - t.request[0, shape]
        t.free[row, 0] = new
        for s in range(t.meta[M_SHAPES]):
            if new < t.request[0, s] <= old and (plain or t.allowed[t.shapes[s, S_CSET], row] != 0):
                t.shapes[s, S_FIT] -= 1
        return
    for s in range(t.meta[M_SHAPES]):
        before = True
        after = True
        for r in range(resources):
            left = t.free[row, r] - t.request[r, s]
            before = before and left >= 0
            after = after and left >= t.request[r, shape]
        if before and not after and (plain or t.allowed[t.shapes[s, S_CSET], row] != 0):
            t.shapes[s, S_FIT] -= 1
    for r in range(resources):
        t.free[row, r] -= t.request[r, shape]


@inner
def give_row(t: Tables, row: int, shape: int) -> None:
    """Give a shape's request back to a row, raise the counts, and let first-fit look at the row again."""
    resources = t.meta[M_RESOURCES]
    plain = t.meta[M_CSETS] == 1
    if plain and t.allowed[0, row] == 0:
        for r in range(resources):
            t.free[row, r] += t.request[r, shape]
        return
    if resources == 1:
        old = t.free[row, 0]
        new = old + t.request[0, shape]
        t.free[row, 0] = new
        for s in range(t.meta[M_SHAPES]):
            if old < t.request[0, s] <= new and (plain or t.allowed[t.shapes[s, S_CSET], row] != 0):
                t.shapes[s, S_FIT] += 1
                t.shapes[s, S_WAKE] = t.meta[M_EPOCH]
                if row < t.shapes[s, S_FROM]:
                    t.shapes[s, S_FROM] = row
        return
    for s in range(t.meta[M_SHAPES]):
        before = True
        after = True
        for r in range(resources):
            left = t.free[row, r] - t.request[r, s]
            before = before and left >= 0
            after = after and left + t.request[r, shape] >= 0
        if after and not before and (plain or t.allowed[t.shapes[s, S_CSET], row] != 0):
            t.shapes[s, S_FIT] += 1
            t.shapes[s, S_WAKE] = t.meta[M_EPOCH]
            if row < t.shapes[s, S_FROM]:
                t.shapes[s, S_FROM] = row
    for r in range(resources):
        t.free[row, r] += t.request[r, shape]


@kernel
def recount(at: Any, first: int, last: int) -> None:
    """Count anew, for shapes first..last-1, the rows where they fit now and where they could when empty."""
    t = tables(at)
    resources = t.meta[M_RESOURCES]
    for s in range(first, last):
        now = 0
        ever = 0
        start = t.meta[M_ROWS]
        for row in range(t.meta[M_ROWS]):
            if t.allowed[t.shapes[s, S_CSET], row] == 0:
                continue
            if fits(t, t.capacity, row, s, resources):
                ever += 1
            if fits(t, t.free, row, s, resources):
                now += 1
                if now == 1:
                    start = row
        t.shapes[s, S_FIT] = now
        t.shapes[s, S_EVER] = ever
        t.shapes[s, S_FROM] = start


@inner
def compete(t: Tables, one: int, other: int) -> bool:
    """Whether some row could hold either shape: then their jobs compete."""
    if one == other:
        return True
    resources = t.meta[M_RESOURCES]
    first = t.shapes[one, S_CSET]
    second = t.shapes[other, S_CSET]
    for row in range(t.meta[M_ROWS]):
        if (
            t.allowed[first, row] != 0
            and t.allowed[second, row] != 0
            and fits(t, t.capacity, row, one, resources)
            and fits(t, t.capacity, row, other, resources)
        ):
            return True
    return False
