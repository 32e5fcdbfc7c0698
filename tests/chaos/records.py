"""What HAL says about a run once it is over: its rows, and its event feed, read from the store itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hal.client.addresses.address import Address
from hal.client.rest.views import EventInfo
from hal.client.sync_client import Client
from hal.core.model import Event, HALError
from hal.store import Store
from hal.store.operations import AttemptRow, JobRow
from hal.store.views import TaskRow
from tests.e2e.conftest import DEADLINE_S, LiveHal

PAGE: Final = 1_000


class Records(NamedTuple):
    """Everything, by job id where there are several."""

    jobs: dict[int, JobRow]
    tasks: dict[int, list[TaskRow]]
    attempts: dict[tuple[int, int], list[AttemptRow]]
    """By job and task, in order."""
    events: list[Event]


def read_records(database: Path) -> Records:
    """Of a HAL that is down."""
    store = Store.open(database, create=False)
    try:
        jobs = {job.id: job for job in store.jobs(limit=PAGE)}
        attempts: dict[tuple[int, int], list[AttemptRow]] = {}
        tasks = {}
        for job in jobs:
            tasks[job] = store.tasks(job, limit=PAGE)
            for row in _attempts(store, job):
                attempts.setdefault((job, row.task), []).append(row)
        return Records(jobs, tasks, attempts, list(_events(store)))
    finally:
        store.close()


def _attempts(store: Store, job: int) -> Iterator[AttemptRow]:
    after = None
    while page := store.attempts(job, after=after, limit=PAGE):
        yield from page
        after = (page[-1].task, page[-1].attempt)


def _events(store: Store) -> Iterator[Event]:
    after = 0
    while page := store.events(after, limit=PAGE):
        yield from page
        after = page[-1].sequence


def patient_client(live: LiveHal) -> Client:
    """A client that has been answered once: it waits for a controller that is started again."""
    client = Client(Address(home=live.home), reconnect_s=DEADLINE_S)
    client.version()
    return client


class Follower:
    """Somebody who watches the event feed from its first entry on, through all restarts, until one job has ended."""

    def __init__(self, live: LiveHal) -> None:
        self.seen: list[EventInfo] = []
        self._client = patient_client(live)
        self._until: str | None = None
        self._error: HALError | None = None
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)
        self._thread.start()

    def stop_at(self, job: str) -> None:
        """Follow until that job has ended; it must not have done so yet."""
        self._until = job

    def finished(self) -> list[EventInfo]:
        """All that was seen, once that end was.

        Raises:
            AssertionError: it was not seen within the deadline.
        """
        self._thread.join(DEADLINE_S)
        if self._error is not None:
            raise self._error
        assert not self._thread.is_alive(), f"who follows the feed has not seen job {self._until} end: {self.seen[-3:]}"
        return self.seen

    def close(self) -> None:
        """Nobody needs it any more."""
        self._client.close()

    def _follow(self) -> None:
        try:
            for event in self._client.events(after=0, follow=True):
                self.seen.append(event)
                if event.kind == "jobs-ended" and self._until in {str(job) for job in event.jobs}:
                    return
        except HALError as error:
            self._error = error
