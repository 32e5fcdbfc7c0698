"""Whole logs of real machines: the engine's figures are those of two independent simulators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.replay import REFERENCE_RUNS, REFERENCES, SDSC, logs_directory
from hal.daemons.twin.machine import Machine
from hal.daemons.twin.replay import replay
from hal.daemons.twin.swf import read_log, usable_jobs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def logs() -> Path:
    directory = logs_directory()
    if directory is None:
        pytest.skip("no shared logs here: set HAL_SHARED to the directory that holds traces/swf")
    return directory


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize(("run", "policy", "clairvoyant"), [(n, *run) for n, run in enumerate(REFERENCE_RUNS)])
def test_mean_bounded_slowdown_is_the_reference(
    logs: Path, name: str, run: int, policy: str, clairvoyant: bool
) -> None:
    """Within half a percent, on the whole log as one pool."""
    log = read_log(logs / name)
    machine = Machine.pool(log.machine_procs or 0)
    metrics = replay(usable_jobs(log, machine.procs), machine, policy, clairvoyant=clairvoyant).metrics()
    assert metrics.mean_bounded_slowdown == pytest.approx(REFERENCES[name][run], rel=0.005)


@pytest.mark.parametrize("policy", ["fcfs", "easy", "easy-sjbf"])
def test_sdsc_sp2_as_128_nodes_starts_every_job_as_the_pool_does(logs: Path, policy: str) -> None:
    """53,999 jobs, each at the same second."""
    jobs = usable_jobs(read_log(logs / SDSC), 128)
    pool = replay(jobs, Machine.pool(128), policy)
    nodes = replay(jobs, Machine(128, 1), policy)
    assert np.array_equal(pool.start_s, nodes.start_s)


@pytest.mark.parametrize(
    ("name", "usable", "bad"),
    [
        ("SDSC-SP2-1998-4.2-cln.swf.gz", 53_999, 0),
        ("NASA-iPSC-1993-3.1-cln.swf.gz", 18_066, 0),
        ("LCG-2005-1.swf.gz", 187_520, 0),
        ("METACENTRUM-zewura-zegox-2013-alea.swf.gz", 17_898, 0),
        ("ALCF-Theta-2022.swf.gz", 23_911, 0),
    ],
)
def test_every_shared_log_is_read_without_a_bad_line(logs: Path, name: str, usable: int, bad: int) -> None:
    """Usable counts as the traces' README quotes them, where it does."""
    log = read_log(logs / name)
    jobs = usable_jobs(log, log.machine_procs or 20 * 80 + 48 * 12)
    assert (jobs.jobs, log.bad_lines) == (usable, bad)
