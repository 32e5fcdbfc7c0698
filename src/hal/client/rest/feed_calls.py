"""The calls of REST /v1 about ended attempts and registered readers; apart from `calls`: few programs need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct, field

from hal.client.rest.calls import Call, get, list_reader, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Request
from hal.core.model import AttemptState, InternalError, SpecError, to_json

PAGE_ROWS: Final = 2_000
"""How many ended attempts one request asks for."""
MAX_PAGE_ROWS: Final = 5_000
POLL_S: Final = 25.0
"""How long one request waits for the next end of an attempt."""
FILTERS: Final = ("state", "job", "user", "node", "since_ms", "until_ms")
"""What ended attempts can be filtered by."""


class NodesAsked(View, frozen=True, kw_only=True):
    """What was asked for on each of some nodes, which follow one another in rank order."""

    nodes: int
    amounts: dict[str, int] = field(default_factory=dict)
    """By resource, in base units: millicores, bytes, thousandths of a GPU."""


class Asked(View, frozen=True, kw_only=True):
    """What a job asked for."""

    submit_ms: int
    eligible_ms: int = 0
    """When it could have started first; 0: when it was submitted."""
    walltime_ms: int | None = None
    nodes: tuple[NodesAsked, ...] = ()
    """Of one task."""
    span: str = ""
    """Below which it was submitted; empty: it began its trace."""
    jobs: tuple[str, ...] = ()
    """For which it waited."""
    gated: bool = False
    """Its attempts wait at gates."""


class EndedAttemptInfo(View, frozen=True, kw_only=True):
    """An attempt that has ended."""

    sequence: int
    """Position in the order of the commits that ended them."""
    job: str
    task: int
    attempt: int
    state: AttemptState
    name: str = ""
    queue: str = ""
    account: str = ""
    user: str = ""
    trace_id: str = ""
    """Of its job: that of its `traceparent`, else of the request that submitted it."""
    nodes: tuple[str, ...] = ()
    """In rank order."""
    retries: int = 0
    """That its task had used when it began."""
    allocated_ms: int = 0
    start_ms: int | None = None
    end_ms: int = 0
    """By its node."""
    recorded_ms: int = 0
    """When its end was committed."""
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    truncated: bool = False
    """The message was cut for its length."""
    asked: Asked | None = None
    """What its job asked for; None where that was not wanted."""

    @property
    def id(self) -> str:
        """`42.7.1`: job, task, attempt."""
        return f"{self.job}.{self.task}.{self.attempt}"


class AttemptsPage(View, frozen=True, kw_only=True):
    """Ended attempts in commit order."""

    attempts: tuple[EndedAttemptInfo, ...] = ()
    cursor: str
    """Asks for what follows."""
    more: bool = False
    """There is more to read at once."""
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges [first, last] of sequence numbers that are no longer kept."""


class FeedPosition(Struct, frozen=True, kw_only=True):
    """How far a reader has read one feed."""

    read: int
    behind: int
    """How many have come since."""


class ReaderInfo(View, frozen=True, kw_only=True):
    """A registered reader."""

    name: str
    user: str = ""
    created_ms: int = 0
    heard_ms: int = 0
    """When it last acknowledged something, or was registered."""
    attempts: FeedPosition | None = None
    """None: it does not follow ended attempts."""
    events: FeedPosition | None = None


def attempts(
    filters: Mapping[str, str],
    *,
    after: str = "",
    limit: int = PAGE_ROWS,
    wait_s: float = 0.0,
    newest: bool = False,
    reader_name: str = "",
    asked: bool = False,
) -> Call[AttemptsPage]:
    """GET /v1/attempts, one page.

    Args:
        after: cursor; '': from the oldest that is kept, or where the reader was.
        wait_s: how long to wait for the first one.
        newest: the last ones instead.
        reader_name: the registered reader that reads.
        asked: also what each job asked for.
    """
    query = {**filters, "limit": str(limit)}
    if after:
        query["ended_after"] = after
    if wait_s:
        query["wait"] = f"{wait_s:.3f}"
    if newest:
        query["newest"] = "1"
    if reader_name:
        query["reader"] = reader_name
    if asked:
        query["asked"] = "1"
    return Call(Request("GET", "/v1/attempts", query=query, wait_s=wait_s), reader(AttemptsPage))


def next_cursor(page: AttemptsPage, after: str) -> str:
    """The cursor behind a page that was read behind `after`.

    Raises:
        InternalError: it does not ascend, so reading would never end.
    """
    text = page.cursor
    ascends = text.isascii() and text.isdigit() and int(text) >= int(after or "0")
    if not ascends or (page.attempts and text == after) or (page.more and text == (after or "0")):
        raise InternalError("the controller's answers do not progress: its list of ended attempts has no end")
    return text


def attempt_filters(names: Mapping[str, Any]) -> dict[str, str]:
    """Query parameters of a filter; what is None is left out.

    Raises:
        SpecError: a filter that does not exist.
    """
    out: dict[str, str] = {}
    for name, value in names.items():
        if name not in FILTERS:
            raise SpecError(f"'{name}' is not a filter", hint=f"filters: {', '.join(FILTERS)}")
        if value is None or value == "":
            continue
        several = name == "state" and not isinstance(value, str)
        out[name] = ",".join(str(one) for one in value) if several else str(value)
    return out


def readers() -> Call[tuple[ReaderInfo, ...]]:
    """GET /v1/readers"""
    return Call(get("/v1/readers"), list_reader("readers", ReaderInfo))


def register_reader(name: str, *, feeds: tuple[str, ...], begin: str) -> Call[ReaderInfo]:
    """PUT /v1/readers/{name}: twice is as once."""
    return Call(Request("PUT", _path(name), body=to_json({"feeds": list(feeds), "begin": begin})), reader(ReaderInfo))


def acknowledge(name: str, *, attempts: str = "", events: int | None = None) -> Call[ReaderInfo]:
    """POST /v1/readers/{name}/acknowledge: twice is as once."""
    read: dict[str, Any] = {"attempts": attempts} if attempts else {}
    if events is not None:
        read["events"] = events
    return Call(Request("POST", f"{_path(name)}/acknowledge", body=to_json(read)), reader(ReaderInfo))


def remove_reader(name: str) -> Call[ReaderInfo]:
    """DELETE /v1/readers/{name}"""
    return Call(Request("DELETE", _path(name), repeatable=False), reader(ReaderInfo))


def _path(name: str) -> str:
    if not name:
        raise SpecError("the reader's name is empty")
    return f"/v1/readers/{quote(name, safe='')}"
