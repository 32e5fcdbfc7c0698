"""What cannot be taken in keeps nobody back: it alone is found, answered or left out, wherever it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hal.core.engine.events import Health, NodeSpec
from hal.core.model import HALError, StoreError
from hal.daemons.controller.cycle.bisection import Bisection
from hal.daemons.controller.cycle.inbox import Report
from hal.daemons.controller.nodes.budget import BARRED_FIRST_MS, FAULTS_IN_A_MINUTE
from hal.planes.interface import FalseReportError
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
    """(H2) With it in the same group: 40 submissions and another node's reports. All happen; it is HAL's own fault, so
    its node stays open, and is counted."""

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
        await hal.until(lambda: faults(hal) == 1)
        assert hal.api.nodes.get("liar").state == "up"
        assert hal.api.nodes.get("honest").state == "up"
        assert hal.api.status.health().status == "ok"

    on_controller(hal_home, body)


def test_a_report_that_is_refused_as_false_closes_its_node(hal_home: Path) -> None:
    """The type of the error decides; no fault is counted."""

    def false(now_ms: int) -> None:
        raise FalseReportError("it offers -1 cpu")

    async def body(hal: Running) -> None:
        await hal.agent("honest")
        await hal.agent("liar")
        parts = hal.api.jobs._parts
        (job,), _ = await asyncio.gather(hal.submit(TRUE), parts.loop.inbox.report("liar", "a poison", false))
        await hal.until(lambda: "quarantine: a poison: it offers -1 cpu" in hal.api.nodes.get("liar").reason)
        assert (await hal.ended(job))["state"] == "succeeded"
        assert hal.api.nodes.get("honest").state == "up"
        assert faults(hal) == 0

    on_controller(hal_home, body)


def test_of_several_things_in_a_report_only_the_one_that_meets_a_fault_is_left_out(hal_home: Path) -> None:
    """One of a hundred: the other 99 are recorded, each once, and one fault is counted."""

    async def body(hal: Running) -> None:
        await hal.agent("honest")
        parts = hal.api.jobs._parts
        recorded: list[int] = []
        plane: TaskPlane = parts.plane

        def record(node: str, items: Sequence[int], now_ms: int) -> None:
            if 37 in items:
                raise IndexError("37")
            recorded.extend(items)
            plane.add_operations(PutMeta({f"seen {item}": "" for item in items}))

        await parts.loop.inbox.report_items("honest", "things", record, range(100))
        await hal.until(lambda: faults(hal) == 1 and len(set(recorded)) == 99)
        assert hal.api.nodes.get("honest").state == "up"

    on_controller(hal_home, body)


def test_a_node_whose_reports_meet_faults_without_end_is_heard_less_and_is_not_closed(hal_home: Path) -> None:
    """After ten in a minute its connection ends, and after each one more, for longer each time; its work runs on."""

    def broken(now_ms: int) -> None:
        raise KeyError("nothing of that name")

    async def body(hal: Running) -> None:
        agent = await hal.agent("poor")
        await hal.submit({"command": ["sleep"]})
        await agent.until(lambda a: bool(a.running))
        parts = hal.api.jobs._parts
        agents = parts.agents
        for number in range(FAULTS_IN_A_MINUTE):
            assert agents.connected("poor")
            await parts.loop.inbox.report("poor", "a poison", broken)
            await hal.until(lambda number=number: faults(hal) == number + 1)  # type: ignore[misc]
        assert not agents.connected("poor")
        assert not await agent.try_to_join(), "it dials at once"
        link = agents._links["poor"]
        await hal.until(lambda: link.muted_ms <= hal.runtime.monotonic_ms())
        await agent.join()
        await hal.until(lambda: agents.connected("poor"))
        ended_ms = hal.runtime.monotonic_ms()
        await parts.loop.inbox.report("poor", "a poison", broken)
        await hal.until(lambda: not agents.connected("poor"))
        assert BARRED_FIRST_MS < link.muted_ms - ended_ms <= agents.leases.times.node_ms
        assert not hal.api.nodes.get("poor").closures
        assert len(agent.running) == 1
        assert hal.api.status.health().status == "ok"

    on_controller(hal_home, body)


def faults(hal: Running) -> float:
    """Faults in reports of nodes so far."""
    return float(hal.api.jobs._parts.loop._metrics.faults.of("report").value)


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
