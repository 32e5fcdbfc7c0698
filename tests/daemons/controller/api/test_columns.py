"""All nodes in columns, and the states of all tasks as runs: the same as the long answers say."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal.daemons.controller.service.jobs import jobs
from tests.daemons.controller.running import Running, on_controller


def test_columns_of_nodes_say_what_the_list_of_nodes_says(hal_home: Path) -> None:
    """Names, states, what each offers and has free; 304 until something changes."""

    async def body(hal: Running) -> None:
        await hal.agent("n1", cpu_milli=4_000)
        await hal.agent("n2", cpu_milli=2_000, gpu_milli=1_000)
        await hal.http.post("/v1/nodes/cordon", json={"nodes": ["n2"], "reason": "new disk"})
        await hal.submit({"command": ["true"], "request": {"cpu": 3}})
        await hal.until(lambda: hal.api.nodes.all()[0].free["cpu"] == 1_000)
        answer = await hal.http.get("/v1/node-use")
        use, listed = answer.json(), (await hal.http.get("/v1/nodes")).json()["nodes"]
        assert use["names"] == [node["name"] for node in listed]
        assert [use["states"][code] for code in use["state"]] == [node["state"] for node in listed]
        for resource, columns in use["resources"].items():
            assert columns["capacity"] == [node["capacity"].get(resource, 0) for node in listed]
            assert columns["free"] == [node["free"].get(resource, 0) for node in listed]
        assert "new disk" in use["reasons"]["n2"]
        same = await hal.http.get("/v1/node-use", headers={"If-None-Match": answer.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")

    on_controller(hal_home, body)


@pytest.mark.parametrize("at_once", [2, 20_000])
def test_runs_of_states_say_what_the_list_of_tasks_says(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Ten tasks: some run, one was cancelled, others wait; read in one page or in many."""
    monkeypatch.setattr(jobs, "MAX_STATE_ATTEMPTS", at_once)

    async def body(hal: Running) -> None:
        await hal.agent("n1", cpu_milli=4_000)
        (job,) = await hal.submit({"command": ["true"], "array": 10, "request": {"cpu": 1}})
        await hal.until(lambda: hal.api.nodes.all()[0].free["cpu"] == 0)
        await hal.http.post("/v1/jobs/cancel", json={"ids": [f"{job}.7"]})
        found = (await hal.http.get(f"/v1/jobs/{job}/task-states")).json()
        listed = (await hal.http.get(f"/v1/jobs/{job}/tasks")).json()["tasks"]
        spread = [found["states"][code] for code, count in found["runs"] for _ in range(count)]
        assert spread == [task["state"] for task in listed]
        assert (found["tasks"], spread[7], spread[9]) == (10, "cancelled", "pending")
        assert (await hal.http.get("/v1/jobs/99/task-states")).status_code == 404

    on_controller(hal_home, body)
