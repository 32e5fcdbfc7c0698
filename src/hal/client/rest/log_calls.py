"""The calls of the collector's REST /v1 about log lines."""

from __future__ import annotations

from typing import Any, Final

from hal.client.flows.steps import Emit, Flow, Listen, Read
from hal.client.rest.calls import Call, paged, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Request

MAX_PAGE_ROWS: Final = 1_000


class LogLineInfo(View, frozen=True, kw_only=True):
    """A line that a job has printed, or a process of HAL has logged."""

    at_ms: int
    severity: str
    component: str
    """`step` of what a job prints, else the process."""
    text: str
    """As it was written: it may hold what acts on a terminal."""
    node: str = ""
    job: str = ""
    task: int = 0
    attempt: int = 0
    rank: int = 0
    stream: str = ""
    offset: int = 0
    partial: bool = False
    """The line goes on in the next one."""
    user: str = ""
    trace_id: str = ""

    @property
    def source(self) -> str:
        """Where it comes from: `42.7`, or the process and its node."""
        if self.component == "step":
            return f"{self.job}.{self.task}" + (f"/{self.rank}" if self.rank else "")
        return f"{self.component}@{self.node}" if self.node else self.component


class LogsPage(View, frozen=True, kw_only=True):
    """Lines, newest first."""

    lines: tuple[LogLineInfo, ...] = ()
    cursor: str | None = None
    """Asks for older ones."""


def search(filters: dict[str, Any], *, limit: int, cursor: str = "") -> Call[LogsPage]:
    """GET /v1/logs/search, one page; what is None or empty in the filters is left out."""
    query = {name: str(value) for name, value in filters.items() if value not in (None, "")}
    return Call(paged("/v1/logs/search", query, limit, cursor), reader(LogsPage))


def kept_output(job: str, filters: dict[str, Any]) -> Flow[bytes]:
    """The steps of reading what the collector has kept of a job's output, oldest first."""
    query = {name: str(value) for name, value in filters.items() if value not in (None, "")}
    yield Listen(Request("GET", f"/v1/logs/{job}", query=query))
    while (piece := (yield Read())) is not None:
        yield Emit(piece)
