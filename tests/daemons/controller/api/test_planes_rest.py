"""Planes announce where they are reached: over REST, and what agents are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hal.core.model.plane_addresses import MAX_ADDRESSES, MAX_ANNOUNCED
from hal.wire.agree import PLANES
from hal.wire.frames.controller_agent import AnnouncedPlane
from tests.daemons.controller.access.people import person
from tests.daemons.controller.running import Running, on_controller

PRICES = {"rest": ["unix:/run/hal/prices.sock"], "wire": ["head.example.org:7431"], "version": "1.2"}


async def announce(hal: Running, name: str, **more: Any) -> dict[str, Any]:
    """What is known of it then."""
    answer = await hal.http.put(f"/v1/planes/{name}", json={**PRICES, **more})
    assert answer.status_code == 200, answer.text
    view: dict[str, Any] = answer.json()
    return view


async def names(hal: Running) -> list[str]:
    """Of the planes that are there."""
    return [one["name"] for one in (await hal.http.get("/v1/planes")).json()["planes"]]


def test_everybody_sees_an_announced_plane_and_operators_announce_it(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        made = await announce(hal, "prices")
        assert (made["rest"], made["wire"], made["version"]) == (PRICES["rest"], PRICES["wire"], "1.2")
        assert made["expires_ms"] - made["since_ms"] == 60_000
        async with person(hal, "anna") as anna:
            assert [one["name"] for one in (await anna.get("/v1/planes")).json()["planes"]] == ["prices"]
            assert (await anna.put("/v1/planes/prices", json=PRICES)).status_code == 403
            assert (await anna.delete("/v1/planes/prices")).status_code == 403
        again = await announce(hal, "prices", expires_in="1h")
        assert again["since_ms"] == made["since_ms"]
        assert (await hal.http.delete("/v1/planes/prices")).json()["version"] == "1.2"
        assert await names(hal) == []
        assert (await hal.http.delete("/v1/planes/prices")).status_code == 404

    on_controller(hal_home, body)


def test_a_plane_that_does_not_announce_itself_again_expires_and_agents_are_told(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        agent = await hal.agent(features=(PLANES,))
        await agent.until(lambda one: bool(one.planes))
        assert (agent.planes[-1].planes, agent.planes[-1].settled) == ((), False)
        await announce(hal, "prices", expires_in=0.5)
        there = (AnnouncedPlane("prices", ("head.example.org:7431",)),)
        await agent.until(lambda one: one.planes[-1].planes == there)
        await agent.until(lambda one: one.planes[-1].planes == ())
        assert await names(hal) == []

    on_controller(hal_home, body)


def test_agents_are_told_when_addresses_change_and_not_when_they_are_announced_again(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        agent = await hal.agent(features=(PLANES,))
        older = await hal.agent("n2")
        await announce(hal, "prices")
        await agent.until(lambda one: one.planes[-1].planes != ())
        told = len(agent.planes)
        await announce(hal, "prices", version="1.3")
        await announce(hal, "prices", wire=["head.example.org:9999"])
        await agent.until(lambda one: one.planes[-1].planes[0].wire == ("head.example.org:9999",))
        assert len(agent.planes) == told + 1
        late = await hal.agent("n3", features=(PLANES,))
        await late.until(lambda one: bool(one.planes))
        assert late.planes[0].planes == agent.planes[-1].planes
        assert older.planes == []

    on_controller(hal_home, body)


@pytest.mark.parametrize(
    ("name", "body", "complaint"),
    [
        ("Prices", {}, "not a plane's name"),
        ("prices", {"wire": ["https://head:1"]}, "wire"),
        ("prices", {"rest": ["https://user:secret@head:1"]}, "rest"),
        ("prices", {"rest": ["unix:relative"]}, "rest"),
        ("prices", {"wire": ["head:1"] * (MAX_ADDRESSES + 1)}, "at most"),
        ("prices", {"expires_in": "2h"}, "expires_in"),
        ("prices", {"expires_in": 0}, "expires_in"),
        ("prices", {"version": "v" * 100}, "version"),
        ("prices", {"wires": []}, "wires"),
    ],
)
def test_what_is_no_announcement_is_refused_with_the_reason(
    hal_home: Path, name: str, body: dict[str, Any], complaint: str
) -> None:
    async def refused(hal: Running) -> None:
        answer = await hal.http.put(f"/v1/planes/{name}", json=body)
        assert answer.status_code == 400
        assert complaint in answer.text
        assert await names(hal) == []

    on_controller(hal_home, refused)


def test_the_number_of_planes_is_bounded(hal_home: Path) -> None:
    async def body(hal: Running) -> None:
        for number in range(MAX_ANNOUNCED):
            await announce(hal, f"p{number}")
        assert (await hal.http.put("/v1/planes/one-more", json=PRICES)).status_code == 503
        await announce(hal, "p1", version="2")

    on_controller(hal_home, body)
