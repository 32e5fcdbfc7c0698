"""Tasks of very different lengths, from 10 µs to a second, in two slots: how much longer all of them take than by a
list schedule without any overhead.

A list schedule gives the next task, in the order of submission, to the slot that is free first. It is computed of the
times that the tasks took in their workers, so that what else the machine does counts for neither. Long tasks sleep: two
slots need no two idle cores.
Prints JSON lines: `python benchmarks/session_mixed.py [--tasks N] [--longest S]`.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from hal.client.session import Session, open_session
from hal.runtime.exchange import remove_exchange
from hal.runtime.session_file import new_session_file, private_directory, write_session_file

TASKS: Final = 300
SLOTS: Final = 2
SHORTEST_S: Final = 10e-6
LONGEST_S: Final = 1.0
SPUN_S: Final = 1e-3
"""Shorter tasks compute: sleep is not as precise."""
SEEDS: Final = (1, 2, 3)
TARGET: Final = 1.05


def nap(seconds: float) -> tuple[float, float]:
    """Take so long; returns when it began and ended."""
    began = time.perf_counter()
    if seconds > SPUN_S:
        time.sleep(seconds)
    while time.perf_counter() - began < seconds:
        pass
    return began, time.perf_counter()


def lengths(tasks: int, longest_s: float, seed: int) -> list[float]:
    """As many short ones as long ones, on a logarithmic scale, in any order."""
    rng = random.Random(seed)
    return [SHORTEST_S * (longest_s / SHORTEST_S) ** rng.random() for _ in range(tasks)]


def list_schedule(times: list[float], slots: int) -> float:
    """When the last task ends."""
    free = [0.0] * slots
    for took in times:
        heapq.heapreplace(free, free[0] + took)
    return max(free)


def measure(session: Session, tasks: int, longest_s: float, seed: int) -> float:
    """How long all took, as a multiple of the list schedule."""
    asked = lengths(tasks, longest_s, seed)
    began = time.perf_counter()
    spans = list(session.map(nap, asked))
    took = time.perf_counter() - began
    return took / list_schedule([end - begin for begin, end in spans], SLOTS)


def main() -> int:
    parser = argparse.ArgumentParser(description="tasks of very different lengths")
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--longest", type=float, default=LONGEST_S, metavar="S")
    arguments = parser.parse_args()
    directory = private_directory()
    file, described = directory / "session.json", new_session_file(directory)
    write_session_file(file, described)
    processes = []
    for daemon in ("broker", *["worker"] * SLOTS):
        argv = [sys.executable, "-m", f"hal.daemons.{daemon}", "--session", str(file)]
        processes.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        if daemon == "broker":
            assert processes[0].stdout is not None
            processes[0].stdout.readline()
    try:
        with open_session(file) as session:
            list(session.map(abs, range(10_000)))
            for seed in SEEDS:
                value = measure(session, arguments.tasks, arguments.longest, seed)
                print(json.dumps({"bench": f"session-mixed-{seed}", "value": value, "unit": "of a list schedule",
                    "target": TARGET, "better": "lower"}), flush=True)  # fmt: skip
    finally:
        for process in processes:
            process.terminate()
            process.wait()
        shutil.rmtree(directory)
        remove_exchange(Path(f"/dev/shm/hal-session-{described.id}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
