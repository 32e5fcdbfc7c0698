"""What strangers and hostile users do to a server, against a controller and against a daemon of its own alike."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hal.rest.server import connections as bounds
from hal.rest.server.http_connection import MAX_HEADERS
from tests.rest.serving import DAEMONS, Served, on_served

ASK = b"GET /v1/whoami HTTP/1.1\r\nHost: h\r\n\r\n"
HOST = b" HTTP/1.1\r\nHost: h\r\n"
each_daemon = pytest.mark.parametrize("daemon", DAEMONS)


def begun(upload: bytes) -> tuple[bytes, ...]:
    """Requests that do not go on: heads, a second one, bodies, trailers."""
    return (
        b"",
        b"G",
        b"\r\n",
        b"GET /v1/whoami HTTP/1.1\r\nHost",
        ASK + b"GET",
        upload + HOST + b"Content-Length: 99\r\n\r\n{",
        upload + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
        upload + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-n: 1\r\n",
    )


@each_daemon
def test_what_is_begun_and_not_ended_is_closed_in_time(daemon: str, hal_home: Path) -> None:
    """(H4) Heads, a second one, bodies, trailers: 408 after ten seconds; beside them requests are answered."""

    async def body(one: Served) -> None:
        sent, shared = begun(one.upload), one.server.connections
        async with AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(one.caller(first)) for first in sent]
            other = await stack.enter_async_context(one.caller(ASK))
            await other.answer()
            await callers[4].answer()
            await one.until(lambda: len(shared.heads) + len(shared.bodies) == len(sent))
            one.tick(bounds.HEAD_S + 1)
            for caller, first in zip(callers, sent, strict=True):
                assert b" 408 " in await caller.closed(), first
            other.writer.write(ASK)
            assert b" 200 " in await other.answer()

    on_served(hal_home, body, daemon)


@each_daemon
def test_who_does_not_read_answers_is_cut_off(daemon: str, hal_home: Path) -> None:
    """(H4) The document is asked for again and again, and nothing is read: aborted after STALL_S."""

    async def body(one: Served) -> None:
        shared = one.server.connections
        known = len(shared.open)
        async with one.caller() as deaf:
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(10):
                deaf.writer.write(30 * b"GET /v1/openapi.json HTTP/1.1\r\nHost: h\r\n\r\n")
            await one.until(lambda: bool(shared.stalled) or len(shared.open) == known)
            one.tick(2 * bounds.STALL_S + 1)
            await one.until(lambda: len(shared.open) == known)
            assert not shared.stalled

    on_served(hal_home, body, daemon)


@each_daemon
def test_half_a_body_is_not_taken_for_a_whole_one(daemon: str, hal_home: Path) -> None:
    """(H4) The connection ends before the body's announced length: nothing is kept of it, and the log says so."""

    async def body(one: Served) -> None:
        shared = one.server.connections
        head = one.upload + HOST + b"Content-Length: 99\r\n\r\n"
        async with one.caller(head + b'{"command":["exit","0"]}') as caller:
            await one.until(lambda: bool(shared.bodies))
            caller.writer.close()
            await one.until(lambda: not shared.bodies)
        await one.until(lambda: not one.server._state.tasks)
        assert (await one.hal.http.get("/v1/jobs")).json()["jobs"] == []
        shelf = one.runtime.paths.root / "shelf"
        assert [path for path in shelf.rglob("*") if path.is_file()] == []
        (entry, *_) = one.server._audit.page(limit=1)
        assert entry.status == 499

    on_served(hal_home, body, daemon)


@each_daemon
def test_too_many_requests_in_advance_end_the_connection(daemon: str, hal_home: Path) -> None:
    """(attempt 46) 2,000 requests at once on one connection: it is closed, not queued."""

    async def body(one: Served) -> None:
        async with one.caller(2_000 * ASK) as caller:
            await caller.closed()
        async with one.caller(20 * ASK) as caller:
            for _ in range(20):
                assert b" 200 " in await caller.answer()

    on_served(hal_home, body, daemon)


@each_daemon
@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"Content-Length: 9999999999999\r\n\r\n", b" 413 "),
        (b"X: y\r\n" * (MAX_HEADERS + 1) + b"Content-Length: 0\r\n\r\n", b" 431 "),
        (b"HAL-API-Version: 7\r\nContent-Length: 0\r\n\r\n", b" 400 "),
        (b"Content-Length: x\r\n\r\n", b" 400 "),
    ],
    ids=["length", "headers", "version", "no number"],
)
def test_what_cannot_be_taken_is_refused_before_any_of_it(
    daemon: str, request_head: bytes, status: bytes, hal_home: Path
) -> None:
    """The answer says why, and the connection ends."""

    async def body(one: Served) -> None:
        async with one.caller(one.upload + HOST + request_head) as caller:
            assert status in await caller.closed()

    on_served(hal_home, body, daemon)
