"""Two controllers, each a process with a home of its own, on one PostgreSQL: one leads, the other takes over."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hal.runtime.home import Home
from hal.runtime.interface import UnixAddress
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.store import Store
from hal.wire.frames.hello import Goodbye
from tests.daemons.controller.controller_process import LIMIT_S, ControllerProcess
from tests.daemons.controller.scripted_agent import ScriptedAgent
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

TRUE = {"command": ["exit", "0"]}


class Pair:
    """Two controllers on one database, and a place for agents."""

    def __init__(self, runtime: RealRuntime, url: str, first: ControllerProcess, second: ControllerProcess) -> None:
        self.runtime = runtime
        self.url = url
        self.first = first
        self.second = second

    async def agent(self, at: ControllerProcess, name: str = "n1") -> ScriptedAgent:
        """A node that has joined the leader, trying as long as it is told to go elsewhere."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                agent = ScriptedAgent(self.runtime, UnixAddress(at.home.wire_socket()), name)
                if await agent.try_to_join():
                    return agent
                await self.runtime.sleep(50)


@asynccontextmanager
async def pair(root: Path, url: str) -> AsyncIterator[Pair]:
    """`first` leads, `second` follows."""
    home = Home(root)
    home.create()
    file = LogFile(home.log_file("test"))
    runtime = RealRuntime("test", home, open_log(file, "test"), seed=1)
    first, second = (ControllerProcess(root, name, url) for name in ("a", "b"))
    try:
        first.start()
        await first.leads()
        second.start()
        await second.follows()
        yield Pair(runtime, url, first, second)
    finally:
        first.remove()
        second.remove()
        await runtime.close()
        file.close()


def on_pair(root: Path, postgres: PostgresServer, test: Callable[[Pair], Awaitable[None]]) -> None:
    """Run a test's body against two controllers."""

    async def body() -> None:
        async with pair(root, postgres.fresh()) as both:
            await test(both)

    asyncio.run(body())


def test_a_follower_reads_by_itself_and_passes_the_rest_on(hal_home: Path, postgres: PostgresServer) -> None:
    """Submitted at the follower, the job is the leader's; the list is read from the store; an agent is sent on."""

    async def body(both: Pair) -> None:
        done = await both.second.ask("POST", "/v1/jobs", json={"jobs": [TRUE]})
        assert done.status_code == 201, done.text
        (job,) = done.json()["ids"]
        for one in (both.first, both.second):
            assert (await one.ask("GET", f"/v1/jobs/{job}")).json()["state"] == "pending"
            assert [row["id"] for row in (await one.ask("GET", "/v1/jobs")).json()["jobs"]] == [job]
            assert (await one.ask("GET", f"/v1/jobs/{job}/tasks/0")).json()["state"] == "pending"
        assert (await both.second.ask("GET", "/v1/jobs/77/tasks")).status_code == 404
        assert (await both.second.ask("GET", "/v1/nosuch")).status_code == 404
        connection = await both.runtime.connect(UnixAddress(both.second.home.wire_socket()))
        agent = ScriptedAgent(both.runtime, UnixAddress(both.second.home.wire_socket()), "n1")
        await connection.send(agent.hello())
        told = await connection.receive(timeout_ms=30_000)
        assert isinstance(told, Goodbye)
        assert (told.code, told.reason) == ("not-leader", "")  # the leader serves no port
        connection.close()

    on_pair(hal_home, postgres, body)


def test_safety_a_killed_leader_is_followed_and_nothing_is_lost(hal_home: Path, postgres: PostgresServer) -> None:
    """What it answered for is there; the next one leads under another epoch and starts it."""

    async def body(both: Pair) -> None:
        before = await both.first.leads()
        done = await both.first.ask("POST", "/v1/jobs", json={"jobs": [TRUE] * 20})
        ids = done.json()["ids"]
        both.first.kill()
        after = await both.second.leads()
        assert after["epoch"] > before["epoch"]
        agent = await both.agent(both.second)
        for job in ids:
            ended = await both.second.until(f"/v1/jobs/{job}", lambda view: view["end_ms"] is not None)
            assert ended["state"] == "succeeded"
        await agent.leave()
        both.first.start()
        await both.first.follows()

    on_pair(hal_home, postgres, body)


def test_a_leader_that_stops_in_good_order_makes_way_at_once(hal_home: Path, postgres: PostgresServer) -> None:
    """It gives its lease up: the row says so before its process has ended."""

    async def body(both: Pair) -> None:
        assert both.first.end(signal.SIGTERM) == 0
        await both.second.leads()
        store = Store.open(both.url, create=False)
        assert store.leader().rest == f"unix:{both.second.home.api_socket()}"
        store.close()

    on_pair(hal_home, postgres, body)


def test_safety_a_leader_stopped_beyond_its_lease_does_nothing_when_it_goes_on(
    hal_home: Path, postgres: PostgresServer
) -> None:
    """SIGSTOP, the other leads, SIGCONT: it finds its lease over, says nothing to its node, and follows."""

    async def body(both: Pair) -> None:
        agent = await both.agent(both.first)
        former = (await both.first.leads())["epoch"]
        both.first.send(signal.SIGSTOP)
        done = asyncio.ensure_future(both.second.until("/v1/health", lambda health: health["status"] == "ok"))
        leader = await done
        submitted = await both.second.ask("POST", "/v1/jobs", json={"jobs": [TRUE]})
        (job,) = submitted.json()["ids"]
        started_before = len(agent.started)
        both.first.send(signal.SIGCONT)
        follows = await both.first.follows()
        assert str(both.second.home.api_socket()) in follows["leader"]
        assert leader["epoch"] > former
        assert len(agent.started) == started_before
        store = Store.open(both.url, create=False)
        assert store.leader().epoch == leader["epoch"]
        store.close()
        assert (await both.first.ask("GET", f"/v1/jobs/{job}")).json()["state"] == "pending"
        other = await both.agent(both.second, "n2")
        await both.second.until(f"/v1/jobs/{job}", lambda view: view["state"] == "succeeded")
        await other.leave()

    on_pair(hal_home, postgres, body)
