"""A cluster in a virtual world: each node a host of its own, TCP between it and the controller's, timers made short.

What is on each host is started again when it dies, as a service would. The whole of it is as in `system`: real
controller, store, engine, agents, keeper cores and frames; only processes, disks, clocks and the network are virtual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from hal.core.engine.config import EngineConfig
from hal.core.model.lease_times import LeaseTimes
from hal.daemons.agent.agent import Agent, AgentSettings
from hal.daemons.agent.keeper.core import KeeperCore
from hal.daemons.agent.keeper.ports import KeeperConfig
from hal.daemons.agent.step_service import StreamPlaces
from hal.daemons.controller.config import Config
from hal.runtime.interface import Address, Runtime, TcpAddress, UnixAddress
from hal.runtime.virtual_process import Main, VirtualProcess
from hal.runtime.virtual_world import VirtualHost, VirtualWorld
from hal.wire.peer import CertifiedName
from tests.simulation.keeper_process import keeper_main
from tests.simulation.machine import Machine
from tests.simulation.scripts import SECTION, DiskNotes, Scripts
from tests.simulation.services import POLICY, Services
from tests.simulation.system import AGENT, CPU_MILLI, KEEPER, MEMORY_BYTES, SUPERVISE_S, System

HEAD: Final = "head"
PORT: Final = 8641
TIMES: Final = LeaseTimes(heartbeat_ms=200, node_ms=1_500, leader_ms=300, kill_ms=1_200, slack_ms=200)
"""T = 1.02 · (1.5 + 0.3 + 1.2) + 0.2 = 3.26 s."""
DRIFT: Final = 0.008
"""How far the rate of a host's clocks may be from one."""


class Thaw(NamedTuple):
    """A host that had stood still goes on."""

    node: str
    from_s: float
    to_s: float


class Cluster(System):
    """One HAL on several hosts.

    Args:
        core_type: what keepers decide with.
        scripts: nodes have prologs and epilogs.
        gates: they have a service that jobs may name.
        engine: None: as the configuration has it.
        streams: how agents reach into steps; None: they do not, and take no services.
    """

    def __init__(
        self,
        world: VirtualWorld,
        *,
        nodes: int = 3,
        kill_chance: float = 0.0,
        config: Config | None = None,
        core_type: type[KeeperCore] = KeeperCore,
        scripts: bool = False,
        gates: bool = False,
        engine: EngineConfig | None = None,
        streams: StreamPlaces | None = None,
    ):
        config = config or Config(leases=TIMES)
        if engine is not None:
            config = replace(config, engine=engine)
        if gates:
            config = replace(config, policy=POLICY)
        super().__init__(world, nodes=0, kill_chance=kill_chance, config=config)
        self.host = world.host(HEAD)
        self.heads = {HEAD: self.host}
        """Hosts of controllers."""
        self.times = self._config.leases
        self.thaws: list[Thaw] = []
        self.given_up: list[str] = []
        """Controllers that had answered, and ended by themselves with an error."""
        self._core_type = core_type
        self._streams = streams
        self._suspended: set[str] = set()
        rng = world.rng("clocks")
        self.hosts: dict[str, VirtualHost] = {}
        self.scripts: dict[str, Scripts] = {}
        self.services: dict[str, Services] = {}
        self.gate_notes: dict[str, DiskNotes] = {}
        self.settled_s = 0.0
        """When nothing was left to be done."""
        for number in range(1, nodes + 1):
            host = self.hosts[f"n{number}"] = world.host(f"n{number}")
            host.name_shown = CertifiedName("agent", host.name, f"{number:x}")
            host.programs.update({KEEPER: self._keeper_of, AGENT: self._agent_of})
            self.machines[host.name] = Machine(host, host.name)
            if scripts or gates:
                self.gate_notes[host.name] = DiskNotes(host)
            if scripts:
                self.scripts[host.name] = Scripts(host)
            if gates:
                self.services[host.name] = Services(host)
        for host in (self.host, *self.hosts.values()):
            host.rate = 1 + rng.uniform(-DRIFT, DRIFT)

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def process(self, name: str) -> VirtualProcess | None:
        for process in self.processes():
            if process.name == name:
                return process
        return None

    def leader(self) -> VirtualProcess | None:
        """The controller that leads."""
        return self.process("controller")

    @property
    def lapsed_s(self) -> float:
        """A host that stood still for so long has no lease any more."""
        return self.times.node_ms / 1000 + 0.5

    def processes(self) -> list[VirtualProcess]:
        hosts = (*self.heads.values(), *self.hosts.values())
        return sorted((process for host in hosts for process in host.processes.values()), key=lambda one: one.pid)

    async def supervise(self) -> None:
        rng = self.world.rng("supervisor")
        while self._wanted:
            self._supervise_controller()
            for node, host in self.hosts.items():
                if node not in self._suspended and not host.processes:
                    host.start_program([KEEPER, node])
            await asyncio.sleep(SUPERVISE_S * rng.random())

    async def all_nodes_known(self) -> None:
        """By the disk, too: what only the controller knew would be gone with it."""
        await super().all_nodes_known()
        store = self.store()
        await self.world.until(
            lambda: len(store.load().nodes) == len(self.machines), limit_ms=60_000, what="all nodes are in the database"
        )
        self._flush()

    def _flush(self) -> None:
        """What is committed survives a loss of power."""
        self._disk.flush()

    def _supervise_controller(self) -> None:
        if self.process("controller") is None:
            self.world.start(self.host, "controller", self._controller)

    # ── what befalls hosts ────────────────────────────────────────────────────────────────────────────────────────

    def power_off_node(self, node: str) -> None:
        """It loses power, and boots again."""
        self.machines[node].power_off()
        self.hosts[node].power_off()

    def power_off_head(self) -> None:
        """The controller's host loses power, and with it what was committed and not flushed; nodes go on."""
        self.power_losses_s.append(self.world.loop.time())
        self._disk.power_off()
        self.host.power_off()

    async def suspend(self, node: str, seconds: float) -> None:
        """All of the host stands still for so long, as under the freezer."""
        if node in self._suspended:
            return
        begin_s = self.world.loop.time()
        self._suspended.add(node)
        self.hosts[node].suspend()
        self.machines[node].freeze()
        await asyncio.sleep(seconds)
        self._suspended.discard(node)
        self.thaws.append(Thaw(node, begin_s, self.world.loop.time()))
        self.machines[node].thaw()
        self.hosts[node].thaw()

    # ── mains ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _wire(self, runtime: Runtime) -> Address:
        return TcpAddress(HEAD, PORT)

    def _keeper_of(self, argv: Sequence[str]) -> tuple[str, Main]:
        node = argv[-1]
        capacity = {"cpu": CPU_MILLI, "memory": MEMORY_BYTES}
        home = str(self.hosts[node].home.root)
        config = KeeperConfig(node=node, home=home, capacity=capacity, lease_ms=self.times.node_ms)

        async def main(runtime: Runtime) -> None:
            machine = self.machines[node]
            await keeper_main(runtime, machine, config, self._kill_chance, [AGENT, node], self._core_type)

        return f"keeper-{node}", main

    def _agent_of(self, argv: Sequence[str]) -> tuple[str, Main]:
        node = argv[-1]

        async def main(runtime: Runtime) -> int:
            keeper = UnixAddress(runtime.paths.keeper_socket(node))
            first, *others = (TcpAddress(head, PORT) for head in self.heads)
            settings = AgentSettings(node, first, keeper, [KEEPER, node], others=others, streams=self._streams)
            if node in self.gate_notes:
                section = SECTION if node in self.scripts else settings.section
                settings = settings._replace(section=section, gate_notes=self.gate_notes[node])
            return await Agent(runtime, settings).run()

        return f"agent-{node}", main
