"""Workers die while they run tasks: results are those of a serial run, each exactly once."""

from __future__ import annotations

import os
import random
import signal
import threading
from contextlib import suppress
from pathlib import Path
from types import FunctionType

import pytest

from hal.client.sessions.demand import BrokerLink, Overseer, Wanted
from hal.core.model.errors import UnreachableError
from hal.runtime.session_file import shard_of
from hal.wire.frames.sessions import MoveSlots
from tests.client.sessions.processes import OneGroup, Processes, processes

KILLS = 8


def task_processes(running: Processes) -> list[int]:
    """Those that run tasks, of all workers."""
    found: list[int] = []
    for worker in running.workers:
        with suppress(FileNotFoundError):
            text = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text()
            found += map(int, text.split())
    return found


def work(number: int) -> int:
    """Mostly short, now and then a few milliseconds."""
    end = 200 if number % 50 else 20_000
    for _ in range(end):
        number = (number * 31 + 7) % 1_000_003
    return number


def kill_now_and_then(running: Processes, rng: random.Random, over: threading.Event) -> int:
    """Kill processes that run tasks, whole workers, which are replaced, and brokers of durable sessions, which are
    started again, but the first; send slots from one broker to another. Returns how often."""
    kills, shards = 0, len(running.brokers)
    while kills < KILLS and not over.wait(rng.uniform(0.1, 0.4)):
        if shards > 1 and rng.random() < 0.4:
            if running.session.journal and rng.random() < 0.5:
                running.replace_shard(rng.randrange(1, shards))
            else:
                move_slots(running, rng)
        elif rng.random() < 0.3:
            running.add_worker()
            running.workers[0].kill()
            running.workers.pop(0).wait()
        elif victims := task_processes(running):
            with suppress(ProcessLookupError):
                os.kill(rng.choice(victims), signal.SIGKILL)
        kills += 1
    return kills


def move_slots(running: Processes, rng: random.Random) -> None:
    """Tell a broker to send slots to another one, whatever they do."""
    origin, target = rng.sample(range(len(running.brokers)), 2)
    with suppress(UnreachableError):
        link = BrokerLink(shard_of(running.session, origin))
        link.send(MoveSlots(count=rng.randrange(1, 4), shard=target))
        link.close()


@pytest.mark.parametrize(
    ("seed", "shards", "durable"),
    [(seed, shards, durable) for seed in (1, 2, 3) for shards, durable in ((2, False), (2, True), (3, True))],
)
@pytest.mark.slow
def test_safety_results_survive_deaths_at_several_brokers(seed: int, shards: int, durable: bool) -> None:
    """Slots go to and fro, workers die, and so do brokers that keep a journal."""
    rng = random.Random(seed)
    over = threading.Event()
    by_value = FunctionType(work.__code__, {"__name__": "__main__"})
    with processes(workers=3, shards=shards, durable=durable) as running, running.open() as session:
        overseer = Overseer(running.session, [OneGroup(Wanted(3, 3))])
        overseer.begin()
        killer = threading.Thread(target=kill_now_and_then, args=(running, rng, over))
        killer.start()
        try:
            while killer.is_alive():
                futures = [session.submit(by_value, number) for number in range(300)]
                assert list(session.map(by_value, range(5_000))) == [work(number) for number in range(5_000)]
                assert [future.result(60) for future in futures] == [work(number) for number in range(300)]
        finally:
            over.set()
            killer.join()
            overseer.leave()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_safety_results_survive_the_death_of_workers(seed: int) -> None:
    """Deaths are some time apart: a task that three of them meet is quarantined, and rightly so."""
    rng = random.Random(seed)
    over = threading.Event()
    killed: list[int] = []
    by_value = FunctionType(work.__code__, {"__name__": "__main__"})  # workers need not import pytest for it
    with processes(workers=3) as running, running.open() as session:
        killer = threading.Thread(target=lambda: killed.append(kill_now_and_then(running, rng, over)))
        killer.start()
        try:
            while killer.is_alive():
                futures = [session.submit(by_value, number) for number in range(300)]
                assert list(session.map(by_value, range(5_000))) == [work(number) for number in range(5_000)]
                assert [future.result(60) for future in futures] == [work(number) for number in range(300)]
        finally:
            over.set()
            killer.join()
    assert killed[0] > 0
