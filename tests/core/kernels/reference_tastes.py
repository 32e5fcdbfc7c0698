"""Domain scores that depend on names alone, for the engine as plugins and for the definition as functions."""

from __future__ import annotations

from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.policies import register
from hal.core.interfaces import DomainView, Gang, NodeView, PolicyInfo
from tests.core.kernels.reference_topology import Path, Taste

TASTES: Final[dict[str, Taste]] = {}
"""By name of the plugin."""


class ByName:
    """So many different scores, spread over names."""

    def __init__(self, name: str, scores: int) -> None:
        self.info = PolicyInfo(name, "domain-score/1")
        self._scores = scores
        TASTES[name] = self._taste
        register(self)

    def _taste(self, path: Path) -> int:
        return crc32("/".join(path).encode()) % self._scores

    def score(self, request: Gang, view: NodeView, domains: DomainView) -> NDArray[np.float32]:
        tastes = [self._taste(tuple(name.split("/"))) for name in domains.name.tolist()]
        return np.array(tastes, np.float32) / self._scores


EQUAL: Final = ByName("test-equal-domains", 1)
FEW: Final = ByName("test-few-tastes", 2)
MANY: Final = ByName("test-many-tastes", 1_000)
