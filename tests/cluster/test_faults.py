"""What goes wrong on one machine or between two, with work running on all of them: every task still runs once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hal.client.job import Job
from hal.client.sync_client import Client
from hal.core.model import UnreachableError
from hal.runtime.identity import identify, wait_gone
from tests.cluster.hosts import DEADLINE_S, Cluster, Host, Network, cluster_of, until

TASKS: Final = 30
LIBFAKETIME: Final = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One cluster for all of these; each leaves it as it was."""
    with cluster_of(2) as made:
        yield made


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with cluster.head.client() as client:
        yield client


class Work:
    """An array that tells of each task that runs."""

    def __init__(self, client: Client, directory: Path, *, seconds: float = 0.3) -> None:
        self.told = directory / "ran"
        script = f"echo $HAL_ARRAY_INDEX.$HAL_ATTEMPT >> {self.told}; sleep {seconds}"
        self.job: Job = client.submit(["sh", "-c", script], array=TASKS, cpus=1, walltime="10m")

    def lines(self) -> list[str]:
        return self.told.read_text().split() if self.told.exists() else []

    def until_begun(self, count: int = 4) -> None:
        until(lambda: len(self.lines()) >= count, f"{count} tasks have begun")

    def check(self) -> None:
        """Each task ran once, under its first attempt, and the controller knows it."""
        info = self.job.wait(DEADLINE_S)
        assert Counter(self.lines()) == {f"{index}.1": 1 for index in range(TASKS)}
        assert info.counts == {"succeeded": TASKS}


def kill(host: Host, process: str) -> None:
    """SIGKILL of a daemon; its pid file names another boot than this machine's."""
    who = identify(json.loads(host.home.pid_file(process).read_text())["pid"])
    os.kill(who.pid, signal.SIGKILL)
    assert wait_gone(who, DEADLINE_S)


def test_one_packet_in_twenty_is_lost(cluster: Cluster, client: Client, tmp_path: Path) -> None:
    """In both directions, at one host; the transport sends again, nothing else notices."""
    worker = cluster.workers[0]
    worker.lose(5)
    try:
        work = Work(client, tmp_path)
        work.check()
    finally:
        worker.heal()


@pytest.mark.parametrize("process", ["agent", "keeper"])
def test_a_daemon_of_another_host_is_killed(cluster: Cluster, client: Client, tmp_path: Path, process: str) -> None:
    """It is started again there; steps go on meanwhile and their ends are told."""
    worker = cluster.workers[0]
    work = Work(client, tmp_path)
    work.until_begun()
    kill(worker, f"{process}-{worker.name}")
    work.check()
    cluster.until_node(worker, "up")


def test_the_controller_is_killed(cluster: Cluster, client: Client, tmp_path: Path) -> None:
    """Agents dial until it is back; what ended meanwhile is told then."""
    work = Work(client, tmp_path)
    work.until_begun()
    kill(cluster.head, "controller")
    cluster.head.hal("up")
    work.check()
    for worker in cluster.workers:
        cluster.until_node(worker, "up")


def restart_with(host: Host, *processes: str, env: dict[str, str]) -> None:
    """Kill these daemons, and start the first of them as it was started before, with more in its environment."""
    pids = [int(json.loads(host.home.pid_file(process).read_text())["pid"]) for process in processes]
    argv = Path(f"/proc/{pids[0]}/cmdline").read_bytes().decode().split("\0")[:-1]
    for process in processes:
        kill(host, process)
    host.env |= env
    host.start(*argv)
    host.env = {name: value for name, value in host.env.items() if name not in env}


@contextlib.contextmanager
def small_disk(host: Host) -> Iterator[Path]:
    """A file system of 48 MiB under the host's HAL_HOME, before anything of it runs."""
    config = host.home.config.read_bytes() if host.home.config.exists() else b""
    words = ["mount", "-t", "tmpfs", "-o", "size=48m", "hal-test", str(host.home.root)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    host.home.config.write_bytes(config)
    try:
        yield host.home.root
    finally:
        host.power_off()
        subprocess.run(["umount", "-l", str(host.home.root)], check=True)


@contextlib.contextmanager
def full(place: Path) -> Iterator[None]:
    """No byte is left there meanwhile."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while os.statvfs(place).f_bfree:
            file.write(b"x" * (1 << 20))
            file.write(b"x" * 4096)
    try:
        yield
    finally:
        filler.unlink()


def test_the_disk_of_another_host_is_full(tmp_path: Path) -> None:
    """Its keeper starts nothing that it could not remember; work goes on elsewhere, and there when there is room."""
    with Network() as network:
        cluster = Cluster(network, 1)
        worker = cluster.workers[0]
        with small_disk(worker) as disk:
            cluster.up()
            with cluster.head.client() as client:
                with full(disk):
                    work = Work(client, tmp_path)
                    work.until_begun(TASKS // 2)
                work.check()
                on_both = client.submit(["true"], nodes=2)
                assert on_both.wait(DEADLINE_S).counts == {"succeeded": 1}


def test_the_disk_of_the_controller_is_full(tmp_path: Path) -> None:
    """What cannot be made durable is refused, and decided again once there is room; what ran meanwhile is kept."""
    with Network() as network:
        cluster = Cluster(network, 1)
        with small_disk(cluster.head) as disk:
            cluster.up()
            with cluster.head.client() as client:
                work = Work(client, tmp_path)
                work.until_begun()
                with full(disk):
                    refused = cluster.head.hal("submit", "--", "true", check=False)
                    while refused.code == 0:  # what the log of the store had still room for
                        refused = cluster.head.hal("submit", "--", "true", check=False)
                    assert (refused.code, "no space left" in refused.err) == (7, True), refused
                work.check()


def answers(client: Client) -> bool:
    try:
        client.nodes()
    except UnreachableError:
        return False
    return True


@pytest.mark.long
def test_clocks_jump(tmp_path: Path) -> None:
    """An hour forward and two back, on the controller's host and on a worker's, with work running: walltimes, leases
    and back-offs count boot time; HAL's own time never goes back."""
    if not LIBFAKETIME.exists():
        pytest.skip("there is no libfaketime")
    offset = tmp_path / "offset"
    offset.write_text("+0s")
    env = {
        "LD_PRELOAD": str(LIBFAKETIME),
        "HAL_KEEP_ENV": "LD_PRELOAD,FAKETIME*",
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with cluster_of(1) as cluster:
        worker = cluster.workers[0]
        # Not with `hal up`: time.sleep fails under the library that fakes the clock.
        restart_with(cluster.head, "controller", env=env)
        restart_with(worker, f"keeper-{worker.name}", f"agent-{worker.name}", env=env)
        with cluster.head.client() as client:
            until(lambda: answers(client), "the controller answers")
            cluster.until_node(worker, "up")
            work = Work(client, tmp_path)
            for jump in ("+3600s", "-3600s"):
                work.until_begun(min(TASKS, len(work.lines()) + 4))
                offset.write_text(jump)
            work.check()
            assert cluster.node_state(worker) == "up"
            times = [event.at_ms for event in client.events()]
            assert times == sorted(times)
            hour_ms = 3_600_000
            assert max(times) - min(times) > hour_ms
