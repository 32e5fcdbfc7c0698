"""What shapes want of licences, and taking it.

Pure. `wants[shape, licence]`; O(licences).
"""

from __future__ import annotations

from hal.core.kernels.structures.jit import inner
from hal.core.kernels.structures.layout import (
    LICENCE_HELD,
    LICENCE_PARENT,
    LICENCE_USED,
    M_LICENCES,
    S_LICENCES,
)
from hal.core.kernels.structures.memory import Tables


@inner
def take_licences(t: Tables, shape: int, sign: int) -> None:
    """One start takes (1) or gives back (-1) what its shape wants; for a cycle's own bookkeeping and assumed starts."""
    if t.shapes[shape, S_LICENCES] != 0:
        for licence in range(t.meta[M_LICENCES]):
            want = sign * t.wants[shape, licence]
            t.licence_counts[licence, LICENCE_USED] += want
            t.licence_counts[t.licence_counts[licence, LICENCE_PARENT], LICENCE_HELD] += want


@inner
def share_licences(t: Tables, one: int, other: int) -> bool:
    """Whether two shapes want the same licence: then their jobs compete."""
    if t.shapes[one, S_LICENCES] == 0 or t.shapes[other, S_LICENCES] == 0:
        return False
    for licence in range(t.meta[M_LICENCES]):  # noqa: SIM110 - numba
        if t.wants[one, licence] > 0 and t.wants[other, licence] > 0:
            return True
    return False
