"""Graphs of dependent tasks: futures as arguments, no-op functions, a broker and two workers on one machine.

`layers`: each task adds two results of the layer before. `chains`: each task waits for one other, many chains side by
side. `chain`: one after the other, so what is measured is the way to a worker and back. `bytes` is what a task of a
graph adds to the client's memory while all of it is under way.
Prints JSON lines: `python benchmarks/session_graphs.py [--tasks N]`.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from hal.client.session import Session, open_session
from hal.runtime.exchange import remove_exchange
from hal.runtime.session_file import new_session_file, private_directory, write_session_file

TASKS: Final = 1_000_000
WIDTH: Final = 1_000
ONE_CHAIN: Final = 10_000
SLOTS: Final = 2


def say(bench: str, value: float, unit: str, **more: Any) -> None:
    print(json.dumps({"bench": f"session-graph-{bench}", "value": round(value, 1), "unit": unit, **more}), flush=True)


def plus(one: int, other: int) -> int:
    return (one + other) % 1_000_003


def follow(one: int) -> int:
    return one + 1


def layers(session: Session, tasks: int) -> int:
    """Submit layers of `WIDTH` tasks; returns what is wrong with the last one."""
    futures: list[Future[int]] = [session.submit(int, number) for number in range(WIDTH)]
    expected = list(range(WIDTH))
    kept = list(futures)
    for _ in range(tasks // WIDTH - 1):
        futures = [session.submit(plus, futures[at - 1], futures[at]) for at in range(WIDTH)]
        expected = [(expected[at - 1] + expected[at]) % 1_000_003 for at in range(WIDTH)]
        kept += futures
    return sum(future.result() != value for future, value in zip(futures, expected, strict=True))


def chains(session: Session, tasks: int, width: int = WIDTH) -> int:
    kept = []
    for number in range(width):
        future: Future[int] = session.submit(int, number)
        kept.append(future)
        for _ in range(tasks // width - 1):
            future = session.submit(follow, future)
            kept.append(future)
    length = tasks // width
    return sum(kept[at * length + length - 1].result() != at + length - 1 for at in range(width))


def measure(
    name: str, session: Session, tasks: int, build: Callable[[Session, int], int], *, memory: bool = True, **more: Any
) -> None:
    before = resident_bytes()
    resource_peak()
    began = time.perf_counter()
    if build(session, tasks):
        sys.exit(f"{name}: a task has another result than it must")
    took = time.perf_counter() - began
    say(name, tasks / took, "tasks/s", **more)
    if memory:  # later ones use what earlier ones have left
        say(f"{name}-bytes", (peak_bytes() - before) / tasks, "bytes", better="lower", note="of the client, a task")


def one_chain(session: Session, tasks: int) -> int:
    return chains(session, tasks, 1)


def resource_peak() -> None:
    """Let the peak begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak_bytes() -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) << 10


def main() -> int:
    parser = argparse.ArgumentParser(description="graphs of dependent tasks")
    parser.add_argument("--tasks", type=int, default=TASKS)
    tasks = parser.parse_args().tasks
    directory = private_directory()
    file = directory / "session.json"
    session_file = new_session_file(directory)
    write_session_file(file, session_file)
    processes = []
    for daemon in ("broker", *["worker"] * SLOTS):
        argv = [sys.executable, "-m", f"hal.daemons.{daemon}", "--session", str(file)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE if daemon == "broker" else None, text=True)
        if process.stdout is not None:
            process.stdout.readline()
        processes.append(process)
    try:
        with open_session(file) as session:
            list(session.map(follow, range(10_000)))
            measure("chain", session, min(ONE_CHAIN, tasks), one_chain)
            measure("layers", session, tasks, layers, note=f"of {WIDTH}, each task with two inputs")
            measure("chains", session, tasks, chains, memory=False, note=f"{WIDTH} side by side")
    finally:
        for process in processes:
            process.terminate()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)
        remove_exchange(Path(f"/dev/shm/hal-session-{session_file.id}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
