"""Lines of a log within a budget, under a clock of the test's."""

from __future__ import annotations

from typing import Any

from hal.runtime.line_budget import LINES_PER_S, Bucket, BudgetedLog


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.ms = 1_000

    def __call__(self) -> int:
        return self.ms


class Lines:
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **values: Any) -> None:
        self.told.append((event, values))

    info = error = debug = exception = warning

    def bind(self, **values: Any) -> Lines:
        return self


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
    log = BudgetedLog(lines, clock, lines=3)
    for number in range(5):
        log.warning("asked", number=number)
    clock.ms += round(1_000 / LINES_PER_S)
    log.error("asked", number=9)
    assert [values.get("number", values.get("lines")) for _, values in lines.told] == [0, 1, 2, 2, 9]
