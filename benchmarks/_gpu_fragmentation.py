"""The published placement of GPU work that HAL's own is measured against, and random choice, as score plugins.

Fragmentation gradient descent (Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023): of the nodes that hold a job, the one on which the fewest GPUs become
useless to the work that is typical of the site. What is useless to a typical job on a node is all that is left of its
GPUs where the job does not fit, else what is left of those GPUs of which it does not get what it needs. It looks at the
single GPUs of a node, which the engine's columns do not have: they are read from the harness that binds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces import NodeView, PolicyInfo, Request

WHOLE: Final = 1_000
TYPICAL: Final = 0.95
"""The typical jobs are the most frequent kinds that make up so large a part of all."""
NOT_THERE: Final = -1
"""What is left of a GPU that a node does not have."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_F = TypeVar("_F", bound=Callable[..., Any])
_njit: Callable[[_F], _F] = numba.njit


class Typical:
    """Kinds of jobs by cores and GPUs, and how frequent they are."""

    def __init__(self, jobs: Ints) -> None:
        """Args:
        jobs: columns cores (millicores), GPUs (thousandths); one row a job.
        """
        kinds, counts = np.unique(jobs, axis=0, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        shares = counts[order] / counts.sum()
        some = int(np.searchsorted(np.cumsum(shares), TYPICAL)) + 1
        self.kinds: Ints = np.ascontiguousarray(kinds[order][:some])
        self.shares: Floats = shares[:some] / shares[:some].sum()


class FragmentationGradientDescent:
    """Score: less growth of the expected fragmentation is better."""

    info = PolicyInfo(name="gpu-fragmentation-published", interface="score/1", reads_free=True)

    def __init__(self, typical: Typical, left: Ints) -> None:
        """Args:
        left: node, GPU: what is left of it, thousandths; NOT_THERE behind the last one. The harness keeps it.
        """
        self._typical, self._left = typical, left

    def score(self, request: Request, view: NodeView) -> NDArray[np.float32]:
        nodes = view.labels.number("at", -1.0).astype(np.int64)
        cpu, gpu = view.resources.index("cpu"), view.resources.index("gpu")
        score: NDArray[np.float32] = _descent(
            self._left[nodes], view.free[cpu].astype(np.int64), int(request.amounts[cpu]), int(request.amounts[gpu]),
            self._typical.kinds, self._typical.shares,
        )  # fmt: skip
        return score


class Anywhere:
    """Score: a number that depends on the node, the request and what is free there, and on nothing that matters."""

    info = PolicyInfo(name="random", interface="score/1", reads_free=True)

    def score(self, request: Request, view: NodeView) -> NDArray[np.float32]:
        mixed = view.labels.number("at", -1.0).astype(np.uint64)
        for column in view.free:
            mixed = (mixed ^ column.astype(np.int64).astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        for amount in request.amounts.tolist():
            mixed = (mixed ^ np.uint64(amount)) * np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(32)
        return (mixed >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)


@_njit
def _fragmentation(left: Ints, cores: int, kinds: Ints, shares: Floats) -> float:
    """The GPUs of a node that typical jobs cannot use, expected; thousandths."""
    total = most = whole = 0
    for gpu in left:
        if gpu > 0:
            total += gpu
            most = max(most, gpu)
            whole += gpu == WHOLE
    lost = 0.0
    for k in range(kinds.shape[0]):
        asked = kinds[k, 1]
        fits = cores >= kinds[k, 0] and asked > 0 and (most >= asked if asked < WHOLE else whole * WHOLE >= asked)
        if not fits:
            lost += shares[k] * total
            continue
        needed = min(asked, WHOLE)
        for gpu in left:
            if 0 < gpu < needed:
                lost += shares[k] * gpu
    return lost


@_njit
def _descent(left: Ints, cores: Ints, asked_cores: int, asked: int, kinds: Ints, shares: Floats) -> Any:
    """Of each node by how much its fragmentation falls when the job starts there, as a score from 0 to 1."""
    score = np.zeros(left.shape[0], np.float32)
    after = np.zeros(left.shape[1], np.int64)
    for node in range(left.shape[0]):
        rest = cores[node] - asked_cores
        if rest < 0:
            continue
        now = _fragmentation(left[node], cores[node], kinds, shares)
        best = -1.0e18
        after[:] = left[node]
        if 0 < asked < WHOLE:
            for gpu in range(left.shape[1]):  # the GPU on which it is best, as published; the harness binds as HAL does
                if left[node, gpu] >= asked:
                    after[gpu] -= asked
                    best = max(best, now - _fragmentation(after, rest, kinds, shares))
                    after[gpu] += asked
        else:
            missing = asked // WHOLE
            for gpu in range(left.shape[1]):
                if missing > 0 and after[gpu] == WHOLE:
                    after[gpu] = 0
                    missing -= 1
            if missing == 0:
                best = now - _fragmentation(after, rest, kinds, shares)
        if best > -1.0e18:
            score[node] = 1.0 / (1.0 + np.exp(-best / WHOLE))
    return score
