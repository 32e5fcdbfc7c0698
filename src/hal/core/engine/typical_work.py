"""Which kinds of work are typical of the site now: what fragmentation gradient descent weighs nodes by.

Pure. From counts of live work alone, so that a copy, and a restart, come to the same. O(buckets) a slice.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hal.core.engine.state import State
from hal.core.kernels.structures import layout as L
from hal.core.kernels.structures.arrays import Ints

PART: Final = 0.95
"""Typical are the most frequent kinds that make up so large a part, as in the publication."""
KEY_BITS: Final = 31


def note_typical_work(state: State) -> None:
    """Write how frequent kinds are, by cores and GPUs on a node, of what waits and runs.

    Each job that waits (or alike tasks of an array) counts for its nodes, and so does each attempt. Where it is not as
    before, best nodes are looked for again.
    """
    kinds = _frequent_kinds(state)
    typical = state.scratch.typical
    if np.array_equal(kinds, typical):
        return
    typical[:] = kinds
    state.catalogue.shapes[:, L.S_FOLLOWED] = -1


def _frequent_kinds(state: State) -> Ints:
    catalogue, meta = state.catalogue, state.meta
    kinds = np.zeros((L.TYPICAL_KINDS, L.TYPICAL_SIZE), np.int64)
    buckets = state.work.buckets[: int(meta[L.M_BUCKET_TOP])]
    buckets = buckets[buckets[:, L.B_REFS] > 0]
    if not buckets.shape[0]:
        return kinds
    classes = catalogue.classes[buckets[:, L.B_CLASS]]
    counts = np.bincount(classes[:, L.C_SHAPE], buckets[:, L.B_REFS] * classes[:, L.C_NODES])
    shapes = np.flatnonzero(counts)
    cores, gpus = (
        catalogue.request[resource, shapes] if resource >= 0 else np.zeros(shapes.shape, np.int64)
        for resource in (int(meta[L.M_CPU]), int(meta[L.M_GPU]))
    )
    keys, first, which = np.unique(
        (np.minimum(gpus, (1 << KEY_BITS) - 1) << KEY_BITS) + np.minimum(cores, (1 << KEY_BITS) - 1),
        return_index=True, return_inverse=True,
    )  # fmt: skip
    frequent = np.bincount(which, counts[shapes])
    order = np.lexsort((keys, -frequent))
    some = int(np.searchsorted(np.cumsum(frequent[order]), PART * frequent.sum())) + 1
    order = order[: min(some, L.TYPICAL_KINDS)]
    shares = np.floor(frequent[order] * L.TYPICAL_ALL / frequent[order].sum() + 0.5).astype(np.int64)
    order, shares = order[shares > 0], shares[shares > 0]
    kinds[: order.shape[0], L.TYPICAL_CPU] = cores[first[order]]
    kinds[: order.shape[0], L.TYPICAL_GPU] = gpus[first[order]]
    kinds[: order.shape[0], L.TYPICAL_SHARE] = shares
    return kinds
