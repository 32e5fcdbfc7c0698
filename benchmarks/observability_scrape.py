"""Prometheus' scrapes of a controller with 1,000 agents and 200 starts a second: what they cost, how long they take.

The controller is a real process; the agents are those of `many_agents`, over its Unix socket. Scrapes come ten times a
second, so that what they cost stands out from what the controller needs without them, which is measured before and
after; the figure is what one each 15 s takes. Both formats: text, and protobuf messages with native histograms. Another
process asks for the version every millisecond: the longest answer is the longest turn of the loop, or a little more.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvloop

import hal
from _private_hal import cpu_s, pid_of, private_hal, say
from hal.runtime.home import Home
from hal.runtime.interface import UnixAddress
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.metrics.protobuf import PROTOBUF
from hal.runtime.metrics.text import TEXT
from hal.runtime.real_runtime import RealRuntime
from loop import probing
from many_agents import AGENTS, STEP_S, Node

WARM_S: Final = 10.0
WINDOW_S: Final = 15.0
EVERY_S: Final = 0.1
INTERVAL_S: Final = 15.0
"""Prometheus' usual interval."""


async def scrape(socket: Path, accept: str) -> tuple[float, int]:
    """Seconds, and bytes of the answer's body."""
    begin = time.perf_counter()
    reader, writer = await asyncio.open_unix_connection(str(socket), limit=1 << 24)
    writer.write(f"GET /v1/metrics HTTP/1.1\r\nHost: hal\r\nAccept: {accept}\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read(-1)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    return time.perf_counter() - begin, len(answer) - answer.index(b"\r\n\r\n") - 4


async def cores_without(controller: int) -> float:
    """What the controller needs by itself."""
    used, begin = cpu_s(controller), time.perf_counter()
    await asyncio.sleep(WINDOW_S)
    return (cpu_s(controller) - used) / (time.perf_counter() - begin)


async def measure(socket: Path, controller: int, name: str, accept: str, longest_ms: Callable[[], float]) -> None:
    longest_ms()
    before = await cores_without(controller)
    quiet_ms = longest_ms()
    used, begin = cpu_s(controller), time.perf_counter()
    taken: list[float] = []
    size = 0
    while time.perf_counter() - begin < WINDOW_S:
        due = begin + len(taken) * EVERY_S
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        spent, size = await scrape(socket, accept)
        taken.append(spent * 1e3)
    passed = time.perf_counter() - begin
    turn_ms = longest_ms()
    cores = (cpu_s(controller) - used) / passed
    least = (before + await cores_without(controller)) / 2
    each_s = (cores - least) * passed / len(taken)
    say(f"scrape-{name}-longest-turn", turn_ms, "ms", 100, higher=False, agents=AGENTS, without_ms=round(quiet_ms, 1))
    taken.sort()
    more = {"agents": AGENTS, "format": name, "bytes": size, "ms_of_cpu": round(each_s * 1e3, 2)}
    say(f"scrape-{name}-core-at-15s", each_s / INTERVAL_S * 100, "% of a core", 2, higher=False, **more)
    p50 = round(taken[len(taken) // 2], 2)
    say(f"scrape-{name}-p99", taken[int(len(taken) * 0.99)], "ms", 100, higher=False, agents=AGENTS, p50_ms=p50)


async def drive(home: Path) -> None:
    runtime = RealRuntime("bench", Home(home), open_log(LogFile(home / "bench.log"), "bench"), seed=1)
    nodes = [Node(runtime, number) for number in range(AGENTS)]
    serving = [asyncio.ensure_future(node.run(UnixAddress(Home(home).wire_socket()))) for node in nodes]
    controller = pid_of(home, "controller")
    with hal.connect(home=home) as client:
        while sum(node.state == "up" for node in await asyncio.to_thread(client.nodes)) < AGENTS:
            await runtime.sleep(200)
        tasks = int(AGENTS / STEP_S * (WARM_S + 8 * WINDOW_S))
        request = {"cpu": 1, "memory": "1GiB", "sim": 1}
        (job,) = await asyncio.to_thread(client.submit, [{"command": ["true"], "array": tasks, "request": request}])
        await runtime.sleep(int(WARM_S * 1000))
        with probing(home) as longest_ms:
            for name, accept in (("text", TEXT), ("protobuf", PROTOBUF)):
                await measure(Home(home).api_socket(), controller, name, accept, longest_ms)
        rate = sum(node.starts for node in nodes)
        assert rate > AGENTS, "nothing ran beside the scrapes"
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
