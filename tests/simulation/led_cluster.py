"""A cluster with several controllers on one database: one leads, the others follow, on a virtual host each.

Each process runs the real elector: it takes the leadership, leads, steps down and follows as `hal up` has it; only REST
is left out. Agents know all of them, and find the one that leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from hal.core.engine.config import EngineConfig
from hal.core.model import UnreachableError
from hal.core.model.lease_times import LeaseTimes
from hal.daemons.agent.keeper.core import KeeperCore
from hal.daemons.controller.config import Config
from hal.daemons.controller.elector import LeaderElector
from hal.daemons.controller.following.follower import Follower
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.runtime.interface import Runtime, TcpAddress
from hal.runtime.virtual_process import VirtualProcess
from hal.runtime.virtual_world import VirtualWorld
from hal.store import LEASE_MS, Store, StoreError
from tests.simulation.cluster import DRIFT, PORT, Cluster
from tests.simulation.database_server import PLACE, DatabaseServer
from tests.simulation.system import SUPERVISE_S

T = TypeVar("T")

LED_TIMES: Final = LeaseTimes(heartbeat_ms=250, node_ms=5_000, leader_ms=LEASE_MS, kill_ms=1_200, slack_ms=200)
"""T = 1.02 · (5 + 3 + 1.2) + 0.2 = 9.59 s."""
PATIENCE_S: Final = 7.0
"""A client that hears nothing for so long asks again, whoever leads by then."""
CONTROLLER: Final = "controller"


class LedCluster(Cluster):
    """One HAL on several hosts, with two or three controllers."""

    def __init__(
        self,
        world: VirtualWorld,
        *,
        controllers: int = 3,
        nodes: int = 3,
        kill_chance: float = 0.0,
        core_type: type[KeeperCore] = KeeperCore,
        scripts: bool = False,
        gates: bool = False,
        engine: EngineConfig | None = None,
    ):
        config = Config(leases=LED_TIMES, store_url=PLACE)
        super().__init__(
            world,
            nodes=nodes,
            kill_chance=kill_chance,
            config=config,
            core_type=core_type,
            scripts=scripts,
            gates=gates,
            engine=engine,
        )
        self.database = DatabaseServer(world, DRIFT)
        rng = world.rng("clocks of controllers")
        for number in range(2, controllers + 1):
            head = self.heads[f"head{number}"] = world.host(f"head{number}")
            head.rate = 1 + rng.uniform(-DRIFT, DRIFT)
        world.network.mix(list(self.heads))
        self._leading: list[int] = []
        """Processes that came to lead and do not know of another, in that order."""

    def store(self) -> Store:
        return self.database.open()

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def process(self, name: str) -> VirtualProcess | None:
        """`controller`: the one that came to lead last; else any that runs."""
        if name != CONTROLLER:
            return super().process(name)
        running = {process.pid: process for process in self.processes() if process.name.startswith(CONTROLLER)}
        for pid in reversed(self._leading):
            if pid in running:
                return running[pid]
        return next(iter(running.values()), None)

    def leader(self) -> VirtualProcess | None:
        """The process that came to lead last, unless it knows better or is dead."""
        process = self.process(CONTROLLER)
        return process if process is not None and process.pid in self._leading else None

    async def supervise(self) -> None:
        rng = self.world.rng("supervisor of controllers")
        nodes = asyncio.ensure_future(super().supervise())
        while self._wanted:
            for host in self.heads.values():
                if not host.processes:
                    self.world.start(host, f"{CONTROLLER}-{host.name}", self._elector)
            await asyncio.sleep(SUPERVISE_S * rng.random())
        await nodes

    def _flush(self) -> None:
        """The database has done it."""

    def _supervise_controller(self) -> None:
        """See `supervise`."""

    def power_off_head(self) -> None:
        """The leader's host loses power; the database is elsewhere."""
        process = self.process(CONTROLLER)
        if process is not None:
            process.host.power_off()

    def _pages(self, most: int) -> None:
        self.database.memory.connection.execute(f"PRAGMA max_page_count={most}").close()

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _answer(self, process: VirtualProcess, call: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await process.ask(call)
        except TimeoutError:
            raise UnreachableError(f"{process.name} has not answered for {PATIENCE_S} s") from None

    # ── mains ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _elector(self, runtime: Runtime) -> None:
        host = next(host for host in self.heads.values() if runtime.pid in host.processes)
        wire = TcpAddress(host.name, PORT)
        front = _Front(self, runtime.pid)
        try:
            await LeaderElector(runtime, self._config, wire, partial(self.database.open_from, host.name), front).run()
        except StoreError as error:
            if front.served:
                self.given_up.append(f"{runtime.name}: {type(error).__name__}: {error}")
            raise

    def leads(self, pid: int, api: ControllerApi) -> None:
        """That process leads from now on, as far as it knows."""
        self._apis[pid] = api
        self._leading.append(pid)
        self.starts += 1

    def leads_no_more(self, pid: int) -> None:
        """It knows that it does not."""
        self._apis.pop(pid, None)
        self._leading.remove(pid)


class _Front:
    """How people reach one process: by calls, while it leads."""

    def __init__(self, cluster: LedCluster, pid: int) -> None:
        self._cluster = cluster
        self._pid = pid
        self.served = False

    @property
    def rest(self) -> str:
        return ""

    async def lead(self, api: ControllerApi) -> _Front:
        self.served = True
        self._cluster.leads(self._pid, api)
        return self

    async def follow(self, follower: Follower) -> _Passive:
        self.served = True
        return _Passive()

    async def stop(self) -> None:
        self._cluster.leads_no_more(self._pid)


class _Passive:
    """A follower is not asked."""

    async def stop(self) -> None:
        """Nothing to end."""
