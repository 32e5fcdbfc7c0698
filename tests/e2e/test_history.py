"""The history of a real HAL: what it used, and a log of it that replays with about the waits that its jobs had."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.e2e.conftest import LiveHal


@pytest.mark.slow
def test_a_hal_simulates_itself_from_its_own_history(own_hal: LiveHal, tmp_path: Path) -> None:
    """Six jobs on two cores, one of them on both: each waits in the replay as it did, within the seconds that starting
    and rounding take."""
    own_hal.up("--cpus", "2")
    jobs = []
    for cpus, seconds in ((1, 3), (1, 2), (2, 1), (1, 2), (1, 1), (1, 1)):
        ran = own_hal.run("submit", "-c", cpus, "-t", "1m", "--", "sleep", seconds, check=True)
        jobs.append(ran.out.strip())
    own_hal.run("wait", *jobs, check=True)
    rows = json.loads(own_hal.run("history", "--json", check=True).out)
    assert sorted(int(row["group"]) for row in rows) == sorted(map(int, jobs))
    log, table = tmp_path / "own.swf", tmp_path / "jobs.csv"
    own_hal.run("history", "--swf", log, check=True)
    lines = [line.split() for line in log.read_text().splitlines() if not line.startswith(";")]
    waits = [int(line[2]) for line in lines]
    own_hal.run("simulate", log, "--policy", "easy", "--out-jobs", table, check=True)
    replayed = [int(row["start"]) - int(row["submit"]) for row in csv.DictReader(table.open())]
    assert max(waits) >= 2
    assert all(abs(was - now) <= 2 for was, now in zip(waits, replayed, strict=True)), (waits, replayed, lines)


@pytest.mark.slow
def test_the_efficiency_of_a_job_that_sleeps(own_hal: LiveHal) -> None:
    """It used next to nothing of two cores for a second, and is advised to ask for one."""
    own_hal.up("--cpus", "2")
    job = own_hal.run("submit", "-c", 2, "-t", "10m", "--", "sleep", "1.2", check=True).out.strip()
    own_hal.run("wait", job, check=True)
    found = json.loads(own_hal.run("efficiency", job, "--json", check=True).out)
    assert (found["attempts"], found["cpu"]) == (1, 2000)
    assert found["cpu_part"] < 0.5
    assert any("-t 1m would be enough" in sentence for sentence in found["advice"])
