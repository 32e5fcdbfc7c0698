"""The controller through REST, on real processes: submissions, one short job, an array of short tasks.

Starts a controller and one node of its own in a temporary HAL_HOME, prints one JSON line for each figure and ends them.
Run it on a quiet machine: `python benchmarks/controller.py [--cpus 2]`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import hal
from hal.runtime.home import Home

READY_S = 180.0
"""The kernels may have to be compiled first."""
SHORT_JOBS = 100
ARRAY = 1_000
BATCH, BATCHES = 100, 50
MANY = 10_000


@contextmanager
def running(cpus: int, controller: Sequence[str] = ("-m", "hal.daemons.controller")) -> Iterator[hal.Client]:
    """A controller and a node; ended afterwards.

    Args:
        controller: what Python runs as the controller.
    """
    with tempfile.TemporaryDirectory(prefix="hal-bench-") as root:
        home = Home(root)
        home.create()
        node = ["--node", "n1", "--cpu-milli", str(cpus * 1000), "--memory", str(4 << 30)]
        commands = [[*controller], ["-m", "hal.daemons.agent.keeper", *node]]
        processes = [
            subprocess.Popen(
                [sys.executable, *words, "--home", root],
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            for words in commands
        ]
        try:
            yield _ready(home)
        finally:
            processes[1].send_signal(signal.SIGUSR1)
            processes[1].wait(30)
            processes[0].terminate()
            processes[0].wait(30)
            home.drop_socket_dir()


def _ready(home: Home) -> hal.Client:
    limit = time.monotonic() + READY_S
    while True:
        try:
            client = hal.connect(home=home.root)
            if any(node.state == hal.NodeState.UP for node in client.nodes()):
                return client
        except hal.HALError:
            if time.monotonic() > limit:
                raise
        time.sleep(0.1)


def tell(name: str, **figures: object) -> None:
    """One JSON line."""
    print(json.dumps({"bench": name, **figures}), flush=True)


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpus", type=int, default=os.cpu_count() or 1)
    cpus = parser.parse_args().cpus
    with running(cpus) as client:
        client.submit(["true"]).wait()
        taken = []
        for _ in range(SHORT_JOBS):
            began = time.perf_counter()
            client.submit(["true"]).wait()
            taken.append((time.perf_counter() - began) * 1000)
        taken.sort()
        tell("submit-wait", p50_ms=round(statistics.median(taken), 1), p95_ms=round(taken[int(0.95 * len(taken))], 1))

        began = time.perf_counter()
        client.submit(["/bin/true"], array=ARRAY).wait()
        tell("array", tasks=ARRAY, cpus=cpus, tasks_per_s=round(ARRAY / (time.perf_counter() - began)))

        held = [hal.JobSpec(command=("true",), hold=True)]
        began = time.perf_counter()
        for _ in range(BATCHES):
            client.submit(held * BATCH)
        spent = time.perf_counter() - began
        tell("submit-batches", batch=BATCH, jobs_per_s=round(BATCH * BATCHES / spent))

        equal = [hal.JobSpec(command=("true",), hold=True)] * MANY
        began = time.perf_counter()
        client.submit(equal)
        tell("submit-many-equal", jobs=MANY, seconds=round(time.perf_counter() - began, 2))

        distinct = [hal.JobSpec(command=("echo", str(n)), hold=True) for n in range(MANY)]
        began = time.perf_counter()
        client.submit(distinct)
        tell("submit-many-distinct", jobs=MANY, seconds=round(time.perf_counter() - began, 2))


if __name__ == "__main__":
    main()
