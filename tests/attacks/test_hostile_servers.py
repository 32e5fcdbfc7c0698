"""Servers and files that would keep a client busy or fill its memory (L6, attempts 59 and 101)."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path

import pytest

from hal.client.address import find_address
from hal.client.aio import AsyncClient
from hal.client.http import MAX_ANSWER_BYTES
from hal.client.sse import MAX_EVENT_BYTES, EventReader
from hal.client.sync import Client
from hal.core.model import InternalError, SpecError
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
