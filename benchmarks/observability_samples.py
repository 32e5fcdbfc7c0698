"""A collector that keeps the samples of many nodes: what each second of it costs, in CPU, memory and bytes on disk.

Real telemetry over a real Unix socket, between two processes: this one is the nodes, the other the collector's
reception and samples part over a real database. Nodes send every 10 s, spread over the interval; `--speed` plays that
so many times as fast, and the cost is that of a second of nodes' time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from hal.core.model.samples_config import SamplesSection
from hal.daemons.collector.reception import WIRE_SOCKET, Reception
from hal.planes.observability.samples.part import Samples
from hal.runtime.home import Home
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.telemetry_sender import SeriesKey, TelemetrySender
from hal.wire.frames.telemetry import SeriesKind
from hal.wire.roles import Role

EVERY_S = 10.0


def runtime_of(root: Path, name: str) -> RealRuntime:
    """A process's runtime in a home of its own."""
    home = Home(root)
    home.create()
    return RealRuntime(name, home, open_log(LogFile(home.log_file(name)), name), seed=1)


class Ahead:
    """The runtime of the collector, whose wall clock runs as fast as the nodes'."""

    def __init__(self, runtime: RealRuntime, speed: float) -> None:
        self._runtime, self._speed = runtime, speed
        self._began_ms = runtime.now_ms()

    def __getattr__(self, name: str) -> object:
        return getattr(self._runtime, name)

    def now_ms(self) -> int:
        """Nodes' time."""
        return self._began_ms + round((self._runtime.now_ms() - self._began_ms) * self._speed)

    def monotonic_ms(self) -> int:
        """The same for durations."""
        return round(self._runtime.monotonic_ms() * self._speed)

    async def sleep(self, ms: int) -> None:
        """So long in nodes' time."""
        await self._runtime.sleep(max(1, round(ms / self._speed)) if ms else 0)


async def told(pipe: Pipe) -> None:
    """Wait until the other process has sent something."""
    there = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), there.set)
    await there.wait()
    asyncio.get_running_loop().remove_reader(pipe.fileno())


def collect(root: Path, speed: float, pipe: Pipe) -> None:
    """The collector's process."""

    async def main() -> None:
        runtime = runtime_of(root, "observability")
        ahead = Ahead(runtime, speed)
        reception = Reception(ahead)  # type: ignore[arg-type]
        samples = Samples(ahead, root, SamplesSection())  # type: ignore[arg-type]
        reception.received("values", samples.take)
        tasks = [runtime.spawn_task(reception.run(), "reception"), runtime.spawn_task(samples.run(), "samples")]
        pipe.send("ready")
        await told(pipe)
        began = time.process_time(), time.monotonic(), samples.health()["values"]
        pipe.recv()
        await told(pipe)
        pipe.recv()
        cpu_s, wall_s = time.process_time() - began[0], time.monotonic() - began[1]
        health = samples.health()
        asked = time.perf_counter()
        until_ms = ahead.now_ms()
        block = await samples.history("n0", until_ms - 3_600_000, until_ms, 0)
        asked_ms = (time.perf_counter() - asked) * 1000
        pipe.send(
            {
                "cpu_s": cpu_s,
                "wall_s": wall_s,
                "values": int(health["values"]) - int(began[2]),
                "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "disk_bytes": health["bytes"],
                "series": health["series"],
                "dropped": health["dropped_values"],
                "held": reception.health()["senders_held"],
                "late": health["late_values"],
                "query_ms": asked_ms,
                "query_points": int(block.values.size),
            }
        )
        for task in tasks:
            task.cancel()
        await samples.close()
        await runtime.close()

    asyncio.run(main())


def keys_of(attempts: int) -> list[SeriesKey]:
    """What a node with two GPUs and some running attempts sends."""
    keys = [SeriesKey("hal_node_cpu_seconds_total", SeriesKind.COUNTER, (("mode", f"m{n}"),)) for n in range(8)]
    keys += [SeriesKey(f"hal_node_gauge{n}", SeriesKind.GAUGE) for n in range(14)]
    for device in ("nvme0n1", "eth0"):
        keys += [SeriesKey(f"hal_node_d{n}_total", SeriesKind.COUNTER, (("device", device),)) for n in range(3)]
    for gpu in ("0", "1"):
        keys += [SeriesKey(f"hal_node_gpu{n}", SeriesKind.GAUGE, (("gpu", gpu),)) for n in range(6)]
    for attempt in range(attempts):
        keys += [SeriesKey(f"hal_attempt_{n}", SeriesKind.GAUGE, (("attempt", f"{attempt}.0.1.0"),)) for n in range(6)]
    return keys


async def send(root: Path, nodes: int, attempts: int, speed: float, seconds: float, pipe: Pipe) -> None:
    """The nodes' process."""
    runtime = runtime_of(root, "nodes")
    sockets = runtime.paths.socket_dir()
    keys = keys_of(attempts)
    began_ms = runtime.now_ms()
    senders = []
    for number in range(nodes):
        sender = TelemetrySender(runtime, Role.AGENT, f"n{number}")
        sender.dial((f"unix:{sockets / WIRE_SOCKET}",))
        runtime.spawn_task(sender.run(), f"n{number}")
        senders.append(sender)
    rng = random.Random(1)
    level = [rng.random() * 1e9 for _ in keys]

    async def play(sender: TelemetrySender) -> None:
        await asyncio.sleep(rng.random() * EVERY_S / speed)
        while True:
            for at in rng.sample(range(len(level)), len(level) // 3):
                level[at] += rng.randrange(1_000)
            now_ms = began_ms + round((runtime.now_ms() - began_ms) * speed)
            sender.values(now_ms, dict(zip(keys, level, strict=True)))
            await asyncio.sleep(EVERY_S / speed)

    playing = [asyncio.ensure_future(play(sender)) for sender in senders]
    await asyncio.sleep(2 * EVERY_S / speed + 2)
    pipe.send("begin")
    await asyncio.sleep(seconds)
    pipe.send("end")
    await told(pipe)
    for task in playing:
        task.cancel()
    await runtime.close()


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--attempts", type=int, default=5, help="running attempts of each node")
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=30.0, help="real seconds that are measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hal-bench-") as directory:
        os.environ["XDG_RUNTIME_DIR"] = directory
        root = Path(directory) / "home"
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=collect, args=(root, options.speed, there))
        process.start()
        here.recv()
        asyncio.run(send(root, options.nodes, options.attempts, options.speed, options.seconds, here))
        found = here.recv()
        process.join()
    nodes_s = found["wall_s"] * options.speed
    row = {
        "benchmark": "observability-samples",
        "nodes": options.nodes,
        "series": found["series"],
        "values_per_s": round(found["values"] / nodes_s),
        "cores": round(found["cpu_s"] / nodes_s, 4),
        "rss_mib": round(found["rss_mib"], 1),
        "disk_mib": round(found["disk_bytes"] / 2**20, 1),
        "dropped": found["dropped"],
        "held": found["held"],
        "late": found["late"],
        "query_ms": round(found["query_ms"], 2),
        "query_points": found["query_points"],
        "load": round(os.getloadavg()[0], 1),
    }
    sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
