"""The client's side of an OpenID Connect login: the device authorisation flow (RFC 8628), and refreshing. Blocking.

It speaks to the provider that the HAL has named, over https, or http on this machine; to nobody else, wherever an
answer leads. Answers are bounded in bytes and time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from hal.core.model.errors import DeniedError, TimedOutError, UnreachableError, shown

DISCOVERY: Final = "/.well-known/openid-configuration"
GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
ANSWER_TIMEOUT_S: Final = 10.0
MAX_ANSWER_BYTES: Final = 256 << 10
PIECE_BYTES: Final = 16 << 10
MAX_TOKEN_CHARS: Final = 16 << 10
MAX_TEXT_CHARS: Final = 2_000
INTERVALS_S: Final = (1, 60)
"""Shortest and longest time between two questions whether the person has agreed."""
DEFAULT_INTERVAL_S: Final = 5
SLOWER_S: Final = 5
"""Added where the provider asks for it."""
LONGEST_WAIT_S: Final = 1_800
"""How long a person may take to agree."""
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Provider:
    """Where a provider answers what."""

    issuer: str
    client_id: str
    token_kind: str
    """Which token the HAL wants: `id_token` or `access_token`."""
    token_url: str
    device_url: str = ""
    """Empty: it has no device flow."""
    revocation_url: str = ""


@dataclass(frozen=True, slots=True)
class Granted:
    """What a provider has given."""

    token: str
    """For the HAL."""
    refresh: str
    """For another one; empty: there is none."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked to do."""

    url: str
    code: str
    complete_url: str
    """The URL with the code in it; or empty."""
    device_code: str
    interval_s: int
    expires_s: int


def find_provider(issuer: str, client_id: str, token_kind: str) -> Provider:
    """Ask a provider where it answers what.

    Raises:
        UnreachableError: it does not answer.
        DeniedError: it answers what cannot be believed.
    """
    status, found = _exchange(_safe(issuer, issuer).rstrip("/") + DISCOVERY, None)
    if status != 200 or found.get("issuer") != issuer:
        raise DeniedError(f"{shown(issuer)} does not say that it is an OpenID Connect provider of this name")
    if token_kind not in ("id_token", "access_token"):
        raise DeniedError(f"this HAL asks for an unknown kind of token: '{shown(token_kind)}'")
    return Provider(
        issuer=issuer,
        client_id=client_id,
        token_kind=token_kind,
        token_url=_safe(_text(found, "token_endpoint"), issuer),
        device_url=_safe(_text(found, "device_authorization_endpoint"), issuer, needed=False),
        revocation_url=_safe(_text(found, "revocation_endpoint"), issuer, needed=False),
    )


def begin(provider: Provider, scopes: tuple[str, ...]) -> Question:
    """Begin a login on another device.

    Raises:
        DeniedError: the provider has no device flow, or refuses.
        UnreachableError: it does not answer.
    """
    if not provider.device_url:
        raise DeniedError(
            f"{provider.issuer} has no device flow (RFC 8628)", hint="ask for a token: hal login --token URL"
        )
    form = {"client_id": provider.client_id, "scope": " ".join(scopes)}
    status, answer = _exchange(provider.device_url, form)
    if status != 200:
        raise _refusal(provider, answer)
    url = _text(answer, "verification_uri") or _text(answer, "verification_url")
    code, device_code = _text(answer, "user_code"), _text(answer, "device_code", MAX_TOKEN_CHARS)
    if not url or not code or not device_code:
        raise DeniedError(f"the answer of {provider.issuer} lacks a code or a URL")
    low, high = INTERVALS_S
    return Question(
        url=url,
        code=code,
        complete_url=_text(answer, "verification_uri_complete"),
        device_code=device_code,
        interval_s=min(max(_number(answer, "interval", DEFAULT_INTERVAL_S), low), high),
        expires_s=min(_number(answer, "expires_in", LONGEST_WAIT_S), LONGEST_WAIT_S),
    )


def wait_for_consent(provider: Provider, question: Question, *, sleep: Callable[[float], None] = time.sleep) -> Granted:
    """Ask until the person has agreed.

    Raises:
        DeniedError: they refused.
        TimedOutError: they did neither in time.
        UnreachableError: the provider does not answer.
    """
    form = {"grant_type": GRANT, "device_code": question.device_code, "client_id": provider.client_id}
    interval_s, waited_s = question.interval_s, 0
    while waited_s < question.expires_s:
        sleep(interval_s)
        waited_s += interval_s
        status, answer = _exchange(provider.token_url, form)
        if status == 200:
            return _granted(provider, answer, "")
        error = _text(answer, "error")
        if error == "slow_down":
            interval_s = min(interval_s + SLOWER_S, INTERVALS_S[1])
        elif error == "expired_token":
            break
        elif error != "authorization_pending":
            raise _refusal(provider, answer)
    raise TimedOutError("nobody confirmed the login in time", hint="run hal login again")


def refresh(provider: Provider, refresh_token: str) -> Granted:
    """Have another token for the same person, without asking them.

    Raises:
        DeniedError: the provider refuses: they have to log in again.
        UnreachableError: it does not answer.
    """
    form = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": provider.client_id}
    status, answer = _exchange(provider.token_url, form)
    if status != 200:
        raise _refusal(provider, answer)
    return _granted(provider, answer, refresh_token)


def revoke(provider: Provider, refresh_token: str) -> bool:
    """Have the provider forget a login (RFC 7009); False: it offers no such thing, or does not answer."""
    if not provider.revocation_url:
        return False
    form = {"token": refresh_token, "token_type_hint": "refresh_token", "client_id": provider.client_id}
    try:
        status, _ = _exchange(provider.revocation_url, form)
    except (UnreachableError, DeniedError):
        return False
    return status == 200


def _granted(provider: Provider, answer: Mapping[str, Any], former: str) -> Granted:
    token = _text(answer, provider.token_kind, MAX_TOKEN_CHARS)
    if not token:
        raise DeniedError(
            f"{provider.issuer} gave no {provider.token_kind}", hint="see access.oidc.scopes in the HAL's hal.toml"
        )
    return Granted(token, _text(answer, "refresh_token", MAX_TOKEN_CHARS) or former)


def _refusal(provider: Provider, answer: Mapping[str, Any]) -> DeniedError:
    why = _text(answer, "error_description") or _text(answer, "error") or "it says no more"
    return DeniedError(f"{provider.issuer} refused the login: {shown(why)}", hint="run hal login again")


def _text(answer: Mapping[str, Any], name: str, most: int = MAX_TEXT_CHARS) -> str:
    value = answer.get(name, "")
    fits = isinstance(value, str) and len(value) <= most and value.isprintable()
    return value if fits else ""


def _number(answer: Mapping[str, Any], name: str, default: int) -> int:
    value = answer.get(name, default)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9 else default


def _safe(url: str, issuer: str, *, needed: bool = True) -> str:
    """The URL, if nobody on the way can read what is sent there.

    Raises:
        DeniedError: it is not, or is missing.
    """
    if not url and not needed:
        return ""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if host and (parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)):
        return url
    raise DeniedError(f"{shown(issuer)} names no safe URL: '{shown(url)}'", hint="https:// is needed")


def _exchange(url: str, form: Mapping[str, str] | None) -> tuple[int, dict[str, Any]]:
    """Status and JSON object of an answer; redirects are answers.

    Raises:
        UnreachableError: there is none, or it is no such thing, or too long.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirects(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "hal"}
    data = None if form is None else urlencode(form).encode()
    deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
    try:
        try:
            answer = build_opener(NoRedirects).open(Request(url, data, headers), timeout=ANSWER_TIMEOUT_S)
        except HTTPError as error:
            answer = error  # it is an answer, too
        with answer:
            body = b""
            while (
                piece := answer.read1(MAX_ANSWER_BYTES) if hasattr(answer, "read1") else answer.read(MAX_ANSWER_BYTES)
            ):
                body += piece
                if len(body) > MAX_ANSWER_BYTES or time.monotonic() > deadline_s:
                    raise UnreachableError(f"the answer of {shown(url)} is too long, or too slow")
            status = int(answer.status or 0)
    except (URLError, HTTPException, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise UnreachableError(f"{shown(url)} does not answer: {shown(str(why))}") from None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = {}
    if not isinstance(found, dict):
        found = {}
    return status, found
