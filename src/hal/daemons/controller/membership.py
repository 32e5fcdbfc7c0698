"""The part of the API that is about joining: join tokens of people, and taking a node's certificates back."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hal.core.model import parse_duration
from hal.daemons.controller.node_door import DEFAULT_LIFE_MS, JoinTokensList, JoinTokenView, NewJoinToken
from hal.daemons.controller.parts import Parts
from hal.planes.tasks import Submitter


class JoinTokenBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a join token is to be."""

    expires_in: Any = None
    """How long it may be used, as a duration (`1h`); an hour by default, a week at most."""
    node: str = ""
    """The only node that may join with it, also one that is known already; empty: any new one."""


class Joining:
    """See the module."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def create_join_token(self, body: JoinTokenBody, by: Submitter) -> NewJoinToken:
        """A token with which one machine joins, once.

        Raises:
            ConflictError: this controller does not listen for agents.
            SpecError: no node's name, or a time out of range.
            OverloadedError: too many wait already.
        """
        life_ms = (
            DEFAULT_LIFE_MS if body.expires_in is None else int(parse_duration(body.expires_in, field="expires_in"))
        )
        return await self._parts.node_door.create_token(node=body.node, life_ms=life_ms, user=by.user)

    def join_tokens(self) -> JoinTokensList:
        """All that are kept, oldest first."""
        return self._parts.node_door.tokens()

    async def revoke_join_token(self, token_id: str) -> JoinTokenView:
        """Nobody joins with it any more.

        Raises:
            NotFoundError: there is no such token.
            ConflictError: it was used, or cannot be used anyway.
        """
        return await self._parts.node_door.revoke_token(token_id)

    async def revoke_node(self, node: str) -> None:
        """Take a node's certificates back, and close its connection.

        Raises:
            NotFoundError: it has none.
        """
        await self._parts.node_door.revoke_node(node)
        self._parts.agents.dismiss(node, "denied", f"the certificate of node '{node}' was revoked")
