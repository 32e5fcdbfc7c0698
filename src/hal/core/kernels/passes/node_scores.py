"""How good a node is for a shape, by the placement in force: the built-in scores, and a plugin's from its table.

Pure. Each score is of one node and one shape, from what would be left on the node: O(resources). In millionths, 0 to
SCORE_ONE, higher is better. Floats decide between nodes only, never whether something fits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hal.core.kernels.nodes.rows import fits
from hal.core.kernels.structures.arrays import Table
from hal.core.kernels.structures.jit import inner, kernel
from hal.core.kernels.structures.layout import (
    M_CPU,
    M_GPU,
    M_GPU_PART,
    M_GPU_WHOLE,
    M_MEMORY,
    M_NODES,
    M_PLACEMENT,
    M_RESOURCES,
    PLACE_BEST,
    PLACE_DOT,
    PLACE_FGD,
    PLACE_FIRST,
    PLACE_GPU,
    PLACE_PLUGIN,
    PLACE_SPREAD,
    PLACE_WORST,
    S_CSET,
    S_SCORES,
    TYPICAL_ALL,
    TYPICAL_CPU,
    TYPICAL_GPU,
    TYPICAL_KINDS,
    TYPICAL_SHARE,
)
from hal.core.kernels.structures.memory import Tables, tables

SCORE_ONE: Final = 1_000_000
STRANDED: Final = 4.0
"""Gpu packing: how much a share of GPUs counts that is left without cores or memory, beside a share that is left."""
MOST_COST: Final = 1.0 + 2.0 * STRANDED
GPU: Final = 1_000
"""A whole one, in base units."""
MOST_DESCENT: Final = 64 * GPU * TYPICAL_ALL
"""Fragmentation gradient descent: what one start changes at most, on nodes of up to 64 GPUs."""


@inner
def tightness(t: Tables, node: int, shape: int, resources: int) -> int:
    """Best-fit score in millionths: one minus the least share of a wanted resource that would be left."""
    least = 1.0
    for r in range(resources):
        if t.request[r, shape] > 0:
            left = (t.free[node, r] - t.request[r, shape]) / t.capacity[node, r]
            least = min(least, left)
    return int(np.floor((1.0 - least) * SCORE_ONE + 0.5))


@inner
def _idleness(t: Tables, node: int, shape: int, resources: int) -> int:
    """Spread: the mean share of the node's resources that would be left."""
    total = 0.0
    count = 0
    for r in range(resources):
        if t.capacity[node, r] > 0:
            total += (t.free[node, r] - t.request[r, shape]) / t.capacity[node, r]
            count += 1
    return int(np.floor(max(total / max(count, 1), 0.0) * SCORE_ONE + 0.5))  # claims may be charged beyond what is free


@inner
def _alignment(t: Tables, node: int, shape: int, resources: int) -> int:
    """Dot product: of what is asked for and what is free, as shares of the node, a wanted resource on average.

    Source: Grandl et al., SIGCOMM 2014 (Tetris).
    """
    total = 0.0
    count = 0
    for r in range(resources):
        if t.request[r, shape] > 0:
            total += t.request[r, shape] / t.capacity[node, r] * (t.free[node, r] / t.capacity[node, r])
            count += 1
    return int(np.floor(total / max(count, 1) * SCORE_ONE + 0.5))


@inner
def _share_left(t: Tables, node: int, shape: int, resource: int) -> float:
    """The share of a resource that would be left; all of one that there is none of."""
    if resource < 0 or t.capacity[node, resource] <= 0:
        return 1.0
    return float((t.free[node, resource] - t.request[resource, shape]) / t.capacity[node, resource])


@inner
def _packing(t: Tables, node: int, shape: int, resources: int) -> int:
    """Gpu packing: little should be left of a node, and no GPUs without the cores and the memory to use them.

    On a node with GPUs it costs the larger of the shares of cores and GPUs that would be left, and STRANDED times the
    share of GPUs beyond that of cores, and beyond that of memory. Nodes without GPUs come first for what asks for none,
    the tightest first.
    """
    gpu = t.meta[M_GPU]
    if gpu < 0 or t.capacity[node, gpu] <= 0:
        return SCORE_ONE // 2 + tightness(t, node, shape, resources) // 2
    gpus = _share_left(t, node, shape, gpu)
    cores = _share_left(t, node, shape, t.meta[M_CPU])
    memory = _share_left(t, node, shape, t.meta[M_MEMORY])
    cost = max(gpus, cores) + STRANDED * (max(gpus - cores, 0.0) + max(gpus - memory, 0.0))
    cost = min(max(cost, 0.0), MOST_COST)  # less than nothing may be free of what claims are charged on, or shrank
    return int(np.floor((1.0 - cost / MOST_COST) * (SCORE_ONE // 2) + 0.5))


@inner
def _counts_parts(t: Tables, node: int) -> bool:
    """Whether GPUs of a node are shared, so that it is counted what is left of them."""
    part = t.meta[M_GPU_PART]
    return bool(t.meta[M_GPU_WHOLE] >= 0 and part >= 0 and t.capacity[node, part] > 0)


@inner
def _unusable(t: Tables, cores: int, gpus: int, unused: int, largest: int) -> int:
    """What of a node's free GPUs typical work could not use, in parts of TYPICAL_ALL.

    To a kind that does not fit all of them are lost, else those of which too little is left for it. The columns do not
    say how what is left of shared GPUs is spread: beside the largest it counts as one GPU's.
    """
    lost = 0
    left = gpus - unused
    for k in range(TYPICAL_KINDS):
        share = t.typical[k, TYPICAL_SHARE]
        if share == 0:
            break
        asked = t.typical[k, TYPICAL_GPU]
        if cores < t.typical[k, TYPICAL_CPU] or asked == 0 or (largest if asked < GPU else unused) < asked:
            lost += share * gpus
        elif asked >= GPU or left < asked:
            lost += share * left
        elif unused == 0 and left - largest < asked:
            lost += share * (left - largest)
    return int(lost)


@inner
def _unusable_of_one(t: Tables, cores: int, gpus: int) -> int:
    """The same where parts are not counted: what is left beside whole GPUs is one GPU's."""
    unused = gpus - gpus % GPU
    return int(_unusable(t, cores, gpus, unused, GPU if unused > 0 else gpus))


@inner
def _descent(t: Tables, node: int, shape: int) -> int:
    """Fragmentation gradient descent: by how much less of the node's GPUs would be lost to typical work.

    Source: Weng et al., USENIX ATC 2023; there the single GPUs of a node are looked at.
    """
    gpu = t.meta[M_GPU]
    if gpu < 0 or t.capacity[node, gpu] <= 0:
        return SCORE_ONE // 2
    cpu = t.meta[M_CPU]
    cores = t.free[node, cpu] if cpu >= 0 else 0
    rest = cores - (t.request[cpu, shape] if cpu >= 0 else 0)
    asked = t.request[gpu, shape]
    gpus = max(t.free[node, gpu], 0)
    after = max(gpus - asked, 0)
    if not _counts_parts(t, node):
        gain = _unusable_of_one(t, cores, gpus) - _unusable_of_one(t, rest, after)
    else:
        unused = min(max(t.free[node, t.meta[M_GPU_WHOLE]], 0), gpus)
        largest = max(t.free[node, t.meta[M_GPU_PART]], 0)
        gain = _unusable(t, cores, gpus, unused, largest)
        left = gpus - unused
        if asked >= GPU:
            unused -= asked - asked % GPU
            largest = GPU if unused > 0 else min(left, GPU)
        elif asked > 0 and left >= asked:
            if unused == 0 and left - largest < asked:
                largest -= asked
        elif asked > 0:
            unused -= GPU
            largest = GPU if unused > 0 else max(GPU - asked, left)
        gain -= _unusable(t, rest, after, max(unused, 0), max(largest, 0))
    gain = min(max(gain, -MOST_DESCENT), MOST_DESCENT)
    return SCORE_ONE // 2 + gain * (SCORE_ONE // 2) // MOST_DESCENT


@inner
def node_score(t: Tables, node: int, shape: int, resources: int) -> int:
    """How good a node that holds the request is, in millionths: higher is better."""
    return score_by(t, t.meta[M_PLACEMENT], node, shape, resources)


@inner
def score_by(t: Tables, placement: int, node: int, shape: int, resources: int) -> int:
    """The same by that placement; first-fit has no opinion."""
    if placement == PLACE_BEST:
        return tightness(t, node, shape, resources)
    if placement == PLACE_GPU:
        return _packing(t, node, shape, resources)
    if placement == PLACE_WORST:
        return SCORE_ONE - tightness(t, node, shape, resources)
    if placement == PLACE_SPREAD:
        return _idleness(t, node, shape, resources)
    if placement == PLACE_DOT:
        return _alignment(t, node, shape, resources)
    if placement == PLACE_FGD:
        return _descent(t, node, shape)
    if placement == PLACE_FIRST:
        return 0
    return int(t.scores[t.shapes[shape, S_SCORES], node])


WEIGHED: Final = 5
"""Rows of what `weigh` fills: the score by a built-in placement, 0 by another (-1 where the shape does not fit now),
then one of each built-in term: best-fit, spread, dot-product, gpu-packing."""


@kernel
def weigh(at: Any, shape: int, placement: int, out: Table) -> int:
    """Fill `out` [WEIGHED, nodes] with what each node would score now; how many hold the shape. It changes no table."""
    t = tables(at)
    resources = t.meta[M_RESOURCES]
    count = 0
    for node in range(t.meta[M_NODES]):
        out[0, node] = -1
        if t.open_now[t.shapes[shape, S_CSET], node] == 0 or not fits(t, t.free, node, shape, resources):
            continue
        count += 1
        out[0, node] = 0
        if placement != PLACE_PLUGIN:
            out[0, node] = score_by(t, placement, node, shape, resources)
        out[1, node] = tightness(t, node, shape, resources)
        out[2, node] = _idleness(t, node, shape, resources)
        out[3, node] = _alignment(t, node, shape, resources)
        out[4, node] = _packing(t, node, shape, resources)
    return count
