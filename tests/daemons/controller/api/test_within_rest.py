"""Jobs within one domain of the topology, on a controller: where they start, why others wait, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hal.core.model.topology.files import topology_from_text
from hal.core.model.topology.tree import topology_of_labels
from hal.daemons.controller.config import Config
from tests.daemons.controller.running import Running, on_controller

SITE = Config(
    topology=topology_from_text(
        """
        levels = ["zone", "rack"]
        [nodes]
        "n[1-2]" = "east/r1"
        "n[3-4]" = "east/r2"
        """,
        "site.toml",
    )
)
PAIR: dict[str, Any] = {"command": ["sleep"], "request": {"cpu": 2}, "nodes": 2, "within": "rack", "walltime": "1h"}


def alone(name: str) -> dict[str, Any]:
    """A job of one core on that node."""
    only = [{"label": "hal.node", "op": "in", "values": [name]}]
    return {"command": ["sleep"], "request": {"cpu": 1}, "constraints": only, "walltime": "1h"}


async def nodes_of(hal: Running, job: str) -> list[str]:
    """Where it runs, in the order of ranks."""
    tasks = (await hal.http.get(f"/v1/jobs/{job}/tasks")).json()["tasks"]
    nodes: list[str] = tasks[0]["nodes"]
    return nodes


async def verdict(hal: Running, job: str) -> dict[str, Any]:
    """Why it does not run."""
    answer: dict[str, Any] = (await hal.http.get(f"/v1/jobs/{job}/why")).json()
    return answer


async def site(hal: Running, **labels: dict[str, str]) -> None:
    """Four nodes of two cores."""
    for name in ("n1", "n2", "n3", "n4"):
        await hal.agent(name, cpu_milli=2_000, **({"labels": labels[name]} if labels else {}))


async def cancel(hal: Running, *jobs: str) -> None:
    await hal.http.post("/v1/jobs/cancel", json={"ids": list(jobs)})


async def running(hal: Running, steps: int) -> None:
    await hal.until(lambda: sum(len(agent.running) for agent in hal.agents) == steps)


def test_a_gang_starts_in_the_one_rack_that_has_room(hal_home: Path) -> None:
    """One core of n2 is taken, so two whole nodes of one rack are n3 and n4."""

    async def body(hal: Running) -> None:
        await site(hal)
        await hal.submit(alone("n2"))
        await running(hal, 1)
        first, second = await hal.submit(PAIR, {**PAIR, "request": {"cpu": 1}})
        await running(hal, 5)
        assert await nodes_of(hal, first) == ["n3", "n4"]
        assert await nodes_of(hal, second) == ["n1", "n2"]

    on_controller(hal_home, body, SITE)


def test_why_says_how_many_nodes_of_one_rack_there_are(hal_home: Path) -> None:
    """n1 and n3 are free, in two racks; they are given to a job that has ended before the rack is free."""

    async def body(hal: Running) -> None:
        await site(hal)
        await hal.submit(*({**alone(name), "request": {"cpu": 2}} for name in ("n2", "n4")))
        await running(hal, 2)
        (pair,) = await hal.submit(PAIR)
        waits = await verdict(hal, pair)
        assert (waits["reason"], waits["never"]) == ("resources", False)
        assert "at most 1 of one rack" in waits["message"]
        await hal.submit({**PAIR, "within": "zone", "walltime": "1m"})
        await running(hal, 4)

    on_controller(hal_home, body, SITE)


def test_an_end_on_each_of_two_racks_lets_nothing_start_that_is_within_one(hal_home: Path) -> None:
    """n2 and n3 come free: two nodes, of two racks. Then n1 does."""

    async def body(hal: Running) -> None:
        await site(hal)
        held = await hal.submit(*({**alone(name), "request": {"cpu": 2}} for name in ("n1", "n2", "n3", "n4")))
        await running(hal, 4)
        (pair,) = await hal.submit(PAIR)
        await cancel(hal, *held[1:3])
        await running(hal, 2)
        assert (await hal.http.get(f"/v1/jobs/{pair}")).json()["state"] == "pending"
        await cancel(hal, held[0])
        await running(hal, 3)
        assert await nodes_of(hal, pair) == ["n1", "n2"]

    on_controller(hal_home, body, SITE)


def test_each_task_of_an_array_is_within_a_rack_of_its_own(hal_home: Path) -> None:
    """Two racks, two tasks of two whole nodes; the third waits."""

    async def body(hal: Running) -> None:
        await site(hal)
        (job,) = await hal.submit({**PAIR, "array": 3})
        await running(hal, 4)
        tasks = (await hal.http.get(f"/v1/jobs/{job}/tasks")).json()["tasks"]
        assert sorted(task["nodes"] for task in tasks[:2]) == [["n1", "n2"], ["n3", "n4"]]
        assert tasks[2]["state"] == "pending"

    on_controller(hal_home, body, SITE)


def test_a_job_that_waits_may_ask_for_a_wider_level(hal_home: Path) -> None:
    """One whole node of each rack is free, and both are in the zone: it starts there when it asks for that."""

    async def body(hal: Running) -> None:
        await site(hal)
        await hal.submit(*({**alone(name), "request": {"cpu": 2}} for name in ("n2", "n4")))
        await running(hal, 2)
        (pair,) = await hal.submit(PAIR)
        answer = await hal.http.patch(f"/v1/jobs/{pair}", json={"within": "rak"})
        assert (answer.status_code, answer.json()["detail"][:24]) == (400, "within: no level 'rak'; ")
        dry = (await hal.http.patch(f"/v1/jobs/{pair}?dry_run=1", json={"within": "zone"})).json()
        assert dry["starts_now"] is True
        assert (await hal.http.get(f"/v1/jobs/{pair}")).json()["spec"]["within"] == "rack"
        await hal.http.patch(f"/v1/jobs/{pair}", json={"within": "zone"})
        await running(hal, 4)
        assert await nodes_of(hal, pair) == ["n1", "n3"]

    on_controller(hal_home, body, SITE)


def test_what_waits_is_shown_with_its_level(hal_home: Path) -> None:
    """Two nodes of a rack are asked for twice; whoever rents nodes must know that."""

    async def body(hal: Running) -> None:
        await site(hal)
        await hal.submit(PAIR, PAIR, PAIR)
        await running(hal, 4)
        (want,) = (await hal.http.get("/v1/wants")).json()["classes"]
        assert (want["within"], want["nodes"], want["jobs"]) == ("rack", 2, 1)

    on_controller(hal_home, body, SITE)


def test_levels_and_domains_that_cannot_be_are_refused_with_what_there_is(hal_home: Path) -> None:
    """A level that is misspelt, and three nodes of racks of two: with --dry-run, too."""

    async def body(hal: Running) -> None:
        await site(hal)
        for query in ("", "?dry_run=1"):
            answer = await hal.http.post(f"/v1/jobs{query}", json={"jobs": [{**PAIR, "within": "rak"}]})
            problem = answer.json()
            assert (answer.status_code, problem["detail"]) == (400, "within: no level 'rak'; did you mean 'rack'?")
            assert problem["hint"].startswith("levels are zone, rack")
            wide = await hal.http.post(f"/v1/jobs{query}", json={"jobs": [{**PAIR, "nodes": 3}]})
            assert wide.status_code == 400
            assert "rack" in wide.json()["detail"]
        await hal.submit({**PAIR, "nodes": 3, "within": "zone"})

    on_controller(hal_home, body, SITE)


def test_a_node_that_says_another_rack_when_it_returns_is_in_that_one(hal_home: Path) -> None:
    """By labels. n2 was in r1 beside n1; its machine comes back in r2, where n3 waits for a second node."""

    async def body(hal: Running) -> None:
        racks = {"n1": "r1", "n2": "r1", "n3": "r2"}
        agents = [await hal.agent(name, cpu_milli=2_000, labels={"rack": rack}) for name, rack in racks.items()]
        await hal.submit(alone("n1"))
        await running(hal, 1)
        (pair,) = await hal.submit(PAIR)
        assert (await hal.http.get(f"/v1/jobs/{pair}")).json()["state"] == "pending"
        await agents[1].leave()
        hal.agents.remove(agents[1])
        await hal.agent("n2", cpu_milli=2_000, labels={"rack": "r2"}, boot_id="another")
        await running(hal, 3)
        assert sorted(await nodes_of(hal, pair)) == ["n2", "n3"]

    on_controller(hal_home, body, Config(topology=topology_of_labels(["rack"], "topology.levels")))


def test_a_job_waits_through_a_topology_without_its_level(hal_home: Path) -> None:
    """Three starts of the controller: with racks, without, and with them again, when it starts."""

    async def submitted(hal: Running) -> None:
        await site(hal)
        await hal.submit(*({**alone(name), "request": {"cpu": 2}, "walltime": "1s"} for name in ("n1", "n3")), PAIR)
        await running(hal, 2)

    async def without(hal: Running) -> None:
        waits = await verdict(hal, "3")
        assert waits["never"] is True
        assert "there is no such level: levels are zone" in waits["message"]
        listed = (await hal.http.get("/v1/jobs", params={"state": "pending"})).json()["jobs"]
        assert [one["id"] for one in listed] == ["3"]

    async def again(hal: Running) -> None:
        waits = await verdict(hal, "3")
        assert "no such level" not in waits["message"]

    on_controller(hal_home, submitted, SITE)
    zones = topology_from_text('levels = ["zone"]\n[nodes]\n"n[1-4]" = "east"\n', "site.toml")
    on_controller(hal_home, without, Config(topology=zones))
    on_controller(hal_home, again, SITE)
