"""Logins by an OpenID Connect provider: its word about a person becomes a token of HAL's own, which lives for hours.

So everything else knows only HAL's tokens. A person who leaves keeps access until the token's end, for the next one is
made only from a new word of the provider.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.model import ConflictError, DeniedError, NotFoundError
from hal.daemons.controller.access.group_cache import GroupCache
from hal.daemons.controller.access.oidc_provider import OidcProvider
from hal.daemons.controller.access.oidc_tokens import Person
from hal.daemons.controller.service.access.tokens import Tokens
from hal.daemons.controller.service.access.views import TokenMade, TokenView
from hal.daemons.controller.service.parts import Parts
from hal.rest.identity import Identity
from hal.rest.rights import Role
from hal.runtime.system_groups import groups_of

ROOT: Final = "root"
NOT_SET_UP: Final = "this HAL has no OpenID Connect provider"


class LoginOffer(Struct, frozen=True, kw_only=True):
    """How people log in here."""

    issuer: str
    """URL of the OpenID Connect provider."""
    client_id: str
    scopes: tuple[str, ...]
    token: str
    """Which of the provider's tokens is to be sent: `id_token` or `access_token`."""


class LoginBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token of the provider."""

    token: str
    """A signed JSON Web Token, at most 16 KiB."""


class Logins:
    """Of one HAL."""

    def __init__(self, parts: Parts, tokens: Tokens) -> None:
        self._parts = parts
        self._tokens = tokens
        self._settings = parts.access.oidc
        self._provider = OidcProvider(parts.runtime, self._settings) if self._settings.issuer else None
        self._groups = GroupCache(parts.runtime, groups_of)

    async def system_groups(self, user: str) -> frozenset[str]:
        """The groups by which a user of this machine has a role at the socket for others; empty where none counts.

        Raises:
            UnreachableError, OverloadedError: as `GroupCache.of`.
        """
        access = self._parts.access
        return await self._groups.of(user) if access.socket and access.groups.declared else frozenset()

    def offer(self) -> LoginOffer:
        """How people log in here.

        Raises:
            NotFoundError: they do not, but by tokens.
        """
        if self._provider is None:
            raise NotFoundError(NOT_SET_UP, hint="log in with a token: hal login --token URL")
        settings = self._settings
        return LoginOffer(
            issuer=settings.issuer,
            client_id=settings.client_id,
            scopes=settings.scopes,
            token="id_token" if settings.by_id_token else "access_token",
        )

    async def exchange(self, token: str) -> TokenMade:
        """Create a token of HAL's for the person whom a token of the provider is about.

        Raises:
            NotFoundError: there is no provider.
            UnauthorizedError: its token is not believed.
            DeniedError: the person has no role here.
            UnreachableError, OverloadedError: it cannot be checked at present.
        """
        if self._provider is None:
            raise NotFoundError(NOT_SET_UP, hint="log in with a token: hal login --token URL")
        person = await self._provider.person(token)
        if person.user in (ROOT, self._parts.runs_as):
            raise DeniedError(
                f"'{person.user}' is the account that runs this HAL, and does not log in through a provider",
                hint="set access.oidc.user_prefix in hal.toml, or use the owner's token",
            )
        role = await self._role_of(person)
        if role is None:
            raise DeniedError(
                f"user '{person.user}' has no role on this HAL",
                hint="ask its administrator to name you, or one of your groups, under [access.oidc] or [access.groups]",
            )
        return await self._tokens.create_login(person.user, role, int(self._settings.token_life))

    async def end(self, identity: Identity) -> TokenView:
        """Revoke the login's token that is shown.

        Raises:
            ConflictError: what is shown is not one.
        """
        known = self._tokens.book.get(identity.token) if identity.token else None
        if known is None or not known.login:
            raise ConflictError(
                "this request does not show a token of a login", hint="others are revoked with `hal api-token revoke`"
            )
        return await self._tokens.revoke(known.id)

    async def _role_of(self, person: Person) -> Role | None:
        groups = person.groups
        if groups is None:
            groups = await self._groups.of(person.user) if self._parts.access.groups.declared else frozenset()
        found = (self._settings.named_role(person.user), self._parts.access.groups.role_of(groups))
        return max((role for role in found if role is not None), key=lambda role: role.rank, default=None)
