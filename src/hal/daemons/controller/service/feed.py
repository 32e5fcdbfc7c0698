"""The feed of events: pages of it from the store, and watchers, who get events at their commit.

Every watcher has a bounded buffer; one that reads too slowly gets an error, is disconnected, and resumes by
sequence number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Container
from typing import NamedTuple

from hal.core.model import Event, OverloadedError
from hal.daemons.controller.cycle.committer import Committer
from hal.store import AppendEvents, Committed, Operation, committed_event

MAX_WATCHERS = 1_000
MAX_BUFFERED_EVENTS = 2_000
"""Events that may wait for one watcher."""


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
        """Queue an event, if it is about the job that is watched; `jobs` are all that it is about."""
        if self.lagged or (self._job is not None and self._job not in jobs):
            return
        if len(self._events) >= MAX_BUFFERED_EVENTS:
            self.lagged = True
        else:
            self._events.append(event)
        self._came.set()

    def close(self) -> None:
        """Send nothing more to this reader."""
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
        """Sequence number of the newest event that a power failure cannot take back: later ones are sent to nobody."""

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

    def __len__(self) -> int:
        """How many there are."""
        return len(self._all)

    def drop(self, watcher: Watcher) -> None:
        """Forget a watcher that has disconnected."""
        if watcher in self._all:
            self._all.remove(watcher)

    def close(self) -> None:
        """Close all readers: the controller stops."""
        for watcher in self._all:
            watcher.close()

    def committed(self, operations: list[Operation], committed: Committed) -> None:
        """Send events that are durable now."""
        self.flushed_seq = committed.last_seq
        if not self._all:
            return
        sequence = committed.first_seq
        for operation in operations:
            if isinstance(operation, AppendEvents):
                for new in operation.events:
                    event, about = committed_event(sequence, new), frozenset(new.jobs)
                    sequence += 1
                    for watcher in self._all:
                        watcher.offer(event, about)


class FeedPage(NamedTuple):
    """Some events, oldest first."""

    events: list[Event]
    lost: tuple[int, int] | None
    """First and last number of those before them that are no longer kept; None: nothing is lost, or it is not known,
    as only events of one job were read."""


class Feed:
    """What can be asked of the feed."""

    def __init__(self, committer: Committer, watchers: Watchers) -> None:
        self._committer = committer
        self._watchers = watchers

    async def page(self, after: int, limit: int, job: int | None) -> FeedPage:
        """Read events after a sequence number, oldest first; no further than a power failure leaves it as it is."""
        flushed = self._watchers.flushed_seq  # as it is before the store is read: it moves on meanwhile
        found = await self._committer.read(lambda store: store.events(after, limit=limit, job=job))
        events = [event for event in found if event.sequence <= flushed]
        # Numbers have no gaps, and events are removed oldest first: what a page does not begin with is lost.
        following = events[0].sequence if events else flushed + 1
        lost = (after + 1, following - 1) if job is None and following > after + 1 else None
        return FeedPage(events, lost)

    def last_sequence(self) -> int:
        """The sequence number of the newest event that may be shown."""
        return self._watchers.flushed_seq

    def watch(self, job: int | None) -> Watcher:
        """A bounded buffer of the events from now on; `unwatch` it.

        Raises:
            OverloadedError: there are too many watchers.
        """
        return self._watchers.open(job)

    def unwatch(self, watcher: Watcher) -> None:
        """End the watch."""
        self._watchers.drop(watcher)
