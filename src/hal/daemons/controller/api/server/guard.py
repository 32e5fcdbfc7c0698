"""The outermost layer: who may ask, in which version, how much; below it only well-sized requests of known users.

Pure ASGI.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from functools import partial
from typing import Any, cast

import msgspec
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from hal.core.model import HALError, SpecError
from hal.daemons.controller.access.audit import AuditLog
from hal.daemons.controller.access.authentication import Authenticator
from hal.daemons.controller.access.byte_budget import ByteBudget
from hal.daemons.controller.access.forwarded_identity import FOLLOWER, ForwardedIdentity
from hal.daemons.controller.access.identity import READING, Identity, UnauthorizedError, Visit
from hal.daemons.controller.access.limiter import Limiter, TooManyError
from hal.daemons.controller.access.roles import Role
from hal.daemons.controller.api.errors import WAIT, EndingError, HeadersError, NoLeaderError, TooLargeError
from hal.daemons.controller.api.problems import PROBLEM_JSON, RETRY_AFTER_S, problem_of
from hal.daemons.controller.api.server.http_connection import MAX_HEADERS, HttpConnection
from hal.daemons.controller.api.server.token_lapse import until_lapsed
from hal.daemons.controller.api.table import FOR_STRANGERS
from hal.daemons.controller.api.version import API_VERSION
from hal.runtime.interface import Runtime

MAX_PATH_BYTES = 8 << 10
FAILURES_PER_S = 5
"""Requests a second from one address that show no token that opens, each answered and put into the audit log."""
FAILURES_AT_ONCE = 50
REQUEST_BYTES = 64 << 10
"""A body costs its user as much as one request for each so many bytes of it, beside the request itself."""
KEPT_REQUESTS = 4
"""Bodies of the greatest size that are kept of one user while requests are under way,"""
KEPT_BYTES = 256 << 20
"""and bytes of all of them, or two bodies of the greatest size where that is more; the owner's and root's apart."""
CLIENT_GONE = 499
"""Status in the audit log of a request that its sender gave up, or sent too slowly: nothing was done."""
LOOK = (
    "repeat it with its Idempotency-Key, or check whether it was done, once HAL answers again; controller.log has the "
    "cause, and `hal up` shows what can be done"
)
_DENIED = {401: "unauthorized", 403: "denied"}


class Guard:
    """Wraps the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        limits: Limiter,
        audit: AuditLog,
        runtime: Runtime,
        max_request_bytes: int,
        max_user_request_bytes: int,
        forwarded: ForwardedIdentity | None = None,
    ) -> None:
        """
        Args:
            max_request_bytes: longest body of anybody.
            max_user_request_bytes: of whoever has the role user.
            forwarded: knows the followers; None: this one does not lead.
        """
        self.app = app
        self._forwarded = forwarded
        self._authenticator = authenticator
        self._limits = limits
        self._failures = Limiter(per_s=FAILURES_PER_S, burst=FAILURES_AT_ONCE, at_once=FAILURES_AT_ONCE)
        self._audit = audit
        self._runtime = runtime
        self._max_request_bytes = max_request_bytes
        self._max_user_request_bytes = min(max_user_request_bytes, max_request_bytes)
        of_all = max(KEPT_BYTES, 2 * max_request_bytes)
        self._kept = {role: ByteBudget(of_one=KEPT_REQUESTS * self._longest(role), of_all=of_all) for role in Role}
        self._kept_inside = ByteBudget(of_one=of_all, of_all=of_all)

    def _longest(self, role: Role) -> int:
        """The longest body that a request may have."""
        return self._max_user_request_bytes if role is Role.USER else self._max_request_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        raw = cast("MutableMapping[str, Any]", scope)
        if raw["type"] != "http":
            return
        connection: HttpConnection | None = (raw.get("state") or {}).get("connection")
        try:
            await self._answer(raw, connection, receive, send)
        except asyncio.CancelledError:
            if connection is None:
                raise
            connection.cut(
                EndingError(
                    "the controller is stopping and has not answered; the request may have been done", hint=LOOK
                )
            )

    async def _answer(
        self, raw: MutableMapping[str, Any], connection: HttpConnection | None, receive: Receive, send: Send
    ) -> None:
        headers = dict(raw["headers"])
        answer = _Answer(send)
        try:
            identity = await self._identify(raw, headers)
        except HALError as error:
            await self._refuse_entry(error, raw, answer)
            return
        if connection is not None and FOLLOWER in headers:
            connection.know_follower()
        if identity.inside:
            if connection is not None:
                connection.identify(identity)
            await self._serve(identity, raw, headers, receive, answer)
            return
        # What is open to strangers they may ask for as often as they may be refused.
        limits, whose = (self._limits, identity.user) if identity.user else (self._failures, identity.peer)
        answer.last = not identity.user
        try:
            if connection is not None and identity.user:
                connection.identify(identity)
            limits.enter(whose, self._runtime.monotonic_ms())
        except TooManyError as error:
            if error.first:
                self._note(raw, 429, identity, refused=error.code)
            await _refuse(error, answer)
            return
        try:
            await self._serve(identity, raw, headers, receive, answer)
        finally:
            limits.leave(whose)

    async def _identify(self, raw: MutableMapping[str, Any], headers: dict[bytes, bytes]) -> Identity:
        if (raw["method"], raw["path"]) in FOR_STRANGERS and b"authorization" not in headers:
            return self._authenticator.stranger(raw.get("state") or {}, raw.get("client"))
        if FOLLOWER not in headers:
            return self._authenticator.identify(raw.get("state") or {}, headers, raw.get("client"))
        if self._forwarded is None:
            raise NoLeaderError("another follower forwarded this to a controller that does not lead", hint=WAIT)
        return await self._forwarded.identity(headers)

    async def _serve(
        self,
        identity: Identity,
        raw: MutableMapping[str, Any],
        headers: dict[bytes, bytes],
        receive: Receive,
        answer: _Answer,
    ) -> None:
        changing = raw["method"] not in READING
        visit = Visit(identity, self._runtime.new_id() if changing else "")
        state = raw.setdefault("state", {})
        state["visit"], state["audit"] = visit, self._audit
        limit = self._longest(identity.role)
        budget = self._kept_inside if identity.inside else self._kept[identity.role]
        body = _Body(receive, limit, budget, identity.user)
        try:
            try:
                _check(raw, headers, limit)
                if changing:
                    if (connection := state.get("connection")) is not None:
                        connection.admit_body(limit)
                    try:
                        await body.fill()
                    finally:
                        if identity.user and not identity.inside:
                            self._limits.charge(identity.user, body.kept // REQUEST_BYTES)
            except HALError as error:
                answer.last = True
                await _refuse(error, answer)
                return
            if body.broken:
                answer.status = CLIENT_GONE
                return
            if changing or identity.inside or not identity.token:
                await self.app(cast("Scope", raw), body, answer.send)
                return
            answered = partial(self.app, cast("Scope", raw), body, answer.send)
            if not await until_lapsed(self._runtime, self._authenticator, identity, answered):
                await _break_off(identity, body, answer, state.get("connection"))
        finally:
            body.forget()
            if changing or visit.not_own or answer.status in _DENIED:
                refused = "not-own" if visit.not_own else _DENIED.get(answer.status, "")
                self._note(raw, answer.status, identity, refused=refused, visit=visit)

    async def _refuse_entry(self, error: HALError, raw: MutableMapping[str, Any], answer: _Answer) -> None:
        """Refuse it; if the same address keeps trying, refuse it for a while without a line in the log for each try."""
        peer = self._authenticator.origin(raw.get("state") or {}, raw.get("client"))
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
        answer.last = True
        await _refuse(error, answer)

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
        self.last = False
        """The connection is closed after it: a stranger's, or one on which more comes than is read."""

    async def send(self, message: Message) -> None:
        """As ASGI's."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            more = [(b"hal-api-version", str(API_VERSION).encode())]
            if self.last:
                more.append((b"connection", b"close"))
            message["headers"] = [*message["headers"], *more]
        await self._send(message)


class _Body:
    """The request's body, read whole before anything looks at it, and no further than the limit."""

    def __init__(self, receive: Receive, limit: int, budget: ByteBudget, user: str) -> None:
        self._receive = receive
        self._limit = limit
        self._budget = budget
        self._user = user
        self._whole: bytes | None = None
        self.kept = 0
        """Bytes that were taken from the budget."""
        self.broken = False
        """Its sender disconnected before its end."""

    async def fill(self) -> None:
        """Read all of it.

        Raises:
            TooLargeError: it is longer than the limit.
            TooManyError: too much of others is kept at the moment.
        """
        parts = bytearray()  # not a list: a piece may be one byte
        while True:
            message = cast("dict[str, Any]", await self._receive())
            if message["type"] != "http.request":
                self.broken = True
                return
            part: bytes = message.get("body", b"")
            if self.kept + len(part) > self._limit:
                raise _too_large(self._limit)
            if part:
                self._budget.take(self._user, len(part))
                self.kept += len(part)
            if not message.get("more_body"):
                if parts:
                    parts += part
                    part = bytes(parts)
                self._whole = part
                return
            parts += part

    def forget(self) -> None:
        """Forget the body."""
        self._budget.give_back(self._user, self.kept)
        self.kept = 0

    async def __call__(self) -> Any:
        if self._whole is not None:
            body, self._whole = self._whole, None
            return {"type": "http.request", "body": body, "more_body": False}
        return await self._receive()


async def _break_off(identity: Identity, body: _Body, answer: _Answer, connection: HttpConnection | None) -> None:
    """Its token is no longer valid: the answer is cut before its end, so that nobody takes it for whole."""
    if not answer.status:
        answer.last = True
        await _refuse(UnauthorizedError(f"{identity.token} has expired, was revoked, or has ended"), answer)
    elif connection is not None:
        connection.transport.abort()
        while cast("dict[str, Any]", await body())["type"] != "http.disconnect":
            continue


def _check(scope: MutableMapping[str, Any], headers: dict[bytes, bytes], limit: int) -> None:
    if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > MAX_PATH_BYTES:
        raise SpecError(f"the path and its parameters are longer than {MAX_PATH_BYTES} bytes")
    if len(scope["headers"]) > MAX_HEADERS:
        raise HeadersError(f"{len(scope['headers'])} headers; at most {MAX_HEADERS} are read")
    wanted = headers.get(b"hal-api-version", b"").decode("latin-1").strip()
    if wanted and wanted != str(API_VERSION):
        raise SpecError(f"HAL-API-Version: '{wanted[:20]}' is not supported", hint=f"this HAL supports {API_VERSION}")
    length = headers.get(b"content-length", b"0").decode("latin-1")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(
        f"the request's body is longer than {limit} bytes",
        hint="submit fewer jobs at once, or alike ones as an array; "
        "hal.toml: server.max_request_bytes, server.max_user_request_bytes",
    )


async def _refuse(error: HALError, answer: _Answer) -> None:
    problem = problem_of(error)
    body = msgspec.json.encode(problem)
    headers = [(b"content-type", PROBLEM_JSON.encode()), (b"content-length", str(len(body)).encode())]
    if problem.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if problem.status in (429, 503):
        after_s = error.retry_after_s if isinstance(error, TooManyError) else RETRY_AFTER_S
        headers.append((b"retry-after", str(after_s).encode()))
    await answer.send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await answer.send({"type": "http.response.body", "body": body, "more_body": False})
