"""One controller with 1,000 agents: heartbeats every two seconds and 200 starts a second, in one core and 1 GiB.

The controller is a real process; the agents speak the real protocol to it over its Unix socket, all from this process,
and their steps are timers: each node has one cpu, each step lasts five seconds, so an array keeps 200 starts and 200
ends a second going.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path
from typing import Final

import uvloop

import hal
from _private_hal import cpu_s, pid_of, private_hal, rss_bytes, say
from hal.core.model.errors import UnreachableError
from hal.core.model.ids import StepId
from hal.runtime.home import Home
from hal.runtime.interface import Connection, UnixAddress
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real import RealRuntime
from hal.wire.agree import SPOKEN
from hal.wire.frames import (
    ExitCause,
    Exits,
    Heartbeat,
    Hello,
    Role,
    Start,
    Started,
    StepExit,
    StepStarted,
    Usage,
    Welcome,
)

AGENTS: Final = 1_000
STEP_S: Final = 5.0
DIALS: Final = 20
WARM_S: Final = 12.0
MEASURED_S: Final = 25.0


class Node:
    """One simulated agent with its keeper."""

    def __init__(self, runtime: RealRuntime, number: int) -> None:
        self.runtime = runtime
        self.name = f"sim{number:04}"
        self.starts = 0

    async def run(self, address: UnixAddress) -> None:
        """Until the controller goes."""
        connection = await self.dial(address)
        connection.send_nowait(
            Hello(
                role=Role.AGENT,
                versions=SPOKEN,
                name=self.name,
                boot_id="bench",
                pid=1,
                capacity={"cpu": 1_000, "memory": 4 << 30, "sim": 1},
            )
        )
        welcome = await connection.receive(60_000)
        assert isinstance(welcome, Welcome), welcome
        beating = asyncio.ensure_future(self.beat(connection, welcome.heartbeat_ms))
        while (frame := await connection.receive()) is not None:
            if isinstance(frame, Start):
                for start in frame.steps:
                    self.begin(connection, start.step)
        beating.cancel()

    async def dial(self, address: UnixAddress) -> Connection:
        """As agents do: again and again while nobody accepts."""
        for _ in range(DIALS):
            try:
                return await self.runtime.connect(address)
            except UnreachableError:
                await self.runtime.sleep(self.runtime.random().randrange(100, 1_000))
        return await self.runtime.connect(address)

    def begin(self, connection: Connection, step: StepId) -> None:
        """A process that is a timer."""
        now_ms = self.runtime.now_ms()
        self.starts += 1
        connection.send_nowait(Started(steps=(StepStarted(step, 1, now_ms),)))
        self.runtime.call_later(int(STEP_S * 1000), lambda: self.end(connection, step, now_ms))

    def end(self, connection: Connection, step: StepId, started_ms: int) -> None:
        if not connection.closed:
            ended_ms = self.runtime.now_ms()
            exit_ = StepExit(step, ExitCause.EXITED, 0, 0, started_ms, ended_ms, Usage(1, 1, 1 << 20), "")
            connection.send_nowait(Exits(exits=(exit_,)))

    async def beat(self, connection: Connection, heartbeat_ms: int) -> None:
        await self.runtime.sleep(self.runtime.random().randrange(heartbeat_ms))
        while not connection.closed:
            connection.send_nowait(Heartbeat(stamp_boot_ms=self.runtime.boot_ms()))
            await self.runtime.sleep(heartbeat_ms)


async def drive(home: Path) -> None:
    """Join all, submit, measure."""
    log = LogFile(home / "bench.log")
    runtime = RealRuntime("bench", Home(home), open_log(log, "bench"), seed=1)
    address = UnixAddress(Home(home).wire_socket())
    nodes = [Node(runtime, number) for number in range(AGENTS)]
    serving = [asyncio.ensure_future(node.run(address)) for node in nodes]
    failed = asyncio.ensure_future(asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED))
    controller = pid_of(home, "controller")
    with hal.connect(home=home) as client:
        while sum(node.state == "up" for node in await asyncio.to_thread(client.nodes)) < AGENTS:
            assert not failed.done(), next(task.exception() for task in serving if task.done())
            await runtime.sleep(200)
        tasks = int(AGENTS / STEP_S * (WARM_S + MEASURED_S) * 2)
        request = {"cpu": 1, "memory": "1GiB", "sim": 1}
        job = await asyncio.to_thread(client.submit, ["true"], array=tasks, request=request)
        await runtime.sleep(int(WARM_S * 1000))
        used, begun, begin = cpu_s(controller), sum(node.starts for node in nodes), time.perf_counter()
        await runtime.sleep(int(MEASURED_S * 1000))
        spent_s = time.perf_counter() - begin
        cores = (cpu_s(controller) - used) / spent_s
        rate = (sum(node.starts for node in nodes) - begun) / spent_s
        say("many-agents-starts", rate, "starts/s", 200 * 0.95, agents=AGENTS)
        say("many-agents-controller-cpu", cores, "cores", 1, higher=False)
        say("many-agents-controller-memory", rss_bytes(controller) / (1 << 20), "MiB", 1_024, higher=False)
        await asyncio.to_thread(job.cancel)
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)
    await runtime.close()


def main() -> int:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * AGENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with private_hal("--cpus", "1") as home:
        uvloop.run(drive(home))
    return 0


if __name__ == "__main__":
    sys.exit(main())
