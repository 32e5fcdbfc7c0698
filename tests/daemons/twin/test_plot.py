"""The picture of a comparison: written in each format, the same bytes for the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hal.daemons.twin.machine import Machine
from hal.daemons.twin.plot import plot_replays
from hal.daemons.twin.replay import ReplayResult

FIRST_BYTES = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}


def result(policy: str, wait_s: int) -> ReplayResult:
    submit = np.arange(0, 10_000, 100)
    number = np.arange(submit.size)
    start = submit + wait_s * (number % 3)
    return ReplayResult(
        policy, False, Machine.pool(8), number, submit, start, start + 300, number % 4 + 1, number % 2, 200, 10
    )


@pytest.mark.parametrize("suffix", FIRST_BYTES)
def test_each_format_is_written(tmp_path: Path, suffix: str) -> None:
    """The suffix chooses the format."""
    path = tmp_path / f"waits{suffix}"
    plot_replays([result("fcfs", 900), result("easy", 60)], "two policies", path)
    assert path.read_bytes().startswith(FIRST_BYTES[suffix])


def test_one_job_and_no_wait_can_be_drawn(tmp_path: Path) -> None:
    """The smallest result there is, on a log that lasts a second."""
    one = np.ones(1, np.int64)
    tiny = ReplayResult("easy", True, Machine.pool(1), one, one * 0, one * 0, one, one, one, 2, 1)
    plot_replays([tiny], "one job", tmp_path / "one.svg")
    assert "easy (clairvoyant)" in (tmp_path / "one.svg").read_text()


def test_the_same_results_give_the_same_svg(tmp_path: Path) -> None:
    """No date and no random ids inside."""
    for name in ("a.svg", "b.svg"):
        plot_replays([result("easy", 60)], "again", tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_equal_curves_do_not_hide_each_other(tmp_path: Path) -> None:
    """Three equal results: each is drawn with another width, the first one widest."""
    plot_replays([result(name, 60) for name in ("fcfs", "easy", "sjf")], "alike", tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert all(f"stroke-width: {width}" in text for width in ("4", "2.6", "1.2"))


def test_a_log_without_waits_says_so_and_has_axes_with_ticks(tmp_path: Path) -> None:
    """Not nine tenths of nothing: minutes on the axis of waits, an hour on that of their spread."""
    plot_replays([result("fcfs", 0), result("easy", 0)], "idle", tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert text.count("every job started at once") == 2
    assert all(f">{tick}<" in text for tick in ("1 min", "10 min", "1 h"))


@pytest.mark.parametrize(("wait_s", "label"), [(15, "1.05"), (10_000, "34.0"), (2_000_000, "6,600")])
def test_figures_have_the_digits_that_say_something(tmp_path: Path, wait_s: int, label: str) -> None:
    """Mean bounded slowdowns of waits of 0, 1 and 2 times this before runs of 300 s."""
    plot_replays([result("easy", wait_s)], "digits", tmp_path / "a.svg")
    shown = result("easy", wait_s).metrics().mean_bounded_slowdown
    text = (tmp_path / "a.svg").read_text()
    assert f">{label}<" in text, shown
