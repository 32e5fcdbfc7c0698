"""Placement: a Score ranks nodes for a request. Interface version score/1."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces.policy import NodeView, PolicyInfo, Request

INTERFACE: Final = "score/1"


class Score(Protocol):
    """Called once for each waiting shape and slice; never for a single decision."""

    info: PolicyInfo

    def score(self, request: Request, view: NodeView) -> NDArray[np.float32]:
        """Return shape (rows,), 0..1, higher is better; rounded to 1e-6, ties by row; rows without enough room are
        ignored."""
        ...
