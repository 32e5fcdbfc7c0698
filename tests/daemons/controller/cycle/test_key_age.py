"""The age of idempotency keys: by a clock that does not jump."""

from __future__ import annotations

from pathlib import Path

from hal.daemons.controller.cycle.key_age import KeyAge
from hal.store import Group, RememberIdempotent, Retention, Store

MINUTE_MS = 60_000
DAY_MS = 86_400_000


def test_a_key_outlives_a_clock_that_is_set_forward_by_a_month() -> None:
    """Written at 1,000,000; a minute later the wall clock says a month more; a day of running later it is old."""
    age = KeyAge(DAY_MS)
    assert age.written_before(1_000_000, 0) == 0
    month_ms = 1_000_000 + 30 * DAY_MS
    assert age.written_before(month_ms, MINUTE_MS) == 0
    assert age.written_before(month_ms + DAY_MS - MINUTE_MS, DAY_MS - 1) == 0
    assert age.written_before(month_ms + DAY_MS, DAY_MS + MINUTE_MS) == month_ms


def test_keys_are_bounded_in_number_too(tmp_path: Path) -> None:
    """Five keys, three are kept: the newest."""
    store = Store.open(tmp_path / "s.sqlite")
    epoch = store.take_leadership("test", 1)
    for number in range(5):
        remember = RememberIdempotent(f"k{number}", "f", b"r")
        store.commit(Group(f"c{number}", 100 + number, [remember]), epoch=epoch)
    store.trim(200, Retention(idempotency_count=3), epoch=epoch, keys_before_ms=0)
    assert [store.idempotent(f"k{number}") is not None for number in range(5)] == [False, False, True, True, True]
    store.close()
