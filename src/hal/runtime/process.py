"""The life of one HAL process: its log, pid file, signals, and orderly end."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import uvloop

from hal.core.model.errors import ConflictError, HALError, SpecError, StoreError
from hal.core.model.printable import printable
from hal.runtime.home import Home
from hal.runtime.identity import remove_pid_file, running, write_pid_file
from hal.runtime.interface import Logger
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.runtime.startup import EXIT_BAD_INPUT, EXIT_STORE

SHUTDOWN_S: Final = 10.0
"""How long `main` and its background tasks may take to end after the process was asked to stop; then it exits."""
EXIT_CONFLICT: Final = 6
RUN_AGAIN: Final = -1
"""What `main` returns to be started anew in the same process: what was loaded can then be loaded otherwise."""
EXIT_FAULT: Final = 70
"""Exit code after a fault of HAL itself (EX_SOFTWARE)."""

MAX_DESCRIPTORS: Final = 65_536
"""Open descriptors that a process with many incoming connections requests."""

Main = Callable[[RealRuntime], Awaitable[int | None]]


def run(
    name: str,
    home: Home,
    main: Main,
    *,
    log_level: str = "info",
    seed: int | None = None,
    again: Sequence[str] = (),
) -> int:
    """Run `main(runtime)` as this process's one task until it returns or the process is asked to stop.

    Writes the pid file `run/NAME.pid` (removed at the end), logs to `log/NAME.log`, sets `runtime.stopping` on SIGTERM
    and SIGINT. A background task that crashes ends the process with `EXIT_FAULT`; the terminal or the process's output
    file gets one line.

    Args:
        name: `controller`, `agent-NODE`: names the pid file and the log.
        home: created if missing.
        main: returns the exit code; None is 0.
        log_level: debug, info, warning or error.
        seed: of `runtime.random()`; the kernel's if None.
        again: program and arguments that replace this process when `main` returns RUN_AGAIN. It keeps its number and
            its pid file, so that nobody sees it gone.
    Returns: the exit code for `sys.exit`.
    """
    try:
        home.create()
        claim_pid_file(home, name)
    except HALError as error:
        print(printable(f"hal {name}: {error}"), file=sys.stderr)  # noqa: T201
        return _exit_code(error)
    file = LogFile(home.log_file(name))
    log = open_log(file, name, level=log_level)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(_live(name, home, main, log, seed))
        if code == RUN_AGAIN:
            os.execv(again[0], list(again))
        return code
    finally:
        remove_pid_file(home.pid_file(name))
        file.close()


def run_apart(name: str, directory: Path, main: Main, *, log_level: str = "info") -> int:
    """As `run`, for a process that belongs to no home: without a pid file, its log is `directory/NAME.log`.

    Returns: the exit code for `sys.exit`.
    """
    file = LogFile(directory / f"{name}.log")
    log = open_log(file, name, level=log_level)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_live(name, Home(directory), main, log, None))
    finally:
        file.close()


def allow_many_connections() -> int:
    """Raise this process's limit of open descriptors as far as the system allows; returns the limit.

    Login shells limit every program to 1,024 for the sake of those that use select(); each agent is a connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(MAX_DESCRIPTORS, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def claim_pid_file(home: Home, name: str) -> None:
    """Write this process's pid file.

    Raises:
        ConflictError: the process that it names still runs.
    """
    path = home.pid_file(name)
    with home.locked():
        other = running(path)
        if other is not None and other.pid != os.getpid():
            raise ConflictError(f"{name} is already running as process {other.pid}", hint="hal status shows what runs")
        write_pid_file(path)


def _exit_code(error: HALError) -> int:
    if isinstance(error, SpecError):
        return EXIT_BAD_INPUT
    if isinstance(error, StoreError):
        return EXIT_STORE
    return EXIT_CONFLICT if isinstance(error, ConflictError) else 1


async def _live(name: str, home: Home, main: Main, log: Logger, seed: int | None) -> int:
    loop = asyncio.get_running_loop()
    runtime = RealRuntime(name, home, log, seed=seed)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runtime.stop, number.name)
    log.info("started", pid=os.getpid(), home=str(home.root))
    work = asyncio.ensure_future(main(runtime))
    stopping = asyncio.ensure_future(runtime.stopping.wait())
    await asyncio.wait((work, stopping, runtime.failed), return_when=asyncio.FIRST_COMPLETED)
    if not (work.done() or runtime.failed.done()):
        await asyncio.wait((work, runtime.failed), timeout=SHUTDOWN_S, return_when=asyncio.FIRST_COMPLETED)
        if not (work.done() or runtime.failed.done()):
            log.warning("did not stop in time", seconds=SHUTDOWN_S)
    stopping.cancel()
    code = await _outcome(runtime, work, log)
    closing = asyncio.ensure_future(runtime.close())
    _, late = await asyncio.wait((closing,), timeout=SHUTDOWN_S)
    log.info("ended", exit_code=code)
    if late:
        log.error("background work did not end in time", seconds=SHUTDOWN_S)
        remove_pid_file(home.pid_file(name))
        os._exit(code if code > 0 else EXIT_FAULT)
    return code


async def _outcome(runtime: RealRuntime, work: asyncio.Future[Any], log: Logger) -> int:
    if not work.done():
        work.cancel()
        await asyncio.wait((work,), timeout=SHUTDOWN_S)
    if runtime.failed.done():
        print(printable(f"hal {runtime.name}: {runtime.failed.result()}"), file=sys.stderr)  # noqa: T201
        if work.done() and not work.cancelled():
            work.exception()
        return EXIT_FAULT
    if not work.done() or work.cancelled():
        return EXIT_FAULT if not runtime.stopping.is_set() else 0
    error = work.exception()
    if error is None:
        return int(work.result() or 0)
    print(printable(f"hal {runtime.name}: {error}"), file=sys.stderr)  # noqa: T201
    if isinstance(error, HALError):
        log.error("ended with an error", code=error.code, reason=str(error))
        return _exit_code(error)
    log.error("ended with a fault", exc_info=error)
    return EXIT_FAULT
