"""What a follower answers itself: jobs and tasks from the store, its own health, version, authority and controllers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from hal.daemons.controller.api.endpoints.endpoint import Endpoint
from hal.daemons.controller.api.endpoints.jobs import JobsPage, TasksPage
from hal.daemons.controller.api.endpoints.metrics import get_metrics
from hal.daemons.controller.api.endpoints.status import get_version
from hal.daemons.controller.api.errors import WAIT, NoLeaderError
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.ownership import narrowed
from hal.daemons.controller.api.table import ENDPOINTS
from hal.daemons.controller.following.follower import Follower
from hal.daemons.controller.metrics.book import MetricsBook
from hal.daemons.controller.metrics.slow_facts import SlowFacts
from hal.daemons.controller.service.controllers import list_controllers
from hal.daemons.controller.service.jobs.jobs import MAX_ATTEMPTS_SHOWN
from hal.daemons.controller.service.jobs.owners import Owned, owned_of
from hal.daemons.controller.service.jobs.refusals import no_job, no_task
from hal.daemons.controller.service.jobs.views import TaskView, job_view, task_view
from hal.daemons.controller.service.status import VERSION, Health, read_authority
from hal.rest.answers import page_cursor
from hal.runtime.interface import Lane, Runtime
from hal.store import JobRow, Store

FOLLOWING: Final = "following"
"""Status in `/v1/health`."""

T = TypeVar("T")


class FollowerApi:
    """What can be asked of a follower."""

    def __init__(
        self, follower: Follower, runtime: Runtime, rest: str, metrics: MetricsBook, slow_facts: SlowFacts
    ) -> None:
        """
        Args:
            rest: where people reach this controller from elsewhere.
        """
        self.runtime = runtime
        self.metrics = metrics
        self.slow_facts = slow_facts
        self._follower = follower
        self._rest = rest

    async def read(self, call: Callable[[Store], T]) -> T:
        """On the readers' thread.

        Raises:
            NoLeaderError: the database has not answered yet.
        """
        store = self._follower.store
        if store is None:
            raise NoLeaderError("the database has not answered yet", hint=WAIT)
        return await self.runtime.run_blocking(partial(call, store), Lane.READER)

    async def owners(self, jobs: Iterable[int]) -> dict[int, Owned]:
        """Whose they are; those that do not exist are left out."""
        wanted = list(dict.fromkeys(jobs))
        rows = await self.read(lambda store: [store.job(job) for job in wanted])
        return {row.id: owned_of(row) for row in rows if row is not None}

    def health(self) -> Health:
        """Return the health of this follower."""
        follower = self._follower
        leader = follower.leader
        return Health(
            status=FOLLOWING,
            version=VERSION,
            epoch=leader.epoch if leader else 0,
            pid=self.runtime.pid,
            now_ms=self.runtime.now_ms(),
            jobs={},
            nodes={},
            lost_after_ms=0,  # the leader's matter
            warnings=[] if leader else ["the database does not answer: nobody knows who leads"],
            rest=self._rest,
            store=follower.store.location if follower.store else "",
            leader=f"{leader.holder} ({leader.rest})" if leader else "",
        )


async def _get_health(api: FollowerApi, call: Call) -> object:
    return api.health()


async def _get_authority(api: FollowerApi, call: Call) -> object:
    return read_authority(api.runtime)


async def _list_controllers(api: FollowerApi, call: Call) -> object:
    return await api.read(lambda store: list_controllers(store, None))


async def _list_jobs(api: FollowerApi, call: Call) -> object:
    after, limit = call.params.cursor(), call.params.limit()
    wanted = narrowed(call.visit, call.params.job_filter())
    rows = await api.read(lambda store: store.jobs(wanted, after=after, limit=limit))
    return JobsPage(jobs=[job_view(row) for row in rows], cursor=page_cursor([row.id for row in rows], limit))


async def _list_tasks(api: FollowerApi, call: Call) -> object:
    job, states, after, limit = call.job, call.params.states(), call.params.cursor(), call.params.limit()
    await api.read(lambda store: _row(store, job))
    rows = await api.read(lambda store: store.tasks(job, states, after=after, limit=limit))
    return TasksPage(tasks=[task_view(row) for row in rows], cursor=page_cursor([row.task for row in rows], limit))


async def _get_task(api: FollowerApi, call: Call) -> object:
    job, number = call.job, call.task
    return await api.read(lambda store: _task(store, job, number))


def _row(store: Store, job: int) -> JobRow:
    row = store.job(job)
    if row is None:
        raise no_job(job)
    return row


def _task(store: Store, job: int, number: int) -> TaskView:
    row = _row(store, job)
    found = store.task(job, number)
    if found is None:
        raise no_task(row, number)
    return task_view(found, store.attempts(job, task=number, limit=MAX_ATTEMPTS_SHOWN))


_HANDLERS: Final[dict[str, Any]] = {
    "health": _get_health,
    "version": get_version,
    "authority": _get_authority,
    "metrics": get_metrics,
    "listControllers": _list_controllers,
    "listJobs": _list_jobs,
    "listTasks": _list_tasks,
    "getTask": _get_task,
}
"""By the operation's id."""

OWN: Final[tuple[Endpoint, ...]] = tuple(
    replace(row, handler=_HANDLERS[row.name]) for row in ENDPOINTS if row.name in _HANDLERS
)
"""The rows of the table that a follower answers itself."""


def is_own(path: str) -> bool:
    """Whether a GET of that path is answered here: it is of one of these rows, as far as its fixed parts say."""
    return any(row.matches(path) for row in OWN)
