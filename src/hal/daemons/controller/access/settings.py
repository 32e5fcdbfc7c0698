"""`[access]` of hal.toml: who is what, and how much anybody may ask. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.model import SpecError
from hal.core.model.job import is_name
from hal.rest.rights import Role

ANYBODY: Final = "*"
"""In `users`: every user of this machine."""
MAX_NAMES: Final = 10_000
MAX_TOKEN_DAYS: Final = 3_650
MAX_RATE: Final = 1_000_000


class AccessSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[access]`"""

    socket: str = ""
    """Where other users of this machine come in: the path of a second Unix socket. Empty: they do not."""
    users: tuple[str, ...] = ()
    """Who may come in there as a user; `*`: everybody on this machine."""
    operators: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    steps_run_as_root: bool = False
    """Where HAL is root's, run other users' steps too: whoever may submit is root then."""
    max_token_days: int = 365
    """Longest life of an API token."""
    requests_per_s: int = 200
    """Requests a second of one user, in the long run."""
    burst: int = 1_000
    """Requests of one user after a pause."""
    at_once: int = 300
    """Requests of one user under way, long polls and streams included."""

    def role_of(self, user: str) -> Role | None:
        """The highest role that names the user; None: they are nobody here."""
        if user in self.admins:
            return Role.ADMIN
        if user in self.operators:
            return Role.OPERATOR
        return Role.USER if user in self.users or ANYBODY in self.users else None


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
    if section.socket and not section.socket.startswith("/"):
        raise SpecError("access.socket: is not an absolute path", hint="like /run/hal/api.sock")
    if not 1 <= section.max_token_days <= MAX_TOKEN_DAYS:
        raise SpecError("access.max_token_days: out of range", hint=f"between 1 and {MAX_TOKEN_DAYS}")
    for field in ("requests_per_s", "burst", "at_once"):
        if not 1 <= getattr(section, field) <= MAX_RATE:
            raise SpecError(f"access.{field}: out of range", hint=f"between 1 and {MAX_RATE}")
    return section
