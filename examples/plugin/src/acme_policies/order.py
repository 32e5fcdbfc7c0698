"""Wide first: of equal priority, the job that needs more nodes at once goes first; small ones fill gaps behind it."""

import numpy as np

from hal.core.interfaces import JobView, PolicyInfo

PRIORITY = 1 << 20
"""One point of priority outweighs any number of nodes (HAL allows 100,000)."""


class WideFirst:
    info = PolicyInfo(name="wide-first", interface="order/1")

    def key(self, jobs: JobView) -> np.ndarray:
        return -(jobs.priority * PRIORITY + jobs.nodes)

    def offset(self, classes: np.ndarray, owners: np.ndarray, now_ms: int) -> np.ndarray:
        return np.zeros(classes.shape, np.int64)
