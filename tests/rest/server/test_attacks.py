"""What strangers and hostile users do to a server, against a controller and against a daemon of its own alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from hal.rest.server import connections as bounds
from hal.rest.server.http_connection import MAX_HEADERS
from tests.rest.serving import DAEMONS, Run, Served, shared

ASK = b"GET /v1/whoami HTTP/1.1\r\nHost: h\r\n\r\n"
HOST = b" HTTP/1.1\r\nHost: h\r\n"


@pytest.fixture(scope="module", params=DAEMONS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """The controller, or the shelf beside one."""
    with shared(request.param) as made:
        yield made


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


def test_what_is_begun_and_not_ended_is_closed_in_time(run: Run) -> None:
    """(H4) Heads, a second one, bodies, trailers: 408 after ten seconds; beside them requests are answered."""

    async def body(one: Served) -> None:
        sent, tables = begun(one.upload), one.server.connections
        async with AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(one.caller(first)) for first in sent]
            other = await stack.enter_async_context(one.caller(ASK))
            await other.answer()
            await callers[4].answer()
            await one.until(lambda: len(tables.heads) + len(tables.bodies) == len(sent))
            one.tick(bounds.HEAD_S + 1)
            for caller, first in zip(callers, sent, strict=True):
                assert b" 408 " in await caller.closed(), first
            other.writer.write(ASK)
            assert b" 200 " in await other.answer()

    run(body)


def test_who_does_not_read_answers_is_cut_off(run: Run) -> None:
    """(H4) A long answer is asked for again and again, and nothing is read: aborted after STALL_S."""

    async def body(one: Served) -> None:
        tables = one.server.connections
        ask, known = await one.long_answer(), set(tables.open)
        async with one.caller() as deaf:
            await one.until(lambda: bool(tables.open - known))
            (theirs,) = tables.open - known
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            deaf.writer.write(20 * (ask + HOST + b"\r\n"))
            await one.until(lambda: theirs in tables.stalled)
            one.tick(2 * bounds.STALL_S + 1)
            await one.until(lambda: theirs not in tables.open)
            assert theirs not in tables.stalled

    run(body)


def test_half_a_body_is_not_taken_for_a_whole_one(run: Run) -> None:
    """(H4) The connection ends before the body's announced length: nothing is kept of it, and the log says so."""

    async def body(one: Served) -> None:
        tables = one.server.connections
        head = one.upload + HOST + b"Content-Length: 99\r\n\r\n"
        async with one.caller(head + b'{"command":["exit","0"]}') as caller:
            await one.until(lambda: bool(tables.bodies))
            caller.writer.close()
            await one.until(lambda: not tables.bodies)
        await one.until(lambda: not one.server._state.tasks)
        assert (await one.hal.http.get("/v1/jobs")).json()["jobs"] == []
        shelf = one.runtime.paths.root / "shelf"
        assert [path.name for path in shelf.rglob("*") if path.is_file() and path.name != "long"] == []
        (entry, *_) = one.server._audit.page(limit=1)
        assert entry.status == 499

    run(body)


def test_too_many_requests_in_advance_end_the_connection(run: Run) -> None:
    """(attempt 46) 2,000 requests at once on one connection: it is closed, not queued."""

    async def body(one: Served) -> None:
        async with one.caller(2_000 * ASK) as caller:
            await caller.closed()
        async with one.caller(20 * ASK) as caller:
            for _ in range(20):
                assert b" 200 " in await caller.answer()

    run(body)


def test_what_cannot_be_taken_is_refused_before_any_of_it(run: Run) -> None:
    """Too long, too many headers, an unknown version, no length: the answer says why, and the connection ends."""
    refused = (
        (b"Content-Length: 9999999999999\r\n\r\n", b" 413 "),
        (b"X: y\r\n" * (MAX_HEADERS + 1) + b"Content-Length: 0\r\n\r\n", b" 431 "),
        (b"HAL-API-Version: 7\r\nContent-Length: 0\r\n\r\n", b" 400 "),
        (b"Content-Length: x\r\n\r\n", b" 400 "),
    )

    async def body(one: Served) -> None:
        for head, status in refused:
            async with one.caller(one.upload + HOST + head) as caller:
                assert status in await caller.closed(), head

    run(body)
