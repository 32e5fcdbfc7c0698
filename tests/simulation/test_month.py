"""A month of a mixed cluster, all capabilities at once: invariants hold throughout, one seed is one log."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.month import MEAN_PAUSE_S, Month

AGAIN = """
import hashlib, sys
from tests.simulation.month import Month
seed, nodes, days, elastic, moving, pause_s = map(int, sys.argv[1:])
month = Month(seed, nodes=nodes, days=days, check_every=0, elastic=bool(elastic), moving=bool(moving), pause_s=pause_s)
print(hashlib.sha256(month.run()).hexdigest())
"""


def again(seed: int, nodes: int, days: int, *, elastic: bool, moving: bool, pause_s: int) -> str:
    """The digest of the log of the same seed in another process, whose strings hash otherwise, and without checks."""
    command = [
        sys.executable,
        "-c",
        AGAIN,
        str(seed),
        str(nodes),
        str(days),
        str(int(elastic)),
        str(int(moving)),
        str(pause_s),
    ]
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, cwd=root)
    return done.stdout.strip()


def same_month_twice(
    seed: int,
    nodes: int,
    days: int,
    *,
    elastic: bool = False,
    moving: bool = False,
    pause_s: int = MEAN_PAUSE_S,
    check_every: int = 1,
) -> Month:
    """Play it, with checks; and again elsewhere, to the same bytes."""
    month = Month(
        seed, nodes=nodes, days=days, elastic=elastic, moving=moving, pause_s=pause_s, check_every=check_every
    )
    log = month.run()
    assert again(seed, nodes, days, elastic=elastic, moving=moving, pause_s=pause_s) == hashlib.sha256(log).hexdigest()
    return month


def test_some_days_of_a_small_cluster_are_reproduced_byte_for_byte() -> None:
    """Forty nodes, a week."""
    month = same_month_twice(4, 40, 7)
    assert month.counts["lost"]
    assert min(month.counts[what] for what in ("refused", "shared", "linked", "within", "tolerated")) > 0


def test_elastic_jobs_grow_and_shrink_beside_everything_else() -> None:
    """Forty nodes, a week: no extension starts without its base, and nobody leaves for one."""
    month = same_month_twice(4, 40, 7, elastic=True)
    assert month.counts["shrink"]


def test_work_that_may_be_moved_makes_room_for_wide_jobs_beside_everything_else() -> None:
    """Forty busy nodes, a week: only such work is moved, for wide jobs alone, and all of it ends."""
    month = same_month_twice(4, 40, 7, moving=True, pause_s=100_000)
    assert month.counts["moved"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_thirty_days_of_five_hundred_nodes() -> None:
    """Every capability at once, some tens of thousands of tasks: nothing lost, doubled or above its limit.

    Its tables are verified after each fortieth cycle, those of the small clusters after each one.
    """
    month = same_month_twice(2, 500, 30, elastic=True, moving=True, check_every=40)
    assert month.counts["end"] > 9_000
    seen = ("lost", "refused", "cancel", "hold", "raise", "requeue", "checkpoint", "suspend", "resume", "course")
    placed = ("shared", "linked", "within", "tolerated")
    assert min(month.counts[what] for what in (*seen, *placed, "shrink", "moved")) > 0
