"""Asking a controller who a token is: what it answers, what it does not, and what is never sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hal.core.model import HALError, UnreachableError
from hal.rest import controller_client
from hal.rest.controller_client import ControllerClient
from hal.rest.identity import UnauthorizedError

WHO = (
    b'{"user":"ada","role":"user","peer":"","token":"t1","expires_ms":null,"accounts":[],"queues":[],"read_only":false}'
)
PROBLEM = b'{"type":"t","title":"t","status":%d,"detail":"was revoked","code":"c","hint":"h"}'


def answer(status: int, body: bytes, length: int | None = None) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body) if length is None else length) + body


def asked(tmp_path: Path, answered: bytes | None, token: str = "hal_a_b") -> tuple[object, bytes]:
    """What comes of asking somebody who answers so (None: never), and what was sent."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        if answered is None:
            await reader.read()
        else:
            writer.write(answered)
        writer.close()

    async def body() -> object:
        path = tmp_path / "api.sock"
        async with await asyncio.start_unix_server(serve, str(path)):
            try:
                return await ControllerClient([f"unix:{path}"], tmp_path / "none").who(token)
            except HALError as error:
                return error

    found = asyncio.run(body())
    return found, b"".join(heard)


def test_the_token_is_shown_and_is_to_count(tmp_path: Path) -> None:
    """Not the process that asks. Without a token, it is."""
    who, heard = asked(tmp_path, answer(200, WHO))
    assert getattr(who, "user", None) == "ada"
    assert b"Authorization: Bearer hal_a_b\r\nhal-identify-by: token\r\n" in heard
    _, heard = asked(tmp_path, answer(200, WHO), token="")
    assert b"identify-by" not in heard


def test_what_is_refused_says_why(tmp_path: Path) -> None:
    """With the controller's own words."""
    error, _ = asked(tmp_path, answer(401, PROBLEM % 401))
    assert (type(error), getattr(error, "message", "")) == (UnauthorizedError, "was revoked")


@pytest.mark.parametrize(
    "answered",
    [
        b"",
        b"no HTTP\r\n\r\n",
        b"HTTP/1.1 200 X\r\n\r\n",
        answer(200, b"{}"),
        answer(200, WHO, length=len(WHO) + 1),
        answer(200, b"", length=1 << 40),
        answer(503, PROBLEM % 503),
        b"x" * (1 << 20),
    ],
    ids=["nothing", "no HTTP", "no length", "nobody", "cut", "endless", "503", "long head"],
)
def test_what_is_not_understood_is_no_refusal(tmp_path: Path, answered: bytes) -> None:
    """Nobody is let in or told that their token is wrong; the token is in no error."""
    error, _ = asked(tmp_path, answered)
    assert isinstance(error, UnreachableError)
    assert "hal_a_b" not in str(error)


def test_who_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a daemon's caller."""
    monkeypatch.setattr(controller_client, "ANSWER_TIMEOUT_S", 0.05)
    assert isinstance(asked(tmp_path, None)[0], UnreachableError)


@pytest.mark.parametrize("token", ["a b", "a\r\nX: y", "é", "x" * 1_001])
def test_safety_what_would_be_more_than_a_header_is_not_sent(tmp_path: Path, token: str) -> None:
    """It is no token; nobody is asked."""
    error, heard = asked(tmp_path, answer(200, WHO), token=token)
    assert (type(error), heard) == (UnauthorizedError, b"")


def test_nobody_there_is_said(tmp_path: Path) -> None:
    """Neither a socket nor a port."""
    client = ControllerClient([f"unix:{tmp_path}/none.sock"], tmp_path / "none")
    ask: Callable[[], object] = lambda: asyncio.run(client.who("t"))  # noqa: E731
    with pytest.raises(UnreachableError, match="does not answer"):
        ask()
