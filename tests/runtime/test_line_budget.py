"""What others may cause in a log: each source its share, however much the others cause."""

from __future__ import annotations

from typing import Any

from hal.runtime.line_budget import LINES, LINES_PER_S, MAX_SOURCES, Bucket, BudgetedLog, BudgetedLogs


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.ms = 1_000

    def __call__(self) -> int:
        return self.ms


class Lines:
    """A log that counts."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.numbers: list[int] = []

    def warning(self, event: str, **values: Any) -> None:
        self.events.append(event)
        self.numbers += values.values()


def test_each_source_has_its_own_share_of_the_log() -> None:
    """One floods: what another tells is written all the same, and the flood is counted (L8)."""
    log = Lines()
    logs = BudgetedLogs(log, lambda: 0)  # type: ignore[arg-type]
    for _ in range(10 * LINES):
        logs.of("mallory").warning("flood")
    logs.of("alice").warning("told")
    assert log.events.count("flood") == LINES
    assert log.events[-1] == "told"


def test_sources_that_come_and_go_take_no_memory() -> None:
    """The one that was not heard for longest is forgotten."""
    logs = BudgetedLogs(Lines(), lambda: 0)  # type: ignore[arg-type]
    kept = logs.of("kept")
    for number in range(2 * MAX_SOURCES):
        logs.of(str(number))
        assert logs.of("kept") is kept
    assert len(logs) == MAX_SOURCES


def test_a_bucket_gives_what_is_in_it_and_fills_up_to_its_size() -> None:
    """Size 10, 2 a second: empty after 10, 4 after two seconds, 10 after an hour."""
    clock = Clock()
    bucket = Bucket(clock, 10, 2.0)
    assert [bucket.take(5), bucket.take(5), bucket.take()] == [True, True, False]
    clock.ms += 2_000
    assert [bucket.take(5), bucket.take(4), bucket.take()] == [False, True, False]
    clock.ms += 3_600_000
    assert [bucket.take(11), bucket.take(10), bucket.take()] == [False, True, False]


def test_what_is_left_out_is_counted_before_the_next_line() -> None:
    """Three lines of five, and after the time of one line: how many were left out, then the next."""
    clock, lines = Clock(), Lines()
    log = BudgetedLog(lines, clock, lines=3)  # type: ignore[arg-type]
    for number in range(5):
        log.warning("asked", number=number)
    clock.ms += round(1_000 / LINES_PER_S)
    log.warning("asked", number=9)
    assert lines.numbers == [0, 1, 2, 2, 9]


def test_a_debt_is_paid_by_later_refills() -> None:
    """5 of 10 are left; 25 are charged: the debt of 20 is paid after 10 s at 2 a second."""
    clock = Clock()
    bucket = Bucket(clock, 10, 2.0)
    bucket.charge(5)
    assert bucket.wait_ms() == 0
    bucket.charge(25)
    assert bucket.wait_ms() == 10_000
    clock.ms += 9_999
    assert bucket.wait_ms() == 1
    clock.ms += 1
    assert bucket.wait_ms() == 0
