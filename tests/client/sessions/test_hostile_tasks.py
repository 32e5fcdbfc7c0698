"""Tasks that harm the process they run in: each is answered, and those before, beside and after it have results."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal.client.session import Session, TaskError, TaskLostError, TaskQuarantinedError, open_session
from tests.client.sessions.processes import WAIT_S, Processes, processes

LARGE_BYTES = 200 << 20


@pytest.fixture(scope="module")
def running() -> Iterator[Processes]:
    with processes() as started:
        yield started


@pytest.fixture
def session(running: Processes) -> Iterator[Session]:
    with running.open() as opened:
        yield opened


@pytest.fixture
def alone() -> Iterator[Session]:
    """A session of one worker: what a task leaves behind is met by the next one."""
    with processes(workers=1) as started, started.open() as opened:
        yield opened


def outcome_beside(session: Session, harm: Callable[..., Any], *arguments: Any) -> BaseException | None:
    """What becomes of a harmful task; tasks before and after it have their results."""
    before = [session.submit(len, "x" * size) for size in range(20)]
    harmful = session.submit(harm, *arguments)
    after = [session.submit(len, "x" * size) for size in range(20)]
    for futures in (before, after):
        assert [future.result(WAIT_S) for future in futures] == list(range(20))
    return harmful.exception(WAIT_S)


class CannotBeText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class ExitsWhenRead:
    """Whoever unpickles it calls `sys.exit`."""

    def __reduce__(self) -> Any:
        return sys.exit, (3,)


class ExitsWhenWritten:
    def __reduce__(self) -> Any:
        sys.exit(4)


class ReadAsAnExit(Exception):
    def __reduce__(self) -> Any:
        return sys.exit, (5,)


def raise_it(kind: type[BaseException]) -> None:
    raise kind


def test_a_result_of_200_mb_arrives(session: Session) -> None:
    """As one whose place in memory is a file; nothing else waits for it."""
    large = session.submit(lambda size: np.full(size, 7, np.uint8), LARGE_BYTES)
    assert session.submit(len, "ab").result(WAIT_S) == 2
    array = large.result(WAIT_S)
    assert (len(array), int(array[0]), int(array[-1])) == (LARGE_BYTES, 7, 7)


def test_an_argument_of_200_mb_arrives(session: Session) -> None:
    """Likewise."""
    assert session.submit(len, bytes(LARGE_BYTES)).result(WAIT_S) == LARGE_BYTES


@pytest.mark.parametrize("end", [os._exit, os.abort], ids=["exits", "aborts"])
def test_a_task_that_ends_its_process_is_quarantined(session: Session, end: Callable[..., Any]) -> None:
    """After three workers."""
    arguments = (0,) if end is os._exit else ()
    assert isinstance(outcome_beside(session, end, *arguments), TaskQuarantinedError)


def test_once_is_once_for_a_task_that_ends_its_process(session: Session) -> None:
    """It is lost with its first worker."""
    assert isinstance(session.options(once=True).submit(os._exit, 0).exception(WAIT_S), TaskLostError)


def test_an_exception_without_a_text_is_reported(session: Session) -> None:
    """The worker lives on."""
    assert isinstance(outcome_beside(session, raise_it, CannotBeText), CannotBeText)


def test_an_exception_that_cannot_be_read_back_is_reported_as_text(session: Session) -> None:
    """Reading it would end the worker, and the client."""
    error = outcome_beside(session, raise_it, ReadAsAnExit)
    assert isinstance(error, TaskError)
    assert "ReadAsAnExit" in str(error)


def test_a_result_that_ends_whoever_reads_it_fails_its_own_future(session: Session) -> None:
    """The client goes on."""
    assert isinstance(outcome_beside(session, ExitsWhenRead), SystemExit)


def test_a_result_that_ends_whoever_writes_it_fails_its_own_future(session: Session) -> None:
    """The worker goes on."""
    assert isinstance(outcome_beside(session, ExitsWhenWritten), SystemExit)


def test_a_callback_that_exits_harms_no_future(session: Session) -> None:
    """It runs in the client's thread that receives results."""
    first = session.submit(len, "ab")
    first.add_done_callback(lambda _future: sys.exit(3))
    others = [session.submit(len, "x" * size) for size in range(50)]
    assert [future.result(WAIT_S) for future in (first, *others)] == [2, *range(50)]


def test_a_task_that_forks_and_lets_its_child_work_is_answered_once(session: Session, tmp_path: Path) -> None:
    """The child reports nothing, whether it returns or raises."""

    def fork(path: str, *, fails: bool) -> str:
        if not os.fork():
            open(path, "w").close()
            if fails:
                raise ValueError
            return "child"
        os.wait()
        return "parent"

    for fails in (False, True):
        path = tmp_path / str(fails)
        assert session.submit(fork, str(path), fails=fails).result(WAIT_S) == "parent"
        assert path.exists()


def test_a_thread_that_outlives_its_task_harms_nobody(alone: Session, tmp_path: Path) -> None:
    """It goes on beside other tasks, and the worker can end while it runs."""

    def leave_a_thread(path: str) -> None:
        import threading
        import time

        def work() -> None:
            while not os.path.exists(path):
                time.sleep(0.01)
            open(path + ".seen", "w").close()
            while True:
                time.sleep(0.01)

        threading.Thread(target=work, daemon=False).start()

    alone.submit(leave_a_thread, str(tmp_path / "go")).result(WAIT_S)
    assert list(alone.map(abs, range(1_000))) == list(range(1_000))
    (tmp_path / "go").touch()
    while not (tmp_path / "go.seen").exists():
        assert alone.submit(len, "ab").result(WAIT_S) == 2


def state_of_process() -> tuple[Any, ...]:
    """What tasks of one process share."""
    import os
    import signal
    import sys

    mask = os.umask(0o22)
    os.umask(mask)
    handlers = [str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]
    return os.getpid(), os.getcwd(), mask, sys.getrecursionlimit(), handlers, signal.getitimer(signal.ITIMER_REAL)


def change_all_of_it() -> None:
    import os
    import signal
    import sys

    os.chdir("/")
    os.umask(0o777)
    sys.setrecursionlimit(300)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 3_600)


def test_what_a_task_changes_of_its_process_is_put_back(alone: Session) -> None:
    """Working directory, umask, recursion limit, signal handlers, timer."""
    before = alone.submit(state_of_process).result(WAIT_S)
    alone.submit(change_all_of_it).result(WAIT_S)
    assert alone.submit(state_of_process).result(WAIT_S) == before


def test_what_an_initializer_changes_stays(tmp_path: Path) -> None:
    """It prepares the process for the tasks of its client."""
    with (
        processes(workers=1) as started,
        open_session(started.file, initializer=os.chdir, initargs=(str(tmp_path),)) as session,
    ):
        for _ in range(3):
            assert session.submit(os.getcwd).result(WAIT_S) == str(tmp_path)
            session.submit(os.chdir, "/").result(WAIT_S)


def test_a_directory_that_is_gone_harms_only_its_task(alone: Session, tmp_path: Path) -> None:
    """The next task runs where all began."""

    def vanish(path: str) -> None:
        os.mkdir(path)
        os.chdir(path)
        os.rmdir(path)

    before = alone.submit(os.getcwd).result(WAIT_S)
    alone.submit(vanish, str(tmp_path / "gone")).result(WAIT_S)
    assert alone.submit(os.getcwd).result(WAIT_S) == before


def test_a_task_that_recurses_without_end_fails_alone(session: Session) -> None:
    """With Python's own error."""

    def recurse(number: int) -> int:
        return recurse(number + 1)

    assert isinstance(outcome_beside(session, recurse, 0), RecursionError)
