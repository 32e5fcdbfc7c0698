"""What others may cause in a log: each source its share, however much the others cause."""

from __future__ import annotations

from typing import Any

from hal.runtime.line_budget import LINES, MAX_SOURCES, BudgetedLogs


class Lines:
    """A log that counts."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def warning(self, event: str, **_: Any) -> None:
        self.events.append(event)


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
