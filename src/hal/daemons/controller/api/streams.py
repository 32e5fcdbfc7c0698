"""Answers that go on: outputs as they are written, events as they happen.

Both are bounded: a piece of an output at a time, and a buffer for each watcher; who reads the feed too slowly gets a
last event `lagged` and is disconnected, to come back with `Last-Event-ID`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream as StreamingResponse

from hal.core.model import DeniedError, Event, HALError, SpecError
from hal.daemons.controller.api.http_connection import HttpConnection
from hal.daemons.controller.api.own import check_job, only_about
from hal.daemons.controller.api.problems import problem_of
from hal.daemons.controller.api.reading_requests import MAX_LIMIT, MAX_TASK, AnyRequest, Params, integer, job_id, job_of
from hal.daemons.controller.api.rights import visit_of
from hal.daemons.controller.api.routes import json_answer
from hal.daemons.controller.controller import ControllerApi
from hal.daemons.controller.outputs import MAX_PIECE_BYTES, LogRequest, Piece
from hal.wire.frames import Stream

KEEP_ALIVE_S = 15.0
"""A silent feed says that it lives this often."""
CATCH_UP_EVENTS = 500
"""Events read from the store at once before a feed is live."""
MAX_SEQUENCE = (1 << 63) - 1
EVENT_STREAM = "text/event-stream"
Told = Callable[[Event], Event]
LOG_PARAMS = ["task", "attempt", "rank", "stream", "offset", "limit", "follow"]


def stream_routes(api: ControllerApi) -> list[HTTPRouteHandler]:
    """Outputs and events."""

    @get("/v1/jobs/{job:str}/logs")
    async def logs(request: Request[Any, Any, Any]) -> Response[Any]:
        params = Params(request, LOG_PARAMS)
        wanted = _log_request(params, job_of(request))
        offset = params.integer("offset", 0, low=-(1 << 62), high=1 << 62)
        if not params.flag("follow"):
            limit = params.integer("limit", MAX_PIECE_BYTES, low=0, high=1 << 40)
            piece = await api.read_log(wanted, offset, limit)
            return Response(content=piece.data, media_type="application/octet-stream", headers=_headers(piece))
        first = await api.read_log(wanted, offset, 0)
        headers = {name: value for name, value in _headers(first).items() if name != "HAL-Log-Ended"}
        content = api.follow_log(wanted, offset if offset < 0 or first.attempt is None else first.offset)
        return StreamingResponse(_broken_off(request, content), media_type="application/octet-stream", headers=headers)

    @get("/v1/events")
    async def feed(request: Request[Any, Any, Any]) -> Response[Any]:
        params = Params(request, ["after", "job", "limit"])
        job = job_id(params.text("job")) if params.text("job") else None
        await _refuse_others(request, api, job)
        told = _told(request, job)
        if EVENT_STREAM in request.headers.get("accept", ""):
            return StreamingResponse(
                _feed(api, await _start(api, params, request), job, told),
                media_type=EVENT_STREAM,
                headers={"Cache-Control": "no-store"},
            )
        limit = params.limit()
        events = await api.events(params.integer("after", 0, low=0, high=MAX_SEQUENCE), limit, job)
        found = [told(event) for event in events]
        return json_answer({"events": found, "cursor": str(found[-1].sequence) if len(found) == limit else None})

    return [logs, feed]


async def _broken_off(request: AnyRequest, content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same; where it cannot go on, the connection is cut before the end of the answer: whoever asks again is told
    why. That is no fault of the controller, but of an output or its node."""
    try:
        async for piece in content:
            yield piece
    except HALError:
        connection: HttpConnection | None = request.scope["state"].get("connection")
        if connection is None:
            raise
        connection.drop()


async def _refuse_others(request: AnyRequest, api: ControllerApi, job: int | None) -> None:
    visit = visit_of(request)
    if visit.own_only and job is None:
        raise DeniedError(
            "the whole feed tells of everybody's jobs, which takes the role operator",
            hint="name one of your jobs: ?job=42, or `hal events --job 42`",
        )
    if job is not None:
        await check_job(visit, api, job, changing=False)


def _told(request: AnyRequest, job: int | None) -> Told:
    """How an event is told to the caller."""
    if job is None or not visit_of(request).own_only:
        return lambda event: event
    return lambda event: only_about(event, job)


def _log_request(params: Params, job: int) -> LogRequest:
    attempt = params.text("attempt")
    try:
        stream = Stream(params.text("stream", "stdout"))
    except ValueError:
        raise SpecError(f"stream: '{params.text('stream')}' is not one", hint="write stdout or stderr") from None
    return LogRequest(
        job=job,
        task=params.integer("task", 0, low=0, high=MAX_TASK),
        attempt=integer(attempt, "attempt", low=1, high=MAX_TASK) if attempt else None,
        rank=params.integer("rank", 0, low=0, high=MAX_TASK),
        stream=stream,
    )


def _headers(piece: Piece) -> dict[str, str]:
    headers = {
        "HAL-Log-Offset": str(piece.offset),
        "HAL-Log-Size": str(piece.size),
        "HAL-Log-Ended": "1" if piece.ended else "0",
    }
    if piece.attempt is not None:
        headers["HAL-Log-Attempt"] = str(piece.attempt)
        headers["HAL-Log-Node"] = piece.node
    return headers


async def _start(api: ControllerApi, params: Params, request: AnyRequest) -> int:
    """After which event the stream begins: the last one seen, the one asked for, else now."""
    last = request.headers.get("last-event-id") or params.text("after")
    if last:
        return integer(last, "Last-Event-ID", low=0, high=MAX_SEQUENCE)
    return await api.last_sequence()


async def _feed(api: ControllerApi, after: int, job: int | None, told: Told) -> AsyncIterator[bytes]:
    try:
        watcher = api.watch(job)
    except HALError as error:
        yield _named("error", msgspec.json.encode(problem_of(error)))
        return
    try:
        yield b": the feed begins\n\n"
        while missed := await api.events(after, min(CATCH_UP_EVENTS, MAX_LIMIT), job):
            yield b"".join(_event(told(event)) for event in missed)
            after = missed[-1].sequence
        while True:
            came = await watcher.take(KEEP_ALIVE_S)
            fresh = [event for event in came if event.sequence > after]
            if fresh:
                after = fresh[-1].sequence
                yield b"".join(_event(told(event)) for event in fresh)
            if watcher.lagged:
                yield _named("lagged", msgspec.json.encode({"after": after}))
                return
            if watcher.closed:
                yield _named("closed", msgspec.json.encode({"after": after}))
                return
            if not came:
                yield b": alive\n\n"
    finally:
        api.unwatch(watcher)


def _event(event: Event) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (
        event.sequence,
        event.kind.value.encode(),
        msgspec.json.encode(event),
    )


def _named(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
