"""The calls of REST /v1 about access: who one is, and API tokens; apart from `calls`: few programs need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from msgspec import field

from hal.client.rest.calls import Call, get, list_reader, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Request
from hal.core.model import to_json


class WhoInfo(View, frozen=True, kw_only=True):
    """Who the caller is to a HAL."""

    user: str
    role: str
    peer: str = ""
    token: str = ""
    """Id of the token that was shown; empty: the kernel named the user."""
    expires_ms: int | None = None
    accounts: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    read_only: bool = False
    job: int = 0
    """The only job for which the caller speaks, with what that has submitted: nothing but its step's token was shown;
    0: for whatever is the user's."""
    rights: dict[str, str] = field(default_factory=dict)
    """`all`, `own` or `none` by operation; empty where they were not asked for."""


class TokenInfo(View, frozen=True, kw_only=True):
    """A token, without its secret."""

    id: str
    user: str
    role: str
    state: str
    """`live`, `expired` or `revoked`."""
    created_ms: int = 0
    created_by: str = ""
    expires_ms: int = 0
    revoked_ms: int | None = None
    used_ms: int | None = None
    """To the hour; None: never."""
    note: str = ""
    accounts: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    read_only: bool = False


class TokenMade(View, frozen=True, kw_only=True):
    """A new token and its secret, which is never shown again."""

    secret: str
    token: TokenInfo


class LoginOffer(View, frozen=True, kw_only=True):
    """How people log in at a HAL."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...] = ()
    token: str = "id_token"
    """Which of the provider's tokens is to be sent."""


class AuditEntry(View, frozen=True, kw_only=True):
    """One request that changed something, tried to, or was refused."""

    sequence: int
    at_ms: int
    user: str = ""
    """Empty: unknown."""
    role: str = ""
    peer: str = ""
    token: str = ""
    method: str = ""
    path: str = ""
    status: int = 0
    """Of the HTTP answer; 0: the connection broke before one."""
    refused: str = ""
    targets: tuple[str, ...] = ()
    more: int = 0
    trace_id: str = ""
    times: int = 1
    """How many requests it stands for, of a streak of refusals."""
    since_ms: int = 0
    """Of a streak: when it began."""
    lost: int = 0
    """Entries before it that could not be written."""
    line: int = 0
    """Number among the entries of the same user, where it is in the hash chain; 0: it is not."""
    previous: str = ""
    """SHA-256 of the line before it."""


class Grant(View, frozen=True, kw_only=True):
    """A right, and why somebody has it."""

    right: str
    source: str
    """`owner`, `root`, `configuration`, `token`, `delegation`."""
    rule: str
    """Where that is said."""
    applies: str = ""
    """To which requests."""


class QueueAccess(View, frozen=True, kw_only=True):
    """Whether somebody may submit to a queue."""

    name: str
    may_submit: bool
    why: str = ""
    operator: bool = False


class AccountAccess(View, frozen=True, kw_only=True):
    """Whether somebody may submit for an account."""

    name: str
    may_submit: bool
    why: str = ""
    coordinator_through: str = ""
    """The account that makes them a coordinator of this one; empty: they are not."""


class LimitAccess(View, frozen=True, kw_only=True):
    """A limit that holds for jobs of somebody."""

    name: str
    scope: dict[str, str] = field(default_factory=dict)
    bounds: dict[str, Any] = field(default_factory=dict)
    set_by: str = ""
    """`administrator` or `coordinator`."""


class AccessInfo(View, frozen=True, kw_only=True):
    """Everything that says what somebody may do."""

    user: str
    role: str | None = None
    """On the controller's machine; None: none, only what a token says."""
    grants: tuple[Grant, ...] = ()
    queues: tuple[QueueAccess, ...] = ()
    accounts: tuple[AccountAccess, ...] = ()
    limits: tuple[LimitAccess, ...] = ()
    more: int = 0
    """Queues, accounts and limits that are not listed."""


class KeptHead(View, frozen=True, kw_only=True):
    """A head of a controller's audit log, as the store has it."""

    controller: str
    number: int
    at_ms: int
    through: int = 0
    head: str
    """`NUMBER:SHA-256`"""


class AuditHead(View, frozen=True, kw_only=True):
    """The head of the audit log, which stands for all entries up to `through`."""

    controller: str
    """`HOST:HAL_HOME`"""
    number: int
    at_ms: int
    through: int = 0
    head: str
    kept: tuple[KeptHead, ...] = ()
    """Those that the store has, of all controllers, oldest first."""


AUDIT_WAIT_S = 25.0
"""How long one request waits for the next entry."""


def who_am_i(*, rights: bool = False) -> Call[WhoInfo]:
    """GET /v1/whoami; `rights`: with what one may do."""
    query = {"rights": "1"} if rights else {}
    return Call(Request("GET", "/v1/whoami", query=query), reader(WhoInfo))


def login_offer() -> Call[LoginOffer]:
    """GET /v1/login"""
    return Call(get("/v1/login"), reader(LoginOffer))


def log_in(token: str) -> Call[TokenMade]:
    """POST /v1/login, with a token of the provider"""
    return Call(Request("POST", "/v1/login", body=to_json({"token": token}), repeatable=False), reader(TokenMade))


def log_out() -> Call[TokenInfo]:
    """POST /v1/logout: twice is as once."""
    return Call(Request("POST", "/v1/logout"), reader(TokenInfo))


def tokens() -> Call[tuple[TokenInfo, ...]]:
    """GET /v1/api-tokens"""
    return Call(get("/v1/api-tokens"), list_reader("tokens", TokenInfo))


def create_token(fields: Mapping[str, Any]) -> Call[TokenMade]:
    """POST /v1/api-tokens"""
    # Sent twice, it would make two.
    return Call(Request("POST", "/v1/api-tokens", body=to_json(dict(fields)), repeatable=False), reader(TokenMade))


def revoke_token(token_id: str) -> Call[TokenInfo]:
    """POST /v1/api-tokens/{id}/revoke: twice is as once."""
    return Call(Request("POST", f"/v1/api-tokens/{quote(token_id, safe='')}/revoke"), reader(TokenInfo))


def audit(
    *, user: str = "", since_ms: int = 0, limit: int = 100, after: int | None = None, wait_s: float = 0.0
) -> Call[tuple[AuditEntry, ...]]:
    """GET /v1/audit: newest first; with `after` oldest first, waiting up to `wait_s` for the first."""
    query = {"limit": str(limit)} | ({"user": user} if user else {}) | ({"since_ms": str(since_ms)} if since_ms else {})
    if after is not None:
        query |= {"after": str(after), "wait_s": f"{wait_s:g}"}
    return Call(Request("GET", "/v1/audit", query=query, wait_s=wait_s), list_reader("entries", AuditEntry))


def audit_head() -> Call[AuditHead]:
    """GET /v1/audit/head"""
    return Call(get("/v1/audit/head"), reader(AuditHead))


def access(user: str = "") -> Call[AccessInfo]:
    """GET /v1/access: of that user; '': the caller."""
    return Call(Request("GET", "/v1/access", query={"user": user} if user else {}), reader(AccessInfo))
