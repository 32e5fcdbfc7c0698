"""Live jobs by name and user: who of them was submitted first, for jobs that may only run one after the other.

Pure. O(1) for each job that comes or goes; where a singleton waits, O(log jobs of that name).
"""

from __future__ import annotations

import heapq

Key = tuple[str, str]
"""User and name."""

SLACK = 64
"""A heap may hold so many ids of jobs that have gone, and as many as there are live ones, before it is built anew."""


class Namesakes:
    """Ids of live jobs that have a name, and who waits to be the first of them."""

    def __init__(self) -> None:
        self._members: dict[Key, set[int] | int] = {}
        """One id alone costs no set."""
        self._waiting: dict[Key, set[int]] = {}
        self._heaps: dict[Key, list[int]] = {}

    def add(self, key: Key, job: int) -> None:
        """A live job has that name."""
        members = self._members.get(key)
        if members is None:
            self._members[key] = job
        elif isinstance(members, set):
            members.add(job)
        elif members != job:
            self._members[key] = {members, job}
        if key in self._heaps:
            heapq.heappush(self._heaps[key], job)

    def remove(self, key: Key, job: int) -> None:
        """It has ended, or has another name now."""
        members = self._members[key]
        if isinstance(members, set):
            members.discard(job)
            if not members:
                del self._members[key]
        elif members == job:
            del self._members[key]

    def wait(self, key: Key, job: int) -> None:
        """A singleton waits to be the first."""
        self._waiting.setdefault(key, set()).add(job)
        if key not in self._heaps:
            self._heaps[key] = sorted(self._set(key))

    def leave(self, key: Key, job: int) -> None:
        """It does not wait any more."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.discard(job)
            if not waiting:
                del self._waiting[key]
                self._heaps.pop(key, None)

    def waits(self, key: Key, job: int | None) -> bool:
        """Whether that job is a singleton that waits."""
        return job in self._waiting.get(key, ())

    def first(self, key: Key) -> int | None:
        """The live job of that name with the lowest id; None when nobody waits to know."""
        heap = self._heaps.get(key)
        if heap is None:
            return None
        members = self._set(key)
        if len(heap) > 2 * len(members) + SLACK:
            heap = self._heaps[key] = sorted(members)
        while heap and heap[0] not in members:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def is_first(self, key: Key, job: int) -> bool:
        """Whether no live job of that name has a lower id than `job`."""
        if key in self._heaps:
            first = self.first(key)
            return first is None or first >= job
        return all(other >= job for other in self._set(key))

    def _set(self, key: Key) -> set[int]:
        members = self._members.get(key, ())
        return members if isinstance(members, set) else {members} if isinstance(members, int) else set()
