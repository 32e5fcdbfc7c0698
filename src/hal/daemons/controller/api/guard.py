"""The outermost layer: who may ask, in which version, how much; below it only well-sized requests of known users.

Pure ASGI.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, cast

import msgspec
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from hal.core.model import HALError, SpecError
from hal.daemons.controller.access.door import Door
from hal.daemons.controller.access.identity import READING, Visit
from hal.daemons.controller.api.problems import (
    PROBLEM_JSON,
    RETRY_AFTER_S,
    TooLargeError,
    problem_of,
)
from hal.daemons.controller.openapi import API_VERSION

MAX_PATH_BYTES = 8 << 10


class Guard:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, *, door: Door, new_id: Callable[[], str], max_request_bytes: int) -> None:
        self.app = app
        self._door = door
        self._new_id = new_id
        self._max_request_bytes = max_request_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        raw = cast("MutableMapping[str, Any]", scope)
        if raw["type"] != "http":
            return
        headers = dict(raw["headers"])

        async def versioned(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"hal-api-version", str(API_VERSION).encode())]
            await send(message)

        try:
            identity = self._door.identify(raw.get("state") or {}, headers, raw.get("client"))
            _check(raw, headers, self._max_request_bytes)
        except HALError as error:
            await _refuse(error, versioned)
            return
        changing = raw["method"] not in READING
        raw.setdefault("state", {})["visit"] = Visit(identity, self._new_id() if changing else "")
        body = _Body(receive, self._max_request_bytes)
        if changing:
            try:
                await body.fill()
            except HALError as error:
                await _refuse(error, versioned, close=True)
                return
        await self.app(scope, body, versioned)


class _Body:
    """The request's body, read whole before anything looks at it, and no further than the limit."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._parts: list[bytes] | None = None

    async def fill(self) -> None:
        """Read all of it.

        Raises:
            TooLargeError: it is longer than the limit.
        """
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                break
            part = message.get("body", b"")
            size += len(part)
            if size > self._limit:
                raise _too_large(self._limit)
            parts.append(part)
            if not message.get("more_body"):
                break
        self._parts = parts

    async def __call__(self) -> Any:
        if self._parts is not None:
            body, self._parts = b"".join(self._parts), None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()


def _check(scope: MutableMapping[str, Any], headers: dict[bytes, bytes], limit: int) -> None:
    if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > MAX_PATH_BYTES:
        raise SpecError(f"the path and its parameters are longer than {MAX_PATH_BYTES} bytes")
    wanted = headers.get(b"hal-api-version", b"").decode("latin-1").strip()
    if wanted and wanted != str(API_VERSION):
        raise SpecError(f"HAL-API-Version: '{wanted[:20]}' is not spoken here", hint=f"this HAL speaks {API_VERSION}")
    length = headers.get(b"content-length", b"0").decode("latin-1")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(
        f"the request's body is longer than {limit} bytes",
        hint="submit fewer jobs at once, or alike ones as an array; hal.toml: server.max_request_bytes",
    )


async def _refuse(error: HALError, send: Send, *, close: bool = False) -> None:
    problem = problem_of(error)
    body = msgspec.json.encode(problem)
    headers = [(b"content-type", PROBLEM_JSON.encode()), (b"content-length", str(len(body)).encode())]
    if problem.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if problem.status == 503:
        headers.append((b"retry-after", str(RETRY_AFTER_S).encode()))
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
