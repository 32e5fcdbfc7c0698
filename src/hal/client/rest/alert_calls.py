"""The calls of the collector's REST /v1 about alerts and silences."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from hal.client.rest.calls import Call, get, list_reader, reader
from hal.client.rest.views import View
from hal.client.transport.exchange import Answer, Request
from hal.core.model import to_json


class AlertInfo(View, frozen=True, kw_only=True):
    """One thing that is, or was, wrong."""

    rule: str
    severity: str
    state: str
    """`pending`, `firing` or `resolved`."""
    labels: dict[str, str] = field(default_factory=dict)
    since_ms: int = 0
    fired_ms: int | None = None
    resolved_ms: int | None = None
    value: float = 0.0
    summary: str = ""
    description: str = ""
    detail: str = ""
    """Names of what is meant, where the labels do not say it."""
    runbook: str = ""
    silence: int | None = None
    """The silence that holds for it."""
    muted_by: str = ""
    """The rule that fires, and makes this one moot."""


class AlertRouteInfo(View, frozen=True, kw_only=True):
    """How a route does."""

    name: str
    kind: str = ""
    sent: int = 0
    dropped: int = 0
    last_error: str = ""


class AlertsInfo(View, frozen=True, kw_only=True):
    """The worst and newest first."""

    alerts: tuple[AlertInfo, ...] = ()
    looked_ms: int = 0
    answers: bool = True
    """The controller answered when it was looked at last."""
    routes: tuple[AlertRouteInfo, ...] = ()
    """For operators."""


class SilenceInfo(View, frozen=True, kw_only=True):
    """Alerts of which nobody is told."""

    id: int
    matchers: tuple[str, ...] = ()
    from_ms: int = 0
    until_ms: int = 0
    author: str = ""
    comment: str = ""
    active: bool = False


class TestOutcomeInfo(View, frozen=True, kw_only=True):
    """What became of a test alert on one route."""

    route: str
    ok: bool = True
    error: str = ""


def alerts(state: str = "") -> Call[AlertsInfo]:
    """GET /v1/alerts"""
    return Call(Request("GET", "/v1/alerts", query={"state": state} if state else {}), reader(AlertsInfo))


def prometheus_rules() -> Call[str]:
    """GET /v1/alerts/rules as a rule file of Prometheus."""

    def text(answer: Answer) -> str:
        return answer.body.decode(errors="replace")

    return Call(Request("GET", "/v1/alerts/rules", query={"format": "prometheus"}), text)


def silences() -> Call[tuple[SilenceInfo, ...]]:
    """GET /v1/silences"""
    return Call(get("/v1/silences"), list_reader("silences", SilenceInfo))


def silence(matchers: Sequence[str], until_ms: int, comment: str) -> Call[SilenceInfo]:
    """POST /v1/silences; sending it twice would make two."""
    body = to_json({"matchers": list(matchers), "until_ms": until_ms, "comment": comment})
    return Call(Request("POST", "/v1/silences", body=body, repeatable=False), reader(SilenceInfo))


def unsilence(number: int) -> Call[SilenceInfo]:
    """DELETE /v1/silences/{id}"""
    return Call(Request("DELETE", f"/v1/silences/{number}"), reader(SilenceInfo))


def test(route: str) -> Call[tuple[TestOutcomeInfo, ...]]:
    """POST /v1/alerts/test"""
    request = Request("POST", "/v1/alerts/test", body=to_json({"route": route} if route else {}), repeatable=False)
    return Call(request, list_reader("results", TestOutcomeInfo))
