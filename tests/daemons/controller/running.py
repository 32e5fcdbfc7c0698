"""A real controller with REST in this process, on real sockets and a real store, for one test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from hal.daemons.controller.api.rest_server import RestServer
from hal.daemons.controller.config import Config
from hal.daemons.controller.controller import Controller
from hal.daemons.controller.service.controller_api import ControllerApi
from hal.planes.interface import Plane
from hal.runtime.home import Home
from hal.runtime.interface import UnixAddress
from hal.runtime.logfile import LogFile
from hal.runtime.logs import open_log
from hal.runtime.real_runtime import RealRuntime
from hal.store import Store
from tests.daemons.controller.scripted_agent import ScriptedAgent

LIMIT_S = 30.0


class Running:
    """What a test uses."""

    def __init__(self, runtime: RealRuntime, controller: Controller, http: httpx.AsyncClient, rest: RestServer) -> None:
        self.runtime = runtime
        self.rest = rest
        self.controller = controller
        self.http = http
        self.agents: list[ScriptedAgent] = []

    @property
    def api(self) -> ControllerApi:
        return self.controller.api

    async def agent(self, name: str = "n1", **settings: Any) -> ScriptedAgent:
        """A node that has joined and is up."""
        agent = ScriptedAgent(self.runtime, UnixAddress(self.runtime.paths.wire_socket()), name, **settings)
        await agent.join()
        await self.until(lambda: any(n.name == name and n.state == "up" for n in self.api.nodes.all()))
        self.agents.append(agent)
        return agent

    async def submit(self, *jobs: dict[str, Any]) -> list[str]:
        """Submit over REST; their ids."""
        answer = await self.http.post("/v1/jobs", json={"jobs": list(jobs)})
        assert answer.status_code == 201, answer.text
        ids: list[str] = answer.json()["ids"]
        return ids

    async def ended(self, job: str) -> dict[str, Any]:
        """The job, when it has ended."""
        answer = await self.http.get(f"/v1/jobs/{job}/wait", params={"timeout_s": LIMIT_S})
        view: dict[str, Any] = answer.json()
        assert view["end_ms"] is not None, view
        return view

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something is true, looking at every turn of the loop."""
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                await self.runtime.sleep(1)


@asynccontextmanager
async def running(
    root: Path,
    config: Config | None = None,
    max_bytes: int | None = None,
    *,
    store: type[Store] = Store,
    planes: Sequence[Plane] = (),
) -> AsyncIterator[Running]:
    """One controller, with these planes attached; stopped, with everything durable, when the block ends."""
    home = Home(root)
    home.create()
    file = LogFile(home.log_file("controller"))
    runtime = RealRuntime("controller", home, open_log(file, "controller"), seed=1)
    config = config or Config()
    controller = Controller(runtime, config, lambda: store.open(config.store_url or home.database, max_bytes=max_bytes))
    for plane in planes:
        controller.planes.attach(plane)
    await controller.start(UnixAddress(home.wire_socket()))
    loop = asyncio.ensure_future(controller.run())
    rest = RestServer(controller.api, runtime, config, owner_uid=os.geteuid())
    await rest.start(home.api_socket())
    transport = httpx.AsyncHTTPTransport(uds=str(home.api_socket()), verify=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://hal", timeout=LIMIT_S) as http:
        try:
            yield Running(runtime, controller, http, rest)
        finally:
            controller.stop()
            await http.aclose()
            await rest.stop()
            try:
                await loop
            finally:
                await controller.close()
                await runtime.close()
                file.close()
                home.drop_passage()


def on_controller(
    root: Path, test: Callable[[Running], Awaitable[None]], config: Config | None = None, max_bytes: int | None = None
) -> None:
    """Run a test's body against a controller of its own."""

    async def body() -> None:
        async with running(root, config, max_bytes) as one:
            await test(one)

    asyncio.run(body())
