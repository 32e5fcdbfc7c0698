"""Thousands of nodes on a real controller: each speaks the agents' protocol, and its steps are timers.

What the controller knows of them is what it knows of real ones: hardware, domains, GPUs, heartbeats, starts and exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any, Final

import hal
from hal.core.model.errors import TimedOutError, UnreachableError
from hal.core.model.facts import CpuFacts, Facts, GpuFacts, automatic_labels
from hal.core.model.ids import StepId
from hal.runtime.home import Home
from hal.runtime.interface import Connection, UnixAddress
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.wire.agree import SPOKEN
from hal.wire.frames.agent_keeper import ExitCause, Exits, Heartbeat, Start, Started, StepExit, StepStarted, Usage
from hal.wire.frames.hello import Hello, Welcome
from hal.wire.roles import Role
from tests.web.measured_nodes import MeasuredNode

GIB: Final = 1 << 30
NODES_OF_A_RACK: Final = 40
RACKS_OF_A_ROOM: Final = 16
DIALS: Final = 100
DIALLING: Final = 64
"""Nodes that dial at a time."""
CONFIG: Final = """
[topology]
levels = ["hal.domain.1", "hal.domain.2"]

[accounts.lab]
[accounts.lab-vision]
parent = "lab"
[accounts.lab-genomics]
parent = "lab"
[accounts.physics]
"""


class SimulatedNode:
    """One agent with its keeper."""

    def __init__(self, runtime: RealRuntime, number: int, chance: random.Random, lasts_s: tuple[float, float]) -> None:
        """
        Args:
            lasts_s: the shortest and the longest that its steps take.
        """
        self.runtime, self.chance, self.lasts_s = runtime, chance, lasts_s
        rack = number // NODES_OF_A_RACK
        room = rack // RACKS_OF_A_ROOM
        self.gpus = 8 if rack % 4 == 3 else 0
        self.name = f"{'gpu' if self.gpus else 'n'}{number:04}"
        self.domain = f"hall{room + 1}/r{rack + 1:03}"
        self.starts = 0
        self.held: set[StepId] = set()
        """Steps that run here."""

    async def run(self, path: Any, dialling: asyncio.Semaphore) -> None:
        """Until the controller goes."""
        async with dialling:
            connection, welcome = await self._greet(UnixAddress(path))
        beating = asyncio.ensure_future(self._beat(connection, welcome.heartbeat_ms))
        try:
            while (frame := await connection.receive()) is not None:
                if isinstance(frame, Start):
                    for start in frame.steps:
                        self._begin(connection, start.step)
        finally:
            beating.cancel()

    async def _greet(self, address: UnixAddress) -> tuple[Connection, Welcome]:
        """
        Raises:
            UnreachableError: the controller lets nobody in.
        """
        model = "NVIDIA H100 80GB HBM3" if self.gpus else ""
        capacity = {"cpu": 64_000, "memory": 256 * GIB} | ({"gpu": self.gpus * 1_000} if self.gpus else {})
        facts = Facts(
            system="Debian GNU/Linux 12",
            system_id="debian",
            kernel="6.1.0",
            architecture="x86_64",
            host=self.name,
            cpu=CpuFacts(model="AMD EPYC 9554", sockets=1, cores=64, threads=64),
            memory_bytes=256 * GIB,
            gpus=tuple(
                GpuFacts(index=n, vendor="nvidia", model=model, memory_bytes=80 * GIB) for n in range(self.gpus)
            ),
            domain=self.domain,
        )
        hello = Hello(
            role=Role.AGENT,
            versions=SPOKEN,
            name=self.name,
            boot_id="simulated",
            pid=1,
            capacity=capacity,
            facts=facts,
            labels=automatic_labels(self.name, facts),
        )
        for _ in range(DIALS):
            with contextlib.suppress(UnreachableError, TimedOutError):
                connection = await self.runtime.connect(address)
                await connection.send(hello)
                if isinstance(welcome := await connection.receive(60_000), Welcome):
                    return connection, welcome
            await self.runtime.sleep(self.chance.randrange(100, 1_000))
        raise UnreachableError(f"{self.name} was not let in, {DIALS} times")

    def _begin(self, connection: Connection, step: StepId) -> None:
        now_ms = self.runtime.now_ms()
        self.starts += 1
        self.held.add(step)
        connection.send_nowait(Started(steps=(StepStarted(step, 1, now_ms),)))
        # The steps of one task end together, on however many nodes.
        lasts_ms = int(random.Random(f"{step.job}.{step.task}").uniform(*self.lasts_s) * 1_000)
        self.runtime.call_later(lasts_ms, lambda: self._end(connection, step, now_ms))

    def _end(self, connection: Connection, step: StepId, started_ms: int) -> None:
        self.held.discard(step)
        if connection.closed:
            return
        ended_ms = self.runtime.now_ms()
        used_ms = int((ended_ms - started_ms) * self.chance.uniform(0.2, 1.0))
        code = 0 if self.chance.random() < 0.96 else 1
        usage = Usage(used_ms, used_ms // 20, self.chance.randrange(1 << 28, 1 << 31))
        exit_ = StepExit(step, ExitCause.EXITED, code, 0, started_ms, ended_ms, usage, "")
        connection.send_nowait(Exits(exits=(exit_,)))

    async def _beat(self, connection: Connection, heartbeat_ms: int) -> None:
        await self.runtime.sleep(self.chance.randrange(heartbeat_ms))
        while not connection.closed:
            connection.send_nowait(Heartbeat(stamp_boot_ms=self.runtime.boot_ms()))
            await self.runtime.sleep(heartbeat_ms)


class SimulatedCluster:
    """All of them, in this process's loop."""

    def __init__(self, home: Home, count: int, *, lasts_s: tuple[float, float] = (60.0, 900.0), seed: int = 1) -> None:
        self._home = home
        self.measured = False
        """Whether they send samples to a collector."""
        self.away = 0
        """So many of the last ones hang up when all were up."""
        self._runtime = RealRuntime(
            "simulated", home, open_log(LogFile(home.root / "simulated.log"), "simulated"), seed=seed
        )
        chance = random.Random(seed)
        self.nodes = [SimulatedNode(self._runtime, number, chance, lasts_s) for number in range(count)]
        self._serving: list[asyncio.Future[None]] = []

    async def start(self, client: hal.Client) -> None:
        """Returns when all are up."""
        dialling = asyncio.Semaphore(DIALLING)
        path = self._home.wire_socket()
        self._serving = [asyncio.ensure_future(node.run(path, dialling)) for node in self.nodes]
        wanted = {node.name for node in self.nodes}
        while True:
            found = await asyncio.to_thread(client.nodes)
            if len(wanted & {node.name for node in found if node.state == "up"}) == len(wanted):
                break
            for one in self._serving:
                if one.done():
                    one.result()
            await self._runtime.sleep(300)
        for one in self._serving[len(self.nodes) - self.away :]:
            one.cancel()
        if self.measured:
            samplers = [MeasuredNode(self._runtime, node, number) for number, node in enumerate(self.nodes)]
            self._serving += [asyncio.ensure_future(one.run()) for one in samplers]

    async def stop(self) -> None:
        """Hang up."""
        for one in self._serving:
            one.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._runtime.close()


NAMES: Final = (
    "train-resnet",
    "align-reads",
    "lattice-qcd",
    "render",
    "md-sim",
    "preprocess",
    "eval-suite",
    "tokenize",
)
ACCOUNTS: Final = ("lab-vision", "lab-genomics", "physics")


def work(jobs: int, *, seed: int = 2) -> list[dict[str, Any]]:
    """Specs of so many jobs as a busy site has: small and large ones, arrays, GPUs, gangs, chains."""
    chance = random.Random(seed)
    found: list[dict[str, Any]] = []
    for number in range(jobs):
        name = chance.choice(NAMES)
        spec: dict[str, Any] = {
            "name": f"{name}-{number}",
            "command": ["./run.sh", f"--seed={number}"],
            "walltime": chance.choice(["20m", "1h", "4h", "12h"]),
            "request": {"cpu": chance.choice([1, 4, 16, 32, 64]), "memory": chance.choice(["2GiB", "16GiB", "64GiB"])},
            "account": chance.choice(ACCOUNTS),
            "labels": {"team": chance.choice(["blue", "red"])},
        }
        kind = chance.random()
        if kind < 0.25:
            spec["request"] |= {"gpu": chance.choice([1, 2, 8])}
        elif kind < 0.32:
            spec["nodes"] = chance.choice([2, 8, 64])
        elif kind < 0.40:
            spec["array"] = chance.choice([10, 200])
        found.append(spec)
    return found
