"""The history part: follows ended attempts as the registered reader `observability`, and answers about them.

Exactly once: a page and the cursor behind it are one transaction, and the controller keeps what is behind the cursor
that it was last asked for. While the controller is away it is asked again; nothing is lost meanwhile.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from hal.core.model import ConflictError, HALError, NotFoundError, OverloadedError, UnreachableError, to_json
from hal.core.model.history_config import EnergySection, HistorySection, PricesSection
from hal.planes.observability.database import Database
from hal.planes.observability.history.costing import Costing, KnownNode
from hal.planes.observability.history.facts import Sampled
from hal.planes.observability.history.feed_rows import PAGE, FeedPage, FeedRow
from hal.planes.observability.history.known_nodes import (
    keep_nodes,
    nodes_in,
    prices_in,
    read_nodes,
    with_prices,
)
from hal.planes.observability.history.reading import AttemptKey, KeptAttempt, read_job, read_placed, read_range
from hal.planes.observability.history.recording import Recorded, Recorder, rewind
from hal.planes.observability.history.tables import MIGRATIONS
from hal.planes.observability.history.trimming import drop_names, set_kept, trim_some
from hal.planes.observability.history.usage import By, Found, Wanted, read_usage
from hal.runtime.interface import Runtime

READER: Final = "observability"
"""Its name among the controller's registered readers."""
PAGE_ROWS: Final = 2_000
"""Ended attempts that are asked for, and recorded, at once."""
WAIT_S: Final = 25.0
"""How long one request waits for the next end."""
FIRST_PAUSE_MS: Final = 500
LONGEST_PAUSE_MS: Final = 15_000
"""Between two requests while the controller does not answer."""
PAUSE_MS: Final = 1_000
"""Between two requests that leave nothing to read: ends of a second come in one page, however many tasks end in it, so
that following costs the controller no more; and a controller that is stopping answers at once."""
NODES_EVERY_MS: Final = 60_000
NODES_AT_MOST_EVERY_MS: Final = 5_000
"""Nodes are asked for so often, however many attempts come of nodes that are not known."""
PRICE_KEYS: Final = 10_000
"""Prices of one request."""
MOST_PRICES: Final = 500_000
TRIM_EVERY_MS: Final = 3_600_000
TRIM_PAUSE_MS: Final = 50
"""Between two transactions of trimming: what arrives goes first."""


class Controller(Protocol):
    """Asks the controller, as an operator."""

    async def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        wait_s: float = 0.0,
    ) -> bytes:
        """The body of its answer.

        Raises:
            HALError: it refuses, or does not answer.
        """
        ...


Samples = Callable[[Sequence[FeedRow]], Awaitable[Mapping[int, Sampled]]]
"""What was sampled of attempts, by sequence number."""


async def no_samples(rows: Sequence[FeedRow]) -> Mapping[int, Sampled]:
    """Nothing was."""
    return {}


class History:
    """Of one HAL."""

    def __init__(
        self,
        runtime: Runtime,
        directory: Path,
        controller: Controller,
        *,
        history: HistorySection,
        energy: EnergySection,
        prices: PricesSection,
        samples: Samples = no_samples,
        pause_ms: int = PAUSE_MS,
    ) -> None:
        """
        Args:
            directory: of its database.
            pause_ms: between two requests that leave nothing to read.
        """
        self._runtime = runtime
        self._controller = controller
        self._section, self._prices = history, prices
        self._costing = Costing(energy, prices)
        self._samples = samples
        self._pause_ms = pause_ms
        self._database = Database(runtime, directory / "history.sqlite", MIGRATIONS)
        self._recorder = Recorder(self._costing)
        self._nodes: dict[str, KnownNode] = {}
        self._nodes_ms: int | None = None
        """When nodes were asked for last."""
        self._cursor = 0
        self._recorded_ms = 0
        self._recorded = 0
        self._lost = 0
        self._rewound = 0
        self._more = False
        self._away = ""
        """Why the controller does not answer; empty: it does."""

    @property
    def name(self) -> str:
        """See `Part`."""
        return "history"

    @property
    def currency(self) -> str:
        """Of prices."""
        return self._prices.currency

    async def run(self) -> None:
        """See `Part`."""
        self._recorder = Recorder(self._costing)
        self._nodes_ms = None
        self._cursor, self._recorded_ms = await self._database.write(_read_progress)
        self._nodes = await self._database.read(read_nodes)
        await self._database.write(partial(set_kept, section=self._section, now_ms=self._runtime.now_ms()))
        tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._trim())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def health(self) -> Mapping[str, float | int | str]:
        """See `Part`."""
        return {
            "cursor": self._cursor,
            "attempts_recorded": self._recorded,
            "attempts_lost": self._lost,
            "rewound": self._rewound,
            "catching_up": int(self._more),
            "newest_ms": self._recorded_ms,
            "bytes": self._database.size_bytes(),
            "controller": f"away: {self._away}" if self._away else "answers",
        }

    async def close(self) -> None:
        """See `Part`."""
        await self._database.close()

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def usage(self, wanted: Wanted, by: By, periods: Sequence[int]) -> Found:
        """Sums of attempts that ended in each period; see `read_usage`."""
        return await self._database.read(partial(read_usage, wanted=wanted, by=by, periods=periods))

    async def attempts_of(self, job: int, wanted: Wanted, after: int, limit: int) -> list[KeptAttempt]:
        """Attempts of one job; see `read_job`."""
        return await self._database.read(partial(read_job, job=job, wanted=wanted, after=after, limit=limit))

    async def attempts(self, wanted: Wanted, since_ms: int, until_ms: int, after: int, limit: int) -> list[KeptAttempt]:
        """Attempts of a range of time; see `read_range`."""
        return await self._database.read(
            partial(read_range, wanted=wanted, since_ms=since_ms, until_ms=until_ms, after=after, limit=limit)
        )

    async def placed(self, keys: Sequence[AttemptKey]) -> dict[AttemptKey, tuple[str, tuple[str, ...]]]:
        """See `read_placed`."""
        return await self._database.read(partial(read_placed, keys=keys))

    async def newest_attempt(self) -> int:
        """The position of the newest attempt; 0: there is none."""
        return await self._database.read(
            lambda connection: connection.execute("SELECT coalesce(max(id), 0) FROM attempts").fetchone()[0]
        )

    async def lost(self) -> list[tuple[int, int, int, int]]:
        """Ranges of ended attempts that the controller no longer had: first and last sequence number, and the instants
        after and before which they ended; 0: not known."""
        return await self._database.read(
            lambda connection: connection.execute("SELECT first, last, since_ms, until_ms FROM lost").fetchall()
        )

    # ── following ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _follow(self) -> None:
        pause_ms = FIRST_PAUSE_MS
        registered = False
        while True:
            try:
                if not registered:
                    body = to_json({"feeds": ["attempts"], "begin": "oldest"})
                    await self._controller.ask("PUT", f"/v1/readers/{READER}", body=body)
                    registered = True
                await self._refresh_nodes(NODES_EVERY_MS)
                page = await self._page()
            except NotFoundError:
                registered = False  # somebody has removed the reader
                await self._runtime.sleep(FIRST_PAUSE_MS)
                continue
            except ConflictError as error:
                await self._rewind(error)
                continue
            except (UnreachableError, OverloadedError) as error:
                self._away = error.message
                await self._runtime.sleep(pause_ms)
                pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
                continue
            self._away, pause_ms = "", FIRST_PAUSE_MS
            await self._record(page)
            if not page.more:
                await self._runtime.sleep(self._pause_ms)

    async def _page(self) -> FeedPage:
        query = {
            "asked": "1",
            "limit": str(PAGE_ROWS),
            "wait": f"{WAIT_S:g}",
            "reader": READER,
            "ended_after": str(self._cursor),
        }
        return PAGE.decode(await self._controller.ask("GET", "/v1/attempts", query, wait_s=WAIT_S))

    async def _record(self, page: FeedPage) -> None:
        self._more = page.more
        if not page.attempts and int(page.cursor) == self._cursor:
            return
        if any(name not in self._nodes for row in page.attempts for name in row.nodes):
            await self._refresh_nodes(NODES_AT_MOST_EVERY_MS)
        samples = await self._samples(page.attempts)
        record = partial(self._recorder.record, page, self._nodes, samples=samples)
        done: Recorded = await self._database.write(record)
        self._cursor, self._recorded_ms = done.cursor, done.recorded_ms
        self._recorded += done.fresh
        self._lost += done.lost
        if done.lost:
            self._runtime.log.warning("ended attempts were removed before they were read", count=done.lost)

    async def _rewind(self, error: HALError) -> None:
        """The store was replaced by a backup: what it does not have any more stays in here."""
        newest = PAGE.decode(await self._controller.ask("GET", "/v1/attempts", {"newest": "1", "limit": "1"}))
        cursor = int(newest.cursor)
        if cursor >= self._cursor:
            raise error  # it is about something else
        self._runtime.log.warning("the controller's store was replaced", before=self._cursor, now=cursor)
        await self._database.write(partial(rewind, cursor=cursor))
        self._cursor = cursor
        self._rewound += 1

    async def _refresh_nodes(self, older_than_ms: int) -> None:
        now_ms = self._runtime.monotonic_ms()
        if self._nodes_ms is not None and now_ms - self._nodes_ms < older_than_ms:
            return
        found = nodes_in(await self._controller.ask("GET", "/v1/nodes"))
        self._nodes_ms = now_ms
        new = {name: node for name, node in found.items() if not _same(self._nodes.get(name), node)}
        if new:
            await self._database.write(partial(keep_nodes, new))
        prices = await self._advised_prices() if self._prices.use_advice else {}
        self._nodes = with_prices({**self._nodes, **found}, prices)

    async def _advised_prices(self) -> dict[str, float]:
        prices: dict[str, float] = {}
        cursor = ""
        try:
            while len(prices) < MOST_PRICES:
                query = {"limit": str(PRICE_KEYS), **({"cursor": cursor} if cursor else {})}
                found, following = prices_in(await self._controller.ask("GET", "/v1/advice/price", query))
                prices |= found
                if not following or following == cursor:
                    break
                cursor = following
        except NotFoundError:
            pass  # nobody has put any
        return prices

    async def _trim(self) -> None:
        while True:
            await self._database.write(partial(set_kept, section=self._section, now_ms=self._runtime.now_ms()))
            removed = False
            while await self._database.write(trim_some):
                removed = True
                await self._runtime.sleep(TRIM_PAUSE_MS)
            if removed:
                await self._database.write(self._drop_names)
            await self._runtime.sleep(TRIM_EVERY_MS)

    def _drop_names(self, connection: sqlite3.Connection) -> None:
        drop_names(connection)
        self._recorder.forget()


def _read_progress(connection: sqlite3.Connection) -> tuple[int, int]:
    cursor, recorded_ms = connection.execute("SELECT cursor, recorded_ms FROM progress").fetchone()
    return cursor, recorded_ms


def _same(known: KnownNode | None, node: KnownNode) -> bool:
    return known is not None and known.labels == node.labels and known.capacity == node.capacity
