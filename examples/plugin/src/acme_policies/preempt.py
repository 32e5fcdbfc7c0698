"""Near the end: spare the work that has little left to do; what is about to end is never preempted."""

import numpy as np

from hal.core.interfaces import PolicyInfo, RunView

SOON_MS = 600_000
"""Whoever ends by its limit within ten minutes is let be."""


class NearTheEnd:
    info = PolicyInfo(name="near-the-end", interface="preempt/1")

    def price(self, runs: RunView, now_ms: int) -> np.ndarray:
        left_ms = runs.end_ms - now_ms
        done = (now_ms - runs.start_ms) / np.maximum(runs.end_ms - runs.start_ms, 1)
        return np.where(left_ms < SOON_MS, np.inf, runs.wasted * (1.0 + done))
