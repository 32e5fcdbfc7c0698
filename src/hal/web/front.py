"""The outermost layer of the page: which names it answers to, its files, and whose requests may change something.

Below `/api/` requests go on to the guard, which asks for a session. All other paths are files, or the page itself,
whose router shows what the path names: no file holds anybody's data. Pure ASGI.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from hal.core.model import DeniedError, HALError, NotFoundError
from hal.core.model.web_config import LOCAL_NAMES
from hal.rest.identity import READING
from hal.rest.problems import PROBLEM_JSON, problem_of
from hal.web.assets import PREFIX, SHELL, Asset
from hal.web.callers import cookie_of
from hal.web.sessions import Sessions

API: Final = "/api/"
CSRF: Final = b"x-hal-csrf"
"""Header of a request that changes something: what `GET /api/session` gave the page."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
WITHOUT_SESSION: Final = frozenset({"/api/sign-in"})
"""What changes something and needs no session: only its origin is looked at."""


class Front:
    """Wraps the guard."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        assets: dict[str, Asset],
        sessions: Sessions,
        cookie: str,
        scheme: str,
        answers_to: Callable[[str], bool],
    ) -> None:
        """
        Args:
            scheme: `http` or `https`, as browsers see it.
            answers_to: whether a host name is one of this server's.
        """
        self._app = app
        self._assets = assets
        self._sessions = sessions
        self._cookie = cookie
        self._scheme = scheme
        self._answers_to = answers_to

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        raw = cast("MutableMapping[str, Any]", scope)
        if raw["type"] != "http":
            return
        if (raw.get("state") or {}).get("peer") is not None:
            await self._app(scope, receive, send)  # the private socket: no browser, no host name
            return
        answer = _with_headers(send)
        headers = dict(raw["headers"])
        try:
            self._check_host(headers)
            path: str = raw["path"]
            if path.startswith(API):
                if raw["method"] not in READING:
                    self._check_sender(path, headers)
                await self._app(scope, receive, answer)
            else:
                await self._file(raw, headers, path, answer)
        except HALError as error:
            await _refuse(error, answer)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Refuse a name that somebody else has given this address: a page of theirs would be let in by its own name.

        Raises:
            DeniedError: it is not one of this server's names.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._answers_to(host_name(host)):
            raise DeniedError(
                f"this page does not answer to the name '{host[:100]}'",
                hint="open it at the address that `hal web` printed, or name the host: hal web --host NAME",
            )

    def _check_sender(self, path: str, headers: dict[bytes, bytes]) -> None:
        """
        Raises:
            DeniedError: the request comes from a page of another origin, or does not carry the session's CSRF key.
        """
        site = headers.get(b"sec-fetch-site", b"same-origin")
        origin = headers.get(b"origin", b"").decode("latin-1")
        host = headers.get(b"host", b"").decode("latin-1")
        if site != b"same-origin" or (origin and origin != f"{self._scheme}://{host}"):
            raise DeniedError("the request comes from another page", hint="do it on the page of HAL itself")
        if path in WITHOUT_SESSION:
            return
        session = self._sessions.find(cookie_of(headers, self._cookie))
        given = headers.get(CSRF, b"")
        if session is not None and not hmac.compare_digest(given, session.csrf.encode()):
            raise DeniedError("the request does not carry this session's CSRF key", hint="load the page again")

    async def _file(
        self, raw: MutableMapping[str, Any], headers: dict[bytes, bytes], path: str, send: Callable[[Message], Any]
    ) -> None:
        """
        Raises:
            DeniedError: files are only read.
            NotFoundError: there is no such file.
        """
        if raw["method"] not in READING:
            raise DeniedError(f"{raw['method']} is not possible here")
        if path.startswith(PREFIX):
            asset = self._assets.get(path.removeprefix(PREFIX))
            if asset is None:
                raise NotFoundError(f"there is no file {path[:100]}")
        else:
            asset = self._assets[SHELL]
        sent = [
            (b"content-type", asset.media.encode()),
            (b"etag", asset.etag.encode()),
            (b"cache-control", b"no-cache"),
            (b"vary", b"accept-encoding"),
        ]
        status, body = HTTPStatus.OK, asset.body
        if headers.get(b"if-none-match", b"").decode("latin-1").removeprefix("W/") == asset.etag:
            status, body = HTTPStatus.NOT_MODIFIED, b""
        else:
            if asset.packed and b"gzip" in headers.get(b"accept-encoding", b""):
                body = asset.packed
                sent.append((b"content-encoding", b"gzip"))
            sent.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": b"" if raw["method"] == "HEAD" else body, "more_body": False})


def host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case; '' where it is malformed."""
    host = host.strip().lower()
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        return name if bracket and (not rest or rest[1:].isdigit()) else ""
    name, colon, port = host.partition(":")
    return name.rstrip(".") if not colon or port.isdigit() else ""


def answers_to(listen_host: str, names: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a host name is one of a server's: of the address where it listens, and those that it was given.

    An address in numbers cannot be given a meaning by somebody else's name server. Where the server listens on all
    addresses, any of them is its own.
    """
    known = {name.lower() for name in names} | {listen_host.lower()}
    everywhere = listen_host in ("0.0.0.0", "::")
    if everywhere or listen_host in LOCAL_NAMES:
        known |= LOCAL_NAMES

    def check(name: str) -> bool:
        return bool(name) and (name in known or (everywhere and _is_address(name)))

    return check


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Callable[[Message], Any]:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *HEADERS]
        await send(message)

    return sent


async def _refuse(error: HALError, send: Callable[[Message], Any]) -> None:
    problem = problem_of(error)
    body = msgspec.json.encode(problem)
    headers = [
        (b"content-type", PROBLEM_JSON.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
