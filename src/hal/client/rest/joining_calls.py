"""The calls of REST /v1 about joining; apart from `calls`: few programs need them."""

from __future__ import annotations

from urllib.parse import quote

from msgspec import Struct

from hal.client.rest.calls import Call, get, list_reader, reader
from hal.client.rest.views import NodeInfo, View
from hal.client.transport.exchange import Request
from hal.core.model import to_json


class JoinTokenInfo(View, frozen=True, kw_only=True):
    """A join token, without its secret."""

    id: str
    state: str
    """open, used, expired or revoked."""
    role: str = "agent"
    """For which it gives certificates; `agent`: nodes."""
    node: str = ""
    """The only node, or name in that role, that may join with it; empty: any new one."""
    user: str = ""
    created_ms: int = 0
    expires_ms: int = 0
    used_by: str = ""
    """The node, or name in that role, that joined with it last."""
    uses: int = 1
    """So many machines can join with it; 0: any number, until it expires."""
    used: int = 0
    labels: dict[str, str] = {}  # noqa: RUF012 - a Struct copies it
    """That each of these nodes has."""


class NewJoinTokenInfo(View, frozen=True, kw_only=True):
    """A fresh join token, with its text."""

    token: str
    id: str
    expires_ms: int
    role: str = "agent"
    node: str = ""
    wire: str = ""
    """Where agents dial, as the controller listens."""


class CertificateInfo(View, frozen=True, kw_only=True):
    """A certificate that was given on request, to a node or to a process of another role."""

    serial: str
    role: str
    name: str
    issued_ms: int = 0
    expires_ms: int = 0
    revoked_ms: int | None = None
    token: str = ""
    """Id of the join token with which the first of that name was got."""


class _Wanted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    expires_in: str = ""
    role: str = "agent"
    node: str = ""
    name: str = ""
    uses: int = 1
    labels: dict[str, str] = {}


def create_token(
    *,
    expires_in: str = "",
    node: str = "",
    uses: int = 1,
    labels: dict[str, str] | None = None,
    role: str = "agent",
    name: str = "",
) -> Call[NewJoinTokenInfo]:
    """POST /v1/tokens; `uses`: 0 for any number. `node` is for the role agent, `name` for the others."""
    wanted = _Wanted(expires_in=expires_in, node=node, uses=uses, labels=labels or {}, role=role, name=name)
    return Call(Request("POST", "/v1/tokens", body=to_json(wanted)), reader(NewJoinTokenInfo))


def tokens() -> Call[tuple[JoinTokenInfo, ...]]:
    """GET /v1/tokens"""
    return Call(get("/v1/tokens"), list_reader("tokens", JoinTokenInfo))


def revoke_token(token_id: str) -> Call[JoinTokenInfo]:
    """POST /v1/tokens/{id}/revoke"""
    path = f"/v1/tokens/{quote(token_id, safe='')}/revoke"
    return Call(Request("POST", path, body=b"{}", repeatable=False), reader(JoinTokenInfo))


def certificates(role: str = "", name: str = "") -> Call[tuple[CertificateInfo, ...]]:
    """GET /v1/certificates"""
    wanted = {key: text for key, text in (("role", role), ("name", name)) if text}
    return Call(Request("GET", "/v1/certificates", query=wanted), list_reader("certificates", CertificateInfo))


def revoke_certificates(role: str, name: str) -> Call[tuple[CertificateInfo, ...]]:
    """POST /v1/certificates/revoke"""
    request = Request("POST", "/v1/certificates/revoke", body=to_json({"role": role, "name": name}), repeatable=False)
    return Call(request, list_reader("certificates", CertificateInfo))


def revoke_node(name: str) -> Call[NodeInfo]:
    """POST /v1/nodes/{name}/revoke"""
    path = f"/v1/nodes/{quote(name, safe='')}/revoke"
    return Call(Request("POST", path, body=b"{}", repeatable=False), reader(NodeInfo))
