"""How fast ended attempts are read through REST: pages as they are sent, and rows of the Python client.

A real HAL, whose store was filled with ended attempts before it started; the reader is a process of its own, over the
private socket, from the oldest to the newest. What numbering the ends costs commits is in benchmarks/store.py.
Prints JSON lines: `python benchmarks/follow.py [--rows 200000]`.
"""

from __future__ import annotations

import argparse
import http.client
import re
import socket
import sys
import time
from pathlib import Path
from typing import Final

from _private_hal import command, private_hal, say
from hal import connect
from hal.core.model import AttemptState, JobSpec, TaskState, check_spec
from hal.runtime.home import Home
from hal.store import (
    AttemptEnd,
    AttemptRow,
    EndAttempts,
    Group,
    InsertAttempts,
    InsertJobs,
    JobRow,
    Operation,
    Store,
)

TARGET_ROWS_S: Final = 50_000
TASKS: Final = 2_000
"""Of each job, and in each commit."""
PAGE: Final = 5_000


def fill(path: Path, rows: int) -> None:
    """Write ended arrays of `TASKS` tasks each."""
    spec = check_spec(JobSpec(command=("true",)))
    store = Store.open(path)
    epoch = store.take_leadership("bench", 1)
    now_ms = int(time.time() * 1000) - rows
    usage = {"cpu_ms": 12, "max_rss_bytes": 1 << 20, "elapsed_ms": 15}
    for number in range(1, rows // TASKS + 1):
        job = JobRow(
            number, spec, "sweep", "default", "research", f"u{number % 20}", 0, TaskState.SUCCEEDED, TASKS, 1, None,
            now_ms, now_ms, now_ms, now_ms, succeeded=TASKS,
        )  # fmt: skip
        tasks = range(TASKS)
        operations: list[Operation] = [
            InsertJobs([job]),
            InsertAttempts(
                [
                    AttemptRow(number, task, 1, AttemptState.RUNNING, (f"n{task % 100}",), f"t{number}.{task}", now_ms)
                    for task in tasks
                ]
            ),
            EndAttempts(
                [
                    AttemptEnd(number, task, 1, AttemptState.SUCCEEDED, now_ms, "exited", 0, None, usage, "", now_ms)
                    for task in tasks
                ]
            ),
        ]
        now_ms += TASKS
        store.commit(Group(f"bench-{number}", now_ms, operations), epoch=epoch, flush=False)
    store.flush()
    store.close()


class Private(http.client.HTTPConnection):
    """A connection to the private socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("hal", timeout=60)
        self._path = str(path)

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def pages(home: Path, query: str) -> tuple[float, float]:
    """Rows a second of pages whose rows are not looked at, and milliseconds of the slowest page."""
    connection, cursor, rows, slowest_s = Private(Home(home).api_socket()), "0", 0, 0.0
    began = time.perf_counter()
    while True:
        asked = time.perf_counter()
        connection.request("GET", f"/v1/attempts?limit={PAGE}&ended_after={cursor}{query}")
        text = connection.getresponse().read()
        slowest_s = max(slowest_s, time.perf_counter() - asked)
        rows += text.count(b'"sequence":')
        found = re.search(rb'"cursor":"(\d+)","more":(\w+)', text)
        assert found is not None, text[:500]
        cursor = found[1].decode()
        if found[2] != b"true":
            return rows / (time.perf_counter() - began), slowest_s * 1000


def client() -> float:
    """Rows a second of the Python client."""
    began = time.perf_counter()
    with connect() as hal:
        rows = sum(1 for _ in hal.attempts("0"))
    return rows / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    rows = parser.parse_args().rows // TASKS * TASKS
    with private_hal() as home:
        command(home, "down", "--kill")
        began = time.perf_counter()
        fill(Home(home).database, rows)
        print(f"{rows:,} rows written in {time.perf_counter() - began:.1f} s", file=sys.stderr)
        command(home, "up")
        rate, slowest_ms = max(pages(home, "") for _ in range(2))
        say("follow-pages", rate, "rows/s", TARGET_ROWS_S, slowest_page_ms=round(slowest_ms, 1), rows=rows)
        rate, slowest_ms = max(pages(home, "&user=u3") for _ in range(2))
        say("follow-pages-of-a-user", rate, "rows/s", TARGET_ROWS_S, slowest_page_ms=round(slowest_ms, 1))
        say("follow-client", max(client() for _ in range(2)), "rows/s", note="rows as values of the Python client")


if __name__ == "__main__":
    main()
