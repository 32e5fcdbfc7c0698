"""A request passed on to the leader as it came, its answer passed back as it comes: streams too.

HTTP/1.0 on the way to the leader: it answers without chunks and ends the answer by closing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from litestar.types import Receive, Scope, Send

from hal.core.model import UnreachableError

DIAL_TIMEOUT_S: Final = 2.0
MAX_HEAD_BYTES: Final = 64 << 10
CHUNK_BYTES: Final = 64 << 10
_UNIX: Final = "unix:"
HOP_BY_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer", b"expect"}
)
"""Headers that belong to one connection."""
NOT_PASSED_ON: Final = HOP_BY_HOP | {b"content-length", b"authorization"}
NOT_PASSED_BACK: Final = HOP_BY_HOP | {b"hal-api-version"}
"""The guard of this follower says which version it speaks, too."""
WAIT: Final = "a follower takes over within seconds: try again"


async def forward(places: Sequence[str], token: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Have the leader answer, who takes the request for one of its owner's: only the owner's own are passed on.

    Args:
        places: `unix:/path` and `http://host:port`, as its row says.
        token: opens the port.
    Raises:
        UnreachableError: it does not answer, and nothing was answered yet.
    """
    raw = cast("dict[str, Any]", scope)
    leader = _nearest(places)
    message = await receive()
    body: bytes = cast("dict[str, Any]", message).get("body", b"")
    try:
        async with asyncio.timeout(DIAL_TIMEOUT_S):
            reader, writer = await _dial(leader)
    except (OSError, TimeoutError) as error:
        raise UnreachableError(f"the leading controller at {leader} does not answer: {error}", hint=WAIT) from error
    try:
        writer.write(_head(raw, len(body), "" if leader.startswith(_UNIX) else token) + body)
        await writer.drain()
        status, headers = await _answer_head(reader, leader)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        gone = asyncio.ensure_future(_client_gone(receive))
        try:
            while chunk := await _chunk_unless(gone, reader):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except OSError as error:
        raise UnreachableError(f"the leading controller at {leader} broke off: {error}", hint=WAIT) from error
    finally:
        writer.close()


async def _dial(leader: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if leader.startswith(_UNIX):
        return await asyncio.open_unix_connection(leader.removeprefix(_UNIX), limit=MAX_HEAD_BYTES)
    parts = urlsplit(leader)
    return await asyncio.open_connection(parts.hostname, parts.port, limit=MAX_HEAD_BYTES)


def _nearest(places: Sequence[str]) -> str:
    """Its socket, when it is on this host; else its port."""
    for place in places:
        if not place.startswith(_UNIX) or Path(place.removeprefix(_UNIX)).exists():
            return place
    raise UnreachableError(
        f"the leading controller is on another host ({' '.join(places)}) and serves no port",
        hint="ask it there, or give controllers server.tcp in hal.toml",
    )


def _head(raw: dict[str, Any], length: int, token: str) -> bytes:
    target: bytes = raw["raw_path"]
    if raw["query_string"]:
        target += b"?" + raw["query_string"]
    lines = [raw["method"].encode() + b" " + target + b" HTTP/1.0"]
    lines += [name + b": " + value for name, value in raw["headers"] if name not in NOT_PASSED_ON]
    lines.append(b"content-length: " + str(length).encode())
    if token:
        lines.append(b"authorization: Bearer " + token.encode())
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _answer_head(reader: asyncio.StreamReader, leader: str) -> tuple[int, list[tuple[bytes, bytes]]]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        status = int(first.split(b" ", 2)[1])
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError) as error:
        raise UnreachableError(f"the leading controller at {leader} broke off", hint=WAIT) from error
    headers = []
    for line in lines:
        name, _, value = line.partition(b":")
        name = name.strip().lower()
        if name not in NOT_PASSED_BACK:
            headers.append((name, value.strip()))
    return status, headers


async def _client_gone(receive: Receive) -> None:
    while cast("dict[str, Any]", await receive()).get("type") != "http.disconnect":
        continue


async def _chunk_unless(gone: asyncio.Future[None], reader: asyncio.StreamReader) -> bytes:
    """The next piece; nothing when the answer has ended or nobody waits for it any more."""
    reading = asyncio.ensure_future(reader.read(CHUNK_BYTES))
    await asyncio.wait((reading, gone), return_when=asyncio.FIRST_COMPLETED)
    if not reading.done():
        reading.cancel()
        return b""
    return reading.result()
