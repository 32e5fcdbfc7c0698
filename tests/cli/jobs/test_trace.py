"""The drawing of a trace: each span below its parent, to scale, whatever is in names."""

from __future__ import annotations

from hal.cli.jobs.trace import drawn
from hal.client.rest.trace_calls import SpanInfo

JOB = SpanInfo(name="job 7", span_id="a", start_ms=0, end_ms=100_000)
ATTEMPT = SpanInfo(name="attempt 7.0.1", span_id="b", parent_id="a", start_ms=0, end_ms=100_000, status="error", message="exit code 3")  # fmt: skip  # noqa: E501
WAITING = SpanInfo(name="waiting", span_id="c", parent_id="b", start_ms=0, end_ms=50_000)
RUNNING = SpanInfo(name="running", span_id="d", parent_id="b", start_ms=50_000, end_ms=100_000)


def test_spans_are_drawn_below_their_parents_to_scale() -> None:
    """Half of 40 columns waiting, half running."""
    lines = list(drawn([RUNNING, JOB, WAITING, ATTEMPT], 100_000, 40 + 15 + 5 + 4))
    assert lines == [
        "job 7            1m40s  " + "█" * 40,
        "  attempt 7.0.1  1m40s  " + "█" * 40 + " ✗ exit code 3",
        "    waiting        50s  " + "░" * 20,
        "    running        50s  " + " " * 20 + "█" * 20,
    ]


def test_what_has_not_ended_reaches_to_now() -> None:
    """With an arrow."""
    lines = list(drawn([SpanInfo(name="running", span_id="d", start_ms=0)], 60_000, 40))
    assert lines == ["running  1m  " + "█" * 27 + "▶"]


def test_a_span_without_its_parent_is_drawn_at_the_left() -> None:
    """Its parent is outside HAL."""
    (line,) = drawn([SpanInfo(name="job 7", span_id="a", parent_id="elsewhere", start_ms=0, end_ms=1)], 1, 60)
    assert line.startswith("job 7")


def test_spans_that_name_one_another_as_parents_are_drawn_once() -> None:
    """A collector that is broken, or not ours, ends nothing."""
    one = SpanInfo(name="one", span_id="a", parent_id="b", start_ms=0, end_ms=1)
    other = SpanInfo(name="other", span_id="b", parent_id="a", start_ms=0, end_ms=1)
    assert sorted(line.split()[0] for line in drawn([one, other], 1, 60)) == ["one", "other"]
