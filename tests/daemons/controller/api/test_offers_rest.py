"""Offers of machines over REST, against a real controller: what is accepted because of one, and what it says."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from hal.conformance.plane import rent
from hal.conformance.plane.rest import Rest
from hal.daemons.controller.config import read_config
from tests.daemons.controller.access.people import make_token
from tests.daemons.controller.running import LIMIT_S, Running, on_controller, running

WIDE = {"command": ["exit", "0"], "request": {"cpu": 6}}
OFFER: dict[str, Any] = {"resources": {"cpu": 8, "memory": "16GiB"}, "count": 2, "expires_in": "1h"}


async def why(hal: Running, job: str) -> tuple[str, str]:
    found = (await hal.http.get(f"/v1/jobs/{job}/why")).json()
    return found["reason"], found["message"]


def test_work_that_only_a_rented_machine_would_hold_waits_for_it_and_runs_there(hal_home: Path) -> None:
    """Refused without an offer; accepted with one, across a restart; and when the machine joins, it runs."""

    async def live() -> None:
        async with running(hal_home) as first:
            await first.agent("n1", cpu_milli=4_000)
            refused = await first.http.post("/v1/jobs", json=WIDE)
            assert (refused.status_code, "the largest, n1, has 4" in refused.json()["detail"]) == (400, True)
            answer = await first.http.put("/v1/offers/large", json=OFFER)
            assert (answer.status_code, answer.json()["resources"]) == (200, {"cpu": 8_000, "memory": 16 << 30})
            (job,) = await first.submit(WIDE)
            waits = ("offer", "waits for a machine that could be rented: offer large")
            assert await why(first, job) == waits
        async with running(hal_home) as second:
            await second.agent("n1", cpu_milli=4_000)
            assert await why(second, job) == waits
            await second.agent("rented", cpu_milli=8_000)
            assert (await second.ended(job))["state"] == "succeeded"

    asyncio.run(live())


def test_work_whose_offer_goes_waits_on_and_says_so(hal_home: Path) -> None:
    """It is not cancelled; new work of that size is refused again."""

    async def body(hal: Running) -> None:
        await hal.agent("n1", cpu_milli=4_000)
        await hal.http.put("/v1/offers/large", json=OFFER)
        (job,) = await hal.submit(WIDE)
        answer = await hal.http.delete("/v1/offers/large")
        assert answer.json()["name"] == "large"
        reason, message = await why(hal, job)
        assert (reason, "joins or is offered for rent" in message) == (
            "impossible",
            True,
        )
        assert (await hal.http.get(f"/v1/jobs/{job}")).json()["state"] == "pending"
        assert (await hal.http.post("/v1/jobs", json=WIDE)).status_code == 400

    on_controller(hal_home, body)


def test_an_offer_that_is_not_made_again_ends_by_itself(hal_home: Path) -> None:
    """The controller wakes for it; nothing else happens meanwhile."""

    async def body(hal: Running) -> None:
        await hal.agent("n1", cpu_milli=4_000)
        await hal.http.put("/v1/offers/large", json={**OFFER, "expires_in": "1s"})
        ended: list[str] = []
        async with asyncio.timeout(LIMIT_S):
            while not ended:
                events = (await hal.http.get("/v1/events", params={"limit": 500})).json()["events"]
                ended = [one["cause"] for one in events if one["kind"] == "offer-ended"]
        assert (ended, hal.api.offers.all().offers) == (["expiry"], [])

    on_controller(hal_home, body)


def test_the_controller_keeps_the_contract_of_renting(hal_home: Path) -> None:
    """As a program that rents sees it: over TCP, with an operator's token; and as a user who is none."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"127.0.0.1:{free.getsockname()[1]}"

    async def body(hal: Running) -> None:
        for name in ("n1", "n2"):
            await hal.agent(name)
        tokens = [(await make_token(hal, "plane", role=role))["secret"] for role in ("operator", "user")]
        operator, user = (Rest(f"http://{url}", token) for token in tokens)
        await asyncio.to_thread(rent.check, operator, user, node="n1", gone="n2")

    on_controller(hal_home, body, read_config(f'[server]\ntcp = "{url}"'))


def test_a_controller_without_nodes_keeps_the_contract_of_renting(hal_home: Path) -> None:
    """It refuses no size yet; the command line says that it conforms."""

    async def body(hal: Running) -> None:
        url = f"unix://{hal.runtime.paths.api_socket()}"
        assert await asyncio.to_thread(rent.main, [url]) == 0

    on_controller(hal_home, body)


def test_a_malformed_offer_is_one_error(hal_home: Path) -> None:
    """A name that is none, no resources, a count and a time out of range; nothing is offered."""

    async def body(hal: Running) -> None:
        for name, wrong, words in (
            ("-x", {}, "is not an offer's name"),
            ("x", {"resources": {}}, "resources: 0 are named"),
            ("x", {"resources": {"cpu": "many"}}, "cpu"),
            ("x", {"count": 0}, "count: 0"),
            ("x", {"expires_in": "8d"}, "expires_in"),
            ("x", {"owner": "me"}, "owner"),
        ):
            answer = await hal.http.put(f"/v1/offers/{name}", json={**OFFER, **wrong})
            assert (answer.status_code, words in answer.json()["detail"]) == (400, True), answer.text
        assert (await hal.http.get("/v1/offers")).json() == {"offers": []}
        assert (await hal.http.get("/v1/offers/x")).status_code == 404

    on_controller(hal_home, body)
