"""A real agent and keeper, the test as their controller: they find it, relay, and survive each other's death."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from hal.core.model import StepId
from hal.daemons.agent.keeper import processes
from hal.daemons.agent.keeper.limits import Cgroups, cgroup_name
from hal.runtime.home import Home
from hal.runtime.identity import ProcessIdentity, kill, running, wait_gone
from hal.runtime.sockets import bind_unix
from hal.wire.codec import FrameDecoder, encode
from hal.wire.frames.agent_keeper import (
    ExitCause,
    Exits,
    ExitsAck,
    Heartbeat,
    HeartbeatAck,
    LogChunk,
    ReadLog,
    Start,
    Started,
    StepExit,
    StepStart,
    StepTemplate,
    Stream,
)
from hal.wire.frames.controller_agent import CONTROLLER_AGENT
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Hello, Welcome
from hal.wire.roles import Role
from tests.e2e.conftest import readable_of

DEADLINE_S = 30.0
LOOK_S = 0.01
ONE, TWO = StepId(1, 0, 1, 0), StepId(2, 0, 1, 0)
T = TypeVar("T")


class Node:
    """A keeper and its agent, and the test as the controller that they dial."""

    def __init__(self, home: Path, features: tuple[str, ...] = ()) -> None:
        self.home = Home(home)
        self.home.create()
        self.mark = f"agent-test-{os.getpid()}-{time.monotonic_ns()}"
        self.hellos: list[Hello] = []
        self.exits: dict[StepId, StepExit] = {}
        self.started: dict[StepId, int] = {}
        self.chunks: list[LogChunk] = []
        self.frames: list[Frame] = []
        """All that came."""
        self.features = features
        self.stamp = 0
        self.acknowledging = True
        self._peer: socket.socket | None = None
        self._decoder = FrameDecoder(CONTROLLER_AGENT)
        self._listener: socket.socket | None = None
        self.listen()
        argv = [sys.executable, "-m", "hal.daemons.agent.keeper", "--home", str(home), "--node", "n1"]
        with (home / "keeper.out").open("ab") as log:
            argv += ["--cpu-milli", "1000", "--memory", str(1 << 30), "--label", "disk=fast"]
            env = os.environ | {"AGENT_TEST": self.mark, "HAL_KEEP_ENV": "AGENT_TEST"}
            self.keeper = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True, env=env)

    def listen(self) -> None:
        self._listener = bind_unix(self.home.wire_socket())

    def hang_up(self) -> None:
        """The controller dies."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self.drop()

    def drop(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def send(self, frame: Frame) -> None:
        assert self._peer is not None
        self._peer.sendall(encode(frame))

    def until(self, found: Callable[[], T | None]) -> T:
        """Serve until `found` gives something true."""
        deadline = time.monotonic() + DEADLINE_S
        while not (value := found()):
            out = "".join(path.read_text() for path in self.home.log_dir.iterdir())
            assert time.monotonic() < deadline, f"hellos {self.hellos}, exits {self.exits}\n{out}"
            self._serve()
        return value

    def _serve(self) -> None:
        sockets = [one for one in (self._listener, self._peer) if one is not None]
        numbers = readable_of([one.fileno() for one in sockets], LOOK_S)
        ready = [one for one in sockets if one.fileno() in numbers]
        if self._listener in ready and self._listener is not None:
            self.drop()
            self._peer, _ = self._listener.accept()
            self._decoder = FrameDecoder(CONTROLLER_AGENT)
        elif self._peer in ready and self._peer is not None:
            try:
                data = self._peer.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                self.drop()
                return
            for frame in self._decoder.feed(data):
                self._take(frame)

    def _take(self, frame: Frame) -> None:
        self.frames.append(frame)
        match frame:
            case Hello():
                self.hellos.append(frame)
                welcome = Welcome(role=Role.CONTROLLER, version=1, features=self.features, epoch=3, heartbeat_ms=200)
                self.send(welcome)
            case Heartbeat():
                self.stamp = frame.stamp_boot_ms
                self.send(HeartbeatAck(stamp_boot_ms=frame.stamp_boot_ms, epoch=3))
            case Started():
                self.started.update((one.step, one.pid) for one in frame.steps)
            case Exits():
                self.exits.update((one.step, one) for one in frame.exits)
                if self.acknowledging:
                    self.send(ExitsAck(steps=tuple(one.step for one in frame.exits)))
            case LogChunk():
                self.chunks.append(frame)
            case _:
                pass

    def start(self, step: StepId, *command: str) -> None:
        self.until(lambda: self.stamp)
        template = StepTemplate(command=command, env={"AGENT_TEST": self.mark})
        steps = (StepStart(step, 0, "token", ("n1",), 0, 1, 0),)
        self.send(Start(epoch=3, stamp_boot_ms=self.stamp, templates=(template,), steps=steps))

    def agent(self) -> ProcessIdentity | None:
        return running(self.home.agent_pid("n1"))

    def keeper_now(self) -> ProcessIdentity | None:
        return running(self.home.keeper_pid("n1"))

    def close(self) -> None:
        self.hang_up()
        while left := self._marked():
            processes.send(left, signal.SIGKILL)
            for info in left:
                wait_gone(ProcessIdentity(info.pid, info.start_ticks), DEADLINE_S)
        self.keeper.wait()
        Cgroups(cgroup_name(str(self.home.root), "n1")).close()
        directory = self.home.known_socket_dir()
        if directory is not None:
            for entry in directory.iterdir():
                entry.unlink()
            directory.rmdir()

    def _marked(self) -> list[processes.ProcessInfo]:
        found = []
        needle = f"AGENT_TEST={self.mark}".encode()
        for info in processes.all_processes().values():
            try:
                if info.pid != os.getpid() and needle in Path(f"/proc/{info.pid}/environ").read_bytes():
                    found.append(info)
            except OSError:
                continue
        return found


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "home")
    try:
        yield node
    finally:
        node.close()


def test_an_agent_introduces_its_node_and_relays_both_ways(node: Node) -> None:
    """Hello carries what the keeper has; a start goes down, exit (which says when it began) and output come back up."""
    node.until(lambda: node.hellos)
    hello = node.hellos[0]
    assert (hello.role, hello.name) == (Role.AGENT, "n1")
    assert (hello.labels["disk"], hello.labels["hal.node"]) == ("fast", "n1")
    assert hello.facts.cpu.threads > 0
    assert hello.capacity == {"cpu": 1000, "memory": 1 << 30}
    assert hello.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    node.start(ONE, "sh", "-c", "echo hello; exit 3")
    ended = node.until(lambda: node.exits.get(ONE))
    assert (ended.cause, ended.code) == (ExitCause.EXITED, 3)
    assert 0 < ended.started_ms <= ended.ended_ms
    node.send(ReadLog(request=9, step=ONE, stream=Stream.STDOUT, offset=0))
    assert node.until(lambda: node.chunks)[0].data == b"hello\n"


def test_an_exit_while_no_controller_was_there_is_told_to_the_next(node: Node) -> None:
    """The controller dies with a step running; the agent dials until one answers; held step first, then its exit."""
    node.start(ONE, "sh", "-c", "sleep 0.2; exit 4")
    node.until(lambda: node.started.get(ONE))
    node.hang_up()
    node.hellos.clear()
    node.listen()
    ended = node.until(lambda: node.exits.get(ONE))
    assert ended.code == 4
    assert [held.step for held in node.hellos[0].held] == [ONE]


def test_exits_come_again_on_each_new_connection_until_they_are_acknowledged(node: Node) -> None:
    """Told, not acknowledged, the connection lost: told again."""
    node.acknowledging = False
    node.start(ONE, "true")
    node.until(lambda: node.exits.pop(ONE, None))
    node.drop()
    node.acknowledging = True
    assert node.until(lambda: node.exits.get(ONE)).code == 0
    node.drop()
    node.hellos.clear()
    node.until(lambda: node.hellos)
    assert node.hellos[0].held == ()


def test_a_killed_agent_is_started_again_by_its_keeper(node: Node) -> None:
    """SIGKILL of the agent: another one dials, the step has noticed nothing."""
    node.start(ONE, "sleep", "600")
    pid = node.until(lambda: node.started.get(ONE))
    agent = node.until(node.agent)
    node.hellos.clear()
    kill(agent, signal.SIGKILL)
    node.until(lambda: node.hellos)
    assert [(held.step, held.running, held.pid) for held in node.hellos[0].held] == [(ONE, True, pid)]


def test_a_killed_keeper_is_started_again_by_its_agent(node: Node) -> None:
    """SIGKILL of the keeper: the agent starts another, which adopts the step; its true exit is reported."""
    node.start(ONE, "sh", "-c", "sleep 1.5; exit 8")
    node.until(lambda: node.started.get(ONE))
    keeper = node.until(node.keeper_now)
    node.hellos.clear()
    node.stamp = 0
    kill(keeper, signal.SIGKILL)
    node.keeper.wait()
    node.until(lambda: node.hellos)
    assert [held.step for held in node.hellos[0].held] == [ONE]
    node.start(TWO, "true")
    assert node.until(lambda: node.exits.get(TWO)).code == 0
    assert node.until(lambda: node.exits.get(ONE)).code == 8


def test_killing_both_at_once_is_survived_by_the_step(node: Node, tmp_path: Path) -> None:
    """Nobody is left to start anybody: `hal up` starts a keeper again, which adopts."""
    node.start(ONE, "sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exit 2")
    node.until(lambda: node.started.get(ONE))
    agent, keeper = node.until(node.agent), node.until(node.keeper_now)
    kill(agent, signal.SIGKILL)
    kill(keeper, signal.SIGKILL)
    node.keeper.wait()
    node.hellos.clear()
    argv = [sys.executable, "-m", "hal.daemons.agent.keeper", "--home", str(node.home.root), "--node", "n1"]
    env = os.environ | {"AGENT_TEST": node.mark, "HAL_KEEP_ENV": "AGENT_TEST"}
    node.keeper = subprocess.Popen(argv, start_new_session=True, env=env, stderr=subprocess.DEVNULL)
    node.until(lambda: node.hellos)
    (tmp_path / "go").touch()
    assert node.until(lambda: node.exits.get(ONE)).code == 2


def test_a_keeper_that_is_told_to_end_takes_its_agent_along(node: Node) -> None:
    """SIGTERM: both end, neither starts the other again, the step goes on."""
    node.start(ONE, "sleep", "600")
    pid = node.until(lambda: node.started.get(ONE))
    agent = node.until(node.agent)
    node.keeper.send_signal(signal.SIGTERM)
    assert node.keeper.wait(DEADLINE_S) == 0
    assert wait_gone(agent, DEADLINE_S)
    assert node.keeper_now() is None
    assert processes.read_process(pid) is not None


def test_a_shutdown_that_kills_reports_the_ends_to_the_controller(node: Node) -> None:
    """SIGUSR1: the exit arrives as cancelled, then keeper and agent end."""
    node.start(ONE, "sleep", "600")
    node.until(lambda: node.started.get(ONE))
    agent = node.until(node.agent)
    node.keeper.send_signal(signal.SIGUSR1)
    assert node.until(lambda: node.exits.get(ONE)).cause is ExitCause.CANCELLED
    node.until(lambda: node.keeper.poll() is not None)
    assert node.keeper.returncode == 0
    assert wait_gone(agent, DEADLINE_S)
