"""What REST takes and gives about access: tokens, and who one is. Values only."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from hal.core.model import Duration
from hal.daemons.controller.access.tokens import Token
from hal.rest.audit import Entry
from hal.rest.rights import Role


class TokenBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An API token to create."""

    user: str
    """Whose requests they will be."""
    role: Role = Role.USER
    expires_in: Duration | UnsetType = UNSET
    """Thirty days when left out."""
    note: str = ""
    accounts: tuple[str, ...] = ()
    """The only accounts it may submit for and change jobs of; empty: any."""
    queues: tuple[str, ...] = ()
    """The only queues; empty: any."""
    read_only: bool = False


class TokenView(Struct, frozen=True, kw_only=True):
    """A token, without its secret."""

    id: str
    user: str
    role: Role
    state: str
    """`live`, `expired` or `revoked`."""
    created_ms: int
    created_by: str
    expires_ms: int
    revoked_ms: int | None
    used_ms: int | None
    """Beginning of the hour in which it was last used; null: never."""
    note: str
    accounts: tuple[str, ...]
    queues: tuple[str, ...]
    read_only: bool


class TokensList(Struct, frozen=True, kw_only=True):
    """All tokens, newest first."""

    tokens: list[TokenView]


class TokenMade(Struct, frozen=True, kw_only=True):
    """A new token, and its secret, which is not shown again."""

    secret: str
    """What is sent as `Authorization: Bearer …`."""
    token: TokenView


class AuditPage(Struct, frozen=True, kw_only=True):
    """A page of entries of the audit log."""

    entries: list[Entry]
    cursor: str | None


def token_view(token: Token, now_ms: int) -> TokenView:
    """What may be shown of it."""
    state = "revoked" if token.revoked_ms is not None else "live" if token.live(now_ms) else "expired"
    return TokenView(
        id=token.id,
        user=token.user,
        role=token.role,
        state=state,
        created_ms=token.created_ms,
        created_by=token.created_by,
        expires_ms=token.expires_ms,
        revoked_ms=token.revoked_ms,
        used_ms=token.used_ms,
        note=token.note,
        accounts=token.scope.accounts,
        queues=token.scope.queues,
        read_only=token.scope.read_only,
    )
