"""Spare the GPUs: a job without GPUs runs on nodes without GPUs."""

import numpy as np

from hal.core.interfaces import NodeView, PolicyInfo, Request


class SpareGpus:
    info = PolicyInfo(name="spare-gpus", interface="filter/1")

    def mask(self, request: Request, view: NodeView) -> np.ndarray:
        if "gpu" not in view.resources:
            return np.ones(view.rows, np.bool_)
        gpu = view.resources.index("gpu")
        return view.capacity[gpu] == 0 if gpu not in request.wanted else np.ones(view.rows, np.bool_)
