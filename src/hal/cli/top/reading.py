"""What `hal top` knows of a HAL, and the bounded requests with which it keeps that fresh.

A round asks for the health and for one page of each part of the list that is shown, never for a whole cluster: a list
of more than a page is read page by page, over as many rounds. So the load on the controller is the same for ten jobs
and for a hundred thousand.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from hal.cli.top.listings import JOBS, NODES, QUEUES, SESSIONS, Filter, Listing
from hal.client.async_client import AsyncClient
from hal.client.rest import calls
from hal.client.rest.calls import Page
from hal.client.rest.views import HealthInfo, JobInfo, NodeInfo, QueueInfo
from hal.client.sessions.job_labels import SESSION_LABEL
from hal.client.sessions.listing import sessions_of
from hal.core.model import HALError

JOBS_A_PAGE: Final = 200
NODES_A_PAGE: Final = 250
MAX_NODES: Final = 20_000
"""Nodes that are kept."""
MAX_SESSION_JOBS: Final = 400
"""Jobs of sessions that are looked at: two for each."""
NODES_EVERY: Final = 5
"""While nodes are not shown, a page of them is read only each so many rounds: for the sums in the header."""
NOT_ENDED: Final = "pending,held"
ACTIVE: Final = "active"
ENDED: Final = "ended"


class Sweep:
    """A list that is read page by page, over and over: the rows of the pass before stay until they are read again."""

    def __init__(self, page: Callable[[str], Awaitable[Page[Any]]], key: Callable[[Any], str], most: int) -> None:
        """
        Args:
            page: reads the page behind a cursor; '' is the first one.
            key: what tells a row from the others.
            most: rows after which a pass begins again from the first page.
        """
        self._page, self._key, self._most = page, key, most
        self._rows: dict[str, Any] = {}
        self._fresh: dict[str, Any] = {}
        self._cursor = ""
        self.complete = False
        """A whole pass has been made."""
        self.cut = False
        """There are more rows than are kept."""

    @property
    def rows(self) -> list[Any]:
        """Those of this pass, and those of the pass before that this one has not come to yet."""
        return list((self._fresh | {k: row for k, row in self._rows.items() if k not in self._fresh}).values())

    async def step(self) -> None:
        """Read the next page."""
        page = await self._page(self._cursor)
        self._fresh |= {self._key(row): row for row in page.items}
        self._cursor = page.cursor
        if not page.cursor or len(self._fresh) >= self._most:
            self.cut = bool(page.cursor)
            self._rows, self._fresh, self._cursor = self._fresh, {}, ""
            self.complete = True


class Reading:
    """What is known; `round` refreshes it."""

    def __init__(self, client: AsyncClient, most_jobs: int) -> None:
        """
        Args:
            most_jobs: jobs that are kept of each of: active, waiting, ended.
        """
        self.client = client
        self._most_jobs = most_jobs
        self.health = HealthInfo(status="")
        self.queues: Sequence[QueueInfo] = ()
        self.sessions: Sequence[Any] = ()
        self.asked: dict[str, str] = {}
        self.ended = False
        """Ended jobs are listed, too."""
        self.offset_ms = 0
        """The controller's time less that of this machine."""
        self._rounds = 0
        self._jobs: list[Sweep] = []
        self._nodes = Sweep(
            lambda cursor: client.call(calls.nodes_page(limit=NODES_A_PAGE, cursor=cursor)),
            lambda node: str(node.name),
            MAX_NODES,
        )
        self.ask_for(Filter({}, ()), ended=False)

    def ask_for(self, wanted: Filter, *, ended: bool) -> None:
        """List other jobs from now on: those that a filter names, ended ones too or not."""
        if self._jobs and wanted.asked == self.asked and ended == self.ended:
            return
        self.asked, self.ended = dict(wanted.asked), ended
        states = [self.asked["state"]] if "state" in self.asked else [ACTIVE, NOT_ENDED, *[ENDED] * ended]
        self._jobs = [self._sweep(self.asked | {"state": state}) for state in states]

    def _sweep(self, filters: dict[str, str]) -> Sweep:
        known = filters | {"reasons": "1", "placed": "1"}

        async def page(cursor: str) -> Page[JobInfo]:
            return await self.client.call(calls.jobs(known, limit=JOBS_A_PAGE, cursor=cursor))

        return Sweep(page, lambda job: str(job.id), self._most_jobs)

    async def round(self, shown: Listing) -> None:
        """Ask for what the list that is shown needs.

        Raises:
            HALError: something could not be read; what is known stays.
        """
        jobs = self._jobs
        self.health = await self.client.call(calls.health())
        self.offset_ms = self.health.now_ms - round(time.time() * 1000) if self.health.now_ms else 0
        if shown is JOBS:
            for sweep in jobs:
                await sweep.step()
        elif shown is QUEUES:
            self.queues = await self.client.call(calls.queues())
        elif shown is SESSIONS:
            known = {"label": SESSION_LABEL, "state": f"{ACTIVE},{NOT_ENDED}"}
            page = await self.client.call(calls.jobs(known, limit=MAX_SESSION_JOBS))
            self.sessions = sessions_of(page.items)
        if shown is NODES or not self._nodes.complete or self._rounds % NODES_EVERY == 0:
            await self._nodes.step()
        self._rounds += 1

    async def whole(self, shown: Listing) -> None:
        """Ask until a whole pass over the list that is shown, and over the nodes, has been made.

        Raises:
            HALError: as `round`.
        """
        while True:
            await self.round(shown)
            if self._nodes.complete and (shown is not JOBS or all(sweep.complete for sweep in self._jobs)):
                return

    @property
    def now_ms(self) -> int:
        """The controller's time now."""
        return round(time.time() * 1000) + self.offset_ms

    @property
    def nodes(self) -> list[NodeInfo]:
        """Those that have been read."""
        return self._nodes.rows

    @property
    def cut(self) -> bool:
        """Whether more jobs match than are listed."""
        return any(sweep.cut for sweep in self._jobs)

    def rows(self, shown: Listing) -> Sequence[Any]:
        """All rows of a list that are known."""
        if shown is JOBS:
            return list({job.id: job for sweep in self._jobs for job in sweep.rows}.values())
        return self.nodes if shown is NODES else self.queues if shown is QUEUES else self.sessions


class Contact:
    """Whether the controller answers, and how long to wait before it is asked again."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._failed = 0
        self.error = ""
        """Why it does not answer; empty: it does."""
        self.since_s = 0.0
        """Since when it does not, on the clock of the caller."""

    def answered(self, took_s: float) -> float:
        """Note an answer; returns how long to wait. A controller that answers slowly is asked less often."""
        self.error, self._failed = "", 0
        return max(self._every_s - took_s, REST_PART * took_s)

    def failed(self, error: HALError, now_s: float) -> float:
        """Note a failure; returns how long to wait."""
        if not self.error:
            self.since_s = now_s
        self.error = error.message
        self._failed += 1
        return min(MAX_RETRY_S, max(self._every_s, FIRST_RETRY_S * 2.0 ** min(self._failed - 1, 8)))


REST_PART: Final = 3.0
"""A round takes at most one part of four of the controller's time: so many times as long as it took is waited."""
FIRST_RETRY_S: Final = 0.5
MAX_RETRY_S: Final = 5.0
