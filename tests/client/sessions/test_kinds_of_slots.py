"""Real workers of several shapes, with several threads, with a bound of memory, and with state by key."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from concurrent.futures import wait
from pathlib import Path

import pytest

from hal.client.session import Session, current_session, key_state, open_session
from hal.client.sessions.errors import TaskTimeoutError
from hal.core.model.errors import SpecError
from hal.runtime.worker_process import EXIT_GIVEN_UP
from tests.client.sessions.processes import WAIT_S, Processes, processes


def count_up(by: int = 1) -> tuple[int, int]:
    """The count of this key, and the process that has it."""
    state = key_state()
    state["count"] = state.get("count", 0) + by
    return state["count"], os.getpid()


def test_a_key_keeps_its_state_in_one_worker() -> None:
    """Two counters over two workers, twenty calls each, in order."""
    with processes(workers=2) as started, started.open() as session:
        futures = {key: [session.options(key=key).submit(count_up) for _ in range(20)] for key in ("a", "b")}
        for found in futures.values():
            results = [future.result(WAIT_S) for future in found]
            assert [count for count, _ in results] == list(range(1, 21))
            assert len({pid for _, pid in results}) == 1
        with pytest.raises(RuntimeError, match="only a task with a key"):
            session.submit(key_state).result(WAIT_S)


@pytest.mark.slow
def test_a_key_begins_anew_with_another_worker() -> None:
    with processes(workers=1) as started, started.open() as session:
        counter = session.options(key="a")
        assert counter.submit(count_up).result(WAIT_S)[0] == 1
        assert counter.submit(count_up).result(WAIT_S)[0] == 2
        with pytest.raises(Exception, match="workers ended while it ran"):
            counter.submit(os._exit, 1).result(WAIT_S)
        assert counter.submit(count_up).result(WAIT_S)[0] == 1


def add_to_counter(key: str) -> int:
    """A task that calls an actor."""
    return int(current_session().options(key=key).submit(count_up).result()[0])


def test_tasks_of_several_clients_share_a_key() -> None:
    """Two programs, and tasks in whatever worker."""
    with processes(workers=2) as started, started.open() as one, started.open() as other:
        futures = [session.submit(add_to_counter, "a") for session in (one, other) for _ in range(10)]
        assert sorted(future.result(WAIT_S) for future in futures) == list(range(1, 21))
        assert other.options(key="a").submit(count_up).result(WAIT_S)[0] == 21


def test_a_map_with_a_key_runs_in_order_in_one_worker() -> None:
    with processes(workers=2) as started, started.open() as session:
        found = list(session.options(key="a").map(count_up, [1] * 500))
        assert [count for count, _ in found] == list(range(1, 501))
        assert len({pid for _, pid in found}) == 1


def test_tasks_name_the_shape_of_their_slot() -> None:
    """And wait until there is one, while others run."""
    with processes(workers=1, shapes=("gpu",)) as started, started.open() as session:
        on_gpu = session.options(shape="gpu")
        waits = on_gpu.submit(os.getpid)
        plain = {future.result(WAIT_S) for future in [session.submit(os.getpid) for _ in range(20)]}
        assert not waits.done()
        started.add_worker("--shape", "gpu")
        assert waits.result(WAIT_S) not in plain
        assert set(on_gpu.map(lambda _number: os.getpid(), range(100))) == {waits.result()}
        with pytest.raises(SpecError, match="no slots of shape 'tpu'"):
            session.options(shape="tpu")


def meet(directory: str, parties: int) -> int:
    """Wait until as many tasks run as are to meet; returns the process."""
    Path(directory, f"{threading.get_ident()}").touch()
    deadline_s = time.monotonic() + WAIT_S
    while len(os.listdir(directory)) < parties:
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    return os.getpid()


def with_threads(started: Processes, threads: int) -> Session:
    started.add_worker("--threads", str(threads))
    return started.open()


def test_a_worker_with_threads_runs_several_tasks_at_once_in_one_process(tmp_path: Path) -> None:
    with processes(workers=0) as started, with_threads(started, 4) as session:
        futures = [session.submit(meet, str(tmp_path), 4) for _ in range(4)]
        assert len({future.result(WAIT_S) for future in futures}) == 1
        assert list(session.map(abs, range(-20_000, 0))) == list(range(20_000, 0, -1))


def fibonacci(number: int) -> int:
    if number < 2:
        return number
    session = current_session()
    one, other = session.submit(fibonacci, number - 1), session.submit(fibonacci, number - 2)
    return int(one.result()) + int(other.result())


def test_tasks_of_tasks_run_in_threads(tmp_path: Path) -> None:
    with processes(workers=0) as started, with_threads(started, 3) as session:
        assert session.submit(fibonacci, 10).result(WAIT_S) == 55


def test_threads_share_values_that_many_tasks_need() -> None:
    """It is read once in their process, and forgotten when it is replaced."""
    with processes(workers=0) as started, with_threads(started, 4) as session:
        shared = session.put([1, 2, 3])
        assert len(set(session.map(lambda _number, value: id(value), range(200), [shared] * 200))) == 1
        session.update(shared, [4])
        assert session.submit(sum, shared).result(WAIT_S) == 4


@pytest.mark.slow
def test_a_worker_with_threads_that_dies_is_replaced_with_all_of_them(tmp_path: Path) -> None:
    with processes(workers=0) as started, with_threads(started, 2) as session:
        pid = session.submit(os.getpid).result(WAIT_S)
        others = [session.submit(time.sleep, 0.05) for _ in range(8)]
        os.kill(pid, 9)
        assert wait(others, WAIT_S).not_done == set()
        futures = [session.submit(meet, str(tmp_path), 2) for _ in range(2)]
        assert {future.result(WAIT_S) for future in futures} != {pid}


@pytest.mark.slow
def test_a_task_that_takes_too_long_ends_beside_others(tmp_path: Path) -> None:
    """Four times; the one beside it runs to its end, however often it has to begin again."""
    with processes(workers=0) as started, with_threads(started, 2) as session:
        beside = session.submit(time.sleep, 2.0)
        for _ in range(4):
            with pytest.raises(TaskTimeoutError):
                session.options(timeout=0.1).submit(time.sleep, 3_600).result(WAIT_S)
        assert beside.result(WAIT_S) is None


KEPT: list[bytearray] = []


def leak(size: int) -> int:
    from tests.client.sessions import test_kinds_of_slots

    test_kinds_of_slots.KEPT.append(bytearray(b"x") * size)
    time.sleep(0.05)
    return os.getpid()


@pytest.mark.slow
def test_a_worker_that_leaks_is_replaced_between_tasks() -> None:
    """200 tasks leave 10 MiB each behind; no worker has more than 300 MiB, each task ran once, and nothing failed."""
    with processes(workers=0) as started, started.open() as session:
        worker = started.add_worker("--most-memory", str(200 << 20))
        futures = [session.options(once=True).submit(leak, 10 << 20) for _ in range(60)]
        ran = Counter(future.result(WAIT_S) for future in futures)
        assert len(ran) >= 2
        assert max(ran.values()) < 40
        assert worker.poll() != EXIT_GIVEN_UP
        assert session.failures() == []


def remembered() -> object:
    return REMEMBERED


def remember(value: object) -> None:
    global REMEMBERED
    REMEMBERED = value


REMEMBERED: object = None


def ask_others(parties: int) -> list[object]:
    from tests.client.sessions import test_kinds_of_slots as here

    session = current_session()
    return [future.result() for future in [session.submit(here.remembered) for _ in range(parties)]]


def test_tasks_of_tasks_find_what_the_initialiser_of_their_client_did() -> None:
    """In whatever worker they run, although another client there has another one."""
    from tests.client.sessions import test_kinds_of_slots as here

    with (
        processes(workers=2) as started,
        open_session(started.file, initializer=here.remember, initargs=("it",)) as session,
    ):
        found = [session.submit(here.ask_others, 10).result(WAIT_S) for _ in range(5)]
        assert found == [["it"] * 10] * 5
