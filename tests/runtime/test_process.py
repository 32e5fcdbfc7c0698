"""The life of a real HAL process: pid file, signals, faults, exit codes; each in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.runtime.home import Home
from hal.runtime.identity import identify, running

PRELUDE = """
import asyncio, sys
from pathlib import Path
from hal.core.model.errors import ConflictError, SpecError, StoreError
from hal.runtime.home import Home
from hal.runtime.process import run

"""


class Started:
    """A process that runs `run("test", home, main)`, with its words."""

    def __init__(self, home: Home, body: str) -> None:
        script = PRELUDE + body + f"\nsys.exit(run('test', Home({str(home.root)!r}), main))\n"
        self.process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err.strip()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    yield made
    made.drop_socket_dir()


WAITS = """
async def main(runtime):
    print("ready", flush=True)
    await runtime.stopping.wait()
    return 3
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(home: Home, number: signal.Signals) -> None:
    """`stopping` is set, main returns its exit code, the pid file is gone."""
    started = Started(home, WAITS)
    assert started.line() == "ready"
    assert running(home.pid_file("test")) == identify(started.process.pid)
    started.process.send_signal(number)
    assert started.end() == (3, "")
    assert not home.pid_file("test").exists()
    assert number.name in home.log_file("test").read_text()


def test_a_second_one_for_the_same_home_is_refused(home: Home) -> None:
    """With exit code 6 and the pid of the first, which goes on."""
    first = Started(home, WAITS)
    assert first.line() == "ready"
    code, text = Started(home, WAITS).end()
    assert code == 6
    assert f"is already running as process {first.process.pid}" in text
    first.process.terminate()
    assert first.end()[0] == 3


def test_after_a_sigkill_the_next_one_starts(home: Home) -> None:
    """The pid file of the dead one does not count."""
    first = Started(home, WAITS)
    assert first.line() == "ready"
    first.process.kill()
    first.end()
    second = Started(home, WAITS)
    assert second.line() == "ready"
    second.process.terminate()
    assert second.end()[0] == 3


def test_a_crash_in_the_background_ends_the_process_loudly(home: Home) -> None:
    """Exit code 70, the task and the error named on stderr, the traceback in the log; nothing hangs."""
    code, text = Started(
        home,
        """
async def heartbeats():
    raise KeyError("n1")

async def main(runtime):
    runtime.spawn_task(heartbeats(), "heartbeats")
    await asyncio.Event().wait()
""",
    ).end()
    assert code == 70
    assert "the task 'heartbeats' failed: KeyError: 'n1'" in text
    assert "Traceback" in home.log_file("test").read_text()


def test_a_crash_in_a_timer_ends_the_process_loudly(home: Home) -> None:
    """A plain callback has nobody else to tell."""
    code, text = Started(
        home,
        """
async def main(runtime):
    runtime.call_later(1, lambda: 1 // 0)
    await asyncio.Event().wait()
""",
    ).end()
    assert code == 70
    assert "ZeroDivisionError" in text


def test_a_fault_while_serving_a_connection_ends_that_connection_only(home: Home) -> None:
    """The other end may have brought it about (H2): it is logged, and whoever dials next is served."""
    code, text = Started(
        home,
        """
from hal.runtime.interface import UnixAddress

served = []

async def serve(connection):
    served.append(connection)
    raise IndexError("bug")

async def main(runtime):
    address = UnixAddress(runtime.paths.wire_socket())
    await runtime.listen(address, serve)
    for _ in range(2):
        connection = await runtime.connect(address)
        await connection.wait_closed()
    return len(served)
""",
    ).end()
    assert (code, text) == (2, "")
    assert home.log_file("test").read_text().count("IndexError: bug") >= 2


@pytest.mark.parametrize(("kind", "exit_code"), [("SpecError", 2), ("ConflictError", 6), ("StoreError", 7)])
def test_an_error_of_hals_own_is_one_line_and_the_exit_code_of_its_kind(home: Home, kind: str, exit_code: int) -> None:
    """No traceback for people."""
    code, text = Started(
        home,
        f"""
async def main(runtime):
    raise {kind}("the store is from a newer version", hint="upgrade")
""",
    ).end()
    assert code == exit_code
    assert text == "hal test: the store is from a newer version (upgrade)"


def test_a_fault_in_main_is_exit_code_70(home: Home) -> None:
    """With the traceback in the log."""
    code, _ = Started(home, "async def main(runtime):\n    raise RuntimeError('bug')\n").end()
    assert code == 70
    assert "RuntimeError: bug" in home.log_file("test").read_text()


def test_background_work_is_cancelled_and_blocking_calls_finish_at_the_end(home: Home, tmp_path: Path) -> None:
    """A commit that has begun is not torn off when main returns."""
    mark = tmp_path / "mark"
    code, _ = Started(
        home,
        f"""
import threading
gate = threading.Event()

def commit():
    gate.wait(30)
    Path({str(mark)!r}).write_text("committed")

async def forever():
    try:
        await asyncio.Event().wait()
    finally:
        gate.set()

async def main(runtime):
    runtime.spawn_task(forever(), "forever")
    asyncio.create_task(runtime.run_blocking(commit))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return 0
""",
    ).end()
    assert code == 0
    assert mark.read_text() == "committed"


def test_a_process_that_many_dial_may_open_as_many_descriptors_as_the_system_allows(home: Home) -> None:
    """Not the 1,024 that a login shell gives; never beyond the hard limit."""
    body = """
import resource
from hal.runtime.process import allow_many_connections
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 3000))

async def main(runtime):
    print(allow_many_connections(), *resource.getrlimit(resource.RLIMIT_NOFILE), allow_many_connections(), flush=True)
"""
    started = Started(home, body)
    assert started.line() == "3000 3000 3000 3000"
    assert started.end() == (0, "")
