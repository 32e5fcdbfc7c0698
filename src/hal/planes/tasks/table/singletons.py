"""Live jobs by name and user: who of them was submitted first, for jobs that may only run one after the other.

Pure. O(log jobs of that name) for each job that comes or goes; 8 bytes for each id.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

Key = tuple[str, str]
"""User and name."""

SLACK = 64
"""Ids of removed jobs that may be kept beyond the number of live ones before they are swept out."""

_NONE: frozenset[int] = frozenset()


class _Ids:
    """Ids in ascending order. Removed ones are noted, and swept out when they are many."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = array("q", ids)
        self._gone: set[int] | frozenset[int] = _NONE

    def __len__(self) -> int:
        return len(self._ids) - len(self._gone)

    def __iter__(self) -> Iterator[int]:
        return (job for job in self._ids if job not in self._gone)

    def __contains__(self, job: object) -> bool:
        return isinstance(job, int) and self._listed(job) and job not in self._gone

    def add(self, job: int) -> None:
        if not self._ids or job > self._ids[-1]:
            self._ids.append(job)
        elif not self._listed(job):
            insort(self._ids, job)
        elif job in self._gone:
            self._gone -= {job}

    def discard(self, job: int) -> None:
        if job in self:
            if isinstance(self._gone, frozenset):
                self._gone = set()
            self._gone.add(job)
            if len(self._gone) > len(self) + SLACK:
                self._ids, self._gone = array("q", self), _NONE

    def _listed(self, job: int) -> bool:
        index = bisect_left(self._ids, job)
        return index < len(self._ids) and self._ids[index] == job


class Singletons:
    """Ids of live jobs that have a name, and who waits to be the first of them."""

    def __init__(self) -> None:
        self._members: dict[Key, _Ids | int] = {}
        """One id alone costs no list."""
        self._waiting: dict[Key, set[int]] = {}
        self._heaps: dict[Key, list[int]] = {}

    def add(self, key: Key, job: int) -> None:
        """A live job has that name."""
        members = self._members.get(key)
        if members is None:
            self._members[key] = job
        elif isinstance(members, _Ids):
            members.add(job)
        elif members != job:
            self._members[key] = _Ids(sorted((members, job)))
        if key in self._heaps:
            heapq.heappush(self._heaps[key], job)

    def add_all(self, key: Key, jobs: Sequence[int]) -> None:
        """These live jobs, by ascending id, have that name."""
        if key not in self._members and len(jobs) > 1:
            self._members[key] = _Ids(jobs)
        else:
            for job in jobs:
                self.add(key, job)

    def remove(self, key: Key, job: int) -> None:
        """Remove a job that has ended, or has another name now."""
        members = self._members[key]
        if isinstance(members, _Ids):
            members.discard(job)
            if not len(members):
                del self._members[key]
        elif members == job:
            del self._members[key]

    def wait(self, key: Key, job: int) -> None:
        """Add a singleton that waits to be the first."""
        self._waiting.setdefault(key, set()).add(job)
        if key not in self._heaps:
            self._heaps[key] = list(self._of(key))

    def leave(self, key: Key, job: int) -> None:
        """Remove a singleton that no longer waits."""
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
        members = self._of(key)
        if len(heap) > 2 * len(members) + SLACK:
            heap = self._heaps[key] = list(members)
        while heap and heap[0] not in members:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def named(self, key: Key) -> tuple[int, ...]:
        """The live jobs of that name, by ascending id."""
        return tuple(self._of(key))

    def earlier(self, key: Key, job: int) -> Iterator[int]:
        """The live jobs of that name that were submitted before."""
        return (other for other in self._of(key) if other < job)

    def is_first(self, key: Key, job: int) -> bool:
        """Whether no live job of that name has a lower id than `job`."""
        if key in self._heaps:
            first = self.first(key)
            return first is None or first >= job
        return next(iter(self._of(key)), job) >= job

    def _of(self, key: Key) -> _Ids | tuple[int, ...]:
        """Ascending."""
        members = self._members.get(key)
        return () if members is None else (members,) if isinstance(members, int) else members
