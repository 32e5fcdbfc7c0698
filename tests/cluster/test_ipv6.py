"""Hosts that have addresses of IPv6 only: nodes join, and a session runs on all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hal.core.model import TaskState
from tests.cluster.hosts import Cluster, Network
from tests.cluster.test_sessions import elsewhere, left, program, said, until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Network(ipv6=True) as network:
        yield Cluster(network, 2).up()


def test_a_job_runs_on_a_node_of_ipv6(cluster: Cluster) -> None:
    with cluster.head.client() as client:
        job = client.submit(["hostname"], constraints="hal.node=w2")
        assert job.wait(60).state is TaskState.SUCCEEDED
        assert job.logs() == "w2\n"


def test_a_session_runs_over_ipv6(cluster: Cluster) -> None:
    """Its broker on the host where it is opened, and with several brokers elsewhere; payloads travel, too."""
    assert said(program(cluster.head, "spread"))["hosts"] == ["head", "w1", "w2"]
    found = said(program(elsewhere(cluster), "shards"))
    assert (found["right"], found["used"]) == (True, 3)
    assert said(program(cluster.head, "large"))["right"]
    until(lambda: not left(cluster), "the session has ended")
