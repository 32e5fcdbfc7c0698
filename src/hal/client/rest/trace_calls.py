"""The calls of the collector's REST /v1 about traces."""

from __future__ import annotations

from typing import Any

from msgspec import field

from hal.client.rest.calls import Call, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Request


class SpanLinkInfo(View, frozen=True, kw_only=True):
    """Another span that a span follows from."""

    trace_id: str
    span_id: str
    why: str = ""
    """`former-attempt`, `dependency`."""


class SpanInfo(View, frozen=True, kw_only=True):
    """One span of a trace; instants are milliseconds since 1970."""

    name: str
    span_id: str
    parent_id: str = ""
    start_ms: int
    end_ms: int | None = None
    """None: it has not ended."""
    status: str = "unset"
    """`unset`, `ok`, `error`."""
    message: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    links: tuple[SpanLinkInfo, ...] = ()


class TraceInfo(View, frozen=True, kw_only=True):
    """The trace of a job: its own span first, those below it in order."""

    job: str
    trace_id: str
    spans: tuple[SpanInfo, ...] = ()
    truncated: bool = False


def trace(job: str, *, task: int | None = None, limit: int | None = None) -> Call[TraceInfo]:
    """GET /v1/traces/{job}"""
    query = {name: str(value) for name, value in (("task", task), ("limit", limit)) if value is not None}
    return Call(Request("GET", f"/v1/traces/{job}", query=query), reader(TraceInfo))
