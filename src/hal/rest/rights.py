"""Roles, and the rights that an endpoint can be given: how far each role reaches.

Pure. Each row of a table of endpoints names one of these rights, or one of the daemon's own; see `enforcement`.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final, NamedTuple


class Role(StrEnum):
    """The role of a user or token in this HAL."""

    USER = "user"
    """Submits, and does what they like with their own jobs."""
    OPERATOR = "operator"
    """Also everybody's jobs, the nodes, the whole feed, the audit log."""
    ADMIN = "admin"
    """Also the policy and the tokens."""

    @property
    def rank(self) -> int:
        """The rank of the role: ascending with what it may do."""
        return _RANKS[self]


_RANKS: Final = {Role.USER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}


class Reach(IntEnum):
    """How far a right goes."""

    NONE = 0
    OWN = 1
    """What belongs to the caller; all else is as if it were not there."""
    ALL = 2


class Right(NamedTuple):
    """How far each role reaches."""

    user: Reach
    operator: Reach
    admin: Reach

    def reach(self, role: Role) -> Reach:
        """How far the right reaches for that role."""
        return self[role.rank]


EVERYBODY: Final = Right(Reach.ALL, Reach.ALL, Reach.ALL)
OWNERS: Final = Right(Reach.OWN, Reach.ALL, Reach.ALL)
"""Users what is theirs, operators and admins everybody's."""
OPERATORS: Final = Right(Reach.NONE, Reach.ALL, Reach.ALL)
ADMINS: Final = Right(Reach.NONE, Reach.NONE, Reach.ALL)
NOBODY: Final = Right(Reach.NONE, Reach.NONE, Reach.NONE)
"""Of what no row of the table names."""


def roles_with(right: Right) -> list[Role]:
    """Who reaches anything at all, lowest first."""
    return [role for role in Role if right.reach(role) is not Reach.NONE]
