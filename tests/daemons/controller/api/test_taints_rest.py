"""Taints over REST, against a real controller: where jobs start, what they are told, what a restart keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.daemons.controller.running import Running, on_controller

SLEEP: dict[str, Any] = {"command": ["sleep"], "request": {"cpu": 1}, "walltime": "1h"}


async def act(hal: Running, action: str, **body: Any) -> list[dict[str, Any]]:
    answer = await hal.http.post(f"/v1/nodes/{action}", json={"nodes": ["n1"], **body})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def test_a_job_starts_on_a_tainted_node_only_if_it_tolerates_it(hal_home: Path) -> None:
    """n1 alone: without the toleration it is refused with what to write; with wait_for_change it waits, and starts
    when the taint is taken off."""

    async def body(hal: Running) -> None:
        agent = await hal.agent("n1", cpu_milli=2_000)
        (outcome,) = await act(hal, "taint", taints={"team": "bio"})
        assert (outcome["ok"], outcome["state"]) == (True, "up")
        assert (await hal.http.get("/v1/nodes/n1")).json()["taints"] == {"team": "bio"}
        refused = await hal.http.post("/v1/jobs", json={"jobs": [SLEEP]})
        assert refused.status_code >= 400
        assert "taints that it does not tolerate (team=bio)" in refused.text
        await hal.submit(SLEEP | {"tolerate": ["team=bio"]})
        await agent.until(lambda a: len(a.running) == 1)
        (waits,) = await hal.submit(SLEEP | {"wait_for_change": True})
        why = (await hal.http.get(f"/v1/jobs/{waits}/why")).json()
        assert "--tolerate team=bio" in str(why)
        await act(hal, "untaint", keys=["team"])
        await agent.until(lambda a: len(a.running) == 2)

    on_controller(hal_home, body)


def test_what_a_job_tolerates_can_be_changed(hal_home: Path) -> None:
    """A job that waits for another node starts on the tainted one once it tolerates it."""

    async def body(hal: Running) -> None:
        agent = await hal.agent("n1", cpu_milli=2_000)
        await act(hal, "taint", taints={"team": "bio"})
        (waits,) = await hal.submit(SLEEP | {"wait_for_change": True})
        answer = await hal.http.patch(f"/v1/jobs/{waits}", json={"tolerate": ["team"]})
        assert answer.status_code == 200, answer.text
        await agent.until(lambda a: len(a.running) == 1)

    on_controller(hal_home, body)


def test_a_request_without_taints_is_refused_whole(hal_home: Path) -> None:
    """So is one that is no taint, and a reason, which nothing keeps."""

    async def body(hal: Running) -> None:
        await hal.agent("n1")
        for action, more in (
            ("taint", {}),
            ("taint", {"taints": {"a b": ""}}),
            ("taint", {"taints": {"a": ""}, "reason": "why"}),
            ("untaint", {}),
        ):
            answer = await hal.http.post(f"/v1/nodes/{action}", json={"nodes": ["n1"], **more})
            assert answer.status_code == 400, answer.text

    on_controller(hal_home, body)
