"""When something is due for which step, by the boot clock: a heap whose stale entries are skipped when they are
popped."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator
from enum import IntEnum

from hal.core.model import StepId


class Due(IntEnum):
    """What can be due."""

    LIMIT_SIGNAL = 0
    LIMIT = 1
    KILL = 2
    TERM = 3


class Timers:
    """At most four entries per live step; the caller judges whether an entry is still valid."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, StepId]] = []

    def add(self, boot_ms: int, due: Due, step: StepId) -> None:
        heapq.heappush(self._heap, (boot_ms, due, step))

    def next_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def pop(self, boot_ms: int) -> Iterator[tuple[Due, StepId]]:
        """Remove and return what is due by then, earliest first."""
        while self._heap and self._heap[0][0] <= boot_ms:
            _, due, step = heapq.heappop(self._heap)
            yield Due(due), step

    def __len__(self) -> int:
        return len(self._heap)

    def keep(self, steps: Container[StepId]) -> None:
        """Discard the entries of all other steps."""
        self._heap = [entry for entry in self._heap if entry[2] in steps]
        heapq.heapify(self._heap)
