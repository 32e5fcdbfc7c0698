"""`hal usage` over a million ended attempts, how fast the collector records them, and that it catches up without a gap.

A history of attempts over 90 days (20 accounts, 200 users, 5 queues, 400 job names, 200 nodes, gangs) is recorded page
by page by the collector's own recorder. Then a real HAL runs with that history, and `hal usage` is timed as people type
it, process and all. Catching up: a real controller whose store holds ended attempts; the collector is killed three
times on the way, and the sums must be those of the store.
Prints JSON lines: `python benchmarks/observability_usage.py [--attempts 1000000] [--behind 100000] [--keep DIR]`.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import follow
from _private_hal import as_typed, command, private_hal, rss_bytes, say
from hal.core.model.history_config import EnergySection, HistorySection, PricesSection
from hal.planes.observability.history.costing import Costing, KnownNode
from hal.planes.observability.history.feed_rows import AskedRow, FeedPage, FeedRow, NodesAsked
from hal.planes.observability.history.recording import Recorder
from hal.planes.observability.history.tables import MIGRATIONS
from hal.planes.observability.history.trimming import set_kept
from hal.runtime.home import Home

DAY_MS: Final = 86_400_000
DAYS: Final = 90
PAGE: Final = 2_000
TARGET_USAGE_S: Final = 2.0
TARGET_RATE: Final = 5_000
CONFIG: Final = '[observability.prices]\ncurrency = "EUR"\ncore_hour = 0.02\n'
RUNS: Final = 5


def rows(count: int, now_ms: int) -> Iterator[FeedRow]:
    """Attempts as a controller gives them, ending over the last `DAYS` days."""
    dice = random.Random(1)
    first_ms = now_ms - DAYS * DAY_MS
    users = [(f"u{number}", f"account{number % 20}") for number in range(200)]
    for sequence in range(1, count + 1):
        recorded_ms = first_ms + sequence * (now_ms - first_ms) // (count + 1)
        number = min(int(dice.expovariate(0.03)), len(users) - 1)
        user, account = users[number]
        ran_ms = int(dice.lognormvariate(11, 2))
        cpu = dice.choice((1_000, 2_000, 4_000, 16_000))
        end_ms = recorded_ms - (dice.randrange(2 * DAY_MS) if dice.random() < 0.001 else dice.randrange(1_000))
        nodes = dice.choice((1, 1, 1, 1, 1, 1, 1, 2, 4))
        at = dice.randrange(196)
        yield FeedRow(
            sequence=sequence,
            job=str(sequence // 10 + 1),
            task=sequence % 10,
            attempt=1,
            state="succeeded"
            if dice.random() < 0.93
            else dice.choice(("failed", "timed-out", "out-of-memory", "lost")),
            name=f"{dice.choice(('train', 'sweep', 'align', 'render'))}-{number % 100}",
            queue=("default", "night", "gpu", "short", "long")[number % 5],
            account=account,
            user=user,
            trace_id="0123456789abcdef0123456789abcdef",
            nodes=tuple(f"n{at + rank}" for rank in range(nodes)),
            allocated_ms=end_ms - ran_ms,
            start_ms=end_ms - ran_ms,
            end_ms=end_ms,
            recorded_ms=recorded_ms,
            cause="exited",
            exit_code=0,
            usage={
                "user_ms": int(ran_ms * cpu * nodes / 1_000 * dice.betavariate(3, 1)),
                "system_ms": 10,
                "max_rss_bytes": dice.randrange(1 << 31),
                "read_bytes": dice.randrange(1 << 30),
                "written_bytes": 0,
                "cgroup": 7,
            },
            asked=AskedRow(
                submit_ms=end_ms - ran_ms - int(dice.lognormvariate(10, 2)),
                walltime_ms=3 * ran_ms + 60_000,
                nodes=(
                    NodesAsked(nodes=nodes, amounts={"cpu": cpu, "memory": 2 << 30, "gpu": 1_000 * (number % 5 == 2)}),
                ),
            ),
        )


def record(path: Path, count: int, now_ms: int) -> float:
    """Write a history of so many; attempts a second of the recorder alone."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    for script in MIGRATIONS:
        connection.executescript(script)
    connection.execute(f"PRAGMA user_version={len(MIGRATIONS)}")
    set_kept(connection, HistorySection(), now_ms)
    recorder = Recorder(Costing(EnergySection(), PricesSection(core_hour=0.02)))
    nodes = {f"n{number}": KnownNode(capacity={"cpu": 64_000, "memory": 256 << 30}) for number in range(200)}
    left, spent, done = rows(count, now_ms), 0.0, 0
    while page := [row for _, row in zip(range(PAGE), left, strict=False)]:
        done += len(page)
        began = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        recorder.record(FeedPage(attempts=tuple(page), cursor=str(page[-1].sequence)), nodes, connection)
        connection.execute("COMMIT")
        spent += time.perf_counter() - began
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return done / spent


def timed(*words: str) -> tuple[float, int]:
    """The median of some runs of a typed command, in seconds, and its lines."""
    argv, environment = as_typed(*words)
    found = []
    for _ in range(RUNS):
        began = time.perf_counter()
        ran = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
        found.append(time.perf_counter() - began)
    return sorted(found)[RUNS // 2], ran.stdout.count("\n")


def collector(home: Path) -> subprocess.Popen[bytes]:
    """Started; it answers soon."""
    environment = {**os.environ, "HAL_HOME": str(home)}
    return subprocess.Popen([sys.executable, "-m", "hal.daemons.collector"], env=environment, stdout=sys.stderr)


def answers(home: Path) -> None:
    """Wait until the collector does."""
    socket = Home(home).socket_dir() / "observability.sock"
    while not socket.exists():
        time.sleep(0.05)


def measure_usage(directory: Path) -> None:
    """`hal usage` with that history."""
    with private_hal(config=CONFIG) as home:
        shutil.copytree(directory, home / "observability", dirs_exist_ok=True)
        process = collector(home)
        answers(home)
        load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        for bench, words in {
            "usage-by-account-90-days": ("--by", "account", "--since", "90d"),
            "usage-by-user-odd-range": ("--by", "user", "--since", "71d7h13m11s", "--until", "2d5h17m3s"),
            "usage-by-queue-each-day": ("--by", "queue", "--since", "89d", "--period", "day", "--zone", "Europe/Rome"),
            "usage-by-node-odd-range": ("--by", "node", "--since", "71d7h13m11s"),
            "usage-by-job-name-90-days": ("--by", "job-name", "--since", "90d"),
            "usage-of-one-user-by-job-name": ("--by", "job-name", "--user", "u3", "--since", "71d7h13m11s"),
        }.items():
            spent_s, lines = timed("usage", "--limit", "0", *words)
            say(bench, spent_s, "s", TARGET_USAGE_S, higher=False, rows=lines - 1, note=load)
        say("usage-collector-memory", rss_bytes(process.pid) / 2**20, "MiB")
        process.kill()
        process.wait()


def measure_catching_up(count: int) -> None:
    """A controller that is ahead; the collector is killed on the way."""
    with private_hal() as home:
        command(home, "down", "--kill")
        follow.fill(Home(home).database, count)
        command(home, "up")
        path = home / "observability" / "history.sqlite"
        began, recorded, kills = time.perf_counter(), 0, 0
        while recorded < count:
            process = collector(home)
            while recorded < count and (recorded < (kills + 1) * count // 4 or kills == 3):
                time.sleep(0.02)
                recorded = cursor_of(path)
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        spent = time.perf_counter() - began
        connection = sqlite3.connect(path)
        counts = [
            connection.execute(f"SELECT SUM(attempts) FROM {name}").fetchone()[0] for name in ("days", "named_days")
        ]
        (rows_found, distinct) = connection.execute("SELECT COUNT(*), COUNT(DISTINCT sequence) FROM details").fetchone()
        exact = counts == [count, count] and rows_found == distinct == count
        connection.close()
        say(
            "history-catches-up",
            count / spent,
            "attempts/s",
            TARGET_RATE,
            kills=kills,
            exact=exact,
            load=os.getloadavg()[0],
        )
        assert exact, (counts, rows_found, distinct)


def cursor_of(path: Path) -> int:
    """How far the collector has read; 0: it has not begun."""
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            return int(connection.execute("SELECT cursor FROM progress").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=1_000_000)
    parser.add_argument("--behind", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="make the history there, or use the one that is there")
    options = parser.parse_args()
    directory = options.keep or Path(f"/tmp/hal-usage-{os.getpid()}")
    directory.mkdir(exist_ok=True)
    try:
        path = directory / "history.sqlite"
        if not path.exists():
            rate = record(path, options.attempts, int(time.time() * 1000))
            size = path.stat().st_size / options.attempts
            note = f"the recorder alone; load {os.getloadavg()[0]:.1f}"
            say("history-records", rate, "attempts/s", TARGET_RATE, bytes_each=round(size), note=note)
        measure_usage(directory)
        measure_catching_up(options.behind // follow.TASKS * follow.TASKS)
    finally:
        if options.keep is None:
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
