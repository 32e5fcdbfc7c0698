"""Cheapest: prefer the node with the lowest price, as whoever knows prices advises; see docs/advice.md."""

import numpy as np

from hal.core.interfaces import NodeView, PolicyInfo, Request

USUAL = 1.0
"""The price of a node of which no price is known, or no longer: advice expires."""


class Cheapest:
    info = PolicyInfo(name="cheapest", interface="score/2", reads_advice=("price",))

    def score(self, request: Request, view: NodeView) -> np.ndarray:
        price = np.nan_to_num(view.advice["price"], nan=USUAL)
        return 1.0 / (1.0 + np.maximum(price, 0.0))
