"""Tasks whose arguments are futures: deep, wide, lost and cancelled graphs, against real processes."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from hal.client.session import Session, SessionLost
from tests.client.sessions.processes import Processes, processes

EXAMPLE = Path(__file__).parents[3] / "examples" / "sessions" / "graph.py"
WAIT_S = 60
WINDOW = 200_000
"""Of a broker."""


@pytest.fixture(scope="module")
def running() -> Iterator[Processes]:
    with processes() as started:
        yield started


@pytest.fixture
def session(running: Processes) -> Iterator[Session]:
    with running.open() as opened:
        yield opened


def plus(one: int, other: int) -> int:
    return one + other


def test_each_layer_adds_what_the_one_before_has(session: Session) -> None:
    """Pascal's triangle, modulo: each task has two inputs."""
    row: list[Future[int]] = [session.submit(abs, -1)]
    for _ in range(60):
        inner = [session.submit(plus, one, other) for one, other in pairwise(row)]
        row = [row[0], *inner, row[-1]]
    assert sum(future.result(WAIT_S) for future in row) == 2**60


def test_a_deep_graph_fails_with_its_first_task(session: Session) -> None:
    """Deeper than Python may recurse."""
    first: Future[int] = Future()
    future = session.submit(abs, first)
    for _ in range(20_000):
        future = session.submit(abs, future)
    first.set_exception(KeyError("no"))
    assert isinstance(future.exception(WAIT_S), KeyError)


def test_a_deep_graph_ends_with_what_it_waits_for(session: Session) -> None:
    """If that was cancelled; what was cancelled in the middle of it, too."""
    first: Future[int] = Future()
    chain: list[Future[int]] = [session.submit(abs, first)]
    for _ in range(5_000):
        chain.append(session.submit(abs, chain[-1]))
    assert chain[2_500].cancel()
    assert not wait(chain[2_501:], WAIT_S).not_done
    assert not chain[2_499].done()
    first.set_result(-7)
    assert chain[2_499].result(WAIT_S) == 7


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_waits_for_others_takes_no_room(running: Processes) -> None:
    """More tasks than the window has wait for a future that is set by a thread that submits tasks itself."""
    with running.open() as session, ThreadPoolExecutor(1) as pool:
        gate: Future[int] = Future()
        tasks = [session.submit(plus, number, gate) for number in range(2 * WINDOW + 10_000)]
        assert session.submit(abs, -1).result(WAIT_S) == 1
        pool.submit(lambda: gate.set_result(session.submit(abs, -5).result(WAIT_S)))
        assert sum(task.result(4 * WAIT_S) for task in tasks) == sum(range(len(tasks))) + 5 * len(tasks)


def test_the_same_future_serves_waiters_callbacks_and_asyncio(session: Session) -> None:
    """Those that are there before it ends, and those that come afterwards."""
    gate: Future[int] = Future()
    future = session.submit(plus, 1, gate)
    called: list[Future[int]] = []
    future.add_done_callback(called.append)
    assert not wait([future], 0).done
    gate.set_result(2)
    assert next(as_completed([future], WAIT_S)).result() == 3
    future.add_done_callback(called.append)
    assert called == [future, future]
    assert "returned int" in repr(future)

    async def awaited() -> int:
        return await asyncio.wrap_future(session.submit(plus, future, 10))

    assert asyncio.run(awaited()) == 13


def test_losing_the_broker_fails_what_waits() -> None:
    """Whatever it waits for."""
    with processes(workers=1) as started:
        session = started.open()
        gate: Future[int] = Future()
        waiting = session.submit(abs, gate)
        chain: list[Future[object]] = [session.submit(sleep_long)]
        for _ in range(3_000):
            chain.append(session.submit(repr, chain[-1]))
        started.broker.kill()
        assert {type(future.exception(WAIT_S)) for future in chain} == {SessionLost}
        gate.set_result(1)
        assert isinstance(waiting.exception(WAIT_S), SessionLost)
        session.shutdown()


def sleep_long() -> None:
    time.sleep(1_000)


def test_a_map_keeps_what_its_function_uses(session: Session) -> None:
    """It is replaced while nothing is under way, nobody else has the function, and not all was sent."""
    shared = session.put(1)
    results = session.map(lambda number: number + shared, range(WINDOW))
    assert next(results) == 1
    deadline_s = time.monotonic() + WAIT_S
    while session._core._unanswered:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    session.update(shared, 2)
    gc.collect()
    assert session.submit(lambda number: number + shared, 1).result(WAIT_S) == 3
    assert sum(results) == sum(range(WINDOW + 1)) - 1


def test_the_example(running: Processes) -> None:
    """It prints the sum."""
    argv = [sys.executable, str(EXAMPLE), str(running.file), "1001"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == f"{sum(range(1_001))}\n"


class Counter:
    """Something with a method."""

    def __init__(self, number: int) -> None:
        self.number = number

    def get(self) -> int:
        return self.number


def test_a_session_keeps_no_function_alive(session: Session) -> None:
    """Nor the object of a method, once its task has ended; tasks of functions that nobody has any more run."""
    counter = Counter(3)
    collected = weakref.ref(counter)
    assert session.submit(counter.get).result(WAIT_S) == 3
    del counter
    gc.collect()
    assert collected() is None
    futures = [session.submit(partial(plus, number), 1) for number in range(3_000)]
    assert [future.result(WAIT_S) for future in futures] == list(range(1, 3_001))
    assert sum(session.map(partial(plus, 1), range(200_000))) == sum(range(1, 200_001))
