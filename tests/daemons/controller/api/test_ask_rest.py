"""What waits and what is reserved, over REST: as the engine has it, by class, to whoever may know."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import msgspec

from hal.daemons.controller.service.ask import Ask, WantsView
from hal.rest.rights import Role
from tests.daemons.controller.access.people import person
from tests.daemons.controller.api.test_rest import problem
from tests.daemons.controller.running import Running, on_controller

SLEEP = {"command": ["sleep"]}


def job(cpu: int, **fields: Any) -> dict[str, Any]:
    """A job of so many cpus that runs until it is stopped."""
    return {**SLEEP, "request": {"cpu": cpu}, **fields}


async def wants(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Waiting work by class."""
    answer = await http.get("/v1/wants")
    assert answer.status_code == 200, answer.text
    classes: list[dict[str, Any]] = answer.json()["classes"]
    return classes


async def full(hal: Running) -> list[str]:
    """A node of four cpus with a job that takes them for an hour; its id."""
    await hal.agent(cpu_milli=4_000)
    ids = await hal.submit(job(4, walltime="1h"))
    await hal.until(lambda: len(hal.agents[0].running) == 1)
    return ids


def test_waiting_work_is_shown_by_class_in_order(hal_home: Path) -> None:
    """Two jobs of 3 cpus, one of them an array of 5 tasks, behind one of 2 on two nodes, of which there is one."""

    async def body(hal: Running) -> None:
        await full(hal)
        ids = await hal.submit(job(3, priority=5), job(3, array=5))
        first, *others = await wants(hal.http)
        assert (first["jobs"], first["tasks"], first["head"], others) == (2, 6, ids[0], [])
        assert (first["request"]["cpu"], first["nodes"]) == (3_000, 1)
        assert (first["short"], first["resource"], first["short_by"]) == ("resources", "cpu", 3_000)
        assert (first["fits_now"], first["fits_ever"]) == (0, 1)
        assert first["queues"] == {"default": 2}

    on_controller(hal_home, body)


def test_an_answer_after_changes_is_what_a_first_answer_would_be(hal_home: Path) -> None:
    """Submissions of known and new classes, also of a new user, each followed by a question: texts of classes that have
    not changed come from the answer before."""

    async def body(hal: Running) -> None:
        await full(hal)
        async with person(hal, "eve") as eve:
            for http, spec in [(hal.http, job(3)), (hal.http, job(2)), (eve, job(3, array=4)), (hal.http, job(1))]:
                assert (await http.post("/v1/jobs", json=spec)).status_code == 201
                told = (await hal.http.get("/v1/wants")).content
                afresh = b"".join((await Ask(hal.api.ask._parts).wants()).parts)
                classes = [msgspec.json.decode(one, type=WantsView, strict=True).classes for one in (told, afresh)]
                assert classes[0] == classes[1]

    on_controller(hal_home, body)


def test_held_work_is_not_among_what_waits_for_nodes(hal_home: Path) -> None:
    """A held job waits for a person."""

    async def body(hal: Running) -> None:
        await full(hal)
        await hal.submit(job(1, hold=True))
        assert await wants(hal.http) == []

    on_controller(hal_home, body)


def test_users_see_their_own_wants_and_plan(hal_home: Path) -> None:
    """Of two waiting jobs one is eve's: she sees only that, an operator both; and no reservation of another's job."""

    async def body(hal: Running) -> None:
        await full(hal)
        (other,) = await hal.submit(job(4))
        async with person(hal, "eve") as eve, person(hal, "olga", role=Role.OPERATOR) as olga:
            assert [one["job"] for one in (await olga.get("/v1/plan")).json()["reservations"]] == [other]
            assert (await eve.get("/v1/plan")).json()["reservations"] == []
            (mine,) = (await eve.post("/v1/jobs", json=job(4))).json()["ids"]
            (seen,) = await wants(eve)
            assert (seen["head"], seen["jobs"], seen["users"]) == (mine, 1, {"eve": 1})
            (seen,) = await wants(olga)
            assert (seen["jobs"], len(seen["users"])) == (2, 2)

    on_controller(hal_home, body)


def test_who_knows_the_version_is_answered_when_it_changes(hal_home: Path) -> None:
    """The same version gives 304; a poll that waits is answered after the next submission."""

    async def body(hal: Running) -> None:
        await full(hal)
        etag = (await hal.http.get("/v1/wants")).headers["etag"]
        same = await hal.http.get("/v1/wants", headers={"If-None-Match": etag})
        assert (same.status_code, same.content) == (304, b"")
        poll = hal.http.get("/v1/wants", headers={"If-None-Match": etag}, params={"wait": 30})
        waiting = asyncio.ensure_future(poll)
        await hal.submit(job(2))
        assert [one["jobs"] for one in (await waiting).json()["classes"]] == [1]
        problem(await hal.http.get("/v1/wants", params={"wait": 61}), 400, "invalid-spec")

    on_controller(hal_home, body)


def test_the_plan_names_nodes_and_times_of_reservations(hal_home: Path) -> None:
    """The first job that must wait has the node from the end of the running job's walltime on."""

    async def body(hal: Running) -> None:
        (running,) = await full(hal)
        (waiting,) = await hal.submit(job(2, walltime="30m"))
        await hal.until(lambda: hal.api.ask.version != "")
        started = (await hal.http.get(f"/v1/jobs/{running}")).json()["start_ms"]
        (seen,) = (await hal.http.get("/v1/plan")).json()["reservations"]
        assert (seen["job"], seen["nodes"], seen["task"]) == (waiting, ["n1"], 0)
        assert seen["start_ms"] >= started + 3_600_000 - 1_000
        assert seen["end_ms"] - seen["start_ms"] == 1_800_000

    on_controller(hal_home, body)
