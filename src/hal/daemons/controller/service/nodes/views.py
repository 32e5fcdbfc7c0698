"""What REST shows of nodes.

Values only.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from hal.core.model import NodeState
from hal.core.model.facts import Facts
from hal.store import Closure


class NodeView(Struct, frozen=True, kw_only=True):
    """One node; amounts in base units."""

    name: str
    state: NodeState
    capacity: dict[str, int]
    free: dict[str, int]
    labels: dict[str, str]
    reason: str
    last_seen_ms: int | None
    running: int
    notes: tuple[str, ...]
    connected: bool
    boot_id: str
    closures: tuple[Closure, ...]
    """What keeps new work away from it; `reason` says it in words."""
    facts: Facts | UnsetType = UNSET
    """What it is made of; only when one node is asked for."""
