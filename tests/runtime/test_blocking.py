"""Blocking calls and started processes of the real Runtime."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from hal.core.model.errors import NotFoundError, OverloadedError, TimedOutError
from hal.runtime.interface import MAX_BLOCKING_CALLS, Lane
from hal.runtime.real_runtime import RealRuntime
from tests.runtime.real_runtime import run_real


def test_calls_of_one_lane_run_on_one_thread_in_order(tmp_path: Path) -> None:
    """1,000 calls asked for at once; another lane has a thread of its own."""

    async def main(runtime: RealRuntime) -> None:
        order: list[int] = []
        threads: set[int] = set()

        def call(number: int) -> None:
            order.append(number)
            threads.add(threading.get_ident())

        await asyncio.gather(*(runtime.run_blocking(lambda n=n: call(n)) for n in range(1_000)))  # type: ignore[misc]
        assert order == list(range(1_000))
        assert len(threads) == 1
        reader = await runtime.run_blocking(threading.get_ident, Lane.READER)
        assert reader not in threads

    run_real(tmp_path, main)


def test_an_error_of_the_call_is_raised_to_its_caller(tmp_path: Path) -> None:
    """And the lane goes on."""

    async def main(runtime: RealRuntime) -> None:
        with pytest.raises(ZeroDivisionError):
            await runtime.run_blocking(lambda: 1 // 0)
        assert await runtime.run_blocking(lambda: 7) == 7

    run_real(tmp_path, main)


def test_cancelling_the_caller_lets_the_call_finish(tmp_path: Path) -> None:
    """Its effect happens; its error, if any, reaches nobody and breaks nothing."""

    async def main(runtime: RealRuntime) -> None:
        gate = threading.Event()
        done: list[str] = []

        def call() -> None:
            gate.wait(30)
            done.append("effect")
            raise ValueError("nobody hears this")

        caller = asyncio.create_task(runtime.run_blocking(call))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait((caller,))
        assert caller.cancelled()
        gate.set()
        await runtime.run_blocking(lambda: None)
        assert done == ["effect"]

    run_real(tmp_path, main)


def test_a_lane_is_bounded(tmp_path: Path) -> None:
    """One more than MAX_BLOCKING_CALLS is refused while the first still runs."""

    async def main(runtime: RealRuntime) -> None:
        gate = threading.Event()
        calls = [asyncio.ensure_future(runtime.run_blocking(gate.wait)) for _ in range(MAX_BLOCKING_CALLS)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await runtime.run_blocking(lambda: None)
        gate.set()
        await asyncio.gather(*calls)
        await runtime.run_blocking(lambda: None)

    run_real(tmp_path, main)


def test_a_started_process_tells_how_it_ended(tmp_path: Path) -> None:
    """Exit code, or minus the signal; output appended to the file; a session of its own."""

    async def main(runtime: RealRuntime) -> None:
        out = tmp_path / "out"
        script = "import os; print(os.getsid(0) == os.getpid(), os.getcwd()); raise SystemExit(5)"
        process = await runtime.start_process([sys.executable, "-c", script], output=out)
        assert await process.wait() == 5
        assert not process.running
        assert out.read_text() == "True /\n"
        assert out.stat().st_mode & 0o777 == 0o600

        process = await runtime.start_process([sys.executable, "-c", "import signal; signal.pause()"])
        assert process.running
        with pytest.raises(TimedOutError):
            await process.wait(timeout_ms=1)
        assert process.kill(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
        assert process.kill() is False

    run_real(tmp_path, main)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    """NotFoundError, and no descriptor is left open."""

    async def main(runtime: RealRuntime) -> None:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(NotFoundError, match="no-such-program"):
            await runtime.start_process(["no-such-program"])
        assert len(os.listdir("/proc/self/fd")) == before

    run_real(tmp_path, main)


def test_a_started_process_inherits_no_descriptors(tmp_path: Path) -> None:
    """Only stdin, stdout and stderr (and the one that it opens to look)."""

    async def main(runtime: RealRuntime) -> None:
        out = tmp_path / "out"
        left = os.open("/dev/null", os.O_RDONLY)
        os.set_inheritable(left, True)
        try:
            look = "import os; print(sorted(os.listdir('/proc/self/fd')))"
            process = await runtime.start_process([sys.executable, "-c", look], output=out)
            assert await process.wait() == 0
        finally:
            os.close(left)
        assert out.read_text() == "['0', '1', '2', '3']\n"

    run_real(tmp_path, main)


def test_the_clocks_go_forward_and_agree_with_the_kernels(tmp_path: Path) -> None:
    """Boot time is at least the monotonic time: it also counts suspension."""

    async def main(runtime: RealRuntime) -> None:
        before = runtime.monotonic_ms()
        boot = runtime.boot_ms()
        assert boot >= before
        await runtime.sleep(2)
        assert runtime.monotonic_ms() > before
        assert runtime.boot_ms() > boot
        assert runtime.now_ms() > 1_700_000_000_000

    run_real(tmp_path, main)


def test_ids_are_all_different(tmp_path: Path) -> None:
    """32 hex digits each."""

    async def main(runtime: RealRuntime) -> None:
        ids = {runtime.new_id() for _ in range(10_000)}
        assert len(ids) == 10_000
        assert {len(one) for one in ids} == {32}

    run_real(tmp_path, main)
