"""What a collector warns of: losses of the last hour, a history that is behind, parts that do not work."""

from __future__ import annotations

from hal.daemons.collector.warnings import (
    BEHIND_MS,
    LATELY_MS,
    NOTED_EVERY_MS,
    Losses,
    summary_of,
    warnings_of,
)

Parts = dict[str, dict[str, float | int | str]]
HEALTHY: Parts = {
    "history": {"cursor": 7, "attempts_recorded": 7, "catching_up": 0, "newest_ms": 1, "controller": "answers"},
    "samples": {"sources": 3, "dropped_values": 0},
}
NOW_MS = 1_000_000_000


def test_a_collector_that_is_well_warns_of_nothing() -> None:
    assert warnings_of(HEALTHY, {}, Losses(), NOW_MS) == []
    assert summary_of(HEALTHY, NOW_MS) == "3 senders heard, 7 attempts read, up to date, 0 MiB kept"


def test_a_loss_is_warned_of_for_an_hour() -> None:
    """Of 5 values that were dropped in the first minute and 2 more in the second, then no more."""
    losses = Losses()
    dropped = [0, 5, 7] + [7] * 80
    told = []
    for minute, count in enumerate(dropped):
        parts: Parts = {"samples": {"dropped_values": count}}
        losses.note(minute * NOTED_EVERY_MS, parts)
        found = warnings_of(parts, {}, losses, minute * NOTED_EVERY_MS)
        told.append(found[0].what.split(" values")[0] if found else "")
    hour = LATELY_MS // NOTED_EVERY_MS
    assert told[:3] == ["", "within an hour 5", "within an hour 7"]
    assert told[hour] == "within an hour 7"
    assert told[hour + 1] == "within an hour 2"
    assert told[hour + 2] == ""


def test_a_history_that_is_behind_and_a_controller_that_is_away_are_warned_of() -> None:
    behind: Parts = {
        "history": {"catching_up": 1, "newest_ms": NOW_MS - 10 * 60_000, "controller": "away: it is stopped"}
    }
    found = [one.what for one in warnings_of(behind, {}, Losses(), NOW_MS)]
    assert found == [
        "the controller does not answer it",
        "it is 10 min behind: hal usage lacks what ended since",
    ]
    assert "10 min behind" in summary_of(behind, NOW_MS)
    nearly: Parts = {"history": {"catching_up": 1, "newest_ms": NOW_MS - BEHIND_MS}}
    assert warnings_of(nearly, {}, Losses(), NOW_MS) == []


def test_why_a_part_does_not_work_is_said_where_it_is_known() -> None:
    found = warnings_of(HEALTHY, {"logs": "the disk is full", "alerts": ""}, Losses(), NOW_MS)
    assert [one.what for one in found] == [
        "its part logs does not work: the disk is full",
        "its part alerts does not work",
    ]
