"""The asyncio client does what the sync one does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import hal
from tests.client.conftest import Serve
from tests.client.flows.test_events import sent
from tests.client.flows.test_logs import part
from tests.client.scripted_server import Asked, Reply, as_json, problem


def connected(work: Callable[[hal.AsyncClient], Coroutine[Any, Any, Any]]) -> Any:
    """What `work` gives with a client of the HAL at HAL_HOME."""

    async def main() -> Any:
        async with await hal.aconnect() as client:
            return await work(client)

    return asyncio.run(main())


def test_a_client_is_opened_as_a_context_manager_or_awaited(serve: Serve) -> None:
    """Either way also as the coroutine that `asyncio.run` takes; what cannot connect raises when it is opened."""
    serve(lambda asked: as_json({"version": "0.1.0"}))

    async def opened() -> str:
        async with hal.aconnect() as client:
            return str((await client.version())["version"])

    assert asyncio.run(opened()) == "0.1.0"
    client = asyncio.run(hal.aconnect())
    assert isinstance(client, hal.AsyncClient)


def test_submit_wait_and_logs(serve: Serve) -> None:
    """One job's way."""

    def answer(asked: Asked) -> Reply:
        if asked.path == "/v1/jobs":
            return as_json({"ids": ["5"]}, 201)
        if asked.path.endswith("/logs"):
            return part(asked, b"out\n")
        return as_json({"id": "5", "state": "succeeded", "version": "0.1.0"})

    server = serve(answer)

    async def work(client: hal.AsyncClient) -> tuple[str, str, str]:
        job = await client.submit(["true"], cpus=2)
        info = await job.wait(timeout=10)
        return job.id, info.state, await job.logs()

    assert connected(work) == ("5", "succeeded", "out\n")
    assert server.asked[1].headers["idempotency-key"]
    assert server.connections == 1


def test_errors_have_the_same_classes(serve: Serve) -> None:
    """A problem document becomes the error it names."""
    serve(lambda asked: as_json({}) if asked.path == "/v1/version" else problem(404, "not-found", "no job 9"))
    with pytest.raises(hal.NotFoundError, match="no job 9"):
        connected(lambda client: client.job(9))


def test_a_hal_that_is_not_there_is_reported_at_once(hal_home: Path) -> None:
    """With the same words as the sync client."""
    with pytest.raises(hal.UnreachableError, match="is not running"):
        connected(lambda client: client.version())


def test_a_controller_that_restarts_is_waited_for(serve: Serve) -> None:
    """A request after the restart is answered by the new controller."""
    first = serve(lambda asked: as_json({"version": "1"}))

    async def work(client: hal.AsyncClient) -> Any:
        first.stop()
        threading.Timer(0.2, lambda: serve(lambda asked: as_json({"version": "2"}))).start()
        return (await client.version())["version"]

    assert connected(work) == "2"


def test_a_followed_log_goes_on_where_it_broke_off(serve: Serve) -> None:
    """Nothing is given twice, nothing is lost."""
    text = b"hello world\n"

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/tasks/0"):
            return as_json({"job": "1", "task": 0, "state": "succeeded", "attempt": 1})
        if not asked.path.endswith("/logs"):
            return as_json({"id": "1", "state": "succeeded"})
        offset = int(asked.query["offset"])
        if "follow" not in asked.query:
            return part(asked, text[: max(5, offset)], ended=offset == len(text))
        headers = {"HAL-Log-Offset": str(offset)}
        return Reply(headers=headers, chunks=[text[:5]] if offset == 0 else [text[offset:]], cut=offset == 0)

    serve(answer)

    async def work(client: hal.AsyncClient) -> bytes:
        job = await client.job(1)
        return b"".join([piece async for piece in job.follow()])

    assert connected(work) == text


def test_a_followed_feed_resumes_behind_the_last_event(serve: Serve) -> None:
    """After a cut the last sequence number is sent."""

    def answer(asked: Asked) -> Reply:
        if asked.path != "/v1/events":
            return as_json({})
        return Reply(chunks=[sent(int(asked.headers.get("last-event-id", "6")) + 1)], cut=True)

    serve(answer)

    async def work(client: hal.AsyncClient) -> list[int]:
        found = []
        async for event in client.events(follow=True):
            found.append(event.sequence)
            if len(found) == 3:
                break
        return found

    assert connected(work) == [7, 8, 9]


def test_listings_are_paged(serve: Serve) -> None:
    """Two pages, in order."""

    def answer(asked: Asked) -> Reply:
        if "cursor" in asked.query:
            return as_json({"jobs": [{"id": "2", "state": "failed"}]})
        return as_json({"jobs": [{"id": "1", "state": "held"}], "cursor": "c"})

    serve(answer)

    async def work(client: hal.AsyncClient) -> list[str]:
        return [info.id async for info in client.jobs(state="failed")]

    assert connected(work) == ["1", "2"]


def test_a_node_is_drained_and_waited_for(serve: Serve) -> None:
    """It is asked for until it holds nothing; `seen` gets it each time."""
    running = [1, 0]

    def answer(asked: Asked) -> Reply:
        if asked.method == "POST":
            return as_json({"results": [{"id": "n1", "ok": True, "state": "draining"}]})
        if asked.path != "/v1/nodes/n1/wait":
            return as_json({})
        closures = [{"source": "person", "drain": True}]
        return as_json({"name": "n1", "state": "draining", "running": running.pop(0), "closures": closures})

    serve(answer)
    seen: list[int] = []

    async def work(client: hal.AsyncClient) -> bool:
        (outcome,) = await client.drain("n1", reason="new disk")
        node = await client.wait_drained("n1", 30, seen=lambda info: seen.append(info.running))
        return outcome.ok and not node.drains

    assert connected(work)
    assert seen == [1, 0]
