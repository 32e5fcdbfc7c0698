"""A real Runtime inside the test's own process, over a home in a temporary directory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import uvloop

from hal.runtime.home import Home
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime

T = TypeVar("T")

DEADLINE_S = 60.0


def run_real(tmp_path: Path, main: Callable[[RealRuntime], Awaitable[T]]) -> T:
    """What `main(runtime)` returns; the log is in `tmp_path/home/log/test.log`."""
    home = Home(tmp_path / "home")
    home.create()
    file = LogFile(home.log_file("test"))

    async def live() -> T:
        runtime = RealRuntime("test", home, open_log(file, "test"), seed=1)
        work = asyncio.ensure_future(main(runtime))
        try:
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.wait((work, runtime.failed), return_when=asyncio.FIRST_COMPLETED)
            if runtime.failed.done() and not work.done():
                work.cancel()
                raise AssertionError(f"the runtime failed: {runtime.failed.result()}")
            return await work
        finally:
            await runtime.close()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(live())
    finally:
        file.close()
        home.drop_socket_dir()


def log_text(tmp_path: Path) -> str:
    """All that the runtime of `run_real` has logged."""
    return (tmp_path / "home" / "log" / "test.log").read_text()
