"""One request to the controller: what its path names, and on whose behalf something is changed."""

from __future__ import annotations

from hal.daemons.controller.api.requests.parameters import Params, job_of, task_of
from hal.planes.tasks import Submitter
from hal.rest import call

__all__ = ["Call"]


class Call(call.Call):
    """What a handler is given beside the service that it asks."""

    __slots__ = ()

    params_type = Params
    params: Params

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
