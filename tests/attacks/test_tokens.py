"""Attacks on tokens: who gets one, what it opens, and until when."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal.client.address import Address, find_address
from hal.client.login import read_login
from hal.client.sync import Client
from hal.core.model import DeniedError
from tests.attacks.other_user import ALICE, BOB, as_user
from tests.e2e.conftest import LiveHal

SECRET = "5ec4e7" * 8
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{"queues": []}'


@contextlib.contextmanager
def squatter(uid: int, bind: Callable[[], socket.socket], *, accepts: bool = True) -> Iterator[Callable[[], bytes]]:
    """A process of that user that listens; gives what it was sent, once it is ended.

    Args:
        bind: makes the listening socket, in the process of that user.
        accepts: False: the connections stay in the kernel's queue, where their owner cannot be seen.
    """
    ready, told = os.pipe()
    end, ending = os.pipe()
    got, giving = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            _squat(bind(), told, end, giving, accepts)
        finally:
            os._exit(0)
    for fd in (told, end, giving):
        os.close(fd)
    try:
        assert os.read(ready, 1) == b"!", "the squatter did not listen"

        def ended() -> bytes:
            os.write(ending, b"!")
            with os.fdopen(os.dup(got), "rb") as pipe:
                return pipe.read()

        yield ended
    finally:
        os.close(ending)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(got)


def _squat(server: socket.socket, told: int, end: int, giving: int, accepts: bool) -> None:
    import selectors

    looks = selectors.DefaultSelector()
    looks.register(end, selectors.EVENT_READ)
    if accepts:
        looks.register(server, selectors.EVENT_READ)
    os.write(told, b"!")
    connections: list[socket.socket] = []
    while True:
        for key, _ in looks.select():
            if key.fd == end:
                server.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:  # what waited in the queue: now it is read
                        connections.append(server.accept()[0])
                for one in connections:
                    one.setblocking(False)
                    with contextlib.suppress(OSError):
                        os.write(giving, one.recv(1 << 16))
                return
            if key.fileobj is server:
                connection = server.accept()[0]
                connections.append(connection)
                looks.register(connection, selectors.EVENT_READ)
            else:
                connection = connections[[one.fileno() for one in connections].index(key.fd)]
                data = connection.recv(1 << 16)
                os.write(giving, data)
                if not data:
                    looks.unregister(connection)
                elif b"\r\n\r\n" in data:
                    connection.sendall(ANSWER)


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def asked(address: Address) -> str:
    """What comes of one question: 'answered', or the error's message."""
    with Client(address, reconnect_s=0.0) as client:
        try:
            client.queues()
        except DeniedError as error:
            return error.message
    return "answered"


@pytest.mark.parametrize("accepts", [True, False])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_who_squats_the_port_of_a_hal_that_is_down_gets_nothing(tmp_path: Path, host: str, accepts: bool) -> None:
    """(M4, attempt 26) Another user listens where HAL did: on its address, on all, also before the connection is
    accepted, when the kernel shows no owner of it."""
    port = free_port()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET

    def bind() -> socket.socket:
        return socket.create_server((host, port), family=family, dualstack_ipv6=host == "::")

    with squatter(BOB, bind, accepts=accepts) as ended:
        there = find_address(url=f"http://127.0.0.1:{port}", token=SECRET)
        assert f"user id {BOB} serves" in asked(there)
        assert ended() == b""


def test_a_listener_of_oneself_and_of_whom_one_logged_in_at_is_believed(tmp_path: Path) -> None:
    """(M4) Alice at her own server; root at Alice's, after `hal login` found her there; then not at Bob's."""
    port = free_port()

    def bind() -> socket.socket:
        return socket.create_server(("127.0.0.1", port))

    there = find_address(url=f"http://127.0.0.1:{port}", token=SECRET)
    with squatter(ALICE, bind) as ended:
        assert as_user(ALICE, lambda: asked(there)) == "answered"
        assert SECRET.encode() in ended()
    with squatter(BOB, bind) as ended:
        assert "serves" in as_user(ALICE, lambda: asked(there))
        assert ended() == b""


def test_a_login_keeps_who_served_it(own_hal: LiveHal, tmp_path: Path) -> None:
    """(M4, L9) `hal login` at a HAL on this machine; afterwards another user's server there gets nothing, by port or by
    socket."""
    port = free_port()
    own_hal.up("--tcp", port)
    secret = own_hal.run("api-token", "create", "root", check=True).out
    elsewhere = {"XDG_CONFIG_HOME": str(tmp_path), "HAL_HOME": ""}
    own_hal.run("login", f"http://127.0.0.1:{port}", text=secret, check=True, **elsewhere)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        kept = read_login()
    assert kept is not None
    assert kept.served_by == 0
    own_hal.run("down", "--leave", check=True)
    with squatter(BOB, lambda: socket.create_server(("127.0.0.1", port))) as ended:
        ran = own_hal.run("queues", **elsewhere)
        assert ran.code != 0
        assert f"user id {BOB} serves" in ran.err
        assert ended() == b""


def test_a_socket_that_somebody_else_serves_is_not_spoken_to(tmp_path: Path) -> None:
    """(L9, attempt 13) A path under a directory that everybody may write to."""
    tmp_path.chmod(0o1777)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    path = str(tmp_path / "api.sock")

    def bind() -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        os.chmod(path, 0o666)
        server.listen()
        return server

    with squatter(BOB, bind) as ended:
        assert f"user id {BOB} serves" in asked(find_address(url=f"unix://{path}"))
        assert ended() == b""
