"""Attacks on tokens: who gets one, what it opens, and until when."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal.client.address_lookup import find_address
from hal.client.addresses.address import Address
from hal.client.addresses.login import read_login
from hal.client.sync_client import Client
from hal.core.model import DeniedError
from tests.attacks.other_user import ALICE, BOB, as_user
from tests.e2e.conftest import DEADLINE_S, Gate, LiveHal, Ran, readable
from tests.e2e.conftest import gate as gate

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
            for fd in (ready, ending, got):  # above all `ending`: while it is open here, its end is not seen here
                os.close(fd)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            _squat(bind(), told, end, giving, accepts)
        finally:
            os._exit(0)
    for fd in (told, end, giving):
        os.close(fd)
    process = os.pidfd_open(pid)
    try:
        assert _readable(ready), "the squatter neither listened nor ended"
        assert os.read(ready, 1) == b"!", "the squatter did not listen"

        def ended() -> bytes:
            os.write(ending, b"!")
            assert _readable(process), "the squatter was told to end and did not"
            with os.fdopen(os.dup(got), "rb") as pipe:
                return pipe.read()

        yield ended
    finally:
        os.close(ending)
        went = _readable(process)
        if not went:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for fd in (process, ready, got):
            os.close(fd)
    assert went, "the squatter outlived the test"


def _readable(fd: int) -> bool:
    """Whether it can be read within `DEADLINE_S`, or has ended: a pipe, or a process by its pidfd."""
    return readable(fd, DEADLINE_S)


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
        assert f"served by user id {BOB}" in asked(there)
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
        assert "is served by user id" in as_user(ALICE, lambda: asked(there))
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
        assert f"served by user id {BOB}" in ran.err
        assert ended() == b""


class Stream:
    """What a follower of events or logs is sent, over TCP, until the other side closes."""

    def __init__(self, port: int, path: str, secret: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        head = (
            f"GET {path} HTTP/1.1\r\nHost: hal\r\nAccept: text/event-stream\r\nAuthorization: Bearer {secret}\r\n\r\n"
        )
        self._socket.sendall(head.encode())
        self.begun = self._socket.recv(1 << 16)

    def rest(self) -> bytes:
        """All that comes until it ends."""
        data = b""
        with self._socket, contextlib.suppress(ConnectionResetError):
            while piece := self._socket.recv(1 << 16):
                data += piece
        return data


def test_streams_and_waits_end_with_their_token(own_hal: LiveHal, gate: Gate) -> None:
    """(M3, attempt 21) Events, a followed log, a long poll, when the token is revoked or expires, or its job ends; a
    cut stream is not taken for a whole one; one whose token lives goes on."""
    port = free_port()
    own_hal.up("--tcp", port, "--cpus", "2")
    job = own_hal.run("submit", "-u", "alice", "--", *gate.command(), check=True).out.strip()
    gate.started()
    paths = (f"/v1/events?job={job}", f"/v1/jobs/{job}/logs?follow=1", f"/v1/jobs/{job}/wait?timeout_s=600")
    lasting = own_hal.run("api-token", "create", "alice", check=True).out.strip()
    goes_on = Stream(port, paths[0], lasting)
    for ends in ("revoked", "expired"):
        life = "365d" if ends == "revoked" else "3s"
        secret = own_hal.run("api-token", "create", "alice", "--expires-in", life, check=True).out.strip()
        streams = [Stream(port, path, secret) for path in paths[:2]]
        waits = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        waits.sendall(f"GET {paths[2]} HTTP/1.1\r\nHost: hal\r\nAuthorization: Bearer {secret}\r\n\r\n".encode())
        assert all(b" 200 " in stream.begun for stream in streams), [stream.begun for stream in streams]
        if ends == "revoked":
            own_hal.run("api-token", "revoke", secret.split("_")[1], check=True)
        for stream in streams:
            assert not stream.rest().endswith(b"\r\n0\r\n\r\n")
        with waits:
            assert b" 401 " in waits.recv(1 << 16)
    gate.open()
    own_hal.run("wait", job, check=True)
    while b"jobs-ended" not in goes_on.begun:
        goes_on.begun = goes_on._socket.recv(1 << 16)
    goes_on._socket.close()


def test_a_narrowed_token_has_no_right_outside_its_jobs(own_hal: LiveHal) -> None:
    """(M5, attempt 38) An admin's token for a queue or an account makes no tokens, lists none, changes no node and no
    policy, reads no audit log; what an admin's token makes does not outlive it."""
    port = free_port()
    own_hal.up("--tcp", port, "--nodes", "0")

    def as_token(secret: str) -> Callable[..., Ran]:
        there = {"HAL_URL": f"http://127.0.0.1:{port}", "HAL_TOKEN": secret, "HAL_HOME": ""}
        return lambda *words: own_hal.run(*words, **there)

    for narrowed in (("--queue", "default"), ("--account", "physics")):
        made = own_hal.run("api-token", "create", "eve", "--role", "admin", *narrowed, check=True).out.strip()
        eve = as_token(made)
        assert eve("jobs").code == 0
        for words in (
            ("api-token", "create", "eve", "--role", "admin"),
            ("api-token", "create", "eve", *narrowed),
            ("api-token", "list"),
            ("api-token", "revoke", made.split("_")[1]),
            ("token", "create"),
            ("token", "list"),
            ("node", "cordon", "n"),
            ("policy", "set", "fairshare.half_life=1d"),
            ("policy", "history"),
            ("audit",),
        ):
            ran = eve(*words)
            assert ran.code != 0, words
            assert "narrowed" in ran.err, (words, ran.err)
    short = own_hal.run("api-token", "create", "adam", "--role", "admin", "--expires-in", "1h", check=True).out.strip()
    adam = as_token(short)
    assert "no longer than" in adam("api-token", "create", "adam", "--expires-in", "2h").err
    child = json.loads(adam("api-token", "create", "adam", "--json").out)
    known = {one["id"]: one for one in json.loads(adam("api-token", "list", "--json").out)}
    parent = known[short.split("_")[1]]
    assert child["token"]["expires_ms"] <= parent["expires_ms"]


def test_a_join_token_is_shown_once_and_on_no_command_line(own_hal: LiveHal) -> None:
    """(L4) It is what stdout has; the command that is shown beside it has it read from standard input."""
    own_hal.up("--nodes", "0", "--wire", f"127.0.0.1:{free_port()}")
    made = own_hal.run("token", "create", "--node", "w1", check=True)
    secret = made.out.strip()
    assert "hal agent --join - " in made.err
    assert secret.split(".")[-1] not in made.err


def test_a_user_gives_what_runs_no_more_time(own_hal: LiveHal, gate: Gate) -> None:
    """(L7, attempt 43) Neither longer nor without end; shorter, and while it waits, as they like; an operator may."""
    port = free_port()
    own_hal.up("--tcp", port, "--cpus", "1")
    secret = own_hal.run("api-token", "create", "alice", check=True).out.strip()
    there = {"HAL_URL": f"http://127.0.0.1:{port}", "HAL_TOKEN": secret, "HAL_HOME": ""}
    job = own_hal.run("submit", "-t", "1h", "--", *gate.command(), check=True, **there).out.strip()
    waiting = own_hal.run("submit", "-t", "1h", "--", "true", check=True, **there).out.strip()
    gate.started()
    for longer in ("1000d", "61m", "none"):
        assert own_hal.run("update", job, "--walltime", longer, **there).code != 0
    assert own_hal.run("update", job, "--walltime", "59m", **there).code == 0
    assert own_hal.run("update", waiting, "--walltime", "2h", **there).code == 0
    assert own_hal.run("update", job, "--walltime", "3h").code == 0
    gate.open()


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A directory into which every user of the machine may write, as /tmp is."""
    with tempfile.TemporaryDirectory(prefix="hal-t-open-") as name:
        os.chmod(name, 0o1777)
        yield Path(name)


def test_a_socket_that_somebody_else_serves_is_not_spoken_to(everybodys: Path) -> None:
    """(L9, attempt 13) A path under a directory that everybody may write to."""
    path = str(everybodys / "api.sock")

    def bind() -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        os.chmod(path, 0o666)
        server.listen()
        return server

    with squatter(BOB, bind) as ended:
        assert f"served by user id {BOB}" in asked(find_address(url=f"unix://{path}"))
        assert ended() == b""
