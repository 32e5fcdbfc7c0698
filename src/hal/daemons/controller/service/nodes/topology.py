"""How much of each domain of the topology is used: counted on request, in slices between turns of the loop.

A count is kept for `KEPT_MS`, so that many who ask cost one. Where no topology is declared, nothing is counted.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from hal.core.model import NodeState
from hal.core.model.topology.node_lists import fold_names, natural_key
from hal.core.model.topology.tree import OUTSIDE, Topology
from hal.daemons.controller.service.nodes.views import DomainView, TopologyView
from hal.daemons.controller.service.parts import Parts
from hal.store import NodeRow

KEPT_MS: Final = 1_000
WORK_A_SLICE: Final = 10_000
"""Work of one turn of the loop; of a unit, some ten thousand take a millisecond or two."""
LOOK_UP: Final = 1
"""Work of finding a name in a table."""
COUNT_NODE: Final = 100
MAKE_DOMAIN: Final = 50
WRITE_MEMBER: Final = 20
MAX_SORTED: Final = 500
"""Domains within one that are sorted in a turn of the loop; more are, in another thread."""
MAX_LISTED: Final = 500
"""Nodes of one list."""

NONE: Final = TopologyView(levels=(), domains=[], outside=0, outside_nodes="", missing=0, missing_nodes="", now_ms=0)


class _Key(NamedTuple):
    level: int
    name: str


class _Use:
    """What is counted of one domain."""

    __slots__ = (
        "capacity",
        "depth",
        "free",
        "idle",
        "jobs",
        "key",
        "members",
        "nodes",
        "order",
        "parent",
        "up",
        "within",
    )

    def __init__(self, key: _Key, parent: _Use | None) -> None:
        self.key = key
        self.order = natural_key(key.name)
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.within: list[_Use] = []
        self.members: list[str] = []
        """The first `MAX_LISTED` nodes that are in no narrower domain."""
        self.nodes = self.up = self.idle = self.jobs = 0
        self.capacity: dict[str, int] = {}
        self.free: dict[str, int] = {}


class TopologyUse:
    """Counts it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._counting = asyncio.Lock()
        self._kept: TopologyView | None = None
        self._kept_ms = 0
        """When it was counted, by the monotonic clock."""

    async def view(self) -> TopologyView:
        """The domains with their use, at most `KEPT_MS` old; not to be changed."""
        topology = self._parts.topology
        if topology is None:
            return NONE
        async with self._counting:
            now_ms = self._parts.runtime.monotonic_ms()
            if self._kept is None or now_ms - self._kept_ms >= KEPT_MS:
                self._kept = await _Count(self._parts, topology).view()
                self._kept_ms = now_ms
            return self._kept


class _Count:
    """One count."""

    def __init__(self, parts: Parts, topology: Topology) -> None:
        self._parts = parts
        self._topology = topology
        self._uses: dict[_Key, _Use] = {}
        self._by_level: list[list[_Use]] = [[] for _ in topology.levels]
        self._widest: list[_Use] = []
        self._by_node: dict[str, _Use] = {}
        """The narrowest domain of each node."""
        self._work = 0
        """Since others last had the loop."""

    async def view(self) -> TopologyView:
        now_ms = self._parts.clock.now_ms()
        await self._declared()
        outside = await self._count_nodes()
        await self._count_jobs()
        await self._add_up()
        missing = await self._missing()
        return TopologyView(
            levels=self._topology.levels,
            domains=await self._written(),
            outside=len(outside),
            outside_nodes=fold_names(sorted(outside[:MAX_LISTED])),
            missing=len(missing),
            missing_nodes=fold_names(missing[:MAX_LISTED]),
            now_ms=now_ms,
        )

    async def _turn(self, work: int) -> None:
        """Let others have the loop when so much more makes a slice."""
        self._work += work
        if self._work >= WORK_A_SLICE:
            self._work = 0
            await self._parts.runtime.sleep(0)

    async def _declared(self) -> None:
        """Domains of the file, also those without a node."""
        made: list[_Use] = []
        for one in self._topology.domains:
            parent = made[one.parent] if one.parent != OUTSIDE else None
            made.append(self._use(_Key(one.level, one.name), parent))
            await self._turn(MAKE_DOMAIN)

    def _use(self, key: _Key, parent: _Use | None) -> _Use:
        use = self._uses.get(key)
        if use is None:
            use = self._uses[key] = _Use(key, parent)
            self._by_level[key.level].append(use)
            (self._widest if parent is None else parent.within).append(use)
        return use

    async def _count_nodes(self) -> list[str]:
        """Count each node in the narrowest domain that it is in; returns those that are in none."""
        plane, outside = self._parts.plane, []
        for name in list(plane.nodes):
            await self._turn(COUNT_NODE)
            row = plane.nodes.get(name)
            if row is None or row.state is NodeState.REMOVED:
                continue
            narrowest: _Use | None = None
            for level, domain in enumerate(self._topology.domains_of(name, row.labels)):
                if domain:
                    narrowest = self._use(_Key(level, domain), narrowest)
            if narrowest is None:
                outside.append(name)
            else:
                self._by_node[name] = narrowest
                self._count_node(narrowest, row)
        return outside

    def _count_node(self, use: _Use, row: NodeRow) -> None:
        free = self._parts.engine.free(row)
        use.nodes += 1
        if row.state is NodeState.UP:
            use.up += 1
            use.idle += all(free.get(name, amount) == amount for name, amount in row.capacity.items())
        _add(use.capacity, row.capacity)
        _add(use.free, free)
        if len(use.members) < MAX_LISTED:
            use.members.append(row.name)

    async def _count_jobs(self) -> None:
        """Count each job once in every domain where it runs."""
        plane = self._parts.plane
        for job in plane.running_ids():
            await self._turn(LOOK_UP)
            live = plane.job(job)
            if live is None:
                continue
            found: set[_Use] = set()
            for attempt in list(live.active.values()):
                for node in attempt.nodes:
                    use = self._by_node.get(node)
                    while use is not None and use not in found:
                        found.add(use)
                        use = use.parent
                await self._turn(LOOK_UP * 10 * len(attempt.nodes))
            for use in found:
                use.jobs += 1

    async def _add_up(self) -> None:
        """Add what is in each domain to those around it, narrowest first."""
        for use in chain.from_iterable(reversed(self._by_level)):
            if (parent := use.parent) is not None:
                parent.nodes += use.nodes
                parent.up += use.up
                parent.idle += use.idle
                _add(parent.capacity, use.capacity)
                _add(parent.free, use.free)
            await self._turn(MAKE_DOMAIN)

    async def _missing(self) -> list[str]:
        """Nodes that the topology names and that are not here."""
        found = []
        for name in self._topology.places:
            if name not in self._parts.plane.nodes:
                found.append(name)
            await self._turn(LOOK_UP)
        return found

    async def _written(self) -> list[DomainView]:
        """Each domain before those within it."""
        views: list[DomainView] = []
        waiting = await self._backwards(self._widest)
        while waiting:
            use = waiting.pop()
            views.append(
                DomainView(
                    name=use.key.name,
                    level=self._topology.levels[use.key.level],
                    depth=use.depth,
                    parent=use.parent.key.name if use.parent is not None else "",
                    nodes=use.nodes,
                    up=use.up,
                    idle=use.idle,
                    capacity=use.capacity,
                    free=use.free,
                    jobs=use.jobs,
                    members=fold_names(sorted(use.members)),
                )
            )
            waiting += await self._backwards(use.within)
            await self._turn(MAKE_DOMAIN + WRITE_MEMBER * len(use.members))
        return views

    async def _backwards(self, uses: list[_Use]) -> list[_Use]:
        """The same, the last of them first."""
        work = partial(sorted, uses, key=lambda one: (one.key.level, one.order), reverse=True)
        return work() if len(uses) <= MAX_SORTED else await self._parts.runtime.run_blocking(work)


def _add(to: dict[str, int], amounts: dict[str, int]) -> None:
    for name, amount in amounts.items():
        to[name] = to.get(name, 0) + amount
