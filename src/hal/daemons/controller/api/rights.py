"""The one place where rights are enforced: between finding the route and running its handler.

It goes by the route that Litestar has found, so there is no second reading of the path that could differ.
"""

from __future__ import annotations

from litestar import Request

from hal.core.model import DeniedError
from hal.daemons.controller.access.identity import READING, Visit
from hal.daemons.controller.access.roles import JOBS, Reach, Role, right_of, roles_with
from hal.daemons.controller.api.own import Jobs, check_job
from hal.daemons.controller.api.reading_requests import AnyRequest, job_id


def visit_of(request: AnyRequest) -> Visit:
    """Who asks."""
    visit: Visit = request.scope["state"]["visit"]
    return visit


def _about_jobs(path: str) -> bool:
    return path.startswith(JOBS)


class Rights:
    """Asks the table, before every handler."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def enforce(self, request: Request) -> None:  # type: ignore[type-arg]
        """Let it pass.

        Raises:
            DeniedError: the caller's role has no such right, or the token only reads.
            NotFoundError: the path names a job that is not the caller's to know of.
        """
        visit = visit_of(request)
        method, identity = request.method, visit.identity
        right = right_of(method, request.scope["path_template"])
        role = identity.role if not identity.narrowed or _about_jobs(request.scope["path_template"]) else Role.USER
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
                hint=f"it takes the role {' or '.join(able)}; ask an admin" if able else "nobody may",
            )
        if identity.scope.read_only and method not in READING:
            raise DeniedError(
                f"token {identity.token} only reads: {method} {request.url.path} is not for it",
                hint="use a token that was made without --read-only",
            )
        job = request.path_params.get("job")
        if job is not None:
            await check_job(visit, self._jobs, job_id(job), changing=method not in READING)
