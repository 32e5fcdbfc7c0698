"""Time zones by name: what is expanded is what the zone table says, and a name that it lacks is an error."""

from __future__ import annotations

import itertools
import struct
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from hal.core.model import SpecError
from hal.core.model.policy import Policy, Queue
from hal.runtime import time_zones
from hal.runtime.time_zones import FIRST_YEAR, LAST_YEAR, offsets_of, zone_offsets

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Africa/Casablanca",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Cairo",
    "Asia/Gaza",
    "Europe/Dublin",
    "America/Nuuk",
    "Antarctica/Troll",
)
"""With whole, half and no hours of summer time, one that pauses in Ramadan, one that came and went, one that changes
twice in a week (2039), one with winter time instead, one that changes on the day before, one that begins late."""


@pytest.mark.parametrize("zone", ZONES)
def test_the_offsets_of_a_zone_are_those_of_the_table(zone: str) -> None:
    """Every 37 hours for eighty years, and to the second around each change."""
    table, offsets = ZoneInfo(zone), offsets_of(zone)
    first, last = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (FIRST_YEAR, LAST_YEAR))
    around = [at_ms // 1000 + by for at_ms in offsets.from_ms[1:] for by in (-1, 0)]
    for at_s in itertools.chain(range(first, last, 37 * 3_600), around):
        expected = datetime.fromtimestamp(at_s, table).utcoffset()
        assert expected is not None
        assert offsets.at(at_s * 1000)[0] == round(expected.total_seconds() * 1000), at_s


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "Europe", "posixrules/x"])
def test_a_zone_that_there_is_not_is_named_with_the_nearest(zone: str) -> None:
    """A directory of the table is none either."""
    policy = Policy(queues={"night": Queue(hours=("sat",), zone=zone)})
    with pytest.raises(SpecError, match=f"there is no time zone '{zone}'"):
        zone_offsets(policy)


@pytest.mark.parametrize("zone", ["../passwd", "/etc/localtime", "Europe/../UTC", "Europe//Berlin"])
def test_safety_a_zone_is_a_name_and_no_path(zone: str) -> None:
    """Whatever a policy says, no other file is read."""
    with pytest.raises(SpecError, match="there is no time zone"):
        offsets_of(zone)


@pytest.mark.parametrize(
    ("rule", "at", "offset_h"),
    [
        ("CET-1CEST,M3.5.0,M10.5.0/3", (2060, 7, 1), 2),
        ("CET-1CEST,M3.5.0,M10.5.0/3", (2060, 12, 1), 1),
        ("<+0330>-3:30<+0430>,J79/24,J263/24", (2060, 6, 1), 4.5),
        ("AAA5BBB,0/0,364/0", (2060, 6, 1), -4),
        ("", (2060, 7, 1), 3),
        ("not a rule", (2060, 7, 1), 3),
    ],
)
def test_the_rule_at_the_end_of_a_zone_says_what_follows(
    rule: str, at: tuple[int, int, int], offset_h: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By weekdays, by days of the year; without one that is known the last offset that is listed holds."""
    header = struct.pack(">4sc15x6L", b"TZif", b"2", 0, 0, 0, 0, 1, 4)
    body = struct.pack(">lBB", 3 * 3_600, 0, 0) + b"XXX\0"
    (tmp_path / "Test").mkdir()
    name = f"Test/Z{abs(hash(rule))}"
    (tmp_path / name).write_bytes((header + body) * 2 + f"\n{rule}\n".encode())
    monkeypatch.setattr(time_zones, "TZPATH", (str(tmp_path),))
    at_ms = round(datetime(*at, tzinfo=UTC).timestamp()) * 1000
    assert offsets_of(name).at(at_ms)[0] == offset_h * 3_600_000


def test_only_zones_in_which_there_are_hours_are_looked_up() -> None:
    """A queue that is always open has no need of one; UTC needs no table."""
    queues = {
        "a": Queue(zone="Europe/Atlantis"),
        "b": Queue(hours=("sat",)),
        "c": Queue(hours=("sun",), zone="Asia/Tokyo"),
    }
    assert list(zone_offsets(Policy(queues=queues))) == ["Asia/Tokyo"]
