"""The calls of the collector's REST /v1 about usage and ended attempts that it keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import field

from hal.client.flows.steps import Emit, Flow
from hal.client.rest.calls import Call, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Request
from hal.core.model import InternalError

PAGE_ROWS: Final = 5_000
"""Attempts that one request asks for."""
ANSWER_S: Final = 60.0
"""How long an answer about much may take."""


class UsageInfo(View, frozen=True, kw_only=True):
    """What some ended attempts had, used and cost: of a period, with a key in common. None: not known, or no sense."""

    key: str
    since_ms: int
    until_ms: int
    attempts: int = 0
    tasks: int = 0
    jobs: int = 0
    ran: int = 0
    states: dict[str, int] = field(default_factory=dict)
    ran_hours: float = 0.0
    core_hours: float = 0.0
    cpu_hours: float = 0.0
    cpu_efficiency: float | None = None
    partly_counted: int = 0
    unsuccessful_core_hours: float = 0.0
    idle_core_hours: float = 0.0
    memory_gib_hours: float = 0.0
    memory_efficiency: float | None = None
    peak_bytes: int = 0
    gpu_hours: float = 0.0
    gpu_efficiency: float | None = None
    measured_gpu_hours: float = 0.0
    idle_gpu_hours: float = 0.0
    walltime_efficiency: float | None = None
    waited: int = 0
    wait_s: float | None = None
    longest_wait_s: float = 0.0
    waits: dict[str, int] = field(default_factory=dict)
    """How many waited at most 1m, 10m, 1h, 6h, 1d."""
    read_bytes: int = 0
    written_bytes: int = 0
    energy_kwh: float = 0.0
    energy_measured: float = 0.0
    price: float | None = None


class LostInfo(View, frozen=True, kw_only=True):
    """Ended attempts that are in no sum: the controller no longer had them. Instants of 0 are not known."""

    first: int
    last: int
    since_ms: int = 0
    until_ms: int = 0


class UsageAnswer(View, frozen=True, kw_only=True):
    """Usage by what was asked for."""

    by: str
    period: str | None = None
    since_ms: int
    until_ms: int
    rows: tuple[UsageInfo, ...] = ()
    currency: str = ""
    rounded: str | None = None
    """Level to whose buckets an end of the range was rounded."""
    lost: tuple[LostInfo, ...] = ()


class KeptAttemptInfo(View, frozen=True, kw_only=True):
    """An ended attempt as the collector keeps it. Times are milliseconds; amounts are of all its nodes together."""

    id: int
    job: str
    task: int
    attempt: int
    state: str
    name: str = ""
    queue: str = ""
    account: str = ""
    user: str = ""
    trace_id: str = ""
    nodes: tuple[str, ...] = ()
    submit_ms: int | None = None
    eligible_ms: int | None = None
    allocated_ms: int = 0
    start_ms: int | None = None
    end_ms: int = 0
    retries: int = 0
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    cpu: int = 0
    memory_bytes: int = 0
    gpu: int = 0
    walltime_ms: int | None = None
    wait_ms: int | None = None
    ran_ms: int = 0
    core_ms: int = 0
    cpu_ms: int = 0
    partly_counted: bool = False
    peak_bytes: int = 0
    gpu_ms: int = 0
    gpu_used_ms: int | None = None
    gpu_counted_ms: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    energy_j: float = 0.0
    energy_measured: bool = False
    measured_energy_j: float = 0.0
    price: float | None = None
    parent_span: str = ""
    after_jobs: tuple[str, ...] = ()
    gated: bool = False


class KeptPage(View, frozen=True, kw_only=True):
    """Ended attempts as they came."""

    attempts: tuple[KeptAttemptInfo, ...] = ()
    cursor: str = ""


def usage(by: str, *, period: str = "", zone: str = "", **filters: Any) -> Call[UsageAnswer]:
    """GET /v1/usage; filters that are None or empty are left out."""
    query = {"by": by, **_given({"period": period, "zone": zone, **filters})}
    return Call(Request("GET", "/v1/usage", query=query, wait_s=ANSWER_S), reader(UsageAnswer))


def kept_attempts(filters: Mapping[str, Any]) -> Flow[KeptAttemptInfo]:
    """The steps of reading ended attempts, page by page.

    Raises:
        InternalError: the pages do not progress.
    """
    after = ""
    while True:
        query = _given({**filters, "limit": PAGE_ROWS, "after": after})
        page: KeptPage = yield Call(Request("GET", "/v1/attempts", query=query, wait_s=ANSWER_S), reader(KeptPage))
        for one in page.attempts:
            yield Emit(one)
        if not page.cursor:
            return
        if after and int(page.cursor) <= int(after):
            raise InternalError("the collector's answers do not progress: its list of attempts has no end")
        after = page.cursor


def _given(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value not in (None, "")}
