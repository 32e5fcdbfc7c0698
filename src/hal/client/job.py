"""A submitted job, for synchronous code.

Generated from async_job.py by tools/sync_client.py: edit that file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hal.client.flows.log_follower import LogFollower
from hal.client.flows.steps import waited
from hal.client.job_handle import SyncJobHandle
from hal.client.rest import calls
from hal.client.rest.outcome import error_of
from hal.client.rest.views import JobInfo, LogPart, Outcome, TaskInfo, WhyInfo

if TYPE_CHECKING:
    from hal.client.sync_client import Client


class Job(SyncJobHandle):
    """One submitted job."""

    client: Client

    def __init__(self, client: Client, job_id: str, info: JobInfo | None = None) -> None:
        super().__init__(job_id, info)
        self.client = client

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled job holds its client's address, token included, and what was last read of it."""
        return Job, (self.client, self.id, self._info)

    def refresh(self) -> JobInfo:
        """Read it again.

        Raises:
            NotFoundError: there is no such job.
        """
        self._info = self.client.call(calls.job(self.id))
        return self._info

    def wait(self, timeout: float | None = None, *, check: bool = False) -> JobInfo:
        """Wait until it has ended.

        Args:
            timeout: seconds; None: no limit.
            check: raise if it did not succeed.
        Raises:
            TimedOutError: it has not ended by then; it continues.
            JobFailedError: with `check`, it failed, was cancelled or reached its walltime.
        """
        return self.client.drive(waited(self.id, timeout, check=check, clock=time.monotonic, seen=self._seen))

    def log_bytes(
        self,
        stream: str = "stdout",
        *,
        task: int = 0,
        rank: int = 0,
        attempt: int | None = None,
        follow: bool = False,
        tail_bytes: int | None = None,
    ) -> Iterator[bytes]:
        """Read its output as raw pieces; as `logs`.

        Args:
            follow: give pieces as they are written, until the task has ended, over retries.
            tail_bytes: begin so many bytes before the present end.
        """
        follower = self.follower(stream, task=task, rank=rank, attempt=attempt)
        return follower.pieces(follow=follow, tail_bytes=tail_bytes)

    def follow(self, stream: str = "stdout", *, task: int = 0, rank: int = 0) -> Iterator[bytes]:
        """Read its output as it is written, until the task has ended, over retries."""
        return self.log_bytes(stream, task=task, rank=rank, follow=True)

    def follower(
        self, stream: str = "stdout", *, task: int = 0, rank: int = 0, attempt: int | None = None
    ) -> LogFollower:
        """Make a reader of one of its outputs that counts how much of it was not kept."""
        return LogFollower(self.client.connections, self.id, stream=stream, task=task, rank=rank, attempt=attempt)

    def log_part(self, stream: str = "stdout", *, task: int = 0, rank: int = 0, offset: int = 0) -> LogPart:
        """Read the output file of its latest attempt from `offset` on, and its size."""
        return self.client.call(calls.log(self.id, task=task, rank=rank, stream=stream, offset=offset))

    def why(self) -> WhyInfo:
        """Ask why it has not started, and what would help."""
        return self.client.call(calls.why(self.id))

    def tasks(self, state: str | Sequence[str] = "", *, limit: int | None = None) -> Iterator[TaskInfo]:
        """List its tasks by number, page by page as they are consumed."""
        states = state if isinstance(state, str) else ",".join(state)
        return self.client.paged(
            lambda size, cursor: calls.tasks(self.id, state=states, limit=size, cursor=cursor), limit
        )

    def task(self, number: int = 0) -> TaskInfo:
        """Read one task with all its attempts.

        Raises:
            NotFoundError: the job has no such task.
        """
        return self.client.call(calls.task(self.id, number))

    def cancel(self) -> None:
        """Cancel it, whatever its state.

        Raises:
            ConflictError: it has ended already.
        """
        _check(self.client.cancel(self.id))

    def hold(self) -> None:
        """Hold it, so that it does not start; running tasks continue."""
        _check(self.client.hold(self.id))

    def release(self) -> None:
        """Release it."""
        _check(self.client.release(self.id))

    def requeue(self) -> None:
        """Run it again, as a new attempt."""
        self._info = None
        _check(self.client.requeue(self.id))

    def update(self, **fields: Any) -> JobInfo:
        """Change a job that has not ended: priority, walltime, name, queue, hold …

        Raises:
            SpecError: no such field, or not such a value.
            ConflictError: the job is past the point where this can be changed.
        """
        self._info = self.client.call(calls.update(self.id, fields))
        return self._info


def _check(outcomes: Sequence[Outcome]) -> None:
    """Raise the error that an outcome names."""
    for outcome in outcomes:
        if not outcome.ok:
            raise error_of(outcome)
