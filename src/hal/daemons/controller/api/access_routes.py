"""The routes of REST /v1 about access: who one is, and tokens."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, delete, get, post
from litestar.handlers import HTTPRouteHandler

from hal.daemons.controller.access.views import TokenBody, TokensList, who_view
from hal.daemons.controller.api.reading_requests import Params, body_as
from hal.daemons.controller.api.rights import visit_of
from hal.daemons.controller.api.routes import json_answer, submitter
from hal.daemons.controller.controller import ControllerApi


def access_routes(api: ControllerApi) -> list[HTTPRouteHandler]:
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
        made = await api.create_token(asked, submitter(request))
        visit_of(request).targets.append(f"token {made.token.id} of {made.token.user}")
        answer = json_answer(made, 201)
        answer.headers["Cache-Control"] = "no-store"
        return answer

    @delete("/v1/api-tokens/{token:str}", status_code=200)
    async def revoke_token(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(await api.revoke_token(request.path_params["token"]))

    return [whoami, tokens, create_token, revoke_token]
