"""What a message says: as mail, as JSON for a webhook, Slack or an Alertmanager. Pure.

Names that people chose are text: control characters are escapes in mail, `&<>` are entities for Slack.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from hal.core.model import one_line
from hal.core.model.printable import printable
from hal.planes.observability.alerts.states import Alert, AlertState
from hal.planes.observability.alerts.telling import TOLD_IN_ONE, Message

MAX_SLACK_CHARS: Final = 3_000
OVER_AFTER_MS: Final = 5 * 60_000
"""After so long an Alertmanager takes an alert for over of which it hears nothing."""


def subject_of(message: Message) -> str:
    """`[HAL] firing: 3 nodes are unreachable`"""
    state = "firing" if message.firing else "resolved"
    more = len(message.firing or message.resolved) - 1
    return one_line(f"[HAL] {state}: {message.worst.summary}" + (f" (and {more} more)" if more else ""), 200)


def mail_text(message: Message) -> str:
    """The body of a mail."""
    parts = [_mail_part(alert) for alert in _listed(message)]
    left = len(message.firing) + len(message.resolved) - len(parts)
    if left > 0:
        parts.append(f"and {left} more: hal alerts")
    return "\n\n".join(parts) + "\n"


def webhook_body(message: Message, instance: str) -> dict[str, Any]:
    """For a webhook of one's own."""
    return {
        "hal": instance,
        "rule": message.rule,
        "state": "firing" if message.firing else "resolved",
        "subject": subject_of(message),
        "alerts": [_plain(alert) for alert in _listed(message)],
        "truncated": len(message.firing) + len(message.resolved) > TOLD_IN_ONE,
    }


def slack_body(message: Message) -> dict[str, Any]:
    """For an incoming webhook of Slack, or what is compatible with it."""
    lines = [f"*{_slack(subject_of(message))}*"]
    for alert in _listed(message):
        detail = f" ({alert.detail})" if alert.detail else ""
        lines.append(f"• {alert.state}: {_slack(alert.summary + detail)} — {_slack(alert.description)}")
    return {"text": "\n".join(lines)[:MAX_SLACK_CHARS]}


def manager_body(message: Message, instance: str, now_ms: int) -> list[dict[str, Any]]:
    """For `POST /api/v2/alerts` of an Alertmanager."""
    return [
        {
            "labels": {"alertname": alert.rule, "severity": alert.severity, "hal": instance, **alert.labels},
            "annotations": {
                "summary": alert.summary,
                "description": alert.description,
                **({"detail": alert.detail} if alert.detail else {}),
                "runbook": alert.runbook,
            },
            "startsAt": _rfc3339(alert.fired_ms or alert.since_ms),
            "endsAt": _rfc3339(alert.resolved_ms or now_ms + OVER_AFTER_MS),
        }
        for alert in (*message.firing, *message.resolved)
    ]


def _listed(message: Message) -> Sequence[Alert]:
    return (*message.firing, *message.resolved)[:TOLD_IN_ONE]


def _mail_part(alert: Alert) -> str:
    when_ms = alert.resolved_ms if alert.state is AlertState.RESOLVED else alert.fired_ms
    lines = [
        f"{alert.state}: {alert.summary}",
        f"  {alert.description}",
        f"  severity {alert.severity}, rule {alert.rule}, {alert.state} at {_rfc3339(when_ms or alert.since_ms)}",
    ]
    if alert.detail:
        lines.insert(1, f"  {alert.detail}")
    return "\n".join(printable(line) for line in lines)


def _plain(alert: Alert) -> dict[str, Any]:
    return {
        "rule": alert.rule,
        "labels": alert.labels,
        "severity": alert.severity,
        "state": alert.state.value,
        "since_ms": alert.since_ms,
        "fired_ms": alert.fired_ms,
        "resolved_ms": alert.resolved_ms,
        "summary": alert.summary,
        "description": alert.description,
        "detail": alert.detail,
        "runbook": alert.runbook,
    }


def _slack(text: str) -> str:
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _rfc3339(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
