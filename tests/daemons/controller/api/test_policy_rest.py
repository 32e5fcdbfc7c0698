"""The policy over REST: versions, conflicts, dry runs; what is changed while running holds, and survives restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hal.daemons.controller.config import read_config
from hal.store import Store
from tests.daemons.controller.running import Running, on_controller, running

SLEEP = {"command": ["sleep"]}
TRUE = {"command": ["exit", "0"]}


def put(kind: str, name: str = "", **entry: Any) -> dict[str, Any]:
    return {"op": "put", "kind": kind, "name": name, "entry": entry}


async def change(hal: Running, *operations: dict[str, Any], status: int = 200, **params: str) -> dict[str, Any]:
    """PATCH; the answer, which must have that status."""
    answer = await hal.http.patch("/v1/policy", json={"operations": operations}, params=params)
    assert answer.status_code == status, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_a_queue_that_was_added_takes_jobs_at_once(hal_home: Path) -> None:
    """Before it is refused, after it is accepted with its default walltime; an event says who changed what."""

    async def body(hal: Running) -> None:
        refused = await hal.http.post("/v1/jobs", json={**TRUE, "queue": "short"})
        assert (refused.status_code, "valid queues: default" in refused.json()["hint"]) == (400, True)
        told = await change(hal, put("queue", "short", max_walltime="15m"), note="for tests")
        assert (told["version"], told["changes"][0]["entry"]) == (2, "queues.short")
        (job,) = await hal.submit({**TRUE, "queue": "short"})
        assert (await hal.http.get(f"/v1/jobs/{job}")).json()["walltime"] == "15m"
        events = (await hal.http.get("/v1/events")).json()["events"]
        (event,) = [e for e in events if e["kind"] == "policy-changed" and e["payload"]["version"] == 2]
        assert event["cause"].startswith("user:")
        assert event["payload"]["changes"] == [{"entry": "queues.short", "field": ""}]
        found = (await hal.http.get("/v1/policy")).json()
        assert (found["version"], found["note"], found["policy"]["queues"]["short"]) == (
            2,
            "for tests",
            {"max_walltime": "15m"},
        )

    on_controller(hal_home, body)


def test_versions_are_listed_read_and_restored(hal_home: Path) -> None:
    """A rollback is the old policy as a new version; what does not change anything makes no version."""

    async def body(hal: Running) -> None:
        await change(hal, put("queue", "a"))
        await change(hal, put("queue", "b"))
        assert (await change(hal, put("queue", "b")))["changes"] == []
        listed = (await hal.http.get("/v1/policy/versions", params={"limit": "2"})).json()
        assert ([v["version"] for v in listed["versions"]], listed["cursor"]) == ([3, 2], "2")
        old = (await hal.http.get("/v1/policy/versions/2")).json()["policy"]
        answer = await hal.http.put("/v1/policy", json=old, headers={"If-Match": '"3"'})
        assert (answer.json()["version"], answer.headers["etag"]) == (4, '"4"')
        assert set((await hal.http.get("/v1/policy")).json()["policy"]["queues"]) == {"default", "a"}
        missing = await hal.http.get("/v1/policy/versions/9")
        assert missing.status_code == 404

    on_controller(hal_home, body)


def test_two_operators_do_not_overwrite_one_another(hal_home: Path) -> None:
    """A change for another version than the one that holds is a conflict; a whole policy must name its version."""

    async def body(hal: Running) -> None:
        await change(hal, put("queue", "a"))
        for answer in (
            await hal.http.put("/v1/policy", json={}, headers={"If-Match": '"1"'}),
            await hal.http.patch("/v1/policy", json={"operations": [put("queue", "b")]}, headers={"If-Match": "1"}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert (await hal.http.put("/v1/policy", json={})).status_code == 400
        assert (await hal.http.get("/v1/policy")).json()["version"] == 2

    on_controller(hal_home, body)


def test_what_cannot_hold_changes_nothing(hal_home: Path) -> None:
    """Several operations are all done, or none."""

    async def body(hal: Running) -> None:
        wrong = {"op": "set", "kind": "queue", "name": "x", "entry": {"priority": 1}}
        assert (await change(hal, put("queue", "a"), wrong, status=404))["code"] == "not-found"
        told = await change(hal, put("limit", "l", queue="defualt", running=1), status=400)
        assert "did you mean 'default'" in told["detail"]
        assert set((await hal.http.get("/v1/policy")).json()["policy"]["queues"]) == {"default"}

    on_controller(hal_home, body)


def test_a_dry_run_tells_what_a_change_means_for_live_jobs(hal_home: Path) -> None:
    """Waiting jobs that would be refused today, and limits that are exceeded already; nothing is changed."""

    async def body(hal: Running) -> None:
        agent = await hal.agent(cpu_milli=2_000)
        (array,) = await hal.submit({**SLEEP, "array": 5, "walltime": "2h"})
        await agent.until(lambda a: len(a.running) == 2)
        told = await change(
            hal,
            put("queue", "default", max_walltime="1h"),
            put("limit", "few", user="*", running=1, pending=2, resources={"cpu": 1}),
            dry_run="1",
        )
        effects = told["effects"]
        assert (told["version"], told["dry_run"], effects["examined"]) == (1, True, 1)
        (refused,) = effects["refused"]
        assert (refused["job"], "longer than queue 'default' allows" in refused["reason"]) == (array, True)
        over = {one["what"]: (one["now"], one["allowed"]) for one in effects["over"]}
        assert over == {"running": ("2", "1"), "pending": ("3", "2"), "cpu": ("2", "1")}
        assert (await hal.http.get("/v1/policy")).json()["version"] == 1

    on_controller(hal_home, body)


def test_the_policy_survives_restarts_and_hal_toml_is_taken_in_when_it_was_changed(hal_home: Path) -> None:
    """The same file again keeps what REST changed; another one becomes the next version, if it removes nothing."""
    first = read_config("[queues.short]\nmax_walltime = '15m'")
    second = read_config("[queues.short]\n[queues.extra]\n[queues.long]\npriority = -5")

    async def body() -> None:
        async with running(hal_home, first) as hal:
            await change(hal, put("queue", "extra"))
        async with running(hal_home, first) as hal:
            found = (await hal.http.get("/v1/policy")).json()
            assert (found["version"], set(found["policy"]["queues"])) == (2, {"default", "short", "extra"})
        async with running(hal_home, second) as hal:
            found = (await hal.http.get("/v1/policy")).json()
            assert (found["version"], set(found["policy"]["queues"])) == (3, {"default", "short", "extra", "long"})
            assert (found["user"], found["note"]) == ("", "hal.toml")
        async with running(hal_home, first) as hal:
            assert (await hal.http.get("/v1/policy")).json()["version"] == 3

    asyncio.run(body())
    store = Store.open(hal_home / "db" / "hal.sqlite")
    assert [row.version for row in store.policies()] == [3, 2, 1]
    store.close()


def test_licences_are_listed_with_what_running_tasks_hold(hal_home: Path) -> None:
    """Ten there are; a running task holds two; a job that asks for more than there are is refused."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        await change(hal, put("licence", "matlab", total=10))
        await hal.submit({**SLEEP, "licences": "matlab:2"})
        await agent.until(lambda a: bool(a.running))
        (one,) = (await hal.http.get("/v1/licences")).json()["licences"]
        assert one == {"name": "matlab", "total": 10, "used": 2, "booked": 0, "free": 8}
        refused = await hal.http.post("/v1/jobs", json={**TRUE, "licences": {"matlap": 1}})
        assert "did you mean 'matlab'" in refused.json()["detail"]
        refused = await hal.http.post("/v1/jobs", json={**TRUE, "licences": {"matlab": 11}})
        assert "there are 10" in refused.json()["detail"]

    on_controller(hal_home, body)


def test_safety_submissions_at_once_never_exceed_a_limit(hal_home: Path) -> None:
    """Twenty requests of ten tasks each come together, fifty may wait: five are accepted; a restart counts the same."""

    async def body() -> None:
        async with running(hal_home) as hal:
            await change(hal, put("limit", "few", user="*", pending=50))
            answers = await asyncio.gather(*(hal.http.post("/v1/jobs", json={**SLEEP, "array": 10}) for _ in range(20)))
            assert sorted(answer.status_code for answer in answers) == [201] * 5 + [409] * 15
        async with running(hal_home) as hal:
            assert (await hal.http.post("/v1/jobs", json=SLEEP)).status_code == 409
            await hal.http.post("/v1/jobs/cancel", json={"ids": ["1"]})
            assert (await hal.http.post("/v1/jobs", json={**SLEEP, "array": 10})).status_code == 201

    asyncio.run(body())
