"""Looking services up by name: what is answered, and to whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hal.core.model.facts import Facts
from tests.daemons.controller.api.test_files_rest import person
from tests.daemons.controller.api.test_policy_rest import SLEEP
from tests.daemons.controller.running import Running, on_controller

WEB: dict[str, Any] = {**SLEEP, "name": "web", "service": {"ports": ["http", "admin=9000"], "readiness": "tcp:http"}}


async def found(hal: Running, name: str = "web", **query: str) -> tuple[int, dict[str, Any]]:
    answer = await hal.http.get(f"/v1/services/{name}", params=query)
    return answer.status_code, answer.json()


def test_the_ready_tasks_of_a_service_are_found_by_its_name(hal_home: Path) -> None:
    """With address and ports; those that are starting, or are not ready, are counted only."""

    async def body(hal: Running) -> None:
        agent = await hal.agent("n1", facts=Facts(address="10.0.0.7"))
        (job,) = await hal.submit({**WEB, "user": "ada", "array": 3})
        await agent.until(lambda a: len(a.running) == 3)
        first, second, _ = sorted(agent.running)
        assert (await found(hal, user="ada"))[1]["endpoints"] == []
        agent.says_ready(first, ports=(9_000, 20_001))
        agent.says_ready(second, ready=False, reason="refused", ports=(9_000, 20_002))
        await hal.until(lambda: hal.api.jobs._parts.plane.ready_count(int(job)) == 1)
        status, service = await found(hal, user="ada")
        assert (status, service["jobs"], service["tasks"], service["ready"], service["more"]) == (
            200,
            [job],
            3,
            1,
            False,
        )
        (endpoint,) = service["endpoints"]
        assert endpoint.pop("since_ms") > 0
        assert endpoint == {
            "job": job, "task": 0, "node": "n1", "host": "10.0.0.7", "ports": {"admin": 9_000, "http": 20_001},
        }  # fmt: skip

    on_controller(hal_home, body)


def test_a_service_whose_name_has_a_slash_is_found(hal_home: Path) -> None:
    """As part of a path it is written %2F; a name that holds these characters is another one."""

    async def body(hal: Running) -> None:
        await hal.agent("n1")
        (job,) = await hal.submit({**WEB, "user": "ada", "name": "shop/web"})
        status, service = await found(hal, "shop%2Fweb", user="ada")
        assert (status, service.get("name"), service.get("jobs")) == (200, "shop/web", [job])
        assert (await found(hal, "shop%2fweb", user="ada"))[0] == 200
        assert (await found(hal, "shop/web", user="ada"))[0] == 404
        assert (await found(hal, "..%2Fjobs", user="ada"))[0] == 404

    on_controller(hal_home, body)


def test_a_node_of_which_no_address_is_known_is_here(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        agent = await hal.agent("n1")
        await hal.submit({**WEB, "user": "ada"})
        await agent.until(lambda a: len(a.running) == 1)
        agent.says_ready(*agent.running, ports=(9_000, 20_001))
        await hal.until(lambda: hal.api.jobs._parts.plane.ready_count(1) == 1)
        assert (await found(hal, user="ada"))[1]["endpoints"][0]["host"] == "localhost"

    on_controller(hal_home, body)


def test_what_is_no_live_service_is_not_found(hal_home: Path) -> None:
    """Neither a job of that name that serves nothing, nor a service of another name."""

    async def body(hal: Running) -> None:
        await hal.agent("n1")
        await hal.submit({**SLEEP, "user": "ada", "name": "web"}, {**WEB, "user": "ada", "name": "api"})
        status, problem = await found(hal, user="ada")
        assert (status, problem["detail"]) == (404, "no live job of 'ada' named 'web' is a service")

    on_controller(hal_home, body)


def replacing(job: str, **fields: Any) -> dict[str, Any]:
    """A job that takes its place."""
    return {**WEB, "service": {**WEB["service"], "replaces": {"job": int(job), **fields}}}


def test_a_replacement_goes_on_under_the_next_controller(hal_home: Path) -> None:
    """The rows say what is under way; nodes say again what is ready."""
    known: dict[str, Any] = {}

    async def before(hal: Running) -> None:
        agent = await hal.agent("n1")
        (old,) = await hal.submit({**WEB, "user": "ada"})
        await agent.until(lambda a: len(a.running) == 1)
        agent.says_ready(*agent.running, ports=(9_000, 20_001))
        await hal.until(lambda: hal.api.jobs._parts.plane.ready_count(int(old)) == 1)
        (new,) = await hal.submit({**replacing(old), "user": "ada"})
        await agent.until(lambda a: len(a.running) == 2)
        assert (await hal.http.get(f"/v1/jobs/{old}")).json()["reason"] == f"being replaced by job {new}"
        known.update(old=old, new=new, running=dict(agent.running))

    async def after(hal: Running) -> None:
        agent = await hal.agent("n1", running=known["running"])
        (step,) = [one for one in known["running"] if str(one.job) == known["new"]]
        agent.says_ready(step, ports=(9_000, 20_002))
        view = await hal.ended(known["old"])
        assert (view["state"], view["reason"]) == ("cancelled", f"replaced by job {known['new']}")
        status, service = await found(hal, user="ada")
        assert (status, service["jobs"], service["ready"]) == (200, [known["new"]], 1)

    on_controller(hal_home, before)
    on_controller(hal_home, after)


def test_safety_nobody_replaces_services_of_others(hal_home: Path) -> None:
    """They hear no more than that there is no such job, as of a number that nobody has."""

    async def body(hal: Running) -> None:
        await hal.agent("n1")
        (job,) = await hal.submit({**WEB, "user": "ann"})
        async with person(hal, "bob") as bob:
            answers = [
                (await bob.post("/v1/jobs", json=replacing(one))).json()["detail"].replace(one, "N")
                for one in (job, "77")
            ]
        assert answers == ["service.replaces: there is no live job N"] * 2
        assert (await hal.http.get(f"/v1/jobs/{job}")).json()["held"] is False

    on_controller(hal_home, body)


def test_safety_nobody_looks_up_services_of_others(hal_home: Path) -> None:
    """A user who names somebody else is refused; without a user, only their own are found."""

    async def body(hal: Running) -> None:
        await hal.agent("n1")
        await hal.submit({**WEB, "user": "ann"})
        async with person(hal, "ann") as ann, person(hal, "bob") as bob:
            assert (await ann.get("/v1/services/web")).status_code == 200
            assert (await bob.get("/v1/services/web")).status_code == 404
            refused = await bob.get("/v1/services/web", params={"user": "ann"})
            assert refused.status_code == 403

    on_controller(hal_home, body)
