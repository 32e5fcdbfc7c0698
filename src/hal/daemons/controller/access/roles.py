"""The one table of rights: which role may do what, endpoint by endpoint. What is not in it is refused.

Pure data and lookups. `api/rights.py` asks it before any handler runs; a test checks that it names exactly the routes
that are served.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final, NamedTuple


class Role(StrEnum):
    """What somebody is to this HAL."""

    USER = "user"
    """Submits, and does what they like with their own jobs."""
    OPERATOR = "operator"
    """Also everybody's jobs, the nodes, the whole feed, the audit log."""
    ADMIN = "admin"
    """Also the policy and the tokens."""

    @property
    def rank(self) -> int:
        """Ascending with what it may do."""
        return _RANKS[self]


_RANKS: Final = {Role.USER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}


class Reach(IntEnum):
    """How far a right goes."""

    NONE = 0
    OWN = 1
    """What belongs to the caller; all else is as if it were not there."""
    ALL = 2


class Right(NamedTuple):
    """One row of the table: how far each role reaches."""

    user: Reach
    operator: Reach
    admin: Reach

    def reach(self, role: Role) -> Reach:
        """Of that role."""
        return self[role.rank]


EVERYBODY: Final = Right(Reach.ALL, Reach.ALL, Reach.ALL)
OWNERS: Final = Right(Reach.OWN, Reach.ALL, Reach.ALL)
OPERATORS: Final = Right(Reach.NONE, Reach.ALL, Reach.ALL)
ADMINS: Final = Right(Reach.NONE, Reach.NONE, Reach.ALL)
NOBODY: Final = Right(Reach.NONE, Reach.NONE, Reach.NONE)

RIGHTS: Final[dict[str, Right]] = {
    # What speaks here, and who one is to it.
    "GET /v1/version": EVERYBODY,
    "GET /v1/health": EVERYBODY,
    "GET /v1/openapi.json": EVERYBODY,
    "GET /v1/authority": EVERYBODY,
    "GET /v1/controllers": EVERYBODY,
    "GET /v1/whoami": EVERYBODY,
    # Jobs, their tasks, their outputs.
    "POST /v1/jobs": OWNERS,
    "GET /v1/jobs": OWNERS,
    "GET /v1/jobs/{job}": OWNERS,
    "PATCH /v1/jobs/{job}": OWNERS,
    "GET /v1/jobs/{job}/wait": OWNERS,
    "GET /v1/jobs/{job}/why": OWNERS,
    "GET /v1/jobs/{job}/priority": OWNERS,
    "GET /v1/jobs/{job}/tasks": OWNERS,
    "GET /v1/jobs/{job}/tasks/{task}": OWNERS,
    "GET /v1/jobs/{job}/logs": OWNERS,
    "POST /v1/jobs/cancel": OWNERS,
    "POST /v1/jobs/hold": OWNERS,
    "POST /v1/jobs/release": OWNERS,
    "POST /v1/jobs/requeue": OWNERS,
    "GET /v1/events": OWNERS,
    # Where they run.
    "GET /v1/nodes": EVERYBODY,
    "GET /v1/nodes/{name}": EVERYBODY,
    "GET /v1/nodes/{name}/wait": EVERYBODY,
    "POST /v1/nodes/{name}/fence": OPERATORS,
    "POST /v1/nodes/cordon": OPERATORS,
    "POST /v1/nodes/uncordon": OPERATORS,
    "POST /v1/nodes/drain": OPERATORS,
    "POST /v1/nodes/remove": OPERATORS,
    "POST /v1/nodes/{name}/revoke": OPERATORS,
    # Which machines may join: whoever has such a token is given everybody's jobs.
    "GET /v1/tokens": ADMINS,
    "POST /v1/tokens": ADMINS,
    "POST /v1/tokens/{token}/revoke": ADMINS,
    # Who goes next.
    "GET /v1/queues": EVERYBODY,
    "GET /v1/licences": EVERYBODY,
    "GET /v1/shares": EVERYBODY,
    "GET /v1/ledgers": EVERYBODY,
    "GET /v1/policy": EVERYBODY,
    "GET /v1/policy/versions": OPERATORS,
    "GET /v1/policy/versions/{version}": OPERATORS,
    "PUT /v1/policy": ADMINS,
    "PATCH /v1/policy": ADMINS,
    # Who may do all this, and who did.
    "GET /v1/audit": OPERATORS,
    "GET /v1/api-tokens": ADMINS,
    "POST /v1/api-tokens": ADMINS,
    "POST /v1/api-tokens/{token}/revoke": ADMINS,
}

OPEN: Final = frozenset({("GET", "/v1/authority")})
"""What is answered to strangers too, without any token: it is how they find out whom to believe."""


JOBS: Final = ("/v1/jobs", "/v1/events")
"""How the paths of what is about jobs begin: elsewhere a token that is narrowed to some of them has a user's rights."""


def right_of(method: str, path: str) -> Right:
    """The row of an endpoint, its path as a template; `NOBODY` for one that is not in the table."""
    return RIGHTS.get(f"{method} {path}", NOBODY)


def roles_with(right: Right) -> list[Role]:
    """Who reaches anything at all, lowest first."""
    return [role for role in Role if right.reach(role) is not Reach.NONE]
