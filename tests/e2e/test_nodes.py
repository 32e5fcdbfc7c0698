"""Nodes of a real HAL: a check of the site closes one and opens it again; a removed one comes back when started."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from hal.client.rest.views import NodeInfo
from tests.e2e.conftest import DEADLINE_S, LiveHal

LOOK_S = 0.05
WHERE = ("--constraint", "hal.domain.1=dc1", "--constraint", "disk=fast")
TOML = """
[node]
domain = "dc1/rack3"
labels = { disk = "fast" }
[node.checks.scratch]
command = ["/bin/sh", "-c", "test ! -e $HAL_HOME/broken || { echo scratch is gone; false; }"]
every = "1s"
"""


def node_when(live: LiveHal, name: str, holds: Callable[[NodeInfo], bool]) -> NodeInfo:
    """The node, as soon as something is true of it."""
    deadline_s = time.monotonic() + DEADLINE_S
    with live.client() as client:
        while not holds(found := client.node(name)):
            assert time.monotonic() < deadline_s, found
            time.sleep(LOOK_S)
    return found


@pytest.mark.slow
def test_a_check_of_the_site_closes_a_node_and_opens_it_again(own_hal: LiveHal) -> None:
    """A person's cordon beside it stays; domain and labels of hal.toml are the node's."""
    own_hal.root.mkdir(exist_ok=True)
    (own_hal.root / "hal.toml").write_text(TOML)
    own_hal.up("--nodes", "2")
    broken = own_hal.root / "broken"
    broken.touch()
    found = node_when(own_hal, "n1", lambda node: node.state == "cordoned")
    assert found.reason == "check scratch: scratch is gone (exit code 1)"
    node_when(own_hal, "n2", lambda node: node.state == "cordoned")
    own_hal.run("node", "cordon", "n2", check=True)
    job = own_hal.run("submit", *WHERE, "--", "true", check=True).out.strip()
    assert "n1 is cordoned (check scratch: scratch is gone" in own_hal.run("why", job).out
    broken.unlink()
    own_hal.run("wait", job, check=True)
    node_when(own_hal, "n2", lambda node: [one.source for one in node.closures] == ["person"])


@pytest.mark.slow
def test_a_removed_node_comes_back_when_its_agent_is_started_again(own_hal: LiveHal) -> None:
    """It stays away while its agent runs on; `hal down` and `hal up` bring it back, open."""
    own_hal.up("--nodes", "2")
    own_hal.run("node", "drain", "n2", check=True)
    own_hal.run("node", "remove", "n2", check=True)
    with own_hal.client() as client:
        assert [node.name for node in client.nodes()] == ["n1"]
    own_hal.run("down", check=True)
    own_hal.up()
    assert node_when(own_hal, "n2", lambda node: True).state == "up"
