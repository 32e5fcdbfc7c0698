"""All of HAL in a virtual world: real controller, store, engine, agents and keeper cores; only processes are fake.

One host with several nodes, as `hal up --nodes N` makes it. Whatever dies is started again, as `hal up` would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from hal.core.model import OverloadedError, UnreachableError
from hal.daemons.agent.agent import Agent, AgentSettings
from hal.daemons.agent.keeper.ports import KeeperConfig
from hal.daemons.controller.config import Config
from hal.daemons.controller.controller import Controller
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.runtime.interface import Address, Runtime, UnixAddress
from hal.runtime.virtual_process import Main, VirtualProcess
from hal.runtime.virtual_world import VirtualWorld
from hal.store import Claim, MemoryDatabase, Store, StoreError
from tests.simulation.keeper_process import keeper_main
from tests.simulation.machine import Machine, Run

T = TypeVar("T")

AGENT: Final = "hal.daemons.agent"
KEEPER: Final = "hal.daemons.agent.keeper"
CPU_MILLI: Final = 4_000
MEMORY_BYTES: Final = 8 << 30
SUPERVISE_S: Final = 0.5
ANSWER_TRIES: Final = 2_000
MOST_PAGES: Final = 1 << 20


class VirtualDisk:
    """The store's disk: a power failure takes back what was committed and not flushed."""

    def __init__(self) -> None:
        self.database = MemoryDatabase()
        self._flushed = b""

    def open(self) -> Store:
        """The store on it."""
        store = FlushingStore.open(self.database)
        if isinstance(store, FlushingStore):
            store.disk = self
        return store

    def flush(self) -> None:
        """All that is committed by now survives a power failure."""
        self._flushed = self.database.connection.serialize()

    def power_off(self) -> None:
        """What was not flushed is gone."""
        self.database = MemoryDatabase()
        if self._flushed:
            self.database.connection.deserialize(self._flushed)


class FlushingStore(Store):
    """A store in memory whose disk notes when it was flushed."""

    disk: VirtualDisk

    def flush(self) -> None:
        super().flush()
        self.disk.flush()

    def take_leadership(self, claim: Claim | str, now_ms: int, *, own: int = 0, past: int = 0) -> int:
        epoch = super().take_leadership(claim, now_ms, own=own, past=past)
        self.disk.flush()
        return epoch


class System:
    """One HAL.

    Args:
        world: the world that it is built in.
        nodes: how many; `n1`, `n2`, ….
        kill_chance: that a keeper dies at any one write of its journal or launch of a step.
    """

    def __init__(self, world: VirtualWorld, *, nodes: int = 3, kill_chance: float = 0.0, config: Config | None = None):
        self.world = world
        self.host = world.host("host")
        self.machines = {f"n{number}": Machine(self.host, f"n{number}") for number in range(1, nodes + 1)}
        self.starts = 0
        """How often a controller came to lead."""
        self.power_losses_s: list[float] = []
        """When."""
        self._config = config or Config()
        self._disk = VirtualDisk()
        self._apis: dict[int, ControllerApi] = {}
        self._kill_chance = kill_chance
        self._wanted = True
        self.host.programs[KEEPER] = self._keeper
        self.host.programs[AGENT] = self._agent

    @property
    def runs(self) -> list[Run]:
        """All steps that had a process."""
        return [run for machine in self.machines.values() for run in machine.runs]

    def idle(self) -> bool:
        """No process of any step lives."""
        return not any(machine.running() for machine in self.machines.values())

    def store(self) -> Store:
        """The store as a person would open it afterwards."""
        return self._disk.open()

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def process(self, name: str) -> VirtualProcess | None:
        """The running process of that name."""
        for process in self.host.processes.values():
            if process.name == name:
                return process
        return None

    def processes(self) -> list[VirtualProcess]:
        """All that run, oldest first."""
        return [process for _, process in sorted(self.host.processes.items())]

    async def supervise(self) -> None:
        """`hal up` again and again: start what is missing."""
        rng = self.world.rng("supervisor")
        while self._wanted:
            if self.process("controller") is None:
                self.world.start(self.host, "controller", self._controller)
            for node in self.machines:
                if self.process(f"keeper-{node}") is None and self.process(f"agent-{node}") is None:
                    self.host.start_program([KEEPER, node])
            await asyncio.sleep(SUPERVISE_S * rng.random())

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """The database cannot grow meanwhile: SQLite itself refuses what needs another page."""
        self._pages(1)
        try:
            yield
        finally:
            self._pages(MOST_PAGES)

    def _pages(self, most: int) -> None:
        # Never below what it has: then nothing that needs a new page can be written.
        self._disk.database.connection.execute(f"PRAGMA max_page_count={most}").close()

    def power_off(self) -> None:
        """The host loses power: its disk stays, except what was not flushed."""
        self.power_losses_s.append(self.world.loop.time())
        rng = self.world.rng(f"power {len(self.power_losses_s)}")
        for machine in self.machines.values():
            machine.power_off()
            # Keepers do not flush their journals: any part at the end may be missing.
            blocks = self.host.disk.get(f"journal {machine.node}", [])
            del blocks[rng.randint(0, len(blocks)) :]
        self._disk.power_off()
        self.host.power_off()

    def give_up(self) -> None:
        """Start nothing any more."""
        self._wanted = False

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, call: Callable[[ControllerApi], Awaitable[T]]) -> T:
        """Have a controller do it; asked again when it died before it answered, so `call` must bear repeating.

        Raises:
            HALError: its answer.
            TimedOutError: no controller answered.
        """
        for _ in range(ANSWER_TRIES):
            self.world.check()
            process = self.process("controller")
            api = self._apis.get(process.pid) if process is not None else None
            if process is not None and api is not None:
                try:
                    return await self._answer(process, lambda api=api: call(api))  # type: ignore[misc]
                except (UnreachableError, OverloadedError, StoreError) as error:
                    self.world.note("client", "again", f"{type(error).__name__}")
            await asyncio.sleep(0.05)
        raise AssertionError(f"seed {self.world.seed}: no controller answered\n{self.world.tail()}")

    async def _answer(self, process: VirtualProcess, call: Callable[[], Awaitable[T]]) -> T:
        """Its answer, however long it takes."""
        return await process.ask(call)

    async def all_nodes_known(self) -> None:
        """Until every node has dialled once: before that, what only they could run would be refused."""

        async def known(api: ControllerApi) -> bool:
            return len(api.nodes.all()) == len(self.machines)

        for _ in range(ANSWER_TRIES):
            if await self.ask(known):
                return
            await asyncio.sleep(0.1)

    # ── mains ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _controller(self, runtime: Runtime) -> None:
        controller = Controller(runtime, self._config, self._disk.open)
        await controller.start(self._wire(runtime))
        self._apis[runtime.pid] = controller.api
        self.starts += 1
        loop = runtime.spawn_task(controller.run(), "control loop")
        await runtime.stopping.wait()
        controller.stop()
        await loop
        await controller.close()

    def _wire(self, runtime: Runtime) -> Address:
        """Where agents dial."""
        return UnixAddress(runtime.paths.wire_socket())

    def _keeper(self, argv: Sequence[str]) -> tuple[str, Main]:
        node = argv[-1]
        capacity = {"cpu": CPU_MILLI, "memory": MEMORY_BYTES}
        config = KeeperConfig(node=node, home=str(self.host.home.root), capacity=capacity)

        async def main(runtime: Runtime) -> None:
            await keeper_main(runtime, self.machines[node], config, self._kill_chance, [AGENT, node])

        return f"keeper-{node}", main

    def _agent(self, argv: Sequence[str]) -> tuple[str, Main]:
        node = argv[-1]

        async def main(runtime: Runtime) -> int:
            paths = runtime.paths
            settings = AgentSettings(
                node, UnixAddress(paths.wire_socket()), UnixAddress(paths.keeper_socket(node)), [KEEPER, node]
            )
            return await Agent(runtime, settings).run()

        return f"agent-{node}", main
