"""Due times of cron expressions, at both changes of the clock, too; and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from hal.core.model import SpecError
from hal.planes.periodic.schedule import MAX_COUNTED, check_schedule, due_times, next_due_ms

BERLIN = "Europe/Berlin"
"""02:00 becomes 03:00 on 29 March 2026, and 03:00 becomes 02:00 on 25 October."""
SPRING, AUTUMN = "2026-03-28T23:00", "2026-10-24T23:00"


def ms(text: str, zone: str = BERLIN) -> int:
    """An instant on the clock of a zone."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def clock(at_ms: int | None) -> str:
    """What a clock in Berlin shows, with its offset."""
    assert at_ms is not None
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(BERLIN)).strftime("%d %H:%M%z")


def first(schedule: str, after: str, count: int, zone: str = BERLIN) -> list[str]:
    """The first due times after an instant."""
    found, at_ms = [], ms(after)
    for _ in range(count):
        due = next_due_ms(schedule, zone, at_ms)
        assert due is not None
        at_ms = due
        found.append(clock(at_ms))
    return found


def test_a_time_that_the_clock_skips_is_due_right_after_the_gap() -> None:
    assert first("30 2 * * *", SPRING, 2) == ["29 03:00+0200", "30 02:30+0200"]


def test_several_times_that_the_clock_skips_are_due_once() -> None:
    assert first("0,30 2 * * *", SPRING, 2) == ["29 03:00+0200", "30 02:00+0200"]


def test_a_time_that_the_clock_shows_twice_is_due_the_first_time_only() -> None:
    assert first("30 2 * * *", AUTUMN, 2) == ["25 02:30+0200", "26 02:30+0100"]


def test_within_the_second_of_two_equal_hours_its_times_have_passed() -> None:
    second_ms = ms("2026-10-25T02:30") + 40 * 60_000
    assert clock(second_ms) == "25 02:10+0100"
    assert clock(next_due_ms("30 2 * * *", BERLIN, second_ms)) == "26 02:30+0100"


def test_each_half_hour_is_due_by_real_time() -> None:
    """No half hour is left out or doubled by the clock: 01:30, 03:00 in spring; 02:00, 02:30 twice in autumn."""
    spring = first("*/30 * * * *", "2026-03-29T01:00", 3)
    autumn = first("*/30 * * * *", "2026-10-25T01:30", 5)
    assert spring == ["29 01:30+0100", "29 03:00+0200", "29 03:30+0200"]
    assert autumn == ["25 02:00+0200", "25 02:30+0200", "25 02:00+0100", "25 02:30+0100", "25 03:00+0100"]


def test_the_same_schedule_is_due_at_another_instant_in_another_zone() -> None:
    at_ms = ms("2026-06-01T00:00", "UTC")
    assert next_due_ms("0 9 * * *", "UTC", at_ms) == ms("2026-06-01T09:00", "UTC")
    assert next_due_ms("0 9 * * *", "Asia/Kolkata", at_ms) == ms("2026-06-01T03:30", "UTC")


def test_words_stand_for_expressions() -> None:
    at_ms = ms("2026-06-03T12:30", "UTC")
    due = [next_due_ms(word, "UTC", at_ms) for word in ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")]
    days = ["2026-06-03T13:00", "2026-06-04", "2026-06-07", "2026-07-01", "2027-01-01"]
    assert due == [ms(day, "UTC") for day in days]


@pytest.mark.parametrize(
    ("schedule", "zone", "said"),
    [
        ("* * * *", "UTC", "has not 5 fields"),
        ("0 30 2 * * *", "UTC", "has not 5 fields"),
        ("61 * * * *", "UTC", "bad minute"),
        ("* * * * fry", "UTC", "bad day-of-week"),
        ("@reboot", "UTC", "is not one that HAL knows"),
        ("* * * * ①", "UTC", "has not 5 fields"),
        ("* * */20 * 1L", "UTC", "is never due"),
        ("0 0 30 2 *", "UTC", "bad day-of-month"),
        ("* * * * *", "Europe/Berln", "there is no time zone"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_reason(schedule: str, zone: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        check_schedule(schedule, zone, 0)


def test_due_times_that_have_come_are_counted() -> None:
    """Daily at 3: from 1 to 4 January three came before the last."""
    found = due_times("0 3 * * *", "UTC", ms("2026-01-01T03:00", "UTC"), ms("2026-01-05T00:00", "UTC"))
    at = [datetime.fromtimestamp(one / 1000, UTC).day for one in (found.last_ms, found.before_ms, found.next_ms or 0)]
    assert (found.earlier, at) == (3, [4, 3, 5])


def test_a_long_downtime_is_not_counted_to_its_end() -> None:
    """Half a year of minutes: the newest is found all the same."""
    now_ms = ms("2026-06-01T00:00", "UTC") + 30_000
    found = due_times("* * * * *", "UTC", ms("2026-01-01T00:00", "UTC"), now_ms)
    assert (found.earlier, found.last_ms, found.next_ms) == (MAX_COUNTED, now_ms - 30_000, now_ms + 30_000)
