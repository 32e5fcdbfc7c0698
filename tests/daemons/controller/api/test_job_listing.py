"""What a listing of jobs shows on request: why each waits, as `/why` finds it, and where each runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hal.daemons.controller.config import read_config
from tests.daemons.controller.api.test_policy_rest import SLEEP
from tests.daemons.controller.running import LIMIT_S, Running, on_controller

RULES = """
[queues.default]
[queues.night]
starts = false
[queues.strict]
strict = true
[limits.few]
user = "*"
queue = "default"
resources = { cpu = 2 }
"""
BIG = {**SLEEP, "request": {"cpu": 2}, "walltime": "1h"}


async def listed(hal: Running, **query: object) -> dict[str, dict[str, Any]]:
    answer = await hal.http.get("/v1/jobs", params={"limit": "100"} | {name: str(text) for name, text in query.items()})
    assert answer.status_code == 200, answer.text
    return {job["id"]: job for job in answer.json()["jobs"]}


async def once_looked_at(hal: Running, jobs: list[str]) -> dict[str, dict[str, Any]]:
    """The listing with reasons, once the engine has looked at all of these."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            found = await listed(hal, reasons="true")
            if all(found[job]["waiting"]["reason"] != "not-considered" for job in jobs):
                return found


def test_each_reason_of_a_listing_is_that_of_why(hal_home: Path) -> None:
    """Ten jobs that wait for ten different things, among them a drained node; a running one waits for nothing."""

    async def body(hal: Running) -> None:
        agent = await hal.agent("n1", cpu_milli=4_000)
        big = await hal.agent("big", cpu_milli=16_000)
        assert (await hal.http.post("/v1/nodes/drain", json={"nodes": ["big"]})).status_code == 200
        (runs,) = await hal.submit({**BIG, "user": "ada"})
        await agent.until(lambda a: len(a.running) == 1)
        waiting = await hal.submit(
            {**BIG, "user": "ada"},
            {**SLEEP, "user": "ada", "queue": "night"},
            {**SLEEP, "user": "ada", "hold": True},
            {**SLEEP, "user": "ada", "begin_at_ms": 4_070_908_800_000},
            {**SLEEP, "user": "ada", "dependencies": [f"afterok:{runs}"]},
            {**BIG, "queue": "strict", "user": "bob", "request": {"cpu": 4}},
            {**BIG, "queue": "strict", "user": "bob"},
            {**BIG, "queue": "strict", "user": "bob", "request": {"cpu": 12}},
        )
        found = await once_looked_at(hal, waiting)
        shown = {job: (found[job]["waiting"]["reason"], found[job]["waiting"]["short"]) for job in waiting}
        explained = {}
        for job in waiting:
            why = (await hal.http.get(f"/v1/jobs/{job}/why")).json()
            explained[job] = (why["reason"], why["short"])
        assert shown == explained
        assert [short for _, short in shown.values()] == [
            "limit user cpu", "queue closed", "held", "begin", "dependency", "resources", "strict order", "node drain",
        ]  # fmt: skip
        assert "waiting" not in found[runs]
        assert not big.running

    on_controller(hal_home, body, read_config(RULES))


def test_a_listing_without_the_request_shows_no_reason(hal_home: Path) -> None:
    """Nor where anything runs: what is not asked for costs nothing."""

    async def body(hal: Running) -> None:
        (job,) = await hal.submit({**SLEEP, "hold": True})
        assert not {"waiting", "placement"} & (await listed(hal))[job].keys()

    on_controller(hal_home, body)


def test_a_listing_names_nodes_and_finds_jobs_by_node_and_time(hal_home: Path) -> None:
    """A gang on both nodes, ended by its walltime at the latest; a job of one of the two is not on the other."""

    async def body(hal: Running) -> None:
        agents = [await hal.agent(name, cpu_milli=2_000) for name in ("n_1", "nx1")]
        (gang,) = await hal.submit({**SLEEP, "nodes": 2, "walltime": "1h"})
        await hal.until(lambda: all(agent.running for agent in agents))
        (pinned,) = await hal.submit({**SLEEP, "constraints": ["hal.node=nx1"]})
        await hal.until(lambda: any(len(agent.running) == 2 for agent in agents))
        found = await listed(hal, placed="true")
        where = found[gang]["placement"]
        assert (where["nodes"], where["more"]) == (["n_1", "nx1"], False)
        assert where["ends_by_ms"] >= found[gang]["submit_ms"] + 3_600_000
        assert set(await listed(hal, node="nx1")) == {gang, pinned}
        assert set(await listed(hal, node="n_1")) == {gang}  # its _ stands for itself
        middle = found[gang]["submit_ms"] + 1
        early = set(await listed(hal, submitted_before_ms=middle))
        late = set(await listed(hal, submitted_from_ms=middle))
        assert (gang in early, early & late) == (True, set())

    on_controller(hal_home, body)


def test_what_depended_on_a_job_is_named_on_request_after_it_has_ended(hal_home: Path) -> None:
    """Of two that wait for it one was cancelled; without the request only the other is named."""

    async def body(hal: Running) -> None:
        (first,) = await hal.submit({**SLEEP, "hold": True})
        gone, waits = await hal.submit(*[{**SLEEP, "dependencies": [f"afterok:{first}"]}] * 2)
        await hal.http.post("/v1/jobs/cancel", json={"ids": [gone]})
        await hal.ended(gone)
        for query, dependants in (({}, [waits]), ({"all_dependants": "1"}, [gone, waits])):
            assert (await hal.http.get(f"/v1/jobs/{first}", params=query)).json()["dependants"] == dependants

    on_controller(hal_home, body)


def test_an_array_has_no_exit_code_before_it_has_ended(hal_home: Path) -> None:
    """One of two tasks has ended with 0: whoever polls must not take that for the job's."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(cpu_milli=1_000)
        (job,) = await hal.submit({**SLEEP, "array": "0-1"})
        await agent.until(lambda a: any(step.task == 0 for step in a.running))
        agent.end(next(step for step in agent.running if step.task == 0))
        await agent.until(lambda a: any(step.task == 1 for step in a.running))
        view = (await hal.http.get(f"/v1/jobs/{job}")).json()
        assert (view["counts"]["succeeded"], view["exit_code"]) == (1, None)
        agent.end(next(step for step in agent.running if step.task == 1), code=3)
        assert (await hal.ended(job))["exit_code"] == 3

    on_controller(hal_home, body)
