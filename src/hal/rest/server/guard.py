"""The outermost layer: who may ask, in which version, how much; below it only well-sized requests of known users.

Pure ASGI.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Any, Final, cast
from urllib.parse import unquote

import msgspec
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from hal.core.model import HALError, InternalError, SpecError
from hal.rest.audit import AuditLog
from hal.rest.byte_budget import ByteBudget
from hal.rest.callers import Callers, origin
from hal.rest.endpoint import Endpoint
from hal.rest.errors import EndingError, HeadersError, TooLargeError
from hal.rest.identity import READING, Identity, UnauthorizedError, Visit
from hal.rest.limiter import Limiter, TooManyError
from hal.rest.limits import Limits
from hal.rest.problems import PROBLEM_JSON, RETRY_AFTER_S, problem_of
from hal.rest.rights import Role
from hal.rest.server.http_connection import MAX_HEADERS, HttpConnection
from hal.rest.server.token_lapse import until_lapsed
from hal.runtime.interface import Runtime

MAX_PATH_BYTES = 8 << 10
STRANGER_BYTES = 32 << 10
"""Longest body of a request that is answered without a token."""
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
    "repeat it with its Idempotency-Key, or check whether it was done, once HAL answers again; {}.log has the "
    "cause, and `hal up` shows what can be done"
)
_DENIED = {401: "unauthorized", 403: "denied"}


OnAnswer = Callable[[str, int, int], None]
"""Operation (empty: none was found), status, nanoseconds until the head of the answer."""


class Guard:
    """Wraps the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        callers: Callers,
        limits: Limits,
        audit: AuditLog,
        runtime: Runtime,
        rows: Sequence[Endpoint] = (),
        versions: Sequence[int] = (1,),
        on_answer: OnAnswer | None = None,
    ) -> None:
        """
        Args:
            on_answer: called with each request that was answered, for metrics.
            rows: of the application's table: which are open to strangers, and which read their bodies as streams.
            versions: of the interface that the application speaks, ascending.
        """
        self.app = app
        self._callers = callers
        self._limits = Limiter(
            per_s=limits.requests_per_s, burst=limits.burst, at_once=limits.at_once, section=limits.section
        )
        self._failures = Limiter(per_s=FAILURES_PER_S, burst=FAILURES_AT_ONCE, at_once=FAILURES_AT_ONCE)
        self._audit = audit
        self._runtime = runtime
        self._versions = tuple(versions)
        self._on_answer = on_answer
        self._for_strangers = frozenset((row.method, row.path) for row in rows if row.for_strangers)
        self._streaming = tuple(row for row in rows if row.body is not None and row.body.stream_bytes)
        self._max_request_bytes = limits.max_request_bytes
        self._max_user_request_bytes = min(limits.max_user_request_bytes, limits.max_request_bytes)
        self._too_large_hint = limits.too_large_hint
        of_all = max(KEPT_BYTES, 2 * limits.max_request_bytes)
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
        _keep_slashes(raw)
        connection: HttpConnection | None = (raw.get("state") or {}).get("connection")
        try:
            await self._answer(raw, connection, receive, send)
        except asyncio.CancelledError:
            if connection is None:
                raise
            connection.cut(
                EndingError(
                    f"the {self._runtime.name} is stopping and has not answered; the request may have been done",
                    hint=LOOK.format(self._runtime.name),
                )
            )

    async def _answer(
        self, raw: MutableMapping[str, Any], connection: HttpConnection | None, receive: Receive, send: Send
    ) -> None:
        answer = _Answer(send, self._versions[-1], self._runtime.monotonic_ns)
        began_ns = self._runtime.monotonic_ns()
        try:
            await self._let_in(raw, connection, receive, answer)
        finally:
            if self._on_answer is not None:
                taken_ns = (answer.begun_ns or self._runtime.monotonic_ns()) - began_ns
                self._on_answer(answer.operation, answer.status or CLIENT_GONE, taken_ns)

    async def _let_in(
        self, raw: MutableMapping[str, Any], connection: HttpConnection | None, receive: Receive, answer: _Answer
    ) -> None:
        headers = dict(raw["headers"])
        try:
            identity = await self._identify(raw, headers)
        except HALError as error:
            await self._refuse_entry(error, raw, answer)
            return
        if connection is not None and self._callers.is_relay(headers):
            connection.know_relay()
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
        state, client = raw.get("state") or {}, raw.get("client")
        if (raw["method"], raw["path"]) in self._for_strangers and b"authorization" not in headers:
            return self._callers.stranger(state, client)
        return await self._callers.identify(state, headers, client)

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
        limit = self._longest(identity.role)
        if not identity.user:
            limit = min(limit, STRANGER_BYTES)
        budget = self._kept_inside if identity.inside else self._kept[identity.role]
        body = _Body(receive, limit, budget, identity.user or identity.peer, self._too_large_hint)
        answer.body = body
        state["visit"], state["audit"], state["body"] = visit, self._audit, body
        streamed = self._stream_bytes(raw) if changing else 0
        try:
            try:
                _check(raw)
                state["version"] = answer.version = self._version(headers)
                body.check_length(headers, streamed or limit)
                if streamed:
                    body.hold_back(state.get("connection"), partial(self._check_token, identity))
                elif changing:
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
                return
            if streamed:
                # As long as it comes, its token is looked at with each piece, and so it must be known how that fares.
                with self._callers.watching(identity, _nothing):
                    await self.app(cast("Scope", raw), body, answer.send)
                return
            if changing or identity.inside or not identity.token:
                await self.app(cast("Scope", raw), body, answer.send)
                return
            answered = partial(self.app, cast("Scope", raw), body, answer.send)
            if not await until_lapsed(self._runtime, self._callers, identity, answered):
                await _break_off(identity, body, answer, state.get("connection"))
        finally:
            body.forget()
            answer.operation = visit.operation
            if changing or visit.not_own or answer.status in _DENIED:
                refused = "not-own" if visit.not_own else _DENIED.get(answer.status, "")
                status = CLIENT_GONE if body.broken else answer.status
                self._note(raw, status, identity, refused=refused, visit=visit)

    def _stream_bytes(self, raw: MutableMapping[str, Any]) -> int:
        """Longest body that the path's handler reads as it comes; 0: it is to be read whole before."""
        for row in self._streaming:
            if row.method == raw["method"] and row.matches(raw["path"]):
                assert row.body is not None
                return row.body.stream_bytes
        return 0

    def _check_token(self, identity: Identity) -> None:
        """
        Raises:
            UnauthorizedError: the token with which a body began to be sent opens nothing any more.
        """
        if identity.token and not self._callers.still_opens(identity):
            raise _lapsed(identity)

    def _version(self, headers: dict[bytes, bytes]) -> int:
        """In which version the request is answered: the one that it names, else the newest.

        Raises:
            SpecError: it is not spoken here.
        """
        wanted = headers.get(b"hal-api-version", b"").decode("latin-1").strip()
        if not wanted:
            return self._versions[-1]
        for version in self._versions:
            if wanted == str(version):
                return version
        spoken = ", ".join(map(str, self._versions))
        raise SpecError(
            f"HAL-API-Version: '{wanted[:20]}' is not supported", hint=f"this {self._runtime.name} supports {spoken}"
        )

    async def _refuse_entry(self, error: HALError, raw: MutableMapping[str, Any], answer: _Answer) -> None:
        """Refuse it; if the same address keeps trying, refuse it for a while without a line in the log for each try."""
        peer = origin(raw.get("state") or {}, raw.get("client"))
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
            repeated=visit is not None and visit.repeated,
        )


class _Answer:
    """What is sent back, with the version in its head; its status is kept."""

    def __init__(self, send: Send, version: int, monotonic_ns: Callable[[], int]) -> None:
        self._send = send
        self._monotonic_ns = monotonic_ns
        self.begun_ns = 0
        """When its head was sent; 0: it was not."""
        self.operation = ""
        """What was asked for, once its row is found."""
        self.version = version
        self.status = 0
        self.last = False
        """The connection is closed after it: a stranger's, or one on which more comes than is read."""
        self.body: _Body | None = None
        """Of the request."""

    async def send(self, message: Message) -> None:
        """As ASGI's."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.begun_ns = self._monotonic_ns()
            more = [(b"hal-api-version", str(self.version).encode())]
            if self.last or (self.body is not None and self.body.held_back):
                more.append((b"connection", b"close"))
            message["headers"] = [*message["headers"], *more]
        await self._send(message)


class _Body:
    """The request's body: read whole before anything looks at it and no further than the limit, or held back until a
    handler reads it piece by piece."""

    def __init__(self, receive: Receive, limit: int, budget: ByteBudget, user: str, too_large_hint: str) -> None:
        self._receive = receive
        self._limit = limit
        self._budget = budget
        self._user = user
        self._too_large_hint = too_large_hint
        self._whole: bytes | None = None
        self.held_back = False
        """Its end was not read yet, and what comes until then is a handler's matter."""
        self._streamed: int | None = None
        """Bytes that a handler has read as they came; None: none reads it so."""
        self._connection: HttpConnection | None = None
        self._check_token: Callable[[], None] | None = None
        self.kept = 0
        """Bytes that were taken from the budget."""
        self.broken = False
        """Its sender disconnected before its end."""

    def check_length(self, headers: dict[bytes, bytes], limit: int) -> None:
        """
        Raises:
            TooLargeError: it is announced to be longer.
        """
        length = headers.get(b"content-length", b"0").decode("latin-1")
        if length.isdigit() and int(length) > limit:
            raise self._too_large(limit)

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
                raise self._too_large(self._limit)
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

    def hold_back(self, connection: HttpConnection | None, check_token: Callable[[], None]) -> None:
        """Read nothing yet: `let_through` decides."""
        self.held_back, self._connection, self._check_token = True, connection, check_token

    def let_through(self, limit: int) -> None:
        """The route that was found reads it as a stream, of so many bytes at most."""
        if not self.held_back:
            return
        self._limit, self._streamed = limit, 0
        if self._connection is not None:
            self._connection.admit_body(limit)

    def forget(self) -> None:
        """Forget the body."""
        self._budget.give_back(self._user, self.kept)
        self.kept = 0

    async def __call__(self) -> Any:
        if self._whole is not None:
            body, self._whole = self._whole, None
            return {"type": "http.request", "body": body, "more_body": False}
        if self._streamed is not None:
            return await self._next_piece(self._streamed)
        if self.held_back:
            raise InternalError("a body that is to be streamed is read whole")
        return await self._receive()

    async def _next_piece(self, streamed: int) -> Any:
        """
        Raises:
            TooLargeError: it is longer than the limit.
            UnauthorizedError: the token of its sender is no longer valid.
        """
        message = cast("dict[str, Any]", await self._receive())
        if message["type"] != "http.request":
            self.broken = True
            return message
        self._streamed = streamed + len(message.get("body", b""))
        if self._streamed > self._limit:
            raise self._too_large(self._limit)
        if not message.get("more_body"):
            self.held_back, self._streamed = False, None
        elif self._check_token is not None:
            self._check_token()
        return message

    def _too_large(self, limit: int) -> TooLargeError:
        return TooLargeError(f"the request's body is longer than {limit} bytes", hint=self._too_large_hint)


def _nothing() -> None:
    return None


def _lapsed(identity: Identity) -> UnauthorizedError:
    return UnauthorizedError(f"{identity.token} has expired, was revoked, or has ended")


async def _break_off(identity: Identity, body: _Body, answer: _Answer, connection: HttpConnection | None) -> None:
    """Its token is no longer valid: the answer is cut before its end, so that nobody takes it for whole."""
    if not answer.status:
        answer.last = True
        await _refuse(_lapsed(identity), answer)
    elif connection is not None:
        connection.transport.abort()
        while cast("dict[str, Any]", await body())["type"] != "http.disconnect":
            continue


def _keep_slashes(scope: MutableMapping[str, Any]) -> None:
    """Let a slash within a part of the path (`%2F`) separate nothing: names of jobs, accounts and the like may have
    some. `Call.path` reads it back."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%2f" in raw.lower():
        scope["path"] = unquote(_SLASH.sub(b"%252F", raw).decode("latin-1"))


_SLASH: Final = re.compile(b"%2[Ff]")


def _check(scope: MutableMapping[str, Any]) -> None:
    if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > MAX_PATH_BYTES:
        raise SpecError(f"the path and its parameters are longer than {MAX_PATH_BYTES} bytes")
    if len(scope["headers"]) > MAX_HEADERS:
        raise HeadersError(f"{len(scope['headers'])} headers; at most {MAX_HEADERS} are read")


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
