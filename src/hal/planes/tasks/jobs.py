"""Live jobs by id: objects of those that something has happened to, columns of those that only wait.

Pure. A packed job becomes an object when it is asked for by `[]` or `get`, since whoever does so may change it; `peek`,
`values` and `items` give copies of packed ones that are for reading only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from hal.core.model.policy_scope import Owner
from hal.planes.tasks.live import LiveJob
from hal.planes.tasks.packed import Packed
from hal.store.untouched import Untouched
from hal.store.views import JobFilter


class Jobs:
    """All live jobs, as a mapping."""

    def __init__(self, made: Callable[[Untouched, int], LiveJob], unpacked: Callable[[LiveJob], None]) -> None:
        """Empty.

        Args:
            made: the job at that place of the columns.
            unpacked: called with each job that leaves its columns, before anything changes.
        """
        self._live: dict[int, LiveJob] = {}
        self.packed = Packed(Untouched())
        self._made = made
        self._unpacked = unpacked

    def pack(self, columns: Untouched) -> None:
        """Jobs that wait untouched, none of which is here yet. Once, before any other is unpacked."""
        self.packed = Packed(columns)

    # ── as a mapping ──────────────────────────────────────────────────────────────────────────────────────────────

    def __getitem__(self, job: int) -> LiveJob:
        found = self.get(job)
        if found is None:
            raise KeyError(job)
        return found

    def get(self, job: int) -> LiveJob | None:
        """The job, which may be changed; None when there is none."""
        found = self._live.get(job)
        if found is not None:
            return found
        place = self.packed.place(job)
        if place < 0:
            return None
        found = self._live[job] = self._made(self.packed.columns, place)
        self.packed.take(place)
        self._unpacked(found)
        return found

    def __setitem__(self, job: int, value: LiveJob) -> None:
        place = self.packed.place(job)
        if place >= 0:
            self.packed.take(place)
        self._live[job] = value

    def __delitem__(self, job: int) -> None:
        del self._live[job]

    def pop(self, job: int) -> LiveJob | None:
        """Take out one that may have been changed; None when it is not here."""
        return self._live.pop(job, None)

    def __contains__(self, job: object) -> bool:
        return job in self._live or (isinstance(job, int) and self.packed.place(job) >= 0)

    def __len__(self) -> int:
        return len(self._live) + len(self.packed)

    def __iter__(self) -> Iterator[int]:
        yield from self.packed
        yield from self._live

    def values(self) -> Iterator[LiveJob]:
        """All of them, packed ones as copies for reading. Some microseconds for each that is packed."""
        return (job for _, job in self.items())

    def items(self) -> Iterator[tuple[int, LiveJob]]:
        """As `values`."""
        for job in self:
            found = self.peek(job)
            if found is not None:
                yield job, found

    # ── for reading ───────────────────────────────────────────────────────────────────────────────────────────────

    def peek(self, job: int) -> LiveJob | None:
        """The job as it is; not to be changed."""
        found = self._live.get(job)
        if found is None:
            place = self.packed.place(job)
            if place >= 0:
                return self._made(self.packed.columns, place)
        return found

    def is_packed(self, job: int) -> bool:
        """Whether it waits, and nothing has happened to it."""
        return self.packed.place(job) >= 0

    def unpacked(self) -> Collection[LiveJob]:
        """Those that are objects."""
        return self._live.values()

    def in_queues(self, queues: Collection[str]) -> list[int]:
        """Ids of jobs in one of these queues, ascending."""
        return sorted([*self.packed.in_queues(queues), *(j.id for j in self._live.values() if j.queue in queues)])

    def matching(self, wanted: JobFilter) -> list[int]:
        """Ids of jobs that match everything that the filter sets, ascending. O(jobs)."""
        found = (
            job.id
            for job in self._live.values()
            if (not wanted.states or job.state in wanted.states)
            and (not wanted.user or job.user == wanted.user)
            and (not wanted.queue or job.queue == wanted.queue)
            and (not wanted.name or job.name == wanted.name)
            and (not wanted.account or job.account == wanted.account)
            and all(k in job.spec.labels and (not v or job.spec.labels[k] == v) for k, v in wanted.labels.items())
        )
        return sorted([*self.packed.matching(wanted), *found])

    def packed_owners(self) -> list[tuple[Owner, int]]:
        """Whose packed jobs there are, and how many; each is one task that waits."""
        return self.packed.owners() if len(self.packed) else []
