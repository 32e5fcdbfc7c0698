"""Who sends a request, and what a request carries about that. Values; no I/O."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.model import DeniedError
from hal.rest.rights import Reach, Role

READING: Final = frozenset({"GET", "HEAD"})
"""Methods that change nothing."""
HOME_TOKEN: Final = "home"
"""Shown in place of a token's id for the token in HAL_HOME/token."""


class UnauthorizedError(DeniedError):
    """No token, or one that opens nothing."""

    code = "unauthorized"


class Scope(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a token is narrowed to, beside its role."""

    accounts: tuple[str, ...] = ()
    """The only accounts it may submit for and change jobs of; empty: any."""
    queues: tuple[str, ...] = ()
    """The only queues; empty: any."""
    read_only: bool = False


NO_SCOPE: Final = Scope()


class Identity(Struct, frozen=True, kw_only=True):
    """Who a request comes from, as the server found out."""

    user: str
    role: Role
    peer: str = ""
    """Where from: `uid 1000` on a Unix socket, the address over TCP."""
    token: str = ""
    """Id of the token that was shown; empty: the kernel named the user."""
    scope: Scope = NO_SCOPE
    inside: bool = False
    """The owner or root: not limited in rate, and idempotency keys are as they always were."""
    expires_ms: int | None = None
    step: str = ""
    """Token of the attempt, where a step asks."""
    only_job: int = 0
    """The step's job, where nothing but its token says who asks: it speaks for that job, and for what that has
    submitted; 0: for whatever is the user's."""

    @property
    def narrowed(self) -> bool:
        """To some accounts or queues."""
        return bool(self.scope.accounts or self.scope.queues)


class Visit:
    """One request: who asks, how far the right to it reaches, and what the audit log will say it was about."""

    __slots__ = ("delegated", "identity", "not_own", "operation", "reach", "repeated", "targets", "trace_id")

    def __init__(self, identity: Identity, trace_id: str) -> None:
        self.identity = identity
        self.trace_id = trace_id
        self.reach = Reach.NONE
        self.operation = ""
        """`METHOD /path/{template}`, once its row is found."""
        self.targets: list[str] = []
        self.not_own = False
        """It asked for what is somebody else's, and the answer was that no such thing exists."""
        self.delegated = False
        """What it asks for is somebody else's, and some rights to it were delegated to the caller."""
        self.repeated = False
        """Programs send it again and again, as its row says."""

    @property
    def own_only(self) -> bool:
        """Only what belongs to the caller may be touched or seen."""
        return self.reach is not Reach.ALL


def check_scope(scope: Scope, *, queue: str | None = None, account: str | None = None, what: str = "") -> None:
    """Refuse what a token is not for; None is not asked about.

    Raises:
        DeniedError: outside the scope; names what is inside.
    """
    for kind, allowed, value in (("queue", scope.queues, queue), ("account", scope.accounts, account)):
        if allowed and value is not None and value not in allowed:
            raise DeniedError(
                f"{what}this token is not for {kind} '{value}'"
                if value
                else f"{what}this token needs the {kind} named",
                hint=f"{kind}s that it is for: {', '.join(allowed)}",
            )
