"""Open hours on the clock of a zone, over the days on which its clocks change."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.core.model import SpecError
from hal.core.model.policy import Policy, Queue
from hal.core.model.policy_check import MAX_ZONES, check_policy
from hal.core.model.policy_hours import DAYS, UTC_OFFSETS, is_open, next_close_ms, next_open_ms
from hal.runtime.time_zones import offsets_of
from tests.core.model.test_occurrences import windows

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE_MS = 60_000


def ms(wall: str, fold: int = 0) -> int:
    """An instant on Berlin's clocks."""
    return round(datetime.fromisoformat(wall).replace(tzinfo=BERLIN, fold=fold).timestamp() * 1000)


@pytest.mark.parametrize("day", ["2026-03-27", "2026-03-30", "2026-10-23", "2026-10-26"])
def test_a_night_begins_at_the_same_time_of_the_clock_in_summer_and_winter(day: str) -> None:
    """At 18:00 in Berlin, which is 17:00 and 16:00 UTC."""
    zone = offsets_of("Europe/Berlin")
    assert next_open_ms(("mon-fri 18:00-08:00",), ms(f"{day} 12:00"), zone) == ms(f"{day} 18:00")


def test_an_opening_at_a_time_that_clocks_skip_is_where_they_go_on() -> None:
    """On 29 March 2026 Berlin's clocks go from 02:00 to 03:00."""
    zone = offsets_of("Europe/Berlin")
    assert next_open_ms(("02:30-05:00",), ms("2026-03-29 00:00"), zone) == ms("2026-03-29 03:00")
    assert not is_open(("02:00-03:00",), ms("2026-03-29 03:00") - 1, zone)


def test_an_hour_that_clocks_show_twice_is_open_twice() -> None:
    """On 25 October 2026 they go from 03:00 back to 02:00."""
    zone = offsets_of("Europe/Berlin")
    hours = ("02:15-02:45",)
    first = next_open_ms(hours, ms("2026-10-25 00:00"), zone)
    closes = next_close_ms(hours, first, zone)
    assert (first, closes) == (ms("2026-10-25 02:15"), ms("2026-10-25 02:45"))
    assert next_open_ms(hours, ms("2026-10-25 02:45"), zone) == ms("2026-10-25 02:15", fold=1)


def test_hours_that_are_always_open_never_close_in_any_zone() -> None:
    """Whatever the clocks do."""
    assert next_close_ms(("mon-sun",), ms("2026-10-25 02:15"), offsets_of("Europe/Berlin")) is None


@given(
    hours=st.lists(windows, min_size=1, max_size=3).map(tuple),
    zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", ""]),
    start=st.sampled_from(
        ["2026-03-28", "2026-10-24", "2026-03-07", "2026-10-31", "2026-04-04", "2026-10-03", "2026-02-14"]
    ),
    minute=st.integers(0, 2 * 24 * 60),
)
def test_safety_no_edge_between_now_and_the_next_one(
    hours: tuple[str, ...], zone: str, start: str, minute: int
) -> None:
    """Every minute until then is as now, and the one of the edge is not; the clocks are those of the zone table."""
    offsets = offsets_of(zone) if zone else UTC_OFFSETS
    table = ZoneInfo(zone or "UTC")
    now = ms(start) + minute * MINUTE_MS
    for at in range(now, now + 3_000 * MINUTE_MS, 61 * MINUTE_MS):
        wall = datetime.fromtimestamp(at / 1000, table).replace(tzinfo=None)
        same = ms_utc(wall)
        assert is_open(hours, at, offsets) == is_open(hours, same)
    opened = is_open(hours, now, offsets)
    edge = next_close_ms(hours, now, offsets) if opened else next_open_ms(hours, now, offsets)
    if edge is None:
        return
    until = min(edge, now + 4_000 * MINUTE_MS)
    assert all(is_open(hours, at, offsets) == opened for at in range(now, until, 7 * MINUTE_MS))
    assert is_open(hours, edge - 1, offsets) == opened
    assert is_open(hours, edge, offsets) != opened


def ms_utc(wall: datetime) -> int:
    """What a clock in UTC shows as this."""
    return round(wall.replace(tzinfo=ZoneInfo("UTC")).timestamp() * 1000)


@pytest.mark.parametrize("zone", ["", "europe berlin", "../etc/passwd", "/Europe/Berlin", "a" * 65, "Europe/"])
def test_what_cannot_be_a_zone_is_refused(zone: str) -> None:
    """Before anybody looks it up."""
    with pytest.raises(SpecError, match=r"queues.night.zone: .* is not a time zone"):
        check_policy(Policy(queues={"night": Queue(zone=zone)}))


def test_hours_in_more_zones_than_the_bound_are_refused() -> None:
    """Each zone costs a few milliseconds when it is first looked up."""
    queues = {f"q{n}": Queue(hours=(DAYS[0],), zone=f"Zone/N{n}") for n in range(MAX_ZONES + 1)}
    with pytest.raises(SpecError, match="hours in 65 time zones; at most 64 are allowed"):
        check_policy(Policy(queues=queues))
