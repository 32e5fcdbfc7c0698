"""Alerts over time, and who is told of what and when."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from hal.core.model import SpecError, parse_duration
from hal.core.model.alert_config import AlertsSection, RouteSection, check_alerts
from hal.planes.observability.alert_rules import Rule, rules_of, shown_value
from hal.planes.observability.alerts.messages import mail_text, manager_body, slack_body, subject_of, webhook_body
from hal.planes.observability.alerts.recording import COARSE_MS, FINE_MS, KEPT_MS, Labels, Recording, Scrape
from hal.planes.observability.alerts.states import MAX_ALERTS, RESOLVED_KEPT_MS, Alert, AlertState, Silence, advanced
from hal.planes.observability.alerts.telling import (
    FIRST_RETRY_MS,
    MAX_TRIES,
    PAUSE_MS,
    Message,
    Told,
    after_failure,
    after_success,
    due,
)

ALL: Final = rules_of(AlertsSection())
DISK: Final = next(rule for rule in ALL if rule.name == "DiskNearlyFull")
CONTROLLER: Final = next(rule for rule in ALL if rule.name == "ControllerDown")
QUEUE: Final = next(rule for rule in ALL if rule.name == "QueueStarving")
MINUTE_MS: Final = 60_000
HOOK: Final = RouteSection(name="hook", kind="webhook", url="http://localhost:1/")


def section(*routes: RouteSection, **fields: Any) -> AlertsSection:
    return AlertsSection(routes=routes or (HOOK,), **fields)


def firing(rule: Rule = DISK, at_ms: int = 0, **labels: str) -> dict[str, Alert]:
    """One alert of a rule, which fires since then."""
    found: dict[Labels, float] = {tuple(sorted(labels.items())): 0.05}
    pending, _ = advanced({}, [rule], {rule.name: found}, at_ms - rule.for_s * 1_000)
    after, _ = advanced(pending, [rule], {rule.name: found}, at_ms)
    return after


def test_an_alert_is_pending_then_fires_and_is_resolved_when_it_does_not_hold_any_more() -> None:
    seen = []
    known: dict[str, Alert] = {}
    for minute, holds in enumerate([True, True, True, True, True, True, False, False, True]):
        found: dict[str, dict[Labels, float]] = {"DiskNearlyFull": {(): 0.05} if holds else {}}
        known, _ = advanced(known, [DISK], found, minute * MINUTE_MS)
        seen.append([alert.state for alert in known.values()])
    assert DISK.for_s == 300
    pending, fires, resolved = [AlertState.PENDING], [AlertState.FIRING], [AlertState.RESOLVED]
    assert seen == [pending] * 5 + [fires] + [resolved] * 2 + [pending]


def test_a_condition_that_ends_before_it_fires_leaves_nothing() -> None:
    known, _ = advanced({}, [DISK], {"DiskNearlyFull": {(): 0.05}}, 0)
    assert advanced(known, [DISK], {"DiskNearlyFull": {}}, MINUTE_MS) == ({}, 0)


def test_what_is_not_known_changes_nothing() -> None:
    known = firing()
    assert advanced(known, ALL, {}, MINUTE_MS)[0] == known


def test_a_resolved_alert_is_kept_for_a_day() -> None:
    over, _ = advanced(firing(), ALL, {"DiskNearlyFull": {}}, MINUTE_MS)
    assert len(advanced(over, ALL, {}, RESOLVED_KEPT_MS)[0]) == 1
    assert advanced(over, ALL, {}, RESOLVED_KEPT_MS + MINUTE_MS)[0] == {}


def test_alerts_are_bounded_and_what_is_beyond_is_counted() -> None:
    many: dict[Labels, float] = {(("queue", str(number)),): 1.0 for number in range(MAX_ALERTS + 7)}
    known, dropped = advanced({}, [QUEUE], {"QueueStarving": many}, 0)
    assert (len(known), dropped) == (MAX_ALERTS, 7)


# ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────────


def told_at(minutes: list[int], alerts: dict[str, Alert], config: AlertsSection) -> list[int]:
    """At which of these minutes a message goes out, all of which are taken."""
    told: dict[tuple[str, str], Told] = {}
    sent = []
    for minute in minutes:
        for message in due(config, ALL, alerts, (), told, minute * MINUTE_MS):
            after = after_success(message, told.get((message.route, message.rule), Told()), alerts, minute * MINUTE_MS)
            assert after is not None
            told[message.route, message.rule] = after
            sent.append(minute)
    return sent


def test_a_message_waits_for_more_and_is_then_repeated_each_time_that_is_set() -> None:
    """It fires at minute 0; wait 1 minute, repeat after 60."""
    config = section(wait=parse_duration("1m"), repeat=parse_duration("1h"))
    assert told_at(list(range(130)), firing(), config) == [1, 61, 121]


def test_an_alertmanager_hears_at_once_and_each_minute() -> None:
    config = section(RouteSection(name="am", kind="alertmanager", url="http://localhost:1"))
    assert told_at([0, 1, 2], firing(), config) == [0, 1, 2]


def test_changes_are_told_at_most_once_in_an_interval_and_together() -> None:
    """Two queues fire at 1 and 2 minutes, and the first is over at 3: one message at 5 says so."""
    config = section(wait=parse_duration("0s"), interval=parse_duration("5m"))
    alerts = firing(QUEUE, 0, queue="a")
    told = {("hook", "QueueStarving"): Told(firing=list(alerts), last_ms=0)}
    alerts |= firing(QUEUE, MINUTE_MS, queue="b")
    over = next(key for key in alerts if key.endswith("queue=a"))
    alerts[over] = replace(alerts[over], state=AlertState.RESOLVED, resolved_ms=3 * MINUTE_MS)
    assert due(config, ALL, alerts, (), told, 4 * MINUTE_MS) == []
    (message,) = due(config, ALL, alerts, (), told, 5 * MINUTE_MS)
    assert ([one.labels for one in message.firing], [one.labels for one in message.resolved]) == (
        [{"queue": "b"}],
        [{"queue": "a"}],
    )


def test_the_end_of_an_alert_is_told_once() -> None:
    config = section(wait=parse_duration("0s"), interval=parse_duration("0s"))
    alerts = firing()
    told = {("hook", "DiskNearlyFull"): Told(firing=list(alerts), last_ms=0)}
    over, _ = advanced(alerts, ALL, {"DiskNearlyFull": {}}, MINUTE_MS)
    (message,) = due(config, ALL, over, (), told, MINUTE_MS)
    assert (message.firing, len(message.resolved)) == ((), 1)
    assert after_success(message, told["hook", "DiskNearlyFull"], over, MINUTE_MS) is None


def test_routes_take_what_is_bad_enough_and_fits() -> None:
    config = section(
        RouteSection(name="bad", kind="webhook", url="http://localhost:1/", severity="critical"),
        RouteSection(name="gpu", kind="webhook", url="http://localhost:1/", match=("queue=gpu*",)),
        RouteSection(name="rest", kind="webhook", url="http://localhost:1/", match=("queue!=gpu*", "rule!=Disk*")),
        wait=parse_duration("0s"),
    )
    alerts = firing() | firing(QUEUE, queue="gpu-a") | firing(QUEUE, queue="batch")
    told = {(one.route, one.rule, one.firing[0].labels.get("queue")) for one in due(config, ALL, alerts, (), {}, 0)}
    assert told == {
        ("bad", "DiskNearlyFull", None), ("gpu", "QueueStarving", "gpu-a"), ("rest", "QueueStarving", "batch"),
    }  # fmt: skip


def test_silences_hold_for_what_fits_all_matchers_while_they_last() -> None:
    config = section(wait=parse_duration("0s"))
    silence = Silence(id=1, matchers=("rule=Queue*", "queue=a"), from_ms=0, until_ms=MINUTE_MS, author="ann")
    alerts = firing(QUEUE, queue="a") | firing(QUEUE, queue="b")
    (message,) = due(config, ALL, alerts, [silence], {}, 0)
    assert [one.labels["queue"] for one in message.firing] == ["b"]
    (message,) = due(config, ALL, alerts, [silence], {}, MINUTE_MS)
    assert [one.labels["queue"] for one in message.firing] == ["a", "b"]


def test_a_controller_that_is_down_mutes_the_rest() -> None:
    config = section(wait=parse_duration("0s"))
    alerts = firing() | firing(CONTROLLER)
    assert [one.rule for one in due(config, ALL, alerts, (), {}, 0)] == ["ControllerDown"]


def test_what_is_not_taken_is_tried_again_ever_later_and_then_given_up() -> None:
    told, now_ms, waits, given_up = Told(), 0, [], False
    while not given_up:
        told, given_up = after_failure(told, now_ms)
        if not given_up:
            waits.append(told.next_ms - now_ms)
            now_ms = told.next_ms
    assert waits == [FIRST_RETRY_MS * 2**number for number in range(MAX_TRIES - 1)]
    assert (told.tries, told.next_ms) == (0, now_ms + PAUSE_MS)


def test_a_retry_says_what_is_true_then() -> None:
    """The alert is over before anybody has heard of it: nothing is said."""
    config = section(wait=parse_duration("0s"))
    told = {("hook", "DiskNearlyFull"): after_failure(Told(), 0)[0]}
    over, _ = advanced(firing(), ALL, {"DiskNearlyFull": {}}, MINUTE_MS)
    assert due(config, ALL, over, (), told, MINUTE_MS) == []
    assert len(due(config, ALL, firing(), (), told, MINUTE_MS)) == 1


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_names_are_text_in_every_message() -> None:
    """A queue or node that tries to act on a terminal, a mail or Slack."""
    (alert,) = firing(QUEUE, queue="<!channel>\x1b[2J\nBcc: x").values()
    message = Message(route="r", rule=alert.rule, firing=(alert,), resolved=())
    assert "\n" not in subject_of(message)
    assert "\x1b" not in subject_of(message) + mail_text(message)
    assert "<" not in slack_body(message)["text"]
    assert json.loads(json.dumps(webhook_body(message, "hal")))["alerts"][0]["labels"] == alert.labels
    (one,) = manager_body(message, "hal", 0)
    assert one["labels"]["alertname"] == "QueueStarving"
    assert one["startsAt"].endswith("+00:00")


def test_values_are_shown_for_people() -> None:
    shown = [shown_value(*one) for one in (("part", 0.123), ("duration", 3_600.0), ("number", 3.0), ("part", math.nan))]
    assert shown == ["12.3%", "1h", "3", "nan"]


# ── the recording ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_old_scrapes_become_one_a_minute_and_end() -> None:
    """Eight hours, each 15 s: 41 or so fine ones, one a minute of the rest."""
    recording = Recording()
    kept = sum(recording.add(Scrape(at_s * 1_000, {})) for at_s in range(0, 8 * 3_600, 15))
    now_ms = recording.now_ms
    fine = [one for one in recording.scrapes if one.at_ms >= now_ms - FINE_MS]
    coarse = [one for one in recording.scrapes if one.at_ms < now_ms - FINE_MS]
    assert (kept, len(fine)) == (8 * 60, FINE_MS // 15_000 + 1)
    assert len(coarse) <= (KEPT_MS - FINE_MS) // COARSE_MS + 1
    assert recording.scrapes[0].at_ms >= now_ms - KEPT_MS


# ── hal.toml ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("plain", "named"),
    [
        ({"every": "1ms"}, "every"),
        ({"limit_used": 1.5}, "limit_used"),
        ({"smtp": "mail.example.org:587"}, "sender"),
        ({"smtp": "mail.example.org", "sender": "a@b"}, "smtp"),
        ({"routes": [{"kind": "slack", "url": "https://x/"}]}, "name"),
        ({"routes": [{"name": "a", "kind": "pager", "url": "https://x/"}]}, "a.kind"),
        ({"routes": [{"name": "a", "kind": "mail", "to": ["a@b"]}]}, "mail server"),
        ({"routes": [{"name": "a", "kind": "slack"}]}, "url or a url_file"),
        ({"routes": [{"name": "a", "kind": "slack", "url_file": "x"}]}, "absolute"),
        ({"routes": [{"name": "a", "kind": "webhook", "url": "ftp://x"}]}, "a.url"),
        ({"routes": [{"name": "a", "kind": "webhook", "url": "https://x/", "severity": "bad"}]}, "severity"),
        ({"routes": [{"name": "a", "kind": "webhook", "url": "https://x/", "match": ["queue"]}]}, "selects nothing"),
        ({"routes": [{"name": "a", "kind": "webhook", "url": "https://x/"}] * 2}, "name of its own"),
    ],
)
def test_mistakes_in_hal_toml_are_named(plain: dict[str, Any], named: str) -> None:
    from hal.core.model.codec import convert

    with pytest.raises(SpecError) as caught:
        check_alerts(convert(plain, AlertsSection))
    assert named in str(caught.value)


def test_alerts_survive_being_stored() -> None:
    for alert in (firing() | firing(QUEUE, queue="\x00 odd")).values():
        assert msgspec.json.decode(msgspec.json.encode(alert), type=Alert) == alert
