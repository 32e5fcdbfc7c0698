"""Jobs that try to get out: of their limits, of their processes' number, of their own end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.job import Job
from hal.client.sync_client import Client
from hal.daemons.agent.keeper.limits import cgroup_name
from tests.e2e.conftest import DEADLINE_S, LiveHal, new_home, until

CGROUPS = Path("/sys/fs/cgroup")
pytestmark = pytest.mark.skipif(
    not ((CGROUPS / "pids").is_dir() or (CGROUPS / "cgroup.controllers").exists()), reason="needs cgroups"
)

FIND_OWN = """
import os, sys, time
def own():
    for line in open("/proc/self/cgroup"):
        _, names, path = line.strip().split(":", 2)
        if "/hal-" in path:
            yield f"/sys/fs/cgroup/{names.split(',')[0]}{path}"
def write(path, text):
    try:
        open(path, "w").write(text)
    except OSError as error:
        print(path, error.strerror)
"""
RAISE = (
    FIND_OWN
    + """
SETTINGS = (
    ("memory.memsw.limit_in_bytes", "-1"), ("memory.limit_in_bytes", "-1"), ("memory.max", "max"),
    ("memory.oom_control", "1"), ("cpu.cfs_quota_us", "-1"), ("cpu.max", "max"), ("pids.max", "max"),
)
for place in own():
    for name, text in SETTINGS:
        if os.path.exists(f"{place}/{name}"):
            write(f"{place}/{name}", text)
"""
)
EAT = "x = bytearray(200 << 20); print(len(x))"
SHOW = (
    FIND_OWN
    + """
for place in own():
    for name in ("memory.limit_in_bytes", "memory.max", "cpu.cfs_quota_us", "cpu.max", "pids.max"):
        if os.path.exists(f"{place}/{name}"):
            print(name, open(f"{place}/{name}").read().strip())
"""
)


@pytest.fixture(scope="module")
def live() -> Iterator[LiveHal]:
    """One node; jobs that are submitted together run side by side under few helpers."""
    live = LiveHal(new_home())
    try:
        yield live.up("--cpus", "8", "--memory", "2GiB", "--max-processes", "100")
    finally:
        live.remove()


@pytest.fixture
def client(live: LiveHal) -> Iterator[Client]:
    with live.client() as client:
        yield client


def python(client: Client, code: str, *words: str, memory: str = "", cpus: float = 1) -> Job:
    """A job of that Python program."""
    command = [sys.executable, "-I", "-S", "-c", code, *words]
    return client.submit(command, cpus=cpus, memory=memory) if memory else client.submit(command, cpus=cpus)


def text_of(job: Job) -> str:
    """What it wrote, once it has ended."""
    job.wait(DEADLINE_S)
    return job.logs()


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_raised_limits_end_with_the_job_that_raised_them(client: Client) -> None:
    """(M7, attempt 95) Ten jobs of equal limits raise all of theirs; whoever comes next is limited as it asked."""

    def limited(code: str) -> Job:
        return python(client, code, memory="60MiB", cpus=0.5)

    before = text_of(limited(SHOW))
    assert "pids.max 100" in before
    for _ in range(3):
        raised = [limited(RAISE) for _ in range(4)]
        client.wait_all([job.id for job in raised], DEADLINE_S)
        assert text_of(limited(SHOW)) == before
    assert limited(EAT).wait(DEADLINE_S).state == "failed"


def test_a_fork_bomb_has_a_bound_and_others_go_on(client: Client) -> None:
    """(M9, attempt 93) Two thousand forks in a job that asked for half a cpu: 100 processes, and others run."""
    bomb = """
import os, time
made = 0
for _ in range(2000):
    try:
        if not os.fork():
            time.sleep(600)
            os._exit(0)
        made += 1
    except BlockingIOError:
        break
print("made", made, flush=True)
time.sleep(600)
"""
    job = python(client, bomb, cpus=0.5)
    until(lambda: "made" in job.logs(), "the bomb did not reach its bound")
    assert job.logs().split() == ["made", "99"]
    assert client.submit(["sh", "-c", "sleep 0 & wait; exit 0"]).wait(DEADLINE_S).state == "succeeded"
    job.cancel()
    assert job.wait(DEADLINE_S).state == "cancelled"


def test_a_node_out_of_processes_is_not_the_jobs_fault(live: LiveHal, client: Client) -> None:
    """(faults 5) EAGAIN at every spawn for a while: attempts are refused, none fails, no retry is counted."""
    base = CGROUPS / "pids" / cgroup_name(str(live.root), "n1")
    if not base.is_dir():
        pytest.skip("needs cgroups of version 1")
    (base / "pids.max").write_text("1")  # the helper itself, on its way through
    try:
        job = client.submit(["sh", "-c", "exit 0"])
        journals = live.home.node("n1").journal
        until(lambda: any("\nU " in one.read_text() for one in journals.glob("helper-*.log")), "no spawn was refused")
    finally:
        (base / "pids.max").write_text("max")
    assert job.wait(DEADLINE_S).state == "succeeded"
