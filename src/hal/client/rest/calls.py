"""Every call of REST /v1 as a request and how its answer is read; what the sync and the async client share.

Pure apart from fresh idempotency keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import quote, unquote

import msgspec

from hal.client.rest.decoders import convert, decode
from hal.client.rest.server_events import ServerEvent
from hal.client.rest.views import (
    ControllersInfo,
    EventInfo,
    HealthInfo,
    JobInfo,
    LedgerInfo,
    LogPart,
    NodeInfo,
    NotificationsInfo,
    Outcome,
    PriorityInfo,
    QueueInfo,
    ScoresInfo,
    ShareInfo,
    TaskInfo,
    UpdatedInfo,
    WhyInfo,
)
from hal.client.transport.exchange import Answer, Request
from hal.client.transport.problems import error_from_answer
from hal.core.model import Forecast, InternalError, SpecError, shown, to_json

if TYPE_CHECKING:
    from hal.core.model import JobSpec

T = TypeVar("T")
R = TypeVar("R", covariant=True)

MAX_DIGITS = 19
"""Of a count in a header."""
PAGE_ITEMS = 500
"""How many jobs, tasks or events one request asks for."""
LONG_POLL_S = 25.0
"""How long one request waits for a job's end."""
JOBS_A_SECOND = 1_000
"""A submission may take longer to answer by its number of jobs; many times what it takes."""
MAX_IDS_A_CALL = 10_000
"""Ids named in one request; more are split."""


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A request, and what its answer means."""

    request: Request
    read: Callable[[Answer], R]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a listing; `cursor` asks for the next one."""

    items: tuple[T, ...]
    cursor: str = ""

    def next(self, cursor: str) -> str:
        """The cursor of the page that follows this one, which `cursor` asked for; '' where there is none.

        Raises:
            InternalError: it is the same, so the listing would never end.
        """
        if self.cursor and self.cursor == cursor:
            raise InternalError("the controller's listing has no end: a page names itself as the next one")
        return self.cursor


def number_in(headers: Mapping[str, str], name: str, otherwise: int) -> int:
    """The count in a header of an answer; `otherwise` where it has none.

    Raises:
        InternalError: something else stands there.
    """
    text = headers.get(name) or str(otherwise)
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise InternalError(f"the controller's answer is not understood: {name}: '{shown(text)}' is not a count")
    return int(text)


class Numbered(Protocol):
    """An event, or an entry of the audit log."""

    @property
    def sequence(self) -> int: ...


def last_sequence(items: Sequence[Numbered], after: int) -> int:
    """The number behind which reading continues after these items.

    Raises:
        InternalError: they are not behind `after`, so reading would never end.
    """
    last = items[-1].sequence
    if last <= after:
        raise InternalError(f"the controller's answers do not progress: {last} came after {after}")
    return last


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a submission."""

    ids: tuple[str, ...] = ()
    jobs: tuple[JobInfo, ...] = ()
    warnings: tuple[str, ...] = ()
    """What there is to know about jobs that are accepted all the same."""
    forecasts: tuple[Forecast, ...] = ()
    """Of a dry run of up to eight jobs: when each would start, in their order."""


def submit(specs: Sequence[JobSpec], *, dry_run: bool = False, key: str | None = None) -> Call[Submitted]:
    """POST /v1/jobs; with a key, so that sending it twice submits once."""
    request = Request(
        "POST",
        "/v1/jobs",
        query={"dry_run": "1"} if dry_run else {},
        body=to_json({"jobs": specs}),
        headers={"Idempotency-Key": key or fresh_key()},
        wait_s=len(specs) / JOBS_A_SECOND,
    )
    return Call(request, reader(Submitted))


def job(job_id: str, *, listed: bool = False, all_dependants: bool = False) -> Call[JobInfo]:
    """GET /v1/jobs/{id}

    Args:
        listed: with why it waits and where it runs, as a listing can show it.
        all_dependants: with the jobs of the same user that depend on it and no longer wait, too.
    """
    query = {"reasons": "1", "placed": "1"} if listed else {}
    if all_dependants:
        query["all_dependants"] = "1"
    return Call(Request("GET", f"/v1/jobs/{_part(job_id)}", query=query), reader(JobInfo))


def wait(job_id: str, timeout_s: float) -> Call[JobInfo]:
    """GET /v1/jobs/{id}/wait: the job, ended or not, after at most `timeout_s`."""
    request = Request(
        "GET", f"/v1/jobs/{_part(job_id)}/wait", query={"timeout_s": f"{timeout_s:.3f}"}, wait_s=timeout_s
    )
    return Call(request, reader(JobInfo))


def jobs(filters: Mapping[str, str], *, limit: int = PAGE_ITEMS, cursor: str = "") -> Call[Page[JobInfo]]:
    """GET /v1/jobs"""
    return Call(paged("/v1/jobs", filters, limit, cursor), page_reader("jobs", JobInfo))


def tasks(
    job_id: str, *, state: str = "", named: str = "", limit: int = PAGE_ITEMS, cursor: str = ""
) -> Call[Page[TaskInfo]]:
    """GET /v1/jobs/{id}/tasks; named: `7-9` by number, `[7-9]` by index."""
    filters = {name: text for name, text in (("state", state), ("tasks", named)) if text}
    return Call(paged(f"/v1/jobs/{_part(job_id)}/tasks", filters, limit, cursor), page_reader("tasks", TaskInfo))


def task(job_id: str, number: int) -> Call[TaskInfo]:
    """GET /v1/jobs/{id}/tasks/{t}: with all its attempts."""
    return Call(get(f"/v1/jobs/{_part(job_id)}/tasks/{number}"), reader(TaskInfo))


def update(job_id: str, fields: Mapping[str, Any], *, dry_run: bool = False) -> Call[UpdatedInfo]:
    """PATCH /v1/jobs/{id}"""
    path = f"/v1/jobs/{_part(job_id)}{'?dry_run=1' if dry_run else ''}"
    return Call(Request("PATCH", path, body=to_json(dict(fields))), reader(UpdatedInfo))


def control(
    action: str,
    ids: Sequence[str],
    filters: Mapping[str, str] | None = None,
    details: Mapping[str, Any] | None = None,
    *,
    dry_run: bool = False,
) -> Call[tuple[Outcome, ...]]:
    """POST /v1/jobs/{cancel,hold,release,requeue,evict}; `details`: further fields of the body."""
    body: dict[str, Any] = dict(details or {}) | ({"ids": list(ids)} if ids else {})
    if filters:
        body["filter"] = dict(filters)
    request = Request(
        "POST",
        f"/v1/jobs/{action}",
        query={"dry_run": "1"} if dry_run else {},
        body=to_json(body),
        headers={"Idempotency-Key": fresh_key()},
        # A second cancel, hold or release changes nothing. A second requeue or eviction would, and its key is
        # remembered only when all of it worked: for one job that is enough.
        repeatable=dry_run or action not in ("requeue", "evict") or (len(ids) == 1 and not filters),
    )
    return Call(request, list_reader("results", Outcome))


def remove(
    ids: Sequence[str],
    filters: Mapping[str, str] | None = None,
    ended_before_ms: int | None = None,
    *,
    states: str = "",
) -> Call[tuple[Outcome, ...]]:
    """POST /v1/jobs/remove; states: of what the ids name, only tasks that ended so."""
    body: dict[str, Any] = {"ids": list(ids)} if ids else {}
    if states:
        body["states"] = states
    if filters:
        body["filter"] = dict(filters)
    if ended_before_ms is not None:
        body["ended_before_ms"] = ended_before_ms
    # A second removal by id would report the jobs as unknown.
    request = Request("POST", "/v1/jobs/remove", body=to_json(body), repeatable=not ids)
    return Call(request, list_reader("results", Outcome))


def eviction(mode: str, reason: str, within: str) -> dict[str, str]:
    """How work is evicted, as fields of a body; what is empty is left to the controller."""
    return {name: text for name, text in (("mode", mode), ("reason", reason), ("within", within)) if text}


def why(job_id: str) -> Call[WhyInfo]:
    """GET /v1/jobs/{id}/why"""
    return Call(get(f"/v1/jobs/{_part(job_id)}/why"), reader(WhyInfo))


def scores(job_id: str, limit: int) -> Call[ScoresInfo]:
    """GET /v1/jobs/{id}/scores"""
    return Call(get(f"/v1/jobs/{_part(job_id)}/scores?limit={limit}"), reader(ScoresInfo))


def log(
    job_id: str,
    *,
    task: int = 0,
    attempt: int | None = None,
    rank: int = 0,
    stream: str = "stdout",
    offset: int = 0,
    limit: int | None = None,
    follow: bool = False,
) -> Call[LogPart]:
    """GET /v1/jobs/{id}/logs; with `follow` the answer lasts until the file is complete."""
    query = {"task": str(task), "rank": str(rank), "stream": stream, "offset": str(offset)}
    if attempt is not None:
        query["attempt"] = str(attempt)
    if limit is not None:
        query["limit"] = str(limit)
    if follow:
        query["follow"] = "1"
    headers = {"Accept": "application/octet-stream, application/problem+json"}
    return Call(Request("GET", f"/v1/jobs/{_part(job_id)}/logs", query=query, headers=headers), _read_log)


def outputs(
    job_id: str,
    *,
    stream: str = "stdout",
    tasks: str = "",
    states: str = "",
    rank: int = 0,
    offset: int = 0,
    limit: int | None = None,
    after: int = -1,
) -> Request:
    """GET /v1/jobs/{id}/outputs: pieces of outputs, each behind a line that says whose it is."""
    query = {"stream": stream, "rank": str(rank), "offset": str(offset), "after": str(after)}
    query |= {name: text for name, text in (("tasks", tasks), ("state", states)) if text}
    if limit is not None:
        query["limit"] = str(limit)
    headers = {"Accept": "application/vnd.hal.outputs, application/problem+json"}
    return Request("GET", f"/v1/jobs/{_part(job_id)}/outputs", query=query, headers=headers)


def nodes() -> Call[tuple[NodeInfo, ...]]:
    """GET /v1/nodes"""
    return Call(get("/v1/nodes"), list_reader("nodes", NodeInfo))


def nodes_page(*, limit: int, cursor: str = "") -> Call[Page[NodeInfo]]:
    """GET /v1/nodes, a page of them by name."""
    return Call(paged("/v1/nodes", {}, limit, cursor), page_reader("nodes", NodeInfo))


def node(name: str) -> Call[NodeInfo]:
    """GET /v1/nodes/{name}"""
    return Call(get(f"/v1/nodes/{_part(name)}"), reader(NodeInfo))


def fence(name: str, machine_gone: bool = False, reason: str = "") -> Call[NodeInfo]:
    """POST /v1/nodes/{name}/fence"""
    body: dict[str, Any] = {"machine_gone": True} if machine_gone else {}
    body |= {"reason": reason} if reason else {}
    return Call(Request("POST", f"/v1/nodes/{_part(name)}/fence", body=to_json(body)), reader(NodeInfo))


def control_nodes(
    action: str, names: Sequence[str], reason: str = "", details: Mapping[str, Any] | None = None
) -> Call[tuple[Outcome, ...]]:
    """POST /v1/nodes/{cordon,uncordon,drain,taint,untaint,remove}: twice is as once; `details`: further fields."""
    body: dict[str, Any] = dict(details or {}) | {"nodes": list(names)} | ({"reason": reason} if reason else {})
    return Call(Request("POST", f"/v1/nodes/{action}", body=to_json(body)), list_reader("results", Outcome))


def node_wait(name: str, timeout_s: float) -> Call[NodeInfo]:
    """GET /v1/nodes/{name}/wait: the node, empty or not, after at most `timeout_s`."""
    query = {"timeout_s": f"{timeout_s:.3f}"}
    return Call(Request("GET", f"/v1/nodes/{_part(name)}/wait", query=query, wait_s=timeout_s), reader(NodeInfo))


def queues() -> Call[tuple[QueueInfo, ...]]:
    """GET /v1/queues"""
    return Call(get("/v1/queues"), list_reader("queues", QueueInfo))


def shares() -> Call[tuple[ShareInfo, ...]]:
    """GET /v1/shares"""
    return Call(get("/v1/shares"), list_reader("shares", ShareInfo))


def ledgers() -> Call[tuple[LedgerInfo, ...]]:
    """GET /v1/ledgers"""
    return Call(get("/v1/ledgers"), list_reader("ledgers", LedgerInfo))


def priority(job: int) -> Call[PriorityInfo]:
    """GET /v1/jobs/{job}/priority"""
    return Call(get(f"/v1/jobs/{job}/priority"), reader(PriorityInfo))


def events(after: int, *, job_id: str = "", limit: int = PAGE_ITEMS) -> Call[Page[EventInfo]]:
    """GET /v1/events, one page."""
    query = {"after": str(after), "limit": str(limit)} | ({"job": job_id} if job_id else {})
    return Call(Request("GET", "/v1/events", query=query), page_reader("events", EventInfo))


def event_stream(after: int | None, *, job_id: str = "") -> Request:
    """GET /v1/events as server-sent events; None: from now on."""
    query = ({"after": str(after)} if after is not None else {}) | ({"job": job_id} if job_id else {})
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": str(after)} if after is not None else {})
    return Request("GET", "/v1/events", query=query, headers=headers)


def health() -> Call[HealthInfo]:
    """GET /v1/health"""
    return Call(get("/v1/health"), reader(HealthInfo))


def metrics() -> Call[str]:
    """GET /v1/metrics"""
    return Call(get("/v1/metrics"), lambda answer: answer.body.decode(errors="backslashreplace"))


def notifications() -> Call[NotificationsInfo]:
    """GET /v1/notifications"""
    return Call(get("/v1/notifications"), reader(NotificationsInfo))


def controllers() -> Call[ControllersInfo]:
    """GET /v1/controllers"""
    return Call(get("/v1/controllers"), reader(ControllersInfo))


def version() -> Call[dict[str, Any]]:
    """GET /v1/version"""
    return Call(get("/v1/version"), reader(dict[str, Any]))


def read_event(sent: ServerEvent) -> EventInfo | None:
    """The event in a server-sent event; None for one that only announces the end of the stream.

    Raises:
        HALError: the controller cannot provide the feed.
    """
    if sent.event in ("lagged", "closed"):
        return None
    if sent.event == "error":
        raise error_from_answer(500, sent.data.encode())
    return _decode(sent.data.encode(), EventInfo)


def filters_of(names: Mapping[str, Any], *, listing: bool = False) -> dict[str, str]:
    """Query parameters of a filter; what is None is left out.

    Args:
        names: `state` (one, or several of which any counts), `label` (`k`, `k=v`, several or a dict, all of which
            count), and one each of user, queue, name, account.
        listing: whether those of a listing of jobs are known, too.
    Raises:
        SpecError: a filter that does not exist, or several values where one is meant.
    """
    out: dict[str, str] = {}
    for name, value in names.items():
        if name not in FILTERS and not (listing and name in LISTING):
            known = (*FILTERS, *LISTING) if listing else FILTERS
            raise SpecError(f"'{name}' is not a filter", hint=f"filters: {', '.join(known)}")
        if value is None or value == "" or value is False:
            continue
        if value is True:
            value = "true"
        if isinstance(value, Mapping):
            value = [f"{key}={text}" for key, text in value.items()]
        values = (
            [str(one) for one in value] if isinstance(value, Sequence) and not isinstance(value, str) else [str(value)]
        )
        if len(values) > 1 and name not in ("state", "label"):
            raise SpecError(
                f"{name}: this filter takes only one value",
                hint=f"ask once for each {name}; only state and label take several",
            )
        if values:
            out[name] = ",".join(values)
    return out


FILTERS = ("state", "user", "queue", "name", "account", "label")
"""What jobs can be filtered by."""
LISTING = ("node", "submitted_from_ms", "submitted_before_ms", "reasons", "placed")
"""What a listing of jobs knows beside these: filters, and what to show beside each job."""


def fresh_key() -> str:
    """An idempotency key that nobody used before."""
    return os.urandom(16).hex()


def get(path: str) -> Request:
    """A request that only reads."""
    return Request("GET", path)


def paged(path: str, filters: Mapping[str, str], limit: int, cursor: str) -> Request:
    """A request for one page of a listing."""
    return Request("GET", path, query={**filters, "limit": str(limit)} | ({"cursor": cursor} if cursor else {}))


def _part(text: str) -> str:
    """Text as one segment of a path."""
    if not text:
        raise SpecError("the id or name is empty", hint="hal jobs and hal nodes list them")
    return quote(text, safe="")


def reader(kind: type[T]) -> Callable[[Answer], T]:
    """How an answer that is one value is read."""
    return lambda answer: _decode(answer.body, kind)


def page_reader(name: str, kind: type[T]) -> Callable[[Answer], Page[T]]:
    """A table with a list under `name` and, when there is more, a `cursor`."""

    def read(answer: Answer) -> Page[T]:
        raw = _decode(answer.body, dict[str, Any])
        listed = raw.get(name) or []
        if not isinstance(listed, list):
            raise _not_understood(TypeError(f"'{name}' is not a list"))
        items = tuple(_convert(item, kind) for item in listed)
        return Page(items, str(raw.get("cursor") or ""))

    return read


def list_reader(name: str, kind: type[T]) -> Callable[[Answer], tuple[T, ...]]:
    """How an answer that is a list under `name` is read."""
    read_page = page_reader(name, kind)
    return lambda answer: read_page(answer).items


def _read_log(answer: Answer) -> LogPart:
    start = number_in(answer.headers, "hal-log-offset", 0)
    return LogPart(
        data=answer.body,
        offset=start,
        size=number_in(answer.headers, "hal-log-size", start + len(answer.body)),
        ended=answer.headers.get("hal-log-ended", "").lower() in ("1", "true"),
        path=unquote(answer.headers.get("hal-log-path", "")),
        node=answer.headers.get("hal-log-node", ""),
    )


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return decode(body, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_understood(error) from error


def _convert(raw: Any, kind: type[T]) -> T:
    try:
        return convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _not_understood(error) from error


def _not_understood(error: Exception) -> InternalError:
    return InternalError(
        f"the controller's answer is not understood: {error}",
        hint="its version may differ: compare `hal --version` and `hal status`",
    )
