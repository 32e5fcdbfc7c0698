"""Evicting jobs, tasks and all that runs on nodes over REST, against a real controller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hal.core.model import StepId
from tests.daemons.controller.running import LIMIT_S, Running, on_controller, running

SLEEP = {"command": ["sleep"], "request": {"cpu": 1}}


async def evict(hal: Running, **body: Any) -> list[dict[str, Any]]:
    """The outcomes."""
    answer = await hal.http.post("/v1/jobs/evict", json=body)
    assert answer.status_code in (200, 201), answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


async def attempts(hal: Running, job: str) -> list[tuple[str, str]]:
    """State and message of each attempt of its only task."""
    task = (await hal.http.get(f"/v1/jobs/{job}/tasks/0")).json()
    return [(one["state"], one["message"]) for one in task["attempts"]]


def test_an_evicted_job_runs_again_without_losing_a_retry(hal_home: Path) -> None:
    """Its first attempt says who evicted it and why."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit(SLEEP)
        await agent.until(lambda a: bool(a.running))
        (outcome,) = await evict(hal, ids=[job], reason="new disk")
        assert outcome == {"id": job, "ok": True, "state": "finalising", "tasks": 1}
        await agent.until(lambda a: StepId(int(job), 0, 2, 0) in a.running)
        task = (await hal.http.get(f"/v1/jobs/{job}/tasks/0")).json()
        by = (await hal.http.get("/v1/whoami")).json()["user"]
        assert (task["retries"], (await attempts(hal, job))[0]) == (0, ("preempted", f"evicted by {by}: new disk"))

    on_controller(hal_home, body)


def test_a_job_that_waits_after_an_eviction_says_so(hal_home: Path) -> None:
    """`why` names who evicted it and why, beside what it waits for."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit(SLEEP)
        await agent.until(lambda a: bool(a.running))
        await hal.http.post("/v1/nodes/drain", json={"nodes": ["n1"], "evict": "requeue", "reason": "new disk"})
        async with asyncio.timeout(LIMIT_S):
            while (await hal.http.get(f"/v1/jobs/{job}")).json()["state"] != "pending":
                await hal.runtime.sleep(1)
        why = (await hal.http.get(f"/v1/jobs/{job}/why")).json()
        assert "Its attempt 1 was evicted by" in why["message"]
        assert why["message"].endswith(": new disk")

    on_controller(hal_home, body)


def test_nodes_are_evicted_beside_what_is_named(hal_home: Path) -> None:
    """One outcome each: of a job that is not there, a node that is not there, and a node with one task."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        await hal.submit(SLEEP)
        await agent.until(lambda a: bool(a.running))
        missing, nowhere, node = await evict(hal, ids=["77"], nodes=["9", "n1"], mode="cancel")
        assert [missing["code"], nowhere["code"], nowhere["detail"]] == [
            "not-found",
            "not-found",
            "there is no node '9'",
        ]
        assert node == {"id": "n1", "ok": True, "state": "up", "detail": "1 task leaves"}

    on_controller(hal_home, body)


def test_a_filter_evicts_only_what_runs(hal_home: Path) -> None:
    """Of two jobs of the user one waits: it has no outcome, and waits on."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        running_job, waiting = await hal.submit(SLEEP, {**SLEEP, "hold": True})
        await agent.until(lambda a: bool(a.running))
        user = (await hal.http.get("/v1/whoami")).json()["user"]
        outcomes = await evict(hal, filter={"user": user}, mode="cancel")
        assert [one["id"] for one in outcomes] == [running_job]
        assert (await hal.ended(running_job))["state"] == "cancelled"
        assert (await hal.http.get(f"/v1/jobs/{waiting}")).json()["state"] == "held"

    on_controller(hal_home, body)


def test_a_malformed_eviction_is_one_error_and_evicts_nothing(hal_home: Path) -> None:
    """A mode that is none, a reason of two lines, a time that is none, nothing named; a time of a drain without a
    mode."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit(SLEEP)
        await agent.until(lambda a: bool(a.running))
        for wrong, field in (
            ({"ids": [job], "mode": "suspend"}, "mode"),
            ({"ids": [job], "reason": "two\nlines"}, "reason"),
            ({"ids": [job], "within": "soon"}, "within"),
            ({"ids": [job], "within": "8d"}, "within"),
            ({}, "no job is named"),
        ):
            answer = await hal.http.post("/v1/jobs/evict", json=wrong)
            assert (answer.status_code, field in answer.json()["detail"]) == (400, True), answer.text
        answer = await hal.http.post("/v1/nodes/drain", json={"nodes": ["n1"], "within": "1h"})
        assert (answer.status_code, "within: nothing is evicted" in answer.json()["detail"]) == (400, True)
        assert (await hal.http.get(f"/v1/jobs/{job}")).json()["state"] in ("allocated", "running")
        assert hal.api.nodes.get("n1").state == "up"

    on_controller(hal_home, body)


def test_the_eviction_of_a_drained_node_outlives_the_controller(hal_home: Path) -> None:
    """It was asked of the first controller, for an instant that passes under the second."""

    async def live() -> None:
        async with running(hal_home) as first:
            agent = await first.agent()
            (job,) = await first.submit(SLEEP)
            await agent.until(lambda a: bool(a.running))
            asked = {"nodes": ["n1"], "evict": "cancel", "within": "2s", "reason": "new disk"}
            assert (await first.http.post("/v1/nodes/drain", json=asked)).json()["results"][0]["state"] == "draining"
            await agent.leave()
            (closure,) = first.api.nodes.get("n1").closures
            assert (closure.evict, closure.evicted) == ("cancel", False)
        async with running(hal_home) as second:
            agent.moved_to(second.runtime)
            await agent.join()
            assert (await second.ended(job))["state"] == "cancelled"
            await second.until(lambda: second.api.nodes.get("n1").state == "cordoned")
            (closure,) = second.api.nodes.get("n1").closures
            assert closure.evicted

    asyncio.run(live())
