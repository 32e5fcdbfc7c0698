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
    node: str = ""
    """The only node that may join with it; empty: any new one."""
    user: str = ""
    created_ms: int = 0
    expires_ms: int = 0
    used_by: str = ""
    """The node that joined with it last."""
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
    node: str = ""
    wire: str = ""
    """Where agents dial, as the controller listens."""


class _Wanted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    expires_in: str = ""
    node: str = ""
    uses: int = 1
    labels: dict[str, str] = {}


def create_token(
    *, expires_in: str = "", node: str = "", uses: int = 1, labels: dict[str, str] | None = None
) -> Call[NewJoinTokenInfo]:
    """POST /v1/tokens; `uses`: 0 for any number."""
    wanted = _Wanted(expires_in=expires_in, node=node, uses=uses, labels=labels or {})
    return Call(Request("POST", "/v1/tokens", body=to_json(wanted)), reader(NewJoinTokenInfo))


def tokens() -> Call[tuple[JoinTokenInfo, ...]]:
    """GET /v1/tokens"""
    return Call(get("/v1/tokens"), list_reader("tokens", JoinTokenInfo))


def revoke_token(token_id: str) -> Call[JoinTokenInfo]:
    """POST /v1/tokens/{id}/revoke"""
    path = f"/v1/tokens/{quote(token_id, safe='')}/revoke"
    return Call(Request("POST", path, body=b"{}", repeatable=False), reader(JoinTokenInfo))


def revoke_node(name: str) -> Call[NodeInfo]:
    """POST /v1/nodes/{name}/revoke"""
    path = f"/v1/nodes/{quote(name, safe='')}/revoke"
    return Call(Request("POST", path, body=b"{}", repeatable=False), reader(NodeInfo))
