"""A user's own jobs, and nobody else's: through no endpoint, id, filter, dependency, key or feed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from hal.core.model import Event, EventKind
from hal.daemons.controller.api.requests.ownership import only_about
from tests.daemons.controller.access.people import person
from tests.daemons.controller.api.test_rest import problem
from tests.daemons.controller.running import Running, on_controller, running

TRUE = {"command": ["exit", "0"]}


async def submitted(http: httpx.AsyncClient, **fields: Any) -> str:
    """The id of a new job."""
    answer = await http.post("/v1/jobs", json={**TRUE, **fields})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["ids"][0])


def test_another_users_job_looks_exactly_like_one_that_does_not_exist(hal_home: Path) -> None:
    """Every path of a job, its outcome in a list of ids, a dependency on it: as for job 999, but for the number."""

    async def body(hal: Running) -> None:
        async with person(hal, "alice") as alice, person(hal, "bob") as bob:
            theirs = await submitted(alice, name="secret", array=3)

            async def seen(job: str) -> list[str]:
                base, said = f"/v1/jobs/{job}", []
                for path in ("", "/wait", "/why", "/priority", "/tasks", "/tasks/0", "/logs"):
                    said.append(problem(await bob.get(base + path), 404, "not-found"))
                said.append(problem(await bob.patch(base, json={"name": "x"}), 404, "not-found"))
                said.append(problem(await bob.get("/v1/events", params={"job": job}), 404, "not-found"))
                for action in ("cancel", "hold", "release", "requeue", "remove"):
                    answer = await bob.post(f"/v1/jobs/{action}", json={"ids": [job, f"{job}.2"]})
                    assert answer.status_code == 200
                    said.append(answer.json())
                after = {**TRUE, "dependencies": [f"afterok:{job}"]}
                said.append(problem(await bob.post("/v1/jobs", json=after), 400, "invalid-spec"))
                return [str(one).replace(job, "N") for one in said]

            assert await seen(theirs) == await seen("999")
            assert (await bob.get("/v1/jobs")).json()["jobs"] == []
            assert [one["id"] for one in (await alice.get("/v1/jobs")).json()["jobs"]] == [theirs]

    on_controller(hal_home, body)


def test_a_user_does_what_they_like_with_their_own_jobs(hal_home: Path) -> None:
    """Read, change, hold, release, cancel by id and by filter; a dependency on one's own job."""

    async def body(hal: Running) -> None:
        async with person(hal, "alice") as alice:
            job = await submitted(alice, name="mine")
            assert (await alice.get(f"/v1/jobs/{job}")).json()["user"] == "alice"
            assert (await alice.patch(f"/v1/jobs/{job}", json={"priority": -5})).status_code == 200
            second = await submitted(alice, dependencies=[f"afterok:{job}"])
            for action, body in (("hold", {"ids": [job]}), ("cancel", {"filter": {"state": "live", "name": "mine"}})):
                results = (await alice.post(f"/v1/jobs/{action}", json=body)).json()["results"]
                assert all(one["ok"] for one in results), results
            assert (await alice.get(f"/v1/jobs/{second}")).json()["state"] == "cancelled"
            events = (await alice.get("/v1/events", params={"job": job})).json()["events"]
            assert next(event["kind"] for event in events) == "jobs-submitted"
            assert all(event["jobs"] == [int(job)] for event in events)

    on_controller(hal_home, body)


def test_nobody_submits_in_another_name_or_jumps_the_queue(hal_home: Path) -> None:
    """Another user's name, another's jobs in a filter, a priority above 0: refused to users, not to operators."""

    async def body(hal: Running) -> None:
        async with person(hal, "bob") as bob, person(hal, "olga", role="operator") as olga:
            problem(await bob.post("/v1/jobs", json={**TRUE, "user": "alice"}), 403, "denied")
            problem(await bob.post("/v1/jobs", json={**TRUE, "priority": 1}), 403, "denied")
            job = await submitted(bob, user="bob")
            problem(await bob.patch(f"/v1/jobs/{job}", json={"priority": 1}), 403, "denied")
            problem(await bob.get("/v1/jobs", params={"user": "alice"}), 403, "denied")
            problem(await bob.post("/v1/jobs/cancel", json={"filter": {"user": "alice"}}), 403, "denied")
            await submitted(olga, user="alice", priority=7)
            assert (await olga.patch(f"/v1/jobs/{job}", json={"priority": 3})).status_code == 200
            assert len((await olga.get("/v1/jobs")).json()["jobs"]) == 2

    on_controller(hal_home, body)


def test_equal_idempotency_keys_of_two_users_are_two_keys(hal_home: Path) -> None:
    """The same key and the same request from alice and bob make two jobs, and each is told their own."""

    async def body(hal: Running) -> None:
        async with person(hal, "alice") as alice, person(hal, "bob") as bob:
            send = lambda http: http.post("/v1/jobs", json=TRUE, headers={"Idempotency-Key": "k"})  # noqa: E731
            first, second, again = await send(alice), await send(bob), await send(alice)
            assert (first.json()["ids"], second.json()["ids"], again.json()["ids"]) == (["1"], ["2"], ["1"])

    on_controller(hal_home, body)


def test_a_token_stays_within_its_accounts_and_queues(hal_home: Path) -> None:
    """Elsewhere nothing is submitted, changed or moved to; what names neither is refused where one is needed."""

    async def body(hal: Running) -> None:
        await hal.submit({**TRUE, "account": "art", "user": "robot"})
        async with person(hal, "robot", role="operator", accounts=["science"], queues=["default"]) as robot:
            job = await submitted(robot, account="science")
            problem(await robot.post("/v1/jobs", json={**TRUE, "account": "art"}), 403, "denied")
            problem(await robot.post("/v1/jobs", json=TRUE), 403, "denied")
            problem(await robot.patch("/v1/jobs/1", json={"name": "x"}), 403, "denied")
            problem(await robot.patch(f"/v1/jobs/{job}", json={"account": "art"}), 403, "denied")
            results = (await robot.post("/v1/jobs/hold", json={"ids": ["1", job]})).json()["results"]
            assert [(one["id"], one["ok"], one.get("code")) for one in results] == [
                ("1", False, "denied"),
                (job, True, None),
            ]
            results = (await robot.post("/v1/jobs/cancel", json={"filter": {"state": "live"}})).json()["results"]
            assert [one["id"] for one in results] == [job]

    on_controller(hal_home, body)


def test_a_token_that_only_reads_changes_nothing(hal_home: Path) -> None:
    """Every changing method is refused to it, whatever its role."""

    async def body(hal: Running) -> None:
        await hal.submit(TRUE)
        async with person(hal, "screen", role="admin", read_only=True) as screen:
            assert (await screen.get("/v1/jobs/1")).status_code == 200
            for method, path in (("POST", "/v1/jobs"), ("PATCH", "/v1/jobs/1"), ("PUT", "/v1/policy")):
                assert "is read-only" in problem(await screen.request(method, path, json={}), 403, "denied")["detail"]

    on_controller(hal_home, body)


IDS = st.lists(st.sampled_from(["1", "2", "3", "01", "1.0", "1.1", "3.2", "4", "99"]), max_size=4)
FILTERS = st.dictionaries(
    st.sampled_from(["state", "user", "queue", "name", "account"]),
    st.sampled_from(["alice", "mallory", "live", "active", "default", "precious", ""]),
    max_size=3,
)
CONTROLS = st.tuples(
    st.just("POST"),
    st.sampled_from(["/v1/jobs/cancel", "/v1/jobs/hold", "/v1/jobs/release", "/v1/jobs/requeue"]),
    st.fixed_dictionaries({}, optional={"ids": IDS, "filter": FILTERS}),
)
CHANGES = st.tuples(
    st.just("PATCH"),
    st.sampled_from(["/v1/jobs/1", "/v1/jobs/01", "/v1/jobs/2", "/v1/jobs/1/", "/v1//jobs/1", "/v1/jobs/%31"]),
    st.fixed_dictionaries({}, optional={"name": st.just("taken"), "hold": st.just(True), "priority": st.just(-9)}),
)
SUBMITS = st.tuples(
    st.just("POST"),
    st.just("/v1/jobs"),
    st.fixed_dictionaries(
        {"command": st.just(["x"])},
        optional={
            "user": st.sampled_from(["alice", "mallory"]),
            "name": st.sampled_from(["precious", "1", "2"]),
            "dependencies": st.lists(st.sampled_from(["afterany:1", "after:2", "singleton", "afterok:01"]), max_size=2),
        },
    ),
)
POLICIES = st.tuples(
    st.sampled_from(["PATCH", "PUT"]), st.sampled_from(["/v1/policy", "/v1/policy?dry_run=1"]), st.just({"queues": {}})
)


def test_safety_no_request_of_one_user_touches_a_job_of_another(hal_home: Path) -> None:
    """Any requests of mallory, in any order, with any of two keys: alice's jobs are as they were, to the last field."""
    with asyncio.Runner() as loop:
        context = running(hal_home)
        hal = loop.run(context.__aenter__())
        alices, mallorys = person(hal, "alice"), person(hal, "mallory")
        alice, mallory = loop.run(alices.__aenter__()), loop.run(mallorys.__aenter__())
        for name in ("precious", "plain"):
            loop.run(submitted(alice, name=name, array=3))

        async def theirs() -> list[Any]:
            found = [(await alice.get(f"/v1/jobs/{job}")).json() for job in ("1", "2")]
            return [{**one, "dependants": None} for one in found] + [(await alice.get("/v1/jobs")).json()["jobs"]]

        before = loop.run(theirs())

        @settings(max_examples=60)
        @given(
            st.lists(st.tuples(CONTROLS | CHANGES | SUBMITS | POLICIES, st.sampled_from(["", "k1", "k2"])), max_size=4)
        )
        def attack(requests: list[tuple[tuple[str, str, Any], str]]) -> None:
            for (method, path, body), key in requests:
                headers = {"Idempotency-Key": key} if key else {}
                answer = loop.run(mallory.request(method, path, json=body, headers=headers))
                assert answer.status_code < 500, answer.text
                assert "precious" not in answer.text or "precious" in str(body)
            assert loop.run(theirs()) == before

        attack()
        for one in (alices, mallorys, context):
            loop.run(one.__aexit__(None, None, None))


def test_an_event_about_several_jobs_is_told_of_one_only() -> None:
    """Whoever cancels two people's jobs in one request makes one event; each is told of their own."""
    payload = {"attempts": ["7.0.1", "8.0.1"], "ended": [[7, "failed", 1], [8, "failed", 1]], "count": 2}
    listed = {**payload, "items": [{"id": "7.0.1", "cause": "x"}, {"id": "8.0.1", "cause": "y"}]}
    event = Event(sequence=1, at_ms=1, kind=EventKind.ATTEMPTS_ENDED, jobs=(7, 8), payload=listed)
    told = only_about(event, 8)
    assert told.jobs == (8,)
    assert told.payload == {
        "attempts": ["8.0.1"],
        "ended": [[8, "failed", 1]],
        "count": 2,
        "items": [{"id": "8.0.1", "cause": "y"}],
    }
