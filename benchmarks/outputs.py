"""How long it takes to read the outputs of all tasks of an array in one call, and what the controller's loop pays.

A real HAL; the array has run, and each task has written a line. The reader is the Python client, in another process.
Also: reading one task at a time, the tasks as they end, and the longest turn of the event loop meanwhile, as others see
it: the time that a health request takes beside the read.
Prints JSON lines: `python benchmarks/outputs.py [--tasks 10000] [--nodes 2]`.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time

from _private_hal import private_hal, say
from hal import connect
from hal.client.job import Job
from hal.client.sync_client import Client

TARGET_S = 2.0
"""For 10,000 tasks."""
SINGLE = 200
"""Tasks that are read one at a time."""


def read_all(job: Job, tasks: int) -> float:
    """Seconds to read the outputs of all tasks, each of which is as it should be."""
    began = time.perf_counter()
    found = list(job.outputs())
    took_s = time.perf_counter() - began
    assert [one.data for one in found] == [f"result {task}\n".encode() for task in range(tasks)], "outputs are wrong"
    return took_s


class Beside:
    """Asks for the health again and again, on a connection of its own; knows the slowest answer."""

    def __init__(self) -> None:
        self.slowest_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        with connect() as client:
            client.health()
            while not self._over.is_set():
                began = time.perf_counter()
                client.health()
                self.slowest_s = max(self.slowest_s, time.perf_counter() - began)
                self._over.wait(0.005)


def measure(client: Client, tasks: int) -> None:
    """Run the array, and read it."""
    began = time.perf_counter()
    job = client.submit("echo result $HAL_TASK", array=tasks, cpus=0.05, name="sweep")
    seen = sum(1 for _ in job.tasks_as_ended(timeout=600))
    assert seen == tasks, seen
    print(f"{tasks:,} tasks ran in {time.perf_counter() - began:.1f} s", file=sys.stderr)
    took_s = min(read_all(job, tasks) for _ in range(3))
    say("outputs-in-one-call", took_s, "s", TARGET_S * tasks / 10_000, higher=False, tasks=tasks)
    began = time.perf_counter()
    for task in range(SINGLE):
        assert job.logs(task=task)
    single_s = (time.perf_counter() - began) / SINGLE
    say("outputs-one-by-one", single_s * 1000, "ms/task", note="GET /v1/jobs/{job}/logs, one connection")
    say("outputs-speed-up", single_s / (took_s / tasks), "times", note="one call against one request a task")
    with Beside() as beside:
        read_all(job, tasks)
    say("outputs-health-beside", beside.slowest_s * 1000, "ms", note="slowest answer to another client meanwhile")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=2)
    given = parser.parse_args()
    with private_hal("--nodes", str(given.nodes), "--cpus", "4"), connect() as client:
        measure(client, given.tasks)


if __name__ == "__main__":
    main()
