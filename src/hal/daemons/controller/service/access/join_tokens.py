"""Join tokens, with which machines join and processes of other roles get certificates; and those certificates."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hal.core.model import SpecError, parse_duration
from hal.daemons.controller.nodes.admission import (
    DEFAULT_LIFE_MS,
    CertificatesList,
    CertificateView,
    JoinTokensList,
    JoinTokenView,
    NewJoinToken,
)
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import Submitter
from hal.wire.roles import Role


class JoinTokenBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A join token to create."""

    expires_in: Any = None
    """How long it may be used, as a duration (`1h`); an hour by default, a week at most."""
    role: str = Role.AGENT
    """Of whom gets a certificate with it: `agent` (a node), `broker`, `worker`, `client` or `service`."""
    node: str = ""
    """The only node that may join with it, also one that is known already; empty: any new one."""
    name: str = ""
    """The same for the other roles; a client's, which speaks for that user, must be given."""
    uses: int = 1
    """How many machines may join with it; 0: any number, until it expires."""
    labels: dict[str, str] = {}
    """That each of these nodes has, whatever its agent says."""


class RevokeCertificates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose certificates to revoke."""

    role: str
    """`broker`, `worker`, `client` or `service`."""
    name: str


class JoinTokens:
    """Make, list and revoke them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def create(self, body: JoinTokenBody, by: Submitter) -> NewJoinToken:
        """Create a token with which machines join.

        Raises:
            ConflictError: this controller does not listen for agents.
            SpecError: no node's name, or a number out of range.
            OverloadedError: too many wait already.
        """
        if (body.name and body.role == Role.AGENT) or (body.node and body.role != Role.AGENT):
            raise SpecError("name, node: `node` is for the role agent, `name` for the others")
        life_ms = (
            DEFAULT_LIFE_MS if body.expires_in is None else int(parse_duration(body.expires_in, field="expires_in"))
        )
        return await self._parts.node_admission.create_token(
            node=body.name or body.node,
            life_ms=life_ms,
            user=by.user,
            uses=body.uses,
            labels=body.labels,
            role=body.role,
        )

    def all(self) -> JoinTokensList:
        """All that are kept, oldest first."""
        return self._parts.node_admission.tokens()

    def certificates(self, role: str, name: str) -> list[CertificateView]:
        """All certificates that were given and are kept; see `NodeAdmission.certificates`."""
        return self._parts.node_admission.certificates(role, name)

    async def revoke_certificates(self, body: RevokeCertificates) -> CertificatesList:
        """Revoke those of a process of another role than agent.

        Raises:
            SpecError, NotFoundError: see `NodeAdmission.revoke`.
        """
        revoked = await self._parts.node_admission.revoke(body.role, body.name)
        return CertificatesList(certificates=revoked)

    async def revoke(self, token_id: str) -> JoinTokenView:
        """Revoke a join token.

        Raises:
            NotFoundError: there is no such token.
            ConflictError: it was used, or cannot be used anyway.
        """
        return await self._parts.node_admission.revoke_token(token_id)
