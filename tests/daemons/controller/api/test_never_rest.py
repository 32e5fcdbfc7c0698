"""What could never start, over REST: refused, warned of, explained; against a real controller and engine."""

from __future__ import annotations

from pathlib import Path

from tests.daemons.controller.running import Running, on_controller

WIDE = {"command": ["exit", "0"], "request": {"cpu": 2}}
ODD = {"command": ["exit", "0"], "request": {"cpu": 1, "fpga": 1}}
SMALL = {"op": "put", "kind": "limit", "name": "small", "entry": {"user": "*", "resources": {"cpu": 1}}}
NEVER = (
    "never starts, because limit 'small' (user {}) allows 1 cpu at once and this asks for 2, until that limit is "
    "raised (`hal limit set small`)"
)


def test_a_job_beyond_its_limit_is_refused_checked_and_explained_in_the_same_words(hal_home: Path) -> None:
    """Submission, dry run, and `why` of one that was accepted with `wait_for_change`; raising the limit lets it run."""

    async def body(hal: Running) -> None:
        await hal.agent("n1", cpu_milli=4_000)
        assert (await hal.http.patch("/v1/policy", json={"operations": [SMALL]})).status_code == 200
        refused = [await hal.http.post(f"/v1/jobs{query}", json=WIDE) for query in ("", "?dry_run=true")]
        (job,) = await hal.submit({**WIDE, "wait_for_change": True})
        words = NEVER.format((await hal.http.get(f"/v1/jobs/{job}")).json()["user"])
        assert [one.json()["detail"].startswith(words) for one in refused] == [True, True]
        why = (await hal.http.get(f"/v1/jobs/{job}/why")).json()
        assert (why["never"], why["reason"], why["message"]) == (True, "limit", words)
        checked = await hal.http.post("/v1/jobs?dry_run=true", json={**WIDE, "wait_for_change": True})
        assert checked.json()["warnings"] == [words]
        gone = {"op": "delete", "kind": "limit", "name": "small"}
        assert (await hal.http.patch("/v1/policy", json={"operations": [gone]})).status_code == 200
        assert (await hal.ended(job))["state"] == "succeeded"

    on_controller(hal_home, body)


def test_a_resource_that_no_node_has_is_answered_with_those_that_nodes_have(hal_home: Path) -> None:
    """Asking for less of it would not help."""

    async def body(hal: Running) -> None:
        await hal.agent("n1", cpu_milli=4_000)
        refused = (await hal.http.post("/v1/jobs", json=ODD)).json()
        assert "no node has any, until a node with fpga joins" in refused["detail"]
        assert "nodes have cpu" in str(refused)

    on_controller(hal_home, body)
