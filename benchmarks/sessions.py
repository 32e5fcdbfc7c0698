"""Tasks of a session on one machine: a broker and two workers, real processes and sockets, beside the process pools of
Python's standard library in the same run.

No-op functions; each task is tracked with a result slot of its own (`map`) or a future of its own (`submit`). `task
time` is the part of the slots' time that tasks of 1 ms had.
Prints JSON lines: `python benchmarks/sessions.py [--tasks N]`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from hal.client.session import open_session
from hal.runtime.exchange import remove_exchange
from hal.runtime.session_certificates import over_network
from hal.runtime.session_file import new_session_file, private_directory, shards_of, write_session_file

SLOTS: Final = 2
TASKS: Final = 1_000_000
FUTURES: Final = 200_000
ROUND_TRIPS: Final = 3_000
PEER_TASKS: Final = 20_000
LARGE_BYTES: Final = 100_000_000
SPINS: Final = 4_000
SPIN_S: Final = 0.001
RUNS: Final = 3


def noop(value: int) -> int:
    return value


def spin(seconds: float) -> float:
    """Work for so long; returns for how long it did."""
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        pass
    return time.perf_counter() - began


def say(bench: str, value: float, unit: str, **more: Any) -> None:
    print(json.dumps({"bench": f"sessions-{bench}", "value": value, "unit": unit, **more}), flush=True)


def best(measure: Callable[[], float]) -> float:
    """Of several runs: the others measure what else the machine did."""
    return max(measure() for _ in range(RUNS))


def map_rate(executor: Executor, tasks: int, chunk: int = 1) -> float:
    began = time.perf_counter()
    if list(executor.map(noop, range(tasks), chunksize=chunk)) != list(range(tasks)):
        sys.exit("map returned something else than it was given")
    return tasks / (time.perf_counter() - began)


def submit_rate(executor: Executor, tasks: int) -> float:
    """One future at a time, without waiting; until the last one is done."""
    began = time.perf_counter()
    futures = [executor.submit(noop, number) for number in range(tasks)]
    for number, future in enumerate(futures):
        if future.result() != number:
            sys.exit("a future has the result of another")
    return tasks / (time.perf_counter() - began)


def round_trips(executor: Executor, tasks: int) -> list[float]:
    times = []
    for number in range(tasks):
        began = time.perf_counter()
        executor.submit(noop, number).result()
        times.append((time.perf_counter() - began) * 1e3)
    return sorted(times)


def task_time(executor: Executor) -> float:
    """The part of the slots' time that was the tasks'."""
    began = time.perf_counter()
    inside = sum(executor.map(spin, [SPIN_S] * SPINS))
    return inside / (SLOTS * (time.perf_counter() - began))


def cpu_s(processes: Iterable[subprocess.Popen[str]]) -> float:
    """CPU time of this process and of these with their children that run tasks."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = time.process_time()
    for process in processes:
        for pid in (process.pid, *children_of(process.pid)):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def measure_cpu(session: Executor, processes: list[subprocess.Popen[str]], tasks: int) -> None:
    """What a task costs all processes together, which says more than a rate on a busy machine."""
    before = cpu_s(processes)
    map_rate(session, tasks)
    middle = cpu_s(processes)
    submit_rate(session, FUTURES)
    after = cpu_s(processes)
    say("map-cpu", 1e6 * (middle - before) / tasks, "µs", better="lower", note="a task, all processes together")
    say("submit-cpu", 1e6 * (after - middle) / FUTURES, "µs", better="lower", note="a task, all processes together")


def measure_session(session: Executor, tasks: int) -> None:
    list(session.map(noop, range(10_000)))
    times = round_trips(session, ROUND_TRIPS)
    say("round-trip-p50", statistics.median(times), "ms", target=0.4, better="lower")
    say("round-trip-p99", times[len(times) * 99 // 100], "ms", target=1.5, better="lower")
    say("map", best(lambda: map_rate(session, tasks)), "tasks/s", target=300_000)
    say("submit", best(lambda: submit_rate(session, FUTURES)), "tasks/s", target=30_000)
    say("task-time-1ms", 100 * best(lambda: task_time(session)), "%", target=90)
    bandwidth(session)
    say("argument-100mb", best(lambda: bandwidth(session)), "GB/s", target=1.0)


def bandwidth(executor: Executor) -> float:
    """GB/s of an argument that a task reads a number of: an array of NumPy."""
    import numpy as np

    array = np.ones(LARGE_BYTES // 8)
    began = time.perf_counter()
    if executor.submit(last_of, array).result() != 1.0:
        sys.exit("an array arrived damaged")
    return LARGE_BYTES / (time.perf_counter() - began) / 1e9


def last_of(array: Any) -> float:
    return float(array[-1])


def measure_durable(session: Executor, tasks: int) -> None:
    """The same with a journal, flushed before results leave."""
    list(session.map(noop, range(10_000)))
    times = round_trips(session, ROUND_TRIPS // 3)
    say("durable-round-trip-p50", statistics.median(times), "ms", target=1.2, better="lower")
    say("durable-map", best(lambda: map_rate(session, tasks)), "tasks/s", target=200_000)


def measure_network(session: Executor, tasks: int) -> None:
    """The same with TLS between all of them."""
    list(session.map(noop, range(10_000)))
    times = round_trips(session, ROUND_TRIPS // 3)
    say("network-round-trip-p50", statistics.median(times), "ms", better="lower")
    say("network-map", best(lambda: map_rate(session, tasks)), "tasks/s")


def measure_pool() -> None:
    with ProcessPoolExecutor(SLOTS, multiprocessing.get_context("fork")) as pool:
        list(pool.map(noop, range(1_000)))
        say("pool-round-trip-p50", statistics.median(round_trips(pool, ROUND_TRIPS)), "ms", better="lower")
        say("pool-map", map_rate(pool, PEER_TASKS), "tasks/s", note="chunksize 1")
        say("pool-map-chunked", map_rate(pool, TASKS, 1_000), "tasks/s", note="chunksize 1,000: nothing tracked")
        say("pool-submit", submit_rate(pool, PEER_TASKS), "tasks/s")
        say("pool-argument-100mb", best(lambda: bandwidth(pool)), "GB/s")
        say("pool-task-time-1ms", 100 * task_time(pool), "%")


def measure_shards(session: Executor, tasks: int) -> None:
    """The same with two brokers, each with one of the workers."""
    list(session.map(noop, range(10_000)))
    say("shards-map", best(lambda: map_rate(session, tasks)), "tasks/s")
    say("shards-submit", best(lambda: submit_rate(session, FUTURES)), "tasks/s")


def started(file: Path, brokers: Path, shards: int = 1) -> Iterable[subprocess.Popen[str]]:
    for daemon, task in (*(("broker", task) for task in range(shards)), *(("worker", task) for task in range(SLOTS))):
        its = brokers if daemon == "broker" else file
        argv = [sys.executable, "-m", f"hal.daemons.{daemon}", "--session", str(its)]
        process = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE if daemon == "broker" else None,
            text=True,
            env={**os.environ, "HAL_TASK": str(task)},
        )
        if process.stdout is not None:
            process.stdout.readline()
        yield process


def run_session(tasks: int, *, durable: bool = False, network: bool = False, shards: int = 0) -> None:
    directory = private_directory()
    file = brokers = directory / "session.json"
    session_file = replace(new_session_file(directory, durable=durable), shards=shards)
    if network:
        with socket.create_server(("127.0.0.1", 0)) as found:
            address = f"tcp:127.0.0.1:{found.getsockname()[1]}"
        broker, others = over_network(session_file, address, time.time_ns() // 1_000_000)
        brokers, session_file = directory / "broker.json", replace(others, dial=(address,))
        write_session_file(brokers, broker)
    write_session_file(file, session_file)
    processes = list(started(file, brokers, shards or 1))
    try:
        with open_session(file) as session:
            if shards:
                measure_shards(session, tasks)
            elif network:
                measure_network(session, tasks)
            elif durable:
                measure_durable(session, tasks)
            else:
                measure_session(session, tasks)
                measure_cpu(session, processes, tasks)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
        shutil.rmtree(directory)
        for one in shards_of(session_file):
            remove_exchange(Path(f"/dev/shm/hal-session-{one.id}"))


def main() -> int:
    parser = argparse.ArgumentParser(description="tasks of a session on one machine")
    parser.add_argument("--tasks", type=int, default=TASKS, help="of the map")
    arguments = parser.parse_args()
    run_session(arguments.tasks)
    run_session(arguments.tasks, durable=True)
    run_session(arguments.tasks, network=True)
    run_session(arguments.tasks, shards=2)
    measure_pool()
    return 0


if __name__ == "__main__":
    sys.exit(main())
