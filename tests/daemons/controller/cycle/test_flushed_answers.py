"""What people are told was flushed before: a power failure does not make it untrue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from hal.daemons.controller.config import Config
from hal.runtime.home import Home
from hal.store import Store
from tests.daemons.controller.running import Running, running


class SlowDisk(Store):
    """A store on a disk that flushes nothing while the test says so."""

    ready = threading.Event()

    def flush(self) -> None:
        """See `Store`."""
        self.ready.wait()
        super().flush()


def _on_slow_disk(home: Path, body: Callable[[Running], Awaitable[None]]) -> None:
    async def run() -> None:
        async with running(home, Config(), store=SlowDisk) as hal:
            try:
                await body(hal)
            finally:
                SlowDisk.ready.set()

    SlowDisk.ready.set()
    asyncio.run(run())


def test_the_feed_tells_no_event_that_is_not_flushed(hal_home: Path) -> None:
    """A job is held: committed at once and read from the store; the feed has it when the disk has it (faults 2)."""

    async def body(hal: Running) -> None:
        await hal.agent()
        (job,) = await hal.submit({"command": ["sleep"]})
        before = (await hal.http.get("/v1/events", params={"limit": 1000})).json()["events"][-1]["sequence"]
        SlowDisk.ready.clear()
        asking = asyncio.ensure_future(hal.http.post("/v1/jobs/cancel", json={"ids": [job]}))
        other = Store.open(Home(hal_home).database)
        await hal.until(lambda: other.last_seq() > before)
        other.close()
        told = (await hal.http.get("/v1/events", params={"after": before})).json()["events"]
        assert told == []
        assert hal.api.feed.last_sequence() == before
        SlowDisk.ready.set()
        assert (await asking).status_code == 200
        told = (await hal.http.get("/v1/events", params={"after": before})).json()["events"]
        assert [event["sequence"] for event in told][:1] == [before + 1]

    _on_slow_disk(hal_home, body)


def test_a_wait_for_a_job_whose_end_is_not_flushed_is_not_answered(hal_home: Path) -> None:
    """It has ended in memory and in the store; whoever asks then waits for the disk, too."""

    async def body(hal: Running) -> None:
        agent = await hal.agent()
        (job,) = await hal.submit({"command": ["sleep"]})
        await agent.until(lambda a: bool(a.running))
        SlowDisk.ready.clear()
        agent.end(next(iter(agent.running)))
        row = await hal.api.jobs.row(int(job))
        while row.end_ms is None:
            await hal.runtime.sleep(1)
            row = await hal.api.jobs.row(int(job))
        asking = asyncio.ensure_future(hal.http.get(f"/v1/jobs/{job}/wait", params={"timeout_s": 20}))
        done, _ = await asyncio.wait({asking}, timeout=0.3)
        assert not done
        SlowDisk.ready.set()
        assert (await asking).json()["end_ms"] is not None

    _on_slow_disk(hal_home, body)
