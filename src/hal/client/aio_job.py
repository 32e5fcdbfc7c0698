"""A submitted job, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from hal.client import calls
from hal.client.backoff import FIRST_DELAY_S, LONGEST_DELAY_S, Backoff
from hal.client.calls import Call
from hal.client.follow import NODE_PATIENCE_S, NOT_BEGUN
from hal.client.http import BrokenStreamError
from hal.client.outcome import error_of
from hal.client.steps import waited
from hal.client.views import JobInfo, LogPart, Outcome, TaskInfo, WhyInfo
from hal.core.model import TaskState, UnreachableError

if TYPE_CHECKING:
    from hal.client.aio import AsyncClient


class AsyncJob:
    """One submitted job, for asyncio; as `Job`, with methods to await where that asks the controller."""

    def __init__(self, client: AsyncClient, job_id: str) -> None:
        self._client = client
        self._info: JobInfo | None = None
        self.id = job_id

    def __repr__(self) -> str:
        return f"AsyncJob({self.id!r})"

    def __str__(self) -> str:
        return self.id

    @property
    def info(self) -> JobInfo | None:
        """The job as it was when last read; None before that."""
        return self._info

    async def state(self) -> TaskState:
        """Its state now."""
        if self._info is not None and self._info.ended:
            return self._info.state
        return (await self.refresh()).state

    async def refresh(self) -> JobInfo:
        """Read it again."""
        self._info = await self._client.call(calls.job(self.id))
        return self._info

    async def wait(self, timeout: float | None = None, *, check: bool = False) -> JobInfo:
        """As `Job.wait`."""
        clock = asyncio.get_running_loop().time
        return await self._client.drive(waited(self.id, timeout, check=check, clock=clock, seen=self._seen))

    def _seen(self, info: JobInfo) -> None:
        self._info = info

    async def logs(self, stream: str = "stdout", *, task: int = 0, rank: int = 0, attempt: int | None = None) -> str:
        """As `Job.logs` without `follow`."""
        pieces: list[bytes] = []
        offset = 0
        while True:
            part = await self._client.call(
                calls.log(self.id, task=task, rank=rank, attempt=attempt, stream=stream, offset=offset)
            )
            if not part.data:
                return b"".join(pieces).decode(errors="replace")
            pieces.append(part.data)
            offset = part.offset + len(part.data)

    async def follow(self, stream: str = "stdout", *, task: int = 0, rank: int = 0) -> AsyncIterator[bytes]:
        """What it writes, in pieces as they are written, until the task has ended; over retries."""
        attempt = await self._next_attempt(task, 0, latest=True)
        while attempt is not None:
            async for piece in self._whole(stream, task, rank, attempt):
                yield piece
            attempt = await self._next_attempt(task, attempt)

    async def why(self) -> WhyInfo:
        """Why it has not started, and what would help."""
        return await self._client.call(calls.why(self.id))

    def tasks(self, state: str | Sequence[str] = "", *, limit: int | None = None) -> AsyncIterator[TaskInfo]:
        """Its tasks by number, page by page as they are consumed."""
        states = state if isinstance(state, str) else ",".join(state)
        return self._client.paged(
            lambda size, cursor: calls.tasks(self.id, state=states, limit=size, cursor=cursor), limit
        )

    async def task(self, number: int = 0) -> TaskInfo:
        """One task with all its attempts."""
        return await self._client.call(calls.task(self.id, number))

    async def cancel(self) -> None:
        """End it, whatever it does."""
        self._one(await self._client.cancel(self.id))

    async def hold(self) -> None:
        """Keep it from starting (tasks that run go on)."""
        self._one(await self._client.hold(self.id))

    async def release(self) -> None:
        """Let it start again."""
        self._one(await self._client.release(self.id))

    async def requeue(self) -> None:
        """Run it again, as a new attempt."""
        self._info = None
        self._one(await self._client.requeue(self.id))

    async def update(self, **fields: Any) -> JobInfo:
        """As `Job.update`."""
        self._info = await self._client.call(calls.update(self.id, fields))
        return self._info

    async def _next_attempt(self, task: int, previous: int, *, latest: bool = False) -> int | None:
        """The attempt after `previous` (or the latest) once it has begun; None when there will be none."""
        delay_s = FIRST_DELAY_S
        while True:
            info = await self.task(task)
            last = info.attempt or 0
            if last > previous + 1 or (last == previous + 1 and info.state not in NOT_BEGUN):
                return last if latest else previous + 1
            if info.ended:
                return None
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)

    async def _whole(self, stream: str, task: int, rank: int, attempt: int) -> AsyncIterator[bytes]:
        offset = 0
        delay_s = FIRST_DELAY_S

        def part(*, follow: bool) -> Call[LogPart]:
            return calls.log(
                self.id, task=task, attempt=attempt, rank=rank, stream=stream, offset=offset, follow=follow
            )

        patience = Backoff(NODE_PATIENCE_S)
        loop = asyncio.get_running_loop()
        while True:
            try:
                async for headers, piece in self._client.stream(part(follow=True).request):
                    if not piece:
                        offset = calls.number_in(headers, "hal-log-offset", offset)
                        continue
                    offset += len(piece)
                    delay_s = FIRST_DELAY_S
                    yield piece
                rest = await self._client.call(part(follow=False))
                patience.worked()
                if rest.data:
                    offset = rest.offset + len(rest.data)
                    yield rest.data
                elif rest.ended:
                    return
            except BrokenStreamError:
                pass
            except UnreachableError:
                if patience.failed(loop.time()) is None:
                    raise
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, LONGEST_DELAY_S)

    def _one(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if not outcome.ok:
                raise error_of(outcome)
