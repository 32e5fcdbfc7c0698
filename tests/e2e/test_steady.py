"""Tasks come and go, for two minutes or an hour, and no process of HAL grows by what has passed through it."""

from __future__ import annotations

import os
import select
import statistics
import time
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from hal.runtime.identity import running
from tests.e2e.conftest import DEADLINE_S, LiveHal

RATE: Final = 100
"""Tasks a second."""
WARM_S: Final = 40
"""Caches fill, pools grow to what they need, the database's pages come into memory."""
STEADY_S: Final = 80
MOST_GROWTH_BYTES: Final = 8 << 20
"""Of a process, from the first to the last quarter of the steady part: 4,000 tasks later. At a kilobyte kept for each
task that has ended it would be as much again every two minutes."""
MOST_DESCRIPTORS: Final = 4


class Sample(NamedTuple):
    """What one process held at one moment."""

    rss_bytes: int
    descriptors: int


def sample(pid: int) -> Sample:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Sample(pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd")))


def growth(values: list[int]) -> int:
    """From the first quarter to the last, by medians: a garbage collection that is due makes no difference."""
    quarter = len(values) // 4
    return int(statistics.median(values[-quarter:]) - statistics.median(values[:quarter]))


def keep_busy(own_hal: LiveHal, steady_s: int) -> None:
    """RATE tasks a second; memory and descriptors of controller, keeper and agent are flat once they are warm."""
    own_hal.up("--cpus", "2")
    found = {name: running(own_hal.home.pid_file(name)) for name in ("controller", "keeper-n1", "agent-n1")}
    pids = {name: identity.pid for name, identity in found.items() if identity is not None}
    assert len(pids) == 3
    samples: dict[str, list[Sample]] = {name: [] for name in pids}
    with own_hal.client() as client:
        jobs = []
        begin = time.monotonic()
        for second in range(WARM_S + steady_s):
            jobs.append(client.submit(["/bin/true"], array=RATE))
            # One batch a second; where the machine is too slow for that, as fast as they end.
            jobs[-1].wait(DEADLINE_S)
            select.select([], [], [], max(0.0, begin + second + 1 - time.monotonic()))
            if second >= WARM_S:
                for name, pid in pids.items():
                    samples[name].append(sample(pid))
        assert all(job.refresh().counts == {"succeeded": RATE} for job in jobs)
    for name, taken in samples.items():
        grown = growth([one.rss_bytes for one in taken])
        last = taken[-1]
        print(f"{name}: {grown / 2**20:+.1f} MiB, now {last.rss_bytes / 2**20:.0f}, {last.descriptors} descriptors")
        assert grown < MOST_GROWTH_BYTES, (name, [one.rss_bytes for one in taken])
        assert growth([one.descriptors for one in taken]) <= MOST_DESCRIPTORS, (name, taken)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.long
def test_two_minutes_of_a_hundred_tasks_a_second_leave_nothing_behind(own_hal: LiveHal) -> None:
    """Every task has run, and nothing has grown."""
    keep_busy(own_hal, STEADY_S)


@pytest.mark.soak
def test_an_hour_of_a_hundred_tasks_a_second_leaves_nothing_behind(own_hal: LiveHal) -> None:
    """The same, with the same bounds, for an hour (HAL_SOAK_MINUTES): 360,000 tasks."""
    keep_busy(own_hal, int(os.environ.get("HAL_SOAK_MINUTES", "60")) * 60)
