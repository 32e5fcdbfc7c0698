"""The relay of streams: joins the two of a meeting, and nobody else."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.runtime import stream_relay
from hal.runtime.stream_relay import MAX_OF_USER
from hal.wire.step_streams import CLIENT, MEETING_BYTES, NODE, meet

DEADLINE_S = 60.0
NAMES = iter(f"{number:0{MEETING_BYTES}x}" for number in range(1, 10_000))


class Relay:
    """A running one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", stream_relay.__file__, str(path), "127.0.0.1", "0"]
        )

    def ask(self, **order: str) -> dict[str, object]:
        """What it answers to an order."""
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(DEADLINE_S)
                try:
                    sock.connect(str(self.path))
                except OSError:
                    assert time.monotonic() < deadline_s, "it does not answer"
                    continue
                sock.sendall(json.dumps(order).encode() + b"\n")
                answer: dict[str, object] = json.loads(sock.recv(4_096))
                return answer

    def meeting(self, by: str = "ann") -> tuple[str, int]:
        """A new one: its name, and the port."""
        name = next(NAMES)
        return name, int(str(self.ask(meeting=name, by=by)["port"]))

    def come(self, port: int, role: bytes, name: str) -> socket.socket:
        """One of the two."""
        sock = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        sock.sendall(meet(role, name))
        return sock


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    made = Relay(tmp_path_factory.mktemp("r") / "s")
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait(DEADLINE_S)


def read_all(sock: socket.socket) -> bytes:
    """Until its end."""
    data = b""
    while piece := sock.recv(1 << 16):
        data += piece
    return data


@pytest.mark.parametrize("first", [NODE, CLIENT])
def test_the_two_of_a_meeting_are_joined_whoever_comes_first(first: bytes, relay: Relay) -> None:
    """Megabytes pass, and the end of one direction leaves the other open."""
    name, port = relay.meeting()
    one = relay.come(port, first, name)
    with one, relay.come(port, CLIENT if first == NODE else NODE, name) as other:
        sent = bytes(range(256)) * 20_000
        one.sendall(b"ask")
        one.shutdown(socket.SHUT_WR)
        assert read_all(other) == b"ask"
        left = memoryview(sent)
        got = b""
        one.setblocking(False)
        other.setblocking(False)
        deadline_s = time.monotonic() + DEADLINE_S
        while len(got) < len(sent):
            assert time.monotonic() < deadline_s, f"{len(got)} of {len(sent)} bytes passed"
            with contextlib.suppress(BlockingIOError):
                left = left[other.send(left[: 1 << 18]) :] if left else left
            with contextlib.suppress(BlockingIOError):
                got += one.recv(1 << 18)
        assert got == sent


def test_what_follows_the_name_at_once_is_passed_on(relay: Relay) -> None:
    """A client that begins TLS without waiting."""
    name, port = relay.meeting()
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as one:
        one.sendall(meet(CLIENT, name) + b"hello")
        with relay.come(port, NODE, name) as other:
            assert other.recv(16) == b"hello"


@pytest.mark.parametrize(
    "said",
    [meet(CLIENT, "f" * MEETING_BYTES), meet(b"X", "f" * MEETING_BYTES), b"GET / HTTP/1.1\r\n\r\n" + b"x" * 80],
    ids=["unknown", "role", "http"],
)
def test_who_names_no_meeting_is_let_into_none(said: bytes, relay: Relay) -> None:
    _, port = relay.meeting()
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as sock:
        sock.sendall(said)
        with contextlib.suppress(ConnectionResetError):  # closed with bytes unread
            assert sock.recv(16) == b""


def test_a_third_one_is_not_let_in(relay: Relay) -> None:
    """Whoever comes in a role that is taken."""
    name, port = relay.meeting()
    with relay.come(port, CLIENT, name), relay.come(port, CLIENT, name) as late:
        assert late.recv(16) == b""


def test_a_user_has_so_many_at_once(relay: Relay) -> None:
    """And takes nothing from others."""
    for _ in range(MAX_OF_USER):
        assert "port" in relay.ask(meeting=next(NAMES), by="bob")
    assert "which is the most" in str(relay.ask(meeting=next(NAMES), by="bob")["error"])
    assert "port" in relay.ask(meeting=next(NAMES), by="cy")


@pytest.mark.parametrize("order", [{"meeting": "short", "by": "ann"}, {"by": "ann"}])
def test_what_is_no_order_is_refused(order: dict[str, str], relay: Relay) -> None:
    assert "error" in relay.ask(**order)


def test_it_ends_when_its_socket_is_gone(tmp_path: Path) -> None:
    """The HAL that it belonged to was removed."""
    relay = Relay(tmp_path / "s")
    relay.ask()
    relay.path.unlink()
    assert relay.process.wait(DEADLINE_S) == 0
