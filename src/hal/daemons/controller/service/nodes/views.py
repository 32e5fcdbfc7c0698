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
    taints: dict[str, str]
    """What keeps work away that does not tolerate it, by key; a value may be empty."""
    facts: Facts | UnsetType = UNSET
    """What it is made of; only when one node is asked for."""
    domains: dict[str, str] | UnsetType = UNSET
    """The domain of each level that it is in, widest first; only when one node is asked for, and with a topology."""


class DomainView(Struct, frozen=True, kw_only=True, gc=False):
    """One domain of the topology and its use; amounts in base units."""

    name: str
    """No other domain of its level has it."""
    level: str
    depth: int
    """How many domains are around it."""
    parent: str
    """The narrowest domain around it; empty: none."""
    nodes: int
    """In it, at whatever depth, that this HAL has."""
    up: int
    """Of these, how many take new work."""
    idle: int
    """Of those that are up, how many hold nothing."""
    capacity: dict[str, int]
    """Of all its nodes."""
    free: dict[str, int]
    """What no attempt holds of that."""
    jobs: int
    """That run on a node in it; a job that runs in several domains counts in each."""
    members: str
    """Nodes that are in no narrower domain, as a list like `n[001-016]`: the first 500."""


class TopologyView(Struct, frozen=True, kw_only=True):
    """Where nodes are, and how much of each domain is used."""

    levels: tuple[str, ...]
    """Widest first; empty: no topology is declared."""
    domains: list[DomainView]
    """Each before those within it, by name as people count."""
    outside: int
    """Nodes that are in no domain."""
    outside_nodes: str
    """The first 500 of them."""
    missing: int
    """Nodes that the topology names and this HAL does not have."""
    missing_nodes: str
    """The first 500 of them."""
    now_ms: int
    """When it was counted; at most a second ago."""
