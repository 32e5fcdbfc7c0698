"""Durable submission: batches of 100 single jobs through REST, each answered after it was flushed to the disk.

`by one`: one client, one batch after another. `by four`: four clients at once, as from four login shells. The Python
client's own work (checking and encoding specs) is in the figures; it shares the two cores with the controller.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import hal
from _private_hal import cpu_s, pid_of, private_hal, say

BATCH = 100
BATCHES = 100
CLIENTS = 4
ROUNDS = 3


def submit(home: Path, batches: int) -> None:
    """So many batches, one after another."""
    with hal.connect(home=home) as client:
        for number in range(batches):
            specs = [{"command": ["true"], "name": f"{os.getpid()}-{number}-{n}", "hold": True} for n in range(BATCH)]
            assert len(client.submit(specs)) == BATCH


def main() -> int:
    alone: list[float] = []
    together: list[float] = []
    spent: list[float] = []
    with private_hal("--cpus", "2") as home, ProcessPoolExecutor(CLIENTS) as clients:
        list(clients.map(submit, [home] * CLIENTS, [1] * CLIENTS))
        controller = pid_of(home, "controller")
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            submit(home, BATCHES)
            alone.append(BATCH * BATCHES / (time.perf_counter() - begin))
            used, begin = cpu_s(controller), time.perf_counter()
            list(clients.map(submit, [home] * CLIENTS, [BATCHES] * CLIENTS))
            together.append(CLIENTS * BATCH * BATCHES / (time.perf_counter() - begin))
            spent.append((cpu_s(controller) - used) * 1000 / (CLIENTS * BATCHES))
    say("submit-batches-by-four", statistics.median(together), "jobs/s", 5_000, best=round(max(together)))
    say("submit-batches-by-one", statistics.median(alone), "jobs/s")
    say("submit-batch-controller-cpu", statistics.median(spent), "ms", higher=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
