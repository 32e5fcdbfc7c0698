"""Durable sessions: brokers, workers and clients die; nothing is lost, and nothing is delivered twice."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal.client.session import SessionLost, open_session
from hal.client.sessions import reconnection
from tests.client.sessions.processes import WAIT_S, Processes, processes, results_of
from tests.client.sessions.test_chaos import task_processes


@pytest.fixture
def running() -> Iterator[Processes]:
    with processes(durable=True) as started:
        yield started


def wait_for(seen: Callable[[], bool]) -> None:
    """Until it is so."""
    deadline_s = time.monotonic() + WAIT_S
    while not seen():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_durable_session_is_one(running: Processes) -> None:
    """All as without a journal."""
    with running.open() as session:
        assert list(session.map(lambda x: -x, range(20_000))) == [-x for x in range(20_000)]
        futures = [session.submit(pow, 2, number) for number in range(500)]
        assert [future.result(WAIT_S) for future in futures] == [2**number for number in range(500)]
        table = session.put(list(range(1_000_000)))
        assert session.submit(len, table).result(WAIT_S) == 1_000_000


def test_a_session_outlives_its_broker(running: Processes, tmp_path: Path) -> None:
    """It is killed at any time; the client finds the next one."""
    base = 5
    with running.open() as session:
        futures = [session.submit(lambda x: x + base, 0)]
        for number in range(3):
            results = session.map(lambda x: x + base, range(30_000))
            futures += [session.submit(lambda x: x + base, at) for at in range(1_000)]
            assert next(results) == base
            running.replace_broker()
            assert list(results) == [x + base for x in range(1, 30_000)], number
        assert results_of(session, futures) == [base, *[x + base for x in range(1_000)] * 3]


def test_a_client_that_waits_for_nothing_goes_on_after_its_broker(running: Processes) -> None:
    """Its next task is sent at once: no answer comes that would send it."""
    with running.open() as session:
        assert session.submit(abs, -1).result(WAIT_S) == 1
        former = session._core._link
        running.replace_broker()
        wait_for(lambda: session._core._link is not former)
        assert session.submit(abs, -2).result(WAIT_S) == 2


def test_tasks_go_on_beside_a_long_one_after_the_broker_is_replaced(running: Processes, tmp_path: Path) -> None:
    """The next broker confirms what it has from the former one, so that the next task is sent at once."""
    gate = tmp_path / "gate"

    def long() -> int:
        while not gate.exists():
            time.sleep(0.01)
        return 3

    running.add_worker()  # one is still inside of the task when it has lost its broker
    with running.open() as session:
        held = session.submit(long)
        assert session.submit(abs, -1).result(WAIT_S) == 1
        former = session._core._link
        running.replace_broker()
        wait_for(lambda: session._core._link is not former)
        other = session.submit(abs, -2)
        try:
            assert other.result(WAIT_S) == 2
        finally:
            gate.touch()
        assert held.result(WAIT_S) == 3


def test_tasks_are_cancelled_while_their_broker_is_replaced(running: Processes, tmp_path: Path) -> None:
    """The next one is told, too; what a worker had begun runs again."""
    gate = tmp_path / "gate"

    def long() -> None:
        while not gate.exists():
            time.sleep(0.01)

    with running.open() as session:
        futures = [session.submit(long) for _ in range(20)]
        session.submit(abs, -1)
        running.broker.kill()
        running.broker.wait(WAIT_S)
        cancelling = threading.Thread(target=futures[-1].cancel)
        cancelling.start()
        running.replace_broker()
        cancelling.join(WAIT_S)
        gate.touch()
        assert futures[-1].cancelled()
        assert [future.result(WAIT_S) for future in futures[:-1]] == [None] * 19


CLIENT = """
import os, sys, time
from hal.client.session import open_session
session = open_session(sys.argv[1], client="c")
print(len(session.recovered), flush=True)
gate = sys.argv[2]
def work(number):
    import os, time
    while number >= 100 and not os.path.exists(gate):
        time.sleep(0.01)
    return number * number
futures = [session.submit(work, number) for number in range(300)]
for future in futures[:100]:
    future.result()
time.sleep(0.2)
print("submitted", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("broker_too", [False, True], ids=["client", "client and broker"])
def test_a_later_process_of_a_client_finds_its_tasks(running: Processes, tmp_path: Path, broker_too: bool) -> None:
    """Those whose results the former one had are not delivered again."""
    argv = [sys.executable, "-c", CLIENT, str(running.file), str(tmp_path / "gate")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert [client.stdout.readline() for _ in range(2)] == ["0\n", "submitted\n"]
        client.kill()
    if broker_too:
        running.replace_broker()
    (tmp_path / "gate").touch()
    with open_session(running.file, client="c") as session:
        assert [future.result(WAIT_S) for future in session.recovered] == [x * x for x in range(100, 300)]
        assert session.submit(abs, -3).result(WAIT_S) == 3
    with open_session(running.file, client="c") as session:
        assert session.recovered == []


def test_results_are_kept_for_a_client_that_is_away(running: Processes, tmp_path: Path) -> None:
    """Over a restart of the broker, too."""
    (tmp_path / "gate").touch()
    code = CLIENT.replace("for future in futures[:100]:", "session.flush(); os._exit(0)\nfor future in ():")
    argv = [sys.executable, "-c", code, str(running.file), str(tmp_path / "gate")]
    subprocess.run(argv, timeout=WAIT_S, check=True)
    with running.open() as other:  # once its tasks have ended, the others have, too
        assert len(list(other.map(abs, range(1_000)))) == 1_000
    running.replace_broker()
    with open_session(running.file, client="c") as session:
        assert [future.result(WAIT_S) for future in session.recovered] == [x * x for x in range(300)]


LARGE_CLIENT = """
import os, sys
from hal.client.session import open_session
session = open_session(sys.argv[1], client="c")
def work(number):
    import os, time
    while not os.path.exists(f"{gates}{number and 1}"):
        time.sleep(0.01)
    return bytes([number]) * (2 << 20)
gates = sys.argv[2]
futures = [session.submit(work, number) for number in range(4)]
session.flush()
session._core.leave()
os._exit(0)
"""


def test_large_results_of_two_brokers_have_different_names(running: Processes, tmp_path: Path) -> None:
    """The workers of the next one have the numbers of the former ones; results of both wait for their client."""
    directory = Path(f"/dev/shm/hal-session-{running.session.id}")
    code = LARGE_CLIENT
    argv = [sys.executable, "-c", code, str(running.file), str(tmp_path / "gate")]
    subprocess.run(argv, timeout=WAIT_S, check=True)
    (tmp_path / "gate0").touch()  # once the client is gone: what it receives has no file any more
    wait_for(lambda: len(list(directory.glob("c*"))) == 1)
    running.replace_broker()
    (tmp_path / "gate1").touch()
    # That of a task whose end was not in the journal yet is there twice, until the client closes its session.
    wait_for(lambda: len(list(directory.glob("c*"))) >= 4)
    with open_session(running.file, client="c") as session:
        results = [future.result(WAIT_S) for future in session.recovered]
    assert [(result[0], len(result)) for result in results] == [(number, 2 << 20) for number in range(4)]
    wait_for(lambda: not list(directory.glob("c*")))


def test_payloads_of_others_than_durable_clients_go_with_the_broker(running: Processes) -> None:
    """Those of tasks that submit, whose numbers the next broker gives to others."""
    directory = Path(f"/dev/shm/hal-session-{running.session.id}")
    (directory / "c99-w3-1").write_bytes(b"left")
    running.replace_broker()
    assert not list(directory.glob("c*"))


def let_journal_grow(running: Processes, more: int) -> None:
    """The broker's files may have a few bytes more, as on a disk that fills up."""
    assert running.session.journal
    size = max(file.stat().st_size for file in Path(running.session.journal).iterdir()) + more
    resource.prlimit(running.broker.pid, resource.RLIMIT_FSIZE, (size, size))


def test_a_journal_that_cannot_be_written_ends_the_broker(running: Processes) -> None:
    """It says why; with the next one, when there is room, all goes on."""
    with running.open() as session:
        assert session.submit(abs, -1).result(WAIT_S) == 1
        let_journal_grow(running, 200_000)
        futures = [session.submit(len, b"x" * 10_000) for _ in range(100)]
        assert running.broker.wait(WAIT_S) == 7
        running.replace_broker()
        assert [future.result(WAIT_S) for future in futures] == [10_000] * 100
    assert "cannot be written: File too large" in (running.file.parent / "broker.log").read_text()


def test_a_client_learns_why_its_session_is_lost(running: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker comes back: futures fail with what the last one said."""
    monkeypatch.setattr(reconnection, "RECONNECT_S", 0.5)
    with running.open() as session:
        session.submit(abs, -1).result(WAIT_S)
        let_journal_grow(running, 200_000)
        futures = [session.submit(len, b"x" * 10_000) for _ in range(100)]
        assert running.broker.wait(WAIT_S) == 7
        found = futures[-1].exception(WAIT_S)
        assert isinstance(found, SessionLost)
        assert "cannot be written: File too large" in str(found)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_safety_nothing_is_lost_when_brokers_and_workers_die(running: Processes, seed: int) -> None:
    """Each result is there once, and right."""
    rng, over = random.Random(seed), threading.Event()

    def kill_now_and_then() -> None:
        for _ in range(6):
            if over.wait(rng.uniform(0.1, 0.5)):
                return
            if rng.random() < 0.5:
                running.replace_broker()
            elif victims := task_processes(running):
                os.kill(rng.choice(victims), signal.SIGKILL)

    killer = threading.Thread(target=kill_now_and_then)
    with running.open() as session:
        killer.start()
        try:
            while killer.is_alive():
                futures = [session.submit(lambda x: x * 3, number) for number in range(500)]
                assert list(session.map(lambda x: x * 2, range(5_000))) == list(range(0, 10_000, 2))
                assert [future.result(WAIT_S) for future in futures] == list(range(0, 1_500, 3))
        finally:
            over.set()
            killer.join()
