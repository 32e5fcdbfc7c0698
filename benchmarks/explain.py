"""How long `why` takes with 100,000 waiting jobs: the engine's answer, the changes tried on a copy, and over REST.

1,000 nodes, 80 classes, 200 accounts, all jobs with walltimes of their own; medians over jobs drawn by a seed. The REST
figure is of a real controller with its store and one scripted node in this process, asked over its Unix socket.
Prints JSON lines: `python benchmarks/explain.py [--jobs 100000] [--nodes 1000] [--asked 60]`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hal.core.engine import State, new_state
from hal.core.engine.classes import ClassSpec, OwnerSpec
from hal.core.engine.config import EngineConfig
from hal.core.engine.events import JobsSubmitted, NodesChanged, NodeSpec, submit_rows
from hal.core.engine.plan import Plan
from hal.core.engine.scheduler import Scheduler
from hal.core.engine.views import pending
from hal.core.engine.why.explain import explain
from hal.core.engine.why.probing import Prober
from hal.core.model.policy import Policy

TARGET_MS = 50.0


class Nobody:
    """A sink that forgets."""

    def accept(self, plan: Plan) -> None:
        """Nothing."""


def full(jobs: int, nodes: int) -> State:
    """A cluster on which nothing more starts, with what is left of `jobs` waiting."""
    state = new_state(EngineConfig(order="priority", policy=Policy()))
    scheduler = Scheduler(state, Nobody())
    capacity = {"cpu": 32_000, "gpu": 8_000, "memory": 1 << 38}
    scheduler.feed(NodesChanged(tuple(NodeSpec(f"n{k}", capacity) for k in range(nodes))))
    random = np.random.default_rng(1)
    classes = tuple(
        ClassSpec({"cpu": 1_000 * cpu, "gpu": 1_000 * gpu}, gang)
        for cpu in (1, 2, 4, 8)
        for gpu in (0, 1, 2, 4, 8)
        for gang in (1, 2, 4, 8)
    )
    owners = tuple(OwnerSpec("default", f"a{k}", f"u{k}") for k in range(200))
    rows = submit_rows(jobs)
    rows["job"] = np.arange(1, jobs + 1)
    rows["class_index"] = random.integers(0, len(classes), jobs)
    rows["owner_index"] = random.integers(0, len(owners), jobs)
    rows["walltime_ms"] = 60_000 + random.permutation(jobs) * 1_000
    scheduler.feed(JobsSubmitted(rows, classes, owners))
    while scheduler.run(0).more:
        pass
    return state


def timed(ask: Callable[[int], object], jobs: list[int]) -> list[float]:
    """Milliseconds of each."""
    taken = []
    for job in jobs:
        began = time.perf_counter()
        ask(job)
        taken.append((time.perf_counter() - began) * 1e3)
    return taken


def say(bench: str, taken: list[float], note: str) -> None:
    """One JSON line: the median, beside the 95th percentile and the longest."""
    print(
        json.dumps(
            {
                "bench": bench, "value": round(statistics.median(taken), 2), "unit": "ms", "target": TARGET_MS,
                "better": "lower", "p95": round(float(np.percentile(taken, 95)), 2), "longest": round(max(taken), 2),
                "asked": len(taken), "load": round(os.getloadavg()[0], 2), "note": note,
            }
        ),
        flush=True,
    )  # fmt: skip


async def over_rest(jobs: int, asked: int) -> list[float]:
    """`GET /v1/jobs/N/why` on a controller with that many waiting jobs, three queues and a node that is full."""
    from hal.daemons.controller.config import read_config

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.daemons.controller.running import running

    config = read_config('[queues.default]\n[queues.short]\nmax_walltime = "30m"\n[queues.long]\n')
    with tempfile.TemporaryDirectory() as directory:
        async with running(Path(directory) / "home", config) as hal:
            agent = await hal.agent(cpu_milli=64_000)
            ids: list[str] = []
            block = 20_000
            for first in range(0, jobs, block):
                specs = [
                    {"command": ["sleep"], "request": {"cpu": 1 + n % 40}, "user": f"u{n % 200}",
                     "walltime": f"{600 + n}s"}
                    for n in range(first, min(first + block, jobs))
                ]  # fmt: skip
                ids += await hal.submit(*specs)
            await agent.until(lambda a: len(a.running) > 0)
            draw = np.random.default_rng(2).choice(len(ids) // 2, asked) + len(ids) // 2
            taken = []
            for place in draw.tolist():
                began = time.perf_counter()
                answer = await hal.http.get(f"/v1/jobs/{ids[place]}/why")
                taken.append((time.perf_counter() - began) * 1e3)
                assert answer.status_code == 200, answer.text
            return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--asked", type=int, default=60)
    parser.add_argument("--no-rest", action="store_true")
    asked = parser.parse_args()
    state = full(asked.jobs, asked.nodes)
    waiting = pending(state)["job"]
    jobs = np.random.default_rng(3).choice(waiting, asked.asked).tolist()
    note = f"{waiting.shape[0]:,} wait, {state.running_attempts:,} run on {asked.nodes:,} nodes"
    prober = Prober()
    explain(state, jobs[0], 0)
    prober.look(state, jobs[0], 0)
    say("explain", timed(lambda job: explain(state, job, 0), jobs), note)
    say(
        "explain-outlook",
        timed(lambda job: prober.look(state, job, 0), jobs),
        f"{note}; up to 8 changes tried; so many buckets are not played forward",
    )
    if not asked.no_rest:
        del state, prober
        gc.collect()
        taken = asyncio.run(over_rest(asked.jobs, asked.asked))
        say(
            "explain-rest",
            taken,
            f"{asked.jobs:,} jobs, one node of 64 cpus; real controller and store; the first asked included",
        )


if __name__ == "__main__":
    main()
