"""Real processes of HAL are killed at seeded points of real work; nothing is lost, nothing runs twice.

A seed decides the work and the plan: which process is killed after which line that the jobs have written. How the
kernel schedules the processes is not decided by it, so a seed that failed once may need several tries to fail again.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.sync_client import Client
from hal.core.model import HALError, JobSpec, TaskState
from tests.chaos.diary import Diary
from tests.chaos.judge import Evidence, Fault, judge
from tests.chaos.plan import Move, some_moves
from tests.chaos.records import Follower, read_records
from tests.chaos.ruin import Ruin, left_over
from tests.chaos.story import tell
from tests.chaos.workload import NODE_CPU_MILLI, NODES, Wanted, some_work
from tests.e2e.conftest import DEADLINE_S, LiveHal, new_home, until

KEEP = "HAL_CHAOS_KEEP"
"""Environment variable: a directory to which the home and the diary of a run that failed are copied."""

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="the jobs hold locks with flock of util-linux")


@pytest.fixture
def live() -> Iterator[LiveHal]:
    """A home of its own; whatever was started in it is ended."""
    made = LiveHal(new_home())
    yield made
    made.remove()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_is_lost_or_doubled_whatever_is_killed(seed: int, live: LiveHal, tmp_path: Path) -> None:
    """Controller, agents, keepers, helpers and jobs, one after the other."""
    _run(seed, live, tmp_path, jobs=14, more=2, with_controller=0)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(101, 119))
def test_nothing_is_lost_or_doubled_whatever_is_killed_together(seed: int, live: LiveHal, tmp_path: Path) -> None:
    """More work, more kills, several at once, up to everything but the jobs."""
    _run(seed, live, tmp_path, jobs=30, more=8, with_controller=3)


@pytest.mark.soak
def test_nothing_is_ever_lost_or_doubled(tmp_path: Path) -> None:
    """Seed after seed, until one fails or it is stopped."""
    for seed in itertools.count(10_000 + int.from_bytes(os.urandom(3)) * 1_000):
        print(f"seed {seed}", flush=True)
        live = LiveHal(new_home())
        try:
            (tmp_path / str(seed)).mkdir()
            _run(seed, live, tmp_path / str(seed), jobs=40, more=12, with_controller=4)
        finally:
            live.remove()
        shutil.rmtree(tmp_path / str(seed))


def _run(seed: int, live: LiveHal, scratch: Path, *, jobs: int, more: int, with_controller: int) -> None:
    rng = random.Random(seed)
    diary = Diary(scratch)
    work = some_work(rng, diary, jobs)
    moves = some_moves(rng, work, more, with_controller)
    live.up("--nodes", NODES, "--cpus", f"{NODE_CPU_MILLI // 1000}", "--memory", "1GiB")
    ruin = Ruin(live, diary, work.all, rng)
    follower = Follower(live)
    try:
        ruin.submit(work.first)
        _survive(live, diary, work.all, moves, ruin, follower)
    except (AssertionError, HALError) as fault:
        raise AssertionError(_failed(seed, live, scratch, diary, moves, ruin, fault)) from fault
    finally:
        follower.close()
        ruin.close()


def _survive(
    live: LiveHal, diary: Diary, work: list[Wanted], moves: list[Move], ruin: Ruin, follower: Follower
) -> None:
    ruin.play(moves)
    ruin.until_ended()
    last = Wanted(JobSpec(name="last", command=diary.command(0), env=diary.env, hold=True), TaskState.SUCCEEDED)
    with live.client() as client:
        left = _until_only_endless_ones_run(client, diary, work, ruin)
        ruin.submit([last])
        job = client.job(ruin.ids["last"])
        follower.stop_at(job.id)
        job.release()
        assert job.wait(DEADLINE_S).state is TaskState.SUCCEEDED, "HAL runs nothing any more"
        followed = follower.finished()
        _nothing_is_still_held(client, left)
    down = live.run("down", "--kill")
    assert down.code == 0, f"hal down --kill: {down}"
    until(lambda: not left_over(live.root), f"processes outlived hal down --kill: {left_over(live.root)}")
    by_name = {job.name: job for job in [*work, last]}
    judge(
        Evidence(
            wanted={number: by_name[name] for name, number in ruin.ids.items()},
            cancelled=frozenset(ruin.ids[name] for name in ruin.cancelled),
            lines=diary.read(),
            kills=ruin.kills,
            records=read_records(live.home.database),
            followed=followed,
        )
    )


def _until_only_endless_ones_run(client: Client, diary: Diary, work: list[Wanted], ruin: Ruin) -> int:
    """Wait until the jobs that `hal down --kill` will find have begun; millicores that they hold."""
    left = [job for job in work if job.endless and client.job(ruin.ids[job.name]).info.state is TaskState.RUNNING]
    ids = {ruin.ids[job.name] for job in left}
    until(lambda: ids <= {line.step.job for line in diary.running()}, f"jobs {ids} are running, and wrote no line")
    return sum(job.spec.request["cpu"] for job in left)


def _nothing_is_still_held(client: Client, left_milli: int) -> None:
    """All cores but those of the jobs that still run are free."""
    total = NODES * NODE_CPU_MILLI

    def free() -> int:
        return sum(node.free["cpu"] for node in client.nodes())

    until(lambda: free() == total - left_milli, f"{total - left_milli} millicores must be free, not {free()}")


def _failed(
    seed: int, live: LiveHal, scratch: Path, diary: Diary, moves: list[Move], ruin: Ruin, fault: Exception
) -> str:
    job = fault.job if isinstance(fault, Fault) else None
    text = tell(seed, moves, ruin, diary, live, job)
    keep = os.environ.get(KEEP)
    if keep:
        target = Path(keep) / f"seed-{seed}-{os.getpid()}"
        shutil.copytree(live.root, target / "home", ignore=shutil.ignore_patterns("*.sock"), dirs_exist_ok=True)
        shutil.copytree(scratch, target / "diary", dirs_exist_ok=True)
        (target / "story").write_text(f"{fault}\n\n{text}")
    return f"{fault}\n\n{text}"
