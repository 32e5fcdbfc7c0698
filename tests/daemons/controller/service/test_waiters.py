"""Who waits for a job or a node: woken when it happens, gone when the time is up, bounded."""

from __future__ import annotations

import asyncio

from hal.daemons.controller.service.waiters import JobWaiters


def test_nobody_waits_any_more_after_the_time_is_up() -> None:
    """A wait that ends without the job's end leaves nothing behind."""

    async def body() -> None:
        waiters = JobWaiters()
        assert await waiters.wait(1, 0.001) is None
        assert not waiters.wanted(1)

    asyncio.run(body())
