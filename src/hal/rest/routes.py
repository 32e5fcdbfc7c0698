"""From rows of a table of endpoints to an application: each route reads its request as its row says, asks, answers.

What HAL takes of Litestar is here: finding the route of a path, one hook before the handler, where rights are enforced,
and handlers of errors. Its validation, injection, sessions, OpenAPI, logging and caches are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

from litestar import Litestar, Request, Response, route
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.types import Receive, Scope, Send

from hal.core.model import HALError
from hal.rest.answers import json_answer
from hal.rest.bodies import beside
from hal.rest.call import Call
from hal.rest.endpoint import Endpoint
from hal.rest.enforcement import CheckPath, Rights, visit_of
from hal.rest.parameters import AnyRequest
from hal.rest.problems import OnFault, on_hal_error, on_http_error
from hal.runtime.interface import Runtime
from hal.runtime.line_budget import BudgetedLogs


class _Asked(NamedTuple):
    """Whom the routes ask for one application."""

    api: object
    runtime: Runtime
    check_path: CheckPath | None
    on_fault: OnFault


class Application:
    """An ASGI application, to be wrapped by the guard: routes, and the API that their handlers ask."""

    def __init__(self, routes: Litestar, asked: _Asked) -> None:
        self._routes = routes
        self._asked = asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        cast("dict[str, Any]", scope)["state"]["asked"] = self._asked
        await self._routes(scope, receive, send)


class Routes:
    """The routes of a table of endpoints: made once in a process, however many APIs they ask, for Litestar needs longer
    to make them than to answer a hundred requests."""

    def __init__(
        self, rows: Sequence[Endpoint], *, call_type: type[Call] = Call, for_narrowed: frozenset[str] = frozenset()
    ) -> None:
        """
        Args:
            call_type: what handlers are given of the request.
            for_narrowed: as for `Rights`.
        """
        self.rows = rows
        self._call_type = call_type
        self._rights = Rights(
            {row.operation: row.right for row in rows},
            for_narrowed=for_narrowed,
            for_job_tokens=frozenset(row.operation for row in rows if row.for_job_tokens),
        )

    def serve(self, api: object, runtime: Runtime, *, check_path: CheckPath | None = None) -> Application:
        """The application that answers these rows.

        Args:
            api: what their handlers are given to ask.
            check_path: as for `Rights.enforce`.
        """
        logs = BudgetedLogs(runtime.log, runtime.monotonic_ms)
        return Application(self.litestar, _Asked(api, runtime, check_path, OnFault(logs, f"{runtime.name}.log")))

    @cached_property
    def litestar(self) -> Litestar:
        """It answers requests that name in their state whom to ask."""
        return Litestar(
            route_handlers=[_route(row, self._call_type) for row in self.rows],
            before_request=self._enforce,
            exception_handlers={HALError: on_hal_error, HTTPException: on_http_error, Exception: _on_fault},
            openapi_config=None,
            logging_config=None,
            request_max_body_size=None,
        )

    async def _enforce(self, request: Request) -> None:  # type: ignore[type-arg]
        await self._rights.enforce(request, _asked(request).check_path)


def _asked(request: AnyRequest) -> _Asked:
    asked: _Asked = request.scope["state"]["asked"]
    return asked


def _on_fault(request: AnyRequest, error: Exception) -> Response[bytes]:
    return _asked(request).on_fault(request, error)


def _route(row: Endpoint, call_type: type[Call]) -> HTTPRouteHandler:
    handler, query, body, status, repeated = row.handler, row.query, row.body, row.status, row.repeated
    params_type = call_type.params_type

    @route(row.path.replace("}", ":str}"), http_method=row.method, name=row.name, status_code=status)
    async def answer(request: Request[Any, Any, Any]) -> Response[Any]:
        visit, asked = visit_of(request), _asked(request)
        visit.repeated = repeated
        params = params_type(request, query)
        raw, value = b"", None
        if body is not None and not body.stream_bytes:
            raw = await request.body()
            if body.read is not None:
                value = await beside(asked.runtime, raw, partial(body.read, raw))
        elif body is not None:
            request.scope["state"]["body"].let_through(body.stream_bytes)
        found = await handler(asked.api, call_type(request, visit, params, raw, value))
        return found if isinstance(found, Response) else json_answer(found, status)

    return answer
