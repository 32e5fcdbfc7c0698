"""What cannot be taken in keeps nobody back: it alone is found, answered or left out, wherever it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hal.core.engine.events import Health, NodeSpec
from hal.core.model import HALError, StoreError
from hal.daemons.controller.cycle.bisection import Bisection
from hal.daemons.controller.cycle.inbox import Report
from hal.planes.tasks import TaskPlane
from hal.store import PutMeta
from tests.daemons.controller.running import Running, on_controller

TRUE = {"command": ["exit", "0"]}
Work = Callable[[int], None]


def poisons(plane: TaskPlane) -> dict[str, Work]:
    """By where it fails: as it is staged, in the engine, in the commit."""

    def broken(now_ms: int) -> None:
        raise KeyError("nothing of that name")

    def contradicts(now_ms: int) -> None:
        plane._table.draft.feed.node(NodeSpec("ghost", {"cpu": -1}, {}, Health.UP))

    def unstorable(now_ms: int) -> None:
        plane.add_operations(PutMeta({"poison": "\ud800"}))

    return {"staged": broken, "engine": contradicts, "commit": unstorable}


@pytest.mark.parametrize("where", ["staged", "engine", "commit"])
def test_one_report_that_cannot_be_taken_in_keeps_nobody_back(hal_home: Path, where: str) -> None:
    """(H2) With it in the same group: 40 submissions and another node's reports. All happen; its node is closed."""

    async def body(hal: Running) -> None:
        await hal.agent("honest")
        await hal.agent("liar")
        parts = hal.api.jobs._parts
        poison = poisons(parts.plane)[where]
        submitted = [hal.submit(TRUE | {"constraints": ["node=honest"]}) for _ in range(20)]
        told = parts.loop.inbox.report("liar", "a poison", poison)
        submitted += [hal.submit(TRUE | {"constraints": ["node=honest"]}) for _ in range(20)]
        _, *jobs = await asyncio.gather(told, *submitted)
        for (job,) in jobs:
            assert (await hal.ended(job))["state"] == "succeeded"
        await hal.until(lambda: "quarantine: a poison" in hal.api.nodes.get("liar").reason)
        assert hal.api.nodes.get("honest").state == "up"
        assert hal.api.status.health().status == "ok"

    on_controller(hal_home, body)


@pytest.mark.parametrize("where", ["staged", "engine", "commit"])
def test_one_request_that_cannot_be_done_is_answered_and_keeps_nobody_back(hal_home: Path, where: str) -> None:
    """Whoever asked gets the one error; what others asked for in the same group happens."""

    async def body(hal: Running) -> None:
        await hal.agent("honest")
        parts = hal.api.jobs._parts
        asked = parts.loop.inbox.call(poisons(parts.plane)[where])
        poisoned, *jobs = await asyncio.gather(asked, *(hal.submit(TRUE) for _ in range(20)), return_exceptions=True)
        assert isinstance(poisoned, HALError)
        for found in jobs:
            assert isinstance(found, list)
            assert (await hal.ended(found[0]))["state"] == "succeeded"
        assert hal.api.status.health().status == "ok"
        assert hal.api.nodes.get("honest").state == "up"

    on_controller(hal_home, body)


def groups_until_found(count: int, bad: int) -> int:
    """How many groups it takes until the bad one of so many reports is known."""
    reports = [Report("n", str(number), lambda now_ms: None) for number in range(count)]
    bisection = Bisection()
    groups, group = 1, list(reports)
    error = StoreError("no")
    while True:
        fails = reports[bad] in group
        if fails:
            assert bisection.failed(group, error)
        elif (blamed := bisection.passed()) is not None:
            assert blamed == (reports[bad], error)
            return groups
        assert bisection.active
        group, calls = bisection.take()
        assert not calls
        groups += 1


@pytest.mark.parametrize("bad", [0, 1, 350, 699])
def test_the_culprit_among_700_is_found_in_a_few_dozen_groups(bad: int) -> None:
    """By halves: log2(700) is 9.5, each half may take two groups, and the last is tried without."""
    assert groups_until_found(700, bad) <= 24


def test_nothing_is_blamed_where_a_group_of_nothing_fails_too() -> None:
    """The store itself fails: the accused is put back with the others."""
    report, error = Report("n", "x", lambda now_ms: None), StoreError("no")
    bisection = Bisection()
    assert bisection.failed([report], error)
    assert bisection.take() == ([], [])
    assert not bisection.failed([], error)
    assert bisection.abandon() == [report]
    assert not bisection.active
