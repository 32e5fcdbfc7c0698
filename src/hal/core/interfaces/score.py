"""Placement: a Score ranks nodes for a request. Interface versions score/1 and score/2."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces.policy import NodeView, PolicyInfo, Request

INTERFACE: Final = "score/2"
VERSIONS: Final = ("score/1", INTERFACE)
"""Both have the same method. score/2 may declare `reads_advice`, and finds these kinds in `view.advice`; and
`reads_preference`, and finds what the job prefers in `request`."""


class Score(Protocol):
    """Called once for each waiting shape and slice; never for a single decision. It is also called for each class that
    prefers something, if it reads that. When advice that it reads has changed, it is called again for the nodes
    concerned, before the next pass."""

    info: PolicyInfo

    def score(self, request: Request, view: NodeView) -> NDArray[np.float32]:
        """Return shape (rows,), 0..1, higher is better; rounded to 1e-6, ties by row; rows without enough room are
        ignored."""
        ...
