"""A second HAL of another home on the same database, as people start and look at it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from hal.runtime.home import Home
from tests.e2e.conftest import LiveHal
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

SMALL = ("--cpus", "1", "--memory", "1GiB")


@pytest.fixture
def second_hal(own_hal: LiveHal) -> Iterator[LiveHal]:
    """Beside the first."""
    live = LiveHal(own_hal.root / "second")
    yield live
    live.run("down", "--kill")


def test_hal_up_of_a_second_controller_follows(own_hal: LiveHal, second_hal: LiveHal, postgres: PostgresServer) -> None:
    """Takes no name of a node that is heard, does not wait for its own, says whom it follows; `status` names both."""
    url = postgres.fresh()
    for live, name in ((own_hal, "a1"), (second_hal, "b1")):
        home: Home = live.home
        home.create()
        home.config.write_text(f'[store]\nurl = "{url}"\n')
        if live is second_hal:
            same = live.run("up", "--name", "a1", *SMALL)
            assert same.code == 6
            assert "the leading controller already has a node 'a1'" in same.err
            assert not list(home.run_dir.glob("keeper-*.pid"))
        up = live.run("up", "--name", name, *SMALL, check=True)
        assert ("standby: controller controller, process" in up.out) is (live is second_hal)
    for live in (own_hal, second_hal):
        told = json.loads(live.run("status", "--json", check=True).out)
        assert sorted(one["state"] for one in told["controllers"]) == ["follows", "leads"]
        assert [node["name"] for node in told["nodes"]] == ["a1"]
        assert told["controller"] == ("following" if live is second_hal else "running")
    shown = own_hal.run("status").out
    assert f"{second_hal.root}" in shown
    assert "CONTROLLER" in shown
    led, followed = (live.run("metrics", check=True).out for live in (own_hal, second_hal))
    assert "\nhal_leader 1\n" in led
    assert 'hal_nodes{state="up"} 1\n' in led
    assert "\nhal_leader 0\n" in followed, "each answers for itself"
    assert "hal_nodes" not in followed
    assert "process_cpu_seconds_total" in followed
