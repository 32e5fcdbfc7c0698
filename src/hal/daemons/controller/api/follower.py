"""REST of a controller that does not lead: lists from the store, its own health; all else is the leader's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar, cast

import msgspec
from litestar import Litestar, Request, Response, get
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.types import Receive, Scope, Send

from hal.core.model import HALError, NotFoundError
from hal.daemons.controller.access.identity import Visit
from hal.daemons.controller.access.steps import StepDoor
from hal.daemons.controller.access.tokens import Token, TokenBook
from hal.daemons.controller.api.forwarding import WAIT, NoLeaderError, forward
from hal.daemons.controller.api.own import narrowed
from hal.daemons.controller.api.problems import PROBLEM_JSON, OnFault, on_hal_error, on_http_error, problem_of
from hal.daemons.controller.api.reading_requests import JOB_FILTERS, Params, job_of, task_of
from hal.daemons.controller.api.rights import Rights, visit_of
from hal.daemons.controller.api.routes import json_answer
from hal.daemons.controller.controllers_view import list_controllers
from hal.daemons.controller.following import Follower
from hal.daemons.controller.openapi import API_VERSION
from hal.daemons.controller.reading import MAX_ATTEMPTS_SHOWN, VERSION, Health, Owned, read_authority
from hal.daemons.controller.views import TaskView, job_view, task_view
from hal.runtime.authority import authority_file
from hal.runtime.interface import Lane, Runtime
from hal.runtime.line_budget import BudgetedLogs
from hal.store import JobRow, Store
from hal.wire.agree import SPOKEN

OWN: Final = frozenset({"health", "version", "authority", "controllers", "jobs"})
"""What follows `/v1/` in paths that a follower reads by itself."""
FOLLOWING: Final = "following"
"""Status in `/v1/health`."""

T = TypeVar("T")


class FollowerApp:
    """An ASGI application, to be wrapped by the guard."""

    def __init__(self, follower: Follower, runtime: Runtime, secret: str, rest: str = "") -> None:
        """
        Args:
            rest: where people reach this controller from elsewhere.
            secret: by which the leader knows this controller (see `presence`).
        """
        self._secret = secret
        self._rest = rest
        self._follower = follower
        self._runtime = runtime
        self._own = Litestar(
            route_handlers=self._routes(),
            before_request=Rights(self).enforce,
            exception_handlers={
                HALError: on_hal_error,
                HTTPException: on_http_error,
                Exception: OnFault(BudgetedLogs(runtime.log, runtime.monotonic_ms)),
            },
            openapi_config=None,
            logging_config=None,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        raw = cast("dict[str, Any]", scope)
        visit: Visit = raw["state"]["visit"]
        if raw["method"] == "GET" and _is_own(raw["path"]) and not visit.identity.step:
            await self._own(scope, receive, send)
            return
        started = False

        async def noted(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            leader, over = self._follower.leader, self._follower.over
            if leader is None or not leader.rest or leader.left_ms <= 0:
                raise NoLeaderError("this controller follows, and nobody leads at the moment", hint=WAIT)
            authority = authority_file(self._runtime.paths.authority)
            places = leader.rest.split()
            await forward(places, self._secret, authority, visit.identity, over, scope, receive, noted)
        except HALError as error:
            if started:
                raise
            problem = problem_of(error)
            headers = [(b"content-type", PROBLEM_JSON.encode()), (b"retry-after", b"1")]
            await send({"type": "http.response.start", "status": problem.status, "headers": headers})
            await send({"type": "http.response.body", "body": msgspec.json.encode(problem), "more_body": False})

    @property
    def token_book(self) -> TokenBook:
        """All tokens, as the database had them a moment ago."""
        return self._follower.tokens

    @property
    def step_door(self) -> StepDoor:
        """Knows the steps of this HAL; whose they are, and whether they live, the leader says."""
        follower = self._follower
        return StepDoor(lambda: follower.instance, lambda: follower.step_secret, None)

    def token_used(self, token: Token) -> None:
        """The leader notes it, where the request is passed on."""

    async def owners(self, jobs: Iterable[int]) -> dict[int, Owned]:
        """Whose they are; those that do not exist are left out."""
        wanted = list(dict.fromkeys(jobs))
        rows = await self._read(lambda store: [store.job(job) for job in wanted])
        return {row.id: Owned(row.user, row.account, row.queue) for row in rows if row is not None}

    async def _read(self, call: Callable[[Store], T]) -> T:
        store = self._follower.store
        if store is None:
            raise NoLeaderError("the database has not answered yet", hint=WAIT)
        return await self._runtime.run_blocking(partial(call, store), Lane.READER)

    def _routes(self) -> list[HTTPRouteHandler]:
        @get("/v1/health")
        async def health(request: Request[Any, Any, Any]) -> Response[bytes]:
            Params(request, [])
            return json_answer(self._health())

        @get("/v1/version")
        async def version(request: Request[Any, Any, Any]) -> Response[bytes]:
            Params(request, [])
            return json_answer({"version": VERSION, "api_version": API_VERSION, "wire_versions": list(SPOKEN)})

        @get("/v1/jobs")
        async def jobs(request: Request[Any, Any, Any]) -> Response[bytes]:
            params = Params(request, [*JOB_FILTERS, "limit", "cursor"])
            after, limit = params.cursor(), params.limit()
            wanted = narrowed(visit_of(request), params.job_filter())
            rows = await self._read(lambda store: store.jobs(wanted, after=after, limit=limit))
            found = [job_view(row) for row in rows]
            return json_answer({"jobs": found, "cursor": found[-1].id if len(found) == limit else None})

        @get("/v1/jobs/{job:str}/tasks")
        async def tasks(request: Request[Any, Any, Any]) -> Response[bytes]:
            params = Params(request, ["state", "limit", "cursor"])
            job, states, after, limit = job_of(request), params.states(), params.cursor(), params.limit()
            await self._read(lambda store: _row(store, job))
            rows = await self._read(lambda store: store.tasks(job, states, after=after, limit=limit))
            cursor = str(rows[-1].task) if len(rows) == limit else None
            return json_answer({"tasks": [task_view(row) for row in rows], "cursor": cursor})

        @get("/v1/jobs/{job:str}/tasks/{task:str}")
        async def task(request: Request[Any, Any, Any]) -> Response[bytes]:
            Params(request, [])
            job, number = job_of(request), task_of(request)
            return json_answer(await self._read(lambda store: _task(store, job, number)))

        @get("/v1/authority")
        async def authority(request: Request[Any, Any, Any]) -> Response[bytes]:
            Params(request, [])
            return json_answer(read_authority(self._runtime))

        @get("/v1/controllers")
        async def controllers(request: Request[Any, Any, Any]) -> Response[bytes]:
            Params(request, [])
            return json_answer(await self._read(lambda store: list_controllers(store, None)))

        return [health, version, authority, controllers, jobs, tasks, task]

    def _health(self) -> Health:
        follower = self._follower
        leader = follower.leader
        return Health(
            status=FOLLOWING,
            version=VERSION,
            epoch=leader.epoch if leader else 0,
            pid=self._runtime.pid,
            now_ms=self._runtime.now_ms(),
            jobs={},
            nodes={},
            lost_after_ms=0,  # the leader's matter
            warnings=[] if leader else ["the database does not answer: nobody knows who leads"],
            rest=self._rest,
            store=follower.store.place if follower.store else "",
            leader=f"{leader.holder} ({leader.rest})" if leader else "",
        )


def _is_own(path: str) -> bool:
    parts = path.strip("/").split("/")
    if parts[0] != "v1":
        return False
    if len(parts) == 2:
        return parts[1] in OWN
    return 4 <= len(parts) <= 5 and parts[1] == "jobs" and parts[3] == "tasks"


def _row(store: Store, job: int) -> JobRow:
    row = store.job(job)
    if row is None:
        raise NotFoundError(f"there is no job {job}", hint="`hal jobs --all` lists the jobs there are")
    return row


def _task(store: Store, job: int, number: int) -> TaskView:
    row = _row(store, job)
    found = store.task(job, number)
    if found is None:
        raise NotFoundError(f"job {job} has no task {number}", hint=f"its tasks are 0 to {row.tasks - 1}")
    return task_view(found, store.attempts(job, task=number, limit=MAX_ATTEMPTS_SHOWN))
