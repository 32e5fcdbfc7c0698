"""Spread: prefer the node of which the largest part is free, so that jobs share memory bandwidth with few others."""

import numpy as np

from hal.core.interfaces import NodeView, PolicyInfo, Request


class Spread:
    info = PolicyInfo(name="spread", interface="score/1", reads_free=True)

    def score(self, request: Request, view: NodeView) -> np.ndarray:
        score = np.ones(view.rows, np.float32)
        for resource in request.wanted:
            score = np.minimum(score, view.free[resource] / np.maximum(view.capacity[resource], 1))
        return score
