"""Watchers of the feed: bounded, told when they lag, and only about the job they asked for."""

from __future__ import annotations

import asyncio

from hal.core.model import EventKind
from hal.daemons.controller.service.feed import MAX_BUFFERED_EVENTS, Watcher, Watchers
from hal.store import AppendEvents, Committed, NewEvent


def commit(watchers: Watchers, first: int, *jobs: list[int]) -> None:
    """Tell of one event for each list of jobs, from sequence number `first` on."""
    events = [NewEvent(at_ms=1, kind=EventKind.JOBS_ENDED, jobs=about) for about in jobs]
    watchers.committed([AppendEvents(events)], Committed("c", first, first + len(events) - 1))


async def taken(watcher: Watcher) -> list[int]:
    """Sequence numbers of what has come."""
    return [event.sequence for event in await watcher.take(0.01)]


def test_a_watcher_of_a_job_hears_of_it_however_many_others_the_event_names() -> None:
    """Job 5,000 of an event about 10,000 jobs; not the event about job 1."""

    async def body() -> None:
        watchers = Watchers()
        watcher = watchers.open(5_000)
        commit(watchers, 7, list(range(10_000)), [1], [5_000])
        assert await taken(watcher) == [7, 9]

    asyncio.run(body())


def test_a_slow_watcher_is_told_that_it_lags_and_gets_nothing_after_the_gap() -> None:
    """One event more than fits: what fitted comes, in order, and `lagged` says that more is missing."""

    async def body() -> None:
        watchers = Watchers()
        watcher = watchers.open(None)
        for number in range(MAX_BUFFERED_EVENTS + 1):
            commit(watchers, number + 1, [1])
        commit(watchers, MAX_BUFFERED_EVENTS + 2, [1])
        assert await taken(watcher) == list(range(1, MAX_BUFFERED_EVENTS + 1))
        assert watcher.lagged

    asyncio.run(body())
