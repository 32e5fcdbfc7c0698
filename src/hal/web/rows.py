"""The table of what the page's server answers: signing in, what changes by the second, and what is passed on.

What is passed on is listed: reading, and the few changes that the page offers. Who may do what the service decides that
answers, by the token of the session.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar, Final, Literal

from litestar import Response
from litestar.response import Stream
from msgspec import Struct

from hal import __version__
from hal.client.transport.async_stream import AsyncStream
from hal.core.model import SpecError
from hal.rest.answers import json_answer, streamed_answer
from hal.rest.call import Call
from hal.rest.endpoint import JSON, TEXT, Body, Endpoint, Param, body_of
from hal.rest.identity import UnauthorizedError
from hal.rest.parameters import AnyRequest, Params
from hal.rest.rights import ADMINS, EVERYBODY
from hal.web.live import TOPICS, Live
from hal.web.sessions import Session, Sessions
from hal.web.shared_answers import SharedAnswers
from hal.web.upstream import COLLECTOR, CONTROLLER, Services

EVENT_STREAM: Final = "text/event-stream"
SESSION_S: Final = 7 * 24 * 3_600
COLLECTOR_DEPTH: Final = 4
"""Parts of a path at the collector, after its version."""
KEPT_HEADERS: Final = (
    "hal-log-offset",
    "hal-log-size",
    "hal-log-path",
    "hal-log-node",
    "hal-log-ended",
    "content-disposition",
)
"""Of a streamed answer."""


class Web(Struct, frozen=True):
    """What handlers are given to ask."""

    sessions: Sessions
    services: Services
    answers: SharedAnswers
    live: Live
    cookie: str
    secure: bool
    """Cookies go over TLS alone."""
    origin: str
    """Where the page is, for people."""


class AnyParams(Params):
    """Parameters that are passed on: the service checks them."""

    def __init__(self, request: AnyRequest, known: object) -> None:
        super().__init__(request, [name for name, _ in request.query_params.multi_items()])


class WebCall(Call):
    """One request."""

    __slots__ = ()
    params_type: ClassVar[type[Params]] = AnyParams


class SignInBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What opens a session: one of both."""

    token: str = ""
    """An API token."""
    key: str = ""
    """Of a sign-in link."""


class SessionView(Struct, frozen=True, kw_only=True):
    """Who is signed in."""

    user: str
    role: str
    read_only: bool
    local: bool
    """Signed in by a link, as whoever started this server."""
    rights: dict[str, str]
    """At the controller: `all`, `own` or `none` by operation."""
    csrf: str
    collector: bool
    """There is one to ask."""
    version: str


class SignInLink(Struct, frozen=True):
    """A link that opens one session."""

    url: str


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _session(web: Web, call: Call) -> Session:
    """
    Raises:
        UnauthorizedError: it has ended meanwhile.
    """
    session = web.sessions.by_id(call.visit.identity.token)
    if session is None:
        raise UnauthorizedError("nobody is signed in", hint="sign in again")
    return session


def _shown(web: Web, session: Session) -> SessionView:
    who = session.who
    return SessionView(
        user=who.user,
        role=who.role,
        read_only=who.read_only,
        local=session.local,
        rights=who.rights,
        csrf=session.csrf,
        collector=bool(web.services.collector()),
        version=__version__,
    )


async def sign_in(web: Web, call: Call) -> object:
    """Open a session; its key is in the cookie only."""
    asked: SignInBody = call.body
    if bool(asked.token) == bool(asked.key):
        raise SpecError("give a token, or the key of a sign-in link")
    if asked.key:
        key, session = await web.sessions.sign_in_by_key(asked.key)
    else:
        key, session = await web.sessions.sign_in_by_token(asked.token)
    call.visit.targets.append(f"session {session.id} of {session.who.user}")
    return json_answer(_shown(web, session), 201, {"Set-Cookie": _cookie(web, key, SESSION_S)})


async def sign_out(web: Web, call: Call) -> object:
    """End the session."""
    web.sessions.end(_session(web, call))
    return json_answer({}, headers={"Set-Cookie": _cookie(web, "", 0)})


async def get_session(web: Web, call: Call) -> object:
    """Who is signed in."""
    return _shown(web, _session(web, call))


async def new_link(web: Web, call: Call) -> object:
    """For the owner, over the private socket."""
    return SignInLink(url=link(web.origin, web.sessions.new_key()))


def link(origin: str, key: str) -> str:
    """A sign-in link: what follows the # is sent to no server, and is in no log."""
    return f"{origin}/sign-in#{key}"


def _cookie(web: Web, value: str, seconds: int) -> str:
    secure = "; Secure" if web.secure else ""
    return f"{web.cookie}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}"


# ── what changes by the second ────────────────────────────────────────────────────────────────────────────────────


async def follow(web: Web, call: Call) -> object:
    """Server-sent events."""
    wanted = frozenset(filter(None, call.params.text("topics", "pulse").split(",")))
    content = await web.live.follow(_session(web, call), wanted)
    return streamed_answer(call, content, EVENT_STREAM, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


# ── what is passed on ─────────────────────────────────────────────────────────────────────────────────────────────


def _target(call: Call) -> str:
    """Path and query at the service, of those below /api/controller or /api/collector."""
    raw = call.request.scope.get("raw_path") or b""
    path = raw.split(b"?", 1)[0].decode("latin-1")
    query = (call.request.scope.get("query_string") or b"").decode("latin-1")
    _, _, _, rest = path.split("/", 3)
    return f"/{rest}?{query}" if query else f"/{rest}"


def _reads(service: str) -> Callable[[Web, Call], Awaitable[object]]:
    async def read(web: Web, call: Call) -> object:
        """Pass it on, or answer as others were answered a moment ago."""
        found = await web.answers.get(_session(web, call), service, _target(call))
        headers = {"ETag": f'"{found.etag}"', "Cache-Control": "no-store"}
        if (call.header("if-none-match") or "").strip('"') == found.etag:
            return Response(content=b"", status_code=304, headers=headers)
        return Response(content=found.body, media_type=found.media, headers=headers)

    return read


async def read_stream(web: Web, call: Call) -> object:
    """Pass on an answer as it comes."""
    stream = await web.services.stream(_session(web, call), CONTROLLER, _target(call))
    headers = {name: stream.headers[name] for name in KEPT_HEADERS if name in stream.headers}
    headers |= {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    media = stream.headers.get("content-type", "application/octet-stream")
    # What a job has printed is never a page: browsers save it, or show it as plain text.
    answer: Stream = streamed_answer(
        call, _pieces(stream), "text/plain; charset=utf-8" if "html" in media else media, headers
    )
    return answer


async def _pieces(stream: AsyncStream) -> AsyncIterator[bytes]:
    try:
        while (piece := await stream.read()) is not None:
            yield piece
    finally:
        await stream.aclose()


def _changes(service: str) -> Callable[[Web, Call], Awaitable[object]]:
    async def change(web: Web, call: Call) -> object:
        """Pass it on; what it has changed is asked for anew."""
        session = _session(web, call)
        try:
            method = call.request.method
            answer = await web.services.change(session, service, method, _target(call), call.raw)
        finally:
            web.answers.forget(session)
        return Response(content=answer.body, status_code=answer.status, media_type=JSON)

    return change


def _row(
    method: Literal["GET", "POST", "DELETE"],
    service: str,
    path: str,
    handler: Callable[[Any, Any], Awaitable[object]],
    body: Body | None = None,
) -> Endpoint:
    name = f"{method.lower()}-{service}{path.replace('/', '-').replace('{', '').replace('}', '')}"
    return Endpoint(
        method=method,
        path=f"/api/{service}{path}",
        handler=handler,
        right=EVERYBODY,
        name=name,
        tag=service,
        summary=f"Pass {method} {path} on to the {service}",
        body=body,
    )


READS: Final = (
    "/v1/jobs",
    "/v1/jobs/{job}",
    "/v1/jobs/{job}/why",
    "/v1/jobs/{job}/graph",
    "/v1/jobs/{job}/scores",
    "/v1/jobs/{job}/priority",
    "/v1/jobs/{job}/task-states",
    "/v1/jobs/{job}/tasks",
    "/v1/jobs/{job}/tasks/{task}",
    "/v1/jobs/{job}/files",
    "/v1/attempts",
    "/v1/events",
    "/v1/nodes",
    "/v1/nodes/{name}",
    "/v1/node-use",
    "/v1/topology",
    "/v1/queues",
    "/v1/wants",
    "/v1/plan",
    "/v1/policy",
    "/v1/shares",
    "/v1/ledgers",
    "/v1/licences",
    "/v1/health",
    "/v1/controllers",
    "/v1/cron",
    "/v1/offers",
)
"""What the page reads of the controller."""
STREAMS: Final = ("/v1/jobs/{job}/logs", "/v1/jobs/{job}/files/archive")
CHANGES: Final = (
    "/v1/jobs/cancel",
    "/v1/jobs/hold",
    "/v1/jobs/release",
    "/v1/jobs/requeue",
    "/v1/nodes/cordon",
    "/v1/nodes/uncordon",
    "/v1/nodes/drain",
    "/v1/queues/state",
)
"""What the page changes there, each with a confirmation of the person."""
SILENCES: Final = "/v1/silences"
"""What it changes at the collector: made by POST, ended by DELETE of its number."""
_ANY_JSON: Final = Body(schema={"type": "object"}, examples={}, required=False)

ROWS: Final = (
    Endpoint(
        method="POST", path="/api/sign-in", handler=sign_in, right=EVERYBODY, name="signIn", tag="session",
        summary="Open a session", body=body_of(SignInBody, {"token": {"value": {"token": "hal_…"}}}),
        result=SessionView, status=201, problems=("401", "503"), for_strangers=True,
    ),
    Endpoint(
        method="POST", path="/api/sign-out", handler=sign_out, right=EVERYBODY, name="signOut", tag="session",
        summary="End the session", body=_ANY_JSON,
    ),
    Endpoint(
        method="GET", path="/api/session", handler=get_session, right=EVERYBODY, name="getSession", tag="session",
        summary="Show who is signed in", result=SessionView,
    ),
    Endpoint(
        method="POST", path="/v1/sign-in-links", handler=new_link, right=ADMINS, name="newSignInLink", tag="session",
        summary="Make a sign-in link; for the owner, over the private socket", result=SignInLink,
    ),
    Endpoint(
        method="GET", path="/api/live", handler=follow, right=EVERYBODY, name="follow", tag="live",
        summary="Follow what changes by the second",
        params=(Param(name="topics", text=", ".join(sorted(TOPICS)), schema=TEXT),), media={EVENT_STREAM: {}},
    ),
    *(_row("GET", CONTROLLER, path, _reads(CONTROLLER)) for path in READS),
    *(_row("GET", CONTROLLER, path, read_stream) for path in STREAMS),
    *(_row("POST", CONTROLLER, path, _changes(CONTROLLER), _ANY_JSON) for path in CHANGES),
    _row("GET", COLLECTOR, SILENCES, _reads(COLLECTOR)),
    _row("POST", COLLECTOR, SILENCES, _changes(COLLECTOR), _ANY_JSON),
    _row("DELETE", COLLECTOR, f"{SILENCES}/{{silence}}", _changes(COLLECTOR)),
    *(
        _row("GET", COLLECTOR, "/v1" + "".join(f"/{{p{n}}}" for n in range(depth)), _reads(COLLECTOR))
        for depth in range(1, COLLECTOR_DEPTH + 1)
    ),
)  # fmt: skip
