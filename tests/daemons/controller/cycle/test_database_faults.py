"""A controller whose PostgreSQL fails under it: connections cut in COMMIT, a server that stops and comes back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.core.model import StepId
from hal.daemons.controller.config import Config
from tests.daemons.controller.running import Running, on_controller
from tests.postgres_server import PostgresServer
from tests.store.cutting_proxy import Cut, CuttingProxy

pytestmark = pytest.mark.slow

TRUE = {"command": ["exit", "0"]}


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that these tests may stop."""
    server = PostgresServer()
    yield server
    server.remove()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_safety_jobs_of_a_commit_of_unknown_outcome_run_once(
    hal_home: Path, postgres: PostgresServer, cut: Cut
) -> None:
    """The connection ends in COMMIT, again and again, before the server saw it or after: each job runs once."""
    with CuttingProxy(postgres.root) as proxy:

        async def body(hal: Running) -> None:
            agent = await hal.agent()
            jobs: list[str] = []
            for _ in range(4):
                proxy.cut = cut
                jobs += await hal.submit(TRUE, TRUE)
            for job in jobs:
                assert (await hal.ended(job))["state"] == "succeeded"
            assert proxy.cuts == 4
            assert len(agent.started) == len(set(agent.started)) == len(jobs) == len(set(jobs)) == 8

        config = Config(store_url=postgres.behind(proxy.directory, postgres.fresh()))
        on_controller(hal_home, body, config)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGQUIT])
def test_safety_a_database_that_comes_back_finds_everything(
    hal_home: Path, own_server: PostgresServer, end: signal.Signals
) -> None:
    """Stopped or crashed: changes are refused meanwhile, what runs goes on, nothing is lost or run twice."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (running,) = await hal.submit({"command": ["sleep"]})
        await agent.until(lambda one: len(one.running) == 1, 60.0)
        own_server.stop(end)
        refused = await hal.http.post("/v1/jobs", json={"jobs": [TRUE]})
        assert refused.status_code == 503
        assert refused.json()["code"] == "store"
        assert (await hal.http.get("/v1/health")).json()["status"] == "degraded"
        own_server.start()
        await hal.until(lambda: hal.api.status.health().status == "ok")
        (job,) = await hal.submit(TRUE)
        assert (await hal.ended(job))["state"] == "succeeded"
        agent.end(StepId(int(running), 0, 1, 0))
        assert (await hal.ended(running))["state"] == "succeeded"
        assert len(agent.started) == 2

    on_controller(hal_home, body, Config(store_url=own_server.fresh()))
