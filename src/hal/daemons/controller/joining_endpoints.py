"""The endpoints of REST /v1 about joining, as rows of the table of `endpoints`. Pure data."""

from __future__ import annotations

from msgspec import Struct

from hal.daemons.controller.endpoints import Endpoint, Param, ref
from hal.daemons.controller.node_door import JoinTokensList, JoinTokenView, NewJoinToken

JOINING_ANSWERS: tuple[type[Struct], ...] = (NewJoinToken, JoinTokensList, JoinTokenView)


def joining_endpoints() -> list[Endpoint]:
    """All of them."""
    token = Param(name="token", where="path", text="id of the token", schema={"type": "string"}, example="5f3a09c1")
    node = Param(name="name", where="path", text="name of the node", schema={"type": "string"}, example="n1")
    return [
        Endpoint(
            method="post",
            path="/v1/tokens",
            name="createJoinToken",
            tag="nodes",
            summary="A token with which one machine joins, once",
            text="Its text is told this once; the store keeps a hash. It carries the authority's fingerprint.",
            body=ref("JoinTokenBody"),
            body_examples={"for an hour": {"expires_in": "1h"}, "for one node": {"node": "n7"}},
            gives="NewJoinToken",
            status=201,
            problems=("400", "409", "413", "503"),
        ),
        Endpoint(
            method="get",
            path="/v1/tokens",
            name="listJoinTokens",
            tag="nodes",
            summary="Join tokens, oldest first, without their secrets",
            gives="JoinTokensList",
        ),
        Endpoint(
            method="post",
            path="/v1/tokens/{token}/revoke",
            name="revokeJoinToken",
            tag="nodes",
            summary="Let nobody join with it any more",
            params=(token,),
            gives="JoinTokenView",
            problems=("404", "409", "503"),
        ),
        Endpoint(
            method="post",
            path="/v1/nodes/{name}/revoke",
            name="revokeNode",
            tag="nodes",
            summary="Take back the certificates of a node that joined, and close its connection",
            text="Its steps stay. It comes back when it joins with a token that names it.",
            params=(node,),
            gives="NodeView",
            problems=("404", "503"),
        ),
    ]
