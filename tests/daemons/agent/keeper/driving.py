"""A real keeper process under test, and the test as its agent: frames in, frames out, everything it started killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from hal.core.model import StepId
from hal.daemons.agent.keeper import processes
from hal.daemons.agent.keeper.journal import FileJournal
from hal.daemons.agent.keeper.limits import Cgroups, cgroup_name
from hal.daemons.agent.keeper.ports import Booted
from hal.runtime.home import Home
from hal.runtime.identity import ProcessIdentity, identify, kill, wait_gone
from hal.runtime.regular_files import read_regular
from hal.wire.codec import FrameDecoder, encode
from hal.wire.frames.agent_keeper import (
    AGENT_KEEPER,
    AgentKeeperFrame,
    Exits,
    ExitsAck,
    Heartbeat,
    LogChunk,
    ReadLog,
    Refused,
    Start,
    Started,
    StepExit,
    StepStart,
    StepTemplate,
    Stop,
    StopReason,
    Stream,
)
from hal.wire.frames.hello import Hello, Welcome
from hal.wire.roles import Role
from tests.e2e.conftest import readable

DEADLINE_S = 30.0
"""Nothing that a test waits for may take longer."""

LOOK_S = 0.01
MAX_HEAD_BYTES = 1 << 10
"""Of a journal; its first line is far shorter."""

F = TypeVar("F")


class Keeper:
    """One keeper process of a HAL_HOME, dialled by the test in its agent's place."""

    def __init__(
        self,
        home: Path,
        *,
        helpers: int = 2,
        lease_ms: int = 60_000,
        node: str = "n1",
        under: Sequence[str] = (),
        more: Sequence[str] = (),
        owner: int = -1,
    ) -> None:
        """
        Args:
            under: command that starts the keeper's own, as another user, say.
            more: further words of its command line.
            owner: of its HAL_HOME; -1: who runs the test.
        """
        self.home = Home(home)
        self.home.create()
        self._path = self.home.keeper_socket(node)
        for path in (home, *home.rglob("*"), self._path.parent):
            os.chown(path, owner, owner)
        self._under = list(under)
        self.node = node
        self.token = f"{home.name}-{os.getpid()}-{time.monotonic_ns()}"
        self.epoch = 1
        self.exits: dict[StepId, StepExit] = {}
        self.exit_reports = 0
        self.launched: set[StepId] = set()
        self.refused: set[StepId] = set()
        self.started: dict[StepId, int] = {}
        self.others: list[AgentKeeperFrame] = []
        self.welcome: Welcome | None = None
        self.pids: set[int] = set()
        self._words = ["--home", str(home), "--node", node, "--cpu-milli", "2000", "--memory", str(4 << 30)]
        self._words += ["--helpers", str(helpers), "--lease-ms", str(lease_ms), "--no-agent", *more]
        self._keepers: list[subprocess.Popen[bytes]] = []
        self._socket: socket.socket | None = None
        self._decoder = FrameDecoder(AGENT_KEEPER)

    # ── the process ───────────────────────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Keeper:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.disconnect()
        for keeper in self._keepers:
            keeper.kill()
            keeper.wait()
        for helper in self.helpers():
            kill(helper, signal.SIGKILL)
            wait_gone(helper, DEADLINE_S)
        for info in self.survivors():
            kill(ProcessIdentity(info.pid, info.start_ticks), signal.SIGKILL)
        self.poll(lambda: not self.survivors())
        Cgroups(cgroup_name(str(self.home.root), self.node)).close()
        self.home.drop_passage()
        socket_dir = self.home.known_socket_dir()
        if socket_dir is not None:
            for entry in socket_dir.iterdir():
                entry.unlink()
            socket_dir.rmdir()

    def start(self, extra_env: dict[str, str] | None = None) -> Welcome:
        """Start a keeper and connect."""
        log = (self.home.root / "keeper.out").open("ab")
        argv = [*self._under, sys.executable, "-m", "hal.daemons.agent.keeper", *self._words]
        env = os.environ | (extra_env or {})
        self._keepers.append(subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True, env=env))
        log.close()
        return self.connect()

    def start_another(self) -> None:
        """A second keeper of the same node; fails with what it says."""
        argv = [sys.executable, "-m", "hal.daemons.agent.keeper", *self._words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        raise AssertionError(f"{done.returncode}: {done.stderr}")

    def pretend_reboot(self) -> None:
        """Rewrite the dead keeper's journal as one of another boot."""
        journal = FileJournal(self.home.node(self.node).journal / "keeper.log")
        records = [Booted("another boot") if isinstance(one, Booted) else one for one in journal.load()]
        journal.replace(records)
        journal.close()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self._keepers[-1]

    def die(self) -> None:
        """SIGKILL of the keeper."""
        self.process.kill()
        self.process.wait()
        self.disconnect()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ask the keeper to end; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def journals(self) -> list[Path]:
        """Of its helpers, of all keepers."""
        return sorted(self.home.node(self.node).journal.glob("helper-*.log"))

    def helpers(self) -> list[ProcessIdentity]:
        """Helpers of this home that live, of all keepers."""
        found = []
        for path in self.journals():
            with contextlib.suppress(OSError, ValueError, IndexError):  # a test has put something else there
                words = read_regular(path, MAX_HEAD_BYTES).decode().split()
                who = ProcessIdentity(int(words[1]), int(words[2]))
                if identify(who.pid).start_ticks == who.start_ticks:
                    found.append(who)
        return found

    def token_of(self, step: StepId) -> str:
        """Its attempt's; as in a cluster no two attempts have the same."""
        return f"{self.token}/{step.job}.{step.task}.{step.attempt}"

    def survivors(self) -> list[processes.ProcessInfo]:
        """Processes that carry the token of this test's steps."""
        mark = f"HAL_ATTEMPT_TOKEN={self.token}/".encode()
        found = []
        for info in processes.all_processes().values():
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{info.pid}/environ").read_bytes():
                    found.append(info)
        return found

    # ── frames ────────────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self) -> Welcome:
        """Dial and say hello."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self.disconnect()
            self._socket = socket.socket(socket.AF_UNIX)
            try:
                self._socket.connect(str(self._path))
                self._decoder = FrameDecoder(AGENT_KEEPER)
                self.welcome = None
                self.send(Hello(role=Role.AGENT, versions=(1, 1), name=self.node, epoch=self.epoch))
                return self.until(lambda: self.welcome)
            except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
                # Reset: a keeper that was just killed listened on, in a process that it was about to begin.
                if self.process.poll() is not None:
                    raise AssertionError((self.home.root / "keeper.out").read_text()) from None
                assert time.monotonic() < deadline, "the keeper does not listen"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(0.01)

    def hand_out_connection(self) -> socket.socket:
        """The connection itself; the next `connect` leaves it open."""
        assert self._socket is not None
        connection, self._socket = self._socket, None
        return connection

    def disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def send(self, frame: AgentKeeperFrame) -> None:
        assert self._socket is not None
        self._socket.sendall(encode(frame))

    def receive(self) -> bool:
        """Take in what comes; False at the end of the connection."""
        assert self._socket is not None
        data = self._socket.recv(1 << 18)
        for frame in self._decoder.feed(data):
            match frame:
                case Welcome():
                    self.welcome = frame
                case Started():
                    self.started.update((one.step, one.pid) for one in frame.steps)
                    self.pids.update(one.pid for one in frame.steps)
                case Exits():
                    self.exit_reports += len(frame.exits)
                    self.exits.update((one.step, one) for one in frame.exits)
                case _:
                    if isinstance(frame, Refused):
                        self.refused.update(one.step for one in frame.steps)
                    self.others.append(frame)
        return bool(data)

    def until(self, found: Callable[[], F | None]) -> F:
        """Receive until `found` gives something true."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            value = found()
            if value:
                return value
            left = deadline - time.monotonic()
            assert self._socket is not None
            assert left > 0, f"waited {DEADLINE_S} s; exits {self.exits}, others {self.others}"
            if readable(self._socket.fileno(), left):
                assert self.receive(), "the keeper closed the connection"

    def poll(self, holds: Callable[[], object]) -> None:
        """Wait for something of which no frame tells: look again after each frame, and every few milliseconds."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < deadline, f"waited {DEADLINE_S} s; exits {self.exits}, others {self.others}"
            if self._socket is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(LOOK_S)
            elif readable(self._socket.fileno(), LOOK_S):
                assert self.receive(), "the keeper closed the connection"

    def until_frame(self, kind: type[F]) -> F:
        """The next frame of that kind; it is taken out."""

        def find() -> F | None:
            for position, frame in enumerate(self.others):
                if isinstance(frame, kind):
                    del self.others[position]
                    return frame
            return None

        return self.until(find)

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def stamp(self) -> int:
        """The keeper's lease stamp of now."""
        self.send(Heartbeat(stamp_boot_ms=0))
        return self.until_frame(Heartbeat).stamp_boot_ms

    def launch(self, template: StepTemplate, *steps: StepId, stamp: int | None = None, credit_ms: int = 0) -> None:
        """Send one start frame."""
        if "PATH" not in template.env:
            template = _with_env(template, PATH=os.environ["PATH"])
        now_ms = int(time.time() * 1000)
        starts = tuple(
            StepStart(step, 0, self.token_of(step), (self.node,), step.task, len(steps), now_ms, credit_ms)
            for step in steps
        )
        stamp = self.stamp() if stamp is None else stamp
        self.launched.update(steps)
        self.send(Start(epoch=self.epoch, stamp_boot_ms=stamp, templates=(template,), steps=starts))

    def run(self, template: StepTemplate, step: StepId | None = None) -> StepExit:
        """Start one step and wait for its exit."""
        step = step or StepId(1, 0, 1, 0)
        self.launch(template, step)
        return self.exit_of(step)

    def shell(self, script: str, **fields: object) -> StepExit:
        """Run a shell script as one step."""
        return self.run(StepTemplate(command=("sh", "-c", script), **fields))  # type: ignore[arg-type]

    def exit_of(self, step: StepId) -> StepExit:
        return self.until(lambda: self.exits.get(step))

    def running(self, step: StepId) -> int:
        """Wait until it was started; its pid."""
        return self.until(lambda: self.started.get(step))

    def stop(self, *steps: StepId, reason: StopReason = StopReason.CANCELLED, grace_ms: int = 10_000) -> None:
        self.send(Stop(epoch=self.epoch, steps=steps, reason=reason, grace_ms=grace_ms))

    def acknowledge(self, *steps: StepId) -> None:
        self.send(ExitsAck(steps=steps))
        self.stamp()

    def acknowledge_without_answer(self, *steps: StepId) -> None:
        """To a keeper that may be gone before it could answer."""
        self.send(ExitsAck(steps=steps))

    def log(self, step: StepId, stream: Stream = Stream.STDOUT, offset: int = 0, limit: int = 1 << 18) -> LogChunk:
        """Read a part of its output."""
        self.send(ReadLog(request=1, step=step, stream=stream, offset=offset, limit=limit))
        return self.until_frame(LogChunk)

    def until_log(self, step: StepId, text: bytes) -> None:
        """Wait until its output has that text; asks again each time the answer has come."""
        self.poll(lambda: text in self.log(step).data)


def _with_env(template: StepTemplate, **env: str) -> StepTemplate:
    import msgspec

    return msgspec.structs.replace(template, env={**template.env, **env})
