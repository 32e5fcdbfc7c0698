"""A real HAL on this machine: `hal up` once for all tests that only use it, and one each for those that break it."""

from __future__ import annotations

import contextlib
import io
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from hal.cli.main import main
from hal.client.addresses.address import Address
from hal.client.job import Job
from hal.client.sync_client import Client
from hal.runtime.home import Home

DEADLINE_S = 60.0
"""For everything that is waited for; far more than it takes."""


class Ran(NamedTuple):
    """What a command returned and wrote."""

    code: int
    out: str
    err: str


class LiveHal:
    """A HAL_HOME, and `hal` run with it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(root)
        self.environment = {**os.environ, "HAL_HOME": str(root)}

    def run(self, *args: object, text: str | None = None, check: bool = False, **env: str) -> Ran:
        """`hal ARGS` as a process of its own: `hal up` and `hal down` an interpreter of its own, others a fork of this
        one, which has imported everything."""
        if args[0] not in ("up", "down"):
            return _forked([str(word) for word in args], self.environment | env, text, check=check)
        ran = subprocess.run(
            self.command(*args),
            env=self.environment | env,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            timeout=3 * DEADLINE_S,
        )
        assert not check or ran.returncode == 0, ran.stderr
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def start(self, *args: object) -> subprocess.Popen[str]:
        """`hal ARGS` in the background, with pipes."""
        return subprocess.Popen(
            self.command(*args),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def command(self, *args: object) -> list[str]:
        """What is executed. What a test ends stays ended, unless the test says `--restart` or `--foreground`; a first
        node is named n1, whatever this machine is called, unless it has a name."""
        words = [str(word) for word in args]
        if words[:1] == ["up"]:
            if not {"--restart", "--foreground"} & set(words):
                words.insert(1, "--no-restart")
            if not {"--nodes", "--name"} & set(words) and not (self.home.run_dir / "layout.json").exists():
                words += ["--name", "n1"]
        return [sys.executable, "-m", "hal.cli.main", *words]

    def up(self, *args: object) -> LiveHal:
        """`hal up`, which must work."""
        self.run("up", *args, check=True)
        return self

    def client(self) -> Client:
        """A client of it."""
        return Client(Address(home=self.home))

    def remove(self) -> None:
        """End all of it, and its files."""
        self.run("down", "--kill")
        self.home.drop_passage()
        sockets = self.home.known_socket_dir()
        if sockets is not None:
            shutil.rmtree(sockets, ignore_errors=True)
        shutil.rmtree(self.root, ignore_errors=True)


def readable(descriptor: int, deadline_s: float) -> bool:
    """Whether there is something to read before the deadline; also of descriptors beyond the 1,024 that select takes,
    which tests of thousands of nodes leave behind them in this process."""
    return bool(readable_of([descriptor], deadline_s))


def readable_of(descriptors: Iterable[int], deadline_s: float) -> list[int]:
    """Those of them from which there is something to read, as soon as there is one; none at the deadline."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(deadline_s * 1_000)]


def _forked(words: list[str], environment: dict[str, str], text: str | None, *, check: bool) -> Ran:
    """`hal WORDS` in a fork: what it read, returned and wrote are those of a process, without a second of imports."""
    with ExitStack() as files:
        given, out, err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write((text or "").encode())
        given.seek(0)
        pid = os.fork()
        if pid == 0:
            _become_command(words, environment, [given.fileno(), out.fileno(), err.fileno()])
        ended = os.pidfd_open(pid)
        files.callback(os.close, ended)
        ready = readable(ended, 3 * DEADLINE_S)
        if not ready:
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert ready, f"hal {shlex.join(words)} went on and on"
        out.seek(0)
        err.seek(0)
        ran = Ran(code, out.read().decode(), err.read().decode())
    assert not check or ran.code == 0, ran.err
    return ran


def _become_command(words: list[str], environment: dict[str, str], streams: list[int]) -> NoReturn:
    """In the fork: nothing of pytest is run again, whatever happens."""
    code = 1
    try:
        os.environ.clear()
        os.environ.update(environment)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.stdin, sys.stdout, sys.stderr = (open(number, mode) for number, mode in enumerate("rww"))  # noqa: SIM115
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        code = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


class Gate:
    """A job that says when it runs and goes on when it is let: two FIFOs, so nobody polls and nobody sleeps."""

    def __init__(self, directory: Path, name: str = "gate") -> None:
        self._started = directory / f"{name}.started"
        self._go = directory / f"{name}.go"
        for path in (self._started, self._go):
            os.mkfifo(path)
        self._started_fd = os.open(self._started, os.O_RDWR | os.O_NONBLOCK)
        self._go_fd = os.open(self._go, os.O_RDWR | os.O_NONBLOCK)

    @property
    def shell(self) -> str:
        """A line of shell that tells, and waits."""
        return f"echo $HAL_JOB_ID.$HAL_TASK.$HAL_ATTEMPT.$HAL_NODE_RANK > {self._started}; read word < {self._go}"

    def command(self, then: str = "true") -> list[str]:
        """The whole job."""
        return ["sh", "-c", f"{self.shell}; {then}"]

    def started(self, deadline_s: float = DEADLINE_S) -> str:
        """`JOB.TASK.ATTEMPT.RANK` of the next one that runs."""
        text = b""
        while not text.endswith(b"\n"):
            assert readable(self._started_fd, deadline_s), "no job started"
            text += os.read(self._started_fd, 1)
        return text.decode().strip()

    def open(self, count: int = 1) -> None:
        """Let so many go on."""
        os.write(self._go_fd, b"go\n" * count)

    def close(self) -> None:
        os.close(self._started_fd)
        os.close(self._go_fd)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a state that nobody announces.

    Raises:
        AssertionError: it did not come within `DEADLINE_S`.
    """
    deadline_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        select.select([], [], [], 0.02)


def new_home() -> Path:
    """A HAL_HOME with a short path below that of this test run."""
    return Path(tempfile.mkdtemp(prefix="e", dir=Path(os.environ["HAL_HOME"]).parent))


@pytest.fixture(scope="session")
def shared_hal() -> Iterator[LiveHal]:
    """Three nodes, four cores each (shares are not enforced by there being cores); used, never broken."""
    live = LiveHal(new_home())
    try:
        yield live.up("--nodes", "3", "--cpus", "4", "--memory", "1GiB")
    finally:
        live.remove()


@pytest.fixture
def own_hal() -> Iterator[LiveHal]:
    """A home in which nothing was started yet; whatever the test started is ended."""
    live = LiveHal(new_home())
    yield live
    live.remove()


@pytest.fixture
def hal(shared_hal: LiveHal, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`hal('jobs')` in this process, with the shared HAL."""
    monkeypatch.setenv("HAL_HOME", str(shared_hal.root))

    def run(*args: object) -> Ran:
        capfd.readouterr()
        code = main([str(arg) for arg in args])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return run


class Ruled:
    """A HAL whose policy a test changes by `hal queue|limit|…`; what it changed, and its jobs, are gone afterwards."""

    def __init__(self, live: LiveHal, client: Client) -> None:
        self.live = live
        self.client = client

    def run(self, *args: object) -> str:
        """`hal ARGS` in this process, which must work; what it printed on stdout."""
        printed = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
            patch.setenv("HAL_HOME", str(self.live.root))
            assert main([str(arg) for arg in args]) == 0, args
        return printed.getvalue()

    def jobs(self, *specs: dict[str, Any]) -> list[Job]:
        """Submit them in this order, one by one."""
        return [self.client.submit(spec) for spec in specs]

    def clear(self) -> None:
        """End every job, and let the first version of the policy hold again."""
        left = [info.id for info in self.client.jobs() if not info.ended]
        if left:
            self.client.cancel(*left)
            self.client.wait_all(left, DEADLINE_S)
        first = self.client.policy(1).policy
        self.client.put_policy(first, version=self.client.policy().version)


@pytest.fixture(scope="session")
def ruled_hal() -> Iterator[LiveHal]:
    """Three nodes of two cpus, for tests that change the policy and put it back."""
    live = LiveHal(new_home())
    try:
        yield live.up("--nodes", "3", "--cpus", "2", "--memory", "1GiB", "--label", "kind=plain")
    finally:
        live.remove()


@pytest.fixture
def ruled(ruled_hal: LiveHal) -> Iterator[Ruled]:
    """That HAL for one test."""
    with ruled_hal.client() as client:
        made = Ruled(ruled_hal, client)
        yield made
        made.clear()


@pytest.fixture
def client(shared_hal: LiveHal) -> Iterator[Client]:
    """A client of the shared HAL."""
    with shared_hal.client() as made:
        yield made


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A job's start and its leave to go on."""
    made = Gate(tmp_path)
    yield made
    made.close()
