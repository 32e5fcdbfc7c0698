"""The first page of `hal jobs` where 100,000 jobs wait, with the reason of each and the nodes of what runs.

A real HAL of two cpus, ten users and a limit, so that jobs wait for resources, limits, dependencies and begin times. Of
REST the median over `ASKED` requests, with and without reasons; of the command as people type it the best of `RUNS`
beside that of `hal --version`, which is what starting Python and reading a command line costs, and the least CPU time.
Beside them the longest time for which another request waited while pages were asked for, with and without reasons.
Prints JSON lines:

    python benchmarks/jobs_page.py [--jobs 100000]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import hal
from _private_hal import as_typed, command, private_hal, say, typed_cpu_ms
from hal.client.rest import calls

PAGE_TARGET_MS = 150.0
BLOCK = 5_000
ASKED = 15
RUNS = 5
PAGE = 100
CONFIG = '[queues.default]\n[limits.few]\nuser = "*"\nrunning = 1\n'


def fill(home: Path, jobs: int) -> None:
    """Jobs that wait, for different things."""
    begin_at_ms = round((time.time() + 86_400) * 1000)
    with hal.connect(home=home) as client:
        first = client.submit(["sleep", "100000"], cpus=2)
        kinds = (
            {"request": {"cpu": 1}, "walltime": "1h"},
            {"request": {"cpu": 2}},
            {"request": {"cpu": 1}, "dependencies": [f"afterok:{first.id}"]},
            {"request": {"cpu": 1}, "begin_at_ms": begin_at_ms},
            {"request": {"cpu": 1}, "hold": True},
        )
        for at in range(0, jobs, BLOCK):
            client.submit(
                [
                    {"command": ["true"], "name": f"j{n}", "user": f"u{n % 10}"} | kinds[n % len(kinds)]
                    for n in range(at, min(at + BLOCK, jobs))
                ]
            )


def asked(home: Path, **details: bool) -> list[float]:
    """Milliseconds of each request for the first page."""
    states = ["pending", "held", "allocated", "preparing", "running", "suspended", "finalising"]
    taken = []
    with hal.connect(home=home) as client:
        filters = calls.filters_of({"state": states, **details}, listing=True)
        for _ in range(ASKED):
            began = time.perf_counter()
            page = client.call(calls.jobs(filters, limit=PAGE))
            taken.append((time.perf_counter() - began) * 1e3)
            assert len(page.items) == PAGE
    return taken


class Prober:
    """Asks for what needs one free turn of the loop, again and again, from a thread; keeps the longest answer time."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.longest_ms = 0.0

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with hal.connect(home=self._home) as client:
            client.version()
            while not self._over.wait(0.001):
                began = time.perf_counter()
                client.version()
                self.longest_ms = max(self.longest_ms, (time.perf_counter() - began) * 1e3)


def typed(*words: str) -> float:
    """Milliseconds of a command as people type it; the best of some."""
    best = float("inf")
    argv, environment = as_typed(*words)
    for _ in range(RUNS):
        began = time.perf_counter()
        subprocess.run(argv, env=environment, check=True, capture_output=True)
        best = min(best, (time.perf_counter() - began) * 1e3)
    return best


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=100_000)
    jobs = parser.parse_args().jobs
    with private_hal("--cpus", "2", config=CONFIG) as home:
        fill(home, jobs)
        command(home, "jobs", "--limit", "8")
        plain = asked(home)
        say("jobs-page-rest", statistics.median(plain), "ms", None, longest=round(max(plain), 1), jobs=jobs)
        taken = asked(home, reasons=True, placed=True)
        say(
            "jobs-page-reasons", statistics.median(taken), "ms", PAGE_TARGET_MS, higher=False,
            longest=round(max(taken), 1), jobs=jobs,
        )  # fmt: skip
        for name, details in (("plain", {}), ("reasons", {"reasons": True, "placed": True})):
            with Prober(home) as prober:
                asked(home, **details)
            say(f"jobs-page-longest-other-{name}", prober.longest_ms, "ms", None, load=round(os.getloadavg()[0], 2))
        bare, whole = typed("--version"), typed("--home", str(home), "jobs")
        say(
            "jobs-page-command", whole, "ms", PAGE_TARGET_MS, higher=False, jobs=jobs, version_alone=round(bare, 1),
            cpu_ms=round(typed_cpu_ms("--home", str(home), "jobs"), 1),
            version_cpu_ms=round(typed_cpu_ms("--version"), 1), load=round(os.getloadavg()[0], 2),
        )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
