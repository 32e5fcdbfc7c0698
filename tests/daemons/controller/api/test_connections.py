"""Connections of REST: how long each may take, how many there may be, and what of a request counts."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from uvicorn.server import ServerState

from hal.core.model import DeniedError, OverloadedError
from hal.daemons.controller.access.settings import AccessSection
from hal.daemons.controller.api.rest_server import RestServer
from hal.daemons.controller.config import Config
from hal.rest.identity import Identity
from hal.rest.limiter import TooManyError
from hal.rest.rights import Role
from hal.rest.server import connections as bounds
from hal.rest.server.certificate import open_rest_certificate
from hal.rest.server.connections import Connections, Strangers
from hal.rest.server.http_connection import HttpConnection
from hal.runtime.authority import open_authority
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.sockets import peer_of
from tests.daemons.controller.running import LIMIT_S, Running, on_controller
from tests.rest.serving import Caller

ASK = b"GET /v1/version HTTP/1.1\r\nHost: h\r\n\r\n"
JOB = b'{"command":["exit","0"]}'


@asynccontextmanager
async def caller(hal: Running, first: bytes = b"") -> AsyncIterator[Caller]:
    """A connection on which that was sent, and has been read."""
    known = len(hal.rest.connections.open)
    reader, writer = await asyncio.open_unix_connection(str(hal.runtime.paths.api_socket()))
    try:
        writer.write(first)
        await writer.drain()
        await hal.until(lambda: len(hal.rest.connections.open) > known)
        yield Caller(reader, writer)
    finally:
        writer.close()


def tick(hal: Running, seconds: int) -> None:
    """So many seconds go by for all connections."""
    for _ in range(seconds):
        hal.rest.connections.tick()


def test_idle_connections_are_closed_late_and_long_polls_not_at_all(hal_home: Path) -> None:
    """(H4) An answered connection stays for KEEP_ALIVE_S; one that waits for its answer is not hurried."""

    async def body(hal: Running) -> None:
        (job,) = await hal.submit({"command": ["true"], "hold": True})
        wait = b"GET /v1/jobs/%s/wait?timeout_s=60 HTTP/1.1\r\nHost: h\r\n\r\n" % job.encode()
        async with caller(hal, ASK) as idle, caller(hal, wait) as waiting:
            await idle.answer()
            tick(hal, bounds.HEAD_S + 5)
            idle.writer.write(ASK)
            await idle.answer()
            tick(hal, bounds.KEEP_ALIVE_S + 1)
            assert await idle.closed() == b""
            assert (await hal.http.post("/v1/jobs/cancel", json={"ids": [job]})).status_code == 200
            assert b'"cancelled"' in await waiting.answer()

    on_controller(hal_home, body)


def test_who_reads_a_last_answer_slowly_gets_all_of_it(hal_home: Path) -> None:
    """(H4) A list of 1,000 jobs on a closed connection, five seconds for each piece: nothing is missing."""

    async def body(hal: Running) -> None:
        await hal.submit(*({"command": ["true"], "hold": True} for _ in range(1_000)))
        whole = len((await hal.http.get("/v1/jobs?limit=1000")).content)
        ask = b"GET /v1/jobs?limit=1000 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        async with caller(hal, ask) as slow:
            await hal.until(lambda: bool(hal.rest.connections.closing))
            read = 0
            while data := await slow.reader.read(65_536):
                read += len(data)
                await hal.runtime.sleep(1)
                tick(hal, bounds.CLOSE_S)
            assert read > whole

    on_controller(hal_home, body)


def test_trailers_are_no_headers(hal_home: Path) -> None:
    """(H3) A key in a trailer is no key: the same job twice is two jobs."""

    async def body(hal: Running) -> None:
        chunked = b"%x\r\n%b\r\n0\r\nIdempotency-Key: k\r\n\r\n" % (len(JOB), JOB)
        async with caller(hal) as one:
            for number in (b'"1"', b'"2"'):
                one.writer.write(b"POST /v1/jobs HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked)
                assert number in await one.answer()

    on_controller(hal_home, body)


def test_a_feed_ends_with_its_connection_behind_a_pipelined_request(hal_home: Path) -> None:
    """(M6) A feed, then a second request on the same connection, then nobody: nothing of it is left."""

    async def body(hal: Running) -> None:
        feed = b"GET /v1/events HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n"
        state = hal.rest._state
        async with caller(hal, feed) as one:
            async with asyncio.timeout(LIMIT_S):
                await one.reader.readuntil(b"the feed begins")
            one.writer.write(ASK)
            await hal.until(lambda: any(each.pipeline for each in hal.rest.connections.open))
            assert state.tasks
        await hal.until(lambda: not state.tasks)

    on_controller(hal_home, body)


def test_a_server_listens_everywhere_or_nowhere(hal_home: Path) -> None:
    """(L10) Its public socket cannot be: the private one, at which `hal up` looks, does not answer either."""

    async def body(hal: Running) -> None:
        path = hal_home / "second.sock"
        bad = Config(access=AccessSection(socket="/tmp/api.sock"))
        rest = RestServer(hal.api, hal.runtime, bad, owner_uid=os.geteuid())
        with pytest.raises(DeniedError):
            await rest.start(path)
        with pytest.raises(OSError, match=r"refused|No such file"):
            await asyncio.open_unix_connection(str(path))

    on_controller(hal_home, body)


def test_the_kernel_names_a_peer_when_there_is_no_descriptor_left() -> None:
    """(attempt 14) Asking took a descriptor of its own, and was a fault without one."""
    ours, theirs = socket.socketpair()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        assert peer_of(ours.fileno()).uid == os.geteuid()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        ours.close()
        theirs.close()


def test_over_tls_strangers_are_counted_before_their_handshake(hal_home: Path) -> None:
    """(H4) 80 that dial and send nothing: 64 are kept; one that shakes hands and then drips is closed as others are."""

    async def body(hal: Running) -> None:
        authority = open_authority(hal.runtime.paths.authority, hal.runtime.now_ms())
        certificate = await open_rest_certificate(hal.runtime, authority, ["127.0.0.1"], None)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = Config(tcp=("127.0.0.1", port), tls=True)
        rest = RestServer(hal.api, hal.runtime, config, owner_uid=os.geteuid(), tls=certificate.context)
        await rest.start(hal_home / "second.sock")
        shared = rest.connections
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        _, dripping = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        await hal.until(lambda: len(shared.heads) == 1)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(80)]
        gone = [asyncio.ensure_future(reader.read()) for reader, _ in silent]
        await hal.until(lambda: sum(each.done() for each in gone) >= 81 - bounds.MAX_STRANGERS_OF_ONE)
        assert len(shared.open) <= bounds.MAX_STRANGERS_OF_ONE
        dripping.write(b"G")
        for _ in range(bounds.HEAD_S + 1):
            shared.tick()
        assert not shared.heads
        for _, writer in silent:
            writer.close()
        dripping.transport.abort()
        await rest.stop()

    on_controller(hal_home, body)


# ── how many ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Crowd:
    """Connections that were accepted and have sent nothing, on a clock of the test's."""

    def __init__(self, file: LogFile, descriptors: int = 20_000, at_once: int = 300) -> None:
        self.now_s = 0.0
        self.shared = Connections(
            open_log(file, "test"),
            descriptors=descriptors,
            at_once=at_once,
            now_s=lambda: self.now_s,
        )
        self.port = Strangers()
        self._config = uvicorn.Config(lambda: None, loop="none", ws="none", lifespan="off", log_config=None)
        self._config.load()

    def enter(self, where: str, descriptor: int = 100, *, private: bool = False) -> HttpConnection:
        """One more."""
        one = HttpConnection(self._config, ServerState(), self.shared, where=where, private=private)
        one.accepted_s = self.now_s
        self.shared.enter(one, None if private else self.port, descriptor)
        return one


def on_crowd(test: object, **settings: int) -> None:
    """Run it in a loop."""

    async def body() -> None:
        with tempfile.TemporaryDirectory() as directory:
            file = LogFile(Path(directory, "test.log"))
            test(Crowd(file, **settings))  # type: ignore[operator]
            file.close()

    asyncio.run(body())


def test_an_address_has_64_strangers_and_the_oldest_makes_room() -> None:
    """(H4) The 65th is refused while all are younger than a second; later the oldest goes; others are not touched."""

    def body(crowd: Crowd) -> None:
        for _ in range(bounds.MAX_STRANGERS_OF_ONE):
            crowd.enter("192.0.2.1")
        with pytest.raises(OverloadedError):
            crowd.enter("192.0.2.1")
        other = crowd.enter("192.0.2.2")
        crowd.now_s = bounds.STRANGER_GRACE_S
        fresh = crowd.enter("192.0.2.1")
        assert other in crowd.port.all
        assert fresh in crowd.port.all
        assert len(crowd.port.of["192.0.2.1"]) == bounds.MAX_STRANGERS_OF_ONE

    on_crowd(body)


def test_a_follower_passes_on_more_than_64_at_once() -> None:
    """Its address has shown a follower's secret: 200 of its connections are let in before their heads are read."""

    def body(crowd: Crowd) -> None:
        crowd.shared.know_relay("192.0.2.1")
        for _ in range(200):
            crowd.enter("192.0.2.1")
        for number in range(2 * bounds.MAX_RELAYS):
            crowd.shared.know_relay(f"192.0.2.{number}")
        with pytest.raises(OverloadedError):
            crowd.enter("192.0.2.1")

    on_crowd(body)


def test_a_port_has_256_strangers_whoever_they_are() -> None:
    """(H4) Of 300 addresses: there is no room until the oldest is a second old; the private socket has its own."""

    def body(crowd: Crowd) -> None:
        for number in range(bounds.MAX_STRANGERS):
            assert crowd.shared.room_for(crowd.port)
            crowd.enter(f"192.0.2.{number}")
        assert not crowd.shared.room_for(crowd.port)
        crowd.enter("uid 0", private=True)
        crowd.now_s = bounds.STRANGER_GRACE_S
        assert crowd.shared.room_for(crowd.port)
        assert len(crowd.port.all) == bounds.MAX_STRANGERS - 1

    on_crowd(body)


def test_a_user_has_so_many_connections_and_the_owner_any() -> None:
    """(H4) With 4 requests at once, 4 + SPARE_CONNECTIONS; none of them idle, the next one is too many."""

    def body(crowd: Crowd) -> None:
        alice = Identity(user="alice", role=Role.USER)
        for _ in range(4 + bounds.SPARE_CONNECTIONS):
            crowd.shared.identify(crowd.enter("192.0.2.1"), alice)
        with pytest.raises(TooManyError):
            crowd.shared.identify(crowd.enter("192.0.2.1"), alice)
        crowd.shared.identify(crowd.enter("192.0.2.1"), Identity(user="bob", role=Role.USER))
        root = Identity(user="root", role=Role.ADMIN, inside=True)
        for _ in range(2 * bounds.SPARE_CONNECTIONS):
            crowd.shared.identify(crowd.enter("192.0.2.1"), root)
        assert len(crowd.port.all) == 1

    on_crowd(body, at_once=4)


@pytest.mark.parametrize("descriptors", [64, 256, 400, 1_024, 65_536])
def test_the_last_descriptors_are_for_the_private_socket(descriptors: int) -> None:
    """(H4) A number close to the limit: refused from outside, taken from inside, and some are left to files."""

    def body(crowd: Crowd) -> None:
        public, private = crowd.shared.most_public, crowd.shared.most_private
        assert descriptors // 2 <= public < private < descriptors
        crowd.enter("192.0.2.1", public - 1)
        with pytest.raises(OverloadedError):
            crowd.enter("192.0.2.2", public)
        crowd.enter("uid 0", private - 1, private=True)
        crowd.now_s = bounds.STRANGER_GRACE_S
        crowd.enter("192.0.2.2", public)
        assert list(crowd.port.of) == ["192.0.2.2"]

    on_crowd(body, descriptors=descriptors)


def test_what_has_left_is_forgotten() -> None:
    """Nothing is kept of connections that have ended, whoever they were."""

    def body(crowd: Crowd) -> None:
        ones = [crowd.enter(f"192.0.2.{number}") for number in range(20)]
        for number, one in enumerate(ones):
            if number % 3:
                crowd.shared.identify(one, Identity(user=f"user{number % 3}", role=Role.USER))
        for one in ones:
            crowd.shared.leave(one)
        shared = crowd.shared
        assert [*map(len, (crowd.port.all, crowd.port.of, shared.open, shared._of, shared._strangers))] == [0] * 5

    on_crowd(body)
