"""`GET /v1/logs/search` and `GET /v1/logs/{job}`: lines by their words, and all that a job has printed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from hal.core.model import NotFoundError, SpecError, shown
from hal.daemons.collector.collector import Collector
from hal.planes.observability.logs.lines import SEVERITIES, STEP, Source, severity_word
from hal.planes.observability.logs.part import LogsPart
from hal.planes.observability.logs.partition import Found
from hal.planes.observability.logs.store import MAX_PAGE_ROWS, PAGE_ROWS, Outputs, Wanted, cursor_of
from hal.planes.observability.logs.words import HOW, parse_search
from hal.rest.answers import streamed_answer
from hal.rest.call import Call
from hal.rest.endpoint import CURSOR, INT, TEXT, Endpoint, Param
from hal.rest.rights import OWNERS
from hal.wire.frames.telemetry import Severity

PLAIN: Final = "text/plain"
LINES: Final = "application/x-ndjson"
MAX_JOB: Final = (1 << 53) - 1
MAX_TASK: Final = (1 << 31) - 1
MAX_MS: Final = 1 << 53
STREAMS: Final = ("stdout", "stderr")


class LogLineView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line."""

    at_ms: int
    """When it was written; of a job's output when it was read."""
    severity: str
    component: str
    """`step` of what a job prints, else the process of HAL."""
    text: Annotated[str, Meta(description="as it was written: it may hold what acts on a terminal")]
    node: str = ""
    job: str = ""
    task: int = 0
    attempt: int = 0
    rank: int = 0
    stream: str = ""
    offset: int = 0
    """Of a job's output: where the line begins in it."""
    partial: bool = False
    """The line goes on in the next one."""
    user: str = ""
    trace_id: str = ""


class LogsPage(Struct, frozen=True, kw_only=True):
    """Lines, newest first."""

    lines: list[LogLineView]
    cursor: Annotated[
        str | None,
        Meta(description="asks for older ones, of which there may be none; null: there are no more"),
    ] = None


async def search(collector: Collector, call: Call) -> LogsPage:
    """A page of lines; users see those of their own jobs."""
    params = call.params
    limit = params.integer("limit", PAGE_ROWS, low=1, high=MAX_PAGE_ROWS)
    before = cursor_of(params.text("cursor"))
    severity = params.text("severity")
    if severity and severity not in SEVERITIES:
        raise SpecError(f"severity: '{shown(severity)}' is none", hint=f"one of {', '.join(SEVERITIES)}")
    wanted = Wanted(
        search=parse_search(params.text("query")),
        job=_job(params.text("job")) if params.text("job") else 0,
        tasks=_tasks(call),
        user=call.visit.identity.user if call.visit.own_only else None,
        node=params.text("node"),
        component=params.text("component"),
        severity=SEVERITIES[severity] if severity else Severity.TRACE,
        since_ms=params.optional_integer("since_ms", low=0, high=MAX_MS),
        until_ms=params.optional_integer("until_ms", low=0, high=MAX_MS),
    )
    page = await _logs(collector).page(wanted, limit, before)
    return LogsPage(lines=[view_of(found) for found in page.lines], cursor=str(page.before) if page.before else None)


async def read_job(collector: Collector, call: Call) -> object:
    """What a job has printed, as far as it was kept; the node need not exist any more."""
    logs, params, job = _logs(collector), call.params, _job(call.path("job"))
    user = call.visit.identity.user if call.visit.own_only else None
    stream = params.text("stream")
    if stream and stream not in STREAMS:
        raise SpecError(f"stream: '{shown(stream)}' is not one", hint="write stdout or stderr")
    attempt = params.optional_integer("attempt", low=1, high=MAX_TASK)
    rank = params.optional_integer("rank", low=0, high=MAX_TASK)
    tasks = _tasks(call)
    asked = Outputs(user=user, tasks=tasks, attempt=attempt, rank=rank, stream=stream)
    found = await logs.outputs(job, asked)
    call.visit.not_own = found.there and not found.mine
    if not found.number:
        raise NotFoundError(
            f"the collector has no output of job {job} like that",
            hint="it keeps what was printed while it ran, within [observability.logs] of hal.toml",
        )
    wanted = Wanted(job=job, user=user, tasks=tasks, component=STEP)
    content = _content(logs, wanted, found.outputs, several=found.number > 1, plain=not params.flag("records"))
    return streamed_answer(call, content, LINES if params.flag("records") else f"{PLAIN}; charset=utf-8")


async def _content(
    logs: LogsPart, wanted: Wanted, outputs: Outputs, *, several: bool, plain: bool
) -> AsyncIterator[bytes]:
    """The lines of these outputs, oldest first.

    Args:
        several: tasks or ranks: each line is behind whose it is.
    """
    begun: Source | None = None
    """The output whose line has no end yet."""
    after = 0
    while found := await logs.of_job(wanted, after):
        after = found[-1].id
        parts: list[bytes] = []
        for one in found:
            if not outputs.admit(one.source):
                continue
            if not plain:
                parts.append(_ENCODER.encode(view_of(one)) + b"\n")
                continue
            if begun is not None and begun != one.source:
                parts.append(b"\n")
                begun = None
            head = f"{one.source.task}.{one.source.rank}: " if several and begun is None else ""
            parts.append(f"{head}{one.line.text}".encode("utf-8", "replace") + (b"\n" if one.line.whole else b""))
            begun = None if one.line.whole else one.source
        if parts:
            yield b"".join(parts)


def view_of(found: Found) -> LogLineView:
    """A line as it is shown."""
    source, line = found.source, found.line
    return LogLineView(
        at_ms=line.at_ms,
        severity=severity_word(line.severity),
        component=source.component,
        text=line.text,
        node=source.node,
        job=str(source.job) if source.job else "",
        task=source.task,
        attempt=source.attempt,
        rank=source.rank,
        stream=source.stream,
        offset=line.offset,
        partial=not line.whole,
        user=source.user,
        trace_id=source.trace_id,
    )


def _logs(collector: Collector) -> LogsPart:
    if collector.logs is None:
        raise NotFoundError("this collector keeps no logs")
    return collector.logs


def _job(text: str) -> int:
    """
    Raises:
        NotFoundError: no job has that id.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and 0 < int(text) <= MAX_JOB):
        raise NotFoundError(f"there is no job '{shown(text)}'")
    return int(text)


def _tasks(call: Call) -> tuple[int, int] | None:
    if not call.params.text("task"):
        return None
    task = call.params.integer("task", 0, low=0, high=MAX_TASK)
    return task, task


_ENCODER: Final = msgspec.json.Encoder()
_JOB: Final = Param(name="job", text="of this job", schema=TEXT, example="42")
_TASK: Final = Param(name="task", text="of this task of the job", schema=INT)

ROWS: Final = (
    Endpoint(
        method="GET",
        path="/v1/logs/search",
        handler=search,
        right=OWNERS,
        name="searchLogs",
        tag="logs",
        summary="Search log lines, newest first",
        text="Users find what their own jobs have printed; operators everything, and what HAL's processes log. A page "
        "may have few lines, or none, while `cursor` says that there is more to look through.",
        params=(
            Param(name="query", text=f"{HOW}; empty: all lines", schema=TEXT, example="disk full"),
            _JOB,
            _TASK,
            Param(name="node", text="from this node", schema=TEXT),
            Param(name="component", text="`step` for what jobs print, or a process of HAL", schema=TEXT),
            Param(name="severity", text=f"at least: {', '.join(SEVERITIES)}", schema=TEXT, example="warning"),
            Param(name="since_ms", text="written at that time or later", schema=INT),
            Param(name="until_ms", text="written before that time", schema=INT),
            Param(
                name="limit",
                text="maximum number of lines on a page",
                schema={"type": "integer", "minimum": 1, "maximum": MAX_PAGE_ROWS, "default": PAGE_ROWS},
            ),
            CURSOR,
        ),
        result=LogsPage,
        problems=("404", "503"),
    ),
    Endpoint(
        method="GET",
        path="/v1/logs/{job}",
        handler=read_job,
        right=OWNERS,
        name="readJobLogs",
        tag="logs",
        summary="Read what a job has printed",
        text="As far as the collector has kept it, oldest first, of the newest attempt of each task. The node on which "
        "it ran need not exist any more. Where there are several tasks or ranks, each line begins with `TASK.RANK: `.",
        params=(
            Param(name="job", where="path", text="job id", schema=TEXT, example="42"),
            Param(name="task", text="of this task alone", schema=INT),
            Param(name="attempt", text="of this attempt, from 1", schema=INT),
            Param(name="rank", text="of this rank alone", schema=INT),
            Param(name="stream", text="`stdout` or `stderr` alone", schema=TEXT),
            Param(name="records", text="1: one JSON object a line instead of text", schema=TEXT),
        ),
        media={PLAIN: {"type": "string"}, LINES: {"type": "string"}},
        problems=("404", "503"),
    ),
)  # fmt: skip
