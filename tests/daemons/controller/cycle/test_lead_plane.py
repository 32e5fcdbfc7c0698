"""Where the tasks plane itself raises: a request is answered with it and ends nothing; a committed change that cannot
be applied ends the controller, and the next one has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hal.core.model import HALError
from hal.daemons.controller.cycle import control_loop
from hal.planes.tasks import TaskPlane
from hal.store import PutMeta
from tests.daemons.controller.running import Running, on_controller, running

TRUE = {"command": ["exit", "0"]}
POISON = "poison"


class PlaneError(Exception):
    """What the plane raises."""


def fails_at(monkeypatch: pytest.MonkeyPatch, method: str, holds: Callable[[TaskPlane], bool]) -> None:
    """Let the plane raise there while that is so."""
    whole = getattr(TaskPlane, method)

    def failing(plane: TaskPlane, *args: Any) -> Any:
        if holds(plane):
            raise PlaneError(method)
        return whole(plane, *args)

    monkeypatch.setattr(TaskPlane, method, failing)


def is_poisoned(plane: TaskPlane) -> bool:
    """Whether the bad request is among what is staged."""
    return any(isinstance(one, PutMeta) and POISON in one.values for one in plane._table.draft.other)


@pytest.mark.parametrize("point", ["settling", "take_engine_events", "sealing"])
def test_a_request_at_which_the_tasks_plane_raises_is_answered_and_all_others_happen(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """With ten jobs in its group; nothing of it is stored."""
    if point == "settling":
        monkeypatch.setattr(TaskPlane, "unsettled", property(is_poisoned))
    fails_at(monkeypatch, point, is_poisoned)

    async def body(hal: Running) -> None:
        await hal.agent()
        parts = hal.api.jobs._parts
        asked = parts.loop.inbox.call(lambda now_ms: parts.plane.add_operations(PutMeta({POISON: "x"})))
        answer, *jobs = await asyncio.gather(asked, *(hal.submit(TRUE) for _ in range(10)), return_exceptions=True)
        assert isinstance(answer, HALError)
        assert "PlaneError" in str(answer)
        for ids in jobs:
            assert isinstance(ids, list), ids
            assert (await hal.ended(ids[0]))["state"] == "succeeded"
        assert parts.committer.store.facts(POISON) == {}

    on_controller(hal_home, body)


def test_a_fault_in_what_is_due_by_itself_ends_nothing_and_is_tried_again(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offer that expires: the fault lasts for two tries, jobs run meanwhile, then the offer is gone."""
    monkeypatch.setattr(control_loop, "DUE_AGAIN_MS", 20)
    faults = 2

    def fails(plane: TaskPlane) -> bool:
        nonlocal faults
        faults -= 1
        return faults >= 0

    fails_at(monkeypatch, "carrying_out_due", fails)

    async def body(hal: Running) -> None:
        await hal.agent()
        offer = {"resources": {"cpu": 1}, "count": 1, "expires_in": "1s"}
        assert (await hal.http.put("/v1/offers/spot", json=offer)).status_code == 200
        await hal.until(lambda: faults < 2)
        (job,) = await hal.submit(TRUE)
        assert (await hal.ended(job))["state"] == "succeeded"
        await hal.until(lambda: not hal.api.jobs._parts.plane.offers)
        assert faults < 0

    on_controller(hal_home, body)


def test_a_committed_change_that_cannot_be_applied_ends_the_controller_and_the_next_one_has_it(
    hal_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory is no longer what is durable, so it decides nothing more."""

    async def body() -> None:
        async with running(hal_home) as hal:
            fails_at(monkeypatch, "keep", is_poisoned)
            parts = hal.api.jobs._parts
            request = parts.loop.inbox.call(lambda now_ms: parts.plane.add_operations(PutMeta({POISON: "x"})))
            asked = asyncio.ensure_future(request)
            await hal.until(lambda: bool(parts.committer.store.facts(POISON)))
            assert not asked.done()

    async def heir() -> dict[str, str]:
        async with running(hal_home) as hal:
            return hal.api.jobs._parts.committer.store.facts(POISON)

    with pytest.raises(PlaneError):
        asyncio.run(body())
    monkeypatch.undo()
    assert asyncio.run(heir()) == {POISON: "x"}
