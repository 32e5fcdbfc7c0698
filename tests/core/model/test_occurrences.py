"""Bookings expanded into times, and open hours, against day-by-day reckoning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import Duration, SpecError
from hal.core.model.occurrences import (
    DAY_MS,
    PERIOD_MS,
    Occurrence,
    current_occurrence,
    expand,
    first_overlap,
    occurrences,
)
from hal.core.model.policy import Booking, Repeat
from hal.core.model.policy_hours import DAYS, MINUTE_MS, WEEK_MS, is_open, next_close_ms, next_open_ms, parse_hours
from tests.examples import examples

HOUR_MS = 3_600_000


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


# ── occurrences ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_daily_booking_is_expanded_to_the_horizon_and_until_its_end() -> None:
    """From 10:30 on, two days ahead: the one that holds now, and those of the next two days."""
    booking = Booking(name="b", start_ms=at("2030-01-01T10:00"), duration=Duration(HOUR_MS), repeat=Repeat.DAILY)
    found = expand([booking], at("2030-01-05T10:30"), horizon_ms=2 * DAY_MS)
    assert [(o.name, o.start_ms) for o in found] == [
        ("b#4", at("2030-01-05T10:00")),
        ("b#5", at("2030-01-06T10:00")),
        ("b#6", at("2030-01-07T10:00")),
    ]
    ends = Booking(
        name="b",
        start_ms=booking.start_ms,
        duration=booking.duration,
        repeat=Repeat.DAILY,
        until_ms=at("2030-01-06T10:00"),
    )
    assert [o.number for o in expand([ends], at("2030-01-05T10:30"))] == [4, 5]
    assert current_occurrence(ends, at("2030-01-06T11:00")) is None


def test_a_single_booking_is_seen_however_far_ahead_and_the_earliest_are_given() -> None:
    """A long job that starts now must not run into it; `limit` cuts the latest."""
    far = Booking(name="far", start_ms=10**13, count=1)
    daily = Booking(name="d", start_ms=0, repeat=Repeat.DAILY)
    assert [o.booking for o in expand([far, daily], 0, horizon_ms=2 * DAY_MS)] == ["d", "d", "far"]
    assert [o.number for o in expand([far, daily], 0, limit=2)] == [0, 1]


bookings = st.builds(
    lambda start, share, repeat, span: Booking(
        name=f"b{start}",
        start_ms=start * HOUR_MS,
        duration=Duration(max(1, share * (PERIOD_MS[repeat] or 3 * WEEK_MS) // 24)),
        repeat=repeat,
        until_ms=(start * HOUR_MS + span * DAY_MS) if span and repeat is not Repeat.ONCE else 0,
    ),
    st.integers(0, 24 * 40),
    st.integers(1, 24),
    st.sampled_from(Repeat),
    st.integers(0, 30),
)


@settings(max_examples=examples(300))
@given(bookings, bookings)
def test_safety_two_bookings_meet_exactly_when_some_occurrences_do(a: Booking, b: Booking) -> None:
    """Against all pairs of occurrences of the first 100 days, which hold a common week of each."""

    def first(booking: Booking) -> list[Occurrence]:
        return list(islice(occurrences(booking, 0), 100))

    pairs = [(x, y) for x in first(a) for y in first(b) if x.start_ms < y.end_ms and y.start_ms < x.end_ms]
    found = first_overlap(a, b)
    assert (found is not None) is bool(pairs)
    if found is not None:
        assert found in pairs


# ── hours ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("hours", "when", "opens", "closes"),
    [
        ((), "2030-01-07T03:00", "2030-01-07T03:00", None),
        (("daily 00:00-24:00",), "2030-01-07T03:00", "2030-01-07T03:00", None),
        # 2030-01-07 is a Monday.
        (("mon-fri 18:00-08:00",), "2030-01-07T17:59", "2030-01-07T18:00", "2030-01-07T17:59"),
        (("mon-fri 18:00-08:00",), "2030-01-07T19:00", "2030-01-07T19:00", "2030-01-08T08:00"),
        (("mon-fri 18:00-08:00",), "2030-01-12T07:59", "2030-01-12T07:59", "2030-01-12T08:00"),
        (("mon-fri 18:00-08:00",), "2030-01-12T08:00", "2030-01-14T18:00", "2030-01-12T08:00"),
        (("mon-fri 18:00-08:00", "sat,sun"), "2030-01-11T20:00", "2030-01-11T20:00", "2030-01-14T00:00"),
        (("sun 22:00-06:00",), "2030-01-13T23:00", "2030-01-13T23:00", "2030-01-14T06:00"),
        (("fri-mon 12:00-13:00",), "2030-01-08T12:30", "2030-01-11T12:00", "2030-01-08T12:30"),
        (("sat",), "1970-01-01T00:00", "1970-01-03T00:00", "1970-01-01T00:00"),
    ],
)
def test_hours_open_and_close_when_they_say(hours: tuple[str, ...], when: str, opens: str, closes: str | None) -> None:
    """A window that ends before it begins ends on the day after; days may run over the end of the week."""
    parse_hours(hours)
    assert next_open_ms(hours, at(when)) == at(opens)
    assert next_close_ms(hours, at(when)) == (None if closes is None else at(closes))


@pytest.mark.parametrize("text", ["", "noon", "mon 8-9", "mon 08:00-25:00", "mon 08:60-09:00", "mon 09:00-09:00"])
def test_what_is_no_window_is_refused(text: str) -> None:
    """With an example of one."""
    with pytest.raises(SpecError, match="hours: "):
        parse_hours((text,))


days = st.lists(st.sampled_from(DAYS), min_size=1, max_size=3).map(",".join) | st.tuples(
    st.sampled_from(DAYS), st.sampled_from(DAYS)
).map("-".join)
clocks = st.tuples(st.integers(0, 23), st.sampled_from([0, 30])).map(lambda t: f"{t[0]:02}:{t[1]:02}")
windows = st.tuples(days, clocks, clocks).filter(lambda w: w[1] != w[2]).map(lambda w: f"{w[0]} {w[1]}-{w[2]}")


@given(st.lists(windows, min_size=1, max_size=3).map(tuple), st.integers(0, 4 * WEEK_MS // MINUTE_MS // 30))
def test_safety_the_next_change_is_the_first_instant_that_differs(hours: tuple[str, ...], half_hour: int) -> None:
    """Against looking at every half hour of two weeks."""
    now_ms = half_hour * 30 * MINUTE_MS
    later = [now_ms + step * 30 * MINUTE_MS for step in range(2 * 7 * 48 + 1)]
    assert next_open_ms(hours, now_ms) == next(t for t in later if is_open(hours, t))
    assert next_close_ms(hours, now_ms) == next((t for t in later if not is_open(hours, t)), None)


@given(st.lists(windows, min_size=1, max_size=2).map(tuple), st.integers(0, 52 * 7 * 48))
def test_hours_are_those_of_the_calendar(hours: tuple[str, ...], half_hour: int) -> None:
    """Open at an instant when its weekday and time lie in a window, or in one that began the day before."""
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=30 * half_hour)

    def holds(window: str) -> bool:
        names, _, times = window.rpartition(" ")
        begin, end = times.split("-")
        chosen: set[int] = set()
        for part in names.split(","):
            first, _, last = part.partition("-")
            count = (DAYS.index(last or first) - DAYS.index(first)) % 7 + 1
            chosen |= {(DAYS.index(first) + n) % 7 for n in range(count)}
        clock, today = now.strftime("%H:%M"), now.weekday()
        if begin < end:
            return today in chosen and begin <= clock < end
        return (today in chosen and clock >= begin) or ((today - 1) % 7 in chosen and clock < end)

    assert is_open(hours, int(now.timestamp() * 1000)) is any(holds(window) for window in hours)
