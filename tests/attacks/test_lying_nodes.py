"""A node that lies to a real HAL, over its wire socket and over a keeper's: nothing else stops, and it is quarantined.

(H2, L8, attempts 76 to 86) What each frame does is in tests/daemons/controller/nodes/test_lying_nodes.py and
tests/daemons/agent/keeper/test_keeper_lies.py; here whole HALs, with real processes, go on.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hal.client.sync_client import Client
from hal.core.model import StepId
from hal.runtime.identity import running
from hal.wire.codec import FrameDecoder
from hal.wire.frames.agent_keeper import Start
from hal.wire.frames.controller_agent import CONTROLLER_AGENT
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye, Welcome
from tests.daemons.controller.nodes.lying_node import exit_of, raw
from tests.e2e.conftest import DEADLINE_S, LiveHal, readable, until

FLOOD_BYTES = 32 << 20
"""Of each kind of flood."""
MAX_LOG_GROWTH = 256 << 10
NAMES = itertools.count()


class Liar:
    """A fake agent of a process of the owner's."""

    def __init__(self, path: Path, name: str = "") -> None:
        self.name = name or f"liar{next(NAMES)}"
        self._path = path
        self._decoder = FrameDecoder(CONTROLLER_AGENT)
        self._frames: list[Frame] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(DEADLINE_S)
        self._socket.connect(str(path))

    def hello(self, **more: Any) -> Frame | None:
        """The answer to a hello with these fields."""
        told = {"t": "hello", "role": "agent", "versions": [1, 1], "name": self.name, "boot_id": "b"}
        told |= {"capacity": {"cpu": 4_000, "memory": 1 << 30}, "labels": {"only": self.name}, "features": ["health"]}
        self.say(raw(**(told | more)))
        answer = self.next()
        self.say(raw(t="heartbeat", stamp_boot_ms=1_000))
        return answer

    def say(self, data: bytes) -> bool:
        """Whether the other end still read."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def next(self) -> Frame | None:
        """The next frame; None at the end."""
        while not self._frames:
            assert readable(self._socket.fileno(), DEADLINE_S), f"{self.name} heard nothing"
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    def step(self) -> StepId:
        """The next step that it is to start."""
        while not isinstance(frame := self.next(), Start):
            assert frame is not None
        return frame.steps[0].step

    def ended(self) -> Goodbye | None:
        """Until the connection is over; the word with which it was ended."""
        word = None
        while (frame := self.next()) is not None:
            if isinstance(frame, Goodbye):
                word = frame
        return word

    def leave(self) -> None:
        self._socket.close()


@pytest.fixture(autouse=True)
def goes_on(hal: LiveHal, client: Client) -> Iterator[None]:
    """After each attack the same controller and keeper run, and a job of somebody else's succeeds."""
    processes = running(hal.home.controller_pid), running(hal.home.keeper_pid("n1"))
    assert None not in processes
    yield
    done = client.submit(["sh", "-c", "echo fine"], constraints=["hal.node=n1"]).wait(DEADLINE_S)
    assert done.state == "succeeded", done
    assert (running(hal.home.controller_pid), running(hal.home.keeper_pid("n1"))) == processes
    assert client.node("n1").state == "up"


def liar(hal: LiveHal, **hello: Any) -> Liar:
    made = Liar(hal.home.wire_socket())
    assert isinstance(made.hello(**hello), Welcome)
    return made


def with_step(hal: LiveHal, client: Client) -> tuple[Liar, StepId]:
    """A liar to whom a job was given."""
    made = liar(hal)
    client.submit(["true"], constraints=[f"only={made.name}"])
    step = made.step()
    made.say(raw(t="started", steps=[[step, 7, 1]]))
    return made, step


def rank(step: StepId, number: int) -> StepId:
    return StepId(step.job, step.task, step.attempt, number)


LIES: dict[str, Callable[[StepId], bytes]] = {
    "rank -2 of an exit": lambda step: raw(t="exits", exits=[exit_of(rank(step, -2))]),
    "rank -5 of a refusal": lambda step: raw(t="refused", steps=[[rank(step, -5), "no-lease", ""]]),
    "rank -2 of a start": lambda step: raw(t="started", steps=[[rank(step, -2), 7, 1]]),
    "rank -2 at a gate": lambda step: raw(t="gates", gates=[[rank(step, -2), "epilog", "waiting", ""]]),
    "code 2^63": lambda step: raw(t="exits", exits=[exit_of(step, 2**63)]),
    "signal 2^64-1": lambda step: raw(t="exits", exits=[exit_of(step, 1, 2**64 - 1, cause="signalled")]),
    "usage 2^64-1": lambda step: raw(t="exits", exits=[exit_of(step, usage=[2**64 - 1] * 5)]),
    "an attempt 0": lambda step: raw(t="exits", exits=[exit_of(StepId(step.job, step.task, 0, 0))]),
    "a job -1": lambda step: raw(t="exits", exits=[exit_of(StepId(-1, 0, 1, 0))]),
    "a cause that is none": lambda step: raw(t="exits", exits=[exit_of(step, cause="boredom")]),
    "a pid below 0": lambda step: raw(t="started", steps=[[step, -7, 1]]),
    "an unasked command": lambda step: raw(t="stop", epoch=1, steps=[step], reason="cancelled"),
    "a load that is no number": lambda step: raw(t="heartbeat", stamp_boot_ms=1, load=float("nan")),
    "no frame at all": lambda step: b"\x10\x00\x00\x00" + b"\xc1" * 16,
    "a length of 4 GiB": lambda step: b"\xff\xff\xff\xff",
}


def test_each_lie_quarantines_its_node_and_nothing_else(hal: LiveHal, client: Client) -> None:
    """(H2, attempts 76 to 81) Fifteen nodes, fifteen lies about a step that lives there."""
    for what, lie in LIES.items():
        node, step = with_step(hal, client)
        node.say(lie(step))
        word = node.ended()
        assert word is not None, what
        until(lambda node=node: "quarantine" in client.node(node.name).reason, what)  # type: ignore[misc]
        assert isinstance(Liar(hal.home.wire_socket(), node.name).hello(), Goodbye), f"{what}: heard again at once"
        client.cancel(step.job)
    shown = hal.run("nodes", node.name, check=True).out
    assert "quarantine: " in shown
    audit = hal.run("audit", "-n", "200", "-o", "json", check=True).out
    assert audit.count('"QUARANTINE"') == len(LIES)


def test_hellos_that_cannot_be_are_refused(hal: LiveHal, client: Client) -> None:
    """(H2, attempts 80 and 82) Capacities beyond the engine's, epochs that nobody has, lists without measure."""
    for hello in (
        {"capacity": {"cpu": -5}},
        {"capacity": {"cpu": 2**62}},
        {"capacity": {"cpu": 2**64 - 1}},
        {"capacity": {"\x1b[31m": 1}},
        {"epoch": 2**53},
        {"epoch": 2**64 - 1},
        {"labels": {f"l{number}": "" for number in range(20_000)}},
        {"notes": ["x"] * 100_000},
        {"name": "\x1b]0;x\x07"},
        {"held": [[[1, -1, 1, 0], True, 7, 1]]},
    ):
        node = Liar(hal.home.wire_socket())
        assert isinstance(node.hello(**hello), Goodbye), hello
        assert all(one.name != node.name for one in client.nodes())


def test_a_liar_in_a_gang_ends_no_step_but_its_own(hal: LiveHal, client: Client) -> None:
    """(H2, attempt 78) Rank -1 was counted as one rank more: the job succeeded while n1's process ran on."""
    node = liar(hal)
    gang = client.submit(["sleep", "300"], nodes=2, cpus=1)
    step = node.step()
    until(lambda: client.node("n1").running > 0, "n1 runs its part")
    for number in (0, 1):
        if number != step.rank:
            node.say(raw(t="exits", exits=[exit_of(rank(step, number))]))
            node.say(raw(t="refused", steps=[[rank(step, number), "no-lease", ""]]))
    node.say(raw(t="exits", exits=[exit_of(rank(step, -1)), exit_of(step)]))
    node.ended()
    assert client.submit(["true"], constraints=["hal.node=n1"]).wait(DEADLINE_S).state == "succeeded"
    assert client.job(gang.id).state != "succeeded"
    assert client.node("n1").running == 1
    client.cancel(gang.id)


def test_floods_of_one_node_starve_nobody_and_grow_no_log(hal: LiveHal, client: Client) -> None:
    """(L8, attempt 84) 32 MiB of each kind while others submit: their jobs end, and the log is not rotated away."""
    log = hal.home.log_file("controller")
    before = log.stat().st_size
    for flood in (
        lambda step: raw(t="done", command="signal", failed=[[step, "x" * 60]] * 1_000),
        lambda step: raw(t="exits", exits=[exit_of(rank(step, 9))] * 1_000),
        lambda step: raw(t="refused", steps=[[rank(step, 9), "no-lease", "x"]] * 1_000),
        lambda step: raw(t="health", failing=[[f"c{time.monotonic_ns()}", "bad", 1]]),
        lambda step: raw(t="heartbeat", stamp_boot_ms=1_000),
    ):
        node, step = with_step(hal, client)
        frame = flood(step)
        node._socket.settimeout(2)
        for _ in range(min(FLOOD_BYTES // len(frame), 20_000)):
            if not node.say(frame):
                break
        done = client.submit(["true"], constraints=["hal.node=n1"]).wait(DEADLINE_S)
        assert done.state == "succeeded"
        node.leave()
        client.cancel(step.job)
    assert log.stat().st_size - before < MAX_LOG_GROWTH
    assert not log.with_name(f"{log.name}.1").exists()


def test_no_epoch_that_nobody_has_shuts_a_keeper_off(hal: LiveHal, client: Client) -> None:
    """(H2, attempt 86) Over the keeper's own socket: none of them is believed, and the node still works."""
    for epoch in (2**64 - 1, 2**63, 2**53, 2**40 + 1):
        for frame in (
            raw(t="heartbeat-ack", stamp_boot_ms=1, epoch=epoch),
            raw(t="resume", epoch=epoch, steps=[]),
            raw(t="hello", role="agent", versions=[1, 1], epoch=epoch),
        ):
            agent = Liar(hal.home.keeper_socket("n1"))
            agent.hello(role="agent")
            agent.say(frame)
            agent.leave()
    until(lambda: client.node("n1").state == "up" and client.node("n1").connected, "n1's agent is back")
