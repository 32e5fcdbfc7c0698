"""A submitted job, for asyncio. `job.py` is generated from this file by tools/sync_client.py: edit this one only."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from hal.client.flows.async_log_follower import AsyncLogFollower
from hal.client.flows.steps import waited
from hal.client.job_handle import AsyncJobHandle
from hal.client.rest import calls
from hal.client.rest.outcome import error_of
from hal.client.rest.views import JobInfo, LogPart, Outcome, TaskInfo, WhyInfo

if TYPE_CHECKING:
    from hal.client.async_client import AsyncClient


class AsyncJob(AsyncJobHandle):
    """One submitted job."""

    client: AsyncClient

    def __init__(self, client: AsyncClient, job_id: str, info: JobInfo | None = None) -> None:
        super().__init__(job_id, info)
        self.client = client

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled job holds its client's address, token included, and what was last read of it."""
        return AsyncJob, (self.client, self.id, self._info)

    async def refresh(self) -> JobInfo:
        """Read it again.

        Raises:
            NotFoundError: there is no such job.
        """
        self._info = await self.client.call(calls.job(self.id))
        return self._info

    async def wait(self, timeout: float | None = None, *, check: bool = False) -> JobInfo:
        """Wait until it has ended.

        Args:
            timeout: seconds; None: no limit.
            check: raise if it did not succeed.
        Raises:
            TimedOutError: it has not ended by then; it continues.
            JobFailedError: with `check`, it failed, was cancelled or reached its walltime.
        """
        return await self.client.drive(waited(self.id, timeout, check=check, clock=time.monotonic, seen=self._seen))

    def log_bytes(
        self,
        stream: str = "stdout",
        *,
        task: int = 0,
        rank: int = 0,
        attempt: int | None = None,
        follow: bool = False,
        tail_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Read its output as raw pieces; as `logs`.

        Args:
            follow: give pieces as they are written, until the task has ended, over retries.
            tail_bytes: begin so many bytes before the present end.
        """
        follower = self.follower(stream, task=task, rank=rank, attempt=attempt)
        return follower.pieces(follow=follow, tail_bytes=tail_bytes)

    def follow(self, stream: str = "stdout", *, task: int = 0, rank: int = 0) -> AsyncIterator[bytes]:
        """Read its output as it is written, until the task has ended, over retries."""
        return self.log_bytes(stream, task=task, rank=rank, follow=True)

    def follower(
        self, stream: str = "stdout", *, task: int = 0, rank: int = 0, attempt: int | None = None
    ) -> AsyncLogFollower:
        """Make a reader of one of its outputs that counts how much of it was not kept."""
        return AsyncLogFollower(self.client.connections, self.id, stream=stream, task=task, rank=rank, attempt=attempt)

    async def log_part(self, stream: str = "stdout", *, task: int = 0, rank: int = 0, offset: int = 0) -> LogPart:
        """Read the output file of its latest attempt from `offset` on, and its size."""
        return await self.client.call(calls.log(self.id, task=task, rank=rank, stream=stream, offset=offset))

    async def why(self) -> WhyInfo:
        """Ask why it has not started, and what would help."""
        return await self.client.call(calls.why(self.id))

    def tasks(self, state: str | Sequence[str] = "", *, limit: int | None = None) -> AsyncIterator[TaskInfo]:
        """List its tasks by number, page by page as they are consumed."""
        states = state if isinstance(state, str) else ",".join(state)
        return self.client.paged(
            lambda size, cursor: calls.tasks(self.id, state=states, limit=size, cursor=cursor), limit
        )

    async def task(self, number: int = 0) -> TaskInfo:
        """Read one task with all its attempts.

        Raises:
            NotFoundError: the job has no such task.
        """
        return await self.client.call(calls.task(self.id, number))

    async def cancel(self) -> None:
        """Cancel it, whatever its state.

        Raises:
            ConflictError: it has ended already.
        """
        _check(await self.client.cancel(self.id))

    async def hold(self) -> None:
        """Hold it, so that it does not start; running tasks continue."""
        _check(await self.client.hold(self.id))

    async def release(self) -> None:
        """Release it."""
        _check(await self.client.release(self.id))

    async def requeue(self) -> None:
        """Run it again, as a new attempt."""
        self._info = None
        _check(await self.client.requeue(self.id))

    async def update(self, **fields: Any) -> JobInfo:
        """Change a job that has not ended: priority, walltime, name, queue, hold …

        Raises:
            SpecError: no such field, or not such a value.
            ConflictError: the job is past the point where this can be changed.
        """
        self._info = await self.client.call(calls.update(self.id, fields))
        return self._info


def _check(outcomes: Sequence[Outcome]) -> None:
    """Raise the error that an outcome names."""
    for outcome in outcomes:
        if not outcome.ok:
            raise error_of(outcome)
