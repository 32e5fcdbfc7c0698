"""Join tokens: with each, one machine joins, or several until it expires."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hal.core.model import parse_duration
from hal.daemons.controller.nodes.admission import DEFAULT_LIFE_MS, JoinTokensList, JoinTokenView, NewJoinToken
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import Submitter


class JoinTokenBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A join token to create."""

    expires_in: Any = None
    """How long it may be used, as a duration (`1h`); an hour by default, a week at most."""
    node: str = ""
    """The only node that may join with it, also one that is known already; empty: any new one."""
    uses: int = 1
    """How many machines may join with it; 0: any number, until it expires."""
    labels: dict[str, str] = {}
    """That each of these nodes has, whatever its agent says."""


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
        life_ms = (
            DEFAULT_LIFE_MS if body.expires_in is None else int(parse_duration(body.expires_in, field="expires_in"))
        )
        return await self._parts.node_admission.create_token(
            node=body.node, life_ms=life_ms, user=by.user, uses=body.uses, labels=body.labels
        )

    def all(self) -> JoinTokensList:
        """All that are kept, oldest first."""
        return self._parts.node_admission.tokens()

    async def revoke(self, token_id: str) -> JoinTokenView:
        """Revoke a join token.

        Raises:
            NotFoundError: there is no such token.
            ConflictError: it was used, or cannot be used anyway.
        """
        return await self._parts.node_admission.revoke_token(token_id)
