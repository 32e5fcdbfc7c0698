"""Workers that are told to leave, by a signal or by the broker: what they have begun is done, and nothing is lost."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

from hal.client.sessions.broker_connection import connect
from hal.client.sessions.demand import Overseer, Wanted
from hal.client.sessions.errors import SessionLost
from hal.core.model.errors import ConflictError
from hal.daemons.worker.worker import EXIT_LEFT
from hal.runtime.session_file import read_session_file
from hal.wire.frames.sessions import RetireSlots
from tests.client.sessions.processes import WAIT_S, OneGroup, Processes, processes


def nap(begun: str, number: int) -> int:
    """Say that it has begun, and take a while."""
    Path(begun).touch()
    time.sleep(0.5)
    return number


def until(seen: Path) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not seen.exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def wait_for_slots(started: Processes, count: int) -> None:
    overseer = Overseer(read_session_file(started.file))
    deadline_s = time.monotonic() + WAIT_S
    while (found := overseer.numbers()) is None or found.slots != count:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_worker_that_gets_a_signal_ends_its_task_first(tmp_path: Path) -> None:
    """Its task may run only once, and has its result; those behind it run in the worker that comes."""
    with processes(workers=1) as started, started.open() as session:
        once = session.options(once=True)
        first = once.submit(nap, str(tmp_path / "begun"), 1)
        others = [once.submit(abs, -number) for number in range(50)]
        until(tmp_path / "begun")
        started.workers[0].send_signal(signal.SIGTERM)
        assert first.result(WAIT_S) == 1
        assert started.workers[0].wait(WAIT_S) == EXIT_LEFT
        started.add_worker()
        assert [future.result(WAIT_S) for future in others] == list(range(50))


def test_an_idle_worker_that_gets_a_signal_leaves() -> None:
    with processes(workers=1) as started:
        wait_for_slots(started, 1)
        started.workers[0].send_signal(signal.SIGTERM)
        assert started.workers[0].wait(WAIT_S) == EXIT_LEFT


def test_a_retired_worker_gives_its_place_back() -> None:
    """One of two; the other goes on."""
    with processes(workers=2) as started, started.open() as session:
        wait_for_slots(started, 2)
        link, _ = connect(read_session_file(started.file))
        link.send(RetireSlots(keep=1))
        wait_for_slots(started, 1)
        assert session.submit(pow, 2, 10).result(WAIT_S) == 1024
        ended = [worker for worker in started.workers if worker.poll() is not None]
        deadline_s = time.monotonic() + WAIT_S
        while not ended:
            assert time.monotonic() < deadline_s
            ended = [worker for worker in started.workers if worker.poll() is not None]
        assert [worker.returncode for worker in ended] == [EXIT_LEFT]
        link.close()


def test_a_session_that_a_client_ends_is_over_for_everybody() -> None:
    """Broker and workers end in order."""
    with processes(workers=1) as started:
        wait_for_slots(started, 1)
        Overseer(read_session_file(started.file)).end()
        assert [process.wait(WAIT_S) for process in (started.broker, *started.workers)] == [0, 0]


def test_a_worker_of_a_session_that_is_over_has_nothing_to_do() -> None:
    """Its file is gone: exit code 0, which ends the job of the slots."""
    with processes(workers=0) as started:
        text = started.file.read_text()
        started.file.unlink()
        worker = started.add_worker()
        assert worker.wait(WAIT_S) == 0
        started.file.write_text(text)


def test_a_worker_whose_broker_died_ends_its_task_on_a_signal_at_once(tmp_path: Path) -> None:
    """Nobody waits for the result."""
    with processes(workers=1) as started:
        session = started.open()
        session.submit(nap_long, str(tmp_path / "begun"))
        until(tmp_path / "begun")
        started.broker.kill()
        started.broker.wait(WAIT_S)
        started.workers[0].send_signal(signal.SIGTERM)
        assert started.workers[0].wait(WAIT_S) == EXIT_LEFT
        session.shutdown(wait=False)


def nap_long(begun: str) -> None:
    """Say that it has begun, and take longer than anybody waits."""
    Path(begun).touch()
    time.sleep(10 * WAIT_S)


def test_a_session_wants_as_many_slots_as_a_limit_allows() -> None:
    """Of ten, three: five are tried on the way."""
    asked: list[int] = []
    enough = threading.Event()

    def want(count: int) -> None:
        asked.append(count)
        if count > 4:
            raise ConflictError("limit 'few' allows user 'ann' 3 waiting tasks")
        enough.set()

    with processes(workers=0) as started:
        session = started.open()
        futures = [session.submit(abs, number) for number in range(40)]
        overseer = Overseer(read_session_file(started.file), [OneGroup(Wanted(1, 10), want)])
        overseer.begin()
        assert enough.wait(WAIT_S)
        assert asked[:3] == [10, 5, 3]
        overseer.end()
        assert all(isinstance(future.exception(WAIT_S), SessionLost) for future in futures)
