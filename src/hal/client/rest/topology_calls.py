"""The call of REST /v1 about the topology; apart from `calls`: few programs need it."""

from __future__ import annotations

from msgspec import field

from hal.client.rest.calls import Call, get, reader
from hal.client.rest.views import View


class DomainInfo(View, frozen=True, kw_only=True):
    """One domain of the topology and its use; amounts in base units."""

    name: str
    level: str
    depth: int = 0
    """How many domains are around it."""
    parent: str = ""
    """The narrowest domain around it; empty: none."""
    nodes: int = 0
    """In it, at whatever depth."""
    up: int = 0
    """Of these, how many take new work."""
    idle: int = 0
    """Of those that are up, how many hold nothing."""
    capacity: dict[str, int] = field(default_factory=dict)
    """Of all its nodes."""
    free: dict[str, int] = field(default_factory=dict)
    """What no attempt holds of that."""
    jobs: int = 0
    """That run on a node in it."""
    members: str = ""
    """Nodes that are in no narrower domain, as a list like `n[001-016]`: the first 500."""


class TopologyInfo(View, frozen=True, kw_only=True):
    """Where nodes are, and how much of each domain is used."""

    levels: tuple[str, ...] = ()
    """Widest first; empty: no topology is declared."""
    domains: tuple[DomainInfo, ...] = ()
    """Each before those within it."""
    outside: int = 0
    """Nodes that are in no domain."""
    outside_nodes: str = ""
    """The first 500 of them."""
    missing: int = 0
    """Nodes that the topology names and this HAL does not have."""
    missing_nodes: str = ""
    """The first 500 of them."""
    now_ms: int = 0


def topology() -> Call[TopologyInfo]:
    """GET /v1/topology"""
    return Call(get("/v1/topology"), reader(TopologyInfo))
