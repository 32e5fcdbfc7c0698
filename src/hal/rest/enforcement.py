"""The one place where rights are enforced: between finding the route and running its handler.

It goes by the route that Litestar has found, so there is no second reading of the path that could differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping

from hal.core.model import DeniedError
from hal.rest.identity import READING, Identity, Visit
from hal.rest.parameters import AnyRequest
from hal.rest.rights import NOBODY, Reach, Right, Role, roles_with

CheckPath = Callable[[Visit, AnyRequest], Awaitable[None]]
"""Refuses what the path names where it is not the caller's (`Visit.reach` is known then): raises a `HALError`."""


def visit_of(request: AnyRequest) -> Visit:
    """Who asks."""
    visit: Visit = request.scope["state"]["visit"]
    return visit


def reach_of(identity: Identity, right: Right, *, narrowed_too: bool) -> Reach:
    """How far a right reaches for somebody.

    Args:
        narrowed_too: a token that is narrowed to accounts or queues has its whole role here; elsewhere a user's.
    """
    return right.reach(identity.role if narrowed_too or not identity.narrowed else Role.USER)


def beyond_its_job(job: int) -> DeniedError:
    """What a step's token by itself is told that asks for more than its job."""
    return DeniedError(
        f"the token of a step of job {job} speaks for that job, and for those that it has submitted",
        hint="name one of them, or ask as the user: on the node, hal recognises the user by the account",
    )


class Rights:
    """Asks the table, before every handler; what is not in it is refused, as what the framework answers by itself."""

    def __init__(
        self,
        rights: Mapping[str, Right],
        *,
        for_narrowed: Container[str] = (),
        for_job_tokens: Container[str] = (),
    ) -> None:
        """
        Args:
            rights: by operation, `METHOD /path/{template}`.
            for_narrowed: operations in which a token that is narrowed to accounts or queues has its whole role.
            for_job_tokens: operations that a step's token by itself may ask for.
        """
        self._rights = rights
        self._for_narrowed = for_narrowed
        self._for_job_tokens = for_job_tokens

    async def enforce(self, request: AnyRequest, check_path: CheckPath | None = None) -> None:
        """Let the request pass.

        Args:
            check_path: whether what the path names is the caller's to know of; None: nothing belongs to anybody.
        Raises:
            DeniedError: the caller's role has no such right, the token only reads, or it speaks for one job and this is
                not about it.
            NotFoundError: the path names what is not the caller's to know of.
        """
        visit = visit_of(request)
        method, identity = request.method, visit.identity
        operation = visit.operation = f"{method} {request.scope['path_template']}"
        right = self._rights.get(operation, NOBODY)
        visit.reach = reach_of(identity, right, narrowed_too=operation in self._for_narrowed)
        if visit.reach is Reach.NONE:
            able = [role.value for role in roles_with(right)]
            if right.reach(identity.role) is not Reach.NONE:
                raise DeniedError(
                    f"token {identity.token} is narrowed to accounts or queues and may not {method} {request.url.path}",
                    hint="use a token that was made without --account and --queue",
                )
            raise DeniedError(
                f"{identity.user} is {identity.role} here and may not {method} {request.url.path}",
                hint=f"this needs the role {' or '.join(able)}; ask an admin" if able else "nobody may",
            )
        if identity.scope.read_only and method not in READING:
            raise DeniedError(
                f"token {identity.token} is read-only: {method} {request.url.path} is not for it",
                hint="use a token that was made without --read-only",
            )
        if identity.only_job and operation not in self._for_job_tokens:
            raise beyond_its_job(identity.only_job)
        if check_path is not None:
            await check_path(visit, request)
