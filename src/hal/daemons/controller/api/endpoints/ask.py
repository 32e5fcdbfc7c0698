"""The endpoints that tell planes what waits and what is reserved."""

from __future__ import annotations

from typing import Final

from litestar import Response

from hal.core.model import SpecError
from hal.daemons.controller.api.endpoints.endpoint import TEXT, Endpoint, Param
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.service.ask import PlanView, WantsView
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.rest.answers import answer_in_parts, sliced_answer
from hal.rest.rights import OWNERS

MAX_POLL_S: Final = 60.0


async def get_wants(api: ControllerApi, call: Call) -> object:
    """Waiting work; 304 where it is as the caller knows it."""
    wait_s = call.params.seconds("wait", 0.0)
    if wait_s > MAX_POLL_S:
        raise SpecError(f"wait: {wait_s:g} is out of range", hint=f"at most {MAX_POLL_S:g} seconds")
    known = (call.header("if-none-match") or "").removeprefix("W/").strip('"')
    if known and wait_s:
        await api.ask.change(known, wait_s)
    if known and known == api.ask.version:
        return Response(content=b"", status_code=304, headers={"ETag": f'"{known}"'})
    found = await api.ask.wants(call.visit.identity.user if call.visit.own_only else "")
    return answer_in_parts(call, api.runtime, list(found.parts), headers={"ETag": f'"{found.version}"'})


async def get_plan(api: ControllerApi, call: Call) -> object:
    """Reservations."""
    found = await api.ask.plan(call.visit.identity.user if call.visit.own_only else "")
    empty = PlanView(now_ms=found.now_ms, reservations=[], truncated=found.truncated, releasable=found.releasable)
    return await sliced_answer(call, api.runtime, empty, "reservations", found.reservations, 200)


ASK: Final = (
    Endpoint(
        method="GET",
        path="/v1/wants",
        handler=get_wants,
        right=OWNERS,
        name="getWants",
        tag="queues",
        summary="Show waiting work by class, and what it is short of",
        text=(
            "Work that could start now if it had nodes: without jobs that are held, wait for others or for a time. "
            "With `If-None-Match` the answer is 304 where nothing has changed; with `wait`, too, it comes as soon as "
            "something has. Users see their own work."
        ),
        params=(
            Param(
                name="wait",
                text="seconds to wait for a change, with If-None-Match",
                schema={"type": "number", "minimum": 0, "maximum": MAX_POLL_S, "default": 0},
            ),
            Param(name="If-None-Match", where="header", text="`ETag` of an earlier answer", schema=TEXT),
        ),
        result=WantsView,
        headers={"ETag": "version of the wants"},
        or_status={304: "Nothing has changed since that version"},
        problems=("400", "503"),
    ),
    Endpoint(
        method="GET",
        path="/v1/plan",
        handler=get_plan,
        right=OWNERS,
        name="getPlan",
        tag="queues",
        summary="Show which waiting work has nodes reserved, and from when",
        text="Which jobs have reservations depends on `backfill` in hal.toml. Users see their own jobs.",
        result=PlanView,
        problems=("400",),
    ),
)
