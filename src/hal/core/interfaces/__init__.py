"""One small Protocol for each decision that a plugin can make, each with an interface version.

They are loaded when they are first used: processes that need one without arrays start without NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hal.core.interfaces.admit import Admit, refusal
    from hal.core.interfaces.domain_score import DomainScore, DomainView, Gang
    from hal.core.interfaces.filter import Filter
    from hal.core.interfaces.labels import Labels
    from hal.core.interfaces.order import Order
    from hal.core.interfaces.policy import (
        Advice,
        BucketView,
        ClusterView,
        JobView,
        Near,
        NodeView,
        PolicyInfo,
        Request,
        RunView,
    )
    from hal.core.interfaces.preempt import Preempt
    from hal.core.interfaces.score import Score

__all__ = [
    "Admit",
    "Advice",
    "BucketView",
    "ClusterView",
    "DomainScore",
    "DomainView",
    "Filter",
    "Gang",
    "JobView",
    "Labels",
    "Near",
    "NodeView",
    "Order",
    "PolicyInfo",
    "Preempt",
    "Request",
    "RunView",
    "Score",
    "refusal",
]

_MODULES = {
    "Admit": "admit",
    "DomainScore": "domain_score",
    "DomainView": "domain_score",
    "Filter": "filter",
    "Gang": "domain_score",
    "Labels": "labels",
    "Order": "order",
    "Preempt": "preempt",
    "Score": "score",
    "refusal": "admit",
}
"""Where what is in `__all__` is defined; the rest is in `policy`."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        found = getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'policy')}"), name)
        globals()[name] = found
        return found
