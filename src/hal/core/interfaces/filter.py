"""Feasibility: a Filter excludes nodes for a request. Interface version filter/1."""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hal.core.interfaces.policy import NodeView, PolicyInfo, Request

INTERFACE: Final = "filter/1"
VERSIONS: Final = (INTERFACE,)


class Filter(Protocol):
    """Static: called when a shape is new or nodes changed; it must not depend on free resources."""

    info: PolicyInfo

    def mask(self, request: Request, view: NodeView) -> NDArray[np.bool_]:
        """Return shape (rows,): True where the request may run."""
        ...
