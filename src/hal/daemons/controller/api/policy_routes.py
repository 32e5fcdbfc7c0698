"""The routes of REST /v1 about the policy."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get, patch, put
from litestar.handlers import HTTPRouteHandler

from hal.core.model import SpecError
from hal.core.model.policy_text import policy_from_plain
from hal.daemons.controller.api.reading_requests import AnyRequest, Params, body_as, integer, plain_json
from hal.daemons.controller.api.routes import json_answer, submitter
from hal.daemons.controller.controller import ControllerApi
from hal.daemons.controller.policies import Asked, by_operations, whole
from hal.daemons.controller.policy_body import PolicyOperations
from hal.daemons.controller.policy_views import PolicyChanged

MAX_VERSION = (1 << 60) - 1


def policy_routes(api: ControllerApi) -> list[HTTPRouteHandler]:
    """Reading and changing the policy, and its licences."""

    async def done(request: AnyRequest, asked: Asked, *, dry_run: bool) -> Response[bytes]:
        if dry_run:
            return _answer(await api.try_policy(asked))
        return _answer(await api.change_policy(asked, submitter(request)))

    @get("/v1/policy")
    async def policy(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        found = await api.policy()
        answer = json_answer(found)
        answer.headers["ETag"] = f'"{found.version}"'
        return answer

    @put("/v1/policy")
    async def replace_policy(request: Request[Any, Any, Any]) -> Response[bytes]:
        params = Params(request, ["dry_run", "note"])
        version = _if_match(request)
        if version is None:
            raise SpecError("If-Match: is missing", hint="name the version that you have read (its ETag)")
        wanted = policy_from_plain(plain_json(await request.body()))
        asked = Asked(change=whole(wanted), version=version, note=params.text("note"))
        return await done(request, asked, dry_run=params.flag("dry_run"))

    @patch("/v1/policy")
    async def change_policy(request: Request[Any, Any, Any]) -> Response[bytes]:
        params = Params(request, ["dry_run", "note"])
        body = body_as(await request.body(), PolicyOperations)
        asked = Asked(change=by_operations(body.operations), version=_if_match(request), note=params.text("note"))
        return await done(request, asked, dry_run=params.flag("dry_run"))

    @get("/v1/policy/versions")
    async def versions(request: Request[Any, Any, Any]) -> Response[bytes]:
        params = Params(request, ["limit", "cursor"])
        limit = params.limit()
        found = await api.policy_versions(params.cursor(), limit)
        cursor = str(found[-1].version) if len(found) == limit else None
        return json_answer({"versions": found, "cursor": cursor})

    @get("/v1/policy/versions/{version:str}")
    async def version(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(
            await api.policy(integer(request.path_params["version"], "version", low=0, high=MAX_VERSION))
        )

    @get("/v1/licences")
    async def licences(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer({"licences": api.licences()})

    @get("/v1/shares")
    async def shares(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(api.shares())

    @get("/v1/ledgers")
    async def ledgers(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(api.ledgers())

    @get("/v1/jobs/{job:str}/priority")
    async def priority(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(api.priority(integer(request.path_params["job"], "job", low=1, high=MAX_VERSION)))

    return [policy, replace_policy, change_policy, versions, version, licences, shares, ledgers, priority]


def _if_match(request: AnyRequest) -> int | None:
    text = request.headers.get("if-match")
    if text is None:
        return None
    return integer(text.strip().strip('"'), "If-Match", low=0, high=MAX_VERSION)


def _answer(changed: PolicyChanged) -> Response[bytes]:
    answer = json_answer(changed)
    answer.headers["ETag"] = f'"{changed.version}"'
    return answer
