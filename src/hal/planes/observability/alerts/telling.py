"""Who is told of what, and when: grouping, repetition, silences, what mutes what. Pure.

A route has one group for each rule. A group's first message waits a little for more alerts; changes are told at most
once in an interval; what goes on is told again after a longer time. What a message says is worked out when it is sent,
so one that is tried again says what is true then, and nothing is told twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from hal.core.model.alert_config import AlertsSection, RouteSection, read_matcher
from hal.planes.observability.alert_rules import Rule
from hal.planes.observability.alerts.states import Alert, AlertState, Matcher, Silence, at_least

MAX_TRIES: Final = 6
FIRST_RETRY_MS: Final = 10_000
"""Doubled with each try: all of them take five minutes."""
PAUSE_MS: Final = 30 * 60_000
"""After a message was given up, nothing of that rule is tried on that route for so long."""
MANAGER_REPEAT_MS: Final = 60_000
"""An Alertmanager groups and repeats by itself; it takes an alert for over that it does not hear of for a while."""
TOLD_IN_ONE: Final = 50
"""Alerts that a message lists."""


class Told(Struct, kw_only=True):
    """What was said of one rule on one route."""

    firing: list[str] = []
    """Keys of the alerts of which it was said that they fire."""
    last_ms: int = 0
    tries: int = 0
    """Of a message that did not get through."""
    next_ms: int = 0
    """When it is tried again."""


class Message(Struct, frozen=True, kw_only=True):
    """What is to be said now."""

    route: str
    rule: str
    firing: tuple[Alert, ...]
    resolved: tuple[Alert, ...]

    @property
    def worst(self) -> Alert:
        """The alert by which it is titled."""
        return (self.firing or self.resolved)[0]


def matchers_of(texts: Sequence[str], field: str) -> tuple[Matcher, ...]:
    """Read matchers.

    Raises:
        SpecError: one is none.
    """
    return tuple(Matcher(*read_matcher(text, field)) for text in texts)


def silenced_by(alert: Alert, silences: Iterable[Silence], now_ms: int) -> int | None:
    """The silence that holds for an alert; None: none does."""
    for silence in silences:
        if silence.from_ms <= now_ms < silence.until_ms:
            matchers = matchers_of(silence.matchers, "matchers")
            if matchers and all(matcher.fits(alert) for matcher in matchers):
                return silence.id
    return None


def muted_by(alert: Alert, alerts: Iterable[Alert], rules: Sequence[Rule]) -> str:
    """The rule that fires and makes this one moot; '' if none does."""
    muting = {rule.name for rule in rules if rule.mutes}
    if alert.rule in muting:
        return ""
    return next((one.rule for one in alerts if one.rule in muting and one.state is AlertState.FIRING), "")


def due(
    section: AlertsSection,
    rules: Sequence[Rule],
    alerts: Mapping[str, Alert],
    silences: Sequence[Silence],
    told: Mapping[tuple[str, str], Told],
    now_ms: int,
) -> list[Message]:
    """The messages that are to be sent now.

    Args:
        told: by route and rule.
    """
    loud = [
        alert
        for alert in alerts.values()
        if alert.state is AlertState.FIRING
        and silenced_by(alert, silences, now_ms) is None
        and not muted_by(alert, alerts.values(), rules)
    ]
    found = []
    for route in section.routes:
        matchers = matchers_of(route.match, "match")
        mine: dict[str, list[Alert]] = {}
        for alert in loud:
            if at_least(alert.severity, route.severity) and all(matcher.fits(alert) for matcher in matchers):
                mine.setdefault(alert.rule, []).append(alert)
        groups = {*mine, *(rule for name, rule in told if name == route.name)}
        for rule in sorted(groups):
            before = told.get((route.name, rule), Told())
            message = _message(section, route, rule, mine.get(rule, []), alerts, before, now_ms)
            if message is not None:
                found.append(message)
    return found


def _message(
    section: AlertsSection,
    route: RouteSection,
    rule: str,
    firing: list[Alert],
    alerts: Mapping[str, Alert],
    before: Told,
    now_ms: int,
) -> Message | None:
    """What is to be said of one group now; None: nothing."""
    if now_ms < before.next_ms:
        return None
    manager = route.kind == "alertmanager"
    new = [alert for alert in firing if alert.key not in before.firing]
    over = [alerts[key] for key in before.firing if key in alerts and alerts[key].state is AlertState.RESOLVED]
    if new or over:
        first = not before.firing
        fired = [now_ms if alert.fired_ms is None else alert.fired_ms for alert in new]
        since_ms = min(fired, default=now_ms) if first else before.last_ms
        wait_ms = 0 if manager else int(section.wait if first else section.interval)
        if not before.tries and 0 <= now_ms - since_ms < wait_ms:
            return None
    elif not firing or 0 <= now_ms - before.last_ms < (MANAGER_REPEAT_MS if manager else section.repeat):
        return None
    return Message(route=route.name, rule=rule, firing=tuple(firing), resolved=tuple(over))


def after_success(message: Message, before: Told, alerts: Mapping[str, Alert], now_ms: int) -> Told | None:
    """What has been said then; None: nothing that could still change."""
    still = [key for key in before.firing if key in alerts and alerts[key].state is AlertState.FIRING]
    firing = list(dict.fromkeys([*(alert.key for alert in message.firing), *still]))
    return Told(firing=firing, last_ms=now_ms) if firing else None


def after_failure(before: Told, now_ms: int) -> tuple[Told, bool]:
    """When it is tried again; True: it is given up for a while."""
    if before.tries + 1 >= MAX_TRIES:
        return Told(firing=before.firing, last_ms=before.last_ms, next_ms=now_ms + PAUSE_MS), True
    next_ms = now_ms + FIRST_RETRY_MS * 2**before.tries
    return Told(firing=before.firing, last_ms=before.last_ms, tries=before.tries + 1, next_ms=next_ms), False
