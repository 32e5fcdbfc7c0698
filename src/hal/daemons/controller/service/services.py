"""Looking services up by name: where those of their tasks serve that are ready.

What is answered is what was last committed; nothing is asked of the nodes.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from hal.core.model import NotFoundError, shown
from hal.daemons.controller.service.parts import Parts
from hal.planes.tasks import LiveJob, Pace

MAX_ENDPOINTS: Final = 1_000
"""Of one answer."""
ATTEMPTS_A_SLICE: Final = 256
"""Attempts that are looked at in one turn of the loop."""
LOCALHOST: Final = "localhost"


class EndpointView(Struct, frozen=True, kw_only=True, gc=False):
    """A task that is ready."""

    job: str
    task: int
    node: str
    host: str
    """Where its node is reached; `localhost` if neither its address nor its host's name is known."""
    ports: dict[str, int]
    """By the names that its job gives them."""
    since_ms: int
    """Since when it is ready."""


class ServiceView(Struct, frozen=True, kw_only=True):
    """The live jobs of one user with one name that are services."""

    name: str
    user: str
    jobs: tuple[str, ...]
    """By id; several while one replaces another."""
    tasks: int
    """Of all of them, those that have ended left out."""
    ready: int
    endpoints: list[EndpointView]
    """The first 1,000 that are ready, by job and task."""
    more: bool
    """There are more."""


class Services:
    """Look them up."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def find(self, name: str, user: str) -> ServiceView:
        """The service of that name and user.

        Raises:
            NotFoundError: no live job of theirs has that name and is a service.
        """
        plane, pace = self._parts.plane, Pace(ATTEMPTS_A_SLICE)
        jobs: list[str] = []
        found: list[EndpointView] = []
        tasks = ready = 0
        for job in plane.jobs_named(user, name):
            if pace.over():
                await self._parts.runtime.sleep(0)
            live = plane.job(job)
            if live is None or live.spec.service is None or live.name != name:
                continue
            jobs.append(str(job))
            tasks += live.counts.live
            for task in sorted(live.active):
                if pace.over():
                    await self._parts.runtime.sleep(0)
                one = self._endpoint(live, task)
                if one is not None:
                    ready += 1
                    if len(found) < MAX_ENDPOINTS:
                        found.append(one)
        if not jobs:
            raise NotFoundError(
                f"no live job of '{user}' named '{shown(name)}' is a service", hint=f"hal jobs --user {user} --all"
            )
        return ServiceView(
            name=name, user=user, jobs=tuple(jobs), tasks=tasks, ready=ready, endpoints=found, more=ready > len(found)
        )

    def _endpoint(self, job: LiveJob, task: int) -> EndpointView | None:
        """Where the task serves; None if it is not ready."""
        standing = self._parts.plane.readiness(job.id, task)
        attempt = job.active.get(task)
        if standing is None or not standing.ready or attempt is None or job.spec.service is None:
            return None
        node = attempt.nodes[0]
        row = self._parts.plane.nodes.get(node)
        return EndpointView(
            job=str(job.id),
            task=task,
            node=node,
            host=(row.about.facts.address if row is not None else "") or LOCALHOST,
            ports=dict(zip(job.spec.service.ports, standing.ports, strict=True)),
            since_ms=standing.since_ms,
        )
