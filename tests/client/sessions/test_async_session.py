"""A session for asyncio, with real processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from hal.client.async_session import aopen_session
from tests.client.sessions.processes import WAIT_S, Processes, processes


@pytest.fixture(scope="module")
def running() -> Iterator[Processes]:
    with processes() as started:
        yield started


def test_results_are_awaited(running: Processes) -> None:
    """Of single tasks and of a map, shared values included; exceptions are raised."""

    async def main() -> None:
        async with await aopen_session(running.file) as session:
            assert await (await session.submit(pow, 2, 5)) == 32
            futures = [await session.submit(abs, -number) for number in range(100)]
            assert await asyncio.gather(*futures) == list(range(100))
            assert [x async for x in session.map(lambda x: x + 1, range(5_000))] == list(range(1, 5_001))
            table = await session.put([1, 2, 3])
            assert await (await session.options(priority=1).submit(sum, table)) == 6
            with pytest.raises(ZeroDivisionError):
                await (await session.submit(divmod, 1, 0))

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def test_a_map_that_is_left_ends(running: Processes) -> None:
    """Its items are endless; other coroutines run meanwhile."""

    async def main() -> None:
        async with await aopen_session(running.file) as session:
            seen = []
            async for number in session.map(lambda x: x * x, count()):
                seen.append(number)
                if len(seen) == 5:
                    break
            assert seen == [0, 1, 4, 9, 16]
            assert await (await session.submit(abs, -1)) == 1

    asyncio.run(asyncio.wait_for(main(), WAIT_S))
