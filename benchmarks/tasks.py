"""An array of short processes on two cpus, beside its peers in the same run: HyperQueue and `xargs -P2`.

HAL captures the output of each task, keeps its usage and makes its end durable. HyperQueue runs its real server and
worker through its own LocalCluster, without writing outputs (`pip install hyperqueue`; without it its line
is missing). xargs is the least that starting so many processes can cost on this machine at this moment. The three take
turns.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import tempfile
import time

import hal
from _private_hal import private_hal, say, xargs

TASKS = 10_000
PEER_TASKS = 2_500
ROUNDS = 3


def by_hal(client: hal.Client) -> float:
    begin = time.perf_counter()
    client.submit(["/bin/true"], array=TASKS).wait()
    return TASKS / (time.perf_counter() - begin)


def by_hyperqueue() -> float:
    """Tasks a second; its server writes its journal nowhere, its tasks no output."""
    from hyperqueue import Job
    from hyperqueue.cluster import LocalCluster, WorkerConfig

    with tempfile.TemporaryDirectory() as directory, LocalCluster(directory) as cluster:
        cluster.start_worker(WorkerConfig(cores=2))
        client = cluster.client()
        job = Job()
        for _ in range(PEER_TASKS):
            job.program(["/bin/true"], stdout=None, stderr=None)
        begin = time.perf_counter()
        client.wait_for_jobs([client.submit(job)])
        return PEER_TASKS / (time.perf_counter() - begin)


def main() -> int:
    has_hyperqueue = importlib.util.find_spec("hyperqueue") is not None
    ours: list[float] = []
    spawned: list[float] = []
    theirs: list[float] = []
    with private_hal("--cpus", "2") as home, hal.connect(home=home) as client:
        client.submit(["/bin/true"], array=100).wait()
        for _ in range(ROUNDS):
            spawned.append(xargs(PEER_TASKS))
            ours.append(by_hal(client))
            if has_hyperqueue:
                theirs.append(by_hyperqueue())
    rate, least = statistics.median(ours), statistics.median(spawned)
    say("array-10000-true", rate, "tasks/s", 1_200, best=round(max(ours), 1))
    say("array-10000-true-by-xargs", rate / least, "ratio", 0.6, xargs=round(least, 1))
    if theirs:
        peer = statistics.median(theirs)
        say("array-10000-true-by-hyperqueue", rate / peer, "ratio", 1, hyperqueue=round(peer, 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
