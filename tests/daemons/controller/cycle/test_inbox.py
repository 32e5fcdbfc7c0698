"""The queues of nodes: whose reports take more of the loop's time than is usual has fewer of them done at a time."""

from __future__ import annotations

import asyncio

from hal.daemons.controller.cycle.inbox import MAX_WEIGHT_A_GROUP, MEASURED_WEIGHT, USUAL_NS, Inbox, Report

SIZE = 500
"""Steps in a report."""


def nothing(now_ms: int) -> None:
    """What a report has done."""


async def told(inbox: Inbox, node: str, reports: int) -> None:
    for _ in range(reports):
        await inbox.report(node, "exits", nothing, weight=SIZE)


def spend(inbox: Inbox, node: str, times_the_usual: int, *, size: int = SIZE) -> None:
    """As the loop says after it has done one report, by its clock."""
    inbox.spent(Report(node, "exits", nothing, size), size * times_the_usual * USUAL_NS)


def taken(inbox: Inbox, node: str) -> int:
    """Reports of that node in the next group."""
    reports, _ = inbox.take()
    return sum(report.node == node for report in reports)


def test_a_node_whose_reports_are_dear_has_a_smaller_share_of_a_group() -> None:
    """8 reports of 500 steps fill a share of 4,000; where each takes four times as long, 2 do. Not so another's."""

    async def body() -> None:
        inbox = Inbox()
        for _ in range(4 * MEASURED_WEIGHT // SIZE):
            spend(inbox, "dear", 4)
            spend(inbox, "usual", 1)
        await told(inbox, "dear", 7)
        await told(inbox, "usual", 7)
        reports, _ = inbox.take()
        nodes = [report.node for report in reports]
        assert (nodes.count("dear"), nodes.count("usual")) == (MAX_WEIGHT_A_GROUP // (4 * SIZE), 7)

    asyncio.run(body())


def test_one_slow_turn_makes_no_node_dear() -> None:
    """The machine was busy, or the collector was: one report of one step that took 20 ms."""

    async def body() -> None:
        inbox = Inbox()
        spend(inbox, "n1", 400, size=1)
        await told(inbox, "n1", 7)
        assert taken(inbox, "n1") == 7

    asyncio.run(body())


def test_a_node_that_was_dear_is_so_no_more_once_its_reports_are_not() -> None:
    """What is older counts half each time that as much was told again."""

    async def body() -> None:
        inbox = Inbox()
        for _ in range(10):
            spend(inbox, "n1", 8)
        for _ in range(10 * MEASURED_WEIGHT // SIZE):
            spend(inbox, "n1", 0)
        await told(inbox, "n1", 7)
        assert taken(inbox, "n1") == 7

    asyncio.run(body())


def test_a_node_that_was_removed_comes_back_as_a_new_one() -> None:
    """Of nodes that are gone nothing is kept."""

    async def body() -> None:
        inbox = Inbox()
        for _ in range(10):
            spend(inbox, "n1", 8)
        inbox.forget("n1")
        await told(inbox, "n1", 7)
        assert taken(inbox, "n1") == 7

    asyncio.run(body())
