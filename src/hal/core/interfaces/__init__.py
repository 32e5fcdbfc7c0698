"""One small Protocol for each part of the engine that a plugin may replace, each with an interface version."""

from hal.core.interfaces.filter import Filter
from hal.core.interfaces.order import Order
from hal.core.interfaces.policy import JobView, NodeView, PolicyInfo, Request
from hal.core.interfaces.score import Score

__all__ = ["Filter", "JobView", "NodeView", "Order", "PolicyInfo", "Request", "Score"]
