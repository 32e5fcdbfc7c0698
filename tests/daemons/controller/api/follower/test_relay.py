"""A request passed on to a leader that answers: what goes there, what comes back, what if it breaks off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hal.daemons.controller.access.forwarded_identity import FOLLOWER
from hal.daemons.controller.api.errors import BrokeOffError, NoLeaderError
from hal.daemons.controller.api.follower.forwarding import forward
from hal.rest.identity import Identity
from hal.rest.rights import Role

DEADLINE_S = 30.0
BOB = Identity(user="bob", role=Role.USER)


class Cut:
    """The caller's connection, as far as it is cut."""

    def __init__(self) -> None:
        self.cut_off = False

    def cut(self) -> None:
        self.cut_off = True


class Relayed:
    """One request over a leader that says what it is told to say."""

    def __init__(self, directory: Path, says: bytes, method: str = "GET") -> None:
        self._path = directory / "api.sock"
        self._says = says
        self.method = method
        self.heard = b""
        self.sent: list[Any] = []
        self.connection = Cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        self.heard = head + await reader.readexactly(length)
        writer.write(self._says)
        writer.close()

    def run(self, over: Callable[[asyncio.Event], None] = lambda event: None) -> None:
        """Pass it on and wait for the end of the answer."""

        async def main() -> None:
            server = await asyncio.start_unix_server(self._serve, self._path)
            event = asyncio.Event()
            over(event)
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await forward(
                        [f"unix:{self._path}"],
                        "secret",
                        Path("/none"),
                        BOB,
                        event,
                        self._scope(),
                        self._receive(),
                        self._send,
                    )
            finally:
                server.close()

        asyncio.run(main())

    def _scope(self) -> Any:
        return {
            "method": self.method,
            "raw_path": b"/v1/jobs",
            "query_string": b"dry_run=1",
            "headers": [
                (b"host", b"hal"),
                (b"authorization", b"Bearer hal_id_secret"),
                (b"connection", b"keep-alive"),
                (b"transfer-encoding", b"chunked"),
                (b"idempotency-key", b"k"),
                (FOLLOWER, b"forged"),
            ],
            "state": {"connection": self.connection},
        }

    def _receive(self) -> Any:
        messages = [{"type": "http.request", "body": b"{}", "more_body": False}]

        async def receive() -> Any:
            if messages:
                return messages.pop(0)
            await asyncio.Event().wait()
            return None

        return receive

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def whole(self) -> bool:
        """Its end was sent."""
        return bool(self.sent) and self.sent[-1].get("more_body") is False


def test_a_request_goes_on_as_it_came_with_who_asks_and_without_what_belongs_to_its_connection(tmp_path: Path) -> None:
    """Path, parameters, key and body; the secret in the place of a forged one; no token, no hop-by-hop header."""
    one = Relayed(tmp_path, b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok", "POST")
    one.run()
    head, _, body = one.heard.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/jobs?dry_run=1 HTTP/1.1"
    assert body == b"{}"
    assert b"idempotency-key: k" in lines
    assert FOLLOWER + b": secret" in lines
    assert b"connection: close" in lines
    assert not any(bad in one.heard for bad in (b"hal_id_secret", b"forged", b"keep-alive", b"chunked"))


def test_the_answer_comes_back_with_status_headers_and_body(tmp_path: Path) -> None:
    """But for what belongs to the leader's connection, and its version, which this guard says itself."""
    one = Relayed(
        tmp_path,
        b"HTTP/1.1 404 Not Found\r\nX-A: 1\r\nHAL-API-Version: 1\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngone",
    )
    one.run()
    assert one.sent[0]["status"] == 404
    assert one.sent[0]["headers"] == [(b"x-a", b"1"), (b"content-length", b"4")]
    assert (one.body, one.whole) == (b"gone", True)


def test_a_chunked_answer_is_passed_back_piece_by_piece(tmp_path: Path) -> None:
    """Two chunks, of ten bytes (hexadecimal a) and of three, and the last one: its end is this answer's end."""
    says = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n3\r\ntwo\r\n0\r\n\r\n"
    one = Relayed(tmp_path, says)
    one.run()
    assert (one.body, one.whole, one.connection.cut_off) == (b"0123456789two", True, False)


@pytest.mark.parametrize(
    "says",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
    ],
)
def test_safety_half_an_answer_is_cut_off_and_not_ended(tmp_path: Path, says: bytes) -> None:
    """Nobody takes a part of an output for all of it."""
    one = Relayed(tmp_path, says)
    one.run()
    assert (one.body, one.whole, one.connection.cut_off) == (b"half", False, True)


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 ok\r\n\r\n"])
def test_a_leader_that_breaks_off_before_it_answers(tmp_path: Path, says: bytes) -> None:
    """A GET can be sent again; of a change it is said that it may have been done."""
    with pytest.raises(NoLeaderError, match="broke off before it answered"):
        Relayed(tmp_path, says).run()
    with pytest.raises(BrokeOffError, match="may or may not have been done"):
        Relayed(tmp_path, says, "POST").run()


def test_who_leads_no_more_is_not_waited_for(tmp_path: Path) -> None:
    """The lease was lost to another: the request of a reader is told to try again."""
    with pytest.raises(NoLeaderError):
        Relayed(tmp_path, b"").run(asyncio.Event.set)
