"""HAL as a user meets it: real processes on this machine, from the Python client to /bin/true and back.

A private HAL with one node of two cpus. Beside the array of short tasks runs `xargs -P2`, the least that starting so
many processes can cost on this machine at this moment.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import hal

ARRAY = 1_000
JOBS = 10_000
LATENCIES = 100
ROUNDS = 5


def say(bench: str, value: float, unit: str, target: float | None = None, *, higher: bool = True, **more: Any) -> None:
    line: dict[str, Any] = {"bench": bench, "value": round(value, 3), "unit": unit}
    if target is not None:
        line |= {
            "target": target,
            "better": "higher" if higher else "lower",
            "holds": value >= target if higher else value <= target,
        }
    print(json.dumps(line | more), flush=True)


def command(home: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "hal.cli.main", "--home", str(home), *words], check=True, stdout=sys.stderr)


def xargs(count: int) -> float:
    """Tasks a second of `xargs -P2`, with the output of each captured in one file."""
    numbers = "\n".join(str(n) for n in range(count))
    begin = time.perf_counter()
    subprocess.run(["xargs", "-P2", "-n1", "/bin/true"], input=numbers, text=True, check=True, capture_output=True)
    return count / (time.perf_counter() - begin)


def latency(client: hal.Client) -> None:
    waits = []
    for _ in range(LATENCIES):
        begin = time.perf_counter()
        client.submit(["true"]).wait()
        waits.append((time.perf_counter() - begin) * 1000)
    waits.sort()
    say("submit-wait-p50", statistics.median(waits), "ms", 40, higher=False)
    say("submit-wait-p99", waits[int(len(waits) * 0.99) - 1], "ms", higher=False)


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
    home = Path(tempfile.mkdtemp(prefix="hal-b-", dir="/tmp"))
    os.environ["HAL_HOME"] = str(home)
    try:
        command(home, "up", "--cpus", "2")
        with hal.connect(home=home) as client:
            for _ in range(10):
                client.submit(["true"]).wait()
            latency(client)
            array(client)
            one_call(client)
    finally:
        command(home, "down", "--kill")
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
