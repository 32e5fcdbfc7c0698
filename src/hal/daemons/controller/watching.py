"""Who waits for a job's end, and who watches the feed: both are told at the commit, nobody polls.

Every watcher has a bounded buffer; one that reads too slowly is told so and disconnected, and resumes by sequence
number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Container

from hal.core.model import Event, OverloadedError
from hal.store import MAX_EVENT_JOBS, AppendEvents, Committed, JobRow, Operation

MAX_WAITERS = 20_000
"""Requests that wait for a job's end."""
MAX_WATCHERS = 1_000
MAX_BUFFERED_EVENTS = 2_000
"""Events that may wait for one watcher."""


class Waiters:
    """Futures by job, told in the order in which they came."""

    def __init__(self) -> None:
        self._by_job: dict[int, dict[asyncio.Future[JobRow], None]] = {}
        self._count = 0

    async def wait(self, job: int, timeout_s: float) -> JobRow | None:
        """The row with which the job ends; None when it has not ended in time.

        Raises:
            OverloadedError: too many wait.
        """
        if self._count >= MAX_WAITERS:
            raise OverloadedError(f"{MAX_WAITERS} requests wait for jobs already", hint="try again in a second")
        ended: asyncio.Future[JobRow] = asyncio.get_running_loop().create_future()
        self._by_job.setdefault(job, {})[ended] = None
        self._count += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await ended
        except TimeoutError:
            return None
        finally:
            self._count -= 1
            waiting = self._by_job.get(job)
            if waiting is not None:
                waiting.pop(ended, None)
                if not waiting:
                    del self._by_job[job]

    def wanted(self, job: int) -> bool:
        """Whether anybody waits for it."""
        return job in self._by_job

    def ended(self, row: JobRow) -> None:
        """It has."""
        for future in list(self._by_job.get(row.id, ())):
            if not future.done():
                future.set_result(row)


class Watcher:
    """One reader of the feed."""

    def __init__(self, job: int | None) -> None:
        self._job = job
        self._events: deque[Event] = deque()
        self._came = asyncio.Event()
        self.lagged = False
        """Its buffer was full: events are missing after the last one it got."""
        self.closed = False

    def offer(self, event: Event, jobs: Container[int]) -> None:
        """One more event, if it is about the job that is watched; `jobs` are all that it is about."""
        if self.lagged or (self._job is not None and self._job not in jobs):
            return
        if len(self._events) >= MAX_BUFFERED_EVENTS:
            self.lagged = True
        else:
            self._events.append(event)
        self._came.set()

    def close(self) -> None:
        """Nothing more will come."""
        self.closed = True
        self._came.set()

    async def take(self, timeout_s: float) -> list[Event]:
        """What has come; waits up to `timeout_s` for the first."""
        if not self._events and not self.lagged and not self.closed:
            self._came.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._came.wait()
            except TimeoutError:
                return []
        events = list(self._events)
        self._events.clear()
        return events


class Watchers:
    """All readers of the feed."""

    def __init__(self) -> None:
        self._all: list[Watcher] = []
        self.flushed_seq = 0
        """Sequence number of the newest event that a power failure cannot take back: later ones are told to nobody."""

    def open(self, job: int | None) -> Watcher:
        """One more.

        Raises:
            OverloadedError: there are too many.
        """
        if len(self._all) >= MAX_WATCHERS:
            raise OverloadedError(f"{MAX_WATCHERS} readers watch the events already", hint="try again later")
        watcher = Watcher(job)
        self._all.append(watcher)
        return watcher

    def drop(self, watcher: Watcher) -> None:
        """It has gone."""
        if watcher in self._all:
            self._all.remove(watcher)

    def close(self) -> None:
        """The controller stops."""
        for watcher in self._all:
            watcher.close()

    def committed(self, operations: list[Operation], committed: Committed) -> None:
        """Events that are durable now."""
        self.flushed_seq = committed.last_seq
        if not self._all:
            return
        sequence = committed.first_seq
        for operation in operations:
            if isinstance(operation, AppendEvents):
                for new in operation.events:
                    jobs = tuple(new.jobs)
                    about = frozenset(jobs)
                    event = Event(
                        sequence=sequence,
                        at_ms=new.at_ms,
                        kind=new.kind,
                        cause=new.cause,
                        trace_id=new.trace_id,
                        jobs=jobs if len(jobs) <= MAX_EVENT_JOBS else jobs[:MAX_EVENT_JOBS],
                        payload=new.payload,
                    )
                    sequence += 1
                    for watcher in self._all:
                        watcher.offer(event, about)
