"""How sessions and their failures are printed."""

from __future__ import annotations

import pytest

from hal.cli.jobs.session_view import recent_rate, render_failures, render_session, sparkline
from hal.cli.kit.screen import Screen
from hal.client.sessions.failures import FailedTask
from hal.client.sessions.listing import SlotUse
from tests.client.sessions.test_prometheus import view

FAILURE = FailedTask(
    function="fit",
    tags=("night", "seven"),
    status="failed",
    error="ValueError: odd",
    traceback='Traceback (most recent call last):\n  File "x.py", line 1\nValueError: odd\n',
    attempts=2,
    worker="n1:3",
    slot=0,
    at_ms=1_000,
    client=1,
    task=4,
)


def test_a_sparkline_is_as_high_as_its_counts() -> None:
    """What is not 0 is seen beside the largest."""
    assert sparkline([0, 1, 50, 100]) == " ▁▄█"
    assert sparkline([1, 1_000_000]) == "▁█"
    assert sparkline([0, 0]) == "  "
    assert sparkline([]) == ""


def test_the_present_rate_is_that_of_the_last_whole_seconds() -> None:
    """As many as the session has; the present second goes on."""
    assert recent_rate(view("x", seconds=(*[0] * 49, *[100] * 10, 7), uptime_s=1_000)) == 100
    assert recent_rate(view("x", seconds=(*[0] * 57, 30, 10, 7), uptime_s=2)) == 20


def test_a_session_is_shown_with_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    """Throughput, functions, tags, what a late slot runs, failures."""
    late = SlotUse(
        worker="n1:3", task=0, done=9, held=1, use=1.0, mean_us=10, since_s=60, silent_s=42.0, running="fit",
        tags=("night",),
    )  # fmt: skip
    one = view("squares", slots=(late,), late=("n1:3",), seconds=(0, 5, 10), minutes=(15,))
    render_session(Screen(), one, [FAILURE])
    out = capsys.readouterr().out
    for text in (
        "1 failed, 2 failed and ran again, 3 workers lost",
        "n1:3, for 42s in fit [night]",
        "| ▄█| 10 in a second at most",
        "ValueError: odd",
        "hal session failures squares",
    ):
        assert text in out, text


def test_failures_are_printed_with_their_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    """Text of tasks does nothing to a terminal."""
    evil = "\x1b]0;owned\x07"
    render_failures(Screen(), [FAILURE, _changed(error=evil, traceback=f"{evil}\n")], tracebacks=True)
    out = capsys.readouterr().out
    assert "failed  fit [night, seven]  2 attempts, last on n1:3" in out
    assert '      File "x.py", line 1\n' in out
    assert "\x1b" not in out


def _changed(**changes: str) -> FailedTask:
    import msgspec

    return msgspec.structs.replace(FAILURE, **changes)
