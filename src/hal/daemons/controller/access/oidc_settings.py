"""`[access.oidc]` and `[access.groups]` of hal.toml: who is believed about people, and what groups may do. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from hal.core.model import Duration, SpecError
from hal.core.model.job import is_name
from hal.rest.rights import Role

ANYBODY: Final = "*"
"""In lists of users: everybody who can log in there."""
MAX_NAMES: Final = 10_000
MAX_TEXT_CHARS: Final = 1_000
MAX_SKEW_MS: Final = 300_000
SHORTEST_LIFE_MS: Final = 60_000
LONGEST_LIFE_MS: Final = 7 * 86_400_000
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class GroupsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[access.groups]`"""

    users: Annotated[tuple[str, ...], Meta(description="groups whose members have the role user")] = ()
    operators: Annotated[tuple[str, ...], Meta(description="groups whose members have the role operator")] = ()
    admins: Annotated[tuple[str, ...], Meta(description="groups whose members have the role admin")] = ()

    def role_of(self, groups: Collection[str]) -> Role | None:
        """The highest role that one of these groups gives; None: none does."""
        for role, named in ((Role.ADMIN, self.admins), (Role.OPERATOR, self.operators), (Role.USER, self.users)):
            if any(name in groups for name in named):
                return role
        return None

    @property
    def declared(self) -> bool:
        """Whether any group has a role."""
        return bool(self.users or self.operators or self.admins)


class OidcSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[access.oidc]`"""

    issuer: Annotated[str, Meta(description="URL of the OpenID Connect provider; empty: none")] = ""
    client_id: Annotated[str, Meta(description="HAL's client id there, a public client with the device flow")] = ""
    audience: Annotated[
        str, Meta(description="audience that tokens must have; empty: the client id, which ID tokens have")
    ] = ""
    scopes: Annotated[tuple[str, ...], Meta(description="scopes that `hal login` asks for")] = (
        "openid",
        "profile",
        "offline_access",
    )
    ca_file: Annotated[
        str, Meta(description="PEM file of the authorities that the provider is verified with; empty: the system's")
    ] = ""
    user_claim: Annotated[str, Meta(description="claim that names the user; people must not be able to change it")] = (
        "preferred_username"
    )
    user_prefix: Annotated[str, Meta(description="put before names of users, so that they cannot be login names")] = ""
    groups_claim: Annotated[
        str, Meta(description="claim that lists the groups of [access.groups]; empty: the system's groups of that user")
    ] = "groups"
    groups_prefix: Annotated[str, Meta(description="put before names of groups from the claim")] = ""
    users: Annotated[tuple[str, ...], Meta(description="who has the role user; `*` for everybody who can log in")] = ()
    operators: Annotated[tuple[str, ...], Meta(description="who has the role operator")] = ()
    admins: Annotated[tuple[str, ...], Meta(description="who has the role admin")] = ()
    token_life: Annotated[
        Duration, Meta(description="how long HAL's token lives; `hal` gets another one while the provider agrees")
    ] = Duration(28_800_000)
    skew: Annotated[Duration, Meta(description="how far the clocks of provider and controller may differ")] = Duration(
        60_000
    )

    @property
    def wanted_audience(self) -> str:
        """The audience that a token must have."""
        return self.audience or self.client_id

    @property
    def by_id_token(self) -> bool:
        """Whether people show the ID token; else the access token."""
        return self.wanted_audience == self.client_id

    def named_role(self, user: str) -> Role | None:
        """The highest role of that name; None: it has none."""
        if user in self.admins:
            return Role.ADMIN
        if user in self.operators:
            return Role.OPERATOR
        return Role.USER if user in self.users or ANYBODY in self.users else None


def check_groups(section: GroupsSection) -> None:
    """
    Raises:
        SpecError: a value makes no sense; names it.
    """
    for field in ("users", "operators", "admins"):
        _check_names(f"access.groups.{field}", getattr(section, field), anybody=False)


def check_oidc(section: OidcSection) -> None:
    """
    Raises:
        SpecError: a value makes no sense; names it.
    """
    for field in ("users", "operators", "admins"):
        _check_names(f"access.oidc.{field}", getattr(section, field), anybody=field == "users")
    for field in ("issuer", "client_id", "audience", "user_claim", "user_prefix", "groups_claim", "groups_prefix"):
        value: str = getattr(section, field)
        if len(value) > MAX_TEXT_CHARS or not value.isprintable():
            raise SpecError(f"access.oidc.{field}: longer than {MAX_TEXT_CHARS} characters, or not one line of text")
    if not section.issuer:
        if section != OidcSection():
            raise SpecError("access.oidc.issuer: is missing", hint="like https://login.example.org/realms/lab")
        return
    if not is_safe_url(section.issuer) or urlsplit(section.issuer).query or section.issuer.endswith("/.well-known"):
        raise SpecError(
            "access.oidc.issuer: is not an https:// URL", hint="without query; http:// only on this machine, for tests"
        )
    for field in ("client_id", "user_claim"):
        if not getattr(section, field):
            raise SpecError(f"access.oidc.{field}: is empty")
    if not section.scopes or any(not one or len(one) > MAX_TEXT_CHARS or " " in one for one in section.scopes):
        raise SpecError("access.oidc.scopes: an empty list or scope, or one with a space", hint='like ["openid"]')
    if section.ca_file and not section.ca_file.startswith("/"):
        raise SpecError("access.oidc.ca_file: is not an absolute path")
    if not SHORTEST_LIFE_MS <= section.token_life <= LONGEST_LIFE_MS:
        raise SpecError("access.oidc.token_life: out of range", hint="between 1m and 7d")
    if not 0 <= section.skew <= MAX_SKEW_MS:
        raise SpecError("access.oidc.skew: out of range", hint="at most 5m")


def is_safe_url(url: str) -> bool:
    """Whether it is https, or http to this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or parts.username is not None or parts.fragment or len(url) > MAX_TEXT_CHARS:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)


def _check_names(where: str, names: tuple[str, ...], *, anybody: bool) -> None:
    if len(names) > MAX_NAMES:
        raise SpecError(f"{where}: {len(names)} names", hint=f"at most {MAX_NAMES}")
    for name in names:
        if name != ANYBODY and not is_name(name) and not _is_group(name):
            raise SpecError(f"{where}: '{name}' is not a name")
        if name == ANYBODY and not anybody:
            raise SpecError(f"{where}: '{ANYBODY}' stands for nobody here", hint="list names")


def _is_group(name: str) -> bool:
    """Groups of directories have spaces in their names: `domain users`."""
    return 0 < len(name) <= 128 and name.isprintable() and name == name.strip()
