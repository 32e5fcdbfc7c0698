"""What all nodes offer, hold and are, in columns: for pages and programs that show thousands of nodes every second.

Made on request, in slices between turns of the loop, and kept for `KEPT_MS`, so that many who ask cost one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from hal.core.model import NodeState
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import reason_of

KEPT_MS: Final = 950
"""A little less than a second: whoever asks once a second gets a new count each time."""
NODES_A_SLICE: Final = 1_000
MAX_REASONS: Final = 1_000
"""Nodes whose reasons are shown."""
MAX_REASON_CHARS: Final = 300
STATES: Final = tuple(state.value for state in NodeState)
_CODES: Final = {state: code for code, state in enumerate(NodeState)}
_ENCODER: Final = msgspec.json.Encoder()


class ResourceUseView(Struct, frozen=True, kw_only=True):
    """One resource of all nodes, in base units; 0 for a node that has none of it."""

    capacity: list[int]
    free: list[int]
    """What no attempt holds of that."""


class NodeUseView(Struct, frozen=True, kw_only=True):
    """All nodes in columns: the entries of each list are in the order of `names`."""

    version: str
    """Equal only for equal columns; also the `ETag`."""
    now_ms: int
    """When it was counted; at most a second ago."""
    names: list[str]
    states: tuple[str, ...]
    """What the numbers of `state` mean."""
    state: list[int]
    running: list[int]
    """Steps on it now."""
    levels: tuple[str, ...]
    """Of the topology, widest first; empty: none is declared."""
    domains: list[str]
    """What the numbers of `domain` mean: names of domains, those within others after a slash."""
    domain: list[int]
    """The narrowest domain that it is in; -1: none."""
    resources: dict[str, ResourceUseView]
    reasons: dict[str, str]
    """Of nodes that are not up: what keeps work away, as everybody may see it; of the first 1,000."""


class EncodedNodeUse(Struct, frozen=True):
    """The columns as JSON."""

    version: str
    body: bytes


class NodeUse:
    """Makes the columns."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._counting = asyncio.Lock()
        self._kept: EncodedNodeUse | None = None
        self._kept_ms = 0
        self._domains: dict[str, tuple[Mapping[str, str], str]] = {}
        """Narrowest domain by node, and the labels of which it was made."""

    async def encoded(self) -> EncodedNodeUse:
        """The columns, at most a second old."""
        async with self._counting:
            now_ms = self._parts.runtime.monotonic_ms()
            if self._kept is None or now_ms - self._kept_ms >= KEPT_MS:
                self._kept = await self._count()
                self._kept_ms = now_ms
            return self._kept

    async def _count(self) -> EncodedNodeUse:
        parts, plane = self._parts, self._parts.plane
        running = plane.tally_nodes()
        names: list[str] = []
        state: list[int] = []
        counts: list[int] = []
        domain: list[int] = []
        domains: dict[str, int] = {}
        columns: dict[str, ResourceUseView] = {}
        reasons: dict[str, str] = {}
        listed = sorted(plane.nodes)
        for at in range(0, len(listed), NODES_A_SLICE):
            rows = [row for name in listed[at : at + NODES_A_SLICE] if (row := plane.nodes.get(name)) is not None]
            free = parts.engine.free_of(rows)
            for row in rows:
                names.append(row.name)
                state.append(_CODES[row.state])
                counts.append(running.get(row.name, 0))
                place = self._domain_of(row.name, row.labels)
                domain.append(domains.setdefault(place, len(domains)) if place else -1)
                if row.state is not NodeState.UP and len(reasons) < MAX_REASONS:
                    reasons[row.name] = reason_of(row, to_all=True)[:MAX_REASON_CHARS]
            for name in {name for row in rows for name in row.capacity} - set(columns):
                columns[name] = ResourceUseView(
                    capacity=[0] * (len(names) - len(rows)), free=[0] * (len(names) - len(rows))
                )
            for name, column in columns.items():
                column.capacity.extend(row.capacity.get(name, 0) for row in rows)
                column.free.extend(free.get(name) or [0] * len(rows))
            await parts.runtime.sleep(0)
        self._domains = {name: kept for name in names if (kept := self._domains.get(name)) is not None}
        topology = parts.topology
        view = NodeUseView(
            version="",
            now_ms=0,
            names=names,
            states=STATES,
            state=state,
            running=counts,
            levels=topology.levels if topology is not None else (),
            domains=list(domains),
            domain=domain,
            resources=dict(sorted(columns.items())),
            reasons=reasons,
        )
        version = hashlib.blake2b(_ENCODER.encode(view), digest_size=12).hexdigest()
        view = msgspec.structs.replace(view, version=version, now_ms=parts.clock.now_ms())
        return EncodedNodeUse(version=version, body=_ENCODER.encode(view))

    def _domain_of(self, name: str, labels: Mapping[str, str]) -> str:
        """The narrowest domain that a node is in; '' for none."""
        topology = self._parts.topology
        if topology is None:
            return ""
        kept = self._domains.get(name)
        if kept is None or kept[0] is not labels:
            found = [domain for domain in topology.domains_of(name, labels) if domain]
            kept = self._domains[name] = (labels, found[-1] if found else "")
        return kept[1]
