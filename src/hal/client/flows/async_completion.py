"""Many jobs waited for at once, in tasks: each is given as soon as it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from hal.client.flows.async_player import AsyncPlayer
from hal.client.flows.steps import MAX_WATCHERS, watched
from hal.client.rest.outcome import not_ended
from hal.client.rest.views import JobInfo
from hal.client.transport.async_transport import AsyncTransport
from hal.core.model import HALError


async def as_ended(connections: AsyncTransport, ids: Sequence[str], timeout_s: float | None) -> AsyncIterator[JobInfo]:
    """Each job when it has ended, in the order in which they end; as `completion.as_ended`."""
    found: asyncio.Queue[JobInfo | HALError] = asyncio.Queue()

    async def watch(some: Sequence[str]) -> None:
        try:
            async for info in AsyncPlayer(connections).items(watched(some, lambda: False)):
                found.put_nowait(info)
        except HALError as error:
            found.put_nowait(error)

    watchers = min(MAX_WATCHERS, len(ids))
    tasks = [asyncio.create_task(watch(ids[number::watchers])) for number in range(watchers)]
    loop = asyncio.get_running_loop()
    deadline_s = None if timeout_s is None else loop.time() + timeout_s
    left = len(ids)
    try:
        while left:
            try:
                async with asyncio.timeout_at(deadline_s):
                    item = await found.get()
            except TimeoutError:
                raise not_ended(ids, left, timeout_s or 0.0) from None
            if isinstance(item, HALError):
                raise item
            left -= 1
            yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
