"""A session with real processes: a broker, two workers, this client."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, as_completed, wait
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hal.client.session import (
    Session,
    SessionLost,
    TaskLostError,
    TaskQuarantinedError,
    TaskTimeoutError,
    current_session,
    open_session,
)
from hal.core.model.errors import DeniedError, NotFoundError, SpecError, UnreachableError
from hal.runtime.session_file import new_session_file, read_session_file, write_session_file
from hal.runtime.task_context import InitializerError
from tests.client.sessions.processes import WAIT_S, Processes, processes

EXAMPLE = Path(__file__).parents[3] / "examples" / "sessions" / "primes.py"


@pytest.fixture(scope="module")
def running() -> Iterator[Processes]:
    with processes() as started:
        yield started


@pytest.fixture
def session(running: Processes) -> Iterator[Session]:
    with running.open() as opened:
        yield opened


def wait_for(path: Path) -> None:
    """Until the file is there."""
    deadline = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.005)


def hold(path: str, release: str) -> int:
    """Say that it runs, and wait until it may end; for tasks, by value."""
    import os.path
    import time

    with open(path, "w"):
        pass
    while not os.path.exists(release):
        time.sleep(0.005)
    return os.getpid()


def die_until(marker: str, times: int) -> str:
    """Kill the worker so many times."""
    import os
    import signal

    with open(marker, "ab") as file:
        file.write(b"x")
    if os.path.getsize(marker) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def test_a_call_returns_its_result(session: Session) -> None:
    """With positional and named arguments, lambdas, closures, and what they return."""
    base = 40
    assert session.submit(pow, 2, 5).result(WAIT_S) == 32
    assert session.submit(int, "ff", base=16).result(WAIT_S) == 255
    assert session.submit(lambda x: base + x, 2).result(WAIT_S) == 42
    assert session.submit(lambda: lambda x: x + base).result(WAIT_S)(1) == 41


def test_tasks_run_in_other_processes(session: Session) -> None:
    """Never in the client's."""
    assert os.getpid() not in set(session.map(lambda _: os.getpid(), range(100)))


def test_map_yields_the_results_in_order(session: Session) -> None:
    """Of more tasks than its window holds, from several iterables."""
    assert list(session.map(lambda x: -x, range(150_000))) == [-x for x in range(150_000)]
    assert list(session.map(pow, [2, 3, 4], [5, 2])) == [32, 9]
    assert list(session.map(pow, [], [])) == []


def test_map_takes_items_as_results_are_taken(session: Session) -> None:
    """An endless iterable is no problem, and what is left of it does not run."""
    assert list(islice(session.map(lambda x: x * x, count()), 5)) == [0, 1, 4, 9, 16]
    assert session.submit(lambda: "next").result(WAIT_S) == "next"


def test_futures_complete_as_their_tasks_end(session: Session) -> None:
    """As those of any executor."""
    futures = [session.submit(lambda x: x, number) for number in range(1_000)]
    assert sorted(future.result() for future in as_completed(futures, WAIT_S)) == list(range(1_000))
    assert not wait(futures, WAIT_S).not_done


def test_the_exception_of_a_task_is_its_own(session: Session) -> None:
    """It has the worker's traceback as its cause; tasks beside it have results."""
    futures = [session.submit(lambda x: 12 // x, number) for number in (1, 0, 3)]
    with pytest.raises(ZeroDivisionError) as caught:
        futures[1].result(WAIT_S)
    assert "12 // x" in str(caught.value.__cause__)
    assert [futures[0].result(WAIT_S), futures[2].result(WAIT_S)] == [12, 4]


def test_map_raises_where_the_failed_task_is(session: Session) -> None:
    """After the results before it."""
    results = session.map(divmod, [4, 4, 4], [2, 0, 1])
    assert next(results) == (2, 0)
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_exceptions_defined_by_the_client_come_back_as_themselves(running: Processes) -> None:
    """Classes of a script travel by value."""
    code = "\n".join(
        [
            "import sys; from hal.client.session import open_session",
            "class Odd(Exception): pass",
            "def check(x):",
            "    if x % 2: raise Odd(x)",
            "    return Point(x)",
            "class Point:",
            "    def __init__(self, x): self.x = x",
            "with open_session(sys.argv[1]) as s:",
            "    assert type(s.submit(check, 2).result()) is Point",
            "    assert s.submit(lambda p: p.x, Point(7)).result() == 7",
            "    try: s.submit(check, 3).result()",
            "    except Odd as odd: print(odd.args)",
        ]
    )
    argv = [sys.executable, "-c", code, str(running.file)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S)
    assert (ended.stdout, ended.stderr) == ("(3,)\n", "")


def test_arrays_travel_out_of_band(session: Session) -> None:
    """In both directions."""
    array = np.arange(10_000.0)
    assert (session.submit(lambda a: a * 2, array).result(WAIT_S) == array * 2).all()


LARGE = 2 << 20
"""Bytes of a payload that is a file."""


def exchanged_files(running: Processes) -> list[Path]:
    """What large payloads have left in the session's directory, which its broker holds by a lock."""
    directory = Path(f"/dev/shm/hal-session-{read_session_file(running.file).id}")
    return [path for path in directory.iterdir() if path.name != "broker.lock"]


def wait_until_empty(running: Processes) -> None:
    """Until there are no payloads."""
    deadline_s = time.monotonic() + WAIT_S
    while left := exchanged_files(running):
        assert time.monotonic() < deadline_s, left
        time.sleep(0.01)


def test_what_tasks_of_a_lost_client_write_goes(running: Processes, tmp_path: Path) -> None:
    """A task goes on when its client is gone, and then has a large result."""
    begun, gate = tmp_path / "begun", tmp_path / "gate"

    def late() -> bytes:
        begun.touch()
        while not gate.exists():
            time.sleep(0.01)
        return bytes(LARGE)

    lost = running.open()
    lost.submit(late)
    while not begun.exists():
        time.sleep(0.01)
    lost._core._link.close()
    with running.open() as session:
        gate.touch()
        seen = session.submit(lambda: None)
        while not seen.done() or session.numbers().busy:
            time.sleep(0.01)
    wait_until_empty(running)


def test_large_results_of_an_abandoned_map_go(running: Processes) -> None:
    """Those that have come, and those that come later, while their client goes on."""
    with running.open() as session:
        results = session.map(lambda x: bytes(LARGE + x), range(20))
        assert len(next(results)) == LARGE
        results.close()
        assert list(session.map(abs, range(-100, 0))) == list(range(100, 0, -1))
        session.submit(abs, -1).result(WAIT_S)
        wait_until_empty(running)


def test_results_come_while_a_function_is_pickled(running: Processes) -> None:
    """Code of the user's own runs then, which here waits for tasks of the same session."""

    class Asks:
        def __reduce__(self) -> tuple[type[int], tuple[int]]:
            (found,) = session.map(abs, [-7])
            return int, (found + session.submit(abs, -3).result(WAIT_S),)

    asks = Asks()
    with running.open() as session:
        assert session.submit(lambda: asks).result(WAIT_S) == 10
        assert list(session.map(lambda x: (x, asks), [1, 2])) == [(1, 10), (2, 10)]


def test_large_arguments_and_results_travel_as_files(running: Processes) -> None:
    """Which are gone afterwards; arrays are writable there and here."""

    def double(array: Any, text: bytes) -> Any:
        array *= 2
        return array, len(text)

    array = np.arange(1_000_000.0)
    with running.open() as session:
        doubled, length = session.submit(double, array, bytes(3 << 20)).result(WAIT_S)
        doubled[0] = 7
        assert (doubled[1:] == array[1:] * 2).all()
        assert length == 3 << 20
        assert list(session.map(len, [bytes(2 << 20), b"", bytes(3 << 20)])) == [2 << 20, 0, 3 << 20]
        assert array[1] == 1
        assert exchanged_files(running) == []


def test_files_of_a_client_that_died_are_removed(running: Processes, tmp_path: Path) -> None:
    """Once the broker sees that it is gone."""
    code = "\n".join(
        [
            "import os, sys, time; from hal.client.session import open_session",
            "session = open_session(sys.argv[1])",
            "session.put(bytes(5 << 20)); session.submit(len, bytes(5 << 20)); os._exit(0)",
        ]
    )
    subprocess.run([sys.executable, "-c", code, str(running.file)], timeout=WAIT_S, check=True)
    with running.open() as session:
        deadline = time.monotonic() + WAIT_S
        while exchanged_files(running):
            assert time.monotonic() < deadline
            session.submit(abs, 1).result(WAIT_S)


def test_shared_values_are_sent_once(session: Session) -> None:
    """Small and large ones, as arguments, inside of them, in closures and in a map."""
    small, large = session.put({"base": 40}), session.put(np.ones(1_000_000))
    assert session.submit(lambda value, x: value["base"] + x, small, 2).result(WAIT_S) == 42
    assert session.submit(lambda values: values[0].sum() + len(values[1]), [large, small]).result(WAIT_S) == 1_000_001
    assert session.submit(lambda: large.sum()).result(WAIT_S) == 1_000_000
    assert list(session.map(lambda pair: pair[0]["base"] + pair[1], ((small, x) for x in range(3)))) == [40, 41, 42]


def test_an_updated_value_is_seen_by_later_tasks(session: Session) -> None:
    """Tasks before it see the former one."""
    shared = session.put("a")
    futures = []
    for letter in "bcdefgh":
        futures += [session.submit(str.upper, shared) for _ in range(20)]
        session.update(shared, letter)
    assert "".join(future.result(WAIT_S) for future in futures) == "".join(letter * 20 for letter in "ABCDEFG")


def test_a_replaced_value_is_dropped_when_no_task_needs_it(running: Processes) -> None:
    """Its file, too."""
    with running.open() as session:
        shared = session.put(bytes(2 << 20))
        for size in (3, 4):
            assert session.submit(len, shared).result(WAIT_S) == (size - 1) << 20
            session.update(shared, bytes(size << 20))
        assert session.submit(len, shared).result(WAIT_S) == 4 << 20
        assert [path.stat().st_size >> 20 for path in exchanged_files(running)] == [4]


def test_a_shared_value_is_only_there_in_tasks(session: Session) -> None:
    """In the client it is its reference."""
    with pytest.raises(RuntimeError, match="only there in the tasks"):
        pickle.loads(pickle.dumps(session.put(1)))


def test_a_shared_value_of_another_client_fails_its_task(running: Processes, session: Session) -> None:
    """And no other."""
    with running.open() as other:
        foreign = other.put("text")
        assert "another client" in str(session.submit(len, foreign).exception(WAIT_S))
    assert session.submit(len, "ab").result(WAIT_S) == 2


def test_futures_as_arguments_are_their_results(session: Session, tmp_path: Path) -> None:
    """Of tasks that have not ended, too; the task runs once all are there."""
    release = tmp_path / "release"
    held = session.submit(hold, str(tmp_path / "began"), str(release))
    total = session.submit(lambda *numbers, scale: sum(numbers) * scale, 1, session.submit(abs, -2), scale=10)
    later = session.submit(lambda pid, number: pid > 0 and number, held, total)
    assert total.result(WAIT_S) == 30
    assert not later.done()
    release.touch()
    assert later.result(WAIT_S) == 30


def test_a_chain_of_a_thousand_tasks_ends(session: Session) -> None:
    """Each waits for the one before it; shutting down waits for all."""
    future: Future[int] = session.submit(abs, 0)
    for _ in range(1_000):
        future = session.submit(lambda number: number + 1, future)
    session.shutdown()
    assert future.result(WAIT_S) == 1_000


def test_a_future_that_fails_fails_what_waits_for_it(session: Session) -> None:
    """With the same exception."""
    failing = session.submit(divmod, 1, 0)
    assert isinstance(session.submit(abs, failing).exception(WAIT_S), ZeroDivisionError)
    waiting: Future[int] = Future()
    dependent = session.submit(abs, waiting)
    assert dependent.cancel()
    waiting.set_result(1)
    assert dependent.cancelled()


def fibonacci(number: int) -> int:
    """Each call a task of its own."""
    if number < 2:
        return number
    from hal.client.session import current_session

    session = current_session()
    one, other = session.submit(fibonacci, number - 1), session.submit(fibonacci, number - 2)
    return int(one.result()) + int(other.result())


def sum_of_squares(count: int) -> int:
    from hal.client.session import current_session

    return sum(current_session().map(lambda x: x * x, range(count)))


@pytest.mark.parametrize("depth", [10, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_a_task_that_waits_for_its_tasks_gives_its_slot_back(session: Session, depth: int) -> None:
    """Recursion far deeper than there are slots ends."""
    expected = {10: 55, 20: 6_765}[depth]
    assert session.submit(fibonacci, depth).result(20 * WAIT_S) == expected


def test_tasks_may_map(session: Session) -> None:
    """More of them than there are slots, all waiting."""
    assert list(session.map(sum_of_squares, [100] * 20)) == [328_350] * 20


def test_only_tasks_have_a_session_of_their_own(session: Session) -> None:
    """The client opens one."""
    with pytest.raises(RuntimeError, match="only a task"):
        current_session()


def test_a_task_that_runs_too_long_is_ended(session: Session) -> None:
    """It fails; those beside it, and those after it in the same slot, have results."""

    def either(number: int) -> int:
        while number == 13:
            pass
        return number

    limited = session.options(timeout=0.3)
    futures = [limited.submit(either, number) for number in range(26)]
    assert isinstance(futures[13].exception(WAIT_S), TaskTimeoutError)
    assert [future.result(WAIT_S) for future in futures if future is not futures[13]] == [*range(13), *range(14, 26)]


def test_an_initializer_runs_before_the_first_task_of_a_process(running: Processes) -> None:
    """Once in each, for this client."""

    def begin(words: list[str]) -> None:
        import builtins

        builtins.words = [*getattr(builtins, "words", []), *words]  # type: ignore[attr-defined]

    def words() -> list[str]:
        import builtins

        return list(builtins.words)  # type: ignore[attr-defined]

    with open_session(running.file, initializer=begin, initargs=(["begun"],)) as session:
        futures = [session.submit(words) for _ in range(50)]
        assert {tuple(future.result(WAIT_S)) for future in futures} == {("begun",)}


def test_an_initializer_that_fails_fails_the_tasks(running: Processes) -> None:
    """Of its client alone."""
    with open_session(running.file, initializer=lambda: 1 // 0) as session, running.open() as other:
        assert isinstance(session.submit(len, "x").exception(WAIT_S), InitializerError)
        assert other.submit(len, "x").result(WAIT_S) == 1


def test_an_argument_that_cannot_be_pickled_fails_its_own_task(session: Session) -> None:
    """So does a result."""
    lock = threading.Lock()
    failing = [session.submit(lambda x: x, lock), session.submit(lambda: threading.Lock())]
    good = session.submit(lambda: "good")
    assert [type(future.exception(WAIT_S)) for future in failing] == [TypeError, TypeError]
    assert good.result(WAIT_S) == "good"


def test_an_item_of_a_map_that_cannot_be_pickled_has_its_place(session: Session) -> None:
    """After the results before it."""
    results = session.map(lambda x: 1, [1, 2, threading.Lock()])
    assert [next(results), next(results)] == [1, 1]
    with pytest.raises(TypeError, match="pickle"):
        next(results)


@pytest.mark.parametrize(
    "harm",
    [
        lambda: sys.exit(3),
        lambda: os.fork() and os.wait(),
        lambda: print("x" * (4 << 20)),
        lambda: (_ for _ in ()).throw(KeyboardInterrupt),
    ],
    ids=["exits", "forks", "prints", "interrupts"],
)
def test_what_a_task_does_harms_no_other(session: Session, harm: Any) -> None:
    """Its own future has what became of it."""
    before, harmful, after = session.submit(len, "ab"), session.submit(harm), session.submit(len, "abc")
    wait([harmful], WAIT_S)
    assert harmful.done()
    assert [before.result(WAIT_S), after.result(WAIT_S)] == [2, 3]


def test_a_task_that_closes_all_descriptors_is_answered(session: Session) -> None:
    """Its worker is replaced, and other tasks run."""
    others = [session.submit(len, "ab") for _ in range(50)]
    harmful = session.submit(lambda: os.closerange(3, 1_000))
    assert isinstance(harmful.exception(WAIT_S), TaskQuarantinedError)
    assert {future.result(WAIT_S) for future in others} == {2}


def test_a_task_whose_worker_dies_runs_again(session: Session, tmp_path: Path) -> None:
    """Its worker is replaced at once."""
    assert session.submit(die_until, str(tmp_path / "deaths"), 2).result(WAIT_S) == "alive"
    assert (tmp_path / "deaths").stat().st_size == 3


def test_a_task_that_kills_its_workers_is_quarantined(session: Session, tmp_path: Path) -> None:
    """Those beside it have results."""
    futures = [session.submit(len, "x" * size) for size in range(200)]
    poison = session.submit(die_until, str(tmp_path / "deaths"), 1_000)
    futures += [session.submit(len, "x" * size) for size in range(200, 400)]
    with pytest.raises(TaskQuarantinedError):
        poison.result(WAIT_S)
    assert [future.result(WAIT_S) for future in futures] == list(range(400))


def test_a_task_that_may_run_once_is_not_repeated(session: Session, tmp_path: Path) -> None:
    """It fails when its worker dies."""
    future = session.options(once=True).submit(die_until, str(tmp_path / "deaths"), 1)
    with pytest.raises(TaskLostError):
        future.result(WAIT_S)
    assert (tmp_path / "deaths").stat().st_size == 1


def test_a_task_that_raises_runs_as_often_as_it_may(session: Session, tmp_path: Path) -> None:
    """The last exception is the future's."""

    def count_calls(path: str, good: int) -> int:
        with open(path, "ab") as file:
            file.write(b"x")
        calls = os.path.getsize(path)
        if calls < good:
            raise ValueError(calls)
        return calls

    patient = session.options(attempts=3)
    assert patient.submit(count_calls, str(tmp_path / "a"), 3).result(WAIT_S) == 3
    with pytest.raises(ValueError, match="3"):
        patient.submit(count_calls, str(tmp_path / "b"), 9).result(WAIT_S)


def test_no_task_waits_behind_a_long_one(session: Session, tmp_path: Path) -> None:
    """Those that were sent to its slot move to the other one."""
    marks = [str(tmp_path / name) for name in ("began", "release")]

    def either(number: int) -> int:
        return hold(*marks) if number == 0 else -number

    list(session.map(either, range(1, 2_000)))  # it is known to be short
    long = session.submit(either, 0)
    wait_for(tmp_path / "began")
    assert list(session.map(either, range(1, 5_000))) == [-number for number in range(1, 5_000)]
    assert not long.done()
    (tmp_path / "release").touch()
    assert long.result(WAIT_S) > 0


def test_a_task_that_waits_can_be_cancelled_and_one_that_runs_cannot(session: Session, tmp_path: Path) -> None:
    """The broker says which."""
    release = str(tmp_path / "release")
    running = [session.submit(hold, str(tmp_path / str(number)), release) for number in range(2)]
    for number in range(2):
        wait_for(tmp_path / str(number))
    waiting = [session.submit(hold, str(tmp_path / "never"), release) for _ in range(3)]
    assert waiting[1].cancel()
    assert not running[0].cancel()
    with pytest.raises(CancelledError):
        waiting[1].result(WAIT_S)
    (tmp_path / "release").touch()
    assert waiting[2].result(WAIT_S)
    assert waiting[1].cancelled()


def test_shutdown_waits_for_what_was_submitted(running: Processes) -> None:
    """Nothing is accepted after it."""
    session = running.open()
    futures = [session.submit(lambda x: x, number) for number in range(500)]
    session.shutdown()
    assert all(future.done() for future in futures)
    with pytest.raises(RuntimeError, match="after shutdown"):
        session.submit(len, "x")
    with pytest.raises(RuntimeError, match="after shutdown"):
        session.map(len, ["x"])


def test_shutdown_can_cancel_what_waits(running: Processes, tmp_path: Path) -> None:
    """What runs ends."""
    session = running.open()
    release = tmp_path / "release"
    began = [session.submit(hold, str(tmp_path / str(number)), str(release)) for number in range(2)]
    for number in range(2):
        wait_for(tmp_path / str(number))
    waiting = [session.submit(hold, str(tmp_path / "never"), str(release)) for _ in range(20)]
    session.shutdown(wait=False, cancel_futures=True)
    wait(waiting, WAIT_S)
    assert all(future.cancelled() for future in waiting)
    release.touch()
    assert all(future.result(WAIT_S) for future in began)


def test_two_clients_share_the_slots(running: Processes) -> None:
    """Each gets its own results."""
    with running.open() as one, running.open() as other:
        ours, theirs = one.map(lambda x: x + 1, range(20_000)), other.map(lambda x: x + 2, range(20_000))
        assert all(first + 1 == second for first, second in zip(ours, theirs, strict=True))


def test_losing_the_broker_fails_all_that_is_unfinished(tmp_path: Path) -> None:
    """No future hangs, and nothing more is accepted."""
    with processes(workers=1) as started:
        session = started.open()
        futures: list[Future[int]] = [session.submit(hold, str(tmp_path / "began"), "/nowhere") for _ in range(300)]
        results = session.map(hold, [str(tmp_path / "m")] * 10, ["/nowhere"] * 10)
        wait_for(tmp_path / "began")
        started.broker.kill()
        assert {type(future.exception(WAIT_S)) for future in futures} == {SessionLost}
        with pytest.raises(SessionLost):
            next(results)
        with pytest.raises(SessionLost):
            session.submit(len, "x")
        session.shutdown()


def test_workers_end_with_the_session() -> None:
    """In order: exit code 0 of all."""
    with processes() as started:
        with started.open() as session:
            list(session.map(abs, range(10)))
        started.broker.send_signal(signal.SIGTERM)
        assert [process.wait(WAIT_S) for process in (started.broker, *started.workers)] == [0, 0, 0]


def test_a_broker_ends_when_nobody_uses_it() -> None:
    """After the time in its file; its workers with it. Those whose tasks have submitted tasks are no clients."""
    with processes(linger_s=1) as started:
        with started.open() as session:
            assert session.submit(sum_of_squares, 3).result(WAIT_S) == 5
        assert [process.wait(WAIT_S) for process in (started.broker, *started.workers)] == [0, 0, 0]


def test_only_who_has_the_token_is_served(running: Processes, tmp_path: Path) -> None:
    """Being the same user is not enough."""
    stranger = replace(read_session_file(running.file), token="0" * 64)
    with pytest.raises(DeniedError, match="token"):
        open_session(stranger)
    write_session_file(tmp_path / "s.json", stranger)
    argv = [sys.executable, "-m", "hal.daemons.worker", "--session", str(tmp_path / "s.json")]
    assert subprocess.run(argv, capture_output=True, timeout=WAIT_S).returncode == 2


def test_a_session_file_is_checked(tmp_path: Path) -> None:
    """Missing, open to others, no JSON; no broker there."""
    path = tmp_path / "s.json"
    with pytest.raises(NotFoundError):
        open_session(path)
    write_session_file(path, new_session_file(tmp_path))
    path.chmod(0o644)
    with pytest.raises(DeniedError):
        open_session(path)
    path.chmod(0o600)
    path.write_text("{}")
    with pytest.raises(SpecError):
        open_session(path)
    with pytest.raises(UnreachableError):
        open_session(new_session_file(tmp_path))


def test_options_out_of_range_are_refused(session: Session) -> None:
    """Before anything is sent."""
    with pytest.raises(SpecError):
        session.options(priority=1_001)
    with pytest.raises(SpecError):
        session.options(attempts=0)
    with pytest.raises(SpecError):
        session.options(timeout=-1)


def test_the_example_counts_primes(running: Processes) -> None:
    """As its page shows it."""
    argv = [sys.executable, str(EXAMPLE), str(running.file), "10000"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S)
    assert (ended.stdout, ended.stderr) == ("1229 primes below 10000\n", "")


def test_a_client_imports_no_numpy() -> None:
    """Neither does a worker by itself."""
    code = "import sys, hal.client.session, hal.daemons.worker.worker; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_a_broker_starts_without_numpy_and_rich() -> None:
    """They took half of the time in which a session opens; what asks for rich itself still has it."""
    code = "import sys, hal.daemons.broker.__main__; print({'numpy', 'rich'} & set(sys.modules)); import rich"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
