"""Clients that do not read, stop in the middle of a frame, or send garbage: each harms itself alone."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hal.runtime.session_file import parse_address
from hal.runtime.task_payloads import decode_value, encode_function, encode_value
from hal.wire.agree import SPOKEN
from hal.wire.codec import FrameDecoder, encode
from hal.wire.frames.conversation import Frame
from hal.wire.frames.hello import Goodbye
from hal.wire.frames.sessions import (
    SESSIONS,
    AskNumbers,
    OpenSession,
    SessionFrame,
    SessionNumbers,
    SessionOpened,
    StoreObject,
    SubmitTasks,
    TaskResults,
    TasksDone,
)
from hal.wire.roles import Role
from tests.client.sessions.processes import WAIT_S, Processes, processes

RESULT_BYTES = 1_000 << 10
"""Less than what travels as a file."""
RESULTS = 300
MEMORY_KIB = 400 << 10
"""That a broker may have: less than all that waits in these tests."""


class RawClient:
    """A client that does only what it is told."""

    def __init__(self, running: Processes, role: Role = Role.CLIENT) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(str(parse_address(running.session.listen[0])))
        self._decoder: FrameDecoder[SessionFrame] = FrameDecoder(SESSIONS)
        self._frames: list[SessionFrame] = []
        session = running.session
        hello = OpenSession(versions=SPOKEN, role=role, session=session.id, token=session.token)
        self.sock.sendall(encode(hello))
        opened = self.receive()
        assert isinstance(opened, SessionOpened)
        self.function = (opened.number << 32) + 1

    def receive(self) -> SessionFrame | None:
        """The next frame; None at the end."""
        while not self._frames:
            try:
                data = self.sock.recv(1 << 18)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._frames = list(self._decoder.feed(data))
        return self._frames.pop(0)

    def ask(self) -> SessionNumbers:
        """How the session goes."""
        self.send(AskNumbers())
        answer = self.receive()
        assert isinstance(answer, SessionNumbers)
        return answer

    def send(self, frame: Frame) -> None:
        self.sock.sendall(encode(frame))

    def store(self, function: Callable[..., Any]) -> None:
        self.send(StoreObject(ref=self.function, data=encode_function(function)))

    def submit(self, first: int, argument: Any) -> None:
        """One task."""
        data = encode_value((argument,))
        size = len(data).to_bytes(4, "little")
        self.send(SubmitTasks(first=first, function=self.function, sizes=size, payload=data))

    def results(self, count: int) -> dict[int, Any]:
        """Of so many tasks."""
        found: dict[int, Any] = {}
        while len(found) < count:
            frame = self.receive()
            assert frame is not None
            if isinstance(frame, TaskResults):
                assert not any(frame.statuses)
                at = 0
                for index, size in enumerate(memoryview(frame.sizes).cast("I")):
                    found[frame.block + frame.index + index] = decode_value(frame.payload[at : at + size])
                    at += size
        return found


def memory_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])


@pytest.fixture
def running() -> Iterator[Processes]:
    with processes() as started:
        yield started


def test_a_client_that_does_not_read_waits_for_itself(running: Processes) -> None:
    """Its tasks stop being handed out, others' go on, and the broker's memory has a bound; once it reads, it has all
    of its results."""
    stuck = RawClient(running)
    stuck.store(lambda number: bytes([number % 251]) * RESULT_BYTES)
    for number in range(RESULTS):
        stuck.submit(number, number)
    watch = RawClient(running)
    with running.open() as other:
        done = 0
        while (now := watch.ask()).done > done or not done:  # until nothing but the other client's tasks run
            done = now.done + 2_000
            assert list(other.map(abs, range(2_000))) == list(range(2_000))
    assert 0 < now.waiting < RESULTS
    assert memory_kib(running.broker.pid) < MEMORY_KIB
    results = stuck.results(RESULTS)
    assert all(results[number] == bytes([number % 251]) * RESULT_BYTES for number in range(RESULTS))
    stuck.sock.close()
    watch.sock.close()


def test_a_stopped_client_has_its_results_when_it_goes_on(running: Processes) -> None:
    """A whole process, as by Ctrl-Z."""
    code = "\n".join(
        [
            "import sys; from hal.client.session import open_session",
            "with open_session(sys.argv[1]) as session:",
            "    futures = [session.submit(lambda n: bytes([n % 251]) * (1_000 << 10), n) for n in range(200)]",
            "    print('submitted', flush=True)",
            "    print(all(set(f.result()) == {n % 251} for n, f in enumerate(futures)), flush=True)",
        ]
    )
    argv = [sys.executable, "-c", code, str(running.file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "submitted\n"
        client.send_signal(signal.SIGSTOP)
        with running.open() as other:
            assert list(other.map(abs, range(20_000))) == list(range(20_000))
        client.send_signal(signal.SIGCONT)
        assert client.stdout.readline() == "True\n"


def test_a_client_that_stops_inside_a_frame_holds_nobody_up(running: Processes) -> None:
    """Its own tasks wait for the rest of it."""
    stuck = RawClient(running)
    stuck.store(lambda number: -number)
    data = encode_value((7,))
    frame = encode(SubmitTasks(first=0, function=stuck.function, sizes=len(data).to_bytes(4, "little"), payload=data))
    stuck.sock.sendall(frame[:-1])
    with running.open() as other:
        assert list(other.map(abs, range(20_000))) == list(range(20_000))
    stuck.sock.sendall(frame[-1:])
    assert stuck.results(1) == {0: -7}
    stuck.sock.close()


def test_a_process_that_says_nothing_holds_nobody_up(running: Processes) -> None:
    """Not even that it is a client."""
    silent = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(100)]
    for sock in silent:
        sock.connect(str(parse_address(running.session.listen[0])))
    with running.open() as other:
        assert list(other.map(abs, range(1_000))) == list(range(1_000))
    for sock in silent:
        sock.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 4096,
        b"\x05\x00\x00\x00hello",
        b"\x00\x00\x00\x00",
        encode(TaskResults(block=0, index=0, statuses=b"", sizes=b"", payload=b"")),
        encode(SubmitTasks(first=0, function=1, sizes=b"\x01\x00\x00\x00", payload=b"x")),
        encode(StoreObject(ref=1, data=b"x")),
        encode(SubmitTasks(first=0, function=1, sizes=b"\x09\x00\x00\x00", payload=b"x")),
    ],
    ids=["bytes", "text", "nothing", "of-a-broker", "unknown-function", "foreign-object", "wrong-sizes"],
)
def test_a_client_that_sends_garbage_is_told_and_disconnected(running: Processes, garbage: bytes) -> None:
    """Others have their results, of tasks before and after it."""
    with running.open() as other:
        results = other.map(abs, range(30_000))
        assert next(results) == 0
        bad = RawClient(running)
        bad.sock.sendall(garbage)
        told = bad.receive()
        assert isinstance(told, Goodbye)
        assert told.reason
        assert bad.receive() is None
        assert list(results) == list(range(1, 30_000))
        bad.sock.close()


def test_a_worker_that_sends_garbage_is_disconnected(running: Processes) -> None:
    """What it had runs elsewhere."""
    with running.open() as other:
        bad = RawClient(running, Role.WORKER)
        futures = [other.submit(abs, -number) for number in range(500)]
        bad.sock.sendall(encode(TasksDone(run=99, index=0, statuses=b"\0", sizes=bytes(4), payload=b"", took_us=1)))
        assert [future.result(WAIT_S) for future in futures] == list(range(500))
        bad.sock.close()


def test_tasks_that_need_many_values_get_them(running: Processes) -> None:
    """More than a connection may have waiting, all of it in memory."""
    with running.open() as session:
        values = [session.put(bytes([number]) * (1_000 << 10)) for number in range(100)]
        first = session.submit(lambda all_of: [value[0] for value in all_of], values)
        assert first.result(WAIT_S) == list(range(100))
