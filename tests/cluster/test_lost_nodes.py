"""Hosts that part, lose power or stand still: what says `requeue` runs elsewhere when, and only when, that is safe.

The timers are short, by configuration: L 10 s, T = 1.02 · (10 + 3 + 2) + 0.5 = 15.8 s. One cluster serves all tests.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from hal.client.job import Job
from hal.client.sync_client import Client
from hal.daemons.agent.keeper.journal import FileJournal
from hal.daemons.agent.keeper.ports import Exited, Record, Stopping
from hal.wire.frames.agent_keeper import ExitCause, StopReason
from tests.cluster.hosts import DEADLINE_S, FREEZER, Cluster, Direction, Host, cluster_of, until

TOML: Final = """
[leases]
heartbeat = "250ms"
node = "10s"
kill = "2s"
slack = "500ms"
"""
LEASE_MS: Final = 10_000
WORKERS: Final = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(WORKERS, toml=TOML) as made:
        for worker in made.workers:
            made.until_node(worker, "up")
        yield made


class Tasks:
    """One task on each worker, which holds a lock while it runs and ends when it is told to.

    The lock is the kernel's and ends with the last process of the step, so whoever finds it taken runs beside another.
    """

    def __init__(self, cluster: Cluster, client: Client, place: Path) -> None:
        self._place = place
        lines = (
            f"cd {place}",
            "exec 9>lock.$HAL_TASK",
            "flock -n 9 || echo $HAL_TASK.$HAL_ATTEMPT >> beside",
            "echo $HAL_TASK $HAL_ATTEMPT $HAL_NODE >> ran",
            "while [ ! -e go ]; do sleep 0.05; done",
        )
        # The head is full while they start, so that each worker gets one.
        self._filler = client.submit(["sh", "-c", f"while [ ! -e {place}/off ]; do sleep 0.05; done"], cpus=2)
        until(lambda: self._filler.state == "running", "the head is full")
        spec = {
            "command": ["sh", "-ec", "\n".join(lines)],
            "array": WORKERS,
            "request": {"cpu": 2},
            "on_node_lost": "requeue",
            "walltime": "10m",
        }
        self.job: Job = client.submit(spec)
        until(lambda: len(self.ran(1)) == WORKERS, "each worker runs a task")
        (place / "off").touch()
        self._filler.wait(DEADLINE_S)
        assert {node for _, _, node in self.ran(1)} == {worker.name for worker in cluster.workers}

    def ran(self, attempt: int = 0) -> list[tuple[str, int, str]]:
        """Task, attempt and node of each that began."""
        file = self._place / "ran"
        words = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        told = [(task, int(number), node) for task, number, node in words]
        return [one for one in told if attempt in (0, one[1])]

    def go(self) -> None:
        """Let them end."""
        (self._place / "go").touch()

    @property
    def beside(self) -> str:
        """Those that ran beside another attempt of their task."""
        file = self._place / "beside"
        return file.read_text() if file.exists() else ""

    def held(self) -> set[str]:
        """Tasks of which a process lives, by the kernel's list of locks."""
        locked = {int(line.split()[5].rsplit(":", 1)[1]) for line in Path("/proc/locks").read_text().splitlines()}
        return {file.suffix[1:] for file in self._place.glob("lock.*") if file.stat().st_ino in locked}

    def attempts(self, client: Client) -> dict[int, list[str]]:
        """States of the attempts of each task, first to last."""
        return {
            number: [str(one.state) for one in client.job(self.job.id).task(number).attempts]
            for number in range(WORKERS)
        }


def boot_ms() -> int:
    """The clock that keepers count leases by."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def journal_of(host: Host, place: Path) -> list[Record]:
    """What the host's keeper has noted, oldest first; read from a copy."""
    copy = place / f"journal-{host.name}"
    shutil.copyfile(host.home.node(host.name).journal / "keeper.log", copy)
    journal = FileJournal(copy)
    try:
        return journal.load()
    finally:
        journal.close()


DIRECTIONS: Final = (Direction.BOTH, Direction.IN, Direction.OUT)


def part_all(cluster: Cluster) -> None:
    """Each worker in another way."""
    for worker, direction in zip(cluster.workers, DIRECTIONS, strict=True):
        worker.part(direction)


def heal_all(cluster: Cluster) -> None:
    """And wait until all are heard again."""
    for worker in cluster.workers:
        worker.heal()
    for worker in cluster.workers:
        cluster.until_node(worker, "up")


def test_a_partition_shorter_than_the_lease_costs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Unreachable, then healed at once, in both directions and in each alone: every task ends in its first attempt."""
    with cluster.head.client() as client:
        tasks = Tasks(cluster, client, tmp_path)
        part_all(cluster)
        for worker in cluster.workers:
            cluster.until_node(worker, "unreachable")
        heal_all(cluster)
        tasks.go()
        tasks.job.wait(DEADLINE_S)
        ended = tasks.attempts(client)
    assert tasks.beside == ""
    assert ended == {number: ["succeeded"] for number in range(WORKERS)}


def test_a_partition_longer_than_t_has_tasks_run_elsewhere_and_never_beside(cluster: Cluster, tmp_path: Path) -> None:
    """Every worker is cut off, each in another way: all tasks run again on the head, one after the other has ended."""
    with cluster.head.client() as client:
        tasks = Tasks(cluster, client, tmp_path)
        part_all(cluster)
        until(lambda: tasks.ran(2), "a task runs again")
        tasks.go()
        until(lambda: len({task for task, _, _ in tasks.ran(2)}) == WORKERS, "all tasks ran again")
        tasks.job.wait(DEADLINE_S)
        heal_all(cluster)
        ended = tasks.attempts(client)
    assert tasks.beside == ""
    assert {node for _, _, node in tasks.ran(2)} == {"head"}
    assert ended == {number: ["lost", "succeeded"] for number in range(WORKERS)}


@pytest.mark.skipif(not FREEZER.is_dir(), reason="there is no freezer of cgroup v1")
def test_hosts_that_are_cut_off_or_stand_still_between_l_and_t_end_their_steps_themselves(
    cluster: Cluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """One cut off, one that hears nothing, one frozen, each until its lease is over: all steps are `lost` and run
    again, never beside themselves. That of the frozen host was free to succeed at the thaw: its keeper ends it before
    anything of it counts."""
    cut, deaf, still = cluster.workers
    with cluster.head.client() as client:
        tasks = Tasks(cluster, client, tmp_path)
        frozen_task = next(task for task, _, node in tasks.ran(1) if node == still.name)
        cut.part()
        deaf.part(Direction.IN)
        still.freeze()
        frozen_ms = boot_ms()
        until(lambda: tasks.held() == {frozen_task}, "the keepers that run have ended their steps")
        tasks.go()
        until(lambda: boot_ms() > frozen_ms + LEASE_MS, "the lease of the frozen host is over")
        thawed_ms = boot_ms()
        still.thaw()
        heal_all(cluster)
        tasks.job.wait(DEADLINE_S)
        ended = tasks.attempts(client)
    assert tasks.beside == ""
    assert ended == {number: ["lost", "succeeded"] for number in range(WORKERS)}
    records = journal_of(still, tmp_path)
    fenced = next(one for one in records if isinstance(one, Stopping) and one.reason is StopReason.FENCED)
    told = next(one for one in records if isinstance(one, Exited) and one.exits[0].step in fenced.steps)
    assert records.index(fenced) < records.index(told)
    assert told.exits[0].cause is ExitCause.LOST
    record_property("fenced_ms_after_the_thaw", fenced.kill_boot_ms - thawed_ms)


@pytest.mark.skipif(not FREEZER.is_dir(), reason="there is no freezer of cgroup v1")
def test_hosts_without_power_and_hosts_that_stood_still_give_their_tasks_away(cluster: Cluster, tmp_path: Path) -> None:
    """One loses power, one stands still for longer than T: both end elsewhere, and what is thawed is ended."""
    still, dark = cluster.workers[0], cluster.workers[1]
    with cluster.head.client() as client:
        tasks = Tasks(cluster, client, tmp_path)
        of_node = {node: task for task, _, node in tasks.ran(1)}
        still.freeze()
        dark.power_off()
        moved = {of_node[still.name], of_node[dark.name]}
        until(lambda: {task for task, _, _ in tasks.ran(2)} & moved, "a task runs again")
        still.thaw()
        cluster.rejoin(dark)
        for worker in (still, dark):
            cluster.until_node(worker, "up")
        tasks.go()
        tasks.job.wait(DEADLINE_S)
        ended = tasks.attempts(client)
    assert {ended[int(task)][0] for task in moved} == {"lost"}
    assert {states[-1] for states in ended.values()} == {"succeeded"}
