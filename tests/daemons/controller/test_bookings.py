"""Bookings on the running controller: nothing starts that would run into one; what waits for one starts by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hal.core.model import StepId
from hal.wire.frames.agent_keeper import StepTemplate
from tests.daemons.controller.running import Running, on_controller

SLEEP = {"command": ["sleep"]}
HOUR_MS = 3_600_000


def booked(name: str, start_ms: int, duration: str, **more: Any) -> dict[str, Any]:
    """Node n1 for that long."""
    entry = {"start_ms": start_ms, "duration": duration, "nodes": ["n1"], **more}
    return {"op": "put", "kind": "booking", "name": name, "entry": entry}


async def change(hal: Running, *operations: dict[str, Any]) -> None:
    answer = await hal.http.patch("/v1/policy", json={"operations": operations})
    assert answer.status_code == 200, answer.text


async def why(hal: Running, job: str) -> dict[str, Any]:
    """The verdict."""
    verdict: dict[str, Any] = (await hal.http.get(f"/v1/jobs/{job}/why")).json()
    return verdict


def test_a_job_that_would_run_into_maintenance_waits_until_it_is_taken_away(hal_home: Path) -> None:
    """Through a restart of the controller, too; one that ends before starts at once."""

    async def body(hal: Running) -> None:
        await hal.agent()
        start_ms = hal.runtime.now_ms() + HOUR_MS
        await change(hal, booked("upkeep", start_ms, "2h", maintenance=True))
        short, long = await hal.submit({**SLEEP, "walltime": "30m"}, {**SLEEP, "walltime": "90m"})
        await hal.until(lambda: len(hal.agents[0].started) == 1)
        assert hal.agents[0].started[0].job == int(short)
        verdict = await why(hal, long)
        assert (verdict["reason"], verdict["starts_at_ms"]) == ("booking", start_ms + 2 * HOUR_MS)
        assert verdict["message"].startswith("waits for booking 'upkeep': node n1 is kept ")

    async def afterwards(hal: Running) -> None:
        agent = await hal.agent()
        assert (await why(hal, "2"))["reason"] == "booking"
        await change(hal, {"op": "delete", "kind": "booking", "name": "upkeep"})
        await hal.until(lambda: any(step.job == 2 for step in agent.started))

    on_controller(hal_home, body)
    on_controller(hal_home, afterwards)


def test_a_job_waits_for_its_booking_and_is_ended_with_it(hal_home: Path) -> None:
    """Nobody else tells the controller that it is time: it begins, it ends, and what waited for its end starts."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        await change(hal, booked("course", hal.runtime.now_ms() + 200, "1s", users=["alice"]))
        inside, other = await hal.submit({**SLEEP, "booking": "course", "user": "alice"}, {**SLEEP, "walltime": "1h"})
        view = await hal.ended(inside)
        assert (view["state"], view["reason"]) == ("timed-out", "it reached its time limit (booking 'course' was over)")
        await hal.until(lambda: [step.job for step in agent.started] == [int(inside), int(other)])

    on_controller(hal_home, body)


def test_a_running_job_is_not_given_a_walltime_that_would_run_into_a_booking(hal_home: Path) -> None:
    """The update is refused as a conflict that names the booking; nothing else stands still because of it."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit({**SLEEP, "walltime": "10m"})
        await hal.until(lambda: len(agent.started) == 1)
        await change(hal, booked("upkeep", hal.runtime.now_ms() + HOUR_MS, "1h", maintenance=True))
        refused = await hal.http.patch(f"/v1/jobs/{job}", json={"walltime": "2h"})
        assert (refused.status_code, "booking 'upkeep'" in refused.text) == (409, True)
        assert (await hal.http.patch(f"/v1/jobs/{job}", json={"walltime": "20m"})).status_code == 200

    on_controller(hal_home, body)


def test_licences_are_never_used_beyond_what_there_is(hal_home: Path) -> None:
    """Through a restart of the controller; whoever waits says what is short, and more of them start it."""
    kept: dict[StepId, StepTemplate] = {}

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        await change(hal, {"op": "put", "kind": "licence", "name": "matlab", "entry": {"total": 3}})
        wants = {**SLEEP, "licences": {"matlab": 2}, "walltime": "1h"}
        first, second = await hal.submit(wants, wants)
        await hal.until(lambda: [step.job for step in agent.started] == [int(first)])
        verdict = await why(hal, second)
        assert verdict["reason"] == "licence"
        assert verdict["message"].startswith("licence matlab: 1 of 3 free, 2 needed; 2 come free in ")
        kept.update(agent.running)

    async def afterwards(hal: Running) -> None:
        agent = await hal.agent(running=kept)
        assert (await why(hal, "2"))["message"].startswith("licence matlab: 1 of 3 free")
        await change(hal, {"op": "put", "kind": "licence", "name": "matlab", "entry": {"total": 4}})
        await hal.until(lambda: any(step.job == 2 for step in agent.started))

    on_controller(hal_home, body)
    on_controller(hal_home, afterwards)


def test_a_booking_of_licences_keeps_them_for_its_jobs(hal_home: Path) -> None:
    """They run on any node; others have to do with what is left."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        await change(
            hal,
            {"op": "put", "kind": "licence", "name": "matlab", "entry": {"total": 3}},
            booked("course", hal.runtime.now_ms(), "1h", nodes=[], licences={"matlab": 2}, users=["alice"]),
        )
        wants = {**SLEEP, "licences": {"matlab": 2}, "walltime": "1h"}
        outside, inside = await hal.submit(wants, {**wants, "booking": "course", "user": "alice"})
        await hal.until(lambda: [step.job for step in agent.started] == [int(inside)])
        message = (await why(hal, outside))["message"]
        assert message.startswith("licence matlab: 1 of 3 free, 2 needed; bookings keep 2 of them")

    on_controller(hal_home, body)
