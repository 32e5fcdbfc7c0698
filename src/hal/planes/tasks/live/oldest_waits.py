"""Since when the jobs of each queue wait of which nothing runs: counts by the ten seconds in which they could have
started first.

Pure. A change costs O(1), and the oldest of a queue O(log times) once for each time that is over: jobs are never
walked. Ten seconds are exact enough for what waits for minutes, and make many jobs one count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Final

EXACT_MS: Final = 10_000
"""Times are told apart by so much."""
LEAST_TIMES: Final = 1_000
"""Of a queue: so many times that are over are kept without looking."""

QueueTime = tuple[str, int]
"""A queue, and since when its jobs could have started, in units of `EXACT_MS`."""


class OldestWaits:
    """Of all queues."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[int, int]] = {}
        """By queue and time: how many wait; 0: none does any more, and the time is still in the heap."""
        self._times: dict[str, list[int]] = {}
        """By queue: a heap of the times in `_counts`."""
        self._over: dict[str, int] = {}
        """By queue: times of which none waits any more."""

    def keep(self, changes: Mapping[QueueTime, int]) -> None:
        """Count what a group has changed."""
        for (queue, time), change in changes.items():
            if change:
                self._add(queue, time, change)

    def since_ms(self) -> Iterator[tuple[str, int]]:
        """Of each queue in which something waits: since when the oldest does, to ten seconds."""
        for queue in list(self._counts):
            times, counts = self._times[queue], self._counts[queue]
            while times and not counts[times[0]]:
                del counts[heappop(times)]
                self._over[queue] -= 1
            if times:
                yield queue, times[0] * EXACT_MS
            else:
                del self._counts[queue], self._times[queue], self._over[queue]

    def counted(self) -> dict[QueueTime, int]:
        """What waits, by queue and time."""
        return {
            (queue, time): count for queue, counts in self._counts.items() for time, count in counts.items() if count
        }

    def _add(self, queue: str, time: int, change: int) -> None:
        counts = self._counts.setdefault(queue, {})
        times = self._times.setdefault(queue, [])
        before = counts.get(time)
        if before is None:
            heappush(times, time)
        left = counts[time] = (before or 0) + change
        over = self._over.get(queue, 0) + (not left) - (before == 0)
        self._over[queue] = over
        if over > LEAST_TIMES and 2 * over > len(times):
            kept = {time: count for time, count in counts.items() if count}
            self._counts[queue], self._times[queue], self._over[queue] = kept, list(kept), 0
            heapify(self._times[queue])
