"""Servers and files that would keep a client busy or fill its memory (L6, attempts 59 and 101)."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hal.client.address_lookup import find_address
from hal.client.addresses.address import Address
from hal.client.async_client import AsyncClient
from hal.client.rest.server_events import MAX_EVENT_BYTES, EventReader
from hal.client.sync_client import Client
from hal.client.transport.exchange import MAX_ANSWER_BYTES
from hal.core.model import HALError, InternalError, SpecError, UnreachableError
from hal.core.model.text import MAX_KEY_PARTS, plain_from_text
from tests.client.scripted_server import Reply, ScriptedServer

MIB = b" " * (1 << 20)
ENDLESS = [MIB] * ((MAX_ANSWER_BYTES >> 20) + 2)


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_answer_without_an_end_is_given_up(hal_home: Path, status: int, kind: str) -> None:
    """(L6, attempt 101) No more than the bound is kept of it, whether it is an answer or an error."""
    server = ScriptedServer(lambda asked: Reply(status=status, chunks=ENDLESS), path=hal_home / "s")
    address = find_address(url=f"unix://{hal_home / 's'}")

    async def ask_later() -> None:
        async with AsyncClient(address) as client:
            await client.health()

    def ask() -> None:
        with Client(address) as client:
            client.health()

    try:
        with pytest.raises(InternalError, match="longer than"):
            ask() if kind == "sync" else asyncio.run(ask_later())
    finally:
        server.stop()


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "answer",
    [
        b'200 OK\r\nContent-Length: %d\r\n\r\n{"jobs": %b}' % (len(DEEP) + 10, DEEP),
        b'400 No\r\nContent-Length: %d\r\n\r\n{"x": %b}' % (len(DEEP) + 7, DEEP),
        b'200 OK\r\nContent-Length: 11\r\n\r\n{"jobs": 5}',
        b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n{}\r\n",
    ],
    ids=["deep", "deep-error", "no-list", "negative-chunk"],
)
def test_an_answer_that_makes_no_sense_is_an_error_of_hal(answer: bytes) -> None:
    """Nested a hundred thousand deep, a number for a list, a chunk of less than nothing: one sentence, no trace."""
    with raw_server(lambda sock: sock.sendall(b"HTTP/1.1 " + answer)) as address:
        client = Client(address, reconnect_s=0)
        with pytest.raises(HALError):
            list(client.jobs())
        client.close()


def drip(head: bytes, more: bytes) -> Callable[[socket.socket], None]:
    """Sends the head, then so much again and again, for as long as somebody listens."""

    def send(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.sendall(head)
            while True:
                sock.sendall(more)
                select.select([], [], [], 0.01)

    return send


SLOW = {
    "head": drip(b"HTTP/1.1 200 OK\r\nX: ", b"y"),
    "interim": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
    "chunks": drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "error": drip(b"HTTP/1.1 500 No\r\nContent-Length: 100000\r\n\r\n", b" "),
}


@pytest.mark.parametrize("part", SLOW)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_answer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch, part: str, kind: str) -> None:
    """A byte now and then, in the head, behind interim answers without end, in the body: nobody waits for ever."""
    for module in ("http", "async_http"):
        monkeypatch.setattr(f"hal.client.transport.{module}.ANSWER_TIMEOUT_S", 0.3)

    async def ask_later(address: Address) -> None:
        async with AsyncClient(address, reconnect_s=0) as client:
            await client.health()

    def ask(address: Address) -> None:
        with Client(address, reconnect_s=0) as client:
            client.health()

    with raw_server(SLOW[part]) as address, pytest.raises(UnreachableError):
        ask(address) if kind == "sync" else asyncio.run(ask_later(address))


@contextlib.contextmanager
def raw_server(answer: Callable[[socket.socket], None]) -> Iterator[Address]:
    """A port of this machine that gives that to whoever asks."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listening.accept()
                with sock:
                    if sock.recv(1 << 16):
                        answer(sock)

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        yield find_address(url=f"http://127.0.0.1:{listening.getsockname()[1]}", token="x", plain=True)
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        serving.join(20)


@pytest.mark.parametrize("line", [b"data:\n", b"data: x\n", b"data: " + b"y" * 500 + b"\n", b"z" * 1_000])
def test_an_event_without_an_end_is_given_up(line: bytes) -> None:
    """(L6) Of lines with much, little or nothing in them, or of one that never ends."""
    reader = EventReader()
    pieces = line * (65_536 // len(line))
    with pytest.raises(InternalError, match="longer than"):
        deque((list(reader.feed(pieces)) for _ in range(2 * MAX_EVENT_BYTES // len(pieces))), maxlen=1)


@pytest.mark.parametrize("text", ["a." * 50_000 + "a = 1", "[" + "a." * 50_000 + "a]", "[[" + " a . " * 20_000 + "a]]"])
def test_a_key_of_thousands_of_parts_is_refused_at_once(text: str) -> None:
    """(L6, attempt 59) tomllib would be busy for half a minute or more."""
    with pytest.raises(SpecError):
        plain_from_text(text, kind="toml")


def test_keys_and_texts_of_ordinary_length_are_read() -> None:
    """As many parts as may be; texts with many dots."""
    deep = ".".join("a" * (MAX_KEY_PARTS - 1))
    assert plain_from_text(f"{deep} = 1\nb = '{'. ' * 500}'", kind="toml")["b"][0] == "."
