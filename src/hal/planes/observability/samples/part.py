"""The collector's part for samples: newest values in memory, history in blocks.

What arrives goes into columns in memory at once. A source's open block is written every minute or so and when it is
over; so the death of this process costs at most a minute of samples. While the database cannot be written, blocks that
are over wait in memory, within a bound; beyond it the oldest are dropped and counted. Cost: about 40 µs a sample of a
node, and 0.4 ms a written block.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from hal.core.model import StoreError
from hal.core.model.samples_config import SamplesSection
from hal.planes.observability.database import Database
from hal.planes.observability.samples import store
from hal.planes.observability.samples.blocks import Block, join, reduce, select
from hal.planes.observability.samples.broker_sums import BrokerSums
from hal.planes.observability.samples.columns import SourceColumns
from hal.planes.observability.samples.store import FINE, HOURS, MINUTES, Written
from hal.planes.observability.telemetry import ReceivedValues, Sender
from hal.runtime.interface import Runtime
from hal.wire.frames.telemetry import Series
from hal.wire.roles import Role

WRITE_MS: Final = 2_000
OPEN_MS: Final = 60_000
"""How old the values of an open block are at most when they are written."""
SOURCES_A_WRITE: Final = 200
MAX_WAITING_BLOCKS: Final = 20_000
"""Blocks that are over and not written yet,"""
MAX_WAITING_BYTES: Final = 512 << 20
"""and their bytes: one of a node that runs hundreds of attempts has some hundred kilobytes."""
MAX_SOURCES: Final = 20_000
GONE_MS: Final = 900_000
"""A source that was silent for so long leaves memory; its history stays."""
TEND_MS: Final = 60_000
SOURCES_A_ROLL: Final = 50
"""That one transaction rolls up."""
MAX_SKEW_MS: Final = 60_000
"""A sender's clock may differ by so much; beyond it the time of arrival counts."""


class Samples:
    """See `Part`."""

    name: Final = "samples"

    def __init__(self, runtime: Runtime, directory: Path, section: SamplesSection) -> None:
        self._runtime, self._section = runtime, section
        self._database = Database(runtime, directory / "samples.sqlite", store.MIGRATIONS)
        self._sources: OrderedDict[str, SourceColumns] = OrderedDict()
        """In the order in which their open blocks were written."""
        self.brokers = BrokerSums(runtime.monotonic_ms())
        self._over: deque[Written] = deque()
        self._over_bytes = 0
        self._series = 0
        self._dropped = self._late = self._blocks_dropped = self._writes_failed = self._values = 0
        self._tended_ms = 0

    # ── what arrives ──────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, got: ReceivedValues) -> None:
        """Take the values of one instant from one sender."""
        if got.sender.role is Role.BROKER:
            self.brokers.take(got, self._runtime.monotonic_ms())
        name = source_name(got.sender)
        source = self._sources.get(name)
        if source is None:
            if len(self._sources) >= MAX_SOURCES:
                self._dropped += len(got.numbers)
                return
            source = self._sources[name] = SourceColumns(
                name, is_node=got.sender.role is Role.AGENT, is_broker=got.sender.role is Role.BROKER
            )
        at_ms = got.at_ms if abs(got.at_ms - got.received_ms) <= MAX_SKEW_MS else got.received_ms
        if at_ms < source.last_ms() - 2 * MAX_SKEW_MS:
            self._end_block(source)  # the clock of this machine was set back
        elif at_ms < source.last_ms():
            self._late += len(got.numbers)  # sent again after a lost connection, or the sender's clock was set back
            return
        elif source.ends_before(at_ms):
            self._end_block(source)
        if self._series >= self._section.series and source.rows == 0:
            self._dropped += len(got.numbers)
            return
        before = source.overflow
        self._series += source.put(at_ms, got.table, got.numbers, got.values)
        self._dropped += source.overflow - before
        self._values += len(got.numbers)
        source.heard_ms = self._runtime.monotonic_ms()

    def _end_block(self, source: SourceColumns) -> None:
        block = source.open_block()
        if block is not None and source.dirty:
            self._over.append(Written(source.name, block))
            self._over_bytes += block.values.nbytes
            while len(self._over) > MAX_WAITING_BLOCKS or self._over_bytes > MAX_WAITING_BYTES:
                self._take_oldest()
                self._blocks_dropped += 1
        before = source.rows
        source.begin_block()
        self._series += source.rows - before

    def _take_oldest(self) -> None:
        self._over_bytes -= self._over.popleft().block.values.nbytes

    # ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────────

    def sources(self) -> Iterable[SourceColumns]:
        """Those that were heard lately."""
        return self._sources.values()

    def monotonic_ms(self) -> int:
        """Now, by the clock by which sources were heard."""
        return self._runtime.monotonic_ms()

    def source(self, name: str) -> SourceColumns | None:
        """One that was heard lately."""
        return self._sources.get(name)

    async def known_sources(self) -> list[str]:
        """All that have history, and those that were heard lately."""
        found = set(self._sources)
        for level in (FINE, MINUTES, HOURS):
            found.update(await self._database.read(partial(store.sources, level=level)))
        return sorted(found)

    async def history(
        self,
        source: str,
        since_ms: int,
        until_ms: int,
        step_ms: int,
        wanted: Callable[[Series], bool] = lambda _series: True,
    ) -> Block:
        """Return series of a source in a time, one value a step at most; 0: as they came.

        The coarsest level whose step fits is read, and finer ones for what is not reduced yet.

        Args:
            wanted: which series. A node that runs short attempts has had very many: name few of them for a long time.
        """
        levels = [FINE]
        if step_ms >= store.MINUTE_MS:
            levels.insert(0, MINUTES)
        if step_ms >= store.HOUR_MS:
            levels.insert(0, HOURS)
        newest = [one.block for one in self._over if one.source == source]
        columns = self._sources.get(source)
        open_block = columns.open_block() if columns is not None else None
        if open_block is not None:
            newest.append(open_block)
        read = partial(
            _read, levels, source, since_ms, until_ms, step_ms, wanted, [select(block, wanted) for block in newest]
        )
        return await self._database.read(read)

    # ── the part ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """See `Part`."""
        while True:
            await self._runtime.sleep(WRITE_MS)
            await self._write()
            now_ms = self._runtime.monotonic_ms()
            if now_ms - self._tended_ms >= TEND_MS:
                self._tended_ms = now_ms
                self._forget_silent(now_ms)
                await self._tend(self._runtime.now_ms())

    def health(self) -> Mapping[str, float | int | str]:
        """See `Part`."""
        return {
            "sources": len(self._sources),
            "series": self._series,
            "values": self._values,
            "dropped_values": self._dropped + self.brokers.dropped,
            "late_values": self._late,
            "waiting_blocks": len(self._over),
            "dropped_blocks": self._blocks_dropped,
            "failed_writes": self._writes_failed,
            "bytes": self._database.size_bytes(),
        }

    async def close(self) -> None:
        """See `Part`: what is in memory is written first, if that can be."""
        try:
            for source in self._sources.values():
                self._end_block(source)
            while self._over:
                await self._write()
        except StoreError as error:
            self._runtime.log.warning("the newest samples were not written", reason=str(error))
        await self._database.close()

    async def _write(self) -> None:
        """Write blocks that are over, and the open ones that were not written for longest.

        Raises:
            StoreError: what is over goes on waiting.
        """
        over = [self._over[at] for at in range(min(len(self._over), SOURCES_A_WRITE))]
        count = max(1, min(SOURCES_A_WRITE, -(-len(self._sources) * WRITE_MS // OPEN_MS)))
        opened: list[Written] = []
        for name in list(self._sources)[:count]:
            source = self._sources[name]
            self._sources.move_to_end(name)
            block = source.open_block() if source.dirty else None
            if block is not None:
                source.dirty = False
                opened.append(Written(name, block))
        if not over and not opened:
            return
        try:
            await self._database.write(partial(store.write, blocks=[*over, *opened]))
        except StoreError:
            self._writes_failed += 1
            for one in opened:
                if (source_of := self._sources.get(one.source)) is not None:
                    source_of.dirty = True
            raise
        for one in over:
            if self._over and self._over[0] is one:
                self._take_oldest()

    def _forget_silent(self, now_ms: int) -> None:
        for name, source in list(self._sources.items()):
            if now_ms - source.heard_ms > GONE_MS:
                self._end_block(source)
                self._series -= source.rows
                del self._sources[name]

    async def _tend(self, now_ms: int) -> None:
        """Roll up what is complete, and delete what is too old or too much.

        Raises:
            StoreError: the database cannot be written.
        """
        for level in (FINE, MINUTES):
            names = await self._database.read(partial(store.sources, level=level))
            for at in range(0, len(names), SOURCES_A_ROLL):
                part = names[at : at + SOURCES_A_ROLL]
                await self._database.write(partial(store.roll_up, level=level, names=part, now_ms=now_ms))
        keep = {FINE: self._section.fine, MINUTES: self._section.minutes, HOURS: self._section.hours}
        for level, kept_ms in keep.items():
            while await self._database.write(partial(store.trim, level=level, before_ms=now_ms - int(kept_ms))):
                await self._runtime.sleep(0)
        while await self._database.read(store.used_bytes) > self._section.size_bytes:
            if not await self._database.write(partial(store.trim_oldest, rows=store.FREED_ROWS)):
                break
        await self._database.write(store.vacuum)


def source_name(sender: Sender) -> str:
    """How a source is called: a node by its name, another process with its role before it."""
    return sender.name if sender.role is Role.AGENT else f"{sender.role}:{sender.name}"


def _read(
    levels: Sequence[int],
    source: str,
    since_ms: int,
    until_ms: int,
    step_ms: int,
    wanted: Callable[[Series], bool],
    newest: Sequence[Block],
    connection: sqlite3.Connection,
) -> Block:
    """As `history`.

    Args:
        newest: blocks that are in memory alone.
    """
    found: list[Block] = []
    at_ms = since_ms
    for level in levels:
        blocks = list(store.read(connection, level, source, at_ms, until_ms, wanted))
        found += blocks
        if blocks:
            at_ms = max(at_ms, int(blocks[-1].at_ms[-1]) + 1)
    whole = join([*found, *newest])
    inside = (whole.at_ms >= since_ms) & (whole.at_ms <= until_ms)
    whole = Block(whole.series, whole.at_ms[inside], whole.values[:, inside])
    return reduce(whole, step_ms) if step_ms else whole
