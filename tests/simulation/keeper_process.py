"""The real keeper core as a process of the virtual world: its loop, its journal on the virtual disk, its agent."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import msgspec

from hal.core.model.errors import UnreachableError
from hal.daemons.agent.keeper.core import KeeperCore
from hal.daemons.agent.keeper.ports import Instant, JournalFullError, KeeperConfig, Record
from hal.runtime.interface import Connection, Runtime, UnixAddress
from hal.runtime.virtual_process import VirtualProcess, VirtualRuntime
from hal.wire.frames.agent_keeper import AGENT_KEEPER
from hal.wire.frames.hello import Hello
from tests.simulation.machine import FakeOutputs, FakeSpawner, Machine

AGENT_LOOK_MS: Final = 500

_encode = msgspec.msgpack.encode
_decode: Final = msgspec.msgpack.Decoder(list[Record])


class DiskJournal:
    """A keeper's journal on the virtual disk; the keeper may be killed right before or after a record is in it."""

    def __init__(self, blocks: list[bytes], process: VirtualProcess, machine: Machine, kill_chance: float) -> None:
        self._blocks = blocks
        self._process = process
        self._machine = machine
        self._rng: random.Random = machine.rng
        self._kill_chance = kill_chance

    def load(self) -> list[Record]:
        return [record for block in self._blocks for record in _decode.decode(block)]

    def append(self, records: Sequence[Record]) -> None:
        self._perhaps_die()
        self._refuse_if_full()
        self._blocks.append(_encode(list(records)))
        self._perhaps_die()

    def replace(self, records: Sequence[Record]) -> None:
        self._perhaps_die()
        self._refuse_if_full()
        self._blocks[:] = [_encode(list(records))]
        self._perhaps_die()

    def size_bytes(self) -> int:
        return sum(map(len, self._blocks))

    def _refuse_if_full(self) -> None:
        if self._machine.disk_full:
            raise JournalFullError("no space left on device")

    def _perhaps_die(self) -> None:
        if self._rng.random() < self._kill_chance:
            self._process.die_here()


class KeeperShell:
    """Feeds the core: frames of one agent, events of the spawner, time."""

    def __init__(
        self,
        runtime: VirtualRuntime,
        machine: Machine,
        config: KeeperConfig,
        kill_chance: float,
        agent_argv: Sequence[str],
        core_type: type[KeeperCore] = KeeperCore,
    ) -> None:
        process = machine.host.processes[runtime.pid]
        self._runtime = runtime
        self._spawner = FakeSpawner(machine, process, kill_chance)
        self._agent: Connection | None = None
        self._agent_argv = agent_argv
        self._timer = runtime.call_later(0, lambda: None)
        blocks: list[bytes] = machine.host.disk.setdefault(f"journal {machine.node}", [])
        journal = DiskJournal(blocks, process, machine, kill_chance)
        self.core = core_type(
            config=config,
            journal=journal,
            spawner=self._spawner,
            outputs=FakeOutputs(),
            boot_id=runtime.boot_id,
            pid=runtime.pid,
        )
        self._spawner.on_event = self.turn

    def now(self) -> Instant:
        return Instant(self._runtime.now_ms(), self._runtime.boot_ms())

    async def run(self) -> None:
        self.core.recover(self.now())
        address = UnixAddress(self._runtime.paths.keeper_socket(self.core.config.node))
        await self._runtime.listen(address, self._serve, conversation=AGENT_KEEPER)
        self.turn()
        while True:
            await self._runtime.sleep(AGENT_LOOK_MS)
            if self._agent is None and not self._agent_runs():
                await self._runtime.start_process(self._agent_argv)

    def _agent_runs(self) -> bool:
        """As the pid file would tell."""
        name = f"agent-{self.core.config.node}"
        return any(process.name == name for process in self._runtime.host.processes.values())

    def turn(self) -> None:
        """What has happened → the core → its frames to the agent; then sleep until it wants to be woken."""
        now = self.now()
        events = self._spawner.take()
        if events:
            self.core.handle_events(events, now)
        self.core.wake(now)
        for frame in self.core.take_frames(now):
            if self._agent is not None:
                try:
                    self._agent.send_nowait(frame)
                except UnreachableError:
                    self._drop(self._agent)
        self._timer.cancel()
        self._timer = self._runtime.call_later(max(1, self.core.next_wake(now) - now.boot_ms), self.turn)

    async def _serve(self, connection: Connection) -> None:
        while (frame := await connection.receive()) is not None:
            if isinstance(frame, Hello):
                if self._agent is not None and self._agent is not connection:
                    old, self._agent = self._agent, None
                    self.core.detached(self.now())
                    old.close()
                self._agent = connection
            if connection is self._agent:
                self.core.received(frame, self.now())
                self.turn()
        self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        if self._agent is connection:
            self._agent = None
            self.core.detached(self.now())


async def keeper_main(
    runtime: Runtime,
    machine: Machine,
    config: KeeperConfig,
    kill_chance: float,
    agent_argv: Sequence[str],
    core_type: type[KeeperCore] = KeeperCore,
) -> None:
    """The keeper's process; it starts its agent whenever there is none."""
    if not isinstance(runtime, VirtualRuntime):
        raise TypeError("the fake machine is virtual, so its keeper is too")
    await KeeperShell(runtime, machine, config, kill_chance, agent_argv, core_type).run()
