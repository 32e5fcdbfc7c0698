"""Run a short program to its end: returns its exit code and the end of its output, within a time limit."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from hal.core.model.errors import DeniedError, NotFoundError, TimedOutError
from hal.runtime.identity import ProcessIdentity, alive
from hal.runtime.inheritance import STEP_UMASK, script_environment
from hal.runtime.script_end import ScriptEnd
from hal.runtime.started_process import StartedProcess

OUTPUT_BYTES: Final = 4_096
"""The newest bytes of a program's output are kept."""
READ_BYTES: Final = 65_536
KILLED_MS: Final = 5_000
"""How long a killed program may take to end; one that the kernel cannot end is abandoned."""


async def run_script(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_ms: int,
    began: Callable[[ProcessIdentity], None] | None = None,
) -> ScriptEnd:
    """Run a program in a session of its own, in `/`, stdin from /dev/null. Killed if the caller is cancelled.

    Args:
        argv: program and arguments.
        env: added to the few variables of this process that a script may see.
        began: called with the started process.
    Raises:
        NotFoundError: there is no such program.
        DeniedError: it may not be executed.
    """
    loop = asyncio.get_running_loop()
    child, reading = _start(argv, env)
    output = bytearray()

    def read() -> bool:
        """Read available output; returns whether more may come."""
        try:
            data = os.read(reading, READ_BYTES)
        except BlockingIOError:
            return True
        output.extend(data)
        del output[:-OUTPUT_BYTES]
        return bool(data)

    def readable() -> None:
        if not read():
            loop.remove_reader(reading)

    started = StartedProcess(child)
    loop.add_reader(reading, readable)
    timed_out = False
    try:
        if began is not None:
            began(started.identity)
        try:
            code = await started.wait(timeout_ms)
        except TimedOutError:
            timed_out = True
            _kill(started)
            code = await _gone(started)
    finally:
        _kill(started)
        loop.remove_reader(reading)
        read()
        os.close(reading)
    return ScriptEnd(code, output.decode(errors="replace").strip(), timed_out)


def end_script(process: ProcessIdentity) -> None:
    """Kill a program that a dead process left running: that very program, with the processes of its group."""
    if alive(process):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _start(argv: Sequence[str], env: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    """The child, and a descriptor from which its output can be read without blocking."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reading, False)
    try:
        child = subprocess.Popen(
            list(argv),
            env=script_environment(os.environ) | dict(env),
            cwd="/",
            umask=STEP_UMASK,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
    except PermissionError as error:
        os.close(reading)
        raise DeniedError(f"{argv[0]} cannot be started: {error.strerror}") from error
    except OSError as error:
        os.close(reading)
        raise NotFoundError(f"{argv[0]} cannot be started: {error.strerror}") from error
    finally:
        os.close(writing)
    return child, reading


def _kill(started: StartedProcess) -> None:
    """Kill the program and its descendants: while it runs, its group id cannot be reused."""
    if started.running:
        os.killpg(started.identity.pid, signal.SIGKILL)


async def _gone(started: StartedProcess) -> int:
    try:
        return await started.wait(KILLED_MS)
    except TimedOutError:
        return -signal.SIGKILL
