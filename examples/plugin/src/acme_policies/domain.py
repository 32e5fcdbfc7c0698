"""Quiet: prefer the domain in which other jobs of several nodes, which share its network, use the fewest nodes."""

import numpy as np

from hal.core.interfaces import DomainView, Gang, NodeView, PolicyInfo


class Quiet:
    info = PolicyInfo(name="quiet", interface="domain-score/1")

    def score(self, request: Gang, view: NodeView, domains: DomainView) -> np.ndarray:
        return 1.0 - domains.gang_nodes / np.maximum(domains.nodes, 1)
