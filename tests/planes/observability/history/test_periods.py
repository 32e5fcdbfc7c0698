"""Periods by the clocks of a zone."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from hal.planes.observability.history.periods import Period, edges_of

HOUR_MS = 3_600_000
ZONES = ["Europe/Rome", "Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns", "Australia/Eucla"]


def at(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1_000)


@pytest.mark.parametrize("zone", ZONES)
def test_hours_begin_when_the_clocks_of_the_zone_show_whole_ones(zone: str) -> None:
    edges = edges_of(at("2030-01-05T03:20", zone), at("2030-01-05T06:10", zone), Period.HOUR, ZoneInfo(zone))
    assert edges[1:-1] == [at(f"2030-01-05T0{hour}:00", zone) for hour in (4, 5, 6)]


def test_the_day_on_which_clocks_go_forward_has_23_hours() -> None:
    """In Rome on the 31st of March 2030."""
    rome = ZoneInfo("Europe/Rome")
    edges = edges_of(at("2030-03-31T00:00", "Europe/Rome"), at("2030-04-01T00:00", "Europe/Rome"), Period.HOUR, rome)
    assert len(edges) - 1 == 23
    assert {after - before for before, after in pairwise(edges)} == {HOUR_MS}


def test_months_end_with_the_calendar() -> None:
    edges = edges_of(at("2030-11-15T00:00"), at("2031-02-01T00:00"), Period.MONTH, UTC)
    assert edges[1:-1] == [at("2030-12-01T00:00"), at("2031-01-01T00:00")]
