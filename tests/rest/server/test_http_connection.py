"""One connection over a real socket: what of a request is bounded, byte by byte, and how it is ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from hal.core.model import OverloadedError, SpecError
from hal.rest.identity import Identity
from hal.rest.rights import Role
from hal.rest.server import http_connection as bounds
from hal.rest.server.connections import Connections
from hal.rest.server.http_connection import HttpConnection, refusal
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log

DEADLINE_S = 20.0
GET = b"GET /v1/version HTTP/1.1\r\nHost: h\r\n\r\n"
CHUNKED = b"POST /v1/jobs HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


class Peer:
    """Somebody at the other end of one connection, whose requests are held until `answer` is set."""

    def __init__(self, sock: socket.socket, log: Any) -> None:
        self.shared = Connections(log, descriptors=20_000, at_once=300, now_s=asyncio.get_running_loop().time)
        self.answer = asyncio.Event()
        self.scopes: list[Any] = []
        self.gone = 0
        """Requests that were told that their caller has gone."""
        config = uvicorn.Config(
            self._app, loop="none", http="httptools", ws="none", lifespan="off", log_config=None, interface="asgi3"
        )
        config.load()
        self.connection = HttpConnection(config, ServerState(), self.shared, where="192.0.2.1")
        self._sock = sock

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["method"] == "GET":
            await self.answer.wait()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})
            return
        while (await receive())["type"] != "http.disconnect":
            continue
        self.gone += 1

    async def send(self, data: bytes) -> None:
        """All of it, as far as it is taken."""
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self._sock, data)
        except OSError:
            return
        await asyncio.sleep(0)

    async def received(self) -> bytes:
        """What comes until the other end closes."""
        loop, said = asyncio.get_running_loop(), b""
        async with asyncio.timeout(DEADLINE_S):
            try:
                while part := await loop.sock_recv(self._sock, 1 << 16):
                    said += part
            except OSError:
                pass
        return said

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0)


def on_connection(tmp_path: Path, test: Callable[[Peer], Awaitable[None]]) -> None:
    """Run it against a connection of its own."""

    async def main() -> None:
        file = LogFile(tmp_path / "test.log")
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        peer = Peer(theirs, open_log(file, "test"))
        peer.shared.open.add(peer.connection)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: peer.connection, ours)
        try:
            await test(peer)
        finally:
            peer.answer.set()
            theirs.close()
            await peer.until(lambda: peer.connection not in peer.shared.open)
            file.close()

    asyncio.run(main())


def status_of(said: bytes) -> int:
    return int(said.split(b" ")[1])


def test_where_it_stands_follows_what_its_peer_does(tmp_path: Path) -> None:
    """Head, then nowhere while it is answered, then idle; gone from all tables when it ends."""

    async def body(peer: Peer) -> None:
        shared, one = peer.shared, peer.connection
        assert one in shared.heads
        await peer.send(GET)
        await peer.until(lambda: bool(peer.scopes))
        assert one.table is None
        peer.answer.set()
        await peer.until(lambda: one in shared.idle)
        await peer.send(CHUNKED)
        await peer.until(lambda: one in shared.bodies)
        one.drop()
        await peer.until(lambda: one not in shared.open)
        assert one.table is None
        assert one not in shared.bodies

    on_connection(tmp_path, body)


def test_a_head_has_64_kib(tmp_path: Path) -> None:
    """Beyond the piece in which it began: then 431, and the connection ends."""

    async def body(peer: Peer) -> None:
        await peer.send(b"GET / HTTP/1.1\r\n")
        await peer.until(lambda: peer.connection._reading is bounds.Reading.HEAD)
        line = b"X: " + b"a" * 1_000 + b"\r\n"
        for _ in range(bounds.MAX_HEAD_BYTES // len(line) + 2):
            await peer.send(line)
        assert status_of(await peer.received()) == 431

    on_connection(tmp_path, body)


def test_headers_beyond_the_bound_are_not_kept_and_trailers_are_none(tmp_path: Path) -> None:
    """One more than 100 is kept, so that the guard sees that there were too many."""

    async def body(peer: Peer) -> None:
        many = b"".join(b"X%d: y\r\n" % number for number in range(3 * bounds.MAX_HEADERS))
        await peer.send(b"GET / HTTP/1.1\r\n" + many + b"\r\n")
        await peer.until(lambda: bool(peer.scopes))
        assert len(peer.scopes[0]["headers"]) == bounds.MAX_HEADERS + 1

    on_connection(tmp_path, body)


def test_a_body_that_nobody_has_admitted_is_cut_off_at_512_kib(tmp_path: Path) -> None:
    """413; whoever works for the request learns that its caller has gone."""

    async def body(peer: Peer) -> None:
        chunk = b"10000\r\n" + b"a" * 65_536 + b"\r\n"
        sending = asyncio.ensure_future(peer.send(CHUNKED + chunk * 12))
        assert status_of(await peer.received()) == 413
        await peer.until(lambda: peer.gone == 1)
        sending.cancel()

    on_connection(tmp_path, body)


def test_an_admitted_body_may_be_as_long_as_it_was_admitted(tmp_path: Path) -> None:
    """1 MiB more than what passes without a word."""

    async def body(peer: Peer) -> None:
        await peer.send(CHUNKED)
        await peer.until(lambda: bool(peer.scopes))
        peer.connection.admit_body(1 << 20)
        chunk = b"10000\r\n" + b"a" * 65_536 + b"\r\n"
        await peer.send(chunk * 20)
        await peer.until(lambda: peer.connection.body_bytes == 20 << 16)
        assert not peer.connection.closing

    on_connection(tmp_path, body)


def test_chunk_lines_are_not_longer_than_the_body_and_1_mib(tmp_path: Path) -> None:
    """One byte in each chunk, each with an extension of 4 KB: 431."""

    async def body(peer: Peer) -> None:
        await peer.send(CHUNKED)
        await peer.until(lambda: bool(peer.scopes))
        one, chunk = peer.connection, b"1;" + b"e" * 4_000 + b"\r\na\r\n"
        for sent in range(1, bounds.MAX_CHUNK_LINE_BYTES // 4_000 + 2):
            await peer.send(chunk)
            await peer.until(lambda sent=sent: one.closing or one.body_bytes == sent)  # type: ignore[misc]
        said = await peer.received()
        assert status_of(said) == 431
        assert b"lines between the chunks" in said

    on_connection(tmp_path, body)


def test_32_requests_wait_behind_one_and_no_more(tmp_path: Path) -> None:
    """The next one ends the connection, and nothing of what waited is begun."""

    async def body(peer: Peer) -> None:
        await peer.send(GET * (1 + bounds.MAX_PIPELINED))
        await peer.until(lambda: len(peer.connection.pipeline) == bounds.MAX_PIPELINED)
        assert not peer.connection.closing
        await peer.send(GET)
        await peer.until(lambda: peer.connection.closing)
        assert len(peer.scopes) == 1

    on_connection(tmp_path, body)


def test_a_cut_says_why_only_where_no_answer_has_begun(tmp_path: Path) -> None:
    """A whole problem document; then it is closed, and cutting it again does nothing."""

    async def body(peer: Peer) -> None:
        peer.connection.cut(OverloadedError("enough", hint="later"))
        peer.connection.cut(SpecError("not this"))
        said = await peer.received()
        assert said == refusal(OverloadedError("enough", hint="later"))
        assert b"Retry-After: 1" in said
        assert b"Connection: close" in said

    on_connection(tmp_path, body)


def test_what_is_held_counts_as_unread(tmp_path: Path) -> None:
    """An answer that is made and not handed over."""

    async def body(peer: Peer) -> None:
        assert peer.connection.unread_bytes == 0
        peer.connection.hold(1_000)
        assert peer.connection.unread_bytes == 1_000
        peer.connection.hold(0)

    on_connection(tmp_path, body)


def test_a_user_is_counted_once_for_many_requests(tmp_path: Path) -> None:
    """A connection is a stranger's until a request was let in; then it is of whoever sent the last one."""

    async def body(peer: Peer) -> None:
        for user in ("alice", "alice", "bob"):
            peer.connection.identify(Identity(user=user, role=Role.USER))
        assert peer.connection.user == "bob"
        assert list(peer.shared._of) == ["bob"]

    on_connection(tmp_path, body)


@pytest.mark.parametrize(("error", "later"), [(OverloadedError("x"), True), (SpecError("x"), False)])
def test_a_refusal_says_when_to_come_again_where_that_helps(error: Any, later: bool) -> None:
    """503 and 429 only."""
    assert (b"Retry-After" in refusal(error)) is later
