"""`/v1/alerts` and `/v1/silences`: what is wrong, the rules, who is told of nothing, tests of routes.

Alerts name queues, nodes, limits and counts, which the controller shows to everybody: users see all of them. How routes
do, which may name hosts of the site, is for operators.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import yaml
from litestar import Response
from msgspec import Meta, Struct

from hal.core.model import NotFoundError, SpecError, parse_duration
from hal.daemons.collector.collector import Collector
from hal.planes.observability.alert_rules import Rule, rule_file
from hal.planes.observability.alerts.part import AlertsPart
from hal.planes.observability.alerts.states import AlertState, Silence
from hal.rest.call import Call
from hal.rest.endpoint import TEXT, Endpoint, Param, body_of
from hal.rest.rights import EVERYBODY, OPERATORS, Role

YAML: Final = "application/yaml"


class AlertView(Struct, frozen=True, kw_only=True):
    """One alert."""

    rule: str
    labels: dict[str, str]
    severity: str
    state: Annotated[str, Meta(description="`pending`, `firing` or `resolved`, kept for a day")]
    since_ms: int
    fired_ms: int | None
    resolved_ms: int | None
    value: float
    summary: str
    description: str
    detail: str
    runbook: str
    silence: Annotated[int | None, Meta(description="the silence that holds for it")] = None
    muted_by: Annotated[str, Meta(description="the rule that fires, and makes this one moot")] = ""


class RouteView(Struct, frozen=True, kw_only=True):
    """How a route does, since the collector began."""

    name: str
    kind: str
    sent: int
    dropped: int
    last_error: Annotated[str, Meta(description="why the last message was not taken; empty: it was")]


class AlertsView(Struct, frozen=True, kw_only=True):
    """What is wrong now, and was within a day: the worst and newest first."""

    alerts: list[AlertView]
    looked_ms: Annotated[int, Meta(description="when the controller was looked at last; 0: not yet")]
    answers: Annotated[bool, Meta(description="the controller answered then; else other alerts are as they were")]
    routes: Annotated[list[RouteView], Meta(description="for operators")] = []


class RuleView(Struct, frozen=True, kw_only=True):
    """One rule."""

    name: str
    severity: str
    expr: Annotated[str, Meta(description="as Prometheus is asked")]
    for_s: int
    summary: str
    description: str
    runbook: str


class RulesList(Struct, frozen=True, kw_only=True):
    """The rules that are on."""

    rules: list[RuleView]


class SilenceView(Struct, frozen=True, kw_only=True):
    """Alerts of which nobody is told."""

    id: int
    matchers: tuple[str, ...]
    from_ms: int
    until_ms: int
    author: str
    comment: str
    active: bool


class SilencesList(Struct, frozen=True, kw_only=True):
    """All silences, oldest first; a week after their end they are gone."""

    silences: list[SilenceView]


class SilenceBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Of which alerts nobody is to be told, and until when."""

    matchers: list[str]
    """All must fit: `rule=NodesDown`, `severity!=critical`, `queue=gpu*` or another label of the alert."""
    until_ms: int | None = None
    duration: Any = None
    """In place of `until_ms`: from now on (`2h`)."""
    comment: str = ""


class TestBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which route is tested."""

    route: str = ""
    """Empty: all."""


class TestOutcome(Struct, frozen=True, kw_only=True):
    """What became of a test alert on one route."""

    route: str
    ok: bool
    error: str


class TestOutcomes(Struct, frozen=True, kw_only=True):
    """What became of it on each."""

    results: list[TestOutcome]


def _part(collector: Collector) -> AlertsPart:
    if collector.alerts is None:
        raise NotFoundError("this collector has no alerts")
    return collector.alerts


async def list_alerts(collector: Collector, call: Call) -> AlertsView:
    """All of them, or those in one state."""
    part, wanted = _part(collector), call.params.text("state")
    if wanted and wanted not in list(AlertState):
        raise SpecError(f"state: '{wanted}' is none of an alert", hint=f"one of {', '.join(AlertState)}")
    alerts = [
        AlertView(
            rule=one.rule, labels=one.labels, severity=one.severity, state=one.state.value, since_ms=one.since_ms,
            fired_ms=one.fired_ms, resolved_ms=one.resolved_ms, value=_finite(one.value), summary=one.summary,
            description=one.description, detail=one.detail, runbook=one.runbook, silence=silence, muted_by=muted,
        )
        for one, silence, muted in part.alerts()
        if wanted in ("", one.state)
    ]  # fmt: skip
    routes = [] if call.visit.identity.role is Role.USER else _routes(collector, part)
    return AlertsView(alerts=alerts, looked_ms=part.looked_ms, answers=part.answers, routes=routes)


def _finite(value: float) -> float:
    return value if abs(value) < 1e300 else 0.0


def _routes(collector: Collector, part: AlertsPart) -> list[RouteView]:
    kinds = {route.name: route.kind for route in collector.section.alerts.routes}
    return [
        RouteView(name=name, kind=kinds[name], sent=one.sent, dropped=one.dropped, last_error=one.last_error)
        for name, one in part.routes.items()
    ]


async def list_rules(collector: Collector, call: Call) -> object:
    """The rules that are on; with `format=prometheus` as a rule file."""
    rules, wanted = _part(collector).rules, call.params.text("format")
    if wanted == "prometheus":
        text = yaml.safe_dump(rule_file(rules), sort_keys=False, width=1_000)
        return Response(content=text.encode(), media_type=YAML)
    if wanted:
        raise SpecError(f"format: '{wanted}' is unknown", hint="prometheus, or none for JSON")
    return RulesList(rules=[_rule(rule) for rule in rules])


def _rule(rule: Rule) -> RuleView:
    return RuleView(
        name=rule.name, severity=rule.severity, expr=rule.condition.promql(), for_s=rule.for_s, summary=rule.summary,
        description=rule.description, runbook=rule.runbook,
    )  # fmt: skip


async def test_routes(collector: Collector, call: Call) -> TestOutcomes:
    """Send a test alert now."""
    asked: TestBody = call.body
    call.visit.targets.append(f"route {asked.route or 'all'}")
    found = await _part(collector).test(asked.route)
    return TestOutcomes(results=[TestOutcome(route=name, ok=not why, error=why) for name, why in found.items()])


async def list_silences(collector: Collector, call: Call) -> SilencesList:
    """All of them."""
    return SilencesList(silences=[_silence(collector, one) for one in _part(collector).silences()])


async def add_silence(collector: Collector, call: Call) -> SilenceView:
    """Tell nobody of some alerts for a while."""
    asked: SilenceBody = call.body
    if (asked.until_ms is None) == (asked.duration is None):
        raise SpecError("until_ms, duration: one of them is needed", hint='{"duration": "2h"}')
    until_ms = asked.until_ms
    if until_ms is None:
        until_ms = collector.runtime.now_ms() + int(parse_duration(asked.duration, field="duration"))
    author = call.visit.identity.user
    made = await _part(collector).silence(asked.matchers, until_ms, author, asked.comment)
    call.visit.targets += [f"silence {made.id}", *made.matchers]
    return _silence(collector, made)


async def end_silence(collector: Collector, call: Call) -> SilenceView:
    """End one now."""
    text = call.path("silence")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise SpecError(f"'{text[:40]}' is not the number of a silence")
    call.visit.targets.append(f"silence {text}")
    return _silence(collector, await _part(collector).unsilence(int(text)))


def _silence(collector: Collector, one: Silence) -> SilenceView:
    return SilenceView(
        id=one.id, matchers=one.matchers, from_ms=one.from_ms, until_ms=one.until_ms, author=one.author,
        comment=one.comment, active=one.from_ms <= collector.runtime.now_ms() < one.until_ms,
    )  # fmt: skip


ROWS: Final = (
    Endpoint(
        method="GET", path="/v1/alerts", handler=list_alerts, right=EVERYBODY, name="listAlerts", tag="alerts",
        summary="List what is wrong now, and was within a day",
        params=(Param(name="state", text="only `pending`, `firing` or `resolved`", schema=TEXT),), result=AlertsView,
    ),
    Endpoint(
        method="GET", path="/v1/alerts/rules", handler=list_rules, right=EVERYBODY, name="listAlertRules",
        tag="alerts", summary="List the rules by which something is an alert",
        params=(Param(name="format", text="`prometheus`: as a rule file of Prometheus", schema=TEXT),),
        result=RulesList, media={YAML: {"type": "string"}},
    ),
    Endpoint(
        method="POST", path="/v1/alerts/test", handler=test_routes, right=OPERATORS, name="testAlertRoutes",
        tag="alerts", summary="Send a test alert to those who would be told", body=body_of(TestBody, {"all": {}}),
        result=TestOutcomes, problems=("404", "413"),
    ),
    Endpoint(
        method="GET", path="/v1/silences", handler=list_silences, right=EVERYBODY, name="listSilences", tag="alerts",
        summary="List silences", result=SilencesList,
    ),
    Endpoint(
        method="POST", path="/v1/silences", handler=add_silence, right=OPERATORS, name="addSilence", tag="alerts",
        summary="Tell nobody of some alerts for a while",
        body=body_of(
            SilenceBody,
            {"node": {"matchers": ["rule=NodesDown"], "duration": "2h", "comment": "new switch"}},
        ),
        result=SilenceView, status=201, problems=("409", "413", "503"),
    ),
    Endpoint(
        method="DELETE", path="/v1/silences/{silence}", handler=end_silence, right=OPERATORS, name="endSilence",
        tag="alerts", summary="End a silence now",
        params=(Param(name="silence", where="path", text="its number", schema=TEXT, example="1"),),
        result=SilenceView, problems=("404", "503"),
    ),
)  # fmt: skip
