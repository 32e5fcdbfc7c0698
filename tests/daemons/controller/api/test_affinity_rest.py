"""Jobs that run together or apart, on a controller: where they start, what they are told, whose work they see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hal.core.model.topology.files import topology_from_text
from hal.daemons.controller.config import Config
from tests.daemons.controller.running import Running, on_controller

SITE = Config(
    topology=topology_from_text('levels = ["rack"]\n[nodes]\n"n[1-2]" = "r1"\n"n3" = "r2"\n', "site.toml"),
)
SLEEP: dict[str, Any] = {"command": ["sleep"], "request": {"cpu": 1}, "walltime": "1h"}
WEB = SLEEP | {"labels": {"app": "web"}}


async def site(hal: Running) -> None:
    for name in ("n1", "n2", "n3"):
        await hal.agent(name, cpu_milli=4_000)


async def running(hal: Running, steps: int) -> None:
    await hal.until(lambda: sum(len(agent.running) for agent in hal.agents) == steps)


async def nodes_of(hal: Running, job: str) -> list[str]:
    """The nodes of its tasks that run."""
    tasks = (await hal.http.get(f"/v1/jobs/{job}/tasks")).json()["tasks"]
    return sorted(node for task in tasks for node in task.get("nodes") or ())


def test_tasks_apart_by_node_are_on_a_node_each_and_the_rest_is_told_why(hal_home: Path) -> None:
    """Three nodes, four tasks of an array."""

    async def body(hal: Running) -> None:
        await site(hal)
        (job,) = await hal.submit(WEB | {"apart": ["app@node"], "array": "0-3"})
        await running(hal, 3)
        assert await nodes_of(hal, job) == ["n1", "n2", "n3"]
        why = (await hal.http.get(f"/v1/jobs/{job}/why")).json()
        assert why["reason"] == "affinity"
        assert why["message"] == (
            "what runs keeps it from 3 nodes (n1, n2, n3): it is to be apart from app=web by node"
        )

    on_controller(hal_home, body, SITE)


def test_work_follows_what_it_is_to_be_together_with(hal_home: Path) -> None:
    """The database is in rack r2, where first-fit would not go."""

    async def body(hal: Running) -> None:
        await site(hal)
        there = [{"label": "hal.node", "op": "in", "values": ["n3"]}]
        await hal.submit(SLEEP | {"labels": {"app": "db"}, "constraints": there})
        await running(hal, 1)
        (job,) = await hal.submit(WEB | {"together": ["app=db@rack"]})
        await running(hal, 2)
        assert await nodes_of(hal, job) == ["n3"]

    on_controller(hal_home, body, SITE)


def test_a_restarted_controller_knows_who_is_apart(hal_home: Path) -> None:
    """One web runs, another waits in the store; after the restart it stays away from the first one's rack."""

    async def first(hal: Running) -> None:
        await hal.agent("n1", cpu_milli=4_000)
        await hal.submit(WEB | {"apart": ["app@rack"]})
        await running(hal, 1)
        (waits,) = await hal.submit(WEB | {"apart": ["app@rack"]})
        why = (await hal.http.get(f"/v1/jobs/{waits}/why")).json()
        assert why["reason"] == "affinity"

    async def second(hal: Running) -> None:
        await hal.agent("n2", cpu_milli=4_000)
        await hal.agent("n3", cpu_milli=4_000)
        await hal.until(lambda: bool(hal.agents[1].running))
        assert not hal.agents[0].running

    on_controller(hal_home, first, SITE)
    on_controller(hal_home, second, SITE)


def test_a_level_that_is_not_declared_is_refused(hal_home: Path) -> None:
    """It names those that are; labels by which jobs are placed cannot be changed."""

    async def body(hal: Running) -> None:
        await site(hal)
        answer = await hal.http.post("/v1/jobs", json={"jobs": [WEB | {"apart": ["app@zone"]}]})
        assert answer.status_code == 400
        assert "no level 'zone'" in answer.text
        (job,) = await hal.submit(WEB | {"hold": True})
        changed = await hal.http.patch(f"/v1/jobs/{job}", json={"labels": {"app": "db"}})
        assert changed.status_code == 400
        kept = await hal.http.patch(f"/v1/jobs/{job}", json={"labels": {"app": "web", "more": "x"}})
        assert kept.status_code == 200

    on_controller(hal_home, body, SITE)


def test_preferred_terms_choose_among_what_is_free(hal_home: Path) -> None:
    """The database is on n3; its friend goes there, its foe elsewhere, and both start when there is nothing else."""

    async def body(hal: Running) -> None:
        await site(hal)
        there = [{"label": "hal.node", "op": "in", "values": ["n3"]}]
        await hal.submit(SLEEP | {"labels": {"app": "db"}, "constraints": there})
        await running(hal, 1)
        (friend,) = await hal.submit(SLEEP | {"prefer_together": ["app=db@node"]})
        await running(hal, 2)
        assert await nodes_of(hal, friend) == ["n3"]
        (foe,) = await hal.submit(WEB | {"prefer_apart": ["app=db@rack:40"], "array": "0-9"})
        await running(hal, 12)
        assert (await nodes_of(hal, foe)).count("n3") == 2
        answer = await hal.http.post("/v1/jobs", json={"jobs": [WEB | {"prefer_apart": ["app=db@rak:40"]}]})
        assert answer.json()["detail"].startswith("prefer_apart: no level 'rak'; did you mean 'rack'?")

    on_controller(hal_home, body, SITE)
