"""A plane that advises a simulated cluster all the time, and policies that read what it puts.

The plane keeps the contract: it names the base of its deltas, and puts a table whole when a controller that has started
has none.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hal.core.engine.config import EngineConfig
from hal.core.engine.policies import register
from hal.core.interfaces import BucketView, ClusterView, JobView, NodeView, PolicyInfo, Request
from hal.core.model import ConflictError, NotFoundError
from hal.core.model.advice import KeySpace
from hal.daemons.controller.service.advice.views import Update
from tests.simulation.cluster import Cluster

EVERY_S: Final = 0.3
PLANE: Final = "plane"


class Quiet:
    """The node with the lowest advised load, of equals the one with the least free."""

    info = PolicyInfo("sim-quiet", "score/2", reads_free=True, reads_advice=("load",))

    def score(self, request: Request, view: NodeView) -> NDArray[np.float64]:
        load = np.clip(np.nan_to_num(view.advice["load"], nan=0.5), 0.0, 1.0)
        return 0.9 * (1.0 - load) + 0.1 * (1.0 - view.free[0] / np.maximum(view.capacity[0], 1.0))


class Urgent:
    """Jobs by advised urgency, users by favour, then as they were submitted."""

    info = PolicyInfo("sim-urgent", "order/3", reads_advice=("urgency", "favour"))

    def key(self, jobs: JobView, view: ClusterView) -> NDArray[np.int64]:
        return -(1_000 * np.nan_to_num(jobs.advice["urgency"])).astype(np.int64)

    def offset(self, buckets: BucketView, view: ClusterView, now_ms: int) -> NDArray[np.int64]:
        return -(1_000 * np.nan_to_num(buckets.advice["favour"])).astype(np.int64)


for _policy in (Quiet(), Urgent()):
    register(_policy)
ENGINE: Final = EngineConfig(order="sim-urgent", placement="sim-quiet", slice_work=200)


class Plane:
    """Puts loads of nodes, urgencies of jobs and favours of users; counts what it was told."""

    def __init__(self, cluster: Cluster) -> None:
        self.put = 0
        """Updates that were applied."""
        self.told_to_put_whole = 0
        self._cluster = cluster
        self._rng: Random = cluster.world.rng("advice")
        self._versions: dict[str, int] = {}

    async def advise(self, over: asyncio.Event) -> None:
        """Until it is over: a table, a delta, or a withdrawal every now and then."""
        while not over.is_set():
            await asyncio.sleep(EVERY_S * self._rng.random())
            kind, space, keys = self._rng.choice(
                (
                    ("load", KeySpace.NODES, ("n1", "n2", "n3", "n9")),
                    ("urgency", KeySpace.JOBS, tuple(range(1, 9))),
                    ("favour", KeySpace.USERS, ("alice", "bob")),
                )
            )
            if self._rng.random() < 0.05:
                await self._withdraw(kind)
            else:
                await self._put(kind, space, keys)

    async def _put(self, kind: str, space: KeySpace, keys: tuple[str, ...] | tuple[int, ...]) -> None:
        base = self._versions.get(kind)
        update = self._update(space, keys, base)
        try:
            answer = await self._cluster.ask(lambda api: api.advice.put(kind, update, PLANE))
        except ConflictError:
            self.told_to_put_whole += 1
            whole = self._update(space, keys, None)
            answer = await self._cluster.ask(lambda api: api.advice.put(kind, whole, PLANE))
        self.put += answer.applied
        self._versions[kind] = answer.advice.version

    async def _withdraw(self, kind: str) -> None:
        try:
            await self._cluster.ask(lambda api: api.advice.withdraw(kind))
        except NotFoundError:
            return
        self._versions.pop(kind, None)

    def _update(self, space: KeySpace, keys: tuple[str, ...] | tuple[int, ...], base: int | None) -> Update:
        some = tuple(key for key in keys if self._rng.random() < 0.7)
        return Update(
            space=space,
            keys=some,  # type: ignore[arg-type]
            values=np.array([self._rng.choice((0.0, 0.4, 0.9, np.nan)) for _ in some], np.float64),
            delta=base is not None,
            version=None,
            base=base,
            expires_in_ms=self._rng.choice((50, 1_000, 20_000)),
        )
