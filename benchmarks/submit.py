"""Durable submission: batches of 100 single jobs through REST, each answered after it was flushed to the disk.

`by one`: one client, one batch after another. `by four`: four clients at once, as from four login shells. The Python
client's own work (checking and encoding specs) is in the figures; it shares the two cores with the controller, and with
PostgreSQL, a private server that flushes each commit.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.postgres_server import PostgresServer, programs

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


def measured(name: str, target: float, config: str = "") -> None:
    """The figures of one database."""
    alone: list[float] = []
    together: list[float] = []
    spent: list[float] = []
    with private_hal("--cpus", "2", config=config) as home, ProcessPoolExecutor(CLIENTS) as clients:
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
    say(f"submit-{name}-by-four", statistics.median(together), "jobs/s", target, best=round(max(together)))
    say(f"submit-{name}-by-one", statistics.median(alone), "jobs/s")
    say(f"submit-{name}-controller-cpu", statistics.median(spent), "ms", higher=False)


def main() -> int:
    measured("sqlite", 5_000)
    if programs() is None:
        print("PostgreSQL is not installed: its figures are missing", file=sys.stderr)
        return 0
    server = PostgresServer(fsync="on", full_page_writes="on", autovacuum="on", shared_buffers="128MB")
    try:
        measured("postgresql", 3_000, f'[store]\nurl = "{server.url(server.empty())}"\n')
    finally:
        server.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
