"""The figures of a replay, with the arithmetic visible."""

from __future__ import annotations

import numpy as np
import pytest

from hal.daemons.twin.metrics import bounded_slowdown, judge, judge_by_user

SUBMIT = np.array([0, 10, 20])
START = np.array([0, 100, 100])
END = np.array([100, 105, 300])
PROCS = np.array([4, 2, 1])


def test_slowdown_counts_runs_below_ten_seconds_as_ten() -> None:
    """(90 + 5) / 10 = 9.5, not 19; never below 1."""
    assert bounded_slowdown(np.array([90, 0]), np.array([5, 2])).tolist() == [9.5, 1.0]


def test_figures_of_three_jobs() -> None:
    """Slowdowns 1, 9.5, (80 + 200) / 200 = 1.4; waits 0, 90, 80; 400 + 10 + 200 of 4 x 300 processor-seconds."""
    metrics = judge(SUBMIT, START, END, PROCS, machine_procs=4)
    assert metrics.mean_bounded_slowdown == pytest.approx((1 + 9.5 + 1.4) / 3)
    assert metrics.median_bounded_slowdown == pytest.approx(1.4)
    assert metrics.p95_bounded_slowdown == pytest.approx(1.4 + 0.9 * (9.5 - 1.4))
    assert metrics.max_bounded_slowdown == pytest.approx(9.5)
    assert (metrics.mean_wait_s, metrics.max_wait_s) == (pytest.approx(170 / 3), 90)
    assert metrics.utilisation == pytest.approx(610 / 1200)
    assert metrics.makespan_s == 300


def test_users_share_the_span_of_the_whole_replay() -> None:
    """User 7 used 410 and user 3 used 200 of 1200 processor-seconds; who used most comes first."""
    by_user = judge_by_user(np.array([7, 7, 3]), SUBMIT, START, END, PROCS, machine_procs=4)
    assert list(by_user) == [7, 3]
    assert [m.utilisation for m in by_user.values()] == [pytest.approx(410 / 1200), pytest.approx(200 / 1200)]
    assert [m.jobs for m in by_user.values()] == [2, 1]
    assert [m.makespan_s for m in by_user.values()] == [105, 280]
