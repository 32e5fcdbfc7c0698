"""How long `GET /v1/topology` takes on 10,000 nodes in five levels with 5,000 running jobs, and how long it blocks the
loop; and the same request where no topology is declared.

A real controller with REST in this process, whose plane and engine are given the nodes directly; the jobs are submitted
and started, and no agent runs them. Another process asks over the private socket, less than once a second, so that no
answer is a kept one. Meanwhile a task on the loop runs in each of its turns and measures the longest.
Prints JSON lines: `python benchmarks/topology.py [--nodes 10000] [--jobs 5000]`.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import multiprocessing
import socket
import statistics
import sys
import tempfile
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from _private_hal import say
from hal.core.engine.events import NodesChanged, NodeSpec
from hal.core.model.topology.files import topology_from_text
from hal.core.model.topology.tree import Topology
from hal.planes.tasks import TaskPlane
from hal.store import NodeRow
from wants import Turns

TARGET_MS: Final = 500.0
TARGET_TURN_MS: Final = 5.0
ROUNDS: Final = 7
KEPT_S: Final = 1.2
WIDTHS: Final = (4_000, 1_000, 200, 40, 20)
"""Nodes of a domain by level: regions, zones, rows, racks, switches."""


def asker(path: str, pipe: Connection) -> None:
    """Ask whenever told to; send back how long the answer took, in seconds, and its length."""
    connection = http.client.HTTPConnection("hal", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    while pipe.recv():
        began = time.perf_counter()
        connection.request("GET", "/v1/topology")
        text = connection.getresponse().read()
        pipe.send((time.perf_counter() - began, len(text)))


def site(nodes: int) -> Topology:
    """Where so many nodes are."""
    lines = ['levels = ["region", "zone", "row", "rack", "switch"]', "[nodes]"]
    width = WIDTHS[-1]
    for first in range(0, nodes, width):
        path = "/".join(f"{letter}{first // count}" for letter, count in zip("abcde", WIDTHS, strict=True))
        lines.append(f'"n[{first}-{min(first + width, nodes) - 1}]" = "{path}"')
    return topology_from_text("\n".join(lines), "site.toml")


async def measure(nodes: int, jobs: int) -> None:
    """Fill a controller and ask it."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from hal.daemons.controller.config import Config
    from tests.daemons.controller.running import running

    began = time.perf_counter()
    topology = site(nodes)
    say("topology-file", (time.perf_counter() - began) * 1e3, "ms", note=f"to read a file of {nodes:,} nodes")
    for name, config in (("topology", Config(topology=topology)), ("topology-none", Config())):
        with tempfile.TemporaryDirectory() as directory:
            async with running(Path(directory) / "home", config) as hal:
                capacity = {"cpu": 64_000, "memory": 256 << 30}
                table = hal.controller._plane._table
                for number in range(nodes):
                    table.nodes[f"n{number}"] = NodeRow(f"n{number}", capacity)
                specs = tuple(NodeSpec(node, capacity) for node in table.nodes)
                hal.controller._engine.feed((NodesChanged(specs),))
                for first in range(0, jobs, 500):
                    some = min(500, jobs - first)
                    await hal.submit(*({"command": ["x"], "request": {"cpu": 8}, "nodes": 4} for _ in range(some)))
                await hal.until(partial(_all_run, hal.controller._plane, jobs))
                ours, its = multiprocessing.Pipe()
                path = str(hal.runtime.paths.api_socket())
                process = multiprocessing.get_context("spawn").Process(target=asker, args=(path, its), daemon=True)
                process.start()
                turns = Turns()
                watching = asyncio.ensure_future(turns.watch())
                taken, longest, computed, turn = [], [], [], []
                for number in range(ROUNDS + 1):
                    await asyncio.sleep(KEPT_S)
                    turns.take()
                    before = time.thread_time()
                    ours.send(True)
                    seconds, size = await asyncio.to_thread(ours.recv)
                    spent = time.thread_time() - before
                    if number:
                        computed.append(spent * 1e3)
                        by_clock, by_thread = turns.take()
                        taken.append(seconds * 1e3)
                        longest.append(by_clock * 1e3)
                        turn.append(by_thread * 1e3)
                watching.cancel()
                ours.send(False)
                process.join()
        note = f"{nodes:,} nodes, {jobs:,} jobs, {size:,} bytes; longest {max(taken):.1f} ms"
        say(name, statistics.median(taken), "ms", TARGET_MS, higher=False, note=note,
            cpu_ms=round(statistics.median(computed), 1))  # fmt: skip
        say(f"{name}-turn", statistics.median(longest), "ms", TARGET_TURN_MS, higher=False,
            note=f"longest turn of the loop during an answer; of all {max(longest):.1f} ms",
            cpu_ms=round(statistics.median(turn), 1))  # fmt: skip


def _all_run(plane: TaskPlane, jobs: int) -> bool:
    return len(plane.running_ids()) == jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=5_000)
    asked = parser.parse_args()
    asyncio.run(measure(asked.nodes, asked.jobs))


if __name__ == "__main__":
    main()
