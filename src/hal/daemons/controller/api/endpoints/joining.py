"""The endpoints about joining: join tokens, and taking a node's certificates back."""

from __future__ import annotations

from typing import Final

from hal.daemons.controller.api.endpoints.endpoint import TEXT, Endpoint, Param, body_of
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.nodes.admission import CertificatesList, JoinTokensList, JoinTokenView, NewJoinToken
from hal.daemons.controller.service.access.join_tokens import JoinTokenBody, RevokeCertificates
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.daemons.controller.service.nodes.views import NodeView
from hal.rest.answers import sliced_answer
from hal.rest.rights import ADMINS, OPERATORS


async def create_join_token(api: ControllerApi, call: Call) -> object:
    """Its text is in this answer only."""
    asked: JoinTokenBody = call.body
    return await api.join_tokens.create(asked, call.submitter)


async def list_join_tokens(api: ControllerApi, call: Call) -> object:
    """All that are kept."""
    return api.join_tokens.all()


async def revoke_join_token(api: ControllerApi, call: Call) -> object:
    """Revoke a join token."""
    return await api.join_tokens.revoke(call.path("token"))


async def revoke_node(api: ControllerApi, call: Call) -> object:
    """Revoke the certificates of a node."""
    await api.nodes.revoke(call.path("name"))
    return api.nodes.get(call.path("name"))


async def list_certificates(api: ControllerApi, call: Call) -> object:
    """All that are kept, or those of one role or name."""
    found = api.join_tokens.certificates(call.params.text("role"), call.params.text("name"))
    empty = CertificatesList(certificates=[])
    return await sliced_answer(call, api.runtime, empty, "certificates", found, 200)


async def revoke_certificates(api: ControllerApi, call: Call) -> object:
    """Revoke those of one process."""
    asked: RevokeCertificates = call.body
    call.visit.targets.append(f"{asked.role}/{asked.name}")
    return await api.join_tokens.revoke_certificates(asked)


JOINING: Final = (
    # Admins' only: whoever has such a token is given everybody's jobs.
    Endpoint(
        method="POST",
        path="/v1/tokens",
        handler=create_join_token,
        right=ADMINS,
        name="createJoinToken",
        tag="nodes",
        summary="Create a join token, with which machines join, or processes of another role get certificates",
        text="Its text is in this response only; the store keeps a hash. It contains the authority's fingerprint.",
        body=body_of(
            JoinTokenBody,
            {
                "for an hour": {"expires_in": "1h"},
                "for one node": {"node": "n7"},
                "for a cache": {"role": "service", "name": "cache-1"},
                "for rented machines": {"uses": 0, "expires_in": "7d", "labels": {"pool": "spot"}},
            },
        ),
        result=NewJoinToken,
        status=201,
        problems=("400", "409", "413", "503"),
    ),
    Endpoint(
        method="GET",
        path="/v1/tokens",
        handler=list_join_tokens,
        right=ADMINS,
        name="listJoinTokens",
        tag="nodes",
        summary="List join tokens, oldest first, without their secrets",
        result=JoinTokensList,
    ),
    Endpoint(
        method="POST",
        path="/v1/tokens/{token}/revoke",
        handler=revoke_join_token,
        right=ADMINS,
        name="revokeJoinToken",
        tag="nodes",
        summary="Revoke a join token",
        params=(Param(name="token", where="path", text="id of the token", schema=TEXT, example="5f3a09c1"),),
        result=JoinTokenView,
        problems=("404", "409", "503"),
    ),
    Endpoint(
        method="GET",
        path="/v1/certificates",
        handler=list_certificates,
        right=ADMINS,
        name="listCertificates",
        tag="nodes",
        summary="List the certificates of nodes and of processes of other roles, by role and name",
        text="Those that have expired or were revoked are kept for a day or longer.",
        params=(
            Param(name="role", where="query", text="only of this role", schema=TEXT, example="service"),
            Param(name="name", where="query", text="only of this name", schema=TEXT, example="cache-1"),
        ),
        result=CertificatesList,
    ),
    Endpoint(
        method="POST",
        path="/v1/certificates/revoke",
        handler=revoke_certificates,
        right=OPERATORS,
        name="revokeCertificates",
        tag="nodes",
        summary="Revoke the certificates of a broker, worker, client or service",
        text="They are not renewed any more. Whoever it connects to accepts them until they expire.",
        body=body_of(RevokeCertificates, {"of a cache": {"role": "service", "name": "cache-1"}}),
        result=CertificatesList,
        problems=("400", "404", "413", "503"),
    ),
    Endpoint(
        method="POST",
        path="/v1/nodes/{name}/revoke",
        handler=revoke_node,
        right=OPERATORS,
        name="revokeNode",
        tag="nodes",
        summary="Revoke the certificates of a joined node, and close its connection",
        text="Its steps stay. The node returns by joining with a token that names it.",
        params=(Param(name="name", where="path", text="name of the node", schema=TEXT, example="n1"),),
        result=NodeView,
        problems=("404", "503"),
    ),
)
