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
