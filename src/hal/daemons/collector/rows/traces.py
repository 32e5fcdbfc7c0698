"""`GET /v1/traces/{job}`: the spans of a job, from the history and from what the controller knows of it now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from hal.core.model import HALError, NotFoundError
from hal.core.model.trace_ids import job_span
from hal.daemons.collector.collector import Collector
from hal.planes.observability.history.reading import KeptAttempt
from hal.planes.observability.history.usage import Wanted
from hal.planes.observability.traces.spans import (
    DEPENDENCY,
    Known,
    Span,
    SpanLink,
    live_attempt,
    spans_of_job,
)
from hal.rest.call import Call
from hal.rest.endpoint import INT, TEXT, Endpoint, Param
from hal.rest.rights import OWNERS

T = TypeVar("T")
MAX_JOB: Final = (1 << 53) - 1
MAX_TASK: Final = (1 << 31) - 1
DEFAULT_ATTEMPTS: Final = 200
MAX_ATTEMPTS: Final = 2_000
"""Of one answer."""
PAGE: Final = 2_000
MAX_PAGES: Final = 50
"""Of attempts that are looked through for one task."""
MAX_DEPENDENCIES: Final = 32
PARENT_AT: Final = slice(36, 52)
"""Of a traceparent: the id of the span."""


class TraceView(Struct, frozen=True, kw_only=True):
    """A job's trace."""

    job: str
    trace_id: str
    spans: list[Span]
    truncated: Annotated[bool, Meta(description="there are more attempts: name a task, or a higher limit")] = False


class _Job(Struct, frozen=True):
    """What is used of the controller's view of a job."""

    name: str = ""
    user: str = ""
    trace_id: str = ""
    submit_ms: int | None = None
    end_ms: int | None = None
    spec: dict[str, Any] = {}


class _Task(Struct, frozen=True):
    task: int
    state: str = ""
    attempt: int | None = None
    start_ms: int | None = None
    nodes: tuple[str, ...] = ()


class _Tasks(Struct, frozen=True):
    tasks: tuple[_Task, ...] = ()


async def get_trace(collector: Collector, call: Call) -> TraceView:
    """Spans of a job; another user's is as if it did not exist."""
    text, visit = call.path("job"), call.visit
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and 0 < int(text) <= MAX_JOB):
        raise NotFoundError("there is no such job")
    job, limit = int(text), call.params.integer("limit", DEFAULT_ATTEMPTS, low=1, high=MAX_ATTEMPTS)
    task = call.params.optional_integer("task", low=0, high=MAX_TASK)
    me = visit.identity.user if visit.own_only else ""
    attempts, truncated = await _attempts(collector, job, Wanted(seen_by=me), task, limit)
    known = await _ask(collector, f"/v1/jobs/{job}", _Job)
    if known is not None and me and known.user != me:
        visit.not_own = True
        known = None
    if not attempts and known is None:
        raise NotFoundError(f"there is no job {job}, or nothing of it is kept any more")
    trace_id = (known.trace_id if known is not None else "") or (attempts[0].trace_id if attempts else "")
    if len(trace_id) != 32:
        raise NotFoundError(f"job {job} has no trace", hint="it was submitted before HAL kept traces")
    facts = await _known(collector, job, trace_id, known, attempts, me)
    running: list[Span] = []
    if known is not None and known.end_ms is None:
        running = await _running(collector, facts, attempts, task, limit)
    spans = spans_of_job(facts, attempts, running)
    if collector.traces is not None:
        there = {span.span_id for span in spans}
        sent = await collector.traces.sent_of_job(job, trace_id, of_none=not me)
        spans += [
            span
            for span in sent
            if span.span_id not in there and (task is None or span.attributes.get("hal.task", task) == task)
        ]
    return TraceView(job=text, trace_id=trace_id, spans=spans, truncated=truncated)


async def _attempts(
    collector: Collector, job: int, wanted: Wanted, task: int | None, limit: int
) -> tuple[list[KeptAttempt], bool]:
    """The attempts that have ended, by task; and whether there are more."""
    history = collector.history
    assert history is not None  # the collector is assembled with it
    found: list[KeptAttempt] = []
    after = 0
    for _ in range(MAX_PAGES):
        page = await history.attempts_of(job, wanted, after, PAGE)
        found += [one for one in page if task is None or one.task == task]
        if len(page) < PAGE or len(found) > limit:
            break
        after = page[-1].id
    found.sort(key=lambda one: (one.task, one.attempt))
    return found[:limit], len(found) > limit


async def _known(
    collector: Collector, job: int, trace_id: str, known: _Job | None, attempts: Sequence[KeptAttempt], me: str
) -> Known:
    spec = known.spec if known is not None else {}
    gates = await collector.traces.gates_of(job) if collector.traces is not None else []
    first = attempts[0] if attempts else None
    dependencies = spec.get("dependencies") or [{"job": one} for one in (first.after_jobs if first else ())]
    return Known(
        job=job,
        trace_id=trace_id,
        name=known.name if known is not None else attempts[0].name if attempts else "",
        parent_id=str(spec.get("traceparent", ""))[PARENT_AT] or (first.parent_span if first else ""),
        links=await _links(collector, dependencies, me),
        gates=gates,
        submit_ms=known.submit_ms if known is not None else attempts[0].submit_ms if attempts else None,
        ended_ms=known.end_ms if known is not None else None,
    )


async def _links(collector: Collector, dependencies: Sequence[dict[str, Any]], me: str) -> tuple[SpanLink, ...]:
    """To the jobs that it waited for, as far as the caller may see them."""
    named = [one for each in dependencies for one in (each.get("any_of") or (each,))]
    links: list[SpanLink] = []
    for one in named[:MAX_DEPENDENCIES]:
        job = str(one.get("job", ""))
        if not (job.isascii() and job.isdigit() and len(job) <= 16):
            continue
        other = await _ask(collector, f"/v1/jobs/{job}", _Job)
        if other is not None and len(other.trace_id) == 32 and (not me or other.user == me):
            links.append(SpanLink(other.trace_id, job_span(other.trace_id, int(job)), DEPENDENCY))
    return tuple(links)


async def _running(
    collector: Collector, facts: Known, attempts: Sequence[KeptAttempt], task: int | None, limit: int
) -> list[Span]:
    """Spans of attempts that have not ended."""
    ended = {(one.task, one.attempt) for one in attempts}
    query = {"state": "running", "limit": str(min(limit, 1_000))}
    found = await _ask(collector, f"/v1/jobs/{facts.job}/tasks", _Tasks, query)
    return [
        span
        for one in (found.tasks if found is not None else ())
        if (task is None or one.task == task) and one.attempt and (one.task, one.attempt) not in ended
        for span in live_attempt(facts, one.task, one.attempt, one.start_ms, one.nodes)
    ]


async def _ask(collector: Collector, path: str, kind: type[T], query: dict[str, str] | None = None) -> T | None:
    """What the controller says; None: it does not know, or does not answer: the history has the rest."""
    if collector.controller is None:
        return None
    try:
        return msgspec.json.decode(await collector.controller.ask("GET", path, query), type=kind)
    except (HALError, msgspec.DecodeError):
        return None


ROWS: Final = (
    Endpoint(
        method="GET",
        path="/v1/traces/{job}",
        handler=get_trace,
        right=OWNERS,
        name="getTrace",
        tag="traces",
        summary="Show where the time of a job went, as spans",
        text="The job's span, one for each attempt, and below it what it waited for and did. The ids are those that "
        "the job's processes have in TRACEPARENT, and that are sent to receivers of OTLP.",
        params=(
            Param(name="job", where="path", text="job id", schema=TEXT, example="42"),
            Param(name="task", text="of this task alone", schema=INT),
            Param(
                name="limit",
                text="most attempts",
                schema={"type": "integer", "minimum": 1, "maximum": MAX_ATTEMPTS, "default": DEFAULT_ATTEMPTS},
            ),
        ),
        result=TraceView,
        problems=("404", "503"),
    ),
)  # fmt: skip
