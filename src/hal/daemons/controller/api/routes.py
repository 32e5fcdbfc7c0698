"""The routes of REST /v1: each reads its request strictly, calls the controller's API and tells what it gave.

docs/rest.md is their description for people, `openapi` the one for programs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import msgspec
from litestar import Request, Response, get, patch, post
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream
from msgspec.structs import replace

from hal.core.model import JobSpec, SpecError, enc_hook
from hal.daemons.controller.access.identity import Visit
from hal.daemons.controller.api.http_connection import HttpConnection
from hal.daemons.controller.api.own import (
    check_owners,
    check_patch,
    check_specs,
    control_some,
    in_its_queue,
    narrowed,
)
from hal.daemons.controller.api.reading_requests import (
    JOB_FILTERS,
    AnyRequest,
    Params,
    beside,
    body_as,
    job_filter,
    job_of,
    key_of,
    specs_of,
    task_of,
)
from hal.daemons.controller.api.rights import visit_of
from hal.daemons.controller.changing import Action, Key, Outcomes, Submitted
from hal.daemons.controller.changing_nodes import NodeAction, NodesBody
from hal.daemons.controller.control_body import ControlBody
from hal.daemons.controller.controller import ControllerApi
from hal.daemons.controller.openapi import API_VERSION, document
from hal.daemons.controller.reading import VERSION
from hal.planes.tasks import JobPatch, Submitter, emptied
from hal.wire.agree import SPOKEN

DEFAULT_WAIT_S = 30.0
VIEWS_A_SLICE = 500
"""Jobs of an answer that are encoded in one turn of the loop."""


_encoder = msgspec.json.Encoder(enc_hook=enc_hook)


def json_answer(value: Any, status: int = 200) -> Response[bytes]:
    """JSON of any value of the views."""
    return Response(content=_encoder.encode(value), status_code=status, media_type="application/json")


def span_of(ids: Sequence[str]) -> str:
    """The jobs of a submission, whose ids ascend without a gap."""
    return ids[0] if len(ids) == 1 else f"{ids[0]}-{ids[-1]}" if ids else ""


def submitter(request: AnyRequest) -> Submitter:
    """On whose behalf something is changed."""
    visit = visit_of(request)
    return Submitter(visit.identity.user, visit.trace_id, lengthens=not visit.own_only)


def job_routes(api: ControllerApi) -> list[HTTPRouteHandler]:
    """Submitting, listing, changing jobs."""

    @post("/v1/jobs")
    async def submit(request: Request[Any, Any, Any]) -> Response[bytes]:
        dry_run = Params(request, ["dry_run"]).flag("dry_run")
        body, visit = await request.body(), visit_of(request)
        specs, wanted, key = await beside(api.runtime, body, partial(_submission, request, body, visit))
        await check_owners(visit, api, wanted)
        try:
            done = await api.submit(specs, submitter(request), dry_run=dry_run, key=key)
            visit.targets.append(span_of(done.ids))
            return await _submitted(request, api, done, 200 if dry_run else 201)
        finally:
            await _let_go(api, specs)

    @get("/v1/jobs")
    async def jobs(request: Request[Any, Any, Any]) -> Response[bytes]:
        params = Params(request, [*JOB_FILTERS, "limit", "cursor"])
        limit = params.limit()
        wanted = narrowed(visit_of(request), params.job_filter())
        found = await api.jobs(wanted, params.cursor(), limit)
        return json_answer({"jobs": found, "cursor": found[-1].id if len(found) == limit else None})

    @get("/v1/jobs/{job:str}")
    async def job(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(await api.job(job_of(request)))

    @patch("/v1/jobs/{job:str}")
    async def update(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        body = await request.body()
        change = await beside(api.runtime, body, partial(body_as, body, JobPatch))
        check_patch(visit_of(request), change)
        return json_answer(await api.update(job_of(request), change, submitter(request)))

    @get("/v1/jobs/{job:str}/wait")
    async def wait(request: Request[Any, Any, Any]) -> Response[bytes]:
        timeout_s = Params(request, ["timeout_s"]).seconds("timeout_s", DEFAULT_WAIT_S)
        return json_answer(await api.wait(job_of(request), timeout_s))

    @get("/v1/jobs/{job:str}/why")
    async def why(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(await api.why(job_of(request)))

    @get("/v1/jobs/{job:str}/tasks")
    async def tasks(request: Request[Any, Any, Any]) -> Response[bytes]:
        params = Params(request, ["state", "limit", "cursor"])
        limit = params.limit()
        found = await api.tasks(job_of(request), params.states(), params.cursor(), limit)
        return json_answer({"tasks": found, "cursor": str(found[-1].task) if len(found) == limit else None})

    @get("/v1/jobs/{job:str}/tasks/{task:str}")
    async def task(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(await api.task(job_of(request), task_of(request)))

    return [submit, jobs, job, update, wait, why, tasks, task, *(_control(action, api) for action in Action)]


def _submission(request: AnyRequest, body: bytes, visit: Visit) -> tuple[list[JobSpec], set[int], Key | None]:
    """What a submission says: its jobs, those of others that they wait for, its key."""
    specs = in_its_queue(visit, specs_of(body))
    return specs, check_specs(visit, specs), key_of(request, body, visit.identity)


async def _submitted(request: AnyRequest, api: ControllerApi, done: Submitted, status: int) -> Response[Any]:
    """The answer to a submission; a long one is encoded and sent in slices."""
    if len(done.jobs) <= VIEWS_A_SLICE:
        return json_answer(done, status)
    head, tail = _encoder.encode(replace(done, jobs=[])).split(b'"jobs":[]', 1)
    parts = [head + b'"jobs":[']
    for at in range(0, len(done.jobs), VIEWS_A_SLICE):
        comma = b"," if at else b""
        parts.append(comma + _encoder.encode(done.jobs[at : at + VIEWS_A_SLICE])[1:-1])
        await api.runtime.sleep(0)
    parts.append(b"]" + tail)
    await _let_go(api, done.jobs)
    connection = request.scope.get("state", {}).get("connection")
    headers = {"Content-Length": str(sum(map(len, parts)))}
    content = _parts(parts, api, connection)
    return Stream(content, status_code=status, media_type="application/json", headers=headers)


async def _parts(parts: list[bytes], api: ControllerApi, connection: HttpConnection | None) -> AsyncIterator[bytes]:
    """One in each turn of the loop, freed when it is handed over."""
    left = sum(map(len, parts))
    parts.reverse()
    try:
        while parts:
            left -= len(parts[-1])
            if connection is not None:
                connection.hold(left)
            yield parts.pop()
            await api.runtime.sleep(0)
    finally:
        if connection is not None:
            connection.hold(0)


async def _let_go(api: ControllerApi, some: list[Any]) -> None:
    """Free what is in the list, in slices where it is much."""
    if len(some) > VIEWS_A_SLICE:
        for _ in emptied(some):
            await api.runtime.sleep(0)


def _control(action: Action, api: ControllerApi) -> HTTPRouteHandler:
    @post(f"/v1/jobs/{action.value}", name=action.value)
    async def control(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        body = await request.body()
        asked = await beside(api.runtime, body, partial(body_as, body, ControlBody))
        unknown = sorted(set(asked.filter or {}) - set(JOB_FILTERS))
        if unknown:
            raise SpecError(f"filter: '{unknown[0]}' is not a filter", hint=f"they are {', '.join(JOB_FILTERS)}")
        visit = visit_of(request)
        wanted = None if asked.filter is None else narrowed(visit, job_filter(asked.filter), changing=True)
        visit.targets.extend(asked.ids)
        visit.targets.extend(f"{name}={value}" for name, value in (asked.filter or {}).items())
        key = key_of(request, body, visit.identity)

        async def carry_out(ids: Sequence[str]) -> Outcomes:
            return await api.control(action, ids, wanted, submitter(request), key=key)

        return json_answer(await control_some(visit, api, asked.ids, carry_out, wanted is not None))

    return control


def other_routes(api: ControllerApi) -> list[HTTPRouteHandler]:
    """Nodes, queues, health, version, the description of all this."""
    described = msgspec.json.encode(document())

    @get("/v1/nodes")
    async def nodes(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer({"nodes": api.nodes()})

    @get("/v1/nodes/{name:str}")
    async def node(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(api.node(request.path_params["name"]))

    @post("/v1/nodes/{name:str}/fence")
    async def fence(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        await api.fence(request.path_params["name"], submitter(request))
        return json_answer(api.node(request.path_params["name"]))

    @get("/v1/nodes/{name:str}/wait")
    async def node_wait(request: Request[Any, Any, Any]) -> Response[bytes]:
        timeout_s = Params(request, ["timeout_s"]).seconds("timeout_s", DEFAULT_WAIT_S)
        await api.wait_for_node(request.path_params["name"], timeout_s)
        return json_answer(api.node(request.path_params["name"]))

    @get("/v1/queues")
    async def queues(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer({"queues": api.queues()})

    @get("/v1/health")
    async def health(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(api.health())

    @get("/v1/authority")
    async def authority(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(api.authority())

    @get("/v1/controllers")
    async def controllers(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer(await api.controllers())

    @get("/v1/version")
    async def version(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return json_answer({"version": VERSION, "api_version": API_VERSION, "wire_versions": list(SPOKEN)})

    @get("/v1/openapi.json")
    async def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        return Response(content=described, media_type="application/json")

    actions = (_control_nodes(action, api) for action in NodeAction)
    return [nodes, node, fence, node_wait, *actions, queues, health, controllers, authority, version, openapi]


def _control_nodes(action: NodeAction, api: ControllerApi) -> HTTPRouteHandler:
    @post(f"/v1/nodes/{action.value}", name=f"{action.value}-nodes")
    async def control(request: Request[Any, Any, Any]) -> Response[bytes]:
        Params(request, [])
        asked = body_as(await request.body(), NodesBody)
        visit_of(request).targets.extend(asked.nodes)
        return json_answer(await api.control_nodes(action, asked, submitter(request)))

    return control
