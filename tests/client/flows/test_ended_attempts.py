"""Reading ended attempts: page after page, on behind a lost connection, and never for ever the same page."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

import hal
from hal.client.sync_client import Client
from tests.client.conftest import Serve
from tests.client.scripted_server import Asked, Reply, as_json, problem


def page(*numbers: int, more: bool = False, **fields: Any) -> Reply:
    """A page of ended attempts with these sequence numbers."""
    rows = [{"sequence": number, "job": str(number), "task": 0, "attempt": 1, "state": "failed"} for number in numbers]
    cursor = str(numbers[-1]) if numbers else fields.pop("cursor", "0")
    return as_json({"attempts": rows, "cursor": cursor, "more": more, "lost": [], **fields})


def test_pages_follow_one_another_until_nothing_is_left(serve: Serve, client: Client) -> None:
    """Each is asked for behind the cursor of the one before; a page without rows and without more ends it."""
    pages = {"": page(1, 2, more=True), "2": page(cursor="9", more=True), "9": page(10), "10": page(cursor="10")}
    server = serve(lambda asked: pages[asked.query.get("ended_after", "")])
    assert [row.id for row in client.attempts(state=["failed", "lost"])] == ["1.0.1", "2.0.1", "10.0.1"]
    assert [asked.query.get("ended_after") for asked in server.asked] == [None, "2", "9", "10"]
    assert {asked.query["state"] for asked in server.asked} == {"failed,lost"}


def test_a_follower_continues_behind_a_lost_connection(serve: Serve, client: Client) -> None:
    """The second request is cut off; the third asks for the same page."""
    asked_before: list[Asked] = []

    def answer(asked: Asked) -> Reply:
        asked_before.append(asked)
        if len(asked_before) == 2:
            return Reply(b"{", cut=True, headers={"Content-Length": "500"})
        return page(len(asked_before))

    server = serve(answer)
    assert [row.sequence for row in islice(client.attempts("0", follow=True), 2)] == [1, 3]
    assert [asked.query["ended_after"] for asked in server.asked] == ["0", "1", "1"]
    assert all(float(asked.query["wait"]) > 0 for asked in server.asked)


def test_what_is_lost_is_told(serve: Serve, client: Client) -> None:
    """Before the rows behind it; the feed goes on."""
    serve(lambda asked: page(7, lost=[[1, 6]]) if "ended_after" not in asked.query else page(cursor="7"))
    told: list[Any] = []
    for row in client.attempts(on_lost=lambda first, last: told.append((first, last))):
        told.append(row.sequence)
    assert told == [(1, 6), 7]


def test_the_newest_come_first_and_a_follower_reads_on_behind_them(serve: Serve, client: Client) -> None:
    """The first request asks for the last three, the next one for what follows."""
    server = serve(lambda asked: page(5, 6, 7) if "newest" in asked.query else page(8))
    assert [row.sequence for row in islice(client.attempts(newest=3, follow=True), 4)] == [5, 6, 7, 8]
    assert server.asked[0].query["limit"] == "3"
    assert server.asked[1].query["ended_after"] == "7"


@pytest.mark.parametrize("cursor", ["0", "-1", "x", ""])
def test_a_list_without_an_end_is_refused(serve: Serve, client: Client, cursor: str) -> None:
    """A cursor that does not ascend would be asked for ever."""
    serve(lambda asked: page(more=True, cursor=cursor))
    with pytest.raises(hal.HALError, match=r"progress|understood"):
        list(client.attempts("0"))


def test_a_filter_that_does_not_exist_is_refused_before_anything_is_asked(serve: Serve, client: Client) -> None:
    """It names those that do."""
    server = serve(lambda asked: page())
    with pytest.raises(hal.SpecError, match="until_ms"):
        list(client.attempts(colour="red"))
    assert server.asked == []


def test_an_error_of_the_controller_ends_the_iteration(serve: Serve, client: Client) -> None:
    """A cursor ahead of the store is a conflict, also for a follower."""
    serve(lambda asked: problem(409, "conflict", "the cursor 9 is ahead of the newest ended attempt, 3"))
    with pytest.raises(hal.ConflictError, match="ahead"):
        list(client.attempts("9", follow=True))
