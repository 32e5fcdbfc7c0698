"""One small Protocol for each decision that a plugin can make, each with an interface version."""

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
