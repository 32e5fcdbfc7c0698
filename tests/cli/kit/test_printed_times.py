"""What HAL prints it reads back as the same: every printer of durations, sizes and instants of the command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.cli.kit import formats
from hal.cli.simulation.presentation import as_duration
from hal.client.instants import instant_ms, parse_instant
from hal.core.model import SpecError, format_amount, format_duration, format_size, parse_amount, parse_duration
from hal.core.model.policy_check import instant_text
from hal.core.model.units import UNLIMITED, format_clock, format_distinctly, format_wait, readable_amount

YEARS_MS = 60 * 366 * 86_400_000

BERLIN = ZoneInfo("Europe/Berlin")


def ms_of(text: str) -> int:
    return int(parse_duration(text))


@pytest.mark.parametrize(
    "printer",
    [format_duration, format_wait, format_clock, formats.span, lambda ms: as_duration(ms / 1000)],
    ids=["duration", "wait", "clock", "span", "simulate"],
)
@given(ms=st.integers(0, YEARS_MS) | st.integers(0, 200_000_000) | st.integers(0, 100_000))
def test_safety_what_is_printed_as_a_duration_is_read_as_the_same(printer: Callable[[int], str], ms: int) -> None:
    """Printed, read and printed again, it is the same text: `0:46` is 46 seconds wherever it is typed."""
    text = printer(ms)
    assert printer(ms_of(text)) == text
    assert abs(ms_of(text) - ms) < 86_400_000


def test_no_limit_is_printed_as_it_is_read() -> None:
    """A walltime that there is not, and one that is unlimited."""
    assert {formats.limit(None), str(UNLIMITED), format_duration(ms_of(formats.limit(None)))} == {"unlimited"}


@given(name=st.sampled_from(["memory", "disk", "cpu", "gpu", "licence"]), amount=st.integers(0, 1 << 56))
def test_safety_what_is_printed_as_an_amount_is_read_as_the_same(name: str, amount: int) -> None:
    """Rounded for people, the rounded one; a size always has its unit."""
    rounded = readable_amount(name, amount)
    one, other = format_distinctly(name, amount, amount + 1)
    assert readable_amount(name, parse_amount(name, rounded)) == rounded
    assert parse_amount(name, format_amount(name, amount)) == amount
    assert parse_amount("memory", format_size(amount)) == amount
    assert parse_amount(name, one) < parse_amount(name, other)


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])
def local(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Zones with and without summer time, of whole and half hours."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("local")
def test_safety_what_is_printed_as_an_instant_is_read_as_the_same() -> None:
    """Through a year, and every hour around the days on which clocks change: what is shown twice, too, since the
    abbreviation of the zone says which one it is."""
    new_year, hour = 1_767_225_600_000, 3_600_000
    changes = [new_year + day * 24 * hour for day in (65, 66, 67, 86, 87, 88, 296, 297, 298, 303, 304, 305)]
    instants = [*range(new_year, new_year + 365 * 24 * hour, 37 * hour)]
    for at_ms in instants + [day + half * hour // 2 for day in changes for half in range(48)]:
        printed = formats.instant(at_ms)
        if printed[-1].isalpha():
            assert instant_ms(printed) == at_ms
        assert instant_ms(instant_text(at_ms)) == at_ms


NOW = datetime(2026, 11, 23, 12, 30, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("text", "wall"),
    [
        ("now+1h", "2026-11-23 13:30"),
        ("now + 90min", "2026-11-23 14:00"),
        ("+2days", "2026-11-25 12:30"),
        ("now-1:00:00", "2026-11-23 11:30"),
        ("18:00", "2026-11-23 18:00"),
        ("08:00", "2026-11-24 08:00"),
        ("6pm", "2026-11-23 18:00"),
        ("6:30 am", "2026-11-24 06:30"),
        ("noon", "2026-11-24 12:00"),
        ("midnight", "2026-11-24 00:00"),
        ("teatime", "2026-11-23 16:00"),
        ("today", "2026-11-23 00:00"),
        ("tomorrow", "2026-11-24 00:00"),
        ("tomorrow 08:00", "2026-11-24 08:00"),
        ("08:00 tomorrow", "2026-11-24 08:00"),
        ("tomorrow at noon", "2026-11-24 12:00"),
        ("yesterday 23:59:30", "2026-11-22 23:59:30"),
        ("2030-06-30", "2030-06-30 00:00"),
        ("2030-06-30T18:00", "2030-06-30 18:00"),
        ("2030-06-30 6pm", "2030-06-30 18:00"),
        ("2030-06-30 18:00 CEST", "2030-06-30 18:00"),
        ("2030-06-30T18:00Z", "2030-06-30 20:00"),
        ("2030-06-30T18:00:00+0530", "2030-06-30 14:30"),
        ("2030-06-30 18:00 America/New_York", "2030-07-01 00:00"),
        ("18:00 UTC", "2026-11-23 19:00"),
        ("08:00 Asia/Tokyo", "2026-11-24 00:00"),
        ("tomorrow 08:00 +05:30", "2026-11-24 03:30"),
    ],
)
def test_an_instant_is_read_as_people_write_it(text: str, wall: str) -> None:
    """It is Monday, 12:30 in Berlin; a time of day is the next one."""
    at_ms = parse_instant(text, field="begin", now_ms=round(NOW.timestamp() * 1000), local=BERLIN)
    assert datetime.fromtimestamp(at_ms / 1000, BERLIN) == datetime.fromisoformat(wall).replace(tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("text", "utc"),
    [("2026-10-25 02:30", "00:30"), ("2026-10-25 02:30 CEST", "00:30"), ("2026-10-25 02:30 CET", "01:30")],
)
def test_of_a_time_that_clocks_show_twice_the_abbreviation_says_which_one(text: str, utc: str) -> None:
    """Berlin's clocks go back from 03:00 to 02:00 on that day; without an abbreviation it is the first."""
    at_ms = parse_instant(text, field="begin", now_ms=0, local=BERLIN)
    assert f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M}" == utc


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("soon", "begin: 'soon' is not an instant"),
        ("", "begin: '' is not an instant"),
        ("25:00", "is not an instant"),
        ("13pm", "is not an instant"),
        ("18", "is not an instant"),
        ("2030-02-30", "is not an instant"),
        ("2030-06-30 18:00 PST", "is not an instant"),
        ("18:00 Europe/Atlantis", "there is no time zone 'Europe/Atlantis'"),
        ("18:00 ../../etc/passwd", "is not an instant"),
        ("now+60", "begin: '60' has no unit (did you mean 60s or 60m?)"),
        ("now+9999999w", "is not an instant"),
        ("tomorrow " * 20, "is not an instant"),
    ],
)
def test_what_is_no_instant_is_refused_with_how_to_write_one(text: str, message: str) -> None:
    """A number alone is none: nobody knows its unit. Nor is a zone's abbreviation that this machine does not use."""
    with pytest.raises(SpecError) as refused:
        parse_instant(text, field="begin", now_ms=0, local=BERLIN)
    assert message in str(refused.value)
