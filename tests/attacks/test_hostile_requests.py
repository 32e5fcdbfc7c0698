"""Clients that send too much, too slowly, or nothing: the owner's CLI works on, and nothing grows without bound."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from hal.runtime.identity import running
from hal.wire.frames.hello import Goodbye
from tests.attacks.other_user import ALICE, BOB, as_user
from tests.attacks.test_lying_nodes import Liar
from tests.daemons.controller.nodes.lying_node import raw
from tests.e2e.conftest import DEADLINE_S, LiveHal, new_home, readable, readable_of
from tests.postgres_server import PostgresServer

DESCRIPTORS: Final = 400
CONTROLLER_MIB: Final = 100
"""How much the controller may grow by an attack: what it keeps of bodies is bounded by half of that."""
SENT_MIB: Final = 96
"""How much is sent where nothing stops it."""
POST: Final = b"POST /v1/jobs HTTP/1.1\r\nHost: hal\r\nTransfer-Encoding: chunked\r\n"


class Besieged:
    """A controller with few descriptors, a port, and a socket for other users: alice may submit, bob is nobody."""

    def __init__(self, live: LiveHal, port: int, public: Path) -> None:
        self.live = live
        self.port = port
        self.public = public

    @property
    def pid(self) -> int:
        """Of the controller, which must live."""
        found = running(self.live.home.pid_file("controller"))
        assert found is not None, "the controller has ended"
        return found.pid

    def mib(self) -> int:
        """What the controller occupies."""
        return occupied_mib(self.pid)

    def dial(self) -> socket.socket:
        """A stranger's connection."""
        one = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return one

    def dial_public(self) -> socket.socket:
        """A local user's connection."""
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(DEADLINE_S)
        one.connect(str(self.public))
        return one

    def works(self) -> None:
        """The owner is served, by the same controller."""
        pid = self.pid
        ran = self.live.run("jobs")
        assert ran.code == 0, ran.err
        assert self.pid == pid


@pytest.fixture(scope="module", params=["the leader", "a follower"])
def besieged(request: pytest.FixtureRequest) -> Iterator[Besieged]:
    """The only controller of a HAL, or one that passes on what it is asked to another home's."""
    with contextlib.ExitStack() as left:
        if request.param == "the leader":
            yield left.enter_context(surrounded("", "--cpus", "1"))
            return
        postgres: PostgresServer = request.getfixturevalue("postgres")
        store = f'[store]\nurl = "{postgres.fresh()}"\n'
        leader = LiveHal(new_home())
        left.callback(leader.remove)
        leader.home.config.write_text(store)
        leader.up("--cpus", "1")
        follower = left.enter_context(surrounded(store, "--nodes", "0"))
        with follower.live.client() as client:
            assert client.health().status == "following"
        yield follower


@contextlib.contextmanager
def surrounded(settings: str, *options: str) -> Iterator[Besieged]:
    """A HAL with these settings and `hal up` with these options."""
    live = LiveHal(new_home())
    directory = Path(tempfile.mkdtemp(prefix="hal-door-", dir="/tmp"))
    directory.chmod(0o755)
    port = free_port()
    live.home.config.write_text(
        f'{settings}[server]\ntcp = "{port}"\nplain_tcp = true\n'
        f'[access]\nsocket = "{directory}/api.sock"\nusers = ["{ALICE}"]\n'
    )
    few = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *live.command("up", *options)]
    try:
        subprocess.run(few, env=live.environment, check=True, capture_output=True, timeout=3 * DEADLINE_S)
        yield Besieged(live, port, directory / "api.sock")
    finally:
        live.remove()
        shutil.rmtree(directory)


def free_port() -> int:
    """One that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def occupied_mib(pid: int) -> int:
    """Memory of a process; anybody may ask."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) >> 10


def opened(dial: Callable[[], socket.socket], count: int, first: bytes) -> list[socket.socket]:
    """So many connections, as far as they are let in, each with so many bytes sent."""
    found = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            one = dial()
            found.append(one)
            one.sendall(first)
    return found


def sent_until_closed(one: socket.socket, head: bytes, endless: bytes, most: int) -> int:
    """Bytes taken from one that goes on and on, answers unread, until it is closed or has sent so many."""
    sent = 0
    piece = endless * max(1, (64 << 10) // len(endless))
    try:
        one.sendall(head)
        while sent < most:
            sent += one.send(piece)
    except TimeoutError:
        pass  # nobody reads on: as good as closed
    except OSError:
        pass
    one.close()
    return sent


def closed(ones: list[socket.socket]) -> int:
    """How many are closed by the other side within the deadline."""
    left = {one.fileno(): one for one in ones}
    deadline_s = time.monotonic() + DEADLINE_S
    while left and (wait_s := deadline_s - time.monotonic()) > 0:
        for number in readable_of(left, wait_s):
            try:
                gone = not left[number].recv(65_536)
            except OSError:
                gone = True
            if gone:
                del left[number]
    return len(ones) - len(left)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"G",
        b"GET /v1/jobs HTTP/1.1\r\nHost: h\r\n",
        b"GET /v1/authority HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n{",
    ],
)
def test_connections_of_strangers_do_not_keep_the_owner_out(besieged: Besieged, first: bytes) -> None:
    """(H4, attempt 50) 373 at once over TCP with 400 descriptors: idle, with half a head, half a body, answered."""
    held = opened(besieged.dial, 373, first)
    try:
        besieged.works()
    finally:
        for one in held:
            one.close()


@pytest.mark.parametrize("uid", [ALICE, BOB])
@pytest.mark.parametrize("first", [b"", b"GET /v1/jobs HTTP/1.1\r\n", b"GET /v1/jobs HTTP/1.1\r\nHost: h\r\n\r\n"])
def test_connections_of_local_users_end_nothing(besieged: Besieged, uid: int, first: bytes) -> None:
    """(H4, attempt 14) 450 of a user with a role, and of one without, on the public socket: exit 70 no more."""

    def attack() -> int:
        held = opened(besieged.dial_public, 450, first)
        for one in opened(besieged.dial_public, 1, b"GET / HTTP/1.1\r\n\r\n"):
            with contextlib.suppress(OSError):
                one.recv(1)  # all before it have been dealt with
        return len(held)

    assert as_user(uid, attack) > 0
    besieged.works()


def test_all_doors_under_siege_at_once(besieged: Besieged) -> None:
    """(H4) The port and the public socket, while the owner's CLI works, and works again when all of them hang up."""
    held = opened(besieged.dial, 300, b"GET /") + opened(besieged.dial_public, 300, b"GET /")
    besieged.works()
    for one in held:
        one.close()
    besieged.works()


def test_a_body_longer_than_a_user_may_send_is_refused_before_it_is_read(besieged: Besieged) -> None:
    """(H5) 9 MiB: 413 by its announcement; the owner may send them."""

    def attack() -> bytes:
        one = besieged.dial_public()
        one.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (9 << 20))
        return one.recv(4_096)

    assert b" 413 " in as_user(ALICE, attack)


@pytest.mark.parametrize(
    ("head", "endless"),
    [
        pytest.param(POST + b"\r\n0\r\n", b"X-n: 1\r\n", id="trailers"),
        pytest.param(POST + b"\r\n0\r\nX: ", b"v", id="one trailer's value"),
        pytest.param(POST + b"\r\n0\r\n", b"n", id="one trailer's name"),
        pytest.param(POST + b"\r\n1\r\nx\r\n0\r\n", b"X-n: 1\r\n", id="trailers after a chunk"),
        pytest.param(POST + b"\r\n1;", b"e=1;", id="chunk extensions"),
        pytest.param(POST + b"\r\n", b"1;" + b"e" * 4_000 + b"\r\nx\r\n", id="an extension for each chunk"),
        pytest.param(POST + b"\r\n", b"1\r\nx\r\n", id="small chunks"),
        pytest.param(POST + b"\r\n", b"400\r\n" + b"x" * 1_024 + b"\r\n", id="chunks"),
        pytest.param(b"POST /v1/jobs HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999999\r\n\r\n", b"x", id="a body"),
        pytest.param(b"GET /v1/jobs HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999999\r\n\r\n", b"x", id="GET's body"),
        pytest.param(
            b"GET /v1/authority HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"400\r\n" + b"x" * 1_024 + b"\r\n",
            id="a body for what is open to all",
        ),
        pytest.param(b"GET /v1/jobs HTTP/1.1\r\n", b"X-n: 1\r\n", id="headers"),
        pytest.param(b"GET /", b"x", id="a path"),
        pytest.param(b"", b"GET /v1/jobs HTTP/1.1\r\nHost: h\r\n\r\n", id="requests, answers unread"),
        pytest.param(b"", b"\r\n", id="empty lines"),
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            b"x",
            id="after an upgrade",
        ),
    ],
)
@pytest.mark.parametrize("known", [False, True], ids=["a stranger", "a user"])
def test_no_request_is_endless(besieged: Besieged, head: bytes, endless: bytes, known: bool) -> None:
    """(H3, attempts 47-49) Whatever does not end is cut off after little, and little of it is kept."""
    before = besieged.mib()
    most = SENT_MIB << 20
    if known:
        sent = as_user(ALICE, lambda: sent_until_closed(besieged.dial_public(), head, endless, most))
    else:
        sent = sent_until_closed(besieged.dial(), head, endless, most)
    # Of a user's body up to the limit is read before it is too long; beyond that only what sockets hold.
    assert sent < 24 << 20, f"{sent >> 20} MiB were taken"
    assert besieged.mib() - before < CONTROLLER_MIB
    besieged.works()


def test_who_sends_slowly_is_not_waited_for(besieged: Besieged) -> None:
    """(H4) Half heads, a head byte by byte, half a second head, half bodies, announced bodies: closed in seconds."""
    ask = b"GET /v1/version HTTP/1.1\r\nHost: h\r\n\r\n"

    def attack() -> int:
        slow = [besieged.dial_public() for _ in range(9)]
        for one, first in zip(
            slow,
            [
                b"",
                b"G",
                b"GET /v1/jobs HTTP/1.1\r\nHost: h\r\n",
                b"\r\n",
                ask + b"GET /v1/ver",
                ask + ask + b"GET",
                b"POST /v1/jobs HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n{",
                b"POST /v1/jobs HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n",
                POST + b"\r\n1\r\n{\r\n",
            ],
            strict=True,
        ):
            one.sendall(first)
        dripping = besieged.dial_public()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(OSError):
                dripping.sendall(b"GET /v1/jobs HTTP/1.1\r\nX: ")
                while not readable(dripping.fileno(), 0.5):
                    dripping.sendall(b"x")
            os._exit(0)
        found = closed([*slow, dripping])
        os.waitpid(pid, 0)
        return found

    strangers = opened(besieged.dial, 5, b"GET /")
    assert as_user(ALICE, attack) == 10
    assert closed(strangers) == 5


def test_unfinished_bodies_of_a_user_are_bounded(besieged: Besieged) -> None:
    """(M6, attempt 51) 40 bodies of 7 MiB each, all but their last byte: beyond 32 MiB they are refused."""
    pid, before = besieged.pid, besieged.mib()

    def attack() -> tuple[int, int]:
        held = []
        body = b" " * (7 << 20)
        for _ in range(40):
            one = besieged.dial_public()
            with contextlib.suppress(OSError):
                one.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (len(body) + 1) + body)
            held.append(one)
        refused = 0
        for one in held:
            if readable(one.fileno(), 0):
                with contextlib.suppress(OSError):
                    refused += b" 429 " in one.recv(4_096)
        return occupied_mib(pid), refused

    grown, refused = as_user(ALICE, attack)
    assert grown - before < CONTROLLER_MIB
    assert refused >= 30
    besieged.works()


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"\xff" * 4_096, id="a frame of 4 GiB"),
        pytest.param(b"\x00" * 4_096, id="empty frames"),
        pytest.param(raw(t="k" * 1_000_000), id="a tag without end"),
        pytest.param(raw(t="hello", role="k" * 1_000_000), id="a role without end"),
        pytest.param((600_000).to_bytes(4, "little") + b"\x81\xa1a" * 200_000, id="tables in tables"),
        pytest.param(raw(t="heartbeat", stamp_boot_ms=1), id="no hello"),
        pytest.param(
            raw(t="hello", role="agent", versions=[1, 1], name="n", boot_id="b", capacity={"cpu": -5}), id="a capacity"
        ),
        pytest.param(raw(t="hello", role="agent", versions=[1, 1], name="n", boot_id="b", epoch=2**63), id="an epoch"),
        pytest.param(raw(t="start", epoch=1, templates=[], steps=[]), id="an order"),
    ],
)
def test_what_is_no_node_is_sent_away(besieged: Besieged, said: bytes) -> None:
    """(H2) Over the wire socket: a short word, the end of that connection, and nothing else."""
    liar = Liar(besieged.live.home.wire_socket())
    liar.say(said)
    word = liar.ended()
    assert isinstance(word, Goodbye)
    assert len(word.reason) < 1_000
    besieged.works()
