"""The routes of REST /v1 about access: who one is, and tokens."""

from __future__ import annotations

from functools import partial
from typing import Any

from litestar import Request, Response, get, post
from litestar.handlers import HTTPRouteHandler

from hal.core.model import SpecError
from hal.daemons.controller.access.audit import AuditLog
from hal.daemons.controller.access.views import AuditPage, TokenBody, TokensList, who_view
from hal.daemons.controller.api.reading_requests import Params, body_as
from hal.daemons.controller.api.rights import visit_of
from hal.daemons.controller.api.routes import json_answer, submitter
from hal.daemons.controller.api.streams import MAX_SEQUENCE
from hal.daemons.controller.controller import ControllerApi
from hal.runtime.interface import Lane, Runtime

MAX_WAIT_S = 60.0
"""Longest that a reader of the audit log waits for the next entry."""


def access_routes(api: ControllerApi, audit: AuditLog, runtime: Runtime) -> list[HTTPRouteHandler]:
    """All of them."""

    @get("/v1/whoami")
    async def whoami(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(who_view(visit_of(request).identity))

    @get("/v1/api-tokens")
    async def tokens(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(TokensList(tokens=api.tokens()))

    @post("/v1/api-tokens")
    async def create_token(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        asked = body_as(await request.body(), TokenBody)
        made = await api.create_token(asked, submitter(request), visit_of(request).identity.expires_ms)
        visit_of(request).targets.append(f"token {made.token.id} of {made.token.user}")
        answer = json_answer(made, 201)
        answer.headers["Cache-Control"] = "no-store"
        return answer

    @post("/v1/api-tokens/{token:str}/revoke", status_code=200)
    async def revoke_token(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(await api.revoke_token(request.path_params["token"]))

    @get("/v1/audit")
    async def read_audit(request: Request[Any, Any, Any]) -> Response[bytes]:
        params = Params(request, ["user", "since_ms", "after", "wait_s", "limit", "cursor"])
        limit, wait_s = params.limit(), params.seconds("wait_s", 0.0)
        after = params.integer("after", -1, low=0, high=MAX_SEQUENCE) if params.text("after") else None
        if wait_s > MAX_WAIT_S or (wait_s and after is None):
            raise SpecError(f"wait_s: goes with `after`, and up to {MAX_WAIT_S:.0f}")
        page = partial(
            audit.page,
            limit=limit,
            user=params.text("user"),
            since_ms=params.integer("since_ms", 0, low=0, high=MAX_SEQUENCE),
            before=params.cursor(),
            after=after,
        )
        audit.settle(runtime.now_ms())
        if after is not None and wait_s:
            await audit.wait(after, wait_s)
        found = await runtime.run_blocking(page, Lane.READER)
        cursor = str(found[-1].sequence) if len(found) == limit else None
        return json_answer(AuditPage(entries=found, cursor=cursor))

    return [whoami, tokens, create_token, revoke_token, read_audit]
