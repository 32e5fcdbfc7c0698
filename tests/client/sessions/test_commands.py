"""Commands as tasks: exit codes, output, what cannot be started, what runs too long; against real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.async_session import aopen_session
from hal.client.session import CommandEnd, Session, TaskTimeoutError
from hal.runtime.commands import MAX_OUTPUT_BYTES, run_command
from tests.client.sessions.processes import Processes, processes

WAIT_S = 60


@pytest.fixture(scope="module")
def running() -> Iterator[Processes]:
    with processes() as started:
        yield started


@pytest.fixture
def session(running: Processes) -> Iterator[Session]:
    with running.open() as opened:
        yield opened


def test_a_command_is_a_task(session: Session) -> None:
    """With its exit code, or its signal, and all that it wrote."""
    assert session.command(["expr", "2", "+", b"3"]).result(WAIT_S) == CommandEnd(0, b"5\n", b"")
    shell = ["/bin/sh", "-c", "echo out; echo no >&2; exit 3"]
    assert session.command(shell).result(WAIT_S) == CommandEnd(3, b"out\n", b"no\n")
    assert session.command(["/bin/sh", "-c", "kill -9 $$"]).result(WAIT_S).exit_code == -9
    assert session.command(["cat"]).result(WAIT_S) == CommandEnd(0, b"", b"")


def test_commands_are_awaited(running: Processes) -> None:
    """With asyncio."""

    async def echo() -> CommandEnd:
        async with await aopen_session(running.file) as session:
            return await (await session.command(["echo", "1"]))

    assert asyncio.run(echo()) == CommandEnd(0, b"1\n", b"")


def test_many_commands_run_in_order(session: Session) -> None:
    """`map` takes them, too."""
    ends = session.map(run_command, [["echo", str(number)] for number in range(300)])
    assert [int(end.output) for end in ends] == list(range(300))


def test_what_cannot_be_started_is_an_error(session: Session) -> None:
    """Its own, not the worker's."""
    assert isinstance(session.command(["/nowhere"]).exception(WAIT_S), FileNotFoundError)
    assert isinstance(session.command(["/"]).exception(WAIT_S), PermissionError)
    assert isinstance(session.command([]).exception(WAIT_S), ValueError)
    assert isinstance(session.command(["a\0b"]).exception(WAIT_S), ValueError)


def test_output_is_bounded(session: Session) -> None:
    """Both streams are read to their end, in any order."""
    script = f"head -c {MAX_OUTPUT_BYTES + 5_000_000} /dev/zero; head -c 300000 /dev/zero >&2; exit 4"
    end = session.command(["/bin/sh", "-c", script]).result(WAIT_S)
    assert (end.exit_code, len(end.output), len(end.errors)) == (4, MAX_OUTPUT_BYTES, 300_000)


def test_a_command_dies_of_a_broken_pipe() -> None:
    """Python ignores that signal; what it starts does not."""
    end = run_command(["grep", "SigIgn", "/proc/self/status"])
    assert int(end.output.split()[1], 16) & 1 << signal.SIGPIPE - 1 == 0


def test_a_command_that_takes_too_long_is_killed(session: Session, tmp_path: Path) -> None:
    """With the worker that waits for it."""
    pid_file = tmp_path / "pid"
    late = session.options(timeout=0.5).command(["/bin/sh", "-c", f"echo $$ > {pid_file}; exec sleep 1000"])
    assert isinstance(late.exception(WAIT_S), TaskTimeoutError)
    pid = int(pid_file.read_text())
    deadline_s = time.monotonic() + WAIT_S
    while _runs(pid):
        assert time.monotonic() < deadline_s, f"process {pid} runs on"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """Whether there is such a process, other than a dead one that waits for its parent."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
