"""The one place where rights are enforced: between finding the route and running its handler.

It goes by the route that Litestar has found, so there is no second reading of the path that could differ.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from litestar import Request

from hal.core.model import DeniedError
from hal.daemons.controller.access.identity import READING, Visit
from hal.daemons.controller.access.roles import NOBODY, Reach, Right, Role, roles_with
from hal.daemons.controller.api.requests.ownership import Owners, check_job
from hal.daemons.controller.api.requests.parameters import AnyRequest, job_id


def visit_of(request: AnyRequest) -> Visit:
    """Who asks."""
    visit: Visit = request.scope["state"]["visit"]
    return visit


class Rights:
    """Asks the table, before every handler; what is not in it is refused, as what the framework answers by itself."""

    def __init__(self, owners: Owners, rights: Mapping[str, Right], about_jobs: Container[str]) -> None:
        """
        Args:
            rights: by operation, `METHOD /path/{template}`.
            about_jobs: operations in which a token that is narrowed to some jobs has its whole role.
        """
        self._owners = owners
        self._rights = rights
        self._about_jobs = about_jobs

    async def enforce(self, request: Request) -> None:  # type: ignore[type-arg]
        """Let the request pass.

        Raises:
            DeniedError: the caller's role has no such right, or the token only reads.
            NotFoundError: the path names a job that is not the caller's to know of.
        """
        visit = visit_of(request)
        method, identity = request.method, visit.identity
        operation = f"{method} {request.scope['path_template']}"
        right = self._rights.get(operation, NOBODY)
        role = identity.role if not identity.narrowed or operation in self._about_jobs else Role.USER
        visit.reach = right.reach(role)
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
        job = request.path_params.get("job")
        if job is not None:
            await check_job(visit, self._owners, job_id(job), changing=method not in READING)
