"""Tasks that failed, with real workers: what their client, and anybody else who asks, is told."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import wait
from functools import partial
from pathlib import Path

import pytest

from hal.client.async_session import aopen_session
from hal.client.session import Session, TaskLostError, TaskQuarantinedError
from hal.client.sessions.labels import function_name, tags_from
from hal.core.model.errors import SpecError
from hal.runtime.task_payloads import encode_error, error_text
from tests.client.sessions.processes import WAIT_S, Processes, processes

EXAMPLE = Path(__file__).parents[3] / "examples" / "sessions" / "failures.py"


@pytest.fixture(scope="module")
def running() -> Iterator[Processes]:
    with processes() as started:
        yield started


@pytest.fixture
def session(running: Processes) -> Iterator[Session]:
    with running.open() as opened:
        yield opened


def divide(number: int) -> float:
    return 1 / number


def fault() -> None:
    """End the worker as a broken extension does."""
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(code: int) -> None:
    os._exit(code)


def test_a_failure_has_its_function_tags_attempts_and_traceback(session: Session) -> None:
    """The newest first; filtered by tag and function; another client is told the same."""
    tagged = session.options(tags=["night", "seven"], attempts=2)
    futures = [tagged.submit(divide, 0), session.options(tags="day").submit(divide, 0), session.submit(divide, 2)]
    wait(futures, WAIT_S)
    (failure,) = session.failures(tag="seven")
    assert failure.function.endswith("test_failures.divide")
    assert (failure.tags, failure.status, failure.attempts) == (("night", "seven"), "failed", 2)
    assert failure.error == "ZeroDivisionError: division by zero"
    assert "return 1 / number" in failure.traceback
    assert failure.worker
    assert len(session.failures(function="divide")) == 2
    assert session.failures(function="vide") == []
    numbers = session.numbers(slots=True)
    assert {tag.name: tag.failed for tag in numbers.tags} == {"night": 1, "seven": 1, "day": 1}
    assert numbers.retried == 1


def test_a_quarantined_task_has_the_traceback_of_the_fault(session: Session) -> None:
    """Of what killed its last worker, in its exception and among the failures."""
    with pytest.raises(TaskQuarantinedError, match=r"3 workers ended while it ran.*SIGSEGV") as caught:
        session.options(tags="fault").submit(fault).result(WAIT_S)
    assert "Segmentation fault" in str(caught.value)
    assert "in fault" in str(caught.value)
    (failure,) = session.failures(tag="fault")
    assert (failure.status, failure.attempts) == ("quarantined", 3)
    assert "SIGSEGV" in failure.error
    assert "in fault" in failure.traceback


def test_a_lost_task_says_how_its_worker_ended(session: Session) -> None:
    """An exit code, or a signal."""
    once = session.options(once=True, tags="lost")
    with pytest.raises(TaskLostError, match="it exited with code 3"):
        once.submit(leave, 3).result(WAIT_S)
    with pytest.raises(TaskLostError, match="killed by SIGKILL"):
        once.submit(kill_self).result(WAIT_S)
    assert [failure.status for failure in session.failures(tag="lost")] == ["lost", "lost"]


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_gone_for_good_is_not_waited_for_long() -> None:
    """With its watcher, nobody can say how it ended."""
    with processes(1) as started, started.open() as session:
        once = session.options(once=True)
        pid = once.submit(os.getpid).result(WAIT_S)
        future = once.submit(signal.pause)
        deadline = time.monotonic() + WAIT_S
        while not session.numbers(slots=True).each[0].running.endswith("signal.pause"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        started.workers[0].kill()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(TaskLostError, match="its worker ended while it may have run"):
            future.result(WAIT_S)
        assert len(session.failures()) == 1


def test_the_example_shows_what_failed(running: Processes) -> None:
    argv = [sys.executable, str(EXAMPLE), str(running.file)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S)
    expected = "4 means\nmean failed after 2 attempts: ZeroDivisionError: division by zero\n"
    assert (ended.stdout, ended.stderr) == (expected, "")


def test_failures_are_there_for_asyncio(running: Processes) -> None:
    async def failed() -> int:
        async with await aopen_session(running.file) as session:
            await asyncio.wait([await session.options(tags="async").submit(divide, 0)])
            return len(await session.failures(tag="async"))

    assert asyncio.run(failed()) == 1


@pytest.mark.parametrize("tags", [list("abcdefghi"), "", "x" * 65, [1], "\ud800"])
def test_tags_have_bounds(tags: object) -> None:
    with pytest.raises(SpecError, match="tag"):
        tags_from(tags)  # type: ignore[arg-type]


def test_functions_are_named_as_people_know_them() -> None:
    """Whatever they are."""

    class Odd:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError(name)

    assert function_name(len) == "len"
    assert function_name(partial(divide, 1)).endswith("test_failures.divide")
    assert function_name(lambda: 1).endswith("<lambda>")
    assert function_name(Odd()).endswith("Odd")


def test_the_text_of_an_exception_is_read_without_its_class() -> None:
    """What is no encoded exception is shown as it is."""
    line, text = error_text(encode_error(ValueError("odd")))
    assert line == "ValueError: odd"
    assert "ValueError: odd" in text
    assert error_text(b"\x80\x05cos\nsystem\n(S'true'\ntR.")[1] == ""
    assert error_text(b"text") == ("text", "")
