"""One request that has been let in, read as far as its row of the table of endpoints says."""

from __future__ import annotations

from typing import Any, Protocol

from hal.daemons.controller.access.audit import AuditLog
from hal.daemons.controller.access.identity import Visit
from hal.daemons.controller.api.requests.parameters import AnyRequest, Params, job_of, task_of
from hal.planes.tasks import Submitter


class ClientConnection(Protocol):
    """The connection of whoever is answered, as far as a long answer goes."""

    def hold(self, left_bytes: int) -> None:
        """Count bytes of the answer that were made and not sent yet."""

    def drop(self) -> None:
        """Close it at once: what was begun ends without its end, and nobody takes it for whole."""


class Call:
    """What a handler is given beside the service that it asks."""

    __slots__ = ("body", "params", "raw", "request", "visit")

    def __init__(
        self,
        request: AnyRequest,
        visit: Visit,
        params: Params,
        raw: bytes = b"",
        body: Any = None,
    ) -> None:
        self.request = request
        self.visit = visit
        """Who asks, and how far their right reaches."""
        self.params = params
        """Its query parameters: those of the row, no others."""
        self.raw = raw
        """The body as it came; empty where the row has none."""
        self.body = body
        """As the row reads it; None where the handler does."""

    @property
    def connection(self) -> ClientConnection | None:
        """None where it is not one of HAL's own server."""
        connection: ClientConnection | None = self.request.scope["state"].get("connection")
        return connection

    @property
    def audit(self) -> AuditLog:
        """The log in which it is noted."""
        audit: AuditLog = self.request.scope["state"]["audit"]
        return audit

    @property
    def submitter(self) -> Submitter:
        """On whose behalf something is changed."""
        visit = self.visit
        return Submitter(visit.identity.user, visit.trace_id, lengthens=not visit.own_only)

    @property
    def job(self) -> int:
        """The job that the path names.

        Raises:
            SpecError: that is no job's id.
        """
        return job_of(self.request)

    @property
    def task(self) -> int:
        """The task that the path names.

        Raises:
            SpecError: that is no task's number.
        """
        return task_of(self.request)

    def path(self, name: str) -> str:
        """A part of the path, by its name in the row."""
        part: str = self.request.path_params[name]
        return part

    def header(self, name: str) -> str | None:
        """A header of the request."""
        return self.request.headers.get(name)
