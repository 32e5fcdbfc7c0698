"""Queues with preferences, on a controller: advice decides where their jobs start, and the scores say how much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.daemons.controller.running import Running, on_controller

SLEEP: dict[str, Any] = {"command": ["sleep"], "request": {"cpu": 1}, "walltime": "1h"}
QUEUE = {"placement": "best-fit", "preferences": {"price": -0.5}}


async def cluster(hal: Running) -> None:
    """Two nodes and a queue that looks at prices; n2 is the cheap one."""
    for name, cores in (("n1", 2), ("n2", 4)):
        await hal.agent(name, cpu_milli=1_000 * cores)
    operations = [{"op": "put", "kind": "queue", "name": "cheap", "entry": QUEUE}]
    assert (await hal.http.patch("/v1/policy", json={"operations": operations})).status_code == 200
    body = {"space": "nodes", "keys": ["n1", "n2"], "values": [0.9, 0.1]}
    assert (await hal.http.put("/v1/advice/price", json=body)).status_code == 200


async def running(hal: Running, steps: int) -> None:
    await hal.until(lambda: sum(len(agent.running) for agent in hal.agents) == steps)


async def nodes_of(hal: Running, job: str) -> list[str]:
    """The nodes of its tasks that run."""
    tasks = (await hal.http.get(f"/v1/jobs/{job}/tasks")).json()["tasks"]
    return sorted(node for task in tasks for node in task.get("nodes") or ())


def test_jobs_of_the_queue_go_where_it_is_cheap(hal_home: Path) -> None:
    """And those of another queue to the first node."""

    async def body(hal: Running) -> None:
        await cluster(hal)
        cheap, plain = await hal.submit(SLEEP | {"queue": "cheap"}, SLEEP)
        await running(hal, 2)
        assert (await nodes_of(hal, cheap), await nodes_of(hal, plain)) == (["n2"], ["n1"])
        (kind,) = (await hal.http.get("/v1/advice")).json()["advice"]
        assert kind["read_by"] == ["queue cheap"]

    on_controller(hal_home, body)


def test_scores_show_what_each_part_adds(hal_home: Path) -> None:
    """A job that waits because its limit is full: n1 would be tighter, and costs more."""

    async def body(hal: Running) -> None:
        await cluster(hal)
        limit = {"op": "put", "kind": "limit", "name": "one", "entry": {"queue": "cheap", "running": 1}}
        assert (await hal.http.patch("/v1/policy", json={"operations": [limit]})).status_code == 200
        await hal.submit(SLEEP | {"queue": "cheap"})
        await running(hal, 1)
        (job,) = await hal.submit(SLEEP | {"queue": "cheap"})
        found = (await hal.http.get(f"/v1/jobs/{job}/scores")).json()
        assert found["placement"] == "best-fit"
        assert [(one["node"], one["parts"], one["score"]) for one in found["nodes"]] == [
            ("n2", {"placement": 0.5, "price": -0.05}, 0.45),
            ("n1", {"placement": 0.5, "price": -0.45}, 0.05),
        ]

    on_controller(hal_home, body)
