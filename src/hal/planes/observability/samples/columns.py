"""The newest values of one source, and those of its open block, in columns: one row a series.

A row lives while values of it come; at each new block, rows without a value in the last one are dropped, so that
attempts that have ended leave nothing behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hal.planes.observability.samples.blocks import Block, key_of
from hal.planes.observability.telemetry import Floats, Numbers, SenderTable
from hal.wire.frames.telemetry import Series

BLOCK_MS: Final = 300_000
BLOCK_SAMPLES: Final = 64
"""Instants of a block; it ends earlier where more come."""
MAX_ROWS: Final = 4_096
"""Series of one source; values of more are dropped and counted."""
FIRST_ROWS: Final = 48

Key = tuple[str, tuple[tuple[str, str], ...]]


class SourceColumns:
    """Of one source.

    Attributes:
        series: by row.
        newest, newest_ms: shape (rows,): the newest value of each row and when it was read.
        former, former_ms: the same of the value before that.
    """

    def __init__(self, name: str, *, is_node: bool, is_broker: bool = False) -> None:
        self.name, self.is_node, self.is_broker = name, is_node, is_broker
        self.series: list[Series] = []
        self.heard_ms = 0
        """When values came last, by this process's clock."""
        self.dirty = False
        """The open block has values that are not written."""
        self.overflow = 0
        """Values that were dropped because the source has too many series."""
        self._rows: dict[Key, int] = {}
        self._generation = 0
        self.newest = np.full(FIRST_ROWS, np.nan)
        self.newest_ms = np.zeros(FIRST_ROWS, np.int64)
        self.former = np.full(FIRST_ROWS, np.nan)
        self.former_ms = np.zeros(FIRST_ROWS, np.int64)
        self._values = np.full((FIRST_ROWS, BLOCK_SAMPLES), np.nan)
        self._at_ms = np.zeros(BLOCK_SAMPLES, np.int64)
        self._count = 0

    @property
    def rows(self) -> int:
        return len(self.series)

    @property
    def is_full(self) -> bool:
        """The open block ends before the next instant."""
        return self._count >= BLOCK_SAMPLES

    def ends_before(self, at_ms: int) -> bool:
        """Whether the open block ends before a value of that instant."""
        return bool(self._count) and (self.is_full or at_ms // BLOCK_MS != int(self._at_ms[0]) // BLOCK_MS)

    def open_block(self) -> Block | None:
        """Return what the open block has so far; None: nothing."""
        if not self._count:
            return None
        rows, count = self.rows, self._count
        return Block(tuple(self.series), self._at_ms[:count].copy(), self._values[:rows, :count].copy())

    def begin_block(self) -> None:
        """Begin a new block; the former one was taken. Rows that had no value in it are dropped."""
        rows, count = self.rows, self._count
        alive = ~np.isnan(self._values[:rows, :count]).all(axis=1) if count else np.ones(rows, bool)
        if not alive.all():
            kept = np.flatnonzero(alive)
            for column in (self.newest, self.newest_ms, self.former, self.former_ms):
                column[: len(kept)] = column[kept]
            self.newest[len(kept) : rows] = np.nan
            self.series = [self.series[row] for row in kept.tolist()]
            self._rows = {key_of(one): row for row, one in enumerate(self.series)}
            self._generation += 1
        self._values[:] = np.nan
        self._count = 0
        self.dirty = False

    def put(self, at_ms: int, table: SenderTable, numbers: Numbers, values: Floats) -> int:
        """Take the values of one instant, not before the newest one; returns how many new series there are."""
        before = self.rows
        slots = self._slots(table, numbers)
        taken = slots >= 0
        if not taken.all():
            self.overflow += int((~taken).sum())
            slots, values = slots[taken], values[taken]
        if self._count and at_ms == int(self._at_ms[self._count - 1]):
            column = self._count - 1
        else:
            column = self._count
            self._count += 1
            self._at_ms[column] = at_ms
        self._values[slots, column] = values
        self.former[slots], self.former_ms[slots] = self.newest[slots], self.newest_ms[slots]
        self.newest[slots], self.newest_ms[slots] = values, at_ms
        self.dirty = True
        return self.rows - before

    def last_ms(self) -> int:
        """The newest instant of the open block; 0: it has none."""
        return int(self._at_ms[self._count - 1]) if self._count else 0

    def newest_of(self, key: Key) -> float | None:
        """The newest value of a series; None: it has none, or not for a while."""
        row = self._rows.get(key)
        return None if row is None or np.isnan(self.newest[row]) else float(self.newest[row])

    def find(self, name: str) -> list[int]:
        """Return the rows with that name."""
        return [row for row, one in enumerate(self.series) if one.name == name]

    def _slots(self, table: SenderTable, numbers: Numbers) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        if table.owner is not self or table.generation != self._generation:
            table.slots[:] = -1
            table.owner, table.generation = self, self._generation
        slots = table.slots[numbers]
        unknown = np.flatnonzero(slots < 0)
        if len(unknown):
            for at in unknown.tolist():
                number = int(numbers[at])
                table.slots[number] = self._row(table.series[number])
            slots = table.slots[numbers]
        return slots

    def _row(self, series: Series) -> int:
        key = key_of(series)
        row = self._rows.get(key)
        if row is not None:
            return row
        if self.rows >= MAX_ROWS:
            return -1
        row = self._rows[key] = self.rows
        self.series.append(series)
        if row >= len(self.newest):
            self._grow()
        self.newest[row], self.newest_ms[row], self.former[row], self.former_ms[row] = np.nan, 0, np.nan, 0
        return row

    def _grow(self) -> None:
        more = min(MAX_ROWS, 2 * len(self.newest)) - len(self.newest)
        self.newest = np.concatenate((self.newest, np.full(more, np.nan)))
        self.former = np.concatenate((self.former, np.full(more, np.nan)))
        self.newest_ms = np.concatenate((self.newest_ms, np.zeros(more, np.int64)))
        self.former_ms = np.concatenate((self.former_ms, np.zeros(more, np.int64)))
        self._values = np.concatenate((self._values, np.full((more, BLOCK_SAMPLES), np.nan)))


def ratio_between(source: SourceColumns, rows: Sequence[int], part: Sequence[int]) -> float | None:
    """How much of what counters grew by, between their last two values, is that of some of them; None: not known."""
    if not rows or not part:
        return None
    grown = source.newest[list(rows)] - source.former[list(rows)]
    mine = source.newest[list(part)] - source.former[list(part)]
    total = float(grown.sum())
    return float(mine.sum()) / total if total > 0 else None
