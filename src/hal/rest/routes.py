"""From rows of a table of endpoints to an application: each route reads its request as its row says, asks, answers.

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
from hal.rest.answers import json_answer
from hal.rest.bodies import beside
from hal.rest.call import Call
from hal.rest.endpoint import Endpoint
from hal.rest.enforcement import CheckPath, Rights, visit_of
from hal.rest.problems import OnFault, on_hal_error, on_http_error
from hal.runtime.interface import Runtime
from hal.runtime.line_budget import BudgetedLogs


def litestar(
    rows: Sequence[Endpoint],
    api: object,
    runtime: Runtime,
    *,
    call_type: type[Call] = Call,
    for_narrowed: frozenset[str] = frozenset(),
    check_path: CheckPath | None = None,
) -> Litestar:
    """The application that answers these rows.

    Args:
        api: what their handlers are given to ask.
        call_type: what they are given of the request.
        for_narrowed, check_path: as for `Rights`.
    """
    rights = {row.operation: row.right for row in rows}
    logs = BudgetedLogs(runtime.log, runtime.monotonic_ms)
    return Litestar(
        route_handlers=[_route(row, api, runtime, call_type) for row in rows],
        before_request=Rights(rights, for_narrowed=for_narrowed, check_path=check_path).enforce,
        exception_handlers={
            HALError: on_hal_error,
            HTTPException: on_http_error,
            Exception: OnFault(logs, f"{runtime.name}.log"),
        },
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,
    )


def _route(row: Endpoint, api: object, runtime: Runtime, call_type: type[Call]) -> HTTPRouteHandler:
    handler, query, body, status, repeated = row.handler, row.query, row.body, row.status, row.repeated
    params_type = call_type.params_type

    @route(row.path.replace("}", ":str}"), http_method=row.method, name=row.name, status_code=status)
    async def answer(request: Request[Any, Any, Any]) -> Response[Any]:
        visit = visit_of(request)
        visit.repeated = repeated
        params = params_type(request, query)
        raw, value = b"", None
        if body is not None and not body.stream_bytes:
            raw = await request.body()
            if body.read is not None:
                value = await beside(runtime, raw, partial(body.read, raw))
        elif body is not None:
            request.scope["state"]["body"].let_through(body.stream_bytes)
        found = await handler(api, call_type(request, visit, params, raw, value))
        return found if isinstance(found, Response) else json_answer(found, status)

    return answer
