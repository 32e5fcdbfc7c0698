"""The slots of one shape of a session: the job whose tasks they are, and how many of these run at once.

A shape of which no slot must be there has a job only while one is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hal.client.sessions.demand import Wanted
from hal.core.model.errors import ConflictError, HALError

if TYPE_CHECKING:
    from hal.client.job import Job
    from hal.client.sync_client import Client


class SlotGroup:
    """One shape.

    Attributes:
        shape: its name; '' for that of the session itself.
        wanted: how many slots are.
        threads: of each slot, which run a task each.
        told: how many slots HAL was told to run.
        job: whose tasks they are; None: there is none now.
    """

    def __init__(
        self,
        client: Client,
        shape: str,
        wanted: Wanted,
        threads: int = 1,
        asked: Mapping[str, Any] | None = None,
        job: Job | None = None,
        told: int = 0,
        find: Callable[[], str] = lambda: "",
    ) -> None:
        """
        Args:
            asked: what its job is submitted with; None: another program submits it.
            find: looks up the id of the job that another program has submitted; '': there is none.
        """
        self._client = client
        self.shape = shape
        self.wanted = wanted
        self.threads = threads
        self.told = told
        self.job = job
        self._asked = asked
        self._find = find

    def begin(self, count: int) -> None:
        """Submit the job, or see that it could be submitted.

        Args:
            count: slots that are wanted at first.
        Raises: as `Client.submit`.
        """
        assert self._asked is not None
        if count:
            self.job = self._client.submit(**self._asked, max_running=count)
        else:
            self._client.check(**self._asked, max_running=1)
        self.told = count

    def want(self, count: int) -> None:
        """Let HAL run so many slots.

        Raises:
            ConflictError: a limit leaves no room for so many.
            HALError: the controller is away.
        """
        if self._asked is None:
            if self.job is not None and self.job.refresh().state.ended:
                self.job = None
            if self.job is None and (found := self._find()):
                self.job = self._client.job(found)
        if not count:
            if self.job is not None:
                self.job.cancel()
                self.job = None
        elif self.job is not None:
            self.job.update(max_running=count)
        elif self._asked is not None:
            self.job = self._client.submit(**self._asked, max_running=count)
        self.told = count

    def why_none(self) -> str:
        """Why there will be no slots any more; '': there may be.

        Raises:
            HALError: the controller is away.
        """
        if self.job is None or not self.told:
            return ""
        info = self.job.refresh()
        return (
            f"the job of its slots, {self.job.id}, has ended: {info.reason or info.state}" if info.state.ended else ""
        )

    def cancel(self, *, running: bool) -> None:
        """End the job.

        Args:
            running: also if slots run.
        """
        if self.job is None:
            return
        try:
            if running or not self.job.refresh().counts.get("running"):
                self.job.cancel()
        except ConflictError:
            pass  # it has ended

    def wait(self, timeout_s: float) -> None:
        """Wait until the job has ended.

        Raises:
            HALError: it has not, in time.
        """
        if self.job is not None:
            self.job.wait(timeout_s)


def cancel_all(jobs: list[Job]) -> None:
    """Cancel these, the last one first, as far as that is possible."""
    for job in reversed(jobs):
        try:
            job.cancel()
        except HALError:
            continue
