"""The endpoint of the feed of events: a page, or an endless stream.

A stream is bounded: a buffer for each watcher; who reads too slowly gets a last event `lagged` and is disconnected, to
come back with `Last-Event-ID`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
from litestar.response import Stream
from msgspec import UNSET, Struct, UnsetType

from hal.core.model import DeniedError, Event, HALError, SpecError
from hal.daemons.controller.api.endpoints.endpoint import INT, LIMIT, TEXT, Endpoint, Param
from hal.daemons.controller.api.endpoints.readers import READER, read_on
from hal.daemons.controller.api.requests.call import Call
from hal.daemons.controller.api.requests.ownership import check_job, only_about
from hal.daemons.controller.api.requests.parameters import MAX_LIMIT, MAX_SEQUENCE, integer, job_id
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.rest.answers import page_cursor
from hal.rest.problems import problem_of
from hal.rest.rights import OWNERS

KEEP_ALIVE_S: Final = 15.0
"""A silent feed says that it lives this often."""
CATCH_UP_EVENTS: Final = 500
"""Events read from the store at once before a feed is live."""
EVENT_STREAM: Final = "text/event-stream"
LOST: Final = "lost"
"""Kind of what stands for events that are no longer kept."""
Shown = Callable[[Event], Event]


class EventsPage(Struct, frozen=True, kw_only=True):
    """A page of events, oldest first."""

    events: list[Event]
    cursor: str | None
    lost: tuple[int, int] | UnsetType = UNSET
    """First and last sequence number of events that `after` should have been followed by and that are no longer kept;
    only where there are any."""


async def list_events(api: ControllerApi, call: Call) -> object:
    """A page, or the stream."""
    params = call.params
    job = job_id(params.text("job")) if params.text("job") else None
    await _refuse_others(api, call, job)
    shown = _shown(call, job)
    after = _after(call)
    if params.text("reader"):
        if job is not None:
            raise SpecError("reader: it reads all events, not those of one job", hint="leave out job or reader")
        after = read_on(api, call, params.text("reader"), "events", after)
    if EVENT_STREAM in (call.header("accept") or ""):
        content = _stream(api, api.feed.last_sequence() if after is None else after, job, shown)
        return Stream(content, media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})
    limit = params.limit()
    events, gap = await api.feed.page(after or 0, limit, job)
    cursor = page_cursor([event.sequence for event in events], limit)
    lost = UNSET if after is None or gap is None else gap
    return EventsPage(events=[shown(event) for event in events], cursor=cursor, lost=lost)


async def _refuse_others(api: ControllerApi, call: Call, job: int | None) -> None:
    if call.visit.own_only and job is None:
        raise DeniedError(
            "the whole feed tells of everybody's jobs, which takes the role operator",
            hint="name one of your jobs: ?job=42, or `hal events --job 42`",
        )
    if job is not None:
        await check_job(call.visit, api.jobs, job, changing=False)


def _shown(call: Call, job: int | None) -> Shown:
    """How an event is shown to the caller."""
    if job is None or not call.visit.own_only:
        return lambda event: event
    return lambda event: only_about(event, job)


def _after(call: Call) -> int | None:
    """After which event to begin: the last one that a stream has sent, or the one asked for; None: neither."""
    if EVENT_STREAM in (call.header("accept") or "") and (last := call.header("last-event-id")):
        return integer(last, "Last-Event-ID", low=0, high=MAX_SEQUENCE)
    return call.params.optional_integer("after", low=0, high=MAX_SEQUENCE)


async def _stream(api: ControllerApi, after: int, job: int | None, shown: Shown) -> AsyncIterator[bytes]:
    try:
        watcher = api.feed.watch(job)
    except HALError as error:
        yield _named("error", msgspec.json.encode(problem_of(error)))
        return
    try:
        yield b": the feed begins\n\n"
        while True:
            missed, lost = await api.feed.page(after, min(CATCH_UP_EVENTS, MAX_LIMIT), job)
            if lost is not None:
                yield _lost(*lost, missed[0].at_ms if missed else api.runtime.now_ms())
                after = lost[1]
            if not missed:
                break
            yield b"".join(_event(shown(event)) for event in missed)
            after = missed[-1].sequence
        while True:
            came = await watcher.take(KEEP_ALIVE_S)
            fresh = [event for event in came if event.sequence > after]
            if fresh:
                after = fresh[-1].sequence
                yield b"".join(_event(shown(event)) for event in fresh)
            if watcher.lagged:
                yield _named("lagged", msgspec.json.encode({"after": after}))
                return
            if watcher.closed:
                yield _named("closed", msgspec.json.encode({"after": after}))
                return
            if not came:
                yield b": alive\n\n"
    finally:
        api.feed.unwatch(watcher)


def _event(event: Event) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (
        event.sequence,
        event.kind.value.encode(),
        msgspec.json.encode(event),
    )


def _lost(first: int, last: int, at_ms: int) -> bytes:
    """What stands for events that are no longer kept; has the form of one, so that whoever reads events reads it."""
    data = {"sequence": last, "at_ms": at_ms, "kind": LOST, "jobs": [], "payload": {"first": first, "last": last}}
    return b"id: %d\n" % last + _named(LOST, msgspec.json.encode(data))


def _named(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


EVENTS: Final = (
    Endpoint(
        method="GET",
        path="/v1/events",
        handler=list_events,
        right=OWNERS,
        name="listEvents",
        tag="events",
        summary="Read the feed of events, as a page or as server-sent events",
        text=(
            "With `Accept: text/event-stream` the stream does not end: `id` is the sequence number, `event` the kind, "
            "`data` the event. Resume with `Last-Event-ID`. A reader that is too slow gets `event: lagged` and is "
            "disconnected; `event: lost` stands for events that are no longer kept. Where `payload.truncated` is true, "
            "`jobs` or the lists of the payload do not hold all: `jobs_total` and `count` say how many there were."
        ),
        params=(
            Param(name="after", text="only events after this sequence number", schema=INT),
            Param(name="job", text="only events about this job", schema=TEXT),
            READER,
            LIMIT,
            Param(name="Last-Event-ID", where="header", text="resume a stream after this event", schema=TEXT),
        ),
        result=EventsPage,
        media={EVENT_STREAM: {"type": "string"}},
        problems=("400", "404", "409", "503"),
        for_job_tokens=True,
    ),
)
