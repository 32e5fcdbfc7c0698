"""Wide first: of equal priority, the job that needs more nodes at once goes first; small ones fill gaps behind it."""

import numpy as np

from hal.core.interfaces import BucketView, ClusterView, JobView, PolicyInfo

PRIORITY = 1 << 20
"""One point of priority outweighs any number of nodes (HAL allows 100,000)."""


class WideFirst:
    info = PolicyInfo(name="wide-first", interface="order/2")

    def key(self, jobs: JobView, view: ClusterView) -> np.ndarray:
        return -(jobs.priority * PRIORITY + jobs.nodes)

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> np.ndarray:
        return np.zeros(buckets.class_id.shape, np.int64)
