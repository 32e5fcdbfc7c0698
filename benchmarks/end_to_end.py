"""HAL as a user meets it: real processes on this machine, from the Python client to /bin/true and back.

A private HAL with one node of two cpus. Beside the array of short tasks runs `xargs -P2`, the least that starting so
many processes can cost on this machine at this moment.
"""

from __future__ import annotations

import statistics
import sys
import time

import hal
from _private_hal import private_hal, say, xargs

ARRAY = 1_000
JOBS = 10_000
LATENCIES = 100
ROUNDS = 5


def latency(client: hal.Client) -> None:
    waits = []
    for _ in range(LATENCIES):
        begin = time.perf_counter()
        client.submit(["true"]).wait()
        waits.append((time.perf_counter() - begin) * 1000)
    waits.sort()
    say("submit-wait-p50", statistics.median(waits), "ms", 40, higher=False)
    say("submit-wait-p99", waits[int(len(waits) * 0.99) - 1], "ms", higher=False)


def starting(client: hal.Client) -> None:
    """From the call to the process, on an idle cluster: the keeper says when it spawned (in whole milliseconds)."""
    waits = []
    for _ in range(LATENCIES):
        begin_ms = time.time() * 1000
        job = client.submit(["true"])
        job.wait()
        waits.append((job.task().attempts[0].start_ms or 0) - begin_ms + 0.5)
    waits.sort()
    say("submit-start-p50", statistics.median(waits), "ms", 15, higher=False)
    say("submit-start-p99", waits[int(len(waits) * 0.99) - 1], "ms", 60, higher=False)


def array(client: hal.Client) -> None:
    rates, peers = [], []
    for _ in range(ROUNDS):
        peers.append(xargs(ARRAY))
        begin = time.perf_counter()
        client.submit(["/bin/true"], array=ARRAY).wait()
        rates.append(ARRAY / (time.perf_counter() - begin))
    rate, peer = statistics.median(rates), statistics.median(peers)
    say("array-1000-true", rate, "tasks/s", 400, best=round(max(rates), 1))
    say("array-1000-true-by-xargs", rate / peer, "ratio", xargs=round(peer, 1))


def one_call(client: hal.Client) -> None:
    times = []
    for round_ in range(3):
        specs = [
            {"command": ["true"], "request": {"cpu": 1}, "name": f"r{round_}-{n}", "hold": True} for n in range(JOBS)
        ]
        begin = time.perf_counter()
        jobs = client.submit(specs)
        times.append(time.perf_counter() - begin)
        assert len(jobs) == JOBS
    say("submit-10000-in-one-call", statistics.median(times), "s", 2, higher=False)


def main() -> int:
    with private_hal("--cpus", "2") as home, hal.connect(home=home) as client:
        for _ in range(10):
            client.submit(["true"]).wait()
        latency(client)
        starting(client)
        array(client)
        one_call(client)
    return 0


if __name__ == "__main__":
    sys.exit(main())
