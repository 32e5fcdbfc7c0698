"""Files of jobs on a node of another host: over TLS with the node's certificate, and through what breaks on the way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.client.job import Job
from hal.client.sync_client import Client
from tests.cluster.hosts import DEADLINE_S, Cluster, Network, until

THERE = {"constraints": ["hal.node=w1"], "cpus": 0.5}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Network() as network:
        yield Cluster(network, 1).up()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with three megabytes that nobody has seen before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "place"
    path.mkdir()
    (path / "data").write_bytes(os.urandom(3 << 20))
    return path


def submitted(client: Client, place: Path, command: str) -> Job:
    return client.submit(command, ship=place, collect=["copy"], **THERE)  # type: ignore[arg-type]


def came_back(job: Job, place: Path, tmp_path: Path) -> bool:
    """Whether what was collected is what was shipped, when the job has ended."""
    job.wait(3 * DEADLINE_S, check=True)
    (path,) = job.fetch(tmp_path / "got")
    return path.read_bytes() == (place / "data").read_bytes()


def test_files_go_to_another_host_and_come_back(cluster: Cluster, place: Path, tmp_path: Path) -> None:
    with cluster.head.client() as client:
        assert came_back(submitted(client, place, "cp data copy"), place, tmp_path)


def test_files_wait_until_the_network_is_there_again(cluster: Cluster, place: Path, tmp_path: Path) -> None:
    """Parted while the job runs: what is collected comes when it can."""
    worker = cluster.workers[0]
    with cluster.head.client() as client:
        job = submitted(client, place, "cp data copy; sleep 1")
        until(lambda: job.refresh().state == "running", "it runs")
        worker.part()
        cluster.until_node(worker, "unreachable")
        worker.heal()
        assert came_back(job, place, tmp_path)


def test_files_are_collected_after_a_restart_of_the_controller(cluster: Cluster, place: Path, tmp_path: Path) -> None:
    with cluster.head.client() as client:
        job = submitted(client, place, "cp data copy; sleep 1")
        until(lambda: job.refresh().state == "running", "it runs")
    cluster.head.hal("down", "--leave")
    cluster.start_head()
    with cluster.head.client() as client:
        assert came_back(client.job(job.id), place, tmp_path)
