"""What work without GPUs leaves of a node to its GPUs (`gpu_reserve`).

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from hal.core.model.devices import BESIDE_GPUS, WHOLE
from hal.core.model.gpu_slices import gpu_milli


def left_beside(capacity: Mapping[str, int], reserve: Mapping[str, int]) -> dict[str, int]:
    """What work without GPUs may use of a node, of the resources in `reserve`: all but its part for each GPU. Slices
    are parts of one.

    Args:
        reserve: amounts for each whole GPU.
    """
    gpus = gpu_milli(capacity)
    return {
        BESIDE_GPUS[name]: max(capacity.get(name, 0) - amount * gpus // WHOLE, 0) for name, amount in reserve.items()
    }


def asked_beside(request: Mapping[str, int], reserve: Mapping[str, int]) -> dict[str, int]:
    """What a request asks for of what `left_beside` counts: nothing if it asks for GPUs."""
    if gpu_milli(request):
        return {}
    return {BESIDE_GPUS[name]: request[name] for name in reserve if request.get(name, 0)}
