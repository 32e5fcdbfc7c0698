"""The routes of REST /v1 about joining."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get, post
from litestar.handlers import HTTPRouteHandler

from hal.daemons.controller.api.reading_requests import Params, body_as
from hal.daemons.controller.api.routes import json_answer, submitter
from hal.daemons.controller.controller import ControllerApi
from hal.daemons.controller.membership import JoinTokenBody


def joining_routes(api: ControllerApi) -> list[HTTPRouteHandler]:
    """Join tokens, and taking a node's certificates back."""

    @post("/v1/tokens")
    async def create_token(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        body = body_as(await request.body(), JoinTokenBody)
        return json_answer(await api.create_join_token(body, submitter(request)), 201)

    @get("/v1/tokens")
    async def tokens(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(api.join_tokens())

    @post("/v1/tokens/{token:str}/revoke")
    async def revoke_token(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(await api.revoke_join_token(request.path_params["token"]))

    @post("/v1/nodes/{name:str}/revoke")
    async def revoke_node(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        await api.revoke_node(request.path_params["name"])
        return json_answer(api.node(request.path_params["name"]))

    return [create_token, tokens, revoke_token, revoke_node]
