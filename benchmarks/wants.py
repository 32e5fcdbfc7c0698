"""How long `GET /v1/wants` takes with 1,000,000 waiting jobs in 5,000 classes, and how long it blocks the loop: after a
submission, which changes one class; after an event of a node, which changes what every class is short of; with arrays.

A real controller with REST in this process; its engine is given the jobs directly, on nodes that hold nothing of them.
Another process asks over the private socket; before each question something changes, so that no answer is a kept one.
Meanwhile a task on the loop runs in each of its turns and measures the longest.
Prints JSON lines: `python benchmarks/wants.py [--jobs 1000000]`.
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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np

from _private_hal import say
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.events import JobsSubmitted, NodesChanged, NodeSpec, submit_rows

TARGET_MS: Final = 20.0
TARGET_TURN_MS: Final = 5.0
CLASSES: Final = 5_000
USERS: Final = 200
NODES: Final = 1_000
BLOCK: Final = 50_000
ROUNDS: Final = 15


def asker(path: str, pipe: Connection) -> None:
    """Ask whenever told to; send back how long the answer took, in seconds, and its length."""
    connection = http.client.HTTPConnection("hal", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    while pipe.recv():
        began = time.perf_counter()
        connection.request("GET", "/v1/wants")
        text = connection.getresponse().read()
        pipe.send((time.perf_counter() - began, len(text), text.count(b'"fits_ever"')))


class Turns:
    """The longest turn of the loop, by the clock and by what this thread has computed in it."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.computed_s = 0.0

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            before, computed = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.perf_counter() - before)
            self.computed_s = max(self.computed_s, time.thread_time() - computed)

    def take(self) -> tuple[float, float]:
        """The longest of both since they were last asked for, in seconds."""
        taken = self.longest_s, self.computed_s
        self.longest_s = self.computed_s = 0.0
        return taken


def block(first: int, count: int, tasks: int, classes: tuple[ClassSpec, ...], owners: tuple[OwnerSpec, ...]) -> object:
    """Jobs of all classes and owners."""
    rows = submit_rows(count)
    rows["job"] = np.arange(first, first + count)
    rows["class_index"] = rows["job"] % len(classes)
    rows["owner_index"] = rows["class_index"] % len(owners)
    rows["walltime_ms"] = 3_600_000
    rows["tasks"] = tasks
    return JobsSubmitted(rows, classes, owners)


async def measure(jobs: int) -> None:
    """Fill a controller and ask it."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.daemons.controller.running import running

    classes = tuple(ClassSpec({"cpu": 2_000 + 10 * n, "memory": (1 + n % 16) << 30}) for n in range(CLASSES))
    owners = tuple(OwnerSpec("default", f"a{n % 20}", f"u{n}") for n in range(USERS))
    with tempfile.TemporaryDirectory() as directory:
        async with running(Path(directory) / "home") as hal:
            engine = hal.controller._engine
            engine.feed((NodesChanged(tuple(NodeSpec(f"n{n}", {"cpu": 1_000}) for n in range(NODES))),))
            for first in range(1, jobs + 1, BLOCK):
                engine.feed((block(first, min(BLOCK, jobs + 1 - first), 1, classes, owners),))
            ours, its = multiprocessing.Pipe()
            path = str(hal.runtime.paths.api_socket())
            process = multiprocessing.get_context("spawn").Process(target=asker, args=(path, its), daemon=True)
            process.start()
            turns = Turns()
            watching = asyncio.ensure_future(turns.watch())
            for name, tasks in (("wants", 1), ("wants-all-changed", 1), ("wants-with-arrays", 3)):
                taken, longest, computed, turn = [], [], [], []
                for number in range(ROUNDS + 2):
                    if name == "wants-all-changed":
                        engine.feed((NodesChanged((NodeSpec("n0", {"cpu": 1_000, "memory": 1 + number}),)),))
                    else:
                        engine.feed((block(10**9 * tasks + number, 1, tasks, classes, owners),))
                    await asyncio.sleep(0.2)
                    turns.take()
                    before = time.thread_time()
                    ours.send(True)
                    seconds, size, found = await asyncio.to_thread(ours.recv)
                    spent = time.thread_time() - before
                    assert found == CLASSES, found
                    if number >= 2:
                        taken.append(seconds * 1e3)
                        computed.append(spent * 1e3)
                        by_clock, by_thread = turns.take()
                        longest.append(by_clock * 1e3)
                        turn.append(by_thread * 1e3)
                note = f"{jobs:,} jobs in {CLASSES:,} classes, {size:,} bytes; longest {max(taken):.1f} ms"
                say(name, statistics.median(taken), "ms", TARGET_MS, higher=False, note=note,
                    cpu_ms=round(statistics.median(computed), 1))  # fmt: skip
                say(f"{name}-turn", statistics.median(longest), "ms", TARGET_TURN_MS, higher=False,
                    note=f"longest turn of the loop during an answer; of all {max(longest):.1f} ms",
                    cpu_ms=round(statistics.median(turn), 1))  # fmt: skip
            watching.cancel()
            ours.send(False)
            process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    asyncio.run(measure(parser.parse_args().jobs))


if __name__ == "__main__":
    main()
