"""The history part beside a controller that goes away, forgets its reader, or has another store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from hal.core.model import ConflictError, NotFoundError, UnreachableError
from hal.core.model.history_config import EnergySection, HistorySection, PricesSection
from hal.planes.observability.history.feed_rows import FeedRow
from hal.planes.observability.history.part import History
from hal.planes.observability.history.usage import By, Wanted
from hal.runtime.interface import Runtime
from tests.planes.observability.history.streams import BEGIN_MS, page, row
from tests.runtime.real_runtime import run_real

DEADLINE_S = 30.0


class Feed:
    """A controller's ended attempts, as far as the part asks for them."""

    def __init__(self, rows: Sequence[FeedRow] = ()) -> None:
        self.rows = list(rows)
        self.registered = 0
        self.away = False
        self.refused = asyncio.Event()
        """Set when it was asked while it was away."""
        self.read = asyncio.Event()
        """Set when everything was asked for."""

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        wait_s: float = 0.0,
    ) -> bytes:
        await asyncio.sleep(0)
        if self.away:
            self.refused.set()
            raise UnreachableError("it is being started again")
        if method == "PUT":
            self.registered += 1
            return b"{}"
        if path == "/v1/nodes":
            return b'{"nodes":[{"name":"n1","labels":{"zone":"cloud"},"capacity":{"cpu":4000}}]}'
        assert path == "/v1/attempts"
        assert query is not None
        newest = self.rows[-1].sequence if self.rows else 0
        if "newest" in query:
            return msgspec.json.encode(page(self.rows[-1:], cursor=newest))
        if not self.registered:
            raise NotFoundError("there is no reader")
        after = int(query["ended_after"])
        if after > newest:
            raise ConflictError("the cursor is ahead")
        if after == newest:
            self.read.set()
            await asyncio.sleep(0.01)
        found = [one for one in self.rows if one.sequence > after][:2]
        return msgspec.json.encode(page(found, cursor=after, more=bool(found) and found[-1].sequence < newest))


def on_history(tmp_path: Path, feed: Feed, test: Callable[[History], Awaitable[None]]) -> None:
    """Run the part while the test runs."""

    async def main(runtime: Runtime) -> None:
        prices = PricesSection(core_hour=1.0)
        history = History(
            runtime, tmp_path, feed, history=HistorySection(), energy=EnergySection(), prices=prices, pause_ms=1
        )
        running = asyncio.create_task(history.run())
        try:
            async with asyncio.timeout(DEADLINE_S):
                await feed.read.wait()
                await test(history)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await history.close()

    run_real(tmp_path, main)


async def counted(history: History) -> int:
    found = await history.usage(Wanted(), By.USER, [0, 1 << 45])
    return sum(one["attempts"] for one in found.sums)


def five() -> list[FeedRow]:
    now = BEGIN_MS + 400 * 86_400_000 * 2
    return [row(number, end_ms=now + number, job=number) for number in range(1, 6)]


def test_everything_is_read_page_by_page_and_once(tmp_path: Path) -> None:
    async def test(history: History) -> None:
        assert await counted(history) == 5
        assert history.health()["cursor"] == 5

    on_history(tmp_path, Feed(five()), test)
    on_history(tmp_path, Feed(five()), test)  # the next process


def test_a_controller_that_goes_away_is_asked_again(tmp_path: Path) -> None:
    """Three attempts, then it is away while two more end."""
    feed = Feed(five()[:3])

    async def test(history: History) -> None:
        feed.away = True
        feed.rows = five()
        await feed.refused.wait()
        await asyncio.sleep(0)  # the part hears of it
        assert str(history.health()["controller"]).startswith("away: it is being started again")
        feed.away = False
        feed.read.clear()
        await feed.read.wait()
        assert await counted(history) == 5

    on_history(tmp_path, feed, test)


def test_a_reader_that_was_removed_is_registered_again(tmp_path: Path) -> None:
    feed = Feed(five()[:3])

    async def test(history: History) -> None:
        feed.registered = 0
        feed.rows = five()
        feed.read.clear()
        await feed.read.wait()
        assert (await counted(history), feed.registered) == (5, 1)

    on_history(tmp_path, feed, test)


def test_a_store_that_was_replaced_by_a_backup_is_followed_from_its_end(tmp_path: Path) -> None:
    """The backup has two of five attempts; then a third ends, another one than the third of before: 6 in all."""

    async def test(history: History) -> None:
        assert await counted(history) == 5

    on_history(tmp_path, Feed(five()), test)
    feed = Feed(five()[:2])

    async def after(history: History) -> None:
        assert (await counted(history), history.health()["rewound"]) == (5, 1)
        feed.rows.append(row(3, end_ms=five()[4].end_ms + 9, job=99))
        feed.read.clear()
        await feed.read.wait()
        assert await counted(history) == 6

    on_history(tmp_path, feed, after)
