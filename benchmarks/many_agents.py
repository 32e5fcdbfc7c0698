"""One controller with 1,000 agents: heartbeats every two seconds and 200 starts a second, in one core and 1 GiB.

The controller is a real process; the agents speak the real protocol to it, all from this process, over TLS: each joins
with a token of its own first, and dials with the certificate that it was given. Their steps are timers: each node has
one cpu, each step lasts five seconds, so an array keeps 200 starts and 200 ends a second going. `--unix` leaves joining
and TLS out: the agents dial the controller's Unix socket. `--plane` adds a plane: it follows ended attempts as a
registered reader, advises a price of each node once a second, and a tenth of the starts names a gate that is satisfied.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import socket
import sys
import time
from pathlib import Path
from typing import Final

import uvloop

import hal
from _private_hal import cpu_s, pid_of, private_hal, rss_bytes, say
from hal.cli.local.join_exchange import join_any
from hal.client.rest import feed_calls, joining_calls
from hal.core.model.errors import TimedOutError, UnreachableError
from hal.core.model.ids import StepId
from hal.runtime.authority import NodeIdentity
from hal.runtime.home import Home
from hal.runtime.interface import Address, Connection, Credentials, TcpAddress, UnixAddress
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.wire.agree import GATES, JOB_GATES, SPOKEN
from hal.wire.frames.agent_keeper import ExitCause, Exits, Heartbeat, Start, Started, StepExit, StepStarted, Usage
from hal.wire.frames.hello import Hello, Welcome
from hal.wire.join_token import read_join_token
from hal.wire.roles import Role

AGENTS: Final = 1_000
STEP_S: Final = 5.0
DIALS: Final = 20
JOINING: Final = 8
"""Nodes that join at a time."""
WARM_S: Final = 12.0
MEASURED_S: Final = 25.0


class Node:
    """One simulated agent with its keeper."""

    def __init__(self, runtime: RealRuntime, number: int) -> None:
        self.runtime = runtime
        self.name = f"sim{number:04}"
        self.starts = self.ended = 0
        self.refusals = 0
        """Dials in vain."""
        self.credentials: Credentials | None = None

    async def join(self, client: hal.Client, place: Path, address: TcpAddress) -> None:
        """As `hal agent --join` does."""
        token = await asyncio.to_thread(client.call, joining_calls.create_token(node=self.name))
        identity = NodeIdentity(place / self.name)
        await join_any(self.runtime, identity, self.name, read_join_token(token.token), [address])
        self.credentials = identity.credentials

    async def run(self, address: Address) -> None:
        """Until the controller goes."""
        connection, welcome = await self.greet(address)
        beating = asyncio.ensure_future(self.beat(connection, welcome.heartbeat_ms))
        while (frame := await connection.receive()) is not None:
            if isinstance(frame, Start):
                for start in frame.steps:
                    self.begin(connection, start.step)
        beating.cancel()
        raise UnreachableError(f"the controller let {self.name} go: {connection.close_reason}")

    async def greet(self, address: Address) -> tuple[Connection, Welcome]:
        """Dial and say hello, as agents do: again and again while nobody accepts.

        Raises:
            UnreachableError: `DIALS` times.
        """
        hello = Hello(
            role=Role.AGENT,
            versions=SPOKEN,
            name=self.name,
            boot_id="bench",
            pid=1,
            capacity={"cpu": 1_000, "memory": 4 << 30, "sim": 1},
            features=(GATES, JOB_GATES),
        )
        for _ in range(DIALS):
            try:
                connection = await self.runtime.connect(address, credentials=self.credentials)
                await connection.send(hello)
                welcome = await connection.receive(60_000)
            except (UnreachableError, TimedOutError):
                welcome = None
            if isinstance(welcome, Welcome):
                return connection, welcome
            self.refusals += 1
            await self.runtime.sleep(self.runtime.random().randrange(100, 1_000))
        raise UnreachableError(f"{self.name} was not let in, {DIALS} times")

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
            self.ended += 1

    async def beat(self, connection: Connection, heartbeat_ms: int) -> None:
        await self.runtime.sleep(self.runtime.random().randrange(heartbeat_ms))
        while not connection.closed:
            connection.send_nowait(Heartbeat(stamp_boot_ms=self.runtime.boot_ms()))
            await self.runtime.sleep(heartbeat_ms)


async def join_all(nodes: list[Node], client: hal.Client, place: Path, address: TcpAddress) -> None:
    """A few at a time."""
    begin = time.perf_counter()
    left = iter(nodes)

    async def some() -> None:
        for node in left:
            await node.join(client, place, address)

    await asyncio.gather(*(some() for _ in range(JOINING)))
    say("many-agents-joins", len(nodes) / (time.perf_counter() - begin), "joins/s", agents=AGENTS)


async def follow(home: Path, counted: list[int]) -> None:
    """A plane's reader: counts ended attempts."""
    async with await hal.aconnect(home=home) as client:
        await client.call(feed_calls.register_reader("bench", feeds=("attempts",), begin="oldest"))
        async for _ in client.attempts(follow=True, reader="bench"):
            counted[0] += 1


async def advise(home: Path, nodes: list[Node]) -> None:
    """A plane's advice: all prices, once a second."""
    async with await hal.aconnect(home=home) as client:
        for turn in itertools.count():
            prices = {node.name: float(turn + number) for number, node in enumerate(nodes)}
            await client.put_advice("price", prices, space="nodes", expires_in="30s")
            await asyncio.sleep(1.0)


async def drive(home: Path, wire: TcpAddress | None, *, plane: bool) -> None:
    """Join all, submit, measure.

    Args:
        wire: where the controller listens for agents of other machines; None: they dial its Unix socket.
        plane: one follows and advises, and a tenth of the starts has a gate.
    """
    log = LogFile(home / "bench.log")
    runtime = RealRuntime("bench", Home(home), open_log(log, "bench"), seed=1)
    address: Address = wire or UnixAddress(Home(home).wire_socket())
    over = "tls" if wire else "unix"
    nodes = [Node(runtime, number) for number in range(AGENTS)]
    if wire is not None:
        with hal.connect(home=home) as client:
            await join_all(nodes, client, home / "identities", wire)
    begin = time.perf_counter()
    serving = [asyncio.ensure_future(node.run(address)) for node in nodes]
    helping: list[asyncio.Future[None]] = []
    failed = asyncio.ensure_future(asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED))
    controller = pid_of(home, "controller")
    with hal.connect(home=home) as client:
        while sum(node.state == "up" for node in await asyncio.to_thread(client.nodes)) < AGENTS:
            assert not failed.done(), next(task.exception() for task in serving if task.done())
            await runtime.sleep(200)
        again = sum(node.refusals for node in nodes)
        say("many-agents-all-up", time.perf_counter() - begin, "s", agents=AGENTS, over=over, dials_in_vain=again)
        tasks = int(AGENTS / STEP_S * (WARM_S + MEASURED_S) * 2)
        request = {"cpu": 1, "memory": "1GiB", "sim": 1}
        specs: list[dict[str, object]] = [{"command": ["true"], "array": tasks, "request": request}]
        counted = [0]
        if plane:
            specs[0]["array"] = tasks * 9 // 10
            # Of a higher priority and with a limit: a tenth of what runs at any time has the gate.
            array = {"count": tasks // 10, "max_running": AGENTS // 10}
            gated = {"gates": [{"name": "open"}], "priority": 1}
            specs.append({"command": ["true"], "array": array, "request": request, **gated})
            helping += [asyncio.ensure_future(follow(home, counted)), asyncio.ensure_future(advise(home, nodes))]
        jobs = await asyncio.to_thread(client.submit, specs)
        await runtime.sleep(int(WARM_S * 1000))
        used, begun, begin = cpu_s(controller), sum(node.starts for node in nodes), time.perf_counter()
        await runtime.sleep(int(MEASURED_S * 1000))
        spent_s = time.perf_counter() - begin
        cores = (cpu_s(controller) - used) / spent_s
        rate = (sum(node.starts for node in nodes) - begun) / spent_s
        say("many-agents-starts", rate, "starts/s", 200 * 0.95, agents=AGENTS, over=over)
        if plane:
            assert not any(task.done() for task in helping), next(task.exception() for task in helping if task.done())
            more = {"over": over, "followed": counted[0], "ended": sum(node.ended for node in nodes)}
            say("many-agents-plane-controller-cpu", cores, "cores", 0.5, higher=False, **more)
        else:
            say("many-agents-controller-cpu", cores, "cores", 1, higher=False, over=over)
        memory_mib = rss_bytes(controller) / (1 << 20)
        say("many-agents-controller-memory", memory_mib, "MiB", 1_024, higher=False, over=over)
        for job in jobs:
            await asyncio.to_thread(job.cancel)
    for task in (*serving, *helping):
        task.cancel()
    await asyncio.gather(*serving, *helping, return_exceptions=True)
    await runtime.close()


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * AGENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    plane = "--plane" in sys.argv[1:]
    gate = "[gates.open]\n" if plane else ""
    if "--unix" in sys.argv[1:]:
        with private_hal("--cpus", "1", config=gate) as home:
            uvloop.run(drive(home, None, plane=plane))
        return 0
    port = free_port()
    with private_hal("--cpus", "1", config=f'{gate}[server]\nwire = "127.0.0.1:{port}"\n') as home:
        uvloop.run(drive(home, TcpAddress("127.0.0.1", port), plane=plane))
    return 0


if __name__ == "__main__":
    sys.exit(main())
