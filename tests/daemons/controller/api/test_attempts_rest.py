"""Ended attempts over REST: in commit order behind a cursor, waited for, and nobody else's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from hal.rest.rights import Role
from hal.store import Retention, Store
from tests.daemons.controller.access.people import person
from tests.daemons.controller.api.test_rest import problem
from tests.daemons.controller.running import Running, on_controller

TRUE = {"command": ["exit", "0"]}
FALSE = {"command": ["exit", "3"]}


async def page(http: httpx.AsyncClient, **params: Any) -> dict[str, Any]:
    """A page of ended attempts."""
    answer = await http.get("/v1/attempts", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def end(hal: Running, *jobs: dict[str, Any]) -> list[str]:
    """Run these jobs, one after the other; their ids."""
    ids = []
    for job in jobs:
        ids += await hal.submit(job)
        await hal.ended(ids[-1])
    return ids


def test_ended_attempts_are_read_page_by_page_in_commit_order(hal_home: Path) -> None:
    """Three jobs, one after the other, in pages of two: each once, with what is known of its end."""

    async def body(hal: Running) -> None:
        await hal.agent()
        first, second, third = await end(hal, TRUE, {**FALSE, "name": "bad"}, TRUE)
        one = await page(hal.http, limit=2)
        two = await page(hal.http, limit=2, ended_after=one["cursor"])
        assert [row["job"] for row in one["attempts"] + two["attempts"]] == [first, second, third]
        assert (one["more"], two["more"], one["lost"]) == (True, False, [])
        bad = one["attempts"][1]
        assert (bad["state"], bad["exit_code"], bad["nodes"]) == ("failed", 3, ["n1"])
        assert (bad["name"], bad["queue"], bad["task"], bad["attempt"]) == ("bad", "default", 0, 1)
        assert bad["end_ms"] <= bad["recorded_ms"]
        assert isinstance(bad["usage"], dict)

    on_controller(hal_home, body)


def test_a_job_without_a_name_has_that_of_its_program_as_in_lists_of_jobs(hal_home: Path) -> None:
    """So a history is filtered by what it shows; equal jobs, and one with a name."""

    async def body(hal: Running) -> None:
        await hal.agent()
        await end(hal, TRUE, TRUE, {**FALSE, "name": "bad"})
        names = [row["name"] for row in (await page(hal.http))["attempts"]]
        assert names == ["exit", "exit", "bad"]
        listed = (await hal.http.get("/v1/jobs", params={"state": "ended"})).json()["jobs"]
        assert [job["name"] for job in listed] == names[::-1]

    on_controller(hal_home, body)


def test_who_waits_gets_the_next_end_when_it_is_durable(hal_home: Path) -> None:
    """A long poll behind the newest end is open while a job is submitted, and answers with its attempt."""

    async def body(hal: Running) -> None:
        await hal.agent()
        await end(hal, TRUE)
        newest = (await page(hal.http))["cursor"]
        waiting = asyncio.ensure_future(page(hal.http, ended_after=newest, wait=30))
        (job,) = await end(hal, TRUE)
        assert [row["job"] for row in (await waiting)["attempts"]] == [job]

    on_controller(hal_home, body)


def test_who_waits_for_what_a_filter_selects_is_not_woken_by_others(hal_home: Path) -> None:
    """A long poll for failures: a success ends meanwhile, then a failure comes; the answer holds the failure only."""

    async def body(hal: Running) -> None:
        await hal.agent()
        waiting = asyncio.ensure_future(page(hal.http, state="failed", wait=30))
        await end(hal, TRUE)
        (job,) = await end(hal, FALSE)
        assert [row["job"] for row in (await waiting)["attempts"]] == [job]

    on_controller(hal_home, body)


def test_users_see_their_own_attempts_and_operators_all(hal_home: Path) -> None:
    """Of two jobs one is eve's: she sees that one, and may not ask for another's."""

    async def body(hal: Running) -> None:
        await hal.agent()
        async with person(hal, "eve") as eve, person(hal, "olga", role=Role.OPERATOR) as olga:
            mine = (await eve.post("/v1/jobs", json=TRUE)).json()["ids"]
            await hal.ended(mine[0])
            other = await end(hal, TRUE)
            assert [row["job"] for row in (await page(eve))["attempts"]] == mine
            assert [row["job"] for row in (await page(eve, job=other[0]))["attempts"]] == []
            assert [row["job"] for row in (await page(olga))["attempts"]] == mine + other
            problem(await eve.get("/v1/attempts", params={"user": "root"}), 403, "denied")
            problem(await eve.get("/v1/attempts", params={"reader": "archive"}), 403, "denied")

    on_controller(hal_home, body)


def test_the_newest_attempts_are_found_from_the_end(hal_home: Path) -> None:
    """Of three the last two, in order; reading on begins behind them."""

    async def body(hal: Running) -> None:
        await hal.agent()
        jobs = await end(hal, TRUE, FALSE, TRUE)
        found = await page(hal.http, newest=1, limit=2)
        assert [row["job"] for row in found["attempts"]] == jobs[1:]
        assert (await page(hal.http, ended_after=found["cursor"]))["attempts"] == []

    on_controller(hal_home, body)


def test_a_mistake_in_a_question_is_named(hal_home: Path) -> None:
    """States, times, cursors ahead of the store, and what excludes one another."""

    async def body(hal: Running) -> None:
        async def asked(**params: Any) -> httpx.Response:
            return await hal.http.get("/v1/attempts", params=params)

        assert "out-of-memory" in problem(await asked(state="running"), 400, "invalid-spec")["hint"]
        problem(await asked(since_ms="yesterday"), 400, "invalid-spec")
        problem(await asked(until_ms=""), 400, "invalid-spec")
        problem(await asked(wait=61), 400, "invalid-spec")
        problem(await asked(limit=5_001), 400, "invalid-spec")
        problem(await asked(newest=1, ended_after="0"), 400, "invalid-spec")
        problem(await asked(reader="nobody"), 404, "not-found")
        assert "0" in problem(await asked(ended_after="7"), 409, "conflict")["detail"]

    on_controller(hal_home, body)


def test_a_reader_that_reads_on_is_where_its_cursor_was(hal_home: Path) -> None:
    """Registered from the oldest; the second page acknowledges the first, and without a cursor it continues there."""

    async def body(hal: Running) -> None:
        await hal.agent()
        jobs = await end(hal, TRUE, TRUE, TRUE)
        await hal.http.put("/v1/readers/archive", json={"feeds": ["attempts"], "begin": "oldest"})
        first = await page(hal.http, reader="archive", limit=1)
        await page(hal.http, reader="archive", limit=1, ended_after=first["cursor"])
        (shown,) = (await hal.http.get("/v1/readers")).json()["readers"]
        assert (shown["attempts"], shown["events"]) == ({"read": 1, "behind": 2}, None)
        again = await page(hal.http, reader="archive")
        assert [row["job"] for row in again["attempts"]] == jobs[1:]

    on_controller(hal_home, body)


def test_an_acknowledged_position_survives_a_restart(hal_home: Path) -> None:
    """Explicitly acknowledged, then the controller is started again: the reader continues there."""

    async def before(hal: Running) -> None:
        await hal.agent()
        await end(hal, TRUE, TRUE)
        await hal.http.put("/v1/readers/archive", json={"begin": "oldest"})
        told = await hal.http.post("/v1/readers/archive/acknowledge", json={"attempts": "1", "events": 3})
        assert told.json()["attempts"] == {"read": 1, "behind": 1}

    async def after(hal: Running) -> None:
        (shown,) = (await hal.http.get("/v1/readers")).json()["readers"]
        assert (shown["attempts"]["read"], shown["events"]["read"]) == (1, 3)
        assert [row["sequence"] for row in (await page(hal.http, reader="archive"))["attempts"]] == [2]

    on_controller(hal_home, before)
    on_controller(hal_home, after)


def test_a_position_never_goes_back_and_never_ahead(hal_home: Path) -> None:
    """Registering again keeps it, an older cursor changes nothing, one that nobody was given is refused."""

    async def body(hal: Running) -> None:
        await hal.agent()
        await end(hal, TRUE, TRUE)
        await hal.http.put("/v1/readers/archive", json={"feeds": ["attempts"]})
        again = await hal.http.put("/v1/readers/archive", json={"feeds": ["attempts"], "begin": "oldest"})
        assert again.json()["attempts"]["read"] == 2
        acknowledge = "/v1/readers/archive/acknowledge"
        assert (await hal.http.post(acknowledge, json={"attempts": "1"})).json()["attempts"]["read"] == 2
        problem(await hal.http.post(acknowledge, json={"attempts": "3"}), 409, "conflict")
        problem(await hal.http.post(acknowledge, json={"events": 1}), 409, "conflict")
        problem(await hal.http.post(acknowledge, json={}), 400, "invalid-spec")

    on_controller(hal_home, body)


def test_readers_are_registered_listed_and_removed(hal_home: Path) -> None:
    """A wrong name or feed is refused; who is removed is unknown."""

    async def body(hal: Running) -> None:
        problem(await hal.http.put("/v1/readers/a b", json={}), 400, "invalid-spec")
        problem(await hal.http.put("/v1/readers/a", json={"feeds": ["logs"]}), 400, "invalid-spec")
        problem(await hal.http.put("/v1/readers/a", json={"feeds": []}), 400, "invalid-spec")
        assert (await hal.http.put("/v1/readers/a", json={})).status_code == 200
        assert [one["name"] for one in (await hal.http.get("/v1/readers")).json()["readers"]] == ["a"]
        assert (await hal.http.delete("/v1/readers/a")).status_code == 200
        problem(await hal.http.delete("/v1/readers/a"), 404, "not-found")

    on_controller(hal_home, body)


def test_readers_have_a_bound(hal_home: Path) -> None:
    """The 65th is refused; one that is there may register again."""

    async def body(hal: Running) -> None:
        for number in range(64):
            assert (await hal.http.put(f"/v1/readers/r{number}", json={})).status_code == 200
        problem(await hal.http.put("/v1/readers/r64", json={}), 503, "overloaded")
        assert (await hal.http.put("/v1/readers/r0", json={})).status_code == 200

    on_controller(hal_home, body)


def test_an_event_about_many_jobs_says_live_and_later_that_it_is_cut(hal_home: Path) -> None:
    """1,001 jobs of one submission: the stream and the page show the same event, of 1,000 jobs, marked."""

    async def body(hal: Running) -> None:
        async def first_of_stream() -> Any:
            async with hal.http.stream("GET", "/v1/events", headers={"Accept": "text/event-stream"}) as stream:
                begun.set()
                async for line in stream.aiter_lines():
                    if line.startswith("data: ") and '"jobs-submitted"' in line:
                        return json.loads(line[6:])
            return None

        begun = asyncio.Event()
        live = asyncio.ensure_future(first_of_stream())
        await begun.wait()
        await hal.submit(*[TRUE] * 1_001)
        came = await live
        events = (await hal.http.get("/v1/events", params={"limit": 1000})).json()["events"]
        assert came == next(event for event in events if event["kind"] == "jobs-submitted")
        assert (len(came["jobs"]), came["payload"]["jobs_total"], came["payload"]["truncated"]) == (1_000, 1_001, True)

    on_controller(hal_home, body)


def test_a_reader_of_events_is_told_which_are_lost(hal_home: Path) -> None:
    """All but the newest event are removed: a page and a stream behind the first name the others, and go on."""

    async def body(hal: Running) -> None:
        for _ in range(3):
            await hal.submit(TRUE)
        newest = hal.api.feed.last_sequence()
        committer = hal.controller._committer
        await hal.runtime.run_blocking(
            lambda: committer.store.trim(10**15, Retention(events_count=1, events_ms=10**15), epoch=committer.epoch)
        )
        found = (await hal.http.get("/v1/events", params={"after": 1})).json()
        assert (found["lost"], [event["sequence"] for event in found["events"]]) == ([2, newest - 1], [newest])
        assert "lost" not in (await hal.http.get("/v1/events")).json()
        headers = {"Accept": "text/event-stream", "Last-Event-ID": "1"}
        async with hal.http.stream("GET", "/v1/events", headers=headers) as stream:
            sent = [json.loads(line[6:]) async for line in first(2, stream.aiter_lines(), "data: ")]
        assert [(one["kind"], one["sequence"]) for one in sent] == [("lost", newest - 1), ("jobs-submitted", newest)]
        assert sent[0]["payload"] == {"first": 2, "last": newest - 1}

    on_controller(hal_home, body)


def test_a_stream_says_what_is_lost_although_nothing_is_kept(hal_home: Path) -> None:
    """After a silent month: the next event is not the first of those that the reader has missed."""

    async def body(hal: Running) -> None:
        await hal.submit(TRUE)
        newest = hal.api.feed.last_sequence()
        committer = hal.controller._committer
        await hal.runtime.run_blocking(
            lambda: committer.store.trim(10**15, Retention(events_count=0), epoch=committer.epoch)
        )
        headers = {"Accept": "text/event-stream", "Last-Event-ID": "0"}
        async with hal.http.stream("GET", "/v1/events", headers=headers) as stream:
            (sent,) = [json.loads(line[6:]) async for line in first(1, stream.aiter_lines(), "data: ")]
        assert (sent["kind"], sent["payload"]) == ("lost", {"first": 1, "last": newest})

    on_controller(hal_home, body)


def test_what_is_committed_while_a_page_is_read_is_not_lost(hal_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader at the head of the feed: the page is empty, and the next one holds what came."""

    async def body(hal: Running) -> None:
        await hal.submit(TRUE)
        newest, committer = hal.api.feed.last_sequence(), hal.controller._committer
        read = committer.read

        async def read_and_submit(work: Callable[[Store], Any]) -> Any:
            found = await read(work)
            monkeypatch.setattr(committer, "read", read)
            await hal.submit(TRUE)
            return found

        monkeypatch.setattr(committer, "read", read_and_submit)
        found = (await hal.http.get("/v1/events", params={"after": newest})).json()
        assert hal.api.feed.last_sequence() > newest
        assert (found["events"], "lost" in found) == ([], False)

    on_controller(hal_home, body)


async def first(count: int, lines: AsyncIterator[str], beginning: str) -> AsyncIterator[str]:
    """The first lines that begin like this."""
    async for line in lines:
        if line.startswith(beginning):
            yield line
            count -= 1
            if not count:
                return
