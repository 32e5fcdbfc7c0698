"""The oracle itself, on schedules small enough to work out by hand. A machine of 4 processors."""

from __future__ import annotations

import pytest

from tests.daemons.twin.oracle import oracle_starts

#       submit run planned procs
LONG = (0, 100, 100, 3)
WIDE = (1, 50, 50, 4)
SHORT = (2, 98, 98, 1)
TOO_LONG = (2, 99, 99, 1)


@pytest.mark.parametrize(
    ("policy", "jobs", "starts"),
    [
        # WIDE blocks; nothing overtakes it.
        ("fcfs", [LONG, WIDE, SHORT], [0, 100, 150]),
        # SHORT ends at 2 + 98 = 100, exactly when WIDE is promised its start.
        ("easy", [LONG, WIDE, SHORT], [0, 100, 2]),
        # One second more would delay WIDE.
        ("easy", [LONG, WIDE, TOO_LONG], [0, 100, 150]),
        # A head of 3 leaves 1 extra processor at the shadow: any length may take it.
        ("easy", [LONG, (1, 50, 50, 3), (2, 500, 500, 1)], [0, 100, 2]),
        # Two candidates, one free processor: EASY takes the first, SJBF the shorter.
        ("easy", [LONG, WIDE, (2, 90, 90, 1), (2, 40, 40, 1)], [0, 100, 2, 150]),
        ("easy-sjbf", [LONG, WIDE, (2, 90, 90, 1), (2, 40, 40, 1)], [0, 100, 42 + 108, 2]),
        # Every waiting job keeps its promise: (2, 60, 60, 2) is promised 150; the last one may not push it.
        ("conservative", [LONG, WIDE, (2, 60, 60, 2), (3, 200, 200, 3)], [0, 100, 150, 210]),
        # LONG ends at 20 instead of 100: promises move up in submit order.
        ("conservative", [(0, 20, 100, 3), WIDE, (2, 60, 60, 2)], [0, 20, 70]),
    ],
)
def test_schedules_worked_out_by_hand(policy: str, jobs: list[tuple[int, int, int, int]], starts: list[int]) -> None:
    """The comment beside each case says why."""
    submit, run, planned, procs = zip(*jobs, strict=True)
    assert oracle_starts(submit, run, planned, procs, 4, policy) == starts
