"""Steps on a joined machine run as their users there: the node's key and everything of HAL's is out of their reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from hal.runtime.identity import read_pid_file
from tests.cluster.hosts import DEADLINE_S, WIRE_PORT, Cluster, Network
from tests.unix_users import UnixUser, unix_users


class Site(NamedTuple):
    """A head and a worker of root, on which all jobs of this module run, and users whom both know."""

    cluster: Cluster
    alice: UnixUser
    bob: UnixUser


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with unix_users(2) as (alice, bob), Network() as network:
        made = Cluster(network, 1)
        made.head.home.config.write_text(f'[server]\nwire = "0.0.0.0:{WIRE_PORT}"\n')
        for host in (made.head, *made.workers):
            host.env = {"HAL_RUN_AS_OWNER": "0"}
        yield Site(made.up(), alice, bob)


def ran(site: Site, user: str, script: str) -> tuple[str, str]:
    """The state of a job of that user's on the worker, and what it wrote."""
    with site.cluster.head.client() as client:
        job = client.submit(["sh", "-c", script], user=user, constraints=["hal.node=w1"])
        return job.wait(DEADLINE_S).state, job.logs()


def test_steps_on_a_joined_node_are_their_users(site: Site) -> None:
    """User and groups are those of the node's own account."""
    for user in (site.alice, site.bob):
        state, text = ran(site, user.name, "id -u; id -G; hostname")
        uid, groups, host = text.splitlines()
        assert (state, int(uid), host) == ("succeeded", user.uid, "w1")
        assert {int(one) for one in groups.split()} == {user.gid, user.group}


def test_no_step_reaches_the_nodes_key_or_its_daemons(site: Site) -> None:
    """With it, one could be the node to the controller, and get everybody's starts."""
    worker = site.cluster.workers[0]
    identity = worker.home.node("w1").identity
    assert list(identity.iterdir()), "the node has a key"
    daemons = [read_pid_file(worker.home.keeper_pid("w1")), read_pid_file(worker.home.agent_pid("w1"))]
    pids = " ".join(str(daemon.pid) for daemon in daemons if daemon is not None)
    assert len(pids.split()) == 2
    paths = " ".join(map(str, (worker.home.root, identity, *identity.iterdir())))
    script = f"""
    for path in {paths}; do cat $path; ls $path; done
    for pid in {pids}; do cat /proc/$pid/environ /proc/$pid/mem; ls /proc/$pid/fd; kill -9 $pid && echo killed; done
    """
    state, text = ran(site, site.alice.name, f"({script}) 2> /dev/null; echo nothing")
    assert (state, text) == ("succeeded", "nothing\n")
    assert ran(site, site.bob.name, "id -u") == ("succeeded", f"{site.bob.uid}\n")
