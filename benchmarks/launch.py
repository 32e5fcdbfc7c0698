"""`hal launch` as people type it: until the first rank has written its first byte, and until the last one has.

A real HAL with two nodes on this machine, and a running job that holds both; ranks are processes of `echo`. Beside the
elapsed time stands the CPU time of the command itself, which other work on the machine hardly touches, and `hal exec`
into the same job in the same run.
Prints JSON lines: `python benchmarks/launch.py`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from typing import Final

from _private_hal import as_typed, private_hal, say, typed_cpu_ms
from hal.client.job import Job
from hal.client.sync_client import Client

RANKS: Final = (2, 16, 64)
RUNS: Final = 11
WARM: Final = 2
DEADLINE_S: Final = 60.0


def runs(words: list[str], lines: int) -> tuple[list[float], list[float]]:
    """Milliseconds from the start of the command to its first byte, and to its last line; of each run."""
    first, last = [], []
    argv, environment = as_typed(*words)
    for _ in range(RUNS + WARM):
        begin = time.perf_counter()
        process = subprocess.Popen(argv, env=environment, bufsize=0, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert process.stdout is not None
        out = process.stdout.read(1) or b""
        first.append((time.perf_counter() - begin) * 1e3)
        while out.count(b"\n") < lines:
            piece = process.stdout.read(1 << 16)
            assert piece, (out, "some ranks have written nothing")
            out += piece
        last.append((time.perf_counter() - begin) * 1e3)
        assert process.wait(DEADLINE_S) == 0
        process.stdout.close()
    return first[WARM:], last[WARM:]


def running(client: Client) -> Job:
    """A job that holds both nodes."""
    job = client.submit(["sleep", "1000"], nodes=2, first_node=True, cpus=2)
    while job.refresh().state != "running":
        time.sleep(0.01)
    return job


def main() -> None:
    """Measure and print."""
    with private_hal("--nodes", "2", "--cpus", "4"), Client() as client:
        job = running(client)
        exec_ms, _ = runs(["exec", job.id, "--", "echo", "x"], 1)
        say("launch-beside-exec", statistics.median(exec_ms), "ms", note="`hal exec` until its first byte")
        for ranks in RANKS:
            words = ["launch", "--job", job.id, "-n", str(ranks), "echo", "x"]
            first, last = runs(words, ranks)
            load = round(os.getloadavg()[0], 1)
            note = f"{ranks} ranks on two nodes, until the first byte"
            cpu_ms = round(typed_cpu_ms(*words, runs=5), 1)
            say(f"launch-{ranks}-first-byte", statistics.median(first), "ms", note=note, cpu_ms=cpu_ms,
                best=round(min(first), 1), load=load)  # fmt: skip
            say(f"launch-{ranks}-last-line", statistics.median(last), "ms", best=round(min(last), 1), load=load)


if __name__ == "__main__":
    main()
