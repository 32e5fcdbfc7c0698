"""From rows of the table of endpoints to an application: each route reads its request as its row says, asks, answers.

What HAL takes of Litestar is here: finding the route of a path, one hook before the handler, where rights are enforced,
and handlers of errors. Its validation, injection, sessions, OpenAPI, logging and caches are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from litestar import Litestar, Request, Response, route
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler

from hal.core.model import HALError
from hal.daemons.controller.api.answers import json_answer
from hal.daemons.controller.api.endpoints.endpoint import Endpoint
from hal.daemons.controller.api.problems import OnFault, on_hal_error, on_http_error
from hal.daemons.controller.api.requests.bodies import beside
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.ownership import Owners
from hal.daemons.controller.api.requests.parameters import Params
from hal.daemons.controller.api.requests.rights import Rights, visit_of
from hal.runtime.interface import Runtime
from hal.runtime.line_budget import BudgetedLogs


def litestar(rows: Sequence[Endpoint], api: object, owners: Owners, runtime: Runtime) -> Litestar:
    """The application that answers these rows.

    Args:
        api: what their handlers are given to ask.
        owners: knows whose jobs are.
    """
    rights = {row.operation: row.right for row in rows}
    about_jobs = frozenset(row.operation for row in rows if row.about_jobs)
    return Litestar(
        route_handlers=[_route(row, api, runtime) for row in rows],
        before_request=Rights(owners, rights, about_jobs).enforce,
        exception_handlers={
            HALError: on_hal_error,
            HTTPException: on_http_error,
            Exception: OnFault(BudgetedLogs(runtime.log, runtime.monotonic_ms)),
        },
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,
    )


def _route(row: Endpoint, api: object, runtime: Runtime) -> HTTPRouteHandler:
    handler, query, body, status = row.handler, row.query, row.body, row.status

    @route(row.path.replace("}", ":str}"), http_method=row.method, name=row.name, status_code=status)
    async def answer(request: Request[Any, Any, Any]) -> Response[Any]:
        params = Params(request, query)
        raw, value = b"", None
        if body is not None:
            raw = await request.body()
            if body.read is not None:
                value = await beside(runtime, raw, partial(body.read, raw))
        found = await handler(api, Call(request, visit_of(request), params, raw, value))
        return found if isinstance(found, Response) else json_answer(found, status)

    return answer
