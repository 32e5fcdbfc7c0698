"""Streams whose client cannot reach the node: through the relay of the controller's host, which both can reach."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from hal.client.job import Job
from tests.cluster.hosts import DEADLINE_S, Cluster, Host, Network, Ran, until

REST_PORT = 8_642


class Site:
    """A cluster, and a host that may use it and has no route to its nodes."""

    def __init__(self, network: Network) -> None:
        self.cluster = Cluster(network, 2, toml=f'tcp = "10.77.0.1:{REST_PORT}"\n').up()
        self.client = network.host("client")
        for worker in self.cluster.workers:
            self.client.part_from(worker)
        report = json.loads(self.cluster.head.hal("status", "--output", "json").out)
        self.client.env = {
            "HAL_URL": f"https://{self.cluster.head.address}:{REST_PORT}",
            "HAL_TOKEN": (self.cluster.head.home.root / "token").read_text().strip(),  # for steps of root
            "HAL_FINGERPRINT": report["fingerprint"],
        }

    def job(self, node: str) -> Job:
        """A running job on that node."""
        with self.cluster.head.client() as client:
            made = client.submit(["sleep", "1000"], constraints=[f"hal.node={node}"])
            until(lambda: made.refresh().state == "running", "it runs")
        return made


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Network() as network:
        yield Site(network)


@pytest.fixture(scope="module")
def job(site: Site) -> Job:
    """On the worker."""
    return site.job("w1")


def exec_on(host: Host, job: Job, *words: str, stdin: str = "") -> Ran:
    """`hal exec -i` there."""
    return host.hal("exec", "-i", job.id, "--", *words, check=False, stdin=stdin)


def test_a_node_that_a_client_cannot_reach_is_met_at_the_controller(site: Site, job: Job) -> None:
    """By itself, after an attempt at the node; its packets to the node are dropped."""
    ran = exec_on(site.client, job, "sh", "-c", "echo on $HAL_NODE; wc -c; exit 3", stdin="x" * 300_000)
    assert (ran.code, ran.out.split()) == (3, ["on", "w1", "300000"]), ran.err


def test_a_node_of_the_controllers_machine_is_reached_from_another(site: Site) -> None:
    """It has a certificate of its own for streams."""
    ran = exec_on(site.client, site.job("head"), "sh", "-c", "echo on $HAL_NODE")
    assert (ran.code, ran.out) == (0, "on head\n"), ran.err


def test_a_launch_from_a_host_that_reaches_no_node(site: Site) -> None:
    """Over nodes that it reaches and nodes that it does not."""
    with site.cluster.head.client() as client:
        made = client.submit(["sleep", "1000"], nodes=2, first_node=True, exclude=["w2"])
        until(lambda: made.refresh().state == "running", "it runs")
        ran = site.client.hal("launch", "--job", made.id, "-n", "4", "sh", "-c", "echo $HAL_NODE", check=False)
        made.cancel()  # what it holds is needed
    assert (ran.code, sorted(ran.out.split())) == (0, ["head", "head", "w1", "w1"]), ran.err


def test_a_job_launches_from_one_joined_machine_on_another(site: Site) -> None:
    """With the token of its own step, over TLS."""
    body = f'"{sys.executable}" -m hal.cli.main launch -l -n 4 sh -c "echo on \\$HAL_NODE"; echo code $?'
    with site.cluster.head.client() as client:
        made = client.submit(["sh", "-c", body], nodes=2, first_node=True, exclude=["head"])
        made.wait(DEADLINE_S)
        assert made.task(0).nodes == ("w1", "w2")
        said = (made.logs(), made.logs(stream="stderr"))
    lines = ["[0] on w1", "[1] on w1", "[2] on w2", "[3] on w2", "code 0"]
    assert sorted(said[0].splitlines()) == lines, said
