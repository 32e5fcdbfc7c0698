"""The outermost layer: who may ask, in which version, how much; below it only well-sized requests of known users.

Pure ASGI.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, cast

import msgspec
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from hal.core.model import HALError, SpecError
from hal.daemons.controller.access.audit import AuditLog
from hal.daemons.controller.access.door import Door
from hal.daemons.controller.access.identity import READING, Identity, Visit
from hal.daemons.controller.access.limiter import Limiter, TooManyError
from hal.daemons.controller.access.passed_on import FOLLOWER, PassedOn
from hal.daemons.controller.access.roles import OPEN, Role
from hal.daemons.controller.api.forwarding import WAIT, NoLeaderError
from hal.daemons.controller.api.problems import (
    PROBLEM_JSON,
    RETRY_AFTER_S,
    HeadersError,
    TooLargeError,
    problem_of,
)
from hal.daemons.controller.openapi import API_VERSION
from hal.runtime.interface import Runtime

MAX_PATH_BYTES = 8 << 10
MAX_HEADERS = 100
FAILURES_PER_S = 5
"""Requests a second from one address that show no token that opens, each answered and put into the audit log."""
FAILURES_AT_ONCE = 50
_DENIED = {401: "unauthorized", 403: "denied"}


class Guard:
    """Wraps the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        door: Door,
        limits: Limiter,
        audit: AuditLog,
        runtime: Runtime,
        max_request_bytes: int,
        passed_on: PassedOn | None = None,
    ) -> None:
        """
        Args:
            passed_on: knows the followers; None: this one does not lead.
        """
        self.app = app
        self._passed_on = passed_on
        self._door = door
        self._limits = limits
        self._failures = Limiter(per_s=FAILURES_PER_S, burst=FAILURES_AT_ONCE, at_once=FAILURES_AT_ONCE)
        self._audit = audit
        self._runtime = runtime
        self._max_request_bytes = max_request_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        raw = cast("MutableMapping[str, Any]", scope)
        if raw["type"] != "http":
            return
        headers = dict(raw["headers"])
        answer = _Answer(send)
        try:
            identity = await self._identify(raw, headers)
        except HALError as error:
            await self._not_let_in(error, raw, answer)
            return
        if identity.inside:
            await self._let_in(identity, raw, headers, receive, answer)
            return
        # What is open to strangers they may ask for as often as they may be refused.
        limits, whose = (self._limits, identity.user) if identity.user else (self._failures, identity.peer)
        try:
            limits.enter(whose, self._runtime.monotonic_ms())
        except TooManyError as error:
            if error.first:
                self._note(raw, 429, identity, refused=error.code)
            await _refuse(error, answer.send)
            return
        try:
            await self._let_in(identity, raw, headers, receive, answer)
        finally:
            limits.leave(whose)

    async def _identify(self, raw: MutableMapping[str, Any], headers: dict[bytes, bytes]) -> Identity:
        if (raw["method"], raw["path"]) in OPEN and b"authorization" not in headers:
            return self._door.stranger(raw.get("state") or {}, raw.get("client"))
        if FOLLOWER not in headers:
            return self._door.identify(raw.get("state") or {}, headers, raw.get("client"))
        if self._passed_on is None:
            raise NoLeaderError("another follower passed this on to one that does not lead", hint=WAIT)
        return await self._passed_on.identity(headers)

    async def _let_in(
        self,
        identity: Identity,
        raw: MutableMapping[str, Any],
        headers: dict[bytes, bytes],
        receive: Receive,
        answer: _Answer,
    ) -> None:
        changing = raw["method"] not in READING
        visit = Visit(identity, self._runtime.new_id() if changing else "")
        raw.setdefault("state", {})["visit"] = visit
        body = _Body(receive, self._max_request_bytes)
        try:
            try:
                _check(raw, headers, self._max_request_bytes)
                if changing:
                    await body.fill()
            except HALError as error:
                await _refuse(error, answer.send, close=True)
                return
            await self.app(cast("Scope", raw), body, answer.send)
        finally:
            if changing or visit.not_own or answer.status in _DENIED:
                refused = "not-own" if visit.not_own else _DENIED.get(answer.status, "")
                self._note(raw, answer.status, identity, refused=refused, visit=visit)

    async def _not_let_in(self, error: HALError, raw: MutableMapping[str, Any], answer: _Answer) -> None:
        """Refused, and, when the same address goes on and on with it, refused for a while without a line for each."""
        peer = self._door.place(raw.get("state") or {}, raw.get("client"))
        try:
            self._failures.enter(peer, self._runtime.monotonic_ms())
        except TooManyError as too_many:
            if too_many.first:
                self._note(raw, 429, Identity(user="", role=Role.USER, peer=peer), refused=too_many.code)
            error = too_many
        else:
            self._failures.leave(peer)
            status = problem_of(error).status
            self._note(raw, status, Identity(user="", role=Role.USER, peer=peer), refused=error.code)
        await _refuse(error, answer.send)

    def _note(
        self,
        raw: MutableMapping[str, Any],
        status: int,
        identity: Identity,
        *,
        refused: str = "",
        visit: Visit | None = None,
    ) -> None:
        targets = list(visit.targets) if visit is not None else []
        if b"dry_run" in (raw.get("query_string") or b""):
            targets.append("dry run")
        self._audit.write(
            at_ms=self._runtime.now_ms(),
            user=identity.user,
            role=identity.role.value if identity.user else "",
            peer=identity.peer,
            token=identity.token,
            method=raw["method"],
            path=raw["path"],
            status=status,
            refused=refused,
            targets=targets,
            trace_id=visit.trace_id if visit is not None else "",
        )


class _Answer:
    """What is sent back, with the version in its head; its status is kept."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def send(self, message: Message) -> None:
        """As ASGI's."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message["headers"], (b"hal-api-version", str(API_VERSION).encode())]
        await self._send(message)


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
    if len(scope["headers"]) > MAX_HEADERS:
        raise HeadersError(f"{len(scope['headers'])} headers; at most {MAX_HEADERS} are read")
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
    if problem.status in (429, 503):
        after_s = error.retry_after_s if isinstance(error, TooManyError) else RETRY_AFTER_S
        headers.append((b"retry-after", str(after_s).encode()))
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
