"""Alerts over time: pending, firing, resolved. Pure.

A condition that holds makes an alert pending; when it has held for the rule's time, the alert fires; when it does not
hold any more, it is resolved. What cannot be known changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hal.core.model.alert_config import SEVERITIES
from hal.core.model.name_patterns import name_matches
from hal.planes.observability.alert_rules import Rule
from hal.planes.observability.alerts.recording import Labels

MAX_ALERTS: Final = 2_000
"""At once; further ones are counted."""
RESOLVED_KEPT_MS: Final = 24 * 3_600_000
RULE: Final = "rule"
SEVERITY: Final = "severity"


class AlertState(StrEnum):
    """Of an alert."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Alert(Struct, frozen=True, kw_only=True):
    """One thing that is, or was, wrong."""

    rule: str
    labels: dict[str, str]
    severity: str
    state: AlertState
    since_ms: int
    """Since when the condition holds, or held."""
    fired_ms: int | None = None
    resolved_ms: int | None = None
    value: float
    summary: str
    description: str
    runbook: str = ""
    detail: str = ""
    """Names of what is meant, where labels do not say it: nodes."""

    @property
    def key(self) -> str:
        """What tells it from others."""
        return "\n".join((self.rule, *(f"{name}={text}" for name, text in sorted(self.labels.items()))))

    def label(self, name: str) -> str:
        """A label; the rule and the severity count as such."""
        return {RULE: self.rule, SEVERITY: self.severity}.get(name) or self.labels.get(name, "")


class Matcher(Struct, frozen=True):
    """What selects alerts by one label."""

    label: str
    wanted: bool
    """False: the label must not be so."""
    pattern: str

    def fits(self, alert: Alert) -> bool:
        return name_matches(alert.label(self.label), self.pattern) is self.wanted


class Silence(Struct, frozen=True, kw_only=True):
    """Nobody is told of the alerts that fit all matchers."""

    id: int
    matchers: tuple[str, ...]
    from_ms: int
    until_ms: int
    author: str
    comment: str = ""


def at_least(severity: str, least: str) -> bool:
    """Whether a severity is as bad as another, or worse."""
    return SEVERITIES.index(severity) >= SEVERITIES.index(least)


def advanced(
    known: Mapping[str, Alert], rules: Sequence[Rule], found: Mapping[str, Mapping[Labels, float]], now_ms: int
) -> tuple[dict[str, Alert], int]:
    """All alerts after a look.

    Args:
        known: as they were, by key.
        found: by rule, for what its condition holds and with which value; a rule that is not there is not known.
    Returns: by key, and how many were too many.
    """
    by_name = {rule.name: rule for rule in rules}
    after: dict[str, Alert] = {}
    for key, alert in known.items():
        if alert.rule not in by_name:
            continue  # it is off now
        if alert.state is AlertState.RESOLVED:
            if now_ms - (alert.resolved_ms or 0) < RESOLVED_KEPT_MS:
                after[key] = alert
        elif alert.rule not in found or key in _keys(alert.rule, found[alert.rule]):
            after[key] = alert
        elif alert.state is AlertState.FIRING:
            after[key] = replace(alert, state=AlertState.RESOLVED, resolved_ms=now_ms)
    dropped = 0
    for name, vector in found.items():
        for labels, value in vector.items():
            alert = _seen(by_name[name], dict(labels), value, after, now_ms)
            if alert.key not in after and len(after) >= MAX_ALERTS:
                dropped += 1
                continue
            after[alert.key] = alert
    return after, dropped


def _keys(rule: str, vector: Iterable[Labels]) -> set[str]:
    return {"\n".join((rule, *(f"{name}={text}" for name, text in labels))) for labels in vector}


def _seen(rule: Rule, labels: dict[str, str], value: float, known: Mapping[str, Alert], now_ms: int) -> Alert:
    """The alert of a condition that holds now."""
    new = Alert(
        rule=rule.name,
        labels=labels,
        severity=rule.severity,
        state=AlertState.PENDING,
        since_ms=now_ms,
        value=value,
        summary=rule.text(rule.summary, labels, value),
        description=rule.text(rule.description, labels, value),
        runbook=rule.runbook,
    )
    before = known.get(new.key)
    if before is not None and before.state is not AlertState.RESOLVED:
        since_ms = min(before.since_ms, now_ms)
        new = replace(new, state=before.state, since_ms=since_ms, fired_ms=before.fired_ms, detail=before.detail)
    if new.state is AlertState.PENDING and now_ms - new.since_ms >= rule.for_s * 1_000:
        new = replace(new, state=AlertState.FIRING, fired_ms=now_ms)
    return new
