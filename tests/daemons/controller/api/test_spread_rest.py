"""Jobs that are spread over domains, on a controller: where they start, what `why` counts, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hal.core.model.topology.files import topology_from_text
from hal.daemons.controller.config import Config
from tests.daemons.controller.running import Running, on_controller

SITE = Config(
    topology=topology_from_text(
        """
        levels = ["zone", "rack"]
        [nodes]
        "n[1-2]" = "east/r1"
        "n3" = "west/r1"
        """,
        "site.toml",
    )
)
SLEEP: dict[str, Any] = {"command": ["sleep"], "request": {"cpu": 1}, "walltime": "1h"}


async def site(hal: Running) -> None:
    for name in ("n1", "n2", "n3"):
        await hal.agent(name, cpu_milli=2_000)


async def running(hal: Running, steps: int) -> None:
    await hal.until(lambda: sum(len(agent.running) for agent in hal.agents) == steps)


async def nodes_of(hal: Running, job: str) -> list[str]:
    """The nodes of its tasks that run."""
    tasks = (await hal.http.get(f"/v1/jobs/{job}/tasks")).json()["tasks"]
    return sorted(node for task in tasks for node in task.get("nodes") or ())


def test_tasks_are_in_different_zones_and_the_scores_say_how_many(hal_home: Path) -> None:
    """Zone west is full after two tasks; the next goes to the fuller zone instead of waiting, the last one waits."""

    async def body(hal: Running) -> None:
        await site(hal)
        (job,) = await hal.submit(SLEEP | {"spread": "zone", "array": "0-4"})
        await running(hal, 5)
        assert await nodes_of(hal, job) == ["n1", "n1", "n2", "n3", "n3"]
        (other,) = await hal.submit(SLEEP | {"spread": "node", "array": "0-1"})
        await running(hal, 6)
        found = (await hal.http.get(f"/v1/jobs/{other}/scores")).json()
        assert (found["spread"], found["nodes"]) == ("node", [])

    on_controller(hal_home, body, SITE)


def test_a_level_that_is_not_there_is_refused_and_a_change_counts(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        await site(hal)
        answer = await hal.http.post("/v1/jobs", json={"jobs": [SLEEP | {"spread": "zon"}]})
        assert answer.status_code == 400
        assert answer.json()["detail"].startswith("spread: no level 'zon'; did you mean 'zone'?")
        (job,) = await hal.submit(SLEEP | {"spread": "zone", "hold": True, "array": "0-1"})
        await hal.http.patch(f"/v1/jobs/{job}", json={"spread": ""})
        assert "spread" not in (await hal.http.get(f"/v1/jobs/{job}")).json()["spec"]
        await hal.http.post("/v1/jobs/release", json={"ids": [job]})
        await running(hal, 2)
        assert await nodes_of(hal, job) == ["n1", "n1"]

    on_controller(hal_home, body, SITE)
