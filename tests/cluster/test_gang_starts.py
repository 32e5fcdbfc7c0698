"""Nodes that fail while a gang starts: of that attempt nothing is left, on any host, and the next one runs alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hal.client.job import Job
from hal.client.sync_client import Client
from tests.cluster.hosts import DEADLINE_S, Cluster, Host, cluster_of, until

SCRIPT = """
cd {place}
exec 9>lock.$RANK
flock -n 9 || echo $RANK.$HAL_ATTEMPT >> beside
echo $RANK $HAL_ATTEMPT $HAL_NODE $MASTER_PORT >> ran
while [ ! -e go ]; do sleep 0.05; done
"""
"""A rank holds a lock of the kernel's while any of its processes lives: whoever finds it taken runs beside another."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with cluster_of(3, toml='[leases]\nheartbeat = "250ms"\n') as made:
        for worker in made.workers:
            made.until_node(worker, "up")
        yield made


class Gang:
    """A job on all workers, of which the second does not hear that it begins there."""

    def __init__(self, cluster: Cluster, client: Client, place: Path, **asked: Any) -> None:
        self._place = place
        self.deaf = cluster.workers[1]
        self.deaf.part()
        script = SCRIPT.format(place=place)
        asked = asked or {"nodes": 3, "cpus": 2}
        self.job: Job = client.submit(["sh", "-ec", script], exclude=["head"], **asked)
        until(lambda: self.ran(1) == {"w1", "w3"}, "the other two began")

    def ran(self, attempt: int) -> set[str]:
        """Nodes on which that attempt began."""
        return {node for _, number, node, _ in self._lines() if int(number) == attempt}

    def ports(self) -> set[tuple[str, str]]:
        """Attempts, and where their ranks were to meet."""
        return {(number, port) for _, number, _, port in self._lines()}

    def _lines(self) -> list[list[str]]:
        file = self._place / "ran"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def end(self) -> list[str]:
        """Let it end; states of its attempts."""
        (self._place / "go").touch()
        self.job.wait(DEADLINE_S)
        return [str(one.state) for one in self.job.task(0).attempts]

    @property
    def beside(self) -> bool:
        """Whether a rank ran beside another attempt of itself."""
        return (self._place / "beside").exists()


def all_free(cluster: Cluster) -> bool:
    """Whether no node has anything allocated."""
    with cluster.head.client() as client:
        return all(node.free == node.capacity for node in client.nodes())


def steps_on(host: Host) -> list[int]:
    """Processes of the script that live there."""
    return [pid for pid in host.pids() if b"lock.$RANK" in command_line(pid)]


def command_line(pid: int) -> bytes:
    """Of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def lose_power(cluster: Cluster, host: Host) -> None:
    """And come back in another boot."""
    host.power_off()
    host.heal()
    cluster.rejoin(host)


@pytest.mark.parametrize(
    "asked",
    [{}, {"groups": [{"name": "driver", "cpus": 1}, {"name": "worker", "nodes": 2, "cpus": 2}]}],
    ids=["alike", "groups"],
)
def test_a_node_that_fails_while_a_gang_starts_leaves_nothing(
    cluster: Cluster, tmp_path: Path, asked: dict[str, Any]
) -> None:
    """The others are ended before the gang begins again, on the same nodes, with a port of its own."""
    with cluster.head.client() as client:
        gang = Gang(cluster, client, tmp_path, **asked)
        lose_power(cluster, gang.deaf)
        until(lambda: gang.ran(2) == {"w1", "w2", "w3"}, "it began again")
        assert [len(steps_on(worker)) for worker in cluster.workers] == [1, 1, 1]
        assert (gang.end(), gang.beside) == (["lost", "succeeded"], False)
        assert len(gang.ports()) == 2
        until(lambda: all_free(cluster), "all nodes are free")


def test_a_start_that_arrives_late_belongs_to_its_gang(cluster: Cluster, tmp_path: Path) -> None:
    """The network heals: the same attempt begins on the second node, too, and runs once."""
    with cluster.head.client() as client:
        gang = Gang(cluster, client, tmp_path)
        gang.deaf.heal()
        until(lambda: gang.ran(1) == {"w1", "w2", "w3"}, "it began everywhere")
        assert (gang.end(), gang.beside) == (["succeeded"], False)
        until(lambda: all_free(cluster), "all nodes are free")


def test_a_gang_that_is_cancelled_while_it_starts_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """The node that could not be told begins nothing afterwards."""
    with cluster.head.client() as client:
        gang = Gang(cluster, client, tmp_path)
        gang.job.cancel()
        until(lambda: not steps_on(cluster.workers[0]) + steps_on(cluster.workers[2]), "the others have ended")
        gang.deaf.heal()
        assert gang.job.wait(DEADLINE_S).state == "cancelled"
        assert (gang.ran(1), steps_on(gang.deaf)) == ({"w1", "w3"}, [])
        until(lambda: all_free(cluster), "all nodes are free")
