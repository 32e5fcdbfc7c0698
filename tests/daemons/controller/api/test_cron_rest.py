"""Periodic jobs over REST, on a running controller: whose they are, what is refused, and what their owners may do when
they are due."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from msgspec.structs import replace

from hal.daemons.controller.config import read_config
from tests.daemons.controller.access.people import person
from tests.daemons.controller.running import Running, on_controller

TRUE: dict[str, Any] = {"command": ["true"], "account": "physics"}
POLL: dict[str, Any] = {"schedule": "0 3 * * *", "job": TRUE}
POLICY = """
[accounts.physics]
closed = true
users = { ann = 1, bob = 1 }
"""


def on_site(root: Path, test: Any) -> None:
    """On a controller where ann and bob may submit in a closed account."""
    on_controller(root, test, read_config(POLICY))


async def add(http: httpx.AsyncClient, name: str = "poll", status: int = 200, **fields: Any) -> dict[str, Any]:
    """The answer, which must have that status; fields of the periodic job, and parameters of the request."""
    params = {key: fields.pop(key) for key in ("user", "replace", "dry_run") if key in fields}
    answer = await http.put(f"/v1/cron/{name}", json={**POLL, **fields}, params=params)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def runs(http: httpx.AsyncClient, name: str = "poll", **params: Any) -> list[dict[str, Any]]:
    """Its history, newest first."""
    answer = await http.get(f"/v1/cron/{name}/history", params=params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["runs"]
    return found


async def fall_due(hal: Running, http: httpx.AsyncClient, name: str = "poll", **fields: Any) -> dict[str, Any]:
    """What becomes of a due time that comes now; `fields`: of the row."""
    service = hal.api.periodic
    before = len(await runs(http, name))
    plane = service._port.plane
    (row,) = [row for row in plane.committed.values() if row.name == name]

    def bring(now_ms: int) -> None:
        plane.change(replace(row, next_ms=now_ms, **fields))

    await service._parts.loop.inbox.call(bring)
    service.submission.changed.set()
    while len(found := await runs(http, name)) == before:
        await hal.runtime.sleep(5)
    return found[0]


def test_a_periodic_job_is_submitted_in_its_owners_name_when_it_is_due(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        async with person(hal, "ann") as ann:
            await add(ann)
            run = await fall_due(hal, ann)
            job = (await ann.get(f"/v1/jobs/{run['job']}")).json()
            assert (run["outcome"], run["state"], run["manual"]) == ("submitted", "pending", False)
            assert (job["user"], job["name"], job["account"]) == ("ann", "poll", "physics")
            assert job["spec"]["env"]["HAL_CRON"] == "poll"
            listed = (await ann.get("/v1/cron")).json()["periodic"]
            assert [(one["name"], one["last"]["job"], one["live"]) for one in listed] == [("poll", "1", ["1"])]

    on_site(hal_home, body)


def test_when_its_owner_was_removed_from_the_account_the_due_time_says_so(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        async with person(hal, "ann") as ann:
            await add(ann)
            change = {"op": "put", "kind": "account", "name": "physics", "entry": {"closed": True, "users": {"bob": 1}}}
            assert (await hal.http.patch("/v1/policy", json={"operations": [change]})).status_code == 200
            run = await fall_due(hal, ann)
            assert (run["outcome"], run["job"]) == ("refused", "")
            assert "physics" in run["reason"]
            (listed,) = (await ann.get("/v1/cron")).json()["periodic"]
            assert listed["last"] == run
            assert listed["next_ms"] is not None

    on_site(hal_home, body)


def test_when_the_machine_does_not_know_its_owner_any_more_the_due_time_says_so(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        async with person(hal, "ann") as ann:
            await add(ann)
            run = await fall_due(hal, ann, on_system=True)
            assert (run["outcome"], run["reason"]) == ("refused", "this machine knows no user 'ann' any more")

    on_site(hal_home, body)


def test_one_that_is_refused_keeps_no_other_from_being_submitted(hal_home: Path) -> None:
    """Both are due at once, in one group; the secret of one was removed."""

    async def body(hal: Running) -> None:
        async with person(hal, "ann") as ann:
            await ann.put("/v1/secrets/db", json={"value": "eA=="})
            await add(ann, "bad", job=TRUE | {"secrets": ["db"]})
            await add(ann, "good")
            await ann.delete("/v1/secrets/db")
            plane = hal.api.periodic._port.plane
            rows = list(plane.committed.values())
            await hal.api.periodic._parts.loop.inbox.call(
                lambda now_ms: [plane.change(replace(row, next_ms=now_ms)) for row in rows]
            )
            hal.api.periodic.submission.changed.set()
            while not (await runs(ann, "bad") and await runs(ann, "good")):
                await hal.runtime.sleep(5)
            (bad,), (good,) = await runs(ann, "bad"), await runs(ann, "good")
            assert (bad["outcome"], good["outcome"]) == ("refused", "submitted")
            assert "has no secret 'db'" in bad["reason"]

    on_site(hal_home, body)


def test_nobody_sees_or_changes_those_of_others(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        async with (
            person(hal, "ann") as ann,
            person(hal, "bob") as bob,
            person(hal, "ann", accounts=["other"]) as narrowed,
        ):
            await add(ann)
            await add(narrowed, "mine", status=403)
            assert (await bob.get("/v1/cron")).json()["periodic"] == []
            asked = [await bob.get("/v1/cron/poll"), await bob.post("/v1/cron/poll/run")]
            asked += [await bob.get("/v1/cron", params={"user": "ann"}), await bob.delete("/v1/cron/poll?user=ann")]
            asked += [await bob.post("/v1/cron/poll/hold?user=ann"), await bob.get("/v1/cron/poll/history?user=ann")]
            assert [answer.status_code for answer in asked] == [404, 404, 403, 403, 403, 403]
            await add(bob, "other", status=403, user="ann")
            await add(bob, "other", status=403, job=TRUE | {"priority": 5})
            listed = (await hal.http.get("/v1/cron")).json()["periodic"]
            assert [(one["user"], one["name"]) for one in listed] == [("ann", "poll")]

    on_site(hal_home, body)


def test_an_operator_holds_and_removes_those_of_others(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        async with person(hal, "ann") as ann, person(hal, "eve", role="operator") as eve:
            await add(ann)
            held = await eve.post("/v1/cron/poll/hold", params={"user": "ann"})
            assert (held.json()["held_by"], held.json()["next_ms"]) == ("eve", None)
            again = (await ann.post("/v1/cron/poll/resume")).json()
            assert (again["held_by"], again["next_ms"] is None) == ("", False)
            assert (await eve.delete("/v1/cron/poll", params={"user": "ann"})).status_code == 200
            assert (await ann.get("/v1/cron/poll")).status_code == 404

    on_site(hal_home, body)


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"job": {"command": ["true"], "ship": "sha256:" + "0" * 64}}, "job.ship: a periodic job has none"),
    ({"schedule": "61 * * * *"}, "schedule: '61 * * * *': bad minute"),
    ({"zone": "Mars/Base"}, "there is no time zone"),
    ({"overlap": "maybe"}, "overlap"),
    ({"keep": 0}, "keep"),
    ({"job": TRUE | {"dependencies": ["afterok:1"]}}, "job.dependencies: a periodic job has none"),
    ({"job": TRUE | {"queue": "nope"}}, "'nope' is not a queue"),
    ({"job": TRUE | {"hold": True}}, "job.hold"),
    ({"job": TRUE | {"env": {"A": "x" * 100_000, "B": "x" * 100_000, "C": "x" * 100_000}}}, "bytes; at most"),
    ({"job": {}}, "command"),
)


def test_what_cannot_be_submitted_is_refused_at_once(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        async with person(hal, "ann") as ann:
            for fields, said in REFUSED:
                assert said in (await add(ann, status=400, **fields))["detail"]
            assert (await ann.get("/v1/cron")).json()["periodic"] == []

    on_site(hal_home, body)


def test_one_of_a_name_is_changed_only_where_that_is_asked_for(hal_home: Path) -> None:
    """It keeps its history, and what is only checked changes nothing."""

    async def body(hal: Running) -> None:
        async with person(hal, "ann") as ann:
            await add(ann)
            await ann.post("/v1/cron/poll/run")
            await add(ann, status=409)
            await add(ann, schedule="@hourly", replace=1, dry_run=1)
            assert (await ann.get("/v1/cron/poll")).json()["schedule"] == "0 3 * * *"
            await add(ann, schedule="@hourly", replace=1)
            assert (await ann.get("/v1/cron/poll")).json()["schedule"] == "@hourly"
            assert len(await runs(ann)) == 1

    on_site(hal_home, body)


def test_by_hand_it_is_submitted_once_for_each_key(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        async with person(hal, "ann") as ann:
            await add(ann)
            answers = [await ann.post("/v1/cron/poll/run", headers={"Idempotency-Key": key}) for key in ("a", "a", "b")]
            assert [answer.json()["job"] for answer in answers] == ["1", "1", "2"]
            assert [(run["number"], run["manual"]) for run in await runs(ann)] == [(2, True), (1, True)]
            assert [run["number"] for run in await runs(ann, limit=1, cursor=2)] == [1]

    on_site(hal_home, body)


def test_what_is_made_survives_a_restart_of_the_controller(hal_home: Path) -> None:
    async def make(hal: Running) -> None:
        async with person(hal, "ann") as ann:
            await add(ann)
            await ann.post("/v1/cron/poll/run")

    async def look(hal: Running) -> None:
        (found,) = (await hal.http.get("/v1/cron")).json()["periodic"]
        assert (found["name"], found["live"], found["last"]["job"]) == ("poll", ["1"], "1")

    on_site(hal_home, make)
    on_site(hal_home, look)
