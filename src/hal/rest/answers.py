"""Answers: JSON of a value, whole, or in slices where it is long; bytes as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from litestar import Response
from litestar.response import Stream

from hal.core.model import HALError, enc_hook
from hal.rest.call import Call, ClientConnection
from hal.rest.endpoint import BYTES, JSON
from hal.runtime.interface import Runtime

VIEWS_A_SLICE: Final = 500
"""Entries of an answer that are encoded in one turn of the loop."""
FREED_A_SLICE: Final = 1_024
"""Entries that are freed in one turn of the loop."""
_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook)


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[bytes]:
    """JSON of any value of the views."""
    return Response(
        content=_ENCODER.encode(value),
        status_code=status,
        media_type=JSON,
        headers=dict(headers) if headers else None,
    )


async def sliced_answer(
    call: Call, runtime: Runtime, value: Any, field: str, entries: list[Any], status: int
) -> Response[Any]:
    """JSON of an object with one long list, encoded and sent in slices; the list is emptied.

    Args:
        value: the object, whose list is empty here.
        field: the list's name.
        entries: what belongs into it.
    """
    empty = b'"%b":[]' % field.encode()
    head, tail = _ENCODER.encode(value).split(empty, 1)
    parts = [head + empty[:-1]]
    for at in range(0, len(entries), VIEWS_A_SLICE):
        comma = b"," if at else b""
        parts.append(comma + _ENCODER.encode(entries[at : at + VIEWS_A_SLICE])[1:-1])
        await runtime.sleep(0)
    parts.append(b"]" + tail)
    await free(runtime, entries)
    return answer_in_parts(call, runtime, parts, status)


def answer_in_parts(
    call: Call, runtime: Runtime, parts: list[bytes], status: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response[Any]:
    """JSON that is already encoded, in parts of which one is sent in each turn of the loop; the list is emptied."""
    sent = {"Content-Length": str(sum(map(len, parts))), **(headers or {})}
    content = _parts(parts, runtime, call.connection)
    return Stream(content, status_code=status, media_type=JSON, headers=sent)


async def _parts(parts: list[bytes], runtime: Runtime, connection: ClientConnection | None) -> AsyncIterator[bytes]:
    """One in each turn of the loop, freed when it is handed over."""
    left = sum(map(len, parts))
    parts.reverse()
    try:
        while parts:
            left -= len(parts[-1])
            if connection is not None:
                connection.hold(left)
            yield parts.pop()
            await runtime.sleep(0)
    finally:
        if connection is not None:
            connection.hold(0)


async def free(runtime: Runtime, entries: list[Any]) -> None:
    """Free what is in the list, in slices where it is much."""
    if len(entries) > VIEWS_A_SLICE:
        while entries:
            del entries[-FREED_A_SLICE:]
            await runtime.sleep(0)


def streamed_answer(
    call: Call, content: AsyncIterator[bytes], media: str = BYTES, headers: Mapping[str, str] | None = None
) -> Stream:
    """Bytes as they come; whoever does not read them holds up the iterator.

    If the content cannot be continued (it raises a `HALError`), the connection is cut before the end of the answer, so
    that nobody takes a part for the whole. That is no fault of the daemon.
    """
    return Stream(_cut_off(call, content), media_type=media, headers=dict(headers) if headers else None)


async def _cut_off(call: Call, content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for piece in content:
            yield piece
    except HALError:
        if call.connection is None:
            raise
        call.connection.drop()


def page_cursor(ids: Sequence[object], limit: int) -> str | None:
    """What asks for the entries after these; None where there are none: a page that is not full is the last."""
    return str(ids[-1]) if len(ids) == limit else None
