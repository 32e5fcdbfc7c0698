"""Nodes and the resources held on them.

Pure values.
"""

from __future__ import annotations

from msgspec import Struct

from hal.core.model.ids import AttemptId
from hal.core.model.resources import Resources
from hal.core.model.states import NodeState


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One machine, or the share of a machine that one agent offers."""

    name: str
    capacity: Resources
    labels: dict[str, str] = {}
    state: NodeState = NodeState.UP
    boot_id: str = ""
    reason: str = ""


class Allocation(Struct, frozen=True, kw_only=True):
    """What one attempt holds: the same amounts on each of its nodes, in rank order."""

    attempt: AttemptId
    nodes: tuple[str, ...]
    per_node: Resources
    since_ms: int
    until_ms: int
    """Planned end (start + walltime); the engine's infinity if there is none."""
