"""A policy that runs out of answers: what a plugin does that fails while the engine runs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces import BucketView, ClusterView, JobView, NodeView, PolicyInfo, Request, RunView

ENDLESS: Final = 1 << 30


class RunsOut:
    """Every policy that decides: answers `left` times, then raises for ever.

    Newest first, on the last row, never on nodes of more than `most_cpu`, and job 1 is taken back before all others.
    """

    def __init__(self, name: str, interface: str, most_cpu: int) -> None:
        self.info = PolicyInfo(name, interface)
        self.most_cpu = most_cpu
        self.left = ENDLESS

    def _said(self, answer: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("out of answers")
        return answer

    def key(self, jobs: JobView, view: ClusterView) -> NDArray[np.int64]:
        return self._said(-jobs.job)

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> NDArray[np.int64]:
        return self._said(np.zeros(len(buckets.class_id), np.int64))

    def score(self, request: Request, view: NodeView) -> NDArray[np.float32]:
        return self._said(np.arange(view.rows) / max(view.rows, 1))

    def mask(self, request: Request, view: NodeView) -> NDArray[np.bool_]:
        return self._said(view.capacity[0] <= self.most_cpu)

    def price(self, runs: RunView, now_ms: int) -> NDArray[np.float64]:
        return self._said(np.where(runs.job == 1, 0.0, 1.0))
