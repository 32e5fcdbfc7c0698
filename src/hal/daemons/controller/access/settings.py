"""`[access]` of hal.toml: who is what, and how much anybody may ask. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final

from msgspec import Meta, Struct

from hal.core.model import SpecError
from hal.core.model.config_sections import check_range
from hal.core.model.job import is_name
from hal.daemons.controller.access.oidc_settings import GroupsSection, OidcSection, check_groups, check_oidc
from hal.rest.rights import Role

ANYBODY: Final = "*"
"""In `users`: every user of this machine."""
MAX_NAMES: Final = 10_000
MAX_TOKEN_DAYS: Final = 3_650
MAX_RATE: Final = 1_000_000


class AccessSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[access]`"""

    socket: Annotated[str, Meta(description="path of a Unix socket for other users of this machine; empty: none")] = ""
    users: Annotated[
        tuple[str, ...],
        Meta(description="who has the role user there: login names, or `*` for everybody on this machine"),
    ] = ()
    operators: Annotated[tuple[str, ...], Meta(description="who has the role operator")] = ()
    admins: Annotated[tuple[str, ...], Meta(description="who has the role admin")] = ()
    run_as_owner: Annotated[
        bool,
        Meta(
            description="run everybody's jobs as whoever started HAL: whoever may submit has the rights of that account"
        ),
    ] = False
    groups: GroupsSection = GroupsSection()
    oidc: OidcSection = OidcSection()
    max_token_days: Annotated[int, Meta(description="maximum lifetime of an API token, in days")] = 365
    requests_per_s: Annotated[
        int, Meta(description="sustained rate of requests of each user; the owner and root are not limited")
    ] = 200
    burst: Annotated[int, Meta(description="requests at once after a pause")] = 1_000
    at_once: Annotated[int, Meta(description="requests in progress, long polls and streams included")] = 300

    def role_of(self, user: str, groups: Collection[str] = ()) -> Role | None:
        """The highest role that names the user of this machine, or a group of theirs; None: they are nobody here."""
        of_groups = self.groups.role_of(groups)
        if user in self.admins or of_groups is Role.ADMIN:
            return Role.ADMIN
        if user in self.operators or of_groups is Role.OPERATOR:
            return Role.OPERATOR
        return Role.USER if user in self.users or ANYBODY in self.users else of_groups


def check_access(section: AccessSection) -> AccessSection:
    """The section itself.

    Raises:
        SpecError: a value makes no sense; names it.
    """
    for field in ("users", "operators", "admins"):
        names: tuple[str, ...] = getattr(section, field)
        if len(names) > MAX_NAMES:
            raise SpecError(f"access.{field}: {len(names)} names", hint=f"at most {MAX_NAMES}")
        for name in names:
            if name == ANYBODY and field == "users":
                continue
            if not is_name(name):
                raise SpecError(f"access.{field}: '{name}' is not a user's name", hint="list login names")
    check_groups(section.groups)
    check_oidc(section.oidc)
    if section.socket and not section.socket.startswith("/"):
        raise SpecError("access.socket: is not an absolute path", hint="like /run/hal/api.sock")
    check_range("access.max_token_days", section.max_token_days, 1, MAX_TOKEN_DAYS)
    for field in ("requests_per_s", "burst", "at_once"):
        check_range(f"access.{field}", getattr(section, field), 1, MAX_RATE)
    return section
