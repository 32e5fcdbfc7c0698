"""The use of each domain of the topology over REST: of nodes, of what is free there, of jobs; no job is named."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hal.core.model.facts import Facts, automatic_labels
from hal.core.model.topology.files import topology_from_text
from hal.core.model.topology.tree import topology_of_labels
from hal.daemons.controller.config import Config
from tests.daemons.controller.access.people import person
from tests.daemons.controller.running import Running, on_controller

SITE = Config(
    topology=topology_from_text(
        """
        levels = ["zone", "rack"]
        [nodes]
        "n[1-2]" = "east/r1"
        "n[3,7-9]" = "east/r2"
        n4 = "west"
        """,
        "site.toml",
    )
)


async def domains(hal: Running) -> dict[str, dict[str, Any]]:
    """Those of the topology by name."""
    answer = await hal.http.get("/v1/topology")
    assert answer.status_code == 200, answer.text
    return {one["name"]: one for one in answer.json()["domains"]}


async def uncounted(hal: Running) -> None:
    """Wait until the last count is too old to be shown again."""
    was = (await hal.http.get("/v1/topology")).json()["now_ms"]
    async with asyncio.timeout(30):
        while (await hal.http.get("/v1/topology")).json()["now_ms"] == was:
            await hal.runtime.sleep(50)


async def site(hal: Running) -> None:
    """Five nodes of four cpus; the fifth is nowhere."""
    for name in ("n1", "n2", "n3", "n4", "x"):
        await hal.agent(name, cpu_milli=4_000)


def test_domains_are_shown_as_a_tree_with_their_nodes(hal_home: Path) -> None:
    """Each before those within it; n7 to n9 are in the file only, x is nowhere in it."""

    async def body(hal: Running) -> None:
        await site(hal)
        found = (await hal.http.get("/v1/topology")).json()
        rows = [
            (one["name"], one["level"], one["depth"], one["parent"], one["nodes"], one["members"])
            for one in found["domains"]
        ]
        assert rows == [
            ("east", "zone", 0, "", 3, ""),
            ("east/r1", "rack", 1, "east", 2, "n[1-2]"),
            ("east/r2", "rack", 1, "east", 1, "n3"),
            ("west", "zone", 0, "", 1, "n4"),
        ]
        assert (found["levels"], found["outside"], found["outside_nodes"]) == (["zone", "rack"], 1, "x")
        assert (found["missing"], found["missing_nodes"]) == (3, "n[7-9]")

    on_controller(hal_home, body, SITE)


def test_a_domain_has_what_is_free_on_its_nodes_and_counts_each_job_once(hal_home: Path) -> None:
    """A gang on the three nodes of the zone that have 3 cpus free, beside a job on one of them: two jobs in the zone,
    and in each of its racks those that run there; the zone's 12 cpus are used but for 12 - 3x3 - 1."""

    async def body(hal: Running) -> None:
        await site(hal)
        east = {"constraints": [{"label": "hal.node", "op": "in", "values": ["n1", "n2", "n3"]}]}
        one = {"constraints": [{"label": "hal.node", "op": "in", "values": ["n1"]}]}
        gang = {"command": ["sleep"], "request": {"cpu": 3}, "nodes": 3, **east}
        await hal.submit(gang, {"command": ["sleep"], "request": {"cpu": 1}, **one})
        await hal.until(lambda: sum(len(agent.running) for agent in hal.agents) == 4)
        found = await domains(hal)
        assert {name: one["jobs"] for name, one in found.items()} == {"east": 2, "east/r1": 2, "east/r2": 1, "west": 0}
        assert (found["east"]["capacity"]["cpu"], found["east"]["free"]["cpu"]) == (12_000, 2_000)
        assert {name: one["idle"] for name, one in found.items()} == {"east": 0, "east/r1": 0, "east/r2": 0, "west": 1}

    on_controller(hal_home, body, SITE)


def test_a_closed_node_is_in_its_domain_and_not_up(hal_home: Path) -> None:
    """Nor is it idle, though it holds nothing."""

    async def body(hal: Running) -> None:
        await site(hal)
        await hal.http.post("/v1/nodes/cordon", json={"nodes": ["n3"]})
        rack = (await domains(hal))["east/r2"]
        assert (rack["nodes"], rack["up"], rack["idle"]) == (1, 0, 0)

    on_controller(hal_home, body, SITE)


def test_nodes_that_say_where_they_are_make_the_domains(hal_home: Path) -> None:
    """By the labels of their own domain path; a node that joins later brings its rack with it."""

    async def body(hal: Running) -> None:
        await hal.agent("n1", labels=automatic_labels("n1", Facts(domain="dc1/rack3")))
        assert list(await domains(hal)) == ["dc1", "dc1/rack3"]
        await hal.agent("n2", labels=automatic_labels("n2", Facts(domain="dc1/rack10")))
        await uncounted(hal)
        found = await domains(hal)
        assert list(found) == ["dc1", "dc1/rack3", "dc1/rack10"]
        assert found["dc1"]["nodes"] == 2

    labels = ["hal.domain.1", "hal.domain.2"]
    on_controller(hal_home, body, Config(topology=topology_of_labels(labels, "topology.levels")))


def test_a_node_alone_is_shown_with_its_domains(hal_home: Path) -> None:
    """Widest first; a list of nodes does not have them."""

    async def body(hal: Running) -> None:
        await site(hal)
        shown = [(await hal.http.get(f"/v1/nodes/{name}")).json()["domains"] for name in ("n1", "n4", "x")]
        assert shown == [{"zone": "east", "rack": "east/r1"}, {"zone": "west"}, {}]
        assert all("domains" not in one for one in (await hal.http.get("/v1/nodes")).json()["nodes"])

    on_controller(hal_home, body, SITE)


def test_without_a_topology_there_is_nothing_to_show(hal_home: Path) -> None:
    """Neither of all nodes nor of one."""

    async def body(hal: Running) -> None:
        await hal.agent("n1")
        found = (await hal.http.get("/v1/topology")).json()
        assert (found["levels"], found["domains"], found["outside"]) == ([], [], 0)
        assert "domains" not in (await hal.http.get("/v1/nodes/n1")).json()

    on_controller(hal_home, body)


def test_everybody_may_see_the_topology_and_no_job_in_it(hal_home: Path) -> None:
    """A user sees how many jobs of others run, as with nodes, and which they are in neither."""

    async def body(hal: Running) -> None:
        await site(hal)
        await hal.submit({"command": ["sleep"], "name": "secret-name", "request": {"cpu": 1}})
        await hal.until(lambda: sum(len(agent.running) for agent in hal.agents) == 1)
        async with person(hal, "bob") as bob:
            answer = await bob.get("/v1/topology")
        assert answer.status_code == 200
        assert "secret-name" not in answer.text
        assert set(answer.json()["domains"][0]) == {
            "name", "level", "depth", "parent", "nodes", "up", "idle", "capacity", "free", "jobs", "members",
        }  # fmt: skip

    on_controller(hal_home, body, SITE)
