"""A request passed on to the leader as it came, with who asks; its answer passed back as it comes: streams too.

A connection for each request. An answer that the leader does not end is not ended here either, but cut off: nobody
takes a part of an output for all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, cast

from litestar.types import Receive, Scope, Send

from hal.core.model import UnreachableError
from hal.daemons.controller.access.forwarded_identity import ASKED_BY, FOLLOWER, headers_of
from hal.daemons.controller.api.errors import LOOK, WAIT, BrokeOffError, NoLeaderError
from hal.rest.dialling import UNIX, dial_any
from hal.rest.identity import READING, Identity

CHUNK_BYTES: Final = 64 << 10
HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer", b"expect"}
)
"""Headers that belong to one connection."""
NOT_PASSED_ON: Final = HOP_BY_HOP | {b"content-length", b"authorization", FOLLOWER, ASKED_BY}
NOT_PASSED_BACK: Final = HOP_BY_HOP | {b"hal-api-version"}
"""The guard of this follower says which version it speaks, too."""


async def forward(
    addresses: Sequence[str],
    secret: str,
    authority: Path,
    identity: Identity,
    over: asyncio.Event,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Have the leader answer.

    Args:
        addresses: `unix:/path` and URLs, as its row says.
        secret: by which the leader knows this follower.
        authority: certificate file of the HAL's own, by which this follower knows the leader over TLS.
        over: set when it leads no more.
    Raises:
        NoLeaderError: it does not answer; nothing was done.
        BrokeOffError: it broke off before it answered.
    """
    raw = cast("dict[str, Any]", scope)
    message = await receive()
    body: bytes = cast("dict[str, Any]", message).get("body", b"")
    leader, (reader, writer) = await _dial_leader(addresses, authority)
    try:
        writer.write(_request_head(raw, len(body), headers_of(secret, identity)) + body)
        ended = asyncio.ensure_future(_wait_for_first(_client_gone(receive), over.wait()))
        try:
            status, headers, coding = await _answer_head(ended, reader, writer)
            answer = _AnswerBody(reader, headers, chunked=coding == b"chunked", none=raw["method"] == "HEAD")
            await send({"type": "http.response.start", "status": status, "headers": headers})
            while chunk := await _result_unless_ended(ended, answer.next_piece()):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            ended.cancel()
        if answer.whole:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif (connection := (raw.get("state") or {}).get("connection")) is not None:
            connection.cut()
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        what = f"the leading controller at {leader} broke off before it answered"
        if raw["method"] in READING:
            raise NoLeaderError(what, hint=WAIT) from error
        raise BrokeOffError(f"{what}: this may or may not have been done", hint=LOOK) from error
    finally:
        writer.close()


async def _dial_leader(
    addresses: Sequence[str], authority: Path
) -> tuple[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Its socket, when it is on this host and may be used; else its port.

    Raises:
        NoLeaderError: it cannot be reached.
    """
    try:
        return await dial_any(addresses, authority)
    except UnreachableError as error:
        if all(address.startswith(UNIX) for address in addresses):
            raise NoLeaderError(
                f"the leading controller is on another host and serves no port ({' '.join(addresses)})",
                hint="ask it there, or give controllers server.tcp in hal.toml",
            ) from error
        why = f"the leading controller at {' '.join(addresses)} does not answer: {error.message}"
        raise NoLeaderError(why, hint=WAIT) from error


def _request_head(raw: dict[str, Any], length: int, more: list[tuple[bytes, bytes]]) -> bytes:
    target: bytes = raw["raw_path"]
    if raw["query_string"]:
        target += b"?" + raw["query_string"]
    lines = [raw["method"].encode() + b" " + target + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in raw["headers"] if name not in NOT_PASSED_ON]
    lines += [name + b": " + value for name, value in more]
    lines += [b"content-length: " + str(length).encode(), b"connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _answer_head(
    ended: asyncio.Future[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Its status, headers and transfer coding.

    Raises:
        OSError, EOFError, ValueError, LimitOverrunError: it broke off, was not waited for, or is not understood.
    """

    async def exchange() -> bytes:
        await writer.drain()
        return await reader.readuntil(b"\r\n\r\n")

    head = await _result_unless_ended(ended, exchange())
    if not head:
        raise EOFError
    first, *lines = head[:-4].split(b"\r\n")
    _, status, _ = first.split(b" ", 2)
    headers = []
    coding = b""
    for line in lines:
        name, _, value = line.partition(b":")
        name = name.strip().lower()
        if name == b"transfer-encoding":
            coding = value.strip().lower()
        if name not in NOT_PASSED_BACK:
            headers.append((name, value.strip()))
    return int(status), headers, coding


class _AnswerBody:
    """The body of the leader's answer, in pieces."""

    def __init__(
        self, reader: asyncio.StreamReader, headers: Sequence[tuple[bytes, bytes]], *, chunked: bool, none: bool
    ) -> None:
        """
        Args:
            none: it has no body, whatever its headers say.
        """
        self._reader = reader
        self._chunked = chunked
        length = dict(headers).get(b"content-length", b"0")
        self._left = 0 if chunked or none else int(length)
        """Bytes still to come: of the present chunk, or of all."""
        self.whole = none or (not chunked and self._left == 0)
        """Its end has come."""

    async def next_piece(self) -> bytes:
        """Return the next piece; empty: the body has ended, or broke off."""
        if self.whole:
            return b""
        try:
            return await self._read()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            return b""

    async def _read(self) -> bytes:
        if self._left == 0:
            self._left = int(await self._reader.readuntil(b"\r\n"), 16)
            if self._left <= 0:
                self.whole = self._left == 0
                return b""
        data = await self._reader.read(min(self._left, CHUNK_BYTES))
        self._left -= len(data)
        if data and self._left == 0:
            if self._chunked:
                await self._reader.readexactly(2)
            else:
                self.whole = True
        return data


async def _client_gone(receive: Receive) -> None:
    while cast("dict[str, Any]", await receive()).get("type") != "http.disconnect":
        continue


async def _wait_for_first(*works: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of them is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _result_unless_ended(ended: asyncio.Future[None], work: Coroutine[Any, Any, bytes]) -> bytes:
    """What it gives; nothing when the answer has ended or nobody waits for it any more."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else b""
    finally:
        task.cancel()
