"""Leaders one after the other: the controller passes the highest epoch that anybody has heard."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.daemons.controller.running import Running, on_controller

TRUE = {"command": ["exit", "0"]}


def test_an_agent_that_heard_a_later_leader_makes_the_controller_pass_it(hal_home: Path) -> None:
    """It says epoch 40 while jobs come in: every commit meanwhile is accepted, the welcome names 41."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        await agent.leave()
        agent.seen_epoch = 40
        _, *jobs = await asyncio.gather(agent.join(), *(hal.submit(TRUE) for _ in range(30)))
        assert agent.welcome is not None
        assert agent.welcome.epoch == 41
        for (job,) in jobs:
            assert (await hal.ended(job))["state"] == "succeeded"

    on_controller(hal_home, body)
