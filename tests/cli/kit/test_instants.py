"""Options that look back take a duration or an instant."""

from __future__ import annotations

import time

import pytest

from hal.cli.kit.instants import ago_ms
from hal.core.model import SpecError


@pytest.mark.parametrize(("text", "hours"), [("2h", 2), ("1-00", 24), ("now-3h", 3)])
def test_a_duration_is_that_long_ago(text: str, hours: int) -> None:
    """To the second, while this runs."""
    before = round(time.time() * 1000) - hours * 3_600_000
    assert before <= ago_ms(text, "--since") <= round(time.time() * 1000) - hours * 3_600_000


@pytest.mark.parametrize("text", ["08:00", "08:00:30", "08:00:00 UTC", "noon", "6pm", "today", "yesterday 08:00"])
def test_a_time_of_day_is_the_last_one(text: str) -> None:
    """Never one of tomorrow, and no duration: `--since 08:00` is since eight o'clock."""
    now_ms = round(time.time() * 1000)
    assert now_ms - 2 * 86_400_000 < ago_ms(text, "--since") <= round(time.time() * 1000)


@pytest.mark.parametrize(
    ("text", "message"),
    [("30", "--since: '30' has no unit (did you mean 30s or 30m?)"), ("soon", "is neither a duration nor an instant")],
)
def test_what_is_neither_is_refused(text: str, message: str) -> None:
    """With both readings of a number alone."""
    with pytest.raises(SpecError) as refused:
        ago_ms(text, "--since")
    assert message in str(refused.value)
