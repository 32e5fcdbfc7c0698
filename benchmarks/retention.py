"""Retention beside work: how many old jobs go in a minute, and what commits take meanwhile, beside 200 starts a second.

A real controller in this process, on a store in a file that holds many old jobs, with one node that answers in this
process, too. First the work alone, then the same work while the old jobs are removed: marked, swept, and their outputs
deleted at the node. A commit is measured as the control loop waits for it, what it waits for the writer included.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from _private_hal import say
from hal.core.model import JobSpec, check_spec
from hal.daemons.controller.config import Config
from hal.daemons.controller.controller import Controller
from hal.daemons.controller.cycle import retention
from hal.daemons.controller.cycle.committer import Committer
from hal.planes.tasks import Submitter
from hal.runtime.home import Home
from hal.runtime.interface import Connection, UnixAddress
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.store import Committed, Kept, Operation, Retention, Store
from hal.wire.agree import FORGET, SPOKEN
from hal.wire.frames.agent_keeper import (
    ExitCause,
    Exits,
    Forget,
    Forgotten,
    Heartbeat,
    Start,
    Started,
    StepExit,
    StepStarted,
    Usage,
)
from hal.wire.frames.hello import Hello, Role
from store import Bench, distinct, ends, starts, submission

OLD_JOBS: Final = 40_000
A_GROUP: Final = 2_000
ALONE_S: Final = 15.0
WARM_S: Final = 3.0
EVERY_S: Final = 0.1
A_TURN: Final = 20
"""Jobs submitted every `EVERY_S`: 200 a second."""
REMOVED_PER_MINUTE: Final = 100_000
ADDED_MS: Final = 20.0


class Commits:
    """How long each commit took, in ms."""

    def __init__(self) -> None:
        self.took: list[float] = []
        commit = Committer.commit

        async def timed(committer: Committer, operations: list[Operation], now_ms: int) -> Committed:
            began = time.perf_counter()
            try:
                return await commit(committer, operations, now_ms)
            finally:
                self.took.append((time.perf_counter() - began) * 1000)

        Committer.commit = timed  # type: ignore[method-assign]

    def taken(self) -> list[float]:
        """Those since the last call, ascending."""
        took, self.took = sorted(self.took), []
        return took


class Node:
    """Its steps end at once, and it has nothing to delete."""

    def __init__(self, runtime: RealRuntime) -> None:
        self._runtime = runtime
        self.starts = 0

    async def run(self, address: UnixAddress) -> None:
        """Until the controller goes."""
        connection = await self._runtime.connect(address)
        await connection.send(
            Hello(
                role=Role.AGENT,
                versions=SPOKEN,
                features=(FORGET,),
                name="n1",
                boot_id="bench",
                pid=1,
                capacity={"cpu": 64_000, "memory": 64 << 30},
            )
        )
        beating = asyncio.ensure_future(self._beat(connection))
        while (frame := await connection.receive()) is not None:
            if isinstance(frame, Start):
                self._end(connection, frame)
            elif isinstance(frame, Forget):
                connection.send_nowait(Forgotten(request=frame.request))
        beating.cancel()

    def _end(self, connection: Connection, frame: Start) -> None:
        now_ms = self._runtime.now_ms()
        steps = [start.step for start in frame.steps]
        self.starts += len(steps)
        connection.send_nowait(Started(steps=tuple(StepStarted(step, 1, now_ms) for step in steps)))
        usage = Usage(1, 1, 1 << 20)
        exits = tuple(StepExit(step, ExitCause.EXITED, 0, 0, now_ms, now_ms, usage, "") for step in steps)
        connection.send_nowait(Exits(exits=exits))

    async def _beat(self, connection: Connection) -> None:
        while not connection.closed:
            connection.send_nowait(Heartbeat(stamp_boot_ms=self._runtime.boot_ms()))
            await self._runtime.sleep(1_000)


def fill(path: Path) -> None:
    """Old jobs, each with a spec and an attempt of its own."""
    bench = Bench(path)
    for first in range(1, OLD_JOBS + 1, A_GROUP):
        ids = range(first, first + A_GROUP)
        specs = {n: distinct(n) for n in ids}
        for operations in (submission(ids, specs.__getitem__), starts(ids), ends(ids)):
            bench.commit(operations)
    bench.store.close()


@asynccontextmanager
async def running(root: Path) -> AsyncIterator[tuple[Controller, RealRuntime, Node]]:
    """A controller and its node."""
    home = Home(root)
    home.create()
    fill(home.database)
    file = LogFile(home.log_file("controller"))
    runtime = RealRuntime("controller", home, open_log(file, "controller"))
    controller = Controller(runtime, Config(), lambda: Store.open(home.database))
    address = UnixAddress(home.wire_socket())
    await controller.start(address)
    loop = asyncio.ensure_future(controller.run())
    node = Node(runtime)
    serving = asyncio.ensure_future(node.run(address))
    try:
        yield controller, runtime, node
    finally:
        controller.stop()
        await loop
        await controller.close()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await serving
        await runtime.close()
        file.close()
        home.drop_socket_dir()


async def work(controller: Controller) -> None:
    """Submit jobs at a steady rate until cancelled."""
    spec = check_spec(JobSpec(command=("true",)))
    due = time.perf_counter()
    while True:
        await controller.api.jobs.submit([spec] * A_TURN, Submitter("bench"))
        due += EVERY_S
        await asyncio.sleep(max(due - time.perf_counter(), 0))


async def measure(root: Path) -> bool:
    """Both phases; whether the targets hold."""
    commits = Commits()
    async with running(root) as (controller, runtime, node):
        working = asyncio.ensure_future(work(controller))
        await asyncio.sleep(WARM_S)
        commits.taken()
        before, began = node.starts, time.perf_counter()
        await asyncio.sleep(ALONE_S)
        alone, rate = commits.taken(), (node.starts - before) / (time.perf_counter() - began)
        kept = Kept(jobs_ms=3_600_000)
        keeping = retention.Keeping(
            runtime, controller._clock, controller._committer, controller.api.jobs.removal, Retention(jobs=kept)
        )
        before, began = node.starts, time.perf_counter()
        await keeping.expire()
        took_s = time.perf_counter() - began
        beside, rate_beside = commits.taken(), (node.starts - before) / took_s
        left = len(controller._committer.store.oldest_ended("default", retention.Removed.JOB, limit=1))
        assert controller._committer.store.job(1) is None
        assert left <= 1
        working.cancel()
    removed = OLD_JOBS * 60 / took_s
    say("retention-removed-per-minute", removed, "jobs/min", REMOVED_PER_MINUTE, starts_per_s=round(rate_beside))
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        alone_ms, beside_ms = (took[min(int(share * len(took)), len(took) - 1)] for took in (alone, beside))
        target = None if name == "p50" else ADDED_MS
        say(
            f"retention-commit-{name}-added",
            beside_ms - alone_ms,
            "ms",
            target,
            higher=False,
            alone_ms=round(alone_ms, 2),
            beside_ms=round(beside_ms, 2),
            commits=len(beside),
            starts_per_s=round(rate),
        )
    return removed >= REMOVED_PER_MINUTE


def main() -> int:
    """Measure in a temporary home, with the kernels that are compiled already."""
    if "NUMBA_CACHE_DIR" not in os.environ and "HAL_CACHE" in os.environ:
        environ = {**os.environ, "NUMBA_CACHE_DIR": os.environ["HAL_CACHE"]}
        os.execve(sys.executable, [sys.executable, *sys.argv], environ)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", help="on whose disk; default: where temporary files are")
    with tempfile.TemporaryDirectory(prefix="hal-b-", dir=parser.parse_args().directory) as root:
        return 0 if asyncio.run(measure(Path(root))) else 1


if __name__ == "__main__":
    sys.exit(main())
